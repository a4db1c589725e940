"""Artemis's ``broker.xml``: address settings, addresses and queues, security settings, acceptors, limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from .classic import ALONE, JAVA, SECOND_QUEUE
from .connectors import Connector, listen, options_of
from .nodes import Node
from .security import Security
from .translation import Translation, Value, covers, pattern_of, size_of, size_text

_PLAIN: Final = ("dead-letter-address", "expiry-address", "dead-letter-queue-prefix", "dead-letter-queue-suffix", "expiry-queue-prefix")
_TEXTS: Final = (*_PLAIN, "expiry-queue-suffix")
_NUMBERS: Final = {
    **{name: name for name in ("max-delivery-attempts", "redelivery-delay-multiplier", "redelivery-collision-avoidance-factor")},
    "default-max-consumers": "default-max-consumers",
}
_TIMES: Final = {
    **{name: name for name in ("redelivery-delay", "max-redelivery-delay", "auto-delete-queues-delay")},
    "expiry-delay": "message-ttl",
    "min-expiry-delay": "min-ttl",
    "max-expiry-delay": "max-ttl",
}
_FLAGS: Final = {
    **{name: name for name in ("auto-create-queues", "auto-create-addresses", "auto-delete-queues", "auto-delete-addresses", "no-expiry")},
    **{name: name for name in ("auto-create-dead-letter-resources", "auto-create-expiry-resources")},
}
_FULL: Final = {"BLOCK": "block", "FAIL": "reject-publish"}
_MOST: Final = {"max-size-bytes": "max-length-bytes", "max-size-messages": "max-length"}
_MOST_PAGED: Final = {"page-limit-bytes": "max-length-bytes", "page-limit-messages": "max-length"}
_SETTING_TUNING: Final = (
    *("page-size-bytes", "page-max-cache-size", "message-counter-history-day-limit", "management-browse-page-size"),
    *("auto-create-jms-queues", "auto-create-jms-topics", "auto-delete-jms-queues", "auto-delete-jms-topics", "id-cache-size"),
    *("auto-delete-queues-skip-usage-check", "auto-delete-addresses-skip-usage-check", "max-read-page-bytes", "max-read-page-messages"),
    *("config-delete-queues", "config-delete-addresses", "config-delete-diverts", "prefetch-page-messages", "prefetch-page-bytes"),
    *("enable-metrics", "management-message-attribute-size-limit", "enable-ingress-timestamp", "max-size-bytes-reject-threshold"),
)
_WHEN_EMPTY: Final = "auto-delete-queues-message-count"
_SLOW: Final = (
    *("slow-consumer-threshold", "slow-consumer-check-period", "slow-consumer-policy"),
    "slow-consumer-threshold-measurement-unit",
)
#: By how much a rate in that unit is divided to be one a second.
_UNITS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}
#: Setting -> what becomes of it where it asks for something.
_HABITS: Final = {
    "redistribution-delay": ALONE,
    "default-consumer-window-size": "consumer-prefetch counts messages, not bytes",
    "send-to-dla-on-no-route": "what nobody is bound for is dropped",
    "default-last-value-queue": "a queue keeps every message",
    "last-value-queue": "a queue keeps every message",
    "default-exclusive-queue": "activemq.exclusive of each subscription has one consumer at a time",
    "default-purge-on-no-consumers": "a queue keeps its messages when its consumers go; message-ttl lets them go with time",
    "auto-delete-created-queues": "what was declared stays; expires lets a queue go that nobody uses",
    _WHEN_EMPTY: "a queue goes by itself when it is empty; expires lets one go with what it holds",
}
_QUEUE_HABITS: Final = {
    "exclusive": "activemq.exclusive of each subscription has one consumer at a time",
    "purge-on-no-consumers": "it keeps its messages when its consumers go; message-ttl lets them go with time",
}
_CORE_TUNING: Final = re.compile(
    r"(journal|paging|bindings|large-messages|disk|critical|network-check|memory|server|thread|scheduled|message-expiry|address-queue|page|"
    r"jmx|configuration-file|log-|persist|transaction|connection-ttl|wild-card|graceful|security-invalidation|create-|perf-|internal|"
    r"resolve-protocols|management-|cluster-|password-codec|mask-password|message-counter|async-|amqp-use)"
    r"[a-zA-Z-]*|connectors|metrics|max-redelivery-records|addresses-warn|uuid.*"
)
_NONE: Final = Value(False, "Artemis's default")
_RIGHTS: Final = {"send": "send", "consume": "consume", "browse": "browse", "manage": "manage"}
_TUNING: Final = "how Artemis works inside; nothing of it is to be set here"
#: Element -> what to do instead.
_ELSEWHERE: Final = {
    "bridges": "there are none; a program receives here and sends there",
    "federations": "there are none; a program receives here and sends there",
    **dict.fromkeys(("cluster-connections", "ha-policy", "broadcast-groups", "discovery-groups"), ALONE),
    "broker-plugins": JAVA,
    "connector-services": JAVA,
    "remoting-incoming-interceptors": JAVA,
    "remoting-outgoing-interceptors": JAVA,
    "grouping-handler": "groups are carried as properties (JMSXGroupID) and do nothing",
}


def translate(root: Node, security: Security, found: Translation) -> None:
    root.seen = True
    cores = root.all("core") or [root]
    for core in cores:
        _core(core, security, found)
    matches = [each.attributes.get("match", "") for core in cores for section in core.children for each in section.children]
    for jms in root.all("jms"):
        _jms(jms, any(match.startswith("jms.") for match in matches), found)


def _jms(jms: Node, prefixed: bool, found: Translation) -> None:
    """``prefixed``: Artemis 1 calls the queue a ``jms.queue.a``, as the rest of such a file does."""
    for kind, routing in (("queue", "anycast"), ("topic", "multicast")):
        for each in jms.all(kind):
            name = f"jms.{kind}." * prefixed + each.take("name")
            found.entry("addresses", name, each.origin, routing_types=[routing])
            if kind == "queue":
                found.entry("queues", name, each.origin)


def _core(core: Node, security: Security, found: Translation) -> None:
    if name := core.take("name"):
        found.set("broker", "name", name, _origin(core, "name"))
    if core.take("persistence-enabled") == "false":
        found.differ(_origin(core, "persistence-enabled"), "persistence-enabled=false", "messages that are sent durable are on disk here")
    if said := core.take("global-max-size"):
        size, origin = size_of(said), _origin(core, "global-max-size")
        if size is not None:
            found.set("broker", "memory-limit", size_text(size), origin)
        elif said != "-1":
            found.miss(origin, f"global-max-size {said}", "give broker.memory-limit a size")
    if said := core.take("max-disk-usage"):
        origin = _origin(core, "max-disk-usage")
        found.differ(origin, f"max-disk-usage={said}", "producers wait when journal.disk-reserve is all that is left")
    if milliseconds := core.take("transaction-timeout"):
        found.set("limits", "transaction-timeout", f"{int(milliseconds)}ms", _origin(core, "transaction-timeout"))
    if count := core.take("id-cache-size"):
        found.set("journal", "duplicate-ids-per-address", int(count), _origin(core, "id-cache-size"))
    if core.take("persist-delivery-count-before-delivery") == "true":
        name = "persist-delivery-count-before-delivery"
        found.setting("#", name, True, _origin(core, name))
    for settings in core.all("address-settings", "address-setting"):
        _address_setting(settings, found)
    _defaults(core, found)
    _addresses(core, found)
    listen([_acceptor(each) for each in core.all("acceptors", "acceptor")], found)
    if core.take("security-enabled", "true") == "false":
        found.needless(
            core, ["security-settings"], "of security-enabled, which is off: everybody may do everything, from this machine alone"
        )
    else:
        _security(core.all("security-settings", "security-setting"), security, found)
        security.from_files("artemis-users.properties", "artemis-roles.properties", core.origin, found)
        security.write(found)
    for limits in core.all("resource-limit-settings", "resource-limit-setting"):
        most = {name: int(limits.take(name, "-1")) for name in ("max-connections", "max-queues")}
        found.entry("user-limits", limits.take("match"), limits.origin, **{name: value for name, value in most.items() if value >= 0})
    if (flag := core.take("populate-validated-user")) not in ("", "false"):
        said = "a message does not say who sent it; the audit log and rights do"
        found.miss(_origin(core, "populate-validated-user"), f"populate-validated-user={flag}", said)
    if (most_messages := core.take("global-max-messages", "-1")) != "-1":
        said = "broker.memory-limit is in bytes; max-length is of each queue"
        found.miss(_origin(core, "global-max-messages"), f"global-max-messages={most_messages}", said)
    for divert in core.all("diverts", "divert"):
        _divert(divert, found)
    for name, said in _ELSEWHERE.items():
        if core.takes(name):
            origin = _origin(core, name)
            core.drop(name)
            found.miss(origin, f"<{name}>", said)
    needless = dict.fromkeys(child.name for child in core.children if not child.seen and _CORE_TUNING.fullmatch(child.name))
    found.needless(core, needless, _TUNING)


def _acceptor(acceptor: Node) -> Connector:
    acceptor.seen = True
    uri = acceptor.text
    options = options_of(uri)
    # All, where it names none.
    spoken = options.get("protocols", "CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE").upper().split(",")
    tls = options.get("sslEnabled", "false").lower() == "true"
    return Connector(acceptor.origin, acceptor.name, acceptor.take("name"), spoken, tls, uri, options)


def _divert(divert: Node, found: Translation) -> None:
    divert.pass_over()
    said = {child.name: child.text or ", ".join(child.attributes.values()) for child in divert.children}
    kept = "" if said.get("exclusive") == "true" else " too"
    what = f"<divert>: {said.get('address', '')} goes to {said.get('forwarding-address', '')}{kept}"
    found.miss(divert.origin, what, SECOND_QUEUE)


def _defaults(core: Node, found: Translation) -> None:
    """What Artemis does where nobody says anything, as far as it is another thing here."""
    layer = found.sections.get("address-settings", {}).get("#", {})
    if "dead-letter-address" in layer:
        found.setting("#", "auto-create-dead-letter-resources", layer.get("auto-create-dead-letter-resources", _NONE).value, _NONE.origin)
    else:
        found.differ(
            core.origin, "dead-letter-address", "a message at its limit is kept, in DLQ.ADDRESS; Artemis drops it where there is none"
        )
    if "redelivery-delay" not in layer:
        found.differ(core.origin, "redelivery-delay", "what fails is tried again after 1 s, 4 s, 16 s …; Artemis does at once")


def _address_setting(settings: Node, found: Translation) -> None:
    match = settings.take("match")
    pattern = pattern_of(match, any_words="#")
    if pattern is None:
        settings.pass_over()
        said = "a wildcard stands for whole words here: name it otherwise"
        if match.startswith("activemq.management"):
            found.differ(settings.origin, f"<address-setting> for {match}", "management is no address here")
        else:
            found.miss(settings.origin, f"<address-setting> for {match}", said)
        return
    for names, read in ((_TIMES, _time), (_NUMBERS, _number), (_FLAGS, _flag)):
        for theirs, ours in names.items():
            if settings.takes(theirs):
                origin = _origin(settings, theirs)
                value = read(settings.take(theirs))
                if value is not None:
                    found.setting(pattern, ours, value, origin)
    for name in _TEXTS:
        if settings.takes(name):
            found.setting(pattern, name, settings.take(name) or None, _origin(settings, name))
    if settings.takes("default-address-routing-type"):
        found.setting(pattern, "default-address-routing-type", settings.take("default-address-routing-type").lower(), settings.origin)
    if settings.takes("default-queue-routing-type") and (kind := settings.take("default-queue-routing-type").lower()) != "anycast":
        said = "a destination without /queue/ or /topic/ is a queue here, unless destination-type says otherwise"
        found.miss(_origin(settings, "default-queue-routing-type"), f"default-queue-routing-type {kind}", said)
    _length(pattern, settings, found)
    for name, said in _HABITS.items():
        nothing = ("0",) if name == _WHEN_EMPTY else ("false", "-1", "0")
        if settings.takes(name) and (value := settings.take(name)) not in nothing:
            found.miss(_origin(settings, name), f"{name} {value}", said)
    _slow_consumers(pattern, settings, found)
    found.needless(settings, ["auto-delete-addresses-delay"], "an address goes with its last queue")
    found.needless(settings, _SETTING_TUNING, _TUNING)


def _slow_consumers(pattern: str, settings: Node, found: Translation) -> None:
    unit = settings.take("slow-consumer-threshold-measurement-unit", "MESSAGES_PER_SECOND").rpartition("_")[2]
    period, policy = settings.take("slow-consumer-check-period", "5"), settings.take("slow-consumer-policy", "NOTIFY").lower()
    threshold, origin = int(settings.take("slow-consumer-threshold", "-1")), _origin(settings, "slow-consumer-threshold")
    if threshold > 0 and unit in _UNITS:
        found.setting(pattern, "slow-consumer-threshold", threshold / _UNITS[unit], origin)
        found.setting(pattern, "slow-consumer-check-period", f"{max(1, int(period))}s", origin)
        found.setting(pattern, "slow-consumer-policy", policy, origin)
    elif names := [name for name in _SLOW if settings.takes(name)]:
        found.differ(settings.origin, f"{', '.join(names)} of <{settings.name}>", "nobody is slow without slow-consumer-threshold")


def _length(pattern: str, settings: Node, found: Translation) -> None:
    """At a size producers wait or are refused, or messages are on disk only, perhaps up to another size."""
    policy, sizes = settings.take("address-full-policy", "PAGE").upper(), _sizes(settings, _MOST)
    if policy == "PAGE":
        for name, value in sizes.items():
            found.differ(settings.origin, f"{name}={value}", "what is beyond the window in memory is on disk only, whatever its size")
        policy, sizes = settings.take("page-full-policy", "PAGE").upper(), _sizes(settings, _MOST_PAGED)
    found.needless(settings, (*_MOST_PAGED, "page-full-policy"), "of address-full-policy PAGE, which it is not")
    if policy not in ("PAGE", "DROP", *_FULL):
        found.miss(settings.origin, f"address-full-policy {policy}", "it is none that is known")
    if policy == "DROP":
        what = " ".join(("DROP", *(f"{name}={value}" for name, value in sizes.items())))
        found.miss(settings.origin, what, "nothing is dropped unseen: overflow has page, block, reject-publish and drop-head")
        return
    for name, value in sizes.items():
        ours, size = {**_MOST, **_MOST_PAGED}[name], size_of(value)
        if size is None or policy not in _FULL:
            found.miss(settings.origin, f"{policy} at {name}={value}", "give it a size, and overflow: block or reject-publish")
        else:
            found.setting(pattern, ours, size if ours == "max-length" else size_text(size), settings.origin)
            found.setting(pattern, "overflow", _FULL[policy], settings.origin)


def _sizes(settings: Node, names: Iterable[str]) -> dict[str, str]:
    """Those that are limits."""
    return {name: value for name in names if (value := settings.take(name, "-1")) != "-1"}


def _addresses(core: Node, found: Translation) -> None:
    addresses = [(address, address.take("name")) for address in core.all("addresses", "address")]
    kinds: dict[str, dict[str, None]] = {}
    for address, name in addresses:
        kinds.setdefault(name, {}).update({kind: None for kind in ("anycast", "multicast") if address.all(kind)})
    for address, name in addresses:
        found.entry("addresses", name, address.origin, routing_types=list(kinds[name]) or ["multicast"])
        for kind in kinds[name]:
            for queue in address.all(kind, "queue"):
                _queue(queue, name, kind, found)
    # As Artemis 1 has them, where each queue of an address gets each message.
    for queue in core.all("queues", "queue"):
        name = queue.take("address")
        _queue(queue, name, "anycast" if name == queue.take("name") else "multicast", found)


def _queue(queue: Node, address: str, kind: str, found: Translation) -> None:
    own = queue.take("name")
    values: dict[str, object] = {"address": address, "routing_type": kind}
    text = queue.take("filter")
    for node in queue.all("filter"):
        text = text or node.take("string")
    if text:
        values["selector"] = text
    if (most := queue.take("max-consumers")) and most != "-1":
        values["max_consumers"] = int(most)
    if queue.take("durable") == "false":
        values["durable"] = False
    found.entry("queues", own, queue.origin, **values)
    for habit, said in _QUEUE_HABITS.items():
        if queue.take(habit) == "true":
            found.miss(queue.origin, f"{habit} of queue {own}", said)
    if queue.take("enabled") == "false":
        found.miss(queue.origin, f"enabled=false of queue {own}", "homing queue pause keeps its messages back")


def _security(settings: list[Node], security: Security, found: Translation) -> None:
    given: list[tuple[str, set[tuple[str, str]], str]] = []
    for setting in settings:
        match = setting.take("match")
        pattern = pattern_of(match, any_words="#")
        if pattern is None:
            setting.pass_over()
            said = "a wildcard stands for whole words here: grant it by another pattern"
            found.miss(setting.origin, f"<security-setting> for {match}", said)
            continue
        given.append((pattern, set(_permissions(setting, pattern, security, found)), setting.origin))
    for pattern, here, origin in given:
        for wide, there, _ in given:
            if wide != pattern and covers(wide.split("."), pattern.split(".")) and (kept := sorted(there - here)):
                who = "; ".join(f"{role} {right}" for role, right in kept)
                said = f"it takes the place of {wide} there, and is beside it here, where these keep what {wide} gives: {who}"
                found.miss(origin, f"<security-setting> for {pattern}", said)


def _permissions(setting: Node, pattern: str, security: Security, found: Translation) -> Iterator[tuple[str, str]]:
    """(role, right)."""
    for permission in setting.all("permission"):
        kind, roles = permission.take("type"), permission.take("roles")
        right = _RIGHTS.get(kind) or ("create" if kind.startswith("create") else "manage" if kind.startswith("delete") else None)
        if right is None:
            found.miss(permission.origin, f"permission {kind} of {roles}", "there is no such right")
            continue
        for role in filter(None, (each.strip() for each in roles.split(","))):
            security.grant(role, [right], pattern, permission.origin)
            yield role, right


def _origin(node: Node, name: str) -> str:
    return next((child.origin for child in node.children if child.name == name), node.origin)


def _time(text: str) -> str | None:
    return f"{int(text)}ms" if text.lstrip("-").isdigit() and int(text) >= 0 else None


def _number(text: str) -> float | int:
    return float(text) if "." in text else int(text)


def _flag(text: str) -> bool:
    return text.lower() == "true"
