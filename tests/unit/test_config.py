"""broker.yaml: what is shipped, what is refused and how it is said, what is warned of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from homing.broker.auth.passwords import hash_password
from homing.broker.config.changes import changes
from homing.broker.config.config import Config, ConfigError, ConfigProblem, check, default_config, load, parse
from homing.broker.config.models import UserDeclaration
from homing.broker.core.rights import Grant
from homing.broker.core.settings.address_settings import (
    DECLARABLE_SETTINGS,
    DEFAULTS,
    FIELD_OF_KEY,
    AddressSettingsRepository,
    built_in,
)
from homing.journal.options import JournalOptions
from tests.config_keys import config_keys

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "broker.yaml"


def refused(text: str) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.code == "config-invalid"
    return caught.value.problems


# -- what is shipped -----------------------------------------------------------------------------------------------------


def test_the_shipped_file_is_what_holds_without_one() -> None:
    shipped = load(SHIPPED)
    assert changes(shipped, default_config(ROOT)) == []
    assert shipped.describe() == default_config(ROOT).describe()
    assert check(SHIPPED) == []
    assert shipped.settings_repository().resolve("orders").dead_letter_address == "DLA"
    assert shipped.settings_repository().resolve("orders").auto_create_dead_letter_resources
    assert shipped.http is not None
    assert (shipped.native.host, shipped.native.port, shipped.http.port) == ("127.0.0.1", 7171, 7172)
    assert shipped.data_directory == ROOT / "homing-data"


def test_every_default_in_a_comment_is_the_default() -> None:
    text = SHIPPED.read_text()
    active = re.sub(r"^    # ([a-z-]+: )", r"    \1", text, flags=re.MULTILINE)
    layer = parse(active).address_settings.layers["#"]
    assert AddressSettingsRepository({"#": layer}).resolve("any") == DEFAULTS
    assert layer.keys() == built_in().keys()


def test_every_setting_stands_in_the_shipped_file_and_in_the_docs() -> None:
    shipped, docs = SHIPPED.read_text(), (ROOT / "docs" / "settings.md").read_text()
    parsed = load(SHIPPED)
    for key in config_keys():
        assert f"`{key}`" in docs or f"## {key}" in docs or f", {key}\n" in docs or key == "address-settings", key
        assert parsed.line_of(*key.split(".")), key
    for key in FIELD_OF_KEY:
        assert re.search(rf"^    (# )?{key}: ", shipped, re.MULTILINE), key
        assert f"| `{key}` |" in docs, key


def test_the_defaults_in_the_docs_are_the_defaults() -> None:
    docs = (ROOT / "docs" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z.-]+)` \| `([^`]*)`", docs, re.MULTILINE))
    defaults = parse('address-settings: {"#": {' + ", ".join(f"{key}: {rows[key]}" for key in FIELD_OF_KEY) + "}}")
    assert defaults.address_settings.resolve("orders") == DEFAULTS
    lines: dict[str, list[str]] = {}
    for key in config_keys():
        if "." in key:
            section, name = key.split(".")
            lines.setdefault(section, []).append(f"  {name}: {rows[key]}\n")
    text = "".join(f"{section}:\n{''.join(each)}" for section, each in lines.items())
    assert changes(parse(text), parse("")) == []


def test_the_journals_options_are_the_same_on_both_sides_and_queues_are_declared_with_settings_of_addresses() -> None:
    assert JournalOptions(**default_config().journal.model_dump(exclude={"replication"})) == JournalOptions()
    assert set(FIELD_OF_KEY.values()) >= DECLARABLE_SETTINGS


# -- reading -------------------------------------------------------------------------------------------------------------


def test_values_units_and_lines() -> None:
    text = """\
limits:
  heartbeat: 250ms
  max-frame-bytes: 1MiB
broker: {memory-limit: 64MiB, history: full}
address-settings:
  "#": {redelivery-delay: 1s}
  "orders.#":
    # a comment
    redelivery-delay: 5s
