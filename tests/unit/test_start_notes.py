"""What a start says once after an upgrade: which queues have other delays, limits or dead letters than when the journal was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from homing.broker.config.config import default_config, load
from homing.broker.core.queue import Queue
from homing.broker.core.settings.address_settings import AddressSettingsRepository, built_in
from homing.broker.process.start_notes import changes, contradicted, ignored
from homing.broker.topology.resources import Declaration
from homing.journal.declarations import DeclarationRecord
from tests import inside
from tests.model.world import World
from tests.unit.journal_support import opened
from tests.unit.test_amqp_session import Peer

SCHEDULE = "1s × 4 up to 1h ± 20%"
QUORUM = {"x-queue-type": "quorum"}


def queues(layers: dict[str, dict[str, Any]], **arguments: Any) -> dict[str, Queue]:
    """Under these settings the queue ``native`` and, declared over AMQP with these arguments, the queue ``amqp``."""
    made = World(layers)
    inside.resources(made.broker).make_queue(Declaration("native", "native", "anycast"))
    peer = Peer(made)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(
        1, "queue.declare", 0, "amqp", False, True, False, False, False, {f"x-{k.replace('_', '-')}": v for k, v in arguments.items()}
    )
    return inside.queues(made.broker)


def before(**everywhere: Any) -> dict[str, Any]:
    """The settings as a version recorded them that did not record its defaults."""
    return {"": {"limits": {}}, **({"#": everywhere} if everywhere else {})}


def test_what_commands_set_before_it_was_refused_is_passed_over_and_told() -> None:
    over = AddressSettingsRepository({"a": {"message-ttl": 5000}}).laid_over(
        {"a": {"message-ttl": 0}, "b": {"max-length": 0, "max-ttl": 9000}}
    )
    assert (over.resolve("a").message_ttl_ms, over.resolve("b").max_length, over.resolve("b").max_ttl_ms) == (None, None, 9000)
    first, second = ignored(over, ["a", "b"])
    assert "a.message-ttl: message-ttl: 0 removes every message, and it is passed over" in first
    assert "b.max-length" in second
    assert ignored(over, ["b"]) == [second]


def test_a_new_journal_and_the_same_defaults_say_nothing() -> None:
    assert changes(queues({}), None) == {}
    assert changes(queues({}), default_config().journal_settings()) == {}


def test_what_had_no_delay_and_no_dead_letters() -> None:
    assert changes(queues({}), before()) == {
        f"delay at once → {SCHEDULE}; dead letters removed → DLA": ["native"],
        "dead letters removed → DLA": ["amqp"],
    }


def test_what_the_shipped_file_said_before() -> None:
    reported = changes(queues({}), before(dead_letter_address="DLA", auto_create_dead_letter_resources=True))
    assert reported == {f"delay at once → {SCHEDULE}": ["native"]}


@pytest.mark.parametrize(
    ("everywhere", "arguments", "reported"),
    [
        ({"redelivery_delay_ms": 5000}, {}, "delay 5s → at once"),
        ({"redelivery_delay_ms": 5000, "redelivery_delay_multiplier": 2.0}, {}, "delay 5s × 2 up to 50s → at once"),
        ({"redelivery_delay_ms": 5000, "redelivery_back_off": "linear"}, {}, "delay 5s × failures → at once"),
        ({"redelivery_delays_ms": [1000, 60_000]}, {}, "delay 1s, 1m → at once"),
        ({}, {"queue_type": "quorum"}, "attempts without end → 21"),
        ({}, {"queue_type": "quorum", "delivery_limit": 7}, ""),
        ({}, {"delayed_retry_type": "all", "delayed_retry_min": 3000}, "delay at once → 3s × failures"),
        ({}, {"max_length": 5}, "overflow DLA → removed"),
        ({}, {"max_length": 5, "dead_letter_exchange": ""}, ""),
    ],
)
def test_what_amqp_declared(everywhere: dict[str, Any], arguments: dict[str, Any], reported: str) -> None:
    everywhere = {"dead_letter_address": "DLA", **everywhere}
    found = changes(queues({"#": everywhere}, **arguments), before(**everywhere))
    assert found == ({reported: ["amqp"]} if reported else {}) | (
        {} if "redelivery" in str(everywhere) else {f"delay at once → {SCHEDULE}": ["native"]}
    )


def test_a_later_upgrade_goes_by_the_defaults_that_were_recorded() -> None:
    recorded = {**built_in(), "max_delivery_attempts": 7, "gone_since": 1, "redelivery_delay_ms": "flipped"}
    assert changes(queues({}), {"": {"default_address_settings": recorded}}) == {"attempts 7 → 10": ["native"]}


async def test_a_file_that_contradicts_what_commands_have_set_is_known_before_a_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text('address-settings: {"orders.#": {redelivery-delays: [1s, 1m]}}\n')
    config = load(path)
    assert contradicted(config) == [], "there is no journal yet"
    async with opened(config.data_directory) as (journal, _):
        journal.batch.declare(DeclarationRecord("settings", "orders.us", {"max_delivery_attempts": 3}))
        await journal.flush()
        assert contradicted(config) == []
        journal.batch.declare(DeclarationRecord("settings", "orders.eu", {"redelivery_delay_ms": 5_000}))
        await journal.flush()
        (sentence,) = contradicted(config)
    assert 'redelivery-delay would be ignored: the redelivery-delays of "orders.#" apply here' in sentence
