"""ActiveMQ Classic's ``activemq.xml``: policies, dead-letter strategies, redelivery, users, limits and connectors."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from .connectors import Connector, listen, options_of
from .nodes import Node
from .security import Security
from .translation import Translation, pattern_of, size_of, size_text

#: Where messages go that nobody names a place for.
_DLQ: Final = "ActiveMQ.DLQ"
_TUNING: Final = "how ActiveMQ works inside; nothing of it is to be set here"
_JOURNAL: Final = "there is one journal, in data-directory; messages that are in ActiveMQ's store stay there"
_NAMES: Final = "a name that only ActiveMQ uses"
#: What is known to need no translation, and why.
_NEEDLESS: Final = {
    **dict.fromkeys(("taskRunnerFactory", "shutdownHooks", "ioExceptionHandler", "messageGroupMapFactory"), _TUNING),
    "managementContext": "there is no JMX: metrics, the console and homing queues show it",
    "persistenceAdapter": _JOURNAL,
    "persistenceFactory": _JOURNAL,
}
_POLICY_TUNING: Final = (
    *("maxPageSize", "maxBrowsePageSize", "cursorMemoryHighWaterMark", "useCache", "optimizedDispatch", "lazyDispatch", "enableAudit"),
    *("queueBrowserPrefetch", "expireMessagesPeriod", "prioritizedMessages", "storeUsageHighWaterMark", "doOptimzeMessageStorage"),
    *("maxAuditDepth", "usePrefetchExtension", "persistJMSRedelivered", "reduceMemoryFootprint", "maxProducersToAudit"),
    *("advisoryForConsumed", "advisoryForDelivery", "advisoryForDiscardingMessages", "advisoryForFastProducers", "advisoryWhenFull"),
    *("advisoryForSlowConsumers", "pendingQueuePolicy", "pendingSubscriberPolicy", "pendingDurableSubscriberPolicy", "dispatchPolicy"),
    "messageGroupMapFactory",
)
_BROKER_TUNING: Final = (
    *("useJmx", "dataDirectory", "schedulerSupport", "start", "restartAllowed", "useShutdownHook", "advisorySupport", "enableStatistics"),
    *("splitSystemUsageForProducersConsumers", "schedulePeriodForDestinationPurge", "dedicatedTaskRunner", "vmConnectorURI"),
    *("tmpDataDirectory", "brokerId", "useVirtualTopics", "destroyApplicationContextOnStop", "id"),
)
#: What it does where that is so.
_BROKER_HABITS: Final = {
    "deleteAllMessagesOnStartup": "a start keeps what is there; homing queue purge empties a queue",
    "populateJMSXUserID": "a message does not say who sent it; the audit log and rights do",
}
SECOND_QUEUE: Final = (
    "bind a second queue to the address (queues: NAME: {address: …, routing-type: multicast}), or use an exchange over AMQP"
)
#: Strategy -> its limit, how long a consumer may be so, which is in ms.
_SLOW: Final = {"abortSlowConsumerStrategy": "maxSlowDuration", "abortSlowAckConsumerStrategy": "maxTimeSinceLastAck"}
ALONE: Final = "no queue is spread over brokers; standbys take over from one (docs/cluster.md)"
JAVA: Final = "Java does not run here; events and the log tell what happens"
#: Element -> what to do instead.
_ELSEWHERE: Final = {
    "networkConnectors": ALONE,
    "jmsBridgeConnectors": "there are no bridges; a program receives here and sends there",
    "sslContext": "tls.certificate and tls.key are PEM files; a key store is to be exported",
    "services": JAVA,
    "proxyConnectors": "there is no proxy; clients name the broker itself",
}
_PLUGINS: Final = {
    "forcePersistencyModeBrokerPlugin": "a message is as durable as its sender says; of the others keep-failed and keep-at-stop keep",
    "jaasCertificateAuthenticationPlugin": "with tls.client-ca a certificate names the user (tls.user-from); homing user add makes each",
    "bean": JAVA,
}


def translate(root: Node, security: Security, found: Translation) -> None:
    broker = root if root.name == "broker" else next(iter(root.all("broker")), root)
    root.seen = broker.seen = True
    for child in root.children if broker is not root else ():
        if child is not broker:
            _of_spring(child, found)
    if name := broker.take("brokerName"):
        found.set("broker", "name", name, broker.origin)
    if broker.take("persistent") == "false":
        found.differ(broker.origin, "persistent=false", "messages that are sent persistent are on disk here")
    for name, said in _BROKER_HABITS.items():
        if broker.take(name) == "true":
            found.miss(broker.origin, f"{name}=true", said)
    if (age := broker.take("offlineDurableSubscriberTimeout", "-1")) != "-1":
        said = "expires lets the queue of a durable subscription go when nobody used it for so long"
        found.miss(broker.origin, f"offlineDurableSubscriberTimeout={age}", said)
    found.needless(broker, ["offlineDurableSubscriberTaskSchedule"], "of offlineDurableSubscriberTimeout")
    found.needless(broker, _BROKER_TUNING, _TUNING)
    policies = broker.all("destinationPolicy", "policyMap", "policyEntries", "policyEntry")
    policies += broker.all("destinationPolicy", "policyMap", "defaultEntry", "policyEntry")
    for policy in policies:
        before = found.size
        _policy(policy, found)
        if found.size == before:
            found.differ(policy.origin, f"pattern {_said(policy)} of <{policy.name}>", "it sets nothing here")
    for node in broker.all("destinationInterceptors"):
        _interceptors(node, found)
    for node in broker.all("destinations"):
        for each in node.children:
            _destination(each, found)
        if ids := [each.take("id") for each in node.children if each.takes("id")]:
            found.differ(node.origin, f"ids {', '.join(ids)} of <{node.name}>", _NAMES)
    for usage in broker.all("systemUsage", "systemUsage"):
        _usage(usage, found)
    for node in broker.all("plugins"):
        for plugin in node.children:
            _plugin(plugin, security, found)
    listen([_connector(each, found) for each in broker.all("transportConnectors", "transportConnector")], found)
    _where_nobody_says(broker, found)
    for child in broker.children:
        if child.name in _NEEDLESS:
            child.pass_over()
            found.differ(child.origin, f"<{child.name}>", _NEEDLESS[child.name])
        elif child.name in _ELSEWHERE:
            child.pass_over()
            found.miss(child.origin, f"<{child.name}>", _ELSEWHERE[child.name])
    security.write(found)


def _of_spring(child: Node, found: Translation) -> None:
    if child.name != "import":
        child.pass_over()
        said = f" {child.attributes['class']}" if "class" in child.attributes else ""
        found.differ(child.origin, f"<{child.name}>{said}", "of Spring; nothing of it is to be set here")
    elif "jetty" in (resource := child.take("resource")):
        found.differ(child.origin, f"<import> {resource}", "the web console is here http and console in broker.yaml")
    else:
        found.miss(child.origin, f"<import> {resource}", "it was not looked into: if it says something of a broker, translate it by itself")


def _interceptors(node: Node, found: Translation) -> None:
    """Virtual and composite destinations."""
    for each in node.all("virtualDestinationInterceptor", "virtualDestinations"):
        for child in each.children:
            if child.name in ("compositeQueue", "compositeTopic") and not set(child.attributes.get("name", "*")) & {"*", ">"}:
                _composite(child, found)
            else:
                child.pass_over()
                what = " ".join((f"<{child.name}>", *child.attributes.values()))
                said = "bind each consumer's queue to the address (queues: Consumer.A.NAME: {address: NAME, routing-type: multicast})"
                found.miss(child.origin, what, said)


def _composite(composite: Node, found: Translation) -> None:
    """What is sent to it goes to each queue that is bound to its address."""
    name = composite.take("name")
    found.entry("addresses", name, composite.origin, routing_types=["multicast"])
    said = f"what is sent to {name} goes to each of these queues; what is sent to one of them itself is refused"
    found.differ(composite.origin, f"<{composite.name}> {name}", said)
    if composite.take("forwardOnly", "true") == "false" and composite.name == "compositeQueue":
        found.entry("queues", name, composite.origin, address=name, routing_type="multicast")
    for target in (one for each in composite.all("forwardTo") for one in each.children):
        queue = target.take("physicalName" if target.name == "queue" else "queue")
        if target.name in ("queue", "filteredDestination") and queue:
            selector = target.take("selector")
            bound = {"address": name, "routing_type": "multicast", **({"selector": selector} if selector else {})}
            found.entry("queues", queue, target.origin, **bound)
        else:
            target.pass_over()
            what = " ".join((f"<{target.name}>", *target.attributes.values()))
            found.miss(target.origin, what, f"a topic gets nothing of another: its programs subscribe to /topic/{name}")


def _pattern(node: Node, found: Translation) -> str | None:
    """Of what has a ``queue`` or a ``topic``; without either it holds for all."""
    for name in ("tempQueue", "tempTopic"):
        if node.takes(name):
            node.pass_over()
            found.differ(node.origin, f"{name} of <{node.name}>", "temporary queues are as others, and go with their connection")
            return None
    said = _said(node)
    pattern = pattern_of(said)
    if pattern is None:
        node.pass_over()
        found.miss(node.origin, f"<{node.name}> for {said}", "a wildcard stands for whole words here: name it otherwise")
    return pattern


def _said(node: Node) -> str:
    """The pattern, as the file has it."""
    return node.take("queue") or node.take("topic") or ">"


def _policy(policy: Node, found: Translation) -> None:
    pattern = _pattern(policy, found)
    if pattern is None:
        return
    if prefetch := policy.take("queuePrefetch") or policy.take("topicPrefetch"):
        found.setting(pattern, "consumer-prefetch", min(100_000, int(prefetch)), policy.origin)
    collected = ("inactiveTimeoutBeforeGC", "inactiveTimoutBeforeGC")
    if policy.take("gcInactiveDestinations") == "true":
        found.setting(pattern, "auto-delete-queues", True, policy.origin)
        for delay in filter(None, map(policy.take, collected)):
            found.setting(pattern, "auto-delete-queues-delay", f"{delay}ms", policy.origin)
    found.needless(policy, collected, "of gcInactiveDestinations, which is off")
    if limit := policy.take("memoryLimit"):
        found.differ(policy.origin, f"memoryLimit={limit}", "memory is one account here (broker.memory-limit); what is beyond goes to disk")
    if control := policy.take("producerFlowControl"):
        said = "producers wait at the broker's limits, and consumers never do"
        found.differ(policy.origin, f"producerFlowControl={control}", said)
    found.needless(policy, _POLICY_TUNING, _TUNING)
    for node in policy.all("deadLetterStrategy"):
        for strategy in node.children:
            _dead_letters(pattern, strategy, found)
    for node in policy.all("pendingMessageLimitStrategy", "constantPendingMessageLimitStrategy"):
        _pending_limit(pattern, node, found)
    for node in policy.all("messageEvictionStrategy"):
        kinds = ("oldestMessageEvictionStrategy", "oldestMessageWithLowestPriorityEvictionStrategy")
        found.needless(node, kinds, "overflow: drop-head lets the oldest of the lowest priority go")
    for node in policy.all("slowConsumerStrategy"):
        for strategy in node.children:
            if strategy.name in _SLOW:
                _slow_consumers(pattern, strategy, found)
    for node in policy.children:
        if node.name == "subscriptionRecoveryPolicy":
            node.pass_over()
            said = "a subscription gets what is sent from then on; a queue that is bound to the address keeps the rest"
            found.miss(node.origin, f"<{node.name}>", said)


def _slow_consumers(pattern: str, strategy: Node, found: Translation) -> None:
    if (age := int(strategy.take(_SLOW[strategy.name], "30000"))) > 0:
        found.setting(pattern, "slow-consumer-age", f"{age}ms", strategy.origin)
    if strategy.name == "abortSlowAckConsumerStrategy":
        found.setting(pattern, "slow-consumer-policy", "kill", strategy.origin)
        found.differ(strategy.origin, f"<{strategy.name}>", "who is slow loses its whole connection")
    else:
        said = "slow is who has a message for so long, not who has twice its prefetch waiting; slow-consumer-policy: kill would end it"
        found.miss(strategy.origin, f"<{strategy.name}>", said)
    others = ("abortConnection", "checkPeriod", "maxSlowCount", "ignoreIdleConsumers", "ignoreNetworkConsumers")
    found.needless(strategy, others, "slow-consumer-age and slow-consumer-policy are all that there is")


def _pending_limit(pattern: str, strategy: Node, found: Translation) -> None:
    most = int(strategy.take("limit", "-1"))
    what = f"<{strategy.name}> {most}"
    if most < 0 or pattern == "#":
        found.differ(strategy.origin, what, "what a slow subscription does not take waits, on disk past its window; nothing is dropped")
    else:
        found.setting(pattern, "max-length", max(1, most), strategy.origin)
        found.setting(pattern, "overflow", "drop-head", strategy.origin)
        found.differ(strategy.origin, what, "counts for each subscription, and for queues of that name as well")


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
        kinds = ("useQueueForQueueMessages", "useQueueForTopicMessages", "destinationPerDurableSubscriber")
        found.needless(strategy, ("topicPrefix", "topicSuffix", *kinds), "dead letters are always in queues, one for each address")
    if strategy.take("processExpired", "true") != "true":
        found.setting(pattern, "expiry-address", None, origin)
    else:
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
    found.needless(strategy, ("enableAudit", "maxAuditDepth", "maxProducersToAudit"), _TUNING)


def _to_one_queue(pattern: str, queue: str, origin: str, found: Translation) -> None:
    found.setting(pattern, "dead-letter-address", queue, origin)
    found.setting(pattern, "auto-create-dead-letter-resources", False, origin)
    found.entry("queues", queue, origin)


def _discard(pattern: str, origin: str, found: Translation) -> None:
    found.setting(pattern, "dead-letter-address", None, origin)
    found.setting(pattern, "without-dead-letter-address", "drop", origin)
    found.setting(pattern, "expiry-address", None, origin)


def _where_nobody_says(broker: Node, found: Translation) -> None:
    """What ActiveMQ does where the file says nothing: all dead letters go to one queue, and so does what expires."""
    layer = found.sections.get("address-settings", {}).get("#", {})
    if "dead-letter-address" not in layer:
        origin = f"{broker.origin} (ActiveMQ's default)"
        _to_one_queue("#", _DLQ, origin, found)
        found.setting("#", "expiry-address", _DLQ, origin)
        said = "one queue for all that is dead or expired, as before; without these lines each address has its own, DLQ.NAME"
        found.differ(broker.origin, _DLQ, said)
    if "max-delivery-attempts" not in layer:
        said = "what fails is tried again by the broker, 10 times within 3.4 hours; ActiveMQ's clients try 6 times again, after 1 s each"
        found.differ(broker.origin, "no redelivery policy for all", said)


def _destination(node: Node, found: Translation) -> None:
    name = node.take("physicalName")
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
            found.needless(node, ["name"], _NAMES)
            if size is not None:
                found.set("broker", key, size_text(size), node.origin)
            elif percent := node.take("percentOfJvmHeap"):
                said = "there is no heap; broker.memory-limit is 40% of memory unless set"
                found.differ(node.origin, f"percentOfJvmHeap={percent}", said)
            else:
                node.pass_over()
                what = " ".join(f"{name}={value}" for name, value in node.attributes.items())
                found.miss(node.origin, f"<{name}> {what}", f"give broker.{key} a size")
    for name in ("sendFailIfNoSpace", "sendFailIfNoSpaceAfterTimeout"):
        if usage.take(name, "false") not in ("false", "0"):
            found.miss(usage.origin, name, "producers wait where there is no space; they are told why")


def _plugin(plugin: Node, security: Security, found: Translation) -> None:
    if plugin.name == "redeliveryPlugin":
        _redelivery(plugin, found)
    elif plugin.name == "simpleAuthenticationPlugin":
        for user in plugin.all("users", "authenticationUser"):
            groups = [each.strip() for each in user.take("groups").split(",") if each.strip()]
            security.user(user.take("username"), user.take("password"), groups, user.origin)
        if plugin.take("anonymousAccessAllowed") == "true":
            group = plugin.take("anonymousGroup", "anonymous")
            said = f"where there are users, everybody logs in: make one for those who did not, with the rights of {group}"
            found.miss(plugin.origin, "anonymousAccessAllowed", said)
        found.needless(plugin, ("anonymousGroup", "anonymousUser"), "of anonymousAccessAllowed")
    elif plugin.name == "jaasAuthenticationPlugin":
        found.needless(plugin, ["configuration"], "users and groups are read from users.properties and groups.properties")
        security.from_files("users.properties", "groups.properties", plugin.origin, found)
    elif plugin.name == "authorizationPlugin":
        entries = plugin.all("map", "authorizationMap", "authorizationEntries", "authorizationEntry")
        for entry in entries:
            _authorization(entry, security, found)
        for node in plugin.all("map", "authorizationMap"):
            said = "a temporary queue is its connection's, whatever rights there are"
            found.needless(node, ["tempDestinationAuthorizationEntry"], said)
    elif plugin.name == "discardingDLQBrokerPlugin":
        _discarding(plugin, found)
    elif plugin.name == "timeStampingBrokerPlugin":
        for name, key in (("zeroExpirationOverride", "message-ttl"), ("ttlCeiling", "max-ttl")):
            if (limit := int(plugin.take(name, "0"))) > 0:
                found.setting("#", key, f"{limit}ms", plugin.origin)
    elif plugin.name in ("statisticsBrokerPlugin", "loggingBrokerPlugin"):
        plugin.pass_over()
        found.differ(plugin.origin, f"<{plugin.name}>", "figures are in homing queues and the metrics, events in the log")
    elif plugin.name in _PLUGINS:
        plugin.pass_over()
        found.miss(plugin.origin, f"<{plugin.name}> {plugin.attributes.get('class', '')}".strip(), _PLUGINS[plugin.name])


def _discarding(plugin: Node, found: Translation) -> None:
    found.needless(plugin, ("dropTemporaryTopics", "dropTemporaryQueues", "reportInterval"), "it holds for queues alike, and is counted")
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
        found.differ(entry.origin, f"<{entry.name}> for {pattern}", "there are no advisories; events are homing.events")
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
    found.needless(policy, ["collisionAvoidancePercent"], "of useCollisionAvoidance, which is off")
    found.needless(policy, ["id"], _NAMES)
    first, then = int(policy.take("initialRedeliveryDelay", "1000")), int(policy.take("redeliveryDelay", "1000"))
    if policy.take("useExponentialBackOff") == "true":
        multiplier, most = float(policy.take("backOffMultiplier", "5")), int(policy.take("maximumRedeliveryDelay", "-1"))
        found.setting(pattern, "redelivery-delay", f"{first or then}ms", origin)
        found.setting(pattern, "redelivery-delay-multiplier", multiplier, origin)
        found.setting(pattern, "max-redelivery-delay", f"{most}ms" if most > 0 else "3650d", origin)
    elif first == then:
        found.setting(pattern, "redelivery-delay", f"{then}ms", origin)
    else:
        found.setting(pattern, "redelivery-delays", [f"{first}ms", f"{then}ms"], origin)
    if pattern != "#" and "redelivery-delay" in found.sections["address-settings"][pattern]:
        found.setting(pattern, "redelivery-delays", [], origin)
    found.needless(policy, ("backOffMultiplier", "maximumRedeliveryDelay"), "of useExponentialBackOff, which is off")


def _connector(connector: Node, found: Translation) -> Connector:
    name, uri = connector.take("name"), connector.take("uri")
    found.needless(connector, ["disableAsyncDispatch"], _TUNING)
    found.needless(connector, ("discoveryUri", "updateClusterClients", "rebalanceClusterClients"), "of a network of brokers")
    scheme, _, how = urlsplit(uri).scheme.partition("+")
    tls = how in ("ssl", "nio+ssl") or scheme == "ssl"
    return Connector(connector.origin, connector.name, name, [scheme.upper()], tls, uri, options_of(uri))
