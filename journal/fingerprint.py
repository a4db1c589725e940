"""The fingerprint of a fault: equal for failures that look alike, on any host, after any deploy, under any Python, and after any restart.

It is stored with each attempt, names the live fault groups, and is what reports group by. A pure function of what a failure report says:
changed in any way, it gets another VERSION, and faults on record are mapped by ``of_fault``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

VERSION: Final = 3
_PREFIX: Final = f"{VERSION}-"
#: In the version before, what was reported had the same digits; what was not was one fault for all queues.
_BEFORE: Final = "2-"
#: What the broker says in the place of a report: none of the program's.
_TIMED_OUT: Final = "timeout"
#: How deliveries end, and what messages die of, without an error's type.
_OUTCOMES: Final = frozenset(
    """nack listener recover rollback poison connection-lost timeout error expired rejected closed delivery_limit not-retryable
    maxlen acknowledged""".split()
)
#: Of a text so much is looked at, and of what is left of it so much counts: a longer number in front of it moves nothing out of sight.
_MOST_TEXT: Final = 4096
_MOST_PLAIN: Final = 200
#: The innermost frames: a traceback may be cut in its middle, and what calls a program differs from host to host.
_MOST_FRAMES: Final = 10
_MOST_TRACEBACK: Final = 16_384

#: Quotes around something, and no apostrophes: 'x', "x", `x`.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(?:(?!\1)[^\n]){0,512}?\1(?!\w)")
#: Numbers, and words that numbers stand in, as most ids do; hexadecimal numbers that happen to have none, from eight digits on.
_IDS: Final = re.compile(r"\w*\d\w*|\b[0-9a-fA-F]{8,}\b")
#: Several of them in a row, as in times, versions, lists and UUIDs, are one.
_ROWS: Final = re.compile(r"#(?:[-+.,:;/_ ]{1,2}#)+")
_SPACES: Final = re.compile(r"\s+")
_FRAME: Final = re.compile(r'File "([^"]{1,512})", line \d+, in (\S{1,128})')
#: Frames that say where Python is, how it works inside or who called: its own library, what it froze, our client (of which
#: the compiled build says where it stands in the project).
_NOT_THE_PROGRAM: Final = re.compile(
    r"^<frozen |/lib(?:64)?/python\d[\d.]*t?/(?!(?:site|dist)-packages/)|/python\d*/lib/(?!site-packages/)|(?:^|/)homing/client/", re.I
)
#: Our client was imported as ``client`` once, and faults on record of then name its errors and its files so.
_OLD_ERROR: Final = re.compile(r"^(?=client\.)")
_OLD_FRAME: Final = re.compile(r"(?<=[/\\](?:site|dist)-packages[/\\])(?=client[/\\])")
#: Up to Python 3.11 these had frames of their own.
_COMPREHENSIONS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>")


def fingerprint(outcome: str, queue: str, error_type: str = "", text: str = "", traceback: str = "", task: str = "") -> str:
    """``3-`` and 16 hex digits. Of what was reported, in whichever queue; without a report of its queue and outcome.

    ``task``: what was to be done: an error raised outside of it, such as that its worker was lost, looks alike for all tasks.
    ``outcome``: how the delivery ended; in the place of the error's type, where only a text or a traceback was reported.
    """
    if outcome == _TIMED_OUT or not (error_type or text or traceback):
        return _PREFIX + _digits((outcome, "", "", queue))
    named = (f"task {plain(task)}",) if task else ()
    return _PREFIX + _digits((error_type or outcome, plain(text), *named, *_frames(traceback[-_MOST_TRACEBACK:])))


def _digits(key: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(key).encode("utf-8", "replace"), digest_size=8).hexdigest()


def of_fault(outcome: str, queue: str, fault: Mapping[str, object] | None) -> str:
    """Of an attempt on record: the one it was given, or, where that was another version's, what it would be given now."""
    fault = fault or {}
    given = str(fault.get("fingerprint") or "")
    if given.startswith(_PREFIX):
        return given
    reported = {name: str(fault.get(name) or "") for name in ("error_type", "error_text", "reason", "traceback")}
    if given.startswith(_BEFORE) and outcome != _TIMED_OUT and any(reported.values()):
        return _PREFIX + given.removeprefix(_BEFORE)
    error_type = _OLD_ERROR.sub("homing.", reported["error_type"])
    text = reported["error_text"] or reported["reason"]
    return fingerprint(outcome, queue, error_type, text, _OLD_FRAME.sub("homing/", reported["traceback"]))


def of_group(given: str, error_class: str, queue: str) -> str:
    """Of a fault group of the version before, as its table has it: that nothing was reported shows in its digits."""
    if not given.startswith(_BEFORE):
        return given
    if error_class == _TIMED_OUT or (error_class in _OUTCOMES and given == _BEFORE + _digits((error_class, ""))):
        return fingerprint(error_class, queue)
    return _PREFIX + given.removeprefix(_BEFORE)


def plain(text: str) -> str:
    """The text with ``#`` for what differs from message to message: numbers, ids, hexadecimal and quoted words."""
    words = _IDS.sub("#", _QUOTED.sub("#", text[:_MOST_TEXT]))
    return _SPACES.sub(" ", _ROWS.sub("#", words)).strip()[:_MOST_PLAIN]


@lru_cache(maxsize=64)
def _frames(traceback: str) -> tuple[str, ...]:
    """``file function`` of the program's own frames, the innermost of each, without where the file lies."""
    found: dict[str, None] = {}
    for file, function in reversed(_FRAME.findall(traceback)):
        file = file.replace("\\", "/")
        if function not in _COMPREHENSIONS and not _NOT_THE_PROGRAM.search(file):
            found[f"{_module(file)} {function}"] = None
            if len(found) == _MOST_FRAMES:
                break
    return tuple(found)


def _module(file: str) -> str:
    """The file's own name: of a path nobody can tell where its root ends. Of a package's ``__init__.py`` the package's."""
    *folders, name = file.split("/")
    return f"{folders[-1]}/{name}" if name == "__init__.py" and folders else name