"""
    config = parse(text)
    assert config.limits.heartbeat_ms == 250
    assert config.limits.max_frame_bytes == 1 << 20
    assert config.broker.memory_limit_bytes == 64 << 20
    assert config.broker.history == "full"
    assert config.line_of("limits", "heartbeat") == 2
    assert config.line_of("limits", "login-timeout") is None
    explained = {origin.key: origin for origin in config.settings_repository().explain("orders.eu")}
    assert explained["redelivery-delay"][1:4] == (5000, "orders.#", 9)
    assert explained["max-delivery-attempts"][2:4] == ("default", None)


def test_an_empty_file_and_empty_sections_set_nothing() -> None:
    for text in ("", "# nothing\n", "limits:\nqueues:\nusers:\naddress-settings:\n"):
        assert changes(parse(text), parse("{}")) == []
    assert parse("").address_settings.resolve("orders") == DEFAULTS


def test_anchors_and_merges() -> None:
    text = 'address-settings:\n  "a": &slow {redelivery-delay: 1m}\n  "b": {<<: *slow, max-delivery-attempts: 3}\n'
    repository = parse(text).address_settings
    assert repository.resolve("b").redelivery_delay_ms == 60_000
    assert next(origin.line for origin in repository.explain("b") if origin.key == "redelivery-delay") == 3


def test_the_data_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("data-directory: data\n")
    assert load(file).data_directory == tmp_path / "data"
    file.write_text(f"data-directory: {tmp_path / 'elsewhere'}\n")
    assert load(file).data_directory == tmp_path / "elsewhere"


def test_a_config_is_frozen_and_can_be_copied_with_another_directory(tmp_path: Path) -> None:
    config = parse("native: {port: 0}\n")
    with pytest.raises(ValidationError):
        config.native.port = 5
    copied = config.model_copy(update={"data_directory": tmp_path})
    assert copied.data_directory == tmp_path
    assert copied.line_of("native", "port") == 1


def test_declared_queues_and_addresses() -> None:
    config = parse(
        "addresses: {news: {routing-types: [multicast]}, plain: }\n"
        "queues:\n"
        "  archive: {address: news, routing-type: multicast, selector: \"region = 'eu'\", max-delivery-attempts: 3, message-ttl: 1h}\n"
        "  orders:\n"
        "  one: {exclusive: true, max-consumers: 2, durable: false}\n"
    )
    assert config.addresses["news"].routing_types == ("multicast",)
    assert config.addresses["plain"].routing_types == ("anycast",)
    assert config.queues["archive"].arguments("archive") == {
        "queue": "archive",
        "address": "news",
        "routing_type": "multicast",
        "durable": True,
        "selector": "region = 'eu'",
        "max_delivery_attempts": 3,
        "message_ttl_ms": 3_600_000,
    }
    assert config.queues["orders"].arguments("orders") == {
        "queue": "orders",
        "address": "orders",
        "routing_type": "anycast",
        "durable": True,
    }
    assert config.queues["one"].arguments("one")["exclusive"] is True
    assert config.queues["one"].arguments("one")["max_consumers"] == 2


# -- errors --------------------------------------------------------------------------------------------------------------


NODE = "journal: {{replication: {{url: 'postgresql://db/homing', {}}}}}"


@pytest.mark.parametrize(
    ("text", "line", "path", "says"),
    [
        ("native:\n  host: 0.0.0.0\n", 2, "native.host", "loopback.*no TLS.*'0.0.0.0'"),
        ("native: {port: 65536}", 1, "native.port", "at most 65535, got 65536"),
        ("amqp: {version: 3.13}", 1, "amqp.version", "text"),
        ("amqp: {version: 3.13.7-rc1}", 1, "amqp.version", "three numbers"),
        ("amqp: {product: ''}", 1, "amqp.product", "at least 1"),
        ("native: {port: true}", 1, "native.port", "whole number, got true"),
        ("native: 7171", 1, "native", "mapping, got 7171"),
        ("\nnativ: {}", 2, "nativ", "no such setting"),
        ("limits:\n  heartbeat: 5 parsecs", 2, "limits.heartbeat", "unit 'parsecs'.*duration"),
        ("limits: {login-timeout: 1ms}", 1, "limits.login-timeout", "at least 100ms, got '1ms'"),
        ("limits: {heartbeat-tolerance: .nan}", 1, "limits.heartbeat-tolerance", "expected"),
        ("limits: {max-frame-bytes: 64KiB, max-properties-bytes: 1MiB}", 1, "limits", "must not be more than max-frame-bytes"),
        ("broker: {history: some}", 1, "broker.history", "'failures' or 'full', got 'some'"),
        ("broker: {memory-limit: -5}", 1, "broker.memory-limit", "negative"),
        ("broker: {max-hops: 3.5}", 1, "broker.max-hops", "whole number"),
        ("journal: {elide: yes please}", 1, "journal.elide", "true or false"),
        ("journal: {replication: {url: 'mysql://db/homing'}}", 1, "journal.replication.url", "expected a URL such as postgresql:"),
        (
            "journal: {replication: {url: 'postgresql://homing:word@db/homing'}}",
            1,
            "journal.replication.url",
            "a password is not to stand in the URL",
        ),
        (NODE.format("cell: Main-1"), 1, "journal.replication.cell", "up to 40 small letters"),
        (NODE.format("advertise: {native: a.example}"), 1, "journal.replication.advertise", "host and port of native, .* got 'a.example'"),
        (NODE.format("advertise: {amqps: 'a.example:5671'}"), 1, "journal.replication.advertise", "'amqps' is no listener"),
        ("data-directory: [a]", 1, "data-directory", "expected a directory"),
        ("address-settings: [1]", 1, "address-settings", "mapping from pattern"),
        ('address-settings:\n  "a..b": {}', 2, 'address-settings."a..b"', "empty word"),
        ('address-settings:\n  "#": 5', 2, 'address-settings."#"', "mapping of settings, got 5"),
        ('address-settings:\n  "#":\n    overflow: nowhere', 3, 'address-settings."#".overflow', "got 'nowhere'"),
        ('address-settings: {"#": {redelivery-collision-avoidance-factor: 2}}', 1, None, "at most 1, got 2"),
        ('address-settings: {"#": {max-delivery-attempts: 0}}', 1, None, "at least 1, or -1"),
        ('address-settings: {"#": {max_delivery_attempts: 3}}', 1, None, "no such setting"),
        ("queues: {q: {selector: 'a ='}}", 1, "queues.q.selector", "ends too early.*character"),
        ("queues: {q: {no-expiry: true}}", 1, "queues.q.no-expiry", "cannot be declared"),
        ("queues: {q: {overflow: nowhere}}", 1, "queues.q.overflow", "got 'nowhere'"),
        ("queues: {q: 5}", 1, "queues.q", "mapping, got 5"),
        ("queues: {q: {settings: {}}}", 1, "queues.q.settings", "no such setting"),
        ("addresses: {a: {routing-types: []}}", 1, "addresses.a.routing-types", "expected"),
        ("addresses: {a: {routing-types: [unicast]}}", 1, "addresses.a.routing-types.0", "'anycast' or 'multicast'"),
        ("virtual-hosts: shop", 1, "virtual-hosts", "list in brackets, got 'shop'"),
        ("virtual-hosts: ['']", 1, "virtual-hosts.0", "cannot name a virtual host"),
        ("policies: {p: {pattern: a}}", 1, "policies.p.definition", "is missing"),
        ("policies: {p: {patern: a, pattern: a, definition: {max-length: 1}}}", 1, "policies.p.patern", "no such setting"),
        ("policies: {p: {pattern: (a+, definition: {max-length: 1}}}", 1, "policies.p", "cannot be read"),
        ("policies: {p: {pattern: a, definition: {max-priority: 1}}}", 1, "policies.p", "'max-priority' is not a key of policies"),
        ("policies: {p: {pattern: a, virtual-host: '', definition: {max-length: 1}}}", 1, "policies.p.virtual-host", "cannot name"),
        ("5: 6", 1, "5", "key must be text, got 5"),
        ("- a", 1, "", "mapping of sections"),
        ("a: 1\nnative: {}\na: 2\n", 3, "", "'a' stands here for the second time"),
        ('address-settings:\n  "#": {}\n  "#": {}\n', 3, "", "second time"),
        ("a: [1\nb: 2", 2, "", "not YAML"),
        ("address-settings:\n  *.eu: {}\n", 2, "", "not YAML"),
        ("a: \x00", None, "", "not YAML"),
        ("a: &x [*x]", 1, "a", "no such setting"),
    ],
)
def test_an_error_names_line_path_value_and_what_was_expected(text: str, line: int | None, path: str | None, says: str) -> None:
    problem = refused(text)[0]
    assert problem.line == line
    assert path is None or problem.path == path
    assert re.search(says, problem.message), problem.message
    assert problem.fix


def test_several_errors_are_reported_together_in_the_order_of_the_file() -> None:
    text = 'limits: {max-connections: 0}\nbroker: {color: 1}\naddress-settings:\n  "#":\n    overflow: nowhere\n    redelivery-delay: x\n'
    problems = refused(text)
    assert [problem.line for problem in problems] == [1, 2, 5, 6]
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert "4 errors" in caught.value.message
    assert all(problem.message in caught.value.message for problem in problems)
    assert (caught.value.path, caught.value.line) == ("limits.max-connections", 1)


def test_hints() -> None:
    assert "did you mean max-frame-bytes" in refused("limits: {max-fram-bytes: 1}")[0].fix
    assert refused("broker: {disk-reserve: 1}")[0].fix == "it belongs under journal:"
    assert "native.tls-host" in refused("native: {host: 10.0.0.1}")[0].fix
    assert parse("native: {host: 10.0.0.1}", insecure=True).beyond_loopback() == ["native"]
    assert refused('address-settings: {"#": {redelivery_delay_ms: 3}}')[0].fix == "write redelivery-delay"


@pytest.mark.parametrize(
    ("layers", "path", "says"),
    [
        ('"#": {redelivery-delays: [1s], redelivery-delay: 5s}', "redelivery-delay", "cannot stand together with redelivery-delay"),
        ('"#": {redelivery-delays: [1s], redelivery-delay-multiplier: 2}', "redelivery-delay-multiplier", "cannot stand together"),
        ('"#": {redelivery-delays: [1s], redelivery-back-off: linear}', "redelivery-back-off", "cannot stand together"),
        ('"#": {redelivery-back-off: list}', "redelivery-back-off", "needs redelivery-delays"),
        ('"#": {redelivery-delays: [1s]}\n  "a": {redelivery-delay: 5s}', "redelivery-delay", 'the redelivery-delays of "#" apply here'),
        ('"#": {dead-letter-queue-prefix: ""}', "dead-letter-queue-prefix", "both empty"),
        ('"#": {expiry-queue-prefix: ""}', "expiry-queue-prefix", "both empty"),
        (
            '"#": {dead-letter-queue-prefix: "", dead-letter-queue-suffix: .D}\n  "a": {dead-letter-queue-suffix: ""}',
            "dead-letter-queue-suffix",
            "both empty",
        ),
        ('"#": {min-ttl: 2s, max-ttl: 1s}', "min-ttl", "more than max-ttl"),
        ('"#": {dead-letter-address: DLA, overflow: drop-head, max-length: 5}', "overflow", "dead-letter address DLA"),
        ('"a": {dead-letter-address: DLA}\n  "DLA": {overflow: drop-head, max-length: 5}', "overflow", "dropped unseen"),
    ],
)
def test_settings_that_cannot_stand_together(layers: str, path: str, says: str) -> None:
    (problem,) = refused(f"address-settings:\n  {layers}\n")
    assert problem.path.endswith(f".{path}")
    assert says in problem.message
    assert problem.line is not None


@pytest.mark.parametrize(
    "layers",
    [
        '"#": {redelivery-delays: [1s], redelivery-back-off: list}',
        '"#": {redelivery-delay: 1s}\n  "a": {redelivery-delays: [1s]}',
        '"#": {redelivery-delays: [1s]}\n  "a": {redelivery-delays: [], redelivery-delay: 5s}',
        '"#": {dead-letter-queue-prefix: "", dead-letter-queue-suffix: .DLQ}',
        '"#": {dead-letter-address: DLA, overflow: drop-head, max-length: 5}\n  "DLA": {overflow: block}',
        '"#": {dead-letter-address: DLA, overflow: drop-head, max-length: 5}\n  "DLA": {allow-drop-head-on-dead-letter-queue: true}',
    ],
)
def test_settings_that_can(layers: str) -> None:
    assert isinstance(parse(f"address-settings:\n  {layers}\n"), Config)


def test_users() -> None:
    hashed = hash_password("secret")
    config = parse(f"users: {{bob: '{hashed}'}}")
    assert config.users == {"bob": UserDeclaration.model_validate({"hash": hashed, "grants": [{"rights": "administrator"}]})}
    narrow = parse(f"""
