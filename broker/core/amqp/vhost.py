"""Virtual hosts in names. What AMQP calls ``orders`` in the virtual host ``shop`` is the address and the queue ``::shop.orders`` here.

Names in the virtual host ``/`` stand as they are. No other name begins with ``::``, so that none of one virtual host can be one of another;
and as ``.`` separates words, the pattern ``::shop.#`` means everything in ``shop``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: The virtual host that is always there, and where the names of every other protocol are.
DEFAULT: Final = "/"
SEPARATOR: Final = "::"
#: The name AMQP's clients consume from for direct replies.
REPLY_TO: Final = "amq.rabbitmq.reply-to"
#: What would end a prefix early, as URLs write it.
_ESCAPES: Final = {"%": "%25", ".": "%2E", ":": "%3A"}


_MAX_NAME: Final = 128


def name_problem(name: str) -> str | None:
    """Why this cannot be the name of a virtual host; None when it can."""
    if 0 < len(name) <= _MAX_NAME and name.isprintable():
        return None
    return f"{name!r:.80} cannot name a virtual host: 1 to {_MAX_NAME} printable characters are expected"


@lru_cache(maxsize=1024)
def prefix_of(virtual_host: str) -> str:
    """What every name of the virtual host begins with; empty for ``/``."""
    if virtual_host == DEFAULT:
        return ""
    return SEPARATOR + "".join(_ESCAPES.get(each, each) for each in virtual_host) + "."


def split(name: str) -> tuple[str, str]:
    """A name as (prefix of its virtual host, the name there)."""
    end = name.find(".") + 1 if name.startswith(SEPARATOR) else 0
    return name[:end], name[end:]


def local_name(name: str) -> str:
    """The name as the clients of its virtual host know it."""
    return split(name)[1]


def virtual_host_of(name: str) -> str:
    escaped = split(name)[0][len(SEPARATOR) : -1]
    for plain, written in reversed(_ESCAPES.items()):
        escaped = escaped.replace(written, plain)
    return escaped or DEFAULT


def address_and_queue(name: str) -> tuple[str, str, str]:
    """``address::queue`` as (address, ``::``, queue), as str.partition has it; the queue is in the virtual host of the address."""
    prefix, local = split(name)
    address, separator, queue = local.partition(SEPARATOR)
    return prefix + address, separator, prefix + queue if separator else ""
