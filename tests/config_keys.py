"""The settings of broker.yaml by the names that people write."""

from __future__ import annotations

from homing.broker.config.config import Config
from homing.broker.config.models import Section


def config_keys(model: type[Section] = Config, prefix: str = "") -> list[str]:
    """``limits.max-connections``, ..."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        inner = field.annotation
        keys += config_keys(inner, f"{key}.") if isinstance(inner, type) and issubclass(inner, Section) else [key]
    return keys
