"""Address settings by command: set, kept, shown, covered, refused. One broker for all tests here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.process import HomingCommand, Server

SETTINGS = {
    "#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "max-delivery-attempts": 2, "redelivery-delay": "20ms"},
    "later.#": {"redelivery-delay": "1h"},
}


WINDOW = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = {"amqp": {"port": 0}, "address-settings": SETTINGS, "limits": {"window-messages": WINDOW}}
    server = Server(tmp_path_factory.mktemp("operate"), config)
    server.start()
    yield server
    server.close()


@pytest.fixture
def shell(broker: Server, homing: HomingCommand) -> HomingCommand:
    homing.url = broker.url
    return homing


def queue(shell: HomingCommand, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in shell.json("queues") if each["name"] == name), {})
    return found


def origin(shell: HomingCommand, address: str, key: str) -> dict[str, Any]:
    """What holds for an address, and where it came from."""
    found: dict[str, Any] = next(each for each in shell.json("explain", address)["settings"] if each["key"] == key)
    return found


def test_settings_change_while_the_broker_runs_and_stay(shell: HomingCommand, broker: Server) -> None:
    shell("send", "tuned.eu", "--body", "x")
    setting = ("settings", "set", "tuned.#", "redelivery-delay=5s", "max-delivery-attempts=8")
    dry = shell.json(*setting, "--dry-run")
    assert (dry["queues"], dry["touched"][0]["queue"]) == (1, "tuned.eu")
    assert dry["touched"][0]["changes"]["max-delivery-attempts"] == [2, 8]
    assert "nothing is changed; 1 queue would be" in shell(*setting, "--dry-run").stdout
    assert (origin(shell, "tuned.eu", "max-delivery-attempts")["value"], shell.json("settings", "list")) == (2, {})
    assert "tuned.eu  redelivery-delay 20ms → 5s" in shell(*setting).stdout
    set_now = {"tuned.#": {"redelivery-delay": 5000, "max-delivery-attempts": 8}}
    assert shell.json("settings", "list") == set_now
    failed = shell.json_lines("receive", "tuned.eu", "--fail", "no")
    (waiting,) = shell.json_lines("peek", "tuned.eu")
    assert (len(failed), waiting["state"], waiting["due_at_ms"] > time.time() * 1000) == (1, "scheduled", True)
    broker.kill()  # what was answered is on disk
    broker.start()
    assert shell.json("settings", "list") == set_now
    assert origin(shell, "tuned.eu", "max-delivery-attempts")["value"] == 8
    assert shell.json("settings", "unset", "tuned.#", "redelivery-delay")["set"] == {"tuned.#": {"max-delivery-attempts": 8}}
    assert shell.json("settings", "unset", "tuned.#")["touched"][0]["changes"]["max-delivery-attempts"] == [8, 2]
    assert shell.json("settings", "list") == {}


def test_what_would_remove_every_message_is_refused_and_in_an_old_file_passed_over(
    start_server: Callable[..., Server], shell: HomingCommand
) -> None:
    soon = {"message-ttl": "1s", "redelivery-delay": "5s"}
    server = start_server({"address-settings": {"#": SETTINGS["#"], "old": {"message-ttl": 0, "max-length": 7}, "soon": soon}})
    shell.url = server.url
    server.logged("setting-ignored", "message-ttl: 0 removes every message, and is passed over", "what failed once expires")
    shell("send", "old", "--body", "stays")
    assert (queue(shell, "old")["messages"], origin(shell, "old", "message-ttl")["value"]) == (1, None)
    for words in (("config", "check", str(server.config_path)), ("reload",)):
        refused = shell(*words)
        assert (refused.returncode, "allow-remove-all: true in the same pattern" in refused.stderr) == (5, True), words
    for value in ("message-ttl=0", "max-ttl=0s", "max-length=0", "max-length-bytes=0"):
        refused = shell("settings", "set", "set.#", value)
        assert (refused.returncode, "removes every message" in refused.stderr) == (2, True), value
    assert shell("settings", "set", "other", "max-length=5").returncode == 0, "that an old value stands elsewhere does not matter"
    assert shell("settings", "set", "set.#", "max-ttl=0", "allow-remove-all=true").returncode == 0
    assert origin(shell, "set.a", "max-ttl")["value"] == 0
    assert shell("settings", "unset", "set.#", "allow-remove-all").returncode == 2
    # What does not live until it is tried again.
    explained = shell("explain", "soon")
    assert "5 s, has expired" in explained.stdout
    assert "It expires before attempt 2, and is removed and counted: no expiry-address is set." in explained.stdout
    assert "message-ttl: 1s ends before attempt 2" in explained.stderr
    assert shell.json("explain", "soon")["expired_by_attempt"] == 2
    assert "--ttl 1 s ends before --delay 5 s does" in shell("send", "old", "--body", "x", "--delay", "5s", "--ttl", "1s").stderr
    assert not shell("send", "old", "--body", "x", "--delay", "1s", "--ttl", "5s").stderr


def test_of_one_pattern_the_commands_value_holds_and_what_it_covers_is_shown(shell: HomingCommand, broker: Server) -> None:
    (shell.directory / "more.yaml").write_text(
        "address-settings:\n  'later.#': {redelivery-delays: [1h, 2h]}\n  later.x: {message-ttl: 1d}\n"
    )
    assert set(shell.json("settings", "set", "--file", "more.yaml")["set"]) == {"later.#", "later.x"}
    assert origin(shell, "later.y", "redelivery-delays")["value"] == [3_600_000, 7_200_000], "in place of the file's one delay"
    shell("settings", "unset", "later.#")
    shell("settings", "set", "later.#", "redelivery-delay=2h")
    found = origin(shell, "later.y", "redelivery-delay")
    assert (found["value"], found["pattern"], found["line"], found["by_command"]) == (7_200_000, "later.#", None, True)
    assert found["covers"] == {"value": 3_600_000, "line": found["covers"]["line"]}
    assert found["covers"]["line"] > 0
    exported = shell("config", "export")
    (shell.directory / "export.yaml").write_text(exported.stdout)
    assert shell.json("config", "check", "export.yaml")["valid"] is True
    of_the_file = shell.json("explain", "later.y", "--config", "export.yaml")["settings"]
    assert next(each for each in of_the_file if each["key"] == "redelivery-delay")["value"] == 7_200_000
    broker.config["address-settings"] = {
        **SETTINGS,
        "later.#": {"redelivery-delay": "3h"},
        "later.x": {"min-ttl": "2d", "message-ttl": "3d"},
    }
    broker.write_config()
    assert len(shell.json("reload")) == 3
    assert origin(shell, "later.y", "redelivery-delay")["covers"]["value"] == 3 * 3_600_000
    shell("settings", "set", "later.x", "max-ttl=3d")
    broker.config["address-settings"] = {**SETTINGS, "later.x": {"min-ttl": "4d"}}
    broker.write_config()
    refused = shell("reload")
    assert (refused.returncode, "min-ttl is more than max-ttl" in refused.stderr) == (5, True), "with what commands have set it cannot be"
    for pattern in ("later.#", "later.x"):
        shell("settings", "unset", pattern)
    broker.config["address-settings"] = SETTINGS
    broker.write_config()
    shell.json("reload")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["set", "a.#"], 2, "key=value"),
        (["set", "a.#", "overflow=never"], 2, "one of page"),
        (["set", "a.#.b*", "overflow=page"], 2, "pattern"),
        (["set", "a.#", "redelivery-delay=1s", "redelivery-delays=[1s]"], 2, "cannot stand together"),
        (["set", "--file", "missing.yaml"], 4, "missing.yaml cannot be read: No such file"),
        (["unset", "a.#"], 4, "no command has set"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_settings_that_cannot_be_are_refused(shell: HomingCommand, words: list[str], code: int, said: str) -> None:
    done = shell("settings", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
