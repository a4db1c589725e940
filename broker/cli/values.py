"""Address settings as they are typed: ``redelivery-delay=5s``, ``redelivery-delays='[1s, 1h]'``, ``expiry-address=null``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as in broker.yaml (docs/settings.md): redelivery-delay=5s.")
]


def settings_given(texts: list[str] | None) -> dict[str, Any]:
    """Field name -> value, read as broker.yaml's would be: ms, bytes. A key that is given twice is a mistake."""
    from ..core.settings.address_settings import read_setting
    from ..core.settings.values import SettingError

    found: dict[str, Any] = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not key=value")
        try:
            field, read = read_setting(key, _scalar(value))
        except SettingError as error:
            raise typer.BadParameter(str(error)) from None
        if field in found:
            raise typer.BadParameter(f"{key} is given twice")
        found[field] = read
    return found


def _scalar(text: str) -> Any:
    """A value as YAML reads it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(text)
    except YAMLError:
        raise typer.BadParameter(f"{text!r} cannot be read as a value") from None
