"""Address settings as they are typed: ``redelivery-delay=5s``, ``redelivery-delays='[1s, 1h]'``, ``expiry-address=null``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..answers.parts import Properties
from ..words.filters import property_of
from ..words.settings import settings_in

if TYPE_CHECKING:
    from ..core.message import PropertyValue

Settings = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, as in broker.yaml (docs/settings.md): redelivery-delay=5s.")
]


def settings_given(texts: list[str] | None) -> Properties:
    """Field name -> value, read as broker.yaml's would be: ms, bytes. A key that is given twice is a mistake."""
    try:
        return settings_in(texts or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_settings(values: Properties) -> Properties:
    """Field name -> plain value of settings as YAML has read them."""
    from ..core.settings.address_settings import plain, read_setting
    from ..core.settings.values import SettingError

    try:
        read = dict(read_setting(key, value) for key, value in values.items())
    except SettingError as error:
        raise typer.BadParameter(str(error)) from None
    return {name: plain(value) for name, value in read.items()}


def property_given(text: str) -> tuple[str, PropertyValue]:
    """``name=text``, or ``name:=json``, in which bytes are ``{"base64": …}``."""
    try:
        return property_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
