"""The command where things are not as usual: addresses and passwords from the environment, ports that say nothing, output that
takes little, files that are another program's. One broker for all tests here."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.house import HASH
from tests.process import ROOT, HomingCommand, Server

NAME = "größe.·.\N{RABBIT}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("environment"), {"users": {"ann": HASH}})
    yield server.start()
    server.close()


def url(broker: Server, login: str) -> str:
    return broker.url.replace("//", f"//{login}@")


def test_health_takes_the_address_that_other_commands_take(broker: Server, homing: HomingCommand) -> None:
    homing.url = url(broker, "ann:pw")
    assert homing.json("health") == {"state": "ready", "degraded": [], "producers_wait": []}
    wrong = homing("health", url=url(broker, "ann:no"))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    for place in ("homing://127.0.0.1:1", "http://127.0.0.1:1"):
        nobody = homing("health", "--url", place)
        assert (nobody.returncode, nobody.stdout) == (3, "")
        assert "--url" in nobody.stderr


def test_nobody_there_names_the_option_that_says_where(homing: HomingCommand) -> None:
    done = homing("queues", url="homing://127.0.0.1:1")
    assert done.returncode == 3
    assert "--url" in done.stderr
    assert "HOMING_URL" in done.stderr


def test_a_port_that_says_nothing_is_given_up(homing: HomingCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        words = (("queues", "--url", f"homing://{place}"), ("health", "--url", f"http://{place}"))
        with ThreadPoolExecutor() as beside:
            done = list(beside.map(lambda each: homing(*each, timeout_s=6), words))
    assert [each.returncode for each in done] == [3, 3]


def test_a_password_may_stand_in_a_file(broker: Server, homing: HomingCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("pw\n")
    monkeypatch.setenv("HOMING_PASSWORD_FILE", str(file))
    assert homing("queues", url=url(broker, "ann")).returncode == 0
    assert homing("queues", url=url(broker, "ann:no")).returncode == 1, "the address's own holds"
    monkeypatch.setenv("HOMING_PASSWORD_FILE", str(tmp_path / "nowhere"))
    gone = homing("queues", url=url(broker, "ann"))
    assert gone.returncode == 1
    assert f"the password cannot be read from {tmp_path / 'nowhere'}" in gone.stderr


def run(broker: Server, *words: str, stdout: int | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """As a process of its own, which makes of its output what the environment says."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "HOMING_URL": url(broker, "ann:pw"), **environment}
    to = subprocess.PIPE if stdout is None else stdout
    return subprocess.run([sys.executable, "-m", "homing", *words], stdout=to, stderr=subprocess.PIPE, env=settings, timeout=40)


def test_output_that_takes_ascii_only_gets_all_of_it(broker: Server, homing: HomingCommand) -> None:
    homing.url = url(broker, "ann:pw")
    assert homing("queue", "create", NAME).returncode == 0
    shown = run(broker, "queues", "--json", PYTHONIOENCODING="ascii")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert NAME in [each["name"] for each in json.loads(shown.stdout.decode("ascii"))]
    table = run(broker, "queues", PYTHONIOENCODING="ascii")
    assert (table.returncode, table.stderr) == (0, b"")
    assert rb"gr\u00f6\u00dfe" in table.stdout
    assert rb"\u00b7  " not in table.stdout, "what stands for nothing is no escape"


def test_output_on_a_full_disk_is_said(broker: Server) -> None:
    for words in (("queues", "--json"), ("--help",)):
        with open("/dev/full", "wb") as full:
            done = run(broker, *words, stdout=full.fileno())
        assert done.returncode == 1
        assert b"cannot be written: No space left on device" in done.stderr
        assert b"Traceback" not in done.stderr
        assert b"ignored" not in done.stderr


def test_the_database_of_another_program_is_left_alone(homing: HomingCommand, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "homing.db") as other:
        other.executescript("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
    other.close()
    before = (tmp_path / "homing.db").read_bytes()
    for words in (("journal", "check"), ("serve", "--json")):
        done = homing(*words, "--data", tmp_path)
        assert done.returncode == 6
        assert "database of another program" in done.stderr
        assert "name another directory" in done.stderr
        assert "quarantine" not in done.stderr
    assert (tmp_path / "homing.db").read_bytes() == before


def test_who_has_set_quarantine_is_not_told_to_set_it(homing: HomingCommand, tmp_path: Path) -> None:
    (tmp_path / "homing.db").write_bytes(b"no database" * 100)
    file = homing.directory / "quarantine.yaml"
    file.write_text("native: {port: 0}\njournal: {on-damage: quarantine}\n")
    done = homing("serve", file, "--data", tmp_path)
    assert done.returncode == 6
    assert "journal-damaged" in done.stderr
    assert "homing journal restore" in done.stderr
    assert "or start with" not in done.stderr


def test_a_pattern_that_is_a_comment_is_warned_of(homing: HomingCommand) -> None:
    text = (
        'address-settings:\n  #: {max-delivery-attempts: 3}\n  #.eu:\n  # a comment: of words\n  "orders.#": {max-delivery-attempts: 5}\n'
    )
    (homing.directory / "hash.yaml").write_text(text)
    found = homing.json("config", "check", "hash.yaml")["warnings"]
    assert [each.partition(":")[0] for each in found if "is a comment" in each] == ["line 2", "line 3"]
    assert 'write "#": in quotes' in found[0]
