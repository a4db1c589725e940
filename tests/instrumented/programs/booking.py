"""What the consumers of all libraries do for a task: 16 of the story's are booked, three fail until they are mended, one is held."""

from __future__ import annotations

import os
import time
from pathlib import Path

URL = os.environ["TEST_BROKER_URL"]
QUEUE = os.environ["TEST_QUEUE"]
NOTES = Path(os.environ["TEST_NOTES"])
RATES = {"EUR": 1.0}


class NoAmount(ValueError):
    pass


def book(number: int, kind: str) -> None:
    if kind == "held" and not said("held"):
        note("held")
        time.sleep(600)
    if not said("mended"):
        if kind == "no rate":
            print(1 / RATES["GBP"])
        if kind == "no amount":
            raise NoAmount(f"order {number} has no amount")
    note(f"booked {number}")


def fail_once() -> None:
    if not said("failed once"):
        note("failed once")
        raise KeyError("once")


def note(line: str) -> None:
    with NOTES.open("a") as out:
        out.write(line + "\n")


def said(line: str) -> bool:
    return NOTES.exists() and line in NOTES.read_text().split("\n")
