"""Artemis's ``broker.xml``: address settings, addresses and queues, security settings, acceptors, limits."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from .classic import SECOND_QUEUE, listen
from .nodes import Node
from .security import Security
from .translation import Translation, Value, pattern_of, size_of

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
_FULL: Final = {"PAGE": "page", "BLOCK": "block", "FAIL": "reject-publish"}
_SETTING_TUNING: Final = (
    *(
        "page-size-bytes",
        "page-max-cache-size",
        "message-counter-history-day-limit",
        "management-browse-page-size",
        "auto-create-jms-queues",
    ),
    *(
        "auto-create-jms-topics",
        "auto-delete-jms-queues",
        "auto-delete-jms-topics",
        "auto-delete-created-queues",
        "auto-delete-addresses-delay",
    ),
    *(
        "auto-delete-queues-message-count",
        "auto-delete-queues-skip-usage-check",
        "auto-delete-addresses-skip-usage-check",
        "page-limit-bytes",
    ),
    *("page-limit-messages", "max-read-page-bytes", "max-read-page-messages", "config-delete-queues", "config-delete-addresses"),
    *(
        "config-delete-diverts",
        "prefetch-page-messages",
        "prefetch-page-bytes",
        "enable-metrics",
        "id-cache-size",
        "default-queue-routing-type",
    ),
)
_CORE_TUNING: Final = re.compile(
    r"(journal|paging|bindings|large-messages|disk|critical|network-check|memory|server|thread|scheduled|message-expiry|address-queue|page|"
    r"jmx|configuration-file|log-delegate|persist|transaction|connection-ttl|wild-card|graceful|security-invalidation|create-|perf-|internal)"
    r"[a-zA-Z-]*|connectors|metrics|max-redelivery-records|addresses-warn|uuid.*|population.*"
)
_NONE: Final = Value(False, "Artemis's default")
_RIGHTS: Final = {"send": "send", "consume": "consume", "browse": "browse", "manage": "manage"}
_TUNING: Final = "how Artemis works inside; nothing of it is to be set here"
#: Element -> what to do instead.
_ELSEWHERE: Final = {
    "diverts": SECOND_QUEUE,
    "bridges": "there are none; a program receives here and sends there",
    "federations": "there are none; a program receives here and sends there",
    "cluster-connections": "a broker stands alone here",
    "ha-policy": "a broker stands alone here; homing journal backup is a copy",
    "broadcast-groups": "a broker stands alone here",
    "discovery-groups": "a broker stands alone here",
    "broker-plugins": "Java does not run here; events and the log tell what happens",
    "grouping-handler": "groups are carried as properties (JMSXGroupID) and do nothing",
}


def translate(root: Node, security: Security, found: Translation) -> None:
    root.seen = True
    for core in root.all("core") or [root]:
        _core(core, security, found)
    for child in root.children:
        if child.name == "jms":
            found.miss(child.origin, "<jms>", "write its queues as addresses of <core>, then translate again")
            child.pass_over()


def _core(core: Node, security: Security, found: Translation) -> None:
    if name := core.take("name"):
        found.set("broker", "name", name, _origin(core, "name"))
    if core.take("persistence-enabled") == "false":
        found.differ(_origin(core, "persistence-enabled"), "persistence-enabled=false", "messages that are sent durable are on disk here")
    if said := core.take("global-max-size"):
        size, origin = size_of(said), _origin(core, "global-max-size")
        if size is not None:
            found.set("broker", "memory-limit", size, origin)
        elif said != "-1":
            found.miss(origin, f"global-max-size {said}", "give broker.memory-limit a size")
    if core.take("max-disk-usage"):
        said = "producers wait when journal.disk-reserve is all that is left"
        found.differ(_origin(core, "max-disk-usage"), "max-disk-usage", said)
    for settings in core.all("address-settings", "address-setting"):
        _address_setting(settings, found)
    _defaults(core, found)
    for address in core.all("addresses", "address"):
        _address(address, found)
    acceptors = [(acceptor, urlsplit(acceptor.text)) for acceptor in core.all("acceptors", "acceptor")]
    spoken = {acceptor: _protocols(uri.query) for acceptor, uri in acceptors}
    # Where one is for STOMP alone, that is where its clients are.
    for acceptor, uri in sorted(acceptors, key=lambda each: len(spoken[each[0]])):
        protocols, name = spoken[acceptor], acceptor.take("name")
        tls = "sslenabled=true" in uri.query.lower()
        listen(found, acceptor.origin, name, "STOMP" in protocols, tls, uri.hostname or "", uri.port)
        if "STOMP" in protocols and len(protocols) > 1:
            found.miss(acceptor.origin, f"connector {name}", "of its protocols STOMP alone is spoken here")
    for setting in core.all("security-settings", "security-setting"):
        _security_setting(setting, security, found)
    if core.take("security-enabled", "true") != "false":
        security.from_files("artemis-users.properties", "artemis-roles.properties", core.origin, found)
        security.write(found)
    for child in core.children:
        if child.name in _ELSEWHERE:
            found.miss(child.origin, f"<{child.name}>", _ELSEWHERE[child.name])
            child.pass_over()
        elif not child.seen and _CORE_TUNING.fullmatch(child.name):
            child.pass_over()
            found.differ(child.origin, f"<{child.name}>", _TUNING)


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
            found.differ(settings.origin, f"address-setting {match}", "management is no address here")
        else:
            found.miss(settings.origin, f"address-setting {match}", said)
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
    _length(pattern, settings, found)
    for name in _SETTING_TUNING:
        settings.take(name)
    for name, said in {
        "redistribution-delay": "a broker stands alone here",
        "default-consumer-window-size": "consumer-prefetch counts messages, not bytes",
        "slow-consumer-threshold": "nobody is disconnected for being slow; homing consumers and events show who is",
        "send-to-dla-on-no-route": "what nobody is bound for is dropped",
        "default-last-value-queue": "a queue keeps every message",
        "default-exclusive-queue": "activemq.exclusive of each subscription has one consumer at a time",
    }.items():
        if settings.takes(name) and settings.take(name) not in ("false", "-1", "0"):
            found.miss(_origin(settings, name), name, said)
    for name in ("slow-consumer-policy", "slow-consumer-check-period", "slow-consumer-threshold-measurement-unit"):
        settings.take(name)


def _length(pattern: str, settings: Node, found: Translation) -> None:
    policy, size, count = (settings.take(name) for name in ("address-full-policy", "max-size-bytes", "max-size-messages"))
    if policy == "DROP":
        found.miss(
            settings.origin, "address-full-policy DROP", "nothing is dropped unseen: overflow has page, block, reject-publish and drop-head"
        )
        return
    overflow = _FULL.get(policy or "PAGE", "page")
    if overflow == "page":
        if size and size != "-1":
            found.differ(
                settings.origin, f"max-size-bytes={size}", "what is beyond the window in memory is on disk only, whatever its size"
            )
        return
    limits = [(key, size_of(said)) for key, said in (("max-length-bytes", size), ("max-length", count)) if said and said != "-1"]
    for key, value in limits:
        if value is not None:
            found.setting(pattern, key, value, settings.origin)
    if limits:
        found.setting(pattern, "overflow", overflow, settings.origin)


def _address(address: Node, found: Translation) -> None:
    name = address.take("name")
    kinds = [kind for kind in ("anycast", "multicast") if address.takes(kind) or address.all(kind)]
    found.entry("addresses", name, address.origin, routing_types=kinds or ["multicast"])
    for kind in kinds:
        for queue in address.all(kind, "queue"):
            own = queue.take("name")
            values: dict[str, object] = {"address": name, "routing_type": kind}
            text = queue.take("filter")
            for node in queue.all("filter"):
                text = text or node.take("string")
            if text:
                values["selector"] = text
            if (most := queue.take("max-consumers")) and most != "-1":
                values["max_consumers"] = int(most)
            durable = queue.take("durable")
            if durable == "false":
                values["durable"] = False
            queue.take("purge-on-no-consumers", "")
            queue.take("enabled")
            found.entry("queues", own, queue.origin, **values)
            if queue.take("exclusive") == "true":
                said = "activemq.exclusive of each subscription has one consumer at a time"
                found.miss(queue.origin, f"exclusive of queue {own}", said)


def _security_setting(setting: Node, security: Security, found: Translation) -> None:
    match = setting.take("match")
    pattern = pattern_of(match, any_words="#")
    if pattern is None:
        setting.pass_over()
        found.miss(setting.origin, f"security-setting {match}", "a wildcard stands for whole words here: grant it by another pattern")
        return
    for permission in setting.all("permission"):
        kind, roles = permission.take("type"), permission.take("roles")
        right = _RIGHTS.get(kind) or ("create" if kind.startswith("create") else "manage" if kind.startswith("delete") else None)
        for role in filter(None, (each.strip() for each in roles.split(","))):
            if right is not None:
                security.grant(role, [right], pattern, permission.origin)
        if right is None:
            found.miss(permission.origin, f"permission {kind}", "there is no such right")


def _origin(node: Node, name: str) -> str:
    return next((child.origin for child in node.children if child.name == name), node.origin)


def _time(text: str) -> str | None:
    return f"{int(text)}ms" if text.lstrip("-").isdigit() and int(text) >= 0 else None


def _number(text: str) -> float | int:
    return float(text) if "." in text else int(text)


def _flag(text: str) -> bool:
    return text.lower() == "true"


def _protocols(options: str) -> list[str]:
    """Those of an acceptor: all, where it names none."""
    named = re.search(r"protocols=([^;&]*)", options)
    return (named[1] if named else "CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE").upper().split(",")
