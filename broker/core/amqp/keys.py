"""Routing keys that are not UTF-8: as text they hold surrogates in the place of bytes; recorded and shown they are bytes."""

from __future__ import annotations

from collections.abc import Iterable


def is_text(name: str) -> bool:
    """Whether it came as UTF-8; what did not cannot be written to the journal as text."""
    return name.isascii() or not any(0xD800 <= ord(character) <= 0xDFFF for character in name)


def kept(keys: Iterable[str]) -> list[str | bytes]:
    return [key if is_text(key) else key.encode("utf-8", "surrogateescape") for key in keys]


def key_of(kept: str | bytes) -> str:
    """The inverse, of one."""
    return kept if isinstance(kept, str) else kept.decode("utf-8", "surrogateescape")
