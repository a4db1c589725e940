"""The command line where no broker is needed: configuration, policies, help, and what happens when something is missing."""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.process import ROOT, HomingCommand, Server

CONFIG = """\
native: {port: 0}
address-settings:
  "#": {max-delivery-attempts: 5}
  "hasty": {redelivery-delay: 0}
  "orders.#":
    redelivery-delay: 5s
    redelivery-delay-multiplier: 2
    max-redelivery-delay: 15s
"""

COMMANDS = [
    *(["serve"], ["send"], ["receive"], ["peek"], ["redrive"], ["queues"], ["history"], ["explain"], ["analyze"]),
    *(["policy"], ["policy", "explain"], ["config"], ["config", "check"], ["user"], ["user", "hash"]),
    *(["journal"], ["journal", "export"], ["journal", "check"]),
]


@pytest.fixture
def config(homing: HomingCommand) -> Path:
    path = homing.directory / "orders.yaml"
    path.write_text(CONFIG)
    return path


def test_help_names_every_command_and_the_exit_codes(homing: HomingCommand) -> None:
    shown = homing("--help").stdout
    for words in COMMANDS:
        assert re.search(rf"\b{words[0]}\b", shown)
    assert "70 I/O error" in shown


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(homing: HomingCommand, words: list[str]) -> None:
    done = homing(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: homing " + " ".join(words) in done.stdout


def test_explain_names_the_line_of_each_value(homing: HomingCommand, config: Path) -> None:
    settings = {each["key"]: each for each in homing.json("explain", "orders.eu", "--config", config)["settings"]}
    where = {key: (each["value"], each["pattern"], each["line"], each["by_command"]) for key, each in settings.items()}
    assert where["redelivery-delay"] == (5000, "orders.#", 6, False)
    assert where["max-delivery-attempts"] == (5, "#", 3, False)
    assert settings["redelivery-back-off"]["pattern"] == "default"
    shown = homing("explain", "orders.eu", "--config", config).stdout
    assert re.search(r'redelivery-delay +5s +"orders\.#", line 6', shown)


def test_explain_tells_each_attempt_and_the_end(homing: HomingCommand, config: Path) -> None:
    policy = homing.json("explain", "orders.eu", "--config", config)
    assert [row["max_delay_ms"] for row in policy["attempts"]] == [0, 5000, 10_000, 15_000, 15_000]
    assert (policy["min_total_ms"], policy["max_total_ms"], policy["warning"]) == (45_000, 45_000, None)
    shown = homing("explain", "orders.eu", "--config", config).stdout
    assert re.search(r"5 +15 s +45 s", shown)
    assert "After 5 attempts, after 45 s, not counting the time that the attempts take, it goes to DLQ.orders.eu." in shown


def test_explain_says_that_a_dead_letter_queues_name_is_shortened(homing: HomingCommand) -> None:
    shown = " ".join(homing("explain", "s" * 255, "--config", os.devnull).stdout.split())
    assert re.search(r"it goes to DLQ\.s{234}~[0-9a-f]{16}\.", shown.replace("s s", "ss")), shown
    assert "The queue's name is shortened, as AMQP knows none of more than 255 bytes" in shown
    assert "shortened" not in homing("explain", "s" * 251, "--config", os.devnull).stdout


def test_explain_warns_of_a_short_life(homing: HomingCommand, config: Path) -> None:
    done = homing("explain", "hasty", "--config", config)
    assert done.returncode == 0
    assert done.stderr.startswith("warning")
    assert "all 5 attempts at once" in done.stderr


def test_explain_of_a_policy_without_an_end_is_said_to_have_none(homing: HomingCommand) -> None:
    (homing.directory / "broker.yaml").write_text('address-settings: {"#": {max-delivery-attempts: -1, redelivery-delay: 1s}}')
    policy = homing.json("explain", "orders", "--config", "broker.yaml", "--attempts", "3")
    assert (len(policy["attempts"]), policy["max_delivery_attempts"], policy["max_total_ms"]) == (3, -1, None)
    assert "without end" in homing("explain", "orders", "--config", "broker.yaml").stdout


def test_config_check_says_what_is_wrong_and_where(homing: HomingCommand) -> None:
    (homing.directory / "wrong.yaml").write_text("native: {port: 0}\nnatve: {port: 1}\n")
    done = homing("config", "check", "wrong.yaml")
    assert (done.returncode, done.stdout) == (5, "")
    assert "line 2, natve: there is no such setting" in done.stderr
    assert "did you mean native?" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_error_of_a_configuration_has_a_line_that_no_text_of_the_file_begins(homing: HomingCommand) -> None:
    (homing.directory / "two.yaml").write_text('native: {port: x}\n"a\\n  line 9, \\e[2J": 1\n')
    for command in (("config", "check", "two.yaml"), ("serve", "--config", "two.yaml")):
        done = homing(*command)
        first, native, other, fix = done.stderr.splitlines()
        assert (done.returncode, first) == (5, "error config-invalid  two.yaml has 2 errors:")
        assert native.startswith("  line 1, native.port: expected ")
        assert other.startswith(r"  line 2, a\n  line 9, \x1b[2J: there is no such setting (")
        assert fix.startswith("  → correct them all")


def test_a_file_of_settings_says_what_it_lacks(homing: HomingCommand) -> None:
    file = homing.directory / "rules.yaml"
    for text in ("", "# nothing yet\n", "orders\n", "{}\n"):
        file.write_text(text)
        done = homing("settings", "set", "orders.#", "--file", "rules.yaml")
        assert done.returncode == 2
        assert "rules.yaml has neither a list of rules for orders.#, such as - {error-type: TimeoutError," in done.stderr
        assert "nor settings of it, such as redelivery-delay: 5s" in done.stderr
        done = homing("settings", "set", "--file", "rules.yaml")
        assert "rules.yaml is no mapping of patterns to settings" in done.stderr


def test_config_check_of_a_sound_file(homing: HomingCommand, config: Path) -> None:
    report = homing.json("config", "check", config)
    assert report["valid"] is True
    assert len(report["warnings"]) == 1


def test_the_shipped_configuration_is_sound(homing: HomingCommand) -> None:
    assert homing.json("config", "check", ROOT / "broker.yaml")["valid"] is True


def test_errors_are_json_when_asked(homing: HomingCommand) -> None:
    done = homing("config", "check", "missing.yaml", "--json")
    error = json.loads(done.stderr)
    assert (done.returncode, error["code"], error["exit_code"], done.stdout) == (5, "config-not-found", 5, "")
    assert error["fix"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["journal", "check", "--data", "nowhere"], 4, "journal-missing"),
        (["journal", "export", "--out", "dump", "--data", "nowhere"], 4, "journal-missing"),
        (["history", "1", "--data", "nowhere"], 4, "journal-missing"),
        (["analyze", "nowhere", "--out", "report"], 4, "no-export"),
        (["serve", "--config", "nowhere.yaml"], 5, "config-not-found"),
        (["serve", "nowhere.yaml"], 5, "config-not-found"),
        (["serve", "a.yaml", "--config", "b.yaml"], 2, "once"),
        (["user", "add", "anna", "--password-file", "nowhere"], 4, "no-such-file"),
        (["simulate", "nowhere", "--policy", "nowhere.yaml"], 4, "no-policy"),
        (["send", "orders"], 2, "give either --file, with --json-lines or without, or --body"),
        (["send", "orders", "--body", "x", "--property", "k"], 2, "name=text"),
        (["send", "orders", "--body", "x", "--ttl", "soon"], 2, "250ms"),
        (["receive", "orders", "--fail", "why", "--ack-mode", "auto"], 2, "individual"),
        (["history", "soon"], 2, "message_id"),
        (["fly"], 2, "No such command"),
        (["redrives", "cancle", "7"], 2, "Did you mean 'cancel'?"),
        (["faults", "shwo", "3-9f86"], 2, "Did you mean 'show'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_failures_have_a_code_and_no_traceback(homing: HomingCommand, arguments: list[str], exit_code: int, said: str) -> None:
    done = homing(*arguments)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["queues"], ["send", "orders", "--body", "x"], ["receive", "orders"], ["history", "1"]], ids=" ".join
)
def test_no_broker_is_said_at_once(homing: HomingCommand, arguments: list[str]) -> None:
    done = homing(*arguments, url="homing://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_password_becomes_a_hash_that_verifies(homing: HomingCommand) -> None:
    from argon2 import PasswordHasher

    done = homing("user", "hash", "-", stdin="feather\n")
    assert PasswordHasher().verify(done.stdout.strip(), "feather")


def test_a_password_is_asked_for_beside_standard_output(homing: HomingCommand) -> None:
    """The hash alone goes into a pipe."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "homing", "user", "hash"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=homing.directory, env=environment, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        # What is typed while the echo is being switched off is lost.
        while process.poll() is None:
            os.write(controller, b"feather\n")
            time.sleep(0.05)
        assert process.stdout is not None
        assert re.fullmatch(rb"\$argon2id\S+\n", process.stdout.read())
    assert b"Password: " in os.read(controller, 10_000)
    os.close(controller)


@pytest.fixture
def journal(homing: HomingCommand, start_server: Callable[..., Server]) -> Path:
    """The data directory of a broker that has stopped."""
    server = start_server()
    homing("send", "orders", "--body", "x", url=server.url)
    assert server.stop() == 0
    return server.data


def on_journal(homing: HomingCommand, data: Path) -> dict[str, int]:
    """The exit code of each command that opens a journal."""
    config = homing.directory / "free.yaml"
    config.write_text("native: {port: 0}\n")
    commands: dict[str, list[str | Path]] = {
        "serve": ["serve", "--config", config, "--data", data],
        "check": ["journal", "check", "--data", data],
        "export": ["journal", "export", "--data", data, "--out", homing.directory / "dump"],
        "history": ["history", "1", "--data", data],
    }
    codes = {}
    for name, arguments in commands.items():
        done = homing(*arguments)
        assert "Traceback" not in done.stderr, f"{name}: {done.stderr}"
        codes[name] = done.returncode
    return codes


def test_a_journal_of_a_later_version_is_refused_everywhere(homing: HomingCommand, journal: Path) -> None:
    with closing(sqlite3.connect(journal / "homing.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert on_journal(homing, journal) == {"serve": 6, "check": 6, "export": 6, "history": 6}


def test_a_damaged_journal_is_refused_everywhere(homing: HomingCommand, journal: Path) -> None:
    (journal / "homing.db").write_bytes(b"this was a journal once" * 1000)
    assert on_journal(homing, journal) == {"serve": 6, "check": 6, "export": 6, "history": 6}


def test_a_sound_journal_is_not(homing: HomingCommand, journal: Path) -> None:
    assert homing.json("journal", "check", "--data", journal)["ok"] is True
    assert homing.json("history", "1", "--data", journal)["references"][0]["queue"] == "orders"


@pytest.mark.parametrize("words", [["add", "anna"], ["passwd", "anna"], ["delete", "anna"], ["grant", "anna", "send"]])
def test_users_of_a_node_are_not_changed_behind_its_log_and_nobody_is_asked_for_a_password(
    homing: HomingCommand, journal: Path, words: list[str]
) -> None:
    with closing(sqlite3.connect(journal / "homing.db")) as connection:
        connection.execute("INSERT INTO meta VALUES ('applied', x'')")
        connection.commit()
    done = homing("user", *words, "--data", journal)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"error journal-replicated  .*written by its log alone\.\n.* The leader changes it \(--url\)", done.stderr)


def test_the_first_administrator_is_made_while_nothing_runs(homing: HomingCommand, start_server: Callable[..., Server]) -> None:
    server = start_server()
    add = ("user", "add", "anna", "--password-file", "-", "--data", server.data)
    assert (running := homing(*add, "--role", "administrator", stdin="feather\n")).returncode == 1
    assert "journal-locked" in running.stderr
    assert server.stop() == 0
    assert (narrow := homing(*add, "--role", "producer", stdin="feather\n")).returncode == 1
    assert "administrator-needed" in narrow.stderr
    # Of the file only what is needed here is read: what else is wrong with it shows when the broker starts.
    (homing.directory / "broker.yaml").write_text("native: {port: never}\naudit: {file: audit.log}\n")
    assert (done := homing(*add, "--role", "administrator", stdin="feather\n")).returncode == 0, done.stderr
    assert (again := homing(*add, "--role", "administrator", stdin="feather\n")).returncode == 1, again.stdout
    reported = [json.loads(line) for line in (homing.directory / "audit.log").read_text().splitlines()]
    assert [(line["action"], line["user"], line["on"], line["result"]) for line in reported] == [
        ("add-user", None, ["anna"], "done"),
        ("add-user", None, ["anna"], "user-exists"),
    ]
    assert reported[0]["from"] == f"offline, uid {os.getuid()}"
    (homing.directory / "broker.yaml").unlink()
    server.start()
    assert homing("queues", url=server.url).returncode == 1
    assert homing.json("user", "list", url=server.url.replace("//", "//anna:feather@")) == [
        {"name": "anna", "grants": [{"rights": ["administrator"], "pattern": "#"}], "source": "command"}
    ]


WITHOUT_SPARK = "import sys; sys.modules['pyspark'] = None; from homing.broker.cli.main import main; main()"


@pytest.mark.parametrize("words", [["simulate", "export", "--policy", "broker.yaml"], ["analyze", "export", "--out", "x", "--compare"]])
def test_a_command_that_needs_the_extra_names_it(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("error no-analytics  this needs pyspark, which is not installed\n  → pip install 'homing[analytics]'\n")


def test_the_job_without_the_command_says_it_too() -> None:
    program = "import runpy, sys; sys.modules['pyspark'] = None\n"
    program += "runpy.run_module('homing.analytics', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no-analytics: this needs pyspark, which is not installed: pip install 'homing[analytics]'\n"
