"""What is in force, as a broker.yaml would say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.settings.address_settings import KEY_OF_FIELD, Layer, Values
from ..core.settings.rules import key_of
from ..core.settings.units import format_duration_ms, format_size_bytes
from .config import SECTIONS
from .models import AddressDeclaration, PolicyDeclaration, QueueDeclaration, Section, ShareSection, yaml_key


def as_file(described: Mapping[str, Any]) -> dict[str, Any]:
    """``described``: Config.describe's. Users are left out: their hashes stay where they are."""
    found: dict[str, Any] = {"data-directory": described["data_directory"]}
    for key, model in SECTIONS.items():
        if key not in ("policies", "users") and described[key] is not None:
            found[key] = _section(model, described[key])
    found["address-settings"] = {pattern: _settings(layer) for pattern, layer in described["address_settings"].items()}
    found["virtual-hosts"] = list(described["virtual_hosts"])
    found["addresses"] = {name: _section(AddressDeclaration, each) for name, each in described["addresses"].items()}
    found["queues"] = {name: _queue(each) for name, each in described["queues"].items()}
    for key in ("user_limits", "peer_limits"):
        found[yaml_key(key)] = {name: _section(ShareSection, each) for name, each in described[key].items()}
    found["policies"] = {name: _section(PolicyDeclaration, each) for name, each in described["policies"].items()}
    return {key: value for key, value in found.items() if value not in ({}, [])}


def _section(model: type[Section], values: Mapping[str, object]) -> dict[str, object]:
    return {str(field.alias): _value(name, values[name]) for name, field in model.model_fields.items()}


def _queue(values: Mapping[str, Any]) -> dict[str, Any]:
    own = _section(QueueDeclaration, values)
    del own["settings"]
    return own | _settings(values["settings"])


def _settings(layer: Layer) -> Values:
    return {KEY_OF_FIELD[name]: _value(name, value) for name, value in layer.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_value(name, each) for each in value]
    if name == "rules":
        return {key_of(key): each if key == "header" else _value(key, each) for key, each in value.items()}
    if type(value) is int and name.endswith("_ms"):
        return format_duration_ms(value)
    return format_size_bytes(value) if type(value) is int and name.endswith("_bytes") else value
