"""The methods of AMQP 0-9-1, from one table: numbers, names, arguments; reading and writing them. What 0-8 has otherwise is in another.

Publish, deliver and acknowledge have code of their own (codec.py, deliveries.py); what stands here is for everything else.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .codec_tables import TableError, read_table, write_table

#: class number, class; then method number, method, arguments. o octet, h short, l long, q long long, s short string, k the same as a
#: routing key, which may be any bytes, S long string, t table, b bit (neighbouring bits share an octet).
_TABLE: Final = """
10 connection
  10 start o o t S S
  11 start-ok t s S s
  20 secure S
  21 secure-ok S
  30 tune h l h
  31 tune-ok h l h
  40 open s s b
  41 open-ok s
  50 close h s h h
  51 close-ok
  60 blocked s
  61 unblocked
  70 update-secret S s
  71 update-secret-ok
20 channel
  10 open s
  11 open-ok S
  20 flow b
  21 flow-ok b
  40 close h s h h
  41 close-ok
30 access
  10 request s b b b b b
  11 request-ok h
40 exchange
  10 declare h s s b b b b b t
  11 declare-ok
  20 delete h s b b
  21 delete-ok
  30 bind h s s k b t
  31 bind-ok
  40 unbind h s s k b t
  51 unbind-ok
50 queue
  10 declare h s b b b b b t
  11 declare-ok s l l
  20 bind h s s k b t
  21 bind-ok
  30 purge h s b
  31 purge-ok l
  40 delete h s b b b
  41 delete-ok l
  50 unbind h s s k t
  51 unbind-ok
60 basic
  10 qos l h b
  11 qos-ok
  20 consume h s s b b b b t
  21 consume-ok s
  30 cancel s b
  31 cancel-ok s
  40 publish h s k b b
  50 return h s s k
  60 deliver s q b s k
  70 get h s b
  71 get-ok q b s k l
  72 get-empty s
  80 ack q b
  90 reject q b
  100 recover-async b
  110 recover b
  111 recover-ok
  120 nack q b b
85 confirm
  10 select b
  11 select-ok
90 tx
  10 select
  11 select-ok
  20 commit
  21 commit-ok
  30 rollback
  31 rollback-ok
"""

#: The same of 0-8, where it differs. - is an argument that is not on the wire there.
_TABLE_0_8: Final = """
10 connection
  60 close h s h h
  61 close-ok
20 channel
  11 open-ok -
60 basic
  20 consume h s s b b b b -
"""


class Method(NamedTuple):
    """``number`` is the class in the upper 16 bits, the method in the lower."""

    number: int
    name: str
    arguments: str


def _read(table: str) -> list[Method]:
    methods: list[Method] = []
    class_number, class_name = 0, ""
    for line in table.strip().splitlines():
        number, name, *arguments = line.split()
        if line.startswith(" "):
            methods.append(Method(class_number << 16 | int(number), f"{class_name}.{name}", "".join(arguments)))
        else:
            class_number, class_name = int(number), name
    return methods


METHODS: Final = {method.number: method for method in _read(_TABLE)}
#: ``queue.declare`` -> its number.
NUMBER: Final = {method.name: method.number for method in METHODS.values()}


def named(number: int) -> str:
    """A method behind the channel that it came on, in a line of the log; empty where there is none."""
    method = METHODS.get(number)
    return "" if method is None else f", {method.name}"


class Dialect:
    """What a client asks for by its protocol header: the version that connection.start names, and how methods are written."""

    def __init__(self, version: tuple[int, int], other: str = "") -> None:
        self.version = version
        differing = _read(other)
        self.methods: Final = {**METHODS, **{method.number: method for method in differing}}
        self.by_name: Final = {method.name: method for method in (*METHODS.values(), *differing)}


#: As RabbitMQ takes them: 0-9 is 0-9-1 but in name, and 0-8 is asked for by two headers.
DIALECTS: Final = {
    b"AMQP\x00\x00\x09\x01": Dialect((0, 9)),
    b"AMQP\x01\x01\x00\x09": Dialect((0, 9)),
    b"AMQP\x01\x01\x08\x00": Dialect((8, 0), _TABLE_0_8),
    b"AMQP\x01\x01\x09\x01": Dialect((8, 0), _TABLE_0_8),
}
PROTOCOL_HEADER: Final = next(iter(DIALECTS))
_WIDTH: Final = {"o": 1, "h": 2, "l": 4, "q": 8}


def read_arguments(method: Method, data: bytes, at: int, end: int) -> list[Any]:
    """The arguments of a method frame's payload, from ``at`` on. Raises TableError for anything but exactly them."""
    values: list[Any] = []
    bit = 0
    for kind in method.arguments:
        if kind == "b":
            if not bit:
                at += 1
            if at > end:
                raise TableError(f"{method.name} is cut off")
            values.append(bool(data[at - 1] & 1 << bit))
            bit = (bit + 1) % 8
            continue
        bit = 0
        if kind == "-":
            values.append({})
            continue
        if kind in _WIDTH:
            stop = at + _WIDTH[kind]
            value: Any = int.from_bytes(data[at:stop], "big")
        elif kind in "sk":
            stop = at + 1 + (data[at] if at < end else 0)
            value = data[at + 1 : stop]
        elif kind == "S":
            stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
            value = data[at + 4 : stop]
        else:
            value, stop = read_table(data, at, end)
        if stop > end:
            raise TableError(f"{method.name} is cut off")
        if kind == "s":
            value = _text(value)
        elif kind == "k":
            value = value.decode("utf-8", "surrogateescape")
        values.append(value)
        at = stop
    if at != end:
        raise TableError(f"{method.name} has {end - at} bytes too many")
    return values


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise TableError("a short string is not UTF-8") from None


def short_string(text: str) -> bytes:
    """Length and UTF-8, cut at 255 bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > 255:
        raw = raw[:255].decode("utf-8", "ignore").encode()
    return bytes((len(raw),)) + raw


def write_arguments(method: Method, values: tuple[Any, ...]) -> bytes:
    """Payload of a method frame: the method's number and its arguments."""
    parts = [method.number.to_bytes(4, "big")]
    bits: list[bool] = []
    for kind, value in zip(method.arguments, values, strict=True):
        if kind == "b":
            bits.append(value)
            continue
        if bits:
            parts.append(_octet(bits))
            bits = []
        if kind in _WIDTH:
            parts.append(int(value).to_bytes(_WIDTH[kind], "big"))
        elif kind in "sk":
            parts.append(short_string(value))
        elif kind == "S":
            parts.append(len(value).to_bytes(4, "big") + value)
        elif kind == "t":
            parts.append(write_table(value))
    if bits:
        parts.append(_octet(bits))
    return b"".join(parts)


def _octet(bits: list[bool]) -> bytes:
    return bytes((sum(1 << place for place, bit in enumerate(bits) if bit),))
