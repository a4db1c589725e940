"""broker.yaml as text in; plain values, the line of each, and errors that say where out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

KeyPath = tuple[str, ...]

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
#: Values in a file, aliases expanded: far more than any configuration has.
_MAX_VALUES: Final = 200_000
_MAX_DEPTH: Final = 32
_FIX: Final = "docs/settings.md lists every setting and what it takes"


#: A pattern that begins with # and is not in quotes: to YAML it is a comment, and what stands under it is another key's, or nobody's.
_UNQUOTED: Final = re.compile(r"\s*(#(?:\.[\w*#-]+)*)\s*:\s*(?:\{.*)?")


class ConfigProblem(NamedTuple):
    """One thing that is wrong: where, what, and what to do."""

    #: As people read it: ``address-settings."orders.#".redelivery-delay``; empty for the file as a whole.
    path: str
    #: 1-based; None where the file does not say it at all.
    line: int | None
    message: str
    fix: str

    def __str__(self) -> str:
        where = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.path) if part)
        return f"{where}: {self.message}" if where else self.message


TOO_LARGE: Final = ConfigProblem("", None, f"the file is larger than {MAX_FILE_BYTES} bytes", "a configuration is a few hundred lines")


class ConfigError(Exception):
    """A configuration that cannot be used, with everything that is wrong with it. Nothing of it takes effect."""

    def __init__(self, problems: Sequence[ConfigProblem], source: str, code: str = "config-invalid") -> None:
        self.problems = tuple(problems)
        self.code = code
        first = self.problems[0]
        self.path, self.line = first.path, first.line
        # Line ends are ours alone: no key and no text of the file begins a line where the message is shown.
        if len(self.problems) == 1:
            self.message, self.fix = _on_one_line(f"{source}: {first}"), first.fix
        else:
            listed = "".join("\n  " + _on_one_line(f"{problem} ({problem.fix})") for problem in self.problems)
            self.message = f"{_on_one_line(source)} has {len(self.problems)} errors:{listed}"
            self.fix = "correct them all; homing config check reads the file without starting anything"
        super().__init__(self.message)


def _on_one_line(text: str) -> str:
    return text.replace("\n", "\\n")


class Source(NamedTuple):
    """What the file says. ``lines`` maps the path of every key and list entry to its 1-based line."""

    values: dict[str, Any]
    lines: Mapping[KeyPath, int]
    problems: list[ConfigProblem]
    #: What is valid but perhaps not meant.
    doubts: Sequence[ConfigProblem] = ()


def show_path(path: Sequence[str]) -> str:
    """``("address-settings", "orders.#", "expires")`` as ``address-settings."orders.#".expires``."""
    return ".".join(f'"{part}"' if "." in part or "#" in part or "*" in part or not part else part for part in path)


def shown(value: object) -> str:
    """A value in an error message: short, and as YAML would write it where that differs from Python."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def read_source(text: str, source: str) -> Source:
    """Raises ConfigError for what is not YAML, has a key twice, or is no mapping at the top."""
    loaded = _load(text, source)
    if loaded is None:
        return Source({}, {}, [], _unquoted(text))
    if not isinstance(loaded, dict):
        problem = ConfigProblem(
            "", 1, f"expected a mapping of sections, got {shown(loaded)}", "begin with a section such as native: or address-settings:"
        )
        raise ConfigError([problem], source)
    reader = _Reader()
    values = reader.read(loaded, ())
    return Source(values if isinstance(values, dict) else {}, reader.lines, reader.problems, _unquoted(text))


def _unquoted(text: str) -> list[ConfigProblem]:
    found = ((number, _UNQUOTED.fullmatch(line)) for number, line in enumerate(text.splitlines(), 1) if "#" in line)
    message = "this line begins with # and is a comment, not the pattern {}"
    return [
        ConfigProblem("", number, message.format(match[1]), f'write "{match[1]}": in quotes, or put a space behind the #')
        for number, match in found
        if match is not None
    ]


def _load(text: str, source: str) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > MAX_FILE_BYTES:
        raise ConfigError([TOO_LARGE], source)
    try:
        return YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        key = str(error.problem).split('"')[1:2]
        message = f"the key {key[0] if key else ''!r} stands here for the second time"
        problem = ConfigProblem("", _line(error), message, "merge the two: a key may stand only once")
    except MarkedYAMLError as error:
        message = f"this is not YAML: {error.problem or error.context}"
        problem = ConfigProblem("", _line(error), message, 'put patterns and other texts with # * : or @ in quotes, such as "orders.*"')
    except (YAMLError, ValueError) as error:
        problem = ConfigProblem("", None, f"this is not YAML: {str(error).splitlines()[0]}", "save the file as plain UTF-8 text")
    except RecursionError:
        problem = ConfigProblem("", None, "the file is nested too deeply", f"settings are at most {_MAX_DEPTH} levels deep")
    raise ConfigError([problem], source) from None


def _line(error: Any) -> int | None:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark is not None else None


class _Reader:
    """Round-trip values to plain ones; lines noted on the way."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[ConfigProblem] = []
        self._values = 0

    def read(self, value: object, path: KeyPath) -> object:
        self._values += 1
        if len(path) > _MAX_DEPTH or self._values > _MAX_VALUES:
            if self._values <= _MAX_VALUES + 1:
                self._refuse(
                    path, "the file is nested too deeply or too large", "settings are few and flat; look for an alias that holds itself"
                )
            self._values = _MAX_VALUES + 1
            return None
        if isinstance(value, dict):
            return self._mapping(value, path)
        if isinstance(value, list):
            return self._sequence(value, path)
        if value is None or isinstance(value, bool):
            return value
        # Numbers and texts that remember how they were written, and ScalarBoolean, which is an int to Python.
        if type(value).__name__ == "ScalarBoolean":
            return bool(value)
        for plain in (int, float, str):
            if isinstance(value, plain):
                return plain(value)
        return str(value)

    def _mapping(self, value: Any, path: KeyPath) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key, inner in value.items():
            here = (*path, str(key))
            self.lines[here] = self._line_of(value, key, path)
            if isinstance(key, str):
                read[str(key)] = self.read(inner, here)
            else:
                self._refuse(here, f"a key must be text, got {shown(key)}", f'put it in quotes: "{key}"')
        return read

    def _sequence(self, value: Any, path: KeyPath) -> list[Any]:
        read = []
        for index, inner in enumerate(value):
            here = (*path, str(index))
            position = value.lc.item(index) if index in (value.lc.data or {}) else None
            self.lines[here] = position[0] + 1 if position else self.lines.get(path, 1)
            read.append(self.read(inner, here))
        return read

    def _line_of(self, mapping: Any, key: object, path: KeyPath) -> int:
        """Merged keys (<<) have no line of their own; the mapping they were merged into has."""
        position = (mapping.lc.data or {}).get(key)
        return position[0] + 1 if position else self.lines.get(path, 1)

    def _refuse(self, path: KeyPath, message: str, fix: str) -> None:
        self.problems.append(ConfigProblem(show_path(path), self.lines.get(path), message, fix))
