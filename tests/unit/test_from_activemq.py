"""Configurations as people of ActiveMQ and Artemis have published them: what each line comes to, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer import Exit

from homing.broker.auth.passwords import verify_password
from homing.broker.cli.output import CommandError
from homing.broker.cli.settings import config_from
from homing.broker.config.config import parse
from homing.broker.errors import Refused
from homing.broker.from_activemq.reading import translate

CLASSIC = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b">
<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"><property name="locations"/></bean>
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="shop" dataDirectory="${activemq.data}" unheardOf="1"
 offlineDurableSubscriberTimeout="86400000" offlineDurableSubscriberTaskSchedule="3600000">
 <destinationPolicy><policyMap><policyEntries>
  <policyEntry topic=">" producerFlowControl="true">
   <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="1000"/></pendingMessageLimitStrategy>
  </policyEntry>
  <policyEntry queue="orders.>" memoryLimit="1mb" queuePrefetch="10">
   <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ." useQueueForQueueMessages="true"/></deadLetterStrategy>
   <slowConsumerStrategy><abortSlowConsumerStrategy/></slowConsumerStrategy>
  </policyEntry>
  <policyEntry queue="gone"><deadLetterStrategy><discarding/></deadLetterStrategy></policyEntry>
  <policyEntry topic="news.*"><pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="5"/></pendingMessageLimitStrategy>
  </policyEntry>
  <policyEntry queue="hasty">
   <slowConsumerStrategy><abortSlowAckConsumerStrategy maxTimeSinceLastAck="5000" abortConnection="true"/></slowConsumerStrategy>
  </policyEntry>
  <policyEntry queue="a*b"/>
 </policyEntries></policyMap></destinationPolicy>
 <persistenceAdapter><kahaDB directory="${activemq.data}/kahadb"/></persistenceAdapter>
 <systemUsage><systemUsage><memoryUsage><memoryUsage limit="64 mb"/></memoryUsage>
  <storeUsage><storeUsage limit="100 gb"/></storeUsage></systemUsage></systemUsage>
 <plugins>
  <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
   <redeliveryPolicyEntries>
    <redeliveryPolicy queue="twice" maximumRedeliveries="1" useExponentialBackOff="true"
     initialRedeliveryDelay="100" maximumRedeliveryDelay="900"/>
   </redeliveryPolicyEntries>
   <defaultEntry><redeliveryPolicy maximumRedeliveries="4" initialRedeliveryDelay="5000" redeliveryDelay="10000"/></defaultEntry>
  </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
  <simpleAuthenticationPlugin><users>
   <authenticationUser username="admin" password="${admin.password}" groups="admins"/>
   <authenticationUser username="shop" password="secret" groups="shops,everyone"/>
   <authenticationUser username="lost" password="${nowhere}" groups="shops"/>
  </users></simpleAuthenticationPlugin>
  <authorizationPlugin><map><authorizationMap><authorizationEntries>
   <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
   <authorizationEntry queue="orders.>" write="shops"/>
   <authorizationEntry topic="ActiveMQ.Advisory.>" read="everyone" write="everyone" admin="everyone"/>
  </authorizationEntries></authorizationMap></map></authorizationPlugin>
 </plugins>
 <destinations><queue physicalName="billing"/><topic physicalName="news"/></destinations>
 <destinationInterceptors><virtualDestinationInterceptor><virtualDestinations><virtualTopic name=">" prefix="C.*."/>
 <compositeQueue name="all" forwardOnly="false"><forwardTo><topic physicalName="three"/>
  <queue physicalName="one"/><filteredDestination selector="a = 'b'" queue="two"/></forwardTo></compositeQueue>
 </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>
 <transportConnectors><transportConnector name="openwire" uri="tcp://0.0.0.0:61616"/>
  <transportConnector name="stomp" uri="stomp+nio://0.0.0.0:61612?maximumConnections=70"/></transportConnectors>
</broker><import resource="jetty.xml"/></beans>"""

