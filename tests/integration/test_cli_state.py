"""What a broker says of its own state, and who is told what: each command on a real one. One broker for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process import HomingCommand, Server, wait_until

CONFIG = {
    "amqp": {"port": 0},
    "http": {"port": 0},
    "address-settings": {"#": {"max-delivery-attempts": 1, "redelivery-delay": 0}},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("state"), CONFIG)
    yield server.start()
    server.close()


@pytest.fixture
def shell(broker: Server, homing: HomingCommand) -> HomingCommand:
    homing.url = broker.url
    return homing


def test_queues_are_chosen_sorted_and_cut_off(shell: HomingCommand) -> None:
    for number, name in enumerate(("eu.a", "eu.b", "us.a", "eu.b.late")):
        shell("send", name, "--body", "x", "--count", str(number + 1))

    def names(*words: str) -> list[str]:
        return [each["name"] for each in shell.json("queues", *words)]

    assert names("eu.*") == ["eu.a", "eu.b"]
    assert names("eu.#") == ["eu.a", "eu.b", "eu.b.late"]
    assert names(".b") == ["eu.b", "eu.b.late"]
    assert names("eu", "--sort", "messages", "--top", "2") == ["eu.b.late", "eu.b"]
    shell("receive", "us.a", "--fail", "no")
    wait_until("it is dead", lambda: names("DLQ") == ["DLQ.us.a"])
    first = shell.json("queues", "--sort", "dead", "--top", "1")[0]
    assert (first["name"], first["dead"], first["pending"]) == ("DLQ.us.a", 1, 1)
    assert shell("queues", "nothing").stdout == "no queue fits nothing\n"
    assert shell("queues", "a..*").returncode == 2
    long = f"long.{'x' * 200}"
    shell("queue", "create", long)
    assert long in shell("queues", "long").stdout, "a pipe gets everything"
