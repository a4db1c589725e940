"""What instruments programs: it is never the reason why one fails, and tells of each failure once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from homing.integrations import report
from tests.instrumented.story import PATH
from tests.process import ROOT

SEES = """
import multiprocessing, sys

def see(queue):
    finders = [type(each).__name__ for each in sys.meta_path]
    ours = sorted(name.rpartition(".")[2] for name in sys.modules if "homing" in name)
    queue.put((finders.count("Finder"), getattr(sys, "was_there", None), ours))

if __name__ == "__main__":
    for how in ("fork", "spawn"):
        context = multiprocessing.get_context(how)
        queue = context.Queue()
        child = context.Process(target=see, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
"""


class Channel:
    """Whatever a library has."""

    def basic_nack(self, tag: int) -> int:
        return tag


def test_children_have_it_and_a_sitecustomize_that_was_there_runs(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys\nsys.was_there = getattr(sys, 'was_there', 0) + 1\n")
    program = tmp_path / "program.py"
    program.write_text(SEES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PATH, str(theirs)])}
    plain = Path(sys.executable).resolve()  # nothing is installed there
    done = subprocess.run([plain, program], env=environment, capture_output=True, text=True, check=True, timeout=30)
    # Nothing else of ours, and no library, is imported.
    assert done.stdout.split("\n")[:2] == [str((1, 1, ["_homing_integrations", "auto", "report"]))] * 2, done.stderr


def test_what_goes_wrong_in_a_report_is_logged_once_and_the_program_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    report._logged.clear()
    for _ in range(2):
        with report.quietly():
            raise OSError("no room")
    assert [each.getMessage() for each in caplog.records] == [
        "homing: a failure could not be reported (OSError: no room); the program goes on as without"
    ]


def stays() -> None:
    module: Any = ModuleType("pika.channel")
    module.Channel = Channel
    original = Channel.basic_nack
    sys.modules["pika.channel"] = module
    import homing.integrations.auto  # noqa: F401

    assert Channel.basic_nack is original


def test_a_library_that_is_not_known_as_it_is_stays_as_it_is() -> None:
    """In a process of its own: who imports this module is instrumented from there on."""
    program = "from tests.unit.test_integrations import stays; stays()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == "homing: failures of pika are not reported: Channel has no basic_consume\n"
    with pytest.raises(report.Unfit, match=r"older than 99"):
        report.at_least("pika", (99,))


def test_a_delivery_is_told_of_once() -> None:
    first, other = Channel(), Channel()
    assert [report.first_time(first, 1), report.first_time(first, 1), report.first_time(other, 1)] == [True, False, True]


@pytest.mark.parametrize(
    ("properties", "is_homing"),
    [({"product": "RabbitMQ"}, False), ({"product": "RabbitMQ", "broker": "Homing"}, True), ({"broker": b"Homing"}, True), (None, False)],
)
def test_reports_go_to_a_server_that_names_itself_homing(properties: Any, is_homing: bool) -> None:
    assert report.is_homing(properties) is is_homing


def test_a_report_fits_into_a_frame_and_stands_a_broken_error() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("in it")

    assert report.of_error(Broken())["error_text"] == "(no text: RuntimeError in __str__)"
    said = report.of_error(ValueError("€" * 50_000 + "\udcff"), frame_max=4096)
    assert sum(len(str(value).encode()) for value in said.values()) < 4096
    assert "characters left out" in said["error_text"]


def test_what_ends_the_tries_of_a_task_stands_with_its_ids() -> None:
    again = report.task_headers(7, "tag", "shop.book", "id-1", {"id": "id-1", "parent": None, "try": 1}, again=True)
    assert (again["reason"], again["again"], again["retryable"]) == ("id id-1, try 1", True, True)
    ended = report.task_headers(7, "tag", "shop.book", "id-1", {"id": "id-1", "try": 3}, ended_by="throws")
    assert (ended["reason"], ended["retryable"], "again" in ended) == ("id id-1, try 3, not again by throws", False, False)
    assert "retryable" not in report.task_headers(7, "tag", "shop.book", "id-1", {})
