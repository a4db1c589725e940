"""AMQP 0-9-1 field tables: every type that RabbitMQ's clients write, read and written without loss.

``split_table`` and ``join_table`` take a table apart without reading its values, so that a broker can add a header and leave all others
exactly as they came. The letters are RabbitMQ's where they differ from the specification (``s`` is a 16-bit integer).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

#: Tables and arrays within each other; deeper ones are refused.
MAX_NESTING: Final = 32

_FIXED: Final[dict[int, struct.Struct]] = {
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): struct.Struct(">q"),
    ord("L"): struct.Struct(">Q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): struct.Struct(">d"),
}
_SIZED: Final = frozenset(b"SxAF")
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


class TableError(ValueError):
    """Bytes that are no field table, or a value that no table can hold."""


class Timestamp(int):
    """Seconds since 1970 UTC; the type ``T``."""


#: Of a table or of headers: values as a table can hold them, by their names.
Fields: TypeAlias = dict[str, object]


class Table(dict[str, object]):
    """A table that was read. ``content``: the same as it came, without its length."""

    content = b""


def _length(data: bytes, at: int, end: int) -> int:
    """The 32-bit length at ``at``, checked against ``end``."""
    if at + 4 > end:
        raise TableError("a length is cut off")
    length = int.from_bytes(data[at : at + 4], "big")
    if at + 4 + length > end:
        raise TableError(f"a value of {length} bytes reaches beyond its table")
    return length


def value_end(data: bytes, at: int, end: int) -> int:
    """Where the value that begins with the type byte at ``at`` ends."""
    if at >= end:
        raise TableError("a value is cut off")
    kind = data[at]
    fixed = _FIXED.get(kind)
    if fixed is not None:
        stop = at + 1 + fixed.size
    elif kind in _SIZED:
        stop = at + 5 + _length(data, at + 1, end)
    elif kind == ord("t"):
        stop = at + 2
    elif kind == ord("T"):
        stop = at + 9
    elif kind == ord("D"):
        stop = at + 6
    elif kind == ord("V"):
        stop = at + 1
    else:
        raise TableError(f"there is no field type {kind:#04x}")
    if stop > end:
        raise TableError("a value is cut off")
    return stop


def read_value(data: bytes, at: int, end: int, levels: int = MAX_NESTING) -> tuple[Any, int]:
    """(value, where it ends) of the value whose type byte stands at ``at``."""
    stop = value_end(data, at, end)
    kind = data[at]
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(data, at + 1)[0], stop
    if kind == ord("S"):
        raw = data[at + 5 : stop]
        try:
            return raw.decode(), stop
        except UnicodeDecodeError:
            return raw, stop
    if kind == ord("x"):
        return data[at + 5 : stop], stop
    if kind == ord("t"):
        return data[at + 1] != 0, stop
    if kind == ord("T"):
        return Timestamp(int.from_bytes(data[at + 1 : stop], "big")), stop
    if kind == ord("D"):
        return Decimal(int.from_bytes(data[at + 2 : stop], "big", signed=True)).scaleb(-data[at + 1]), stop
    if kind == ord("V"):
        return None, stop
    if levels <= 0:
        raise TableError(f"values are nested deeper than {MAX_NESTING}")
    if kind == ord("F"):
        return _fields(data, at + 5, stop, levels - 1), stop
    return _array(data, at + 5, stop, levels - 1), stop


def _array(data: bytes, at: int, end: int, levels: int) -> list[object]:
    values: list[object] = []
    while at < end:
        value, at = read_value(data, at, end, levels)
        values.append(value)
    return values


def _name(data: bytes, at: int, end: int) -> tuple[str, int]:
    stop = at + 1 + data[at]
    if stop > end:
        raise TableError("a field name is cut off")
    return data[at + 1 : stop].decode("utf-8", "surrogateescape"), stop


def _fields(data: bytes, at: int, end: int, levels: int) -> Fields:
    fields: Fields = {}
    while at < end:
        name, at = _name(data, at, end)
        fields[name], at = read_value(data, at, end, levels)
    return fields


def read_table(data: bytes, at: int, end: int) -> tuple[Table, int]:
    """(table, where it ends) of the table whose 32-bit length stands at ``at``. Raises TableError."""
    stop = at + 4 + _length(data, at, end)
    table = Table(_fields(data, at + 4, stop, MAX_NESTING))
    table.content = data[at + 4 : stop]
    return table, stop


def split_table(content: bytes) -> dict[str, bytes]:
    """Name -> type byte and value, as they stand in ``content`` (a table without its length). Raises TableError."""
    fields: dict[str, bytes] = {}
    at, end = 0, len(content)
    while at < end:
        name, at = _name(content, at, end)
        stop = value_end(content, at, end)
        fields[name] = content[at:stop]
        at = stop
    return fields


def compared(fields: Mapping[str, bytes]) -> Fields:
    """What is the same where RabbitMQ takes two values for the same: numbers of any width, with or without a fraction, and times; text and
    bytes. Of decimals, tables and arrays all has to be written the same. None: the type without a value.
    """
    return {name: _compared(raw) for name, raw in fields.items()}


def _compared(raw: bytes) -> object:
    kind = raw[:1]
    if kind in b"Sx":
        return raw[5:]
    if kind == b"t":
        return kind, raw[1:] != b"\0"
    return (kind, raw[1:]) if kind in b"DAF" else read_value(raw, 0, len(raw))[0]


def split_array(content: bytes) -> list[bytes]:
    """Type byte and value of each, as they stand in ``content`` (an array without its type and length). Raises TableError."""
    values: list[bytes] = []
    at, end = 0, len(content)
    while at < end:
        stop = value_end(content, at, end)
        values.append(content[at:stop])
        at = stop
    return values


def join_table(fields: Mapping[str, bytes]) -> bytes:
    """The inverse of split_table."""
    return b"".join([part for name, value in fields.items() for part in (write_name(name), value)])


def write_name(name: str) -> bytes:
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) > 255:
        raise TableError("a field name has at most 255 bytes")
    return bytes((len(raw),)) + raw


def write_value(value: object) -> bytes:
    """Type byte and value. Integers are 32 bits wide where they fit, else 64, without a sign where they are beyond that."""
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, Timestamp):
        return b"T" + int(value).to_bytes(8, "big")
    if isinstance(value, int):
        if -_INT32 <= value < _INT32:
            return b"I" + value.to_bytes(4, "big", signed=True)
        if -_INT64 <= value < _INT64:
            return b"l" + value.to_bytes(8, "big", signed=True)
        if 0 < value < 2 * _INT64:
            return b"L" + value.to_bytes(8, "big")
        raise TableError(f"{value} is beyond 64 bits")
    if isinstance(value, str):
        return _sized(b"S", _raw(value))
    if isinstance(value, bytes):
        return _sized(b"x", value)
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, dict):
        return _sized(b"F", write_fields(value))
    if isinstance(value, list | tuple):
        return _sized(b"A", b"".join([write_value(each) for each in value]))
    raise TableError(f"a table cannot hold a {type(value).__name__}")


def _raw(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def long_value(value: int) -> bytes:
    """A 64-bit integer, whatever its size: what RabbitMQ writes for its counts."""
    return b"l" + value.to_bytes(8, "big", signed=True)


def _sized(kind: bytes, raw: bytes) -> bytes:
    return kind + len(raw).to_bytes(4, "big") + raw


def write_fields(fields: Mapping[str, object]) -> bytes:
    """A table's content, without its length."""
    return b"".join([part for name, value in fields.items() for part in (write_name(name), write_value(value))])


def write_table(fields: Mapping[str, object]) -> bytes:
    """A table with its length."""
    content = write_fields(fields)
    return len(content).to_bytes(4, "big") + content
