"""Durations and times of a command line: what is none is a wrong command line. ``homing.broker.words.times`` reads them."""

from __future__ import annotations

import typer

from ..words import times


def duration(text: str | int) -> int:
    """In ms."""
    try:
        return times.duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def time_given(text: str | int) -> int:
    """``2h`` ago, the last ``01:30``, or a date and time; in ms since 1970."""
    try:
        return text if isinstance(text, int) else times.time_before(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def time_to_come(text: str | int) -> int:
    """In ``2h``, the next ``01:30``, or a date and time; in ms since 1970."""
    try:
        return text if isinstance(text, int) else times.time_after(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def in_utc(text: str) -> str:
    """The last ``01:30`` of the reader's zone, or ``24h`` ago, as a date and time of UTC; whatever else as it is."""
    try:
        return times.in_utc(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
