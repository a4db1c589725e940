"""Settings and where they come from, as broker.yaml would say them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..answers.parts import Properties
from ..core.settings.address_settings import FIELD_OF_KEY, Origin, plain, read_setting
from ..core.settings.units import format_duration_ms, format_size_bytes


def settings_in(texts: Iterable[str]) -> Properties:
    """Field name -> plain value of texts ``key=value``, read as broker.yaml's would be: ms, bytes. A key that is given twice is a mistake.
    Raises ValueError."""
    found: Properties = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not key=value")
        name, read = read_setting(key.strip(), _scalar(value))
        if name in found:
            raise ValueError(f"{key} is given twice")
        found[name] = plain(read)
    return found


def _scalar(text: str) -> object:
    """A value as YAML reads it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(text)
    except YAMLError:
        raise ValueError(f"{text!r} cannot be read as a value") from None


def value_text(key: str, value: Any) -> str:
    """A value as broker.yaml would say it."""
    field = FIELD_OF_KEY.get(key, key)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if key == "rules":
        return "[" + ", ".join(each["name"] for each in value) + "]"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(key, each) for each in value) + "]"
    if isinstance(value, int) and field.endswith("_ms"):
        return format_duration_ms(value)
    if isinstance(value, int) and field.endswith("_bytes"):
        return format_size_bytes(value)
    return str(value) if value != "" else '""'


def origin_text(origin: Origin) -> str:
    """The pattern, and the line of the file or that a command set it."""
    if origin.by_command:
        covers = origin.covers
        over = f" (over {value_text(origin.key, covers['value'])}, line {covers['line']})" if covers is not None else ""
        return f'"{origin.pattern}", homing settings{over}'
    return origin.pattern if origin.line is None else f'"{origin.pattern}", line {origin.line}'