ARTEMIS = """<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude"><core xmlns="urn:activemq:core">
<name>0.0.0.0</name>
<transaction-timeout>60000</transaction-timeout><id-cache-size>500</id-cache-size>
<persist-delivery-count-before-delivery>true</persist-delivery-count-before-delivery><journal-type>ASYNCIO</journal-type><global-max-size>100Mb</global-max-size>
<acceptors><acceptor name="all">tcp://127.0.0.1:61616?protocols=CORE,AMQP,STOMP;useEpoll=true</acceptor>
<acceptor name="stomp">tcp://127.0.0.1:61613?protocols=STOMP;useEpoll=true</acceptor></acceptors>
<security-settings><security-setting match="#"><permission type="createAddress" roles="amq"/><permission type="send" roles="amq, other"/>
</security-setting></security-settings>
<xi:include href="settings.xml"/>
<addresses><address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
<address name="news"><multicast><queue name="news.eu" max-consumers="2">
<filter string="region = 'eu'"/><durable>false</durable></queue></multicast>
</address></addresses>
<diverts><divert name="d">
<address>a</address><forwarding-address>b</forwarding-address></divert></diverts><strange/></core></configuration>"""

SETTINGS = """<address-settings xmlns="urn:activemq:core">
<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address><redelivery-delay>0</redelivery-delay>
<max-size-bytes>-1</max-size-bytes><address-full-policy>PAGE</address-full-policy></address-setting>
<address-setting match="orders.#"><max-delivery-attempts>5</max-delivery-attempts><redelivery-delay>5000</redelivery-delay>
<redelivery-delay-multiplier>1.5</redelivery-delay-multiplier><expiry-delay>300000</expiry-delay><max-size-bytes>10Mb</max-size-bytes>
<address-full-policy>BLOCK</address-full-policy><slow-consumer-threshold>30</slow-consumer-threshold>
<slow-consumer-threshold-measurement-unit>MESSAGES_PER_MINUTE</slow-consumer-threshold-measurement-unit>
<slow-consumer-check-period>120</slow-consumer-check-period><slow-consumer-policy>KILL</slow-consumer-policy></address-setting>
<address-setting match="activemq.management#"><dead-letter-address>DLQ</dead-letter-address></address-setting></address-settings>"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", "-").replace("_", ".")).write_text(text)
    return folder


def at(text: str) -> str:
    """Where that stands in the file."""
    return f"activemq.xml:{CLASSIC[: CLASSIC.index(text)].count(chr(10)) + 1}"


def test_an_activemq_xml(tmp_path: Path) -> None:
    found, text = translate(written(tmp_path, activemq_xml=CLASSIC, credentials_properties="# theirs\nadmin.password=hunter2\n"))
    config = parse(text)
    settings = config.settings_repository().resolve
    assert (config.broker.name, config.broker.memory_limit_bytes, config.broker.store_limit_bytes) == ("shop", 64 << 20, 100 << 30)
    everywhere = settings("anything")
    assert (everywhere.max_delivery_attempts, everywhere.redelivery_delays_ms, everywhere.dead_letter_address) == (
        5,
        (5000, 10_000),
        "ActiveMQ.DLQ",
    )
    assert (everywhere.auto_create_dead_letter_resources, everywhere.max_length) == (False, None)
    orders = settings("orders.eu")
    assert (orders.dead_letter_address, orders.dead_letter_queue_prefix, orders.expiry_address, orders.consumer_prefetch) == (
        "DLA",
        "DLQ.",
        "DLA",
        10,
    )
    assert (orders.slow_consumer_age_ms, orders.slow_consumer_policy) == (30_000, "notify")
    hasty = settings("hasty")
    assert (hasty.slow_consumer_age_ms, hasty.slow_consumer_policy) == (5000, "kill")
    assert (settings("gone").dead_letter_address, settings("gone").without_dead_letter_address) == (None, "drop")
    twice = settings("twice")
    assert (twice.max_delivery_attempts, twice.redelivery_delay_ms, twice.redelivery_delay_multiplier, twice.max_redelivery_delay_ms) == (
        2,
        100,
        5.0,
        900,
    )
    assert (settings("news.eu").max_length, settings("news.eu").overflow) == (5, "drop-head")
    assert sorted(config.queues) == ["ActiveMQ.DLQ", "all", "billing", "one", "two"]
    two = {"queue": "two", "address": "all", "routing_type": "multicast", "durable": True, "selector": "a = 'b'"}
    assert config.queues["two"].arguments("two") == two
    assert config.addresses["news"].routing_types == ("multicast",)
    assert config.stomp is not None
    assert (config.stomp.host, config.stomp.port, config.limits.max_connections) == ("127.0.0.1", 61612, 70)
    assert sorted(config.users) == ["admin", "shop"]
    assert verify_password(config.users["admin"].hash, "hunter2")
    assert [grant.describe() for grant in config.users["shop"].grants] == [{"rights": ["send"], "pattern": "orders.#"}]
    assert f"  max-delivery-attempts: 5  # {at('<defaultEntry>')}\n" in text
    missing = {each.what: each.origin for each in found.missing}
    assert missing == {
        "<policyEntry> for a*b": at('queue="a*b"'),
        "<abortSlowConsumerStrategy>": at("<slowConsumerStrategy>"),
        "<transportConnector> openwire": at('name="openwire"'),
        "host 0.0.0.0 of <transportConnector> stomp": at('name="stomp"'),
        "<topic> three": at("<compositeQueue"),
        "<virtualTopic> > C.*.": at("<virtualTopic"),
        "password of lost": at('username="lost"') + " " + at('write="shops"').rpartition(":")[2],
        "unheardOf of <broker>": at("unheardOf"),
        "offlineDurableSubscriberTimeout=86400000": at("unheardOf"),
    }
    assert all(f"# - {each.origin}: {each.what}: {each.said}" in text for each in (*found.missing, *found.differs))


def test_a_broker_xml_with_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    files = {
        "broker_xml": ARTEMIS,
        "settings_xml": SETTINGS,
        "artemis__users_properties": "bill=x\n",
        "artemis__roles_properties": "amq=bill",
    }
    written(tmp_path / "etc", **files)
    found, text = translate(tmp_path)
    config = parse(text)
    everywhere, orders = (config.settings_repository().resolve(name) for name in ("a", "orders.eu"))
    assert (everywhere.dead_letter_address, everywhere.auto_create_dead_letter_resources, everywhere.redelivery_delay_ms) == (
        "DLQ",
        False,
        0,
    )
    assert (orders.max_delivery_attempts, orders.redelivery_delay_ms, orders.redelivery_delay_multiplier) == (5, 5000, 1.5)
    assert (orders.message_ttl_ms, orders.max_length_bytes, orders.overflow) == (300_000, 10 << 20, "block")
    assert (orders.slow_consumer_threshold, orders.slow_consumer_check_period_ms, orders.slow_consumer_policy) == (0.5, 120_000, "kill")
    assert everywhere.persist_delivery_count_before_delivery
    assert (config.limits.transaction_timeout_ms, config.journal.duplicate_ids_per_address) == (60_000, 500)
    assert config.queues["news.eu"].arguments("news.eu") == {
        "queue": "news.eu",
        "address": "news",
        "routing_type": "multicast",
        "durable": False,
        "selector": "region = 'eu'",
        "max_consumers": 2,
    }
    assert config.stomp is not None
    assert config.stomp.port == 61613
    assert [grant.describe() for grant in config.users["bill"].grants] == [{"rights": ["create", "send"], "pattern": "#"}]
    assert {each.what for each in found.missing} == {
        "<acceptor> all",
        "<divert>: a goes to b too",
        "<strange>",
        "group other",
    }
    assert "settings.xml:5" in text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("activemq.xml", '<!DOCTYPE b [<!ENTITY e SYSTEM "file:///etc/passwd">]><broker>&e;</broker>', "declares entities"),
        ("activemq.xml", '<!DOCTYPE b [<!ENTITY e "ha"><!ENTITY f "&e;&e;">]><broker brokerName="&f;"/>', "declares entities"),
        ("activemq.xml", "<broker>" + "<a>" * 200, "nested deeper"),
        ("activemq.xml", "<broker", "activemq.xml"),
        ("activemq.xml", "<html/>", "begins with <html>"),
        ("broker.xml", "<core><include href='none.xml'/></core>", "includes"),
        (
            "activemq.xml",
            "<broker><plugins><discardingDLQBrokerPlugin/><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>"
            "<redeliveryPolicy maximumRedeliveries='many'/></defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>"
            "</plugins></broker>",
            "where a number belongs",
        ),
        ("other.xml", "<broker/>", "there is no activemq.xml or broker.xml"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Refused, match=said):
        translate(tmp_path)


def test_nothing_of_a_file_begins_a_line_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "activemq.xml").write_text('<broker brokerName="a&#10;insecure: true"><x y="&#10;insecure: true"/></broker>')
    config = parse(translate(tmp_path)[1])
    assert (config.insecure, config.broker.name) == (False, "a\ninsecure: true")


def test_of_two_files_of_passwords_the_one_that_is_named_counts(tmp_path: Path) -> None:
    named = '<beans><bean class="a"><property name="location" value="file:${activemq.conf}/secret-enc.properties"/></bean><broker>'
    user = '<authenticationUser username="ann" password="${ann.password}" groups="a"/>'
    text = f"{named}<plugins><simpleAuthenticationPlugin><users>{user}</users></simpleAuthenticationPlugin></plugins></broker></beans>"
    written(tmp_path, activemq_xml=text, secret_properties="ann.password=plain", secret__enc_properties="ann.password=ENC(x)")
    found, text = translate(tmp_path)
    assert ([each.what for each in found.missing], "users:" in text) == (["password of ann"], False)


def test_the_command_says_by_its_exit_code_whether_that_was_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = '<broker xmlns="http://activemq.apache.org/schema/core" brokerName="a"/>'
    (tmp_path / "activemq.xml").write_text(whole)
    config_from(tmp_path, tmp_path / "broker.yaml")
    assert "is written" in capsys.readouterr().out
    (tmp_path / "activemq.xml").write_text(whole.replace("/>", "><networkConnectors/></broker>"))
    with pytest.raises(Exit) as ended:
        config_from(tmp_path, None)
    assert ended.value.exit_code == 7
    with pytest.raises(CommandError, match="cannot be written: File exists"):
        config_from(tmp_path, tmp_path / "broker.yaml")


#: Of files that people have published, what was peculiar in each: what it comes to, and what is said to be missing.
PECULIAR: list[tuple[str, str, dict[str, dict[str, object]], list[str]]] = [
    (
        "activemq.xml",  # of a cloud's broker: no beans around it
        '<broker xmlns="http://activemq.apache.org/schema/core" schedulePeriodForDestinationPurge="10000"><plugins>'
        '<forcePersistencyModeBrokerPlugin persistenceFlag="true"/><statisticsBrokerPlugin/>'
        '<timeStampingBrokerPlugin ttlCeiling="86400000" zeroExpirationOverride="3600000"/>'
        "<authorizationPlugin><map><cachedLDAPAuthorizationMap/></map></authorizationPlugin></plugins>"
        "<destinationPolicy><policyMap><policyEntries>"
        '<policyEntry queue="&gt;" enableAudit="false" gcInactiveDestinations="true" inactiveTimeoutBeforeGC="600000"><deadLetterStrategy>'
        '<sharedDeadLetterStrategy expiration="600000" processExpired="false"/></deadLetterStrategy><networkBridgeFilterFactory/>'
        "</policyEntry></policyEntries></policyMap></destinationPolicy></broker>",
        {
            "a": {
                "max_ttl_ms": 86_400_000,
                "message_ttl_ms": 3_600_000,
                "auto_delete_queues_delay_ms": 600_000,
                "dead_letter_retention_ms": 600_000,
                "expiry_address": None,
            }
        },
        ["<cachedLDAPAuthorizationMap>", "<forcePersistencyModeBrokerPlugin>", "<networkBridgeFilterFactory>"],
    ),
    (
        "activemq.xml",  # of a gateway for invoices: the namespaces the other way round
        '<spring:beans xmlns:spring="http://www.springframework.org/schema/beans" xmlns="http://activemq.apache.org/schema/core"'
        ' xmlns:context="http://www.springframework.org/schema/context"><context:property-placeholder/>'
        '<broker deleteAllMessagesOnStartup="true"><destinations><queue id="s" physicalName="in"/></destinations>'
        "<destinationPolicy><policyMap><policyEntries>"
        '<policyEntry queue=">"><deadLetterStrategy><sharedDeadLetterStrategy processExpired="false"><deadLetterQueue>'
        '<queue physicalName="dead"/></deadLetterQueue></sharedDeadLetterStrategy></deadLetterStrategy></policyEntry>'
        "</policyEntries></policyMap></destinationPolicy>"
        '<plugins><discardingDLQBrokerPlugin dropAll="false" dropOnly="in out.* note"/><redeliveryPlugin><redeliveryPolicyMap>'
        "<redeliveryPolicyMap><redeliveryPolicyEntries>"
        '<redeliveryPolicy queue="in" maximumRedeliveries="0"/><redeliveryPolicy queue="note" redeliveryDelay="1800000"/>'
        "</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker></spring:beans>",
        {
            "other": {"dead_letter_address": "dead", "without_dead_letter_address": "park"},
            "in": {"dead_letter_address": None, "without_dead_letter_address": "drop", "max_delivery_attempts": 1},
            "note": {"dead_letter_address": None, "redelivery_delays_ms": (1000, 1_800_000), "max_delivery_attempts": 7},
        },
        ["deleteAllMessagesOnStartup=true", "dropOnly out.*"],
    ),
    (
        "activemq.xml",  # of tutorials: an attribute for an element, and words that are none
        "<beans><broker><destinationPolicy><policyMap><policyEntries>"
        '<policyEntry queue="a"><deadLetterStrategy><sharedDeadLetterStrategy deadLetterQueue="dead"/></deadLetterStrategy></policyEntry>'
        '<policyEntry queue="b"><deadLitterStrategy><discarding/></deadLitterStrategy></policyEntry></policyEntries></policyMap>'
        "</destinationPolicy><plugins><destinationPathSeparatorPlugin/><authorizationPlugin><map><authorizationMap>"
        '<AuthorizationEntries/><authorizationEntries><authorizationEntry queue="a" read="users"/></authorizationEntries>'
        "</authorizationMap></map></authorizationPlugin></plugins></broker></beans>",
        {"a": {"dead_letter_address": "dead", "expiry_address": "dead"}, "b": {"dead_letter_address": "ActiveMQ.DLQ"}},
        ["<AuthorizationEntries>", "<deadLitterStrategy>", "<destinationPathSeparatorPlugin>", "group users"],
    ),
    (
        "broker.xml",
        "<configuration><core><address-settings>"
        '<address-setting match="s"><default-last-value-key>K</default-last-value-key><expiry-delay>123</expiry-delay>'
        "<default-ring-size>5</default-ring-size><address-full-policy>DROP</address-full-policy></address-setting></address-settings>"
        '<security-settings><security-setting match="s"><permission roles="amq, admin" type="send"/></security-setting>'
        '<role-mapping from="a" to="b"/></security-settings><wildcard-addresses><delimiter>/</delimiter></wildcard-addresses>'
        '</core><jms xmlns="urn:activemq:jms"><topic name="t"/></jms></configuration>',
        {"s": {"message_ttl_ms": 123}},
        [
            *("<default-last-value-key>", "<default-ring-size>", "<role-mapping>", "<wildcard-addresses>", "DROP"),
            *("artemis-users.properties", "group admin", "group amq"),
        ],
    ),
]


@pytest.mark.parametrize(("name", "content", "settings", "missing"), PECULIAR)
def test_what_was_peculiar_in_published_files(
    tmp_path: Path, name: str, content: str, settings: dict[str, dict[str, object]], missing: list[str]
) -> None:
    (tmp_path / name).write_text(content)
    found, text = translate(tmp_path)
    repository = parse(text).settings_repository()
    for address, wanted in settings.items():
        held = repository.resolve(address)
        assert {key: getattr(held, key) for key in wanted} == wanted
    assert sorted(each.what for each in found.missing) == missing
