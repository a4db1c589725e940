"""Texts that others wrote, and pages of ours around them. Everything is escaped; what does not print is shown as what it is."""

from __future__ import annotations

import codecs
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgpack
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from homing.client.patch import read, written
from homing.journal import json_text

from ..answers.failures import FaultOfList
from ..answers.parts import Properties
from ..words.amounts import size, span
from ..words.safe_text import safe

_FOLDER: Final = Path(__file__).parent / "templates"
_MOST_SHOWN: Final = 64 * 1024
_ROW: Final = 16
_BARS_HIGH: Final = 24
#: What kinds of images begin with, which a browser shows without acting on anything in them.
_IMAGES: Final = {b"\x89PNG\r\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif"}
#: Of a time so near to the one beside it the day need not be said.
_NEAR_MS: Final = 12 * 3_600_000
_HOUR_MS: Final = 3_600_000
#: Fewer of an hour are no trend.
_SOME: Final = 10


class Templates:
    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "ago": ago,
            "moment": moment,
            "sentence": sentence,
            "number": number,
            "span": span,
            "size": size,
            "bars": bars,
            "with_times": with_times,
            "as_json": json_text.dumps,
            "trend": lambda group: trend(group, time.time_ns() // 1_000_000),
        }

    def render(self, name: str, values: Properties) -> str:
        return self._environment.get_template(f"{name}.html.j2").render(values)


def _shown(value: object) -> object:
    """Nothing that a text has in it turns the reading direction, or hides."""
    return safe(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def number(value: int) -> str:
    return f"{value:,}"


def sentence(text: str) -> str:
    """With a capital letter in front; what begins with a command stays as it is."""
    return text if text.startswith("homing ") else text[:1].upper() + text[1:]


def _exact(at_ms: int) -> tuple[str, str]:
    """For programs and for people, in UTC: the browser shows it in its own zone."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z", f"{at:%Y-%m-%d %H:%M:%S} UTC"


def ago(at_ms: int | None) -> Markup:
    """How long since, or until; the time itself where one points at it."""
    if at_ms is None:
        return Markup("–")
    since_ms = time.time_ns() // 1_000_000 - at_ms
    said = f"{span(since_ms)} ago" if since_ms >= 0 else f"in {span(-since_ms)}"
    machine, exact = _exact(at_ms)
    return Markup('<time datetime="{}" title="{}" data-time="ago">{}</time>').format(machine, exact, said)


def moment(at_ms: int | None) -> Markup:
    """The time itself."""
    if at_ms is None:
        return Markup("–")
    machine, exact = _exact(at_ms)
    return Markup('<time datetime="{}" data-time="exact">{}</time>').format(machine, exact)


def a_time(at_ms: int, /, *, beside_ms: int) -> str:
    """A time within a text, which ``with_times`` shows in the reader's zone."""
    return f"\ue000{at_ms}{'c' if abs(at_ms - beside_ms) < _NEAR_MS else 'd'}\ue001"


def with_times(text: str) -> Markup:
    parts = re.split("\ue000(\\d{1,15}[cd])\ue001", text)
    return Markup("").join(_time_in_text(part) if at % 2 else Markup.escape(safe(part)) for at, part in enumerate(parts))


def _time_in_text(part: str) -> Markup:
    at_ms, near = int(part[:-1]), part.endswith("c")
    if not near:
        return moment(at_ms)
    machine, exact = _exact(at_ms)
    return Markup('<time datetime="{}" data-time="clock">{}</time>').format(machine, exact)


def trend(group: FaultOfList, now_ms: int) -> str:
    """Of a fault: new within the hour; growing, where the last hour had more than twice as many as those before; else nothing."""
    age_hours = (now_ms - group["first_ms"]) / _HOUR_MS
    if age_hours < 1:
        return "new"
    before = (group["last_day"] - group["last_hour"]) / max(1.0, min(24.0, age_hours) - 1)
    return "growing" if group["last_hour"] >= _SOME and group["last_hour"] > 2 * before else ""


def bars(hours: list[int], said: str, kind: str = "bar") -> Markup:
    """A small chart, one bar for each; ``said`` is what it shows, in words; ``kind``: of the style."""
    most = max(hours, default=0) or 1
    drawn = Markup("")
    for style, shown in ((kind, [bool(each) for each in hours]), ("bar none", [not each for each in hours])):
        highs = [(at, max(1, round(_BARS_HIGH * each / most))) for at, each in enumerate(hours) if shown[at]]
        path = "".join(f"M{5 * at} {_BARS_HIGH}v-{high}h4v{high}z" for at, high in highs)
        drawn += Markup('<path d="{}" class="{}"></path>').format(path, style)
    frame = '<svg class="bars" role="img" aria-label="{}" width="{}" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    wide = 5 * len(hours)
    return Markup(frame).format(said, wide, _BARS_HIGH, wide, _BARS_HIGH, drawn)


def image_kind(body: bytes) -> str | None:
    """png, jpeg or gif; None: it is none of these."""
    return next((kind for begins, kind in _IMAGES.items() if body.startswith(begins)), None)


def body_shown(body: bytes) -> tuple[str, str]:
    """What kind of thing it looks like, and the text that shows it; of very long ones the beginning."""
    part, whole = body[:_MOST_SHOWN], len(body) <= _MOST_SHOWN
    amount = size(len(body)) if whole else f"the first {size(_MOST_SHOWN)} of {size(len(body))}"
    try:
        # What is cut off may be the half of a letter.
        text = codecs.getincrementaldecoder("utf-8")().decode(part, whole)
    except UnicodeDecodeError:
        packed = _unpacked(body) if whole else None
        image = image_kind(body)
        kind = f"{image.upper()} image" if image else "binary"
        return (f"{kind}, {size(len(body))}", _hex(part[:1024])) if packed is None else (f"MessagePack, {amount}", packed)
    try:
        # With its numbers to the last digit.
        return f"JSON, {amount}", written(read(text), indent=2)
    except ValueError:
        return f"text, {amount}", text


def _unpacked(body: bytes) -> str | None:
    """A map or a list of MessagePack, as JSON; None for what is none."""
    try:
        value = msgpack.unpackb(body, strict_map_key=False)
        return json_text.dumps(value, indent=2) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None


def _hex(body: bytes) -> str:
    rows = ((at, body[at : at + _ROW]) for at in range(0, len(body), _ROW))
    return "\n".join(f"{at:08x}  {row.hex(' '):<47}  {_letters(row)}" for at, row in rows)


def _letters(row: bytes) -> str:
    return "".join(chr(each) if 32 <= each < 127 else "." for each in row)
