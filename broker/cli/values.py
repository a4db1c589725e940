"""Address settings as they are typed: ``redelivery-delay=5s``, ``redelivery-delays='[1s, 1h]'``, ``expiry-address=null``."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from homing.journal import json_text

Settings = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, as in broker.yaml (docs/settings.md): redelivery-delay=5s.")
]


def settings_given(texts: list[str] | None) -> dict[str, Any]:
    """Field name -> value, read as broker.yaml's would be: ms, bytes. A key that is given twice is a mistake."""
    found: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not key=value")
        read = read_settings({key: _scalar(value)})
        if read.keys() & found.keys():
            raise typer.BadParameter(f"{key} is given twice")
        found |= read
    return found


def read_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Field name -> plain value of settings as YAML has read them."""
    from ..core.settings.address_settings import plain, read_setting
    from ..core.settings.values import SettingError

    try:
        read = dict(read_setting(key, value) for key, value in values.items())
    except SettingError as error:
        raise typer.BadParameter(str(error)) from None
    return {name: plain(value) for name, value in read.items()}


def value_text(key: str, value: Any) -> str:
    """A value as broker.yaml would say it."""
    from ..core.settings.address_settings import FIELD_OF_KEY
    from ..core.settings.units import format_duration_ms, format_size_bytes

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


def _scalar(text: str) -> Any:
    """A value as YAML reads it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(text)
    except YAMLError:
        raise typer.BadParameter(f"{text!r} cannot be read as a value") from None


def property_given(text: str) -> tuple[str, Any]:
    """``name=text``, or ``name:=json``, in which bytes are ``{"base64": …}``."""
    name, found, value = text.partition("=")
    if not found or not name.rstrip(":"):
        raise typer.BadParameter(f"{text!r} is not name=text (or name:=json for numbers, true, false and null)")
    if not name.endswith(":"):
        return name, value
    try:
        typed = json.loads(value)
    except ValueError:
        typed = value = ""
    if isinstance(typed, dict) and (told := json_text.read_back(typed)) is not None:
        typed = told
    if isinstance(typed, dict | list) or not value or (isinstance(typed, float) and not math.isfinite(typed)):
        raise typer.BadParameter(f'{text!r}: what follows := must be a JSON number, string, true, false, null or {{"base64": …}}')
    return name[:-1], typed
