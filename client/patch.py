"""Bodies with a patch applied: JSON Patch (RFC 6902) or JSON Merge Patch (RFC 7396, before it 7386).

What a patch does not touch keeps its value to the last digit: numbers are kept as they are written, and what would be lost is refused.
"""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import Any, Final, NoReturn

from .errors import UsageError

#: What an operation needs besides its path.
_NEEDS: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}


class Number:
    """A number as it is written in JSON, of any size; equal to what is the same number otherwise written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and (self.text == other.text or Decimal(self.text) == Decimal(other.text))

    def __repr__(self) -> str:
        return self.text


class Patch:
    """A list of operations, or a map to merge: as values, or as the text of a file. Raises UsageError ``no-patch`` for what is neither."""

    def __init__(self, given: bytes | list[Any] | dict[str, Any]) -> None:
        try:
            self._patch = read(given if isinstance(given, bytes) else written(given))
            if not isinstance(self._patch, dict):
                _check(self._patch)
        except (ValueError, TypeError) as error:
            raise UsageError("no-patch", f"this is no patch: {error}", "write a JSON Patch (a list) or a JSON Merge Patch") from None

    def applied(self, body: bytes) -> bytes:
        """The body with the patch, without spaces. Raises UsageError ``patch-failed``: it is no JSON, or the patch does not fit."""
        fix = "give a whole body, not a patch"
        try:
            document = read(body)
            fix = "see that the body is what the patch is made for"
            found = merged(document, self._patch) if isinstance(self._patch, dict) else _applied(document, self._patch)
            return written(found).encode(errors="backslashreplace")
        except (ValueError, RecursionError) as error:
            raise UsageError("patch-failed", f"the patch does not fit this body: {error}", fix) from None


def read(text: str | bytes) -> Any:
    """JSON with its numbers as they are written. Raises ValueError for what is none, and for a name that an object has twice, because a
    map would lose one of the values.
    """
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def written(value: Any, indent: int | None = None) -> str:
    """JSON of what ``read`` gives, or of plain values; without spaces, or one value a line. A lone surrogate stays one, which is an escape
    in a file. Raises ValueError or TypeError for what JSON cannot hold.
    """
    try:
        return _written(value, "" if indent is None else "\n", " " * (indent or 0))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _check(operations: Any) -> None:
    """Raises ValueError for an operation that fits no body."""
    # Ones that take what only few programs need: they are imported when they are needed.
    from jsonpatch import JsonPatch, JsonPatchException
    from jsonpointer import JsonPointer, JsonPointerException

    if not isinstance(operations, list):
        raise ValueError("it is neither a list nor a map")
    for position, operation in enumerate(operations, 1):
        try:
            JsonPatch([operation])
            needed = _NEEDS.get(operation["op"], "path")
            if needed not in operation:
                raise ValueError(f"{operation['op']} needs {needed!r}")
            if needed == "from":
                JsonPointer(operation["from"])
        except (ValueError, TypeError, JsonPatchException, JsonPointerException) as error:
            raise ValueError(f"operation {position}: {error}") from None


def _applied(document: Any, operations: list[dict[str, Any]]) -> Any:
    """Raises ValueError where an operation does not fit."""
    from jsonpatch import JsonPatchException, JsonPatchTestFailed, apply_patch
    from jsonpointer import JsonPointerException

    # A copy: what one operation adds, the next may change, and the next body is to get it as it was.
    for position, operation in enumerate(copy.deepcopy(operations), 1):
        try:
            document = apply_patch(document, [operation], in_place=True)
        except JsonPatchTestFailed:
            raise ValueError(f"operation {position}: {operation['path'] or 'it'} is not {written(operation['value'])}") from None
        except (ValueError, TypeError, ArithmeticError, JsonPatchException, JsonPointerException) as error:
            raise ValueError(f"operation {position}: {error}") from None
    return document


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has {_text(name)} twice")
        found[name] = value
    return found


def _written(value: Any, line: str, step: str) -> str:
    """``line``: what begins a line at this depth; ``step``: what the next one is indented by."""
    if isinstance(value, Number):
        return value.text
    if not isinstance(value, dict | list | tuple):
        return _text(value)
    inner = line + step
    if isinstance(value, dict):
        colon = ": " if line else ":"
        if any(not isinstance(name, str) for name in value):
            raise TypeError("the names of a JSON object are text")
        items = [f"{_text(name)}{colon}{_written(each, inner, step)}" for name, each in value.items()]
        first, last = "{}"
    else:
        items = [_written(each, inner, step) for each in value]
        first, last = "[]"
    return f"{first}{inner}{f',{inner}'.join(items)}{line}{last}" if items else first + last


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
