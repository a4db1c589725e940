"""Whole configurations that people of ActiveMQ and Artemis have published: what each comes to, and that nothing of one is lost unsaid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, fromstring, tostring
from xml.parsers import expat

import pytest

from homing.broker.config.config import parse
from homing.broker.errors import Refused
from homing.broker.from_activemq import security
from homing.broker.from_activemq.reading import translate
from tests.house import HASH
from tests.unit.test_from_activemq import ARTEMIS, CLASSIC, PECULIAR, SETTINGS

FOLDER = Path(__file__).parent / "activemq"
FILES = sorted(FOLDER.glob("*.xml"))
MIB, GIB = 1 << 20, 1 << 30
OPENWIRE, STOMP_HOST = "<transportConnector> openwire", "host 0.0.0.0 of <transportConnector> stomp"
ACCEPTOR_HOST, NO_USERS = "host 0.0.0.0 of <acceptor> stomp", "artemis-users.properties"
NETTY = "protocols of <acceptor> netty-acceptor"
ALL = ["browse", "consume", "create", "manage", "send"]
#: Where the file says nothing of dead letters, ActiveMQ has one queue for all of them, and for what expires.
ONE_FOR_ALL = {"dead_letter_address": "ActiveMQ.DLQ", "expiry_address": "ActiveMQ.DLQ", "auto_create_dead_letter_resources": False}
ONE_EACH = {"dead_letter_address": "DLA", "dead_letter_queue_prefix": "DLQ.", "expiry_address": "DLA", "expiry_queue_prefix": "DLQ."}


class Whole(NamedTuple):
    """What a file comes to. ``settings``: of addresses; ``limits``: of memory, store and what is not durable, in bytes; ``stomp``: the
    ports without and with TLS; ``users``: the patterns on which each may do all; ``missing``: what is listed as not translated.
    """

    settings: dict[str, dict[str, Any]]
    missing: set[str]
    stomp: tuple[int | None, int | None] | None = None
    limits: tuple[int | None, int | None, int | None] = (None, None, None)
    queues: tuple[str, ...] = ("ActiveMQ.DLQ",)
    users: dict[str, list[str]] | None = None


WHOLE = {
    "demonstration": Whole(
        {"a": ONE_FOR_ALL},
        {
            OPENWIRE,
            "<transportConnector> ssl",
            "<transportConnector> ws",
            "<sslContext>",
            "<subscriptionRecoveryPolicy>",
            "<import> camel.xml",
        },
        stomp=(61613, 61614),
        limits=(20 * MIB, GIB, 100 * MIB),
    ),
    "secured": Whole({"a": ONE_FOR_ALL}, {OPENWIRE, "password of system", "password of user", "password of guest"}),
    "orchestration": Whole(
        {"a": ONE_FOR_ALL},
        {OPENWIRE, STOMP_HOST, "group admins"},
        stomp=(61613, 61614),
        limits=(64 * MIB, 100 * GIB, 50 * GIB),
        users={"mc": ["mc.#"], "admin": ["mc.#"]},
    ),
    "own-dead-letters": Whole(
        {"a": ONE_EACH},
        {OPENWIRE, STOMP_HOST, *(f"<transportConnector> {name}" for name in ("amqp", "mqtt", "ws"))},
        stomp=(61613, 61614),
        limits=(None, 100 * GIB, 50 * GIB),
        queues=(),
    ),
    "broker-redelivery": Whole(
        {
            "test": {"max_delivery_attempts": 16, "redelivery_delays_ms": (1000, 60_000)},
            "a": {"max_delivery_attempts": 5, "redelivery_delays_ms": (5000, 10_000), **ONE_FOR_ALL},
        },
        {OPENWIRE},
        limits=(None, 100 * GIB, 50 * GIB),
    ),
    "for-tests": Whole({"a": ONE_FOR_ALL | {"max_length": None}}, {OPENWIRE}, limits=(None, 10 * GIB, 5 * GIB)),
    "instruments": Whole(
        {"a": ONE_FOR_ALL},
        {OPENWIRE, STOMP_HOST, "anonymousAccessAllowed"},
        stomp=(39991, 61614),
        limits=(None, 100 * GIB, 50 * GIB),
        users={"lab": ["scripts", "Logs", "Device_SERVER"]},
    ),
    "own-plugin": Whole({"a": ONE_FOR_ALL}, {STOMP_HOST, "<bean> com.example.CountingPlugin"}, stomp=(61613, 61614)),
    "composite-topic": Whole(
        {"a": ONE_FOR_ALL},
        {OPENWIRE, STOMP_HOST},
        stomp=(61613, 61614),
        limits=(20 * MIB, GIB, 100 * MIB),
        queues=("ActiveMQ.DLQ", "indexer"),
    ),
    "directory-service": Whole(
        {"a": ONE_FOR_ALL}, {OPENWIRE, "${broker-name}, brokerName of <broker>", "users.properties", "<cachedLDAPAuthorizationMap>"}
    ),
    "client-certificates": Whole(
        {"a": ONE_FOR_ALL},
        {
            *("TLS of <transportConnector> stomp", "needClientAuth=true of <transportConnector> stomp", "<sslContext>"),
            *("<jaasCertificateAuthenticationPlugin>", "group clients"),
        },
        stomp=(None, 61613),
    ),
    "service": Whole(
        {"a": ONE_FOR_ALL},
        {
            "<transportConnector> internal",
            "sendFailIfNoSpace",
            "#{env.machine}, brokerName of <broker>",
            "<bean> com.example.DiscoveryPlugin",
        },
        limits=(GIB, 10 * GIB, GIB),
    ),
    "invoices": Whole(
        {
            "a": {
                "dead_letter_address": "shop.DLQ",
                "expiry_address": None,
                "max_delivery_attempts": 11,
                "redelivery_delays_ms": (1000, 300_000),
            },
            "shop.archive": {
                "dead_letter_address": "shop.archive.dlq",
                "max_delivery_attempts": 7,
                "redelivery_delays_ms": (1000, 1_800_000),
            },
            "shop.send": {"dead_letter_address": None, "without_dead_letter_address": "drop", "max_delivery_attempts": 1},
            "shop.split": {"max_delivery_attempts": 4, "redelivery_delay_ms": 1000, "dead_letter_address": "shop.DLQ"},
            "shop.archive.dlq": {"dead_letter_address": None, "without_dead_letter_address": "drop"},
        },
        {"<transportConnector>"},
        limits=(64 * MIB, 512 * MIB, 128 * MIB),
        queues=("shop.DLQ", "shop.archive", "shop.archive.dlq", "shop.send"),
        users={"admin": ["shop.#", "*.shop.#"]},
    ),
    "benchmark": Whole({"a": ONE_FOR_ALL}, {OPENWIRE, "deleteAllMessagesOnStartup=true"}, limits=(2 * GIB, None, None)),
    "network": Whole({"a": ONE_EACH}, {OPENWIRE, "<networkConnectors>"}, limits=(20 * MIB, GIB, 100 * MIB), queues=()),
    "embedded": Whole({"a": ONE_FOR_ALL}, {"<transportConnector> vm"}, limits=(20 * MIB, GIB, 100 * MIB)),
    "artemis-stomp-bug": Whole(
        {"a": {"message_ttl_ms": 300_000, "auto_delete_queues": True, "auto_delete_queues_delay_ms": 30_000}},
        {NO_USERS, "auto-delete-created-queues true", "auto-delete-queues-message-count -1"},
        queues=(),
    ),
    "artemis-large": Whole(
        {"a": {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue", "redelivery_delay_ms": 0, "max_length_bytes": None}},
        {
            NO_USERS,
            ACCEPTOR_HOST,
            "group amq",
            "exclusive of queue source",
            *(f"<acceptor> {name}" for name in ("artemis", "amqp", "hornetq", "mqtt")),
        },
        stomp=(61614, 61614),
        queues=("DLQ", "ExpiryQueue", "source", "targer"),
    ),
    "artemis-divert": Whole(
        {},
        {
            *(NO_USERS, NETTY, "group guest", "<bridges>", "<divert>: orders goes to spyTopic too"),
            "<divert>: priceUpdates goes to priceForwarding",
        },
        stomp=(61616, 61614),
        queues=("orders", "priceForwarding"),
    ),
    "artemis-both-kinds": Whole(
        {"a": {"auto_delete_queues": False, "auto_delete_addresses": False}},
        {NO_USERS},
        queues=("both-anycast", "both-multicast", "one-queue"),
    ),
    "artemis-mail": Whole(
        {
            "a": {"max_delivery_attempts": 3, "redelivery_delay_ms": 0, "auto_create_queues": False, "dead_letter_queue_suffix": "DLQ"},
            "jms.queue.a": {"max_delivery_attempts": 10, "redelivery_delay_ms": 120_000, "dead_letter_address": "DLQ"},
        },
        {NO_USERS, ACCEPTOR_HOST, "<acceptor> artemis", "<acceptor> hornetq", "group amq", "group update", "group view"},
        stomp=(61613, 61614),
        queues=("jms.queue.MailQueue",),
    ),
    "artemis-bridge": Whole(
        {"a": {"max_length_bytes": 10 * MIB, "overflow": "block", "dead_letter_address": "DLQ"}},
        {"protocols of <acceptor> activemq"},
        stomp=(61616, 61614),
        queues=("DLQ", "ExpiryQueue"),
    ),
    "artemis-rights": Whole(
        {"a": {"dead_letter_address": "DLQ"}},
        {
            *(NO_USERS, ACCEPTOR_HOST, "<broker-plugins>", "<security-setting> for RH.#", "<security-setting> for RH.ORDERS"),
            *("group Administrator", "group everything", "group readers", "group writers"),
        },
        stomp=(61613, 61614),
        queues=("DLQ", "ExpiryQueue", "RH.ORDERS"),
    ),
    "artemis-chart": Whole(
        {
            "a": {
                "dead_letter_address": "DLQ",
                "max_delivery_attempts": -1,
                "redelivery_delay_ms": 500,
                "redelivery_delay_multiplier": 2.0,
                "max_redelivery_delay_ms": 300_000,
                "auto_delete_queues": False,
                "max_length": None,
                "overflow": "page",
            }
        },
        {NO_USERS, ACCEPTOR_HOST, "<acceptor> artemis-tls", "group amq", "group global", "group system:authenticated"},
        stomp=(61613, 61614),
        queues=("DLQ", "ExpiryQueue"),
    ),
    "artemis-everything": Whole(
        {
            "a": {"persist_delivery_count_before_delivery": True},
            "a1": {
                "dead_letter_address": "a1.1",
                "expiry_address": "a1.2",
                "redelivery_delay_ms": 1,
                "default_max_consumers": 5,
                "slow_consumer_threshold": 10,
                "slow_consumer_policy": "notify",
                "default_address_routing_type": "multicast",
            },
            "a2": {"slow_consumer_threshold": 20, "slow_consumer_check_period_ms": 15_000, "slow_consumer_policy": "kill"},
        },
        {
            *("protocols of <acceptor>", "host 0.0.0.0 of <acceptor>", "connectionsAllowed=${ninetyTwoProp} of <acceptor>", "<acceptor>"),
            *("<divert>: address1 goes to forwarding-address1", "<bridges>", "<federations>", "<cluster-connections>", "<ha-policy>"),
            *("<broadcast-groups>", "<discovery-groups>", "<grouping-handler>", "<remoting-incoming-interceptors>", "<connector-services>"),
            *("populate-validated-user=true", "default-purge-on-no-consumers true", "default-queue-routing-type multicast"),
            *("default-consumer-window-size 10000", "purge-on-no-consumers of queue q4", "${trueProp}, durable of <queue>"),
            *("${falseProp}, durable of <queue>", "${falseProp}, purge-on-no-consumers of <queue>"),
        },
        stomp=(61616, 61614),
        limits=(1_234_567, None, None),
        queues=("q1", "q2", "q3", "q4", "q5", "q7", "queue1", "queue2"),
    ),
    "artemis-tls": Whole(
        {"a": {"dead_letter_address": "DLQ"}},
        {
            *(NO_USERS, ACCEPTOR_HOST, "<acceptor> amqp", "protocols of <acceptor> artemis", "TLS of <acceptor> artemis"),
            *("needClientAuth=true of <acceptor> artemis", "group amq"),
        },
        stomp=(61613, 61616),
        queues=("DLQ", "ExpiryQueue"),
    ),
    "artemis-dead-letter": Whole(
        {"work": {"dead_letter_address": "dead", "max_delivery_attempts": 3}},
        {NO_USERS, NETTY, "group guest"},
        stomp=(61616, 61614),
        queues=("dead", "work"),
    ),
    "artemis-last-value": Whole(
        {},
        {NO_USERS, NETTY, "group guest", "last-value-queue true"},
        stomp=(61616, 61614),
        queues=("jms.queue.example",),
    ),
    "artemis-paging": Whole(
        {"limited": {"max_length": 1000, "overflow": "reject-publish"}, "paged": {"max_length_bytes": None, "overflow": "page"}},
        {NO_USERS, NETTY, "group guest"},
        stomp=(61616, 61614),
        queues=("limited", "paged"),
    ),
    "artemis-news": Whole(
        {},
        {NO_USERS, NETTY, "<security-setting> for news.europe.#", "group user", "group europe-user", "group news-user"},
        stomp=(61616, 61614),
        queues=(),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_a_whole_file_comes_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "hash_password", lambda _: HASH)
    whole = WHOLE[name]
    found, text = translate(FOLDER / f"{name}.xml")
    config = parse(text)
    for address, wanted in whole.settings.items():
        held = config.settings_repository().resolve(address)
        assert {key: getattr(held, key) for key in wanted} == wanted
    stomp = (config.stomp.port, config.stomp.tls_port) if config.stomp else None
    memory = config.broker.memory_limit_bytes if "memory-limit: " in text else None
    limits = (memory, config.broker.store_limit_bytes, config.broker.temp_limit_bytes)
    assert (stomp, limits, tuple(sorted(config.queues))) == (whole.stomp, whole.limits, whole.queues)
    users = {user: [grant.describe() for grant in section.grants] for user, section in config.users.items()}
    assert users == {user: [{"rights": ALL, "pattern": each} for each in patterns] for user, patterns in (whole.users or {}).items()}
    assert {each.what for each in found.missing} == whole.missing
    assert all(re.search(r"  # \S+\.xml:\d+( \d+)*( \(.*\))?$|  # Artemis's default$|:$|^#|^$", line) for line in text.splitlines())


def test_each_whole_file_has_its_word() -> None:
    assert sorted(WHOLE) == [file.stem for file in FILES]


def local(name: str) -> str:
    return name.rpartition("}")[2]


def lines_of(data: bytes) -> list[int]:
    """Of the elements, in their order."""
    found: list[int] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda *_: found.append(parser.CurrentLineNumber)
    parser.Parse(data, True)
    return found


def otherwise(value: str) -> str:
    """Another value of that kind."""
    return {"true": "false", "false": "true"}.get(value) or (str(int(value) + 1) if re.fullmatch(r"-?\d+", value) else f"{value}x")


def said_otherwise(element: Element) -> Iterator[tuple[str, list[tuple[str, dict[str, str], str]]]]:
    """What the element says by itself, and elements (tag, attributes, text) that do not say that."""
    tag, attributes, text = element.tag, dict(element.attrib), (element.text or "").strip()
    for name, value in attributes.items():
        if "}" not in name:
            without = {each: attributes[each] for each in attributes if each != name}
            yield f"{name} of {local(tag)}", [(tag, without, text), (tag, {**without, name: otherwise(value)}, text)]
    if text:
        yield local(tag), [(tag, attributes, ""), (tag, attributes, otherwise(text))]
    elif not attributes and not len(element):
        yield f"<{local(tag)}>", [(f"{tag}-x", attributes, text)]


def named_in(told: str, element: Element, line: int) -> Iterator[Element]:
    """The element where the list names it (``<element> …``), and those below it that the list names (``one, other of <element>``)."""
    if f"copy.xml:{line}: <{local(element.tag)}>" in told:
        yield element
    for names in re.findall(rf"copy\.xml:{line}: ([\w, -]+) of <{local(element.tag)}>:", told):
        yield from (child for child in element if local(child.tag) in names.split(", "))


PARTS = [CLASSIC, ARTEMIS.replace('<xi:include href="settings.xml"/>', SETTINGS), *(content for _, content, _, _ in PECULIAR)]
DATA = {file.stem: file.read_bytes() for file in FILES} | {f"part-{number}": part.encode() for number, part in enumerate(PARTS)}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_nothing_is_lost_unsaid(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attribute and text makes a difference, to a line that is written or to the list, or stands within what the list names whole."""
    monkeypatch.setattr(security, "hash_password", str)
    root, copy = fromstring(data), tmp_path / "copy.xml"

    def told() -> str:
        copy.write_bytes(tostring(root))
        try:
            return translate(copy)[1]
        except Refused as error:
            return error.message

    def told_of(element: Element, tag: str, attributes: dict[str, str], text: str) -> str:
        before = element.tag, dict(element.attrib), element.text
        element.tag, element.attrib, element.text = tag, attributes, text
        try:
            return told()
        finally:
            element.tag, element.attrib, element.text = before

    whole = told()
    elements = list(zip(root.iter(), lines_of(copy.read_bytes()), strict=True))
    named = {each for element, line in elements for each in named_in(whole, element, line)}
    within = {each for element in named for each in element.iter()}
    lost = [
        f"{line}: {what}"
        for element, line in elements
        if element not in within
        for what, others in said_otherwise(element)
        if all(told_of(element, *other) == whole for other in others)
    ]
    assert lost == []
