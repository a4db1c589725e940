"""Texts that others wrote, made safe to show.

Nothing in them moves a cursor, sets a title or a colour, opens a link, ends a line or turns the reading direction. What acts, or cannot be
seen, is shown as Python writes it: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

import re
from typing import Final

#: Not printable by Unicode, and harmless: they join letters, in Persian and in emoji.
_JOINERS: Final = "\u200c\u200d"
#: In JSON everything below U+0020 is escaped already, and outside its strings nothing else stands but line ends.
_BEYOND_JSON: Final = re.compile(r"[^ -~\n]")


def safe(text: str, *, lines: bool = False) -> str:
    """The text with what is not printable escaped; with ``lines`` line ends and tabs stay."""
    if text.isprintable():
        return text
    harmless = _JOINERS + "\n\t" if lines else _JOINERS
    return "".join([each if each.isprintable() or each in harmless else _escaped(each) for each in text])


def safe_json(text: str) -> str:
    """A JSON document, which stays one and says the same."""
    return text if text.isprintable() else _BEYOND_JSON.sub(_in_json, text)


def body_text(body: bytes, limit: int = 4096) -> str:
    """A body for people: control characters made visible, what is binary or very long only described."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({len(body):,} bytes, binary)"
    shown = safe(text[:limit], lines=True)
    return shown if len(text) <= limit else f"{shown}… ({len(body):,} bytes)"


def _in_json(found: re.Match[str]) -> str:
    each = found[0]
    if each.isprintable() or each in _JOINERS:
        return each
    units = each.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _escaped(each: str) -> str:
    return each.encode("unicode_escape").decode()