users:
  shop: {{hash: '{hashed}', grants: [{{rights: [send, read], pattern: "orders.#", virtual-host: eu, keys: a.*}}, {{rights: monitor}}]}}
""")
    assert narrow.users["shop"].grants == (
        Grant(frozenset({"send", "read"}), "orders.#", "eu", "a.*"),
        Grant(frozenset({"monitor"})),
    )
    assert config.describe()["users"] == ["bob"]
    for text in (
        "users: {bob: hunter2}",
        "users: [hunter2]",
        "users: hunter2",
        "users: {bob: [hunter2]}",
        "users: {bob: {password: hunter2}}",
        "users: {bob: {hash: hunter2}}",
    ):
        with pytest.raises(ConfigError) as caught:
            parse(text)
        assert "hunter2" not in f"{caught.value} {caught.value.fix} {caught.value.problems}"
    assert "homing user hash" in refused("users: {bob: hunter2}")[0].fix


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file") as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.code == "config-not-found"
    file = tmp_path / "broker.yaml"
    file.write_bytes(b"native: {}\n# \xff\n")
    with pytest.raises(ConfigError, match=r"line 2: this is not UTF-8"):
        load(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    file.write_text("limits: {max-connections: 0}")
    with pytest.raises(ConfigError, match=re.escape(str(file))):
        check(file)


@pytest.mark.parametrize("text", ["a: " + "[" * 900, "a: " + "{a: " * 200 + "1" + "}" * 200, "a: &a [1,1]\nb: &b [*a,*a]\nc: [*b,*b]"])
def test_deep_nesting_and_aliases_end_in_an_error(text: str) -> None:
    assert refused(text)


def test_an_alias_bomb_ends_soon() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert any("too large" in problem.message for problem in refused("\n".join(lines)))


@settings(max_examples=150, deadline=None)
@given(st.text("abn:{}[]-#*&!|>'\"%@`, \n\t0159.~?<", max_size=60))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    try:
        result: object = parse(text)
    except ConfigError as error:
        result = error.problems[0].message
    assert result


# -- changes -------------------------------------------------------------------------------------------------------------


def test_changes_say_what_needs_a_restart() -> None:
    limits = "native: {port: %d}\nlimits: {heartbeat: %ds, window-messages: %d}\n"
    before = parse(limits % (1, 5, 8) + 'address-settings: {"#": {redelivery-delay: 1s}}')
    after = parse(limits % (2, 6, 9) + 'address-settings: {"#": {redelivery-delay: 2s}, "a": {no-expiry: true}}')
    found = {change.path: change[1:] for change in changes(before, after)}
    assert found == {
        "native.port": (1, 2, True),
        "limits.heartbeat_ms": (5000, 6000, True),
        "limits.window_messages": (8, 9, False),
        "address_settings.#.redelivery_delay_ms": (1000, 2000, False),
        "address_settings.a.no_expiry": (None, True, False),
    }
    one, two = (parse(f"users: {{bob: '{hash_password('x')}'}}") for _ in range(2))
    assert [change.path for change in changes(one, two)] == ["users.bob"]
    assert "$argon2" not in str(changes(one, two))


def test_virtual_hosts_and_policies() -> None:
    config = parse("virtual-hosts: [shop]\npolicies: {p: {pattern: a, virtual-host: shop, definition: {message-ttl: 1h, max-length: 5}}}")
    assert config.virtual_hosts == ("shop",)
    policy = config.policies["p"].read("p")
    assert (policy.virtual_host, policy.apply_to, policy.definition) == ("shop", "all", {"message-ttl": 3_600_000, "max-length": 5})
    assert not any(change.needs_restart for change in changes(config, parse("")))


def test_the_settings_for_the_journal() -> None:
    settings = default_config().journal_settings()
    assert settings[""]["default_address_settings"] == built_in()
    assert settings[""]["limits"]["heartbeat_ms"] == 10_000
