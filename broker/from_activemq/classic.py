"""ActiveMQ Classic's ``activemq.xml``: policies, dead-letter strategies, redelivery, users, limits and connectors."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

from .nodes import Node
from .security import Security
from .translation import Translation, pattern_of, size_of

#: Where messages go that nobody names a place for.
_DLQ: Final = "ActiveMQ.DLQ"
_TUNING: Final = "how ActiveMQ works inside; nothing of it is to be set here"
#: What is known to need no translation, and why.
_NEEDLESS: Final = {
    **dict.fromkeys(
        (
            *("pendingQueuePolicy", "pendingSubscriberPolicy", "pendingDurableSubscriberPolicy", "dispatchPolicy", "taskRunnerFactory"),
            *("shutdownHooks", "ioExceptionHandler", "messageGroupMapFactory"),
        ),
        _TUNING,
    ),
    "managementContext": "there is no JMX: metrics, the console and homing queues show it",
    "persistenceAdapter": "there is one journal, in data-directory; messages that are in ActiveMQ's store stay there",
    "persistenceFactory": "there is one journal, in data-directory; messages that are in ActiveMQ's store stay there",
}
_POLICY_TUNING: Final = (
    *(
        "maxPageSize",
        "maxBrowsePageSize",
        "cursorMemoryHighWaterMark",
        "useCache",
        "optimizedDispatch",
        "lazyDispatch",
        "queueBrowserPrefetch",
    ),
    *("expireMessagesPeriod", "prioritizedMessages", "storeUsageHighWaterMark", "doOptimzeMessageStorage", "enableAudit", "maxAuditDepth"),
    *("usePrefetchExtension", "persistJMSRedelivered", "reduceMemoryFootprint", "maxProducersToAudit", "advisoryForConsumed"),
    *("advisoryForDelivery", "advisoryForDiscardingMessages", "advisoryForFastProducers", "advisoryForSlowConsumers", "advisoryWhenFull"),
)
_BROKER_TUNING: Final = (
    *(
        "useJmx",
        "dataDirectory",
        "schedulerSupport",
        "start",
        "restartAllowed",
        "useShutdownHook",
        "advisorySupport",
    ),
    *("enableStatistics", "splitSystemUsageForProducersConsumers", "schedulePeriodForDestinationPurge", "id"),
    *("dedicatedTaskRunner", "vmConnectorURI", "waitForSlave", "tmpDataDirectory", "brokerId", "useVirtualTopics"),
)
#: What it does where that is so.
_BROKER_HABITS: Final = {
    "deleteAllMessagesOnStartup": "a start keeps what is there; homing queue purge empties a queue",
    "populateJMSXUserID": "a message does not say who sent it; the audit log and rights do",
}
SECOND_QUEUE: Final = (
    "bind a second queue to the address (queues: NAME: {address: …, routing-type: multicast}), or use an exchange over AMQP"
)
#: Element -> what to do instead.
_ELSEWHERE: Final = {
    "destinationInterceptors": SECOND_QUEUE,
    "networkConnectors": "a broker stands alone here",
    "jmsBridgeConnectors": "there are no bridges; a program receives here and sends there",
    "sslContext": "tls.certificate and tls.key are PEM files; a key store is to be exported",
    "services": "Java does not run here",
    "proxyConnectors": "there is no proxy; clients name the broker itself",
}


def translate(root: Node, security: Security, found: Translation) -> None:
    broker = root if root.name == "broker" else next(iter(root.all("broker")), root)
    root.seen = broker.seen = True
    for child in root.children if broker is not root else ():
        if child.name == "import":
            found.differ(
                child.origin, child.take("resource"), "not looked into; jetty.xml's console is here http and console in broker.yaml"
            )
        elif child is not broker:
            child.pass_over()
            what = f"bean {child.attributes.get('class', '')}" if child.name == "bean" else f"<{child.name}>"
            found.differ(child.origin, what, "of Spring; nothing of it is to be set here")
    if name := broker.take("brokerName"):
        found.set("broker", "name", name, broker.origin)
    if broker.take("persistent") == "false":
        found.differ(broker.origin, "persistent=false", "messages that are sent persistent are on disk here")
    for name, said in _BROKER_HABITS.items():
        if broker.take(name) == "true":
            found.miss(broker.origin, f"{name}=true", said)
    for name in _BROKER_TUNING:
        broker.take(name)
    policies = broker.all("destinationPolicy", "policyMap", "policyEntries", "policyEntry")
    policies += broker.all("destinationPolicy", "policyMap", "defaultEntry", "policyEntry")
    for policy in policies:
        _policy(policy, found)
    _dead_letters_of_nobody(broker, found)
    for node in broker.all("destinations"):
        for each in node.children:
            _destination(each, found)
    for usage in broker.all("systemUsage", "systemUsage"):
        _usage(usage, found)
    for node in broker.all("plugins"):
        for plugin in node.children:
            _plugin(plugin, security, found)
    for connector in broker.all("transportConnectors", "transportConnector"):
        _connector(connector, found)
    for child in broker.children:
        if child.name in _NEEDLESS:
            child.pass_over()
            found.differ(child.origin, f"<{child.name}>", _NEEDLESS[child.name])
        elif child.name in _ELSEWHERE:
            child.pass_over()
            found.miss(child.origin, f"<{child.name}>", _ELSEWHERE[child.name])
    security.write(found)


def _pattern(node: Node, found: Translation) -> str | None:
    """Of what has a ``queue`` or a ``topic``; without either it holds for all."""
    queue, topic = node.take("queue"), node.take("topic")
    for name in ("tempQueue", "tempTopic"):
        if node.takes(name):
            node.pass_over()
            found.differ(node.origin, f"{name} of <{node.name}>", "temporary queues are as others, and go with their connection")
            return None
    said = queue or topic or ">"
    pattern = pattern_of(said)
    if pattern is None:
        node.pass_over()
        found.miss(node.origin, f"<{node.name}> for {said}", "a wildcard stands for whole words here: name it otherwise")
    return pattern


def _policy(policy: Node, found: Translation) -> None:
    pattern = _pattern(policy, found)
    if pattern is None:
        return
    if prefetch := policy.take("queuePrefetch") or policy.take("topicPrefetch"):
        found.setting(pattern, "consumer-prefetch", min(100_000, int(prefetch)), policy.origin)
    if policy.take("gcInactiveDestinations") == "true":
        found.setting(pattern, "auto-delete-queues", True, policy.origin)
        if delay := policy.take("inactiveTimeoutBeforeGC") or policy.take("inactiveTimoutBeforeGC"):
            found.setting(pattern, "auto-delete-queues-delay", f"{delay}ms", policy.origin)
    if limit := policy.take("memoryLimit"):
        found.differ(policy.origin, f"memoryLimit={limit}", "memory is one account here (broker.memory-limit); what is beyond goes to disk")
    if policy.take("producerFlowControl"):
        found.differ(policy.origin, "producerFlowControl", "producers wait at the broker's limits, and consumers never do")
    for name in _POLICY_TUNING:
        policy.take(name)
    for node in policy.all("deadLetterStrategy"):
        for strategy in node.children:
            _dead_letters(pattern, strategy, found)
    for node in policy.all("pendingMessageLimitStrategy", "constantPendingMessageLimitStrategy"):
        most = int(node.take("limit", "-1"))
        if most > 0 and pattern == "#":
            found.differ(
                node.origin, node.name, "what a slow subscription does not take waits, on disk past its window; nothing is dropped"
            )
        elif most > 0:
            found.setting(pattern, "max-length", most, node.origin)
            found.setting(pattern, "overflow", "drop-head", node.origin)
            found.differ(node.origin, node.name, "counts for each subscription, and for queues of that name as well")
    for child in policy.children:
        if child.name in _NEEDLESS or (child.name == "messageEvictionStrategy" and child.all("oldestMessageEvictionStrategy")):
            child.pass_over()
        elif child.name == "slowConsumerStrategy":
            child.pass_over()
            found.miss(
                child.origin, "slowConsumerStrategy", "nobody is disconnected for being slow; homing consumers and events show who is"
            )


def _dead_letters(pattern: str, strategy: Node, found: Translation) -> None:
    shared = strategy.name == "sharedDeadLetterStrategy"
    if strategy.name == "discarding":
        strategy.pass_over()
        _discard(pattern, strategy.origin, found)
        return
    if not shared and strategy.name != "individualDeadLetterStrategy":
        return
    origin = strategy.origin
    if shared:
        named = strategy.take("deadLetterQueue").removeprefix("queue://")
        for queue in strategy.all("deadLetterQueue", "queue"):
            named = queue.take("physicalName")
        _to_one_queue(pattern, named or _DLQ, origin, found)
    else:
        prefix, suffix = strategy.take("queuePrefix"), strategy.take("queueSuffix")
        if not prefix and not suffix:
            prefix = "ActiveMQ.DLQ.Queue."
        found.setting(pattern, "dead-letter-address", "DLA", origin)
        found.setting(pattern, "auto-create-dead-letter-resources", True, origin)
        found.setting(pattern, "dead-letter-queue-prefix", prefix, origin)
        found.setting(pattern, "dead-letter-queue-suffix", suffix, origin)
        for name in (
            "topicPrefix",
            "topicSuffix",
            "useQueueForQueueMessages",
            "useQueueForTopicMessages",
            "destinationPerDurableSubscriber",
        ):
            if strategy.take(name):
                found.differ(origin, name, "dead letters are always in queues, one for each address")
    if strategy.take("processExpired", "true") == "true":
        found.setting(pattern, "expiry-address", found.sections["address-settings"][pattern]["dead-letter-address"].value, origin)
        if not shared:
            for name in ("prefix", "suffix"):
                value = found.sections["address-settings"][pattern][f"dead-letter-queue-{name}"].value
                found.setting(pattern, f"expiry-queue-{name}", value, origin)
            found.setting(pattern, "auto-create-expiry-resources", True, origin)
    if strategy.take("processNonPersistent", "false") == "false":
        found.differ(origin, "processNonPersistent=false", "what fails is kept, also when it was not persistent (keep-failed)")
    if expiration := int(strategy.take("expiration", "0")):
        found.setting(pattern, "dead-letter-retention", f"{expiration}ms", origin)
    for name in ("enableAudit", "maxAuditDepth", "maxProducersToAudit"):
        strategy.take(name)


def _to_one_queue(pattern: str, queue: str, origin: str, found: Translation) -> None:
    found.setting(pattern, "dead-letter-address", queue, origin)
    found.setting(pattern, "auto-create-dead-letter-resources", False, origin)
    found.entry("queues", queue, origin)


def _discard(pattern: str, origin: str, found: Translation) -> None:
    found.setting(pattern, "dead-letter-address", None, origin)
    found.setting(pattern, "without-dead-letter-address", "drop", origin)


def _dead_letters_of_nobody(broker: Node, found: Translation) -> None:
    """Without a word of the file they all go to one queue."""
    layer = found.sections.get("address-settings", {}).get("#", {})
    if "dead-letter-address" not in layer:
        origin = f"{broker.origin} (ActiveMQ's default)"
        _to_one_queue("#", _DLQ, origin, found)
        found.differ(broker.origin, _DLQ, "one queue for all, as before; without these lines each address has its own, DLQ.NAME")


def _destination(node: Node, found: Translation) -> None:
    name = node.take("physicalName")
    node.take("id")
    if node.name == "queue" and name:
        found.entry("queues", name, node.origin)
    elif node.name == "topic" and name:
        found.entry("addresses", name, node.origin, routing_types=["multicast"])


def _usage(usage: Node, found: Translation) -> None:
    names = {"memoryUsage": "memory-limit", "storeUsage": "store-limit", "tempUsage": "temp-limit"}
    for name, key in names.items():
        for node in usage.all(name, name):
            said = node.take("limit")
            size = size_of(said) if said else None
            node.take("name")
            if size is not None:
                found.set("broker", key, size, node.origin)
            elif percent := node.take("percentOfJvmHeap"):
                found.differ(
                    node.origin, f"percentOfJvmHeap={percent}", "there is no heap; broker.memory-limit is 40% of memory unless set"
                )
            else:
                node.pass_over()
                found.miss(node.origin, f"<{name}>", f"give broker.{key} a size")
    if usage.take("sendFailIfNoSpace") or usage.take("sendFailIfNoSpaceAfterTimeout"):
        found.miss(usage.origin, "sendFailIfNoSpace", "producers wait where there is no space; they are told why")


def _plugin(plugin: Node, security: Security, found: Translation) -> None:
    if plugin.name == "redeliveryPlugin":
        _redelivery(plugin, found)
    elif plugin.name == "simpleAuthenticationPlugin":
        for user in plugin.all("users", "authenticationUser"):
            groups = [each.strip() for each in user.take("groups").split(",") if each.strip()]
            security.user(user.take("username"), user.take("password"), groups, user.origin)
        if plugin.take("anonymousAccessAllowed") == "true":
            found.miss(plugin.origin, "anonymousAccessAllowed", "where there are users, everybody logs in")
    elif plugin.name == "jaasAuthenticationPlugin":
        plugin.take("configuration")
        security.from_files("users.properties", "groups.properties", plugin.origin, found)
    elif plugin.name == "authorizationPlugin":
        entries = plugin.all("map", "authorizationMap", "authorizationEntries", "authorizationEntry")
        for entry in entries:
            _authorization(entry, security, found)
        for entry in plugin.all("map", "authorizationMap", "tempDestinationAuthorizationEntry"):
            for temporary in entry.all("tempDestinationAuthorizationEntry"):
                temporary.pass_over()
    elif plugin.name == "discardingDLQBrokerPlugin":
        _discarding(plugin, found)
    elif plugin.name == "timeStampingBrokerPlugin":
        for name, key in (("zeroExpirationOverride", "message-ttl"), ("ttlCeiling", "max-ttl")):
            if (limit := int(plugin.take(name, "0"))) > 0:
                found.setting("#", key, f"{limit}ms", plugin.origin)
    elif plugin.name == "forcePersistencyModeBrokerPlugin":
        plugin.pass_over()
        found.miss(
            plugin.origin, f"<{plugin.name}>", "a message is as durable as its sender says; of the others keep-failed and keep-at-stop keep"
        )
    elif plugin.name in ("statisticsBrokerPlugin", "loggingBrokerPlugin"):
        plugin.pass_over()
        found.differ(plugin.origin, f"<{plugin.name}>", "figures are in homing queues and the metrics, events in the log")


def _discarding(plugin: Node, found: Translation) -> None:
    for name in ("dropTemporaryTopics", "dropTemporaryQueues", "reportInterval"):
        plugin.take(name)
    everything = plugin.take("dropAll", "true") == "true"
    for name in ["#"] if everything else plugin.take("dropOnly").split():
        # They are regular expressions, of which a point is the only sign in a plain name.
        if everything or re.fullmatch(r"[\w.:/-]+", name):
            _discard(name, plugin.origin, found)
        else:
            found.miss(
                plugin.origin, f"dropOnly {name}", "names are patterns of whole words here: without-dead-letter-address: drop for each"
            )


def _authorization(entry: Node, security: Security, found: Translation) -> None:
    pattern = _pattern(entry, found)
    if pattern is None:
        return
    if pattern.startswith("ActiveMQ.Advisory."):
        entry.pass_over()
        found.differ(entry.origin, "ActiveMQ.Advisory", "there are no advisories; events are homing.events")
        return
    for attribute, rights in (("read", ["consume", "browse"]), ("write", ["send"]), ("admin", ["create", "manage"])):
        for group in filter(None, (each.strip() for each in entry.take(attribute).split(","))):
            security.grant(group, rights, pattern, entry.origin)


def _redelivery(plugin: Node, found: Translation) -> None:
    for name in ("fallbackToDeadLetter", "sendToDlqIfMaxRetriesExceeded"):
        if plugin.take(name, "true") == "false":
            found.miss(plugin.origin, f"{name}=false", "what has no attempt left is dead-lettered")
    maps = plugin.all("redeliveryPolicyMap", "redeliveryPolicyMap")
    for each in maps:
        for policy in each.all("redeliveryPolicyEntries", "redeliveryPolicy"):
            pattern = _pattern(policy, found)
            if pattern is not None:
                _redelivery_policy(pattern, policy, found)
        for policy in each.all("defaultEntry", "redeliveryPolicy"):
            _redelivery_policy("#", policy, found)


def _redelivery_policy(pattern: str, policy: Node, found: Translation) -> None:
    origin = policy.origin
    attempts = int(policy.take("maximumRedeliveries", "6"))
    found.setting(pattern, "max-delivery-attempts", attempts + 1 if attempts >= 0 else -1, origin)
    if policy.take("useCollisionAvoidance") == "true":
        percent = float(policy.take("collisionAvoidancePercent", "15"))
        found.setting(pattern, "redelivery-collision-avoidance-factor", percent / 100, origin)
    policy.take("collisionAvoidancePercent")
    policy.take("id")
    first, then = int(policy.take("initialRedeliveryDelay", "1000")), int(policy.take("redeliveryDelay", "1000"))
    multiplier, most = float(policy.take("backOffMultiplier", "5")), int(policy.take("maximumRedeliveryDelay", "-1"))
    if policy.take("useExponentialBackOff") == "true":
        found.setting(pattern, "redelivery-delay", f"{first or then}ms", origin)
        found.setting(pattern, "redelivery-delay-multiplier", multiplier, origin)
        found.setting(pattern, "max-redelivery-delay", f"{most}ms" if most > 0 else "3650d", origin)
    elif first == then:
        found.setting(pattern, "redelivery-delay", f"{then}ms", origin)
    else:
        found.setting(pattern, "redelivery-delays", [f"{first}ms", f"{then}ms"], origin)
        return
    if pattern != "#":
        found.setting(pattern, "redelivery-delays", [], origin)


def _connector(connector: Node, found: Translation) -> None:
    name, uri = connector.take("name"), urlsplit(connector.take("uri"))
    options = parse_qs(uri.query)
    kind, _, how = uri.scheme.partition("+")
    listen(found, connector.origin, name, kind == "stomp", how in ("ssl", "nio+ssl") or kind == "ssl", uri.hostname or "", uri.port)
    if kind == "stomp" and (most := options.pop("maximumConnections", [""])[0]).isdigit():
        found.set("limits", "max-connections", int(most), connector.origin)


def listen(found: Translation, origin: str, name: str, is_stomp: bool, tls: bool, host: str, port: int | None) -> None:
    """A connector or acceptor: STOMP is spoken on one port, and on one with TLS."""
    if not is_stomp:
        said = "it is not spoken here: programs change to STOMP, to AMQP 0-9-1 or to Homing's client (docs/from-activemq.md)"
        found.miss(origin, f"connector {name}", said)
        return
    key = "tls-port" if tls else "port"
    if key in found.sections.get("stomp", {}):
        found.miss(origin, f"connector {name}", f"STOMP has one port here ({key}); clients of this one use that")
        return
    found.set("stomp", key, port, origin)
    if tls:
        found.miss(origin, f"TLS of connector {name}", "tls.certificate and tls.key are PEM files here; a key store is to be exported")
    elif host not in ("127.0.0.1", "localhost", "::1"):
        said = "it listens on 127.0.0.1 only: beyond there have to be users, and TLS or insecure: true; then set stomp.host"
        found.miss(origin, f"host {host} of connector {name}", said)
