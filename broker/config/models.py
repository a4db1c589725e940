"""The sections of broker.yaml as frozen models. Every default stands here once; broker.yaml and docs/settings.md show it.

Names carry their unit (``memory_limit_bytes``); in YAML they are hyphenated, durations and most sizes without the unit.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from socket import gethostname
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, field_validator, model_validator

from homing.journal.declarations import GrantContent

from ..core.amqp.policy import ALL, Policy, PolicyError, read_name, read_policy
from ..core.amqp.vhost import DEFAULT, name_problem
from ..core.rights import ADMINISTRATOR, Grant, GrantError, read_grant
from ..core.selector import SelectorError, compile_selector
from ..core.settings.units import parse_duration_ms, parse_size_bytes
from ..shares import EVERYBODY, Allowance
from .machine import default_limit, parse_limit

_DAY_MS: Final = 86_400_000
#: A page of an answer, where frames are not smaller.
_ANSWER_BYTES: Final = 512 << 10


def _optional(parse: Callable[[object], int]) -> Callable[[object], int | None]:
    return lambda value: None if value is None else parse(value)


Duration = Annotated[int, BeforeValidator(parse_duration_ms)]
Size = Annotated[int, BeforeValidator(parse_size_bytes)]
OptionalSize = Annotated[int | None, BeforeValidator(_optional(parse_size_bytes))]
MemoryLimit = Annotated[int, BeforeValidator(parse_limit)]
#: 0 picks a free one, and the ready line says which; None: nobody listens.
Port = Annotated[int | None, Field(ge=0, le=65_535)]


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def announced_version(version: str) -> str:
    """Clients read it as three numbers, and some fail where it is anything else."""
    if re.fullmatch(r"\d{1,4}\.\d{1,4}\.\d{1,4}", version, re.ASCII) is None:
        raise ValueError("expected three numbers with dots between them, such as '3.13.7', in quotes")
    return version


AnnouncedVersion = Annotated[str, AfterValidator(announced_version)]
Host = Annotated[str, Field(min_length=1, max_length=255)]


def yaml_key(name: str) -> str:
    """``history_retention_ms`` -> ``history-retention``."""
    return name.removesuffix("_ms").replace("_", "-")


class Section(BaseModel):
    """Frozen, strict (no ``"yes"`` for true), and nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=yaml_key, arbitrary_types_allowed=True)


class Listener(Section):
    """Where one protocol is spoken: in the clear, and, where there is a certificate, with TLS."""

    host: Host
    port: Port
    tls_host: Host
    tls_port: Port


class NativeSection(Listener):
    host: Host = "127.0.0.1"
    port: Port = 7171
    tls_host: Host = "127.0.0.1"
    tls_port: Port = 7173


class AmqpSection(Listener):
    """AMQP 0-9-1, for programs written for RabbitMQ. A file without this section has none."""

    host: Host = "127.0.0.1"
    port: Port = 5672
    tls_host: Host = "127.0.0.1"
    tls_port: Port = 5671
    #: What connection.start says the broker is: clients decide by it how the protocol is meant.
    product: str = Field(default="RabbitMQ", min_length=1, max_length=64)
    version: AnnouncedVersion = "3.13.7"


class StompSection(Listener):
    """STOMP 1.0 to 1.2, for programs written for ActiveMQ. A file without this section has none."""

    host: Host = "127.0.0.1"
    port: Port = 61_613
    tls_host: Host = "127.0.0.1"
    tls_port: Port = 61_614
    #: What /topic/a is: the address a, as for both ActiveMQs, or what amq.topic has under the key a, as for RabbitMQ.
    topics: Literal["address", "amq.topic"] = "address"


class HttpSection(Listener):
    """Probes and metrics. A file without this section has none."""

    host: Host = "127.0.0.1"
    port: Port = 7172
    tls_host: Host = "127.0.0.1"
    tls_port: Port = None


def _of_this_machine(host: str) -> str:
    if not is_loopback(host):
        raise ValueError(
            "expected an address of this machine, such as 127.0.0.1, where there is no TLS\nset console.tls-host, or use ssh -L"
        )
    return host


class ConsoleSection(Section):
    """The pages over what failed, a process beside the broker. A file without this section has none."""

    host: Annotated[Host, AfterValidator(_of_this_machine)] = "127.0.0.1"
    port: int = Field(default=15_672, ge=0, le=65_535)
    tls_host: Host = "127.0.0.1"
    tls_port: Port = None
    memory_limit_bytes: Size = Field(default=128 << 20, alias="memory-limit", ge=64 << 20)


class TlsSection(Section):
    """Files in PEM; relative to the file that names them. A file without this section has no TLS."""

    #: The broker's own, then those that issued it, each by the next.
    certificate: str = Field(min_length=1, max_length=4096)
    key: str = Field(min_length=1, max_length=4096)
    #: Who issues certificates to clients; None: they are not asked for any.
    client_ca: str | None = Field(default=None, min_length=1, max_length=4096)
    require_client_certificate: bool = False
    #: What of a client's certificate is the user's name.
    user_from: Literal["common-name", "san-dns", "san-email", "san-uri"] = "common-name"

    def under(self, directory: Path) -> TlsSection:
        """With its files where they are, relative ones below ``directory``."""
        files = {name: getattr(self, name) for name in ("certificate", "key", "client_ca")}
        return self.model_copy(update={name: str(directory / Path(file).expanduser()) for name, file in files.items() if file})

    @model_validator(mode="after")
    def _can_be_checked(self) -> TlsSection:
        if self.require_client_certificate and self.client_ca is None:
            raise ValueError("require-client-certificate needs client-ca\nname the file with the certificates that issue those of clients")
        return self


class LogSection(Section):
    """How the log is written, and where to."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    #: Of the times in it.
    zone: Literal["utc", "local"] = "utc"
    #: None: standard error. Relative to the configuration file.
    file: str | None = Field(default=None, min_length=1, max_length=4096)
    #: A file of this size is set aside as ``file``.1, and the last few of these are kept.
    max_bytes: Size = Field(default=64 << 20, alias="max-bytes", ge=4096)
    backup_count: int = Field(default=5, ge=1, le=1000)


class AuditSection(Section):
    """Where the lines of the audit go."""

    #: None: into the log, as soon as there are users. Relative to the configuration file.
    file: str | None = Field(default=None, min_length=1, max_length=4096)
    max_bytes: Size = Field(default=64 << 20, alias="max-bytes", ge=4096)
    backup_count: int = Field(default=5, ge=1, le=1000)


class BrokerSection(Section):
    name: str = Field(default="homing", min_length=1, max_length=128)
    #: Of all that clients cause to be held (core/memory.py); producers wait at it.
    memory_limit_bytes: Annotated[int, BeforeValidator(parse_limit)] = Field(
        default_factory=default_limit, alias="memory-limit", ge=1 << 20
    )
    #: Durable messages; None: only the disk limits them.
    store_limit_bytes: OptionalSize = Field(default=None, alias="store-limit")
    #: Messages that are not durable.
    temp_limit_bytes: OptionalSize = Field(default=None, alias="temp-limit")
    #: Which messages leave a history: those that failed once, or all.
    history: Literal["failures", "full"] = "failures"
    #: Moves a message may make before it is parked where it is.
    max_hops: int = Field(default=32, ge=1, le=1000)
    #: How often parked messages are tried again.
    parked_retry_ms: Duration = Field(default=30_000, ge=100)
    #: How long an orderly stop may write what is not durable, from its beginning.
    stop_timeout_ms: Duration = Field(default=20_000, le=3_600_000)


def cell_name(name: str) -> str:
    """A part of the names of tables."""
    if re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is None:
        raise ValueError("expected up to 40 small letters, digits and underscores, a letter first")
    return name


def without_password(url: str) -> str:
    """It is shown."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("expected a URL such as postgresql://homing@db1,db2/homing")
    if ":" in parts.netloc.rpartition("@")[0] or "password=" in parts.query:
        raise ValueError("a password is not to stand in the URL, which is shown\nput it into a file of its own: password-file")
    return url


def advertised(places: dict[str, str]) -> dict[str, str]:
    """Other nodes connect there."""
    for name, place in places.items():
        if name.removesuffix("-tls") not in ("native", "amqp", "stomp"):
            raise ValueError(f"{name!r} is no listener that is passed on to: native, amqp, stomp, and each with -tls")
        if re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):\d{1,5}", place) is None:
            raise ValueError(f"expected host and port of {name}, such as a.example:7173, got {place!r}")
    return places


File = Annotated[str | None, Field(min_length=1, max_length=4096)]


class ReplicationSection(Section):
    """Files are relative to the configuration file."""

    #: Of the database that keeps the log.
    url: Annotated[str, AfterValidator(without_password)]
    password_file: File = None
    #: In PEM; without any of them the URL says how TLS is used (sslmode).
    ca: File = None
    certificate: File = None
    key: File = None
    #: All nodes of one broker name the same; several may share a database.
    cell: Annotated[str, AfterValidator(cell_name)] = "main"
    #: This node's name within its cell.
    node: str = Field(default_factory=gethostname, pattern=r"^[^\s/]{1,128}$")
    #: Where other nodes reach its listeners, by protocol, where they say something else: ``{native-tls: a.example:7173}``.
    advertise: Annotated[dict[str, str], AfterValidator(advertised)] = Field(default_factory=dict)
    #: A leader of whom nothing was seen for so long is taken for gone.
    fail_over_after_ms: Duration = Field(default=3_000, ge=2_000)
    #: What so many nodes have on disk may leave the log.
    copies: int = Field(default=2, ge=1, le=16)
    #: At which producers wait until enough nodes have what is in the log. Three tables of it are in use in any case.
    log_limit_bytes: Size = Field(default=16 << 30, alias="log-limit", ge=512 << 20)
    #: The disk below the database is replicated, so that its commits need not be.
    storage_is_replicated: bool = False


class JournalSection(Section):
    """The fields are those of journal.JournalOptions, and whether other machines have it, too."""

    disk_reserve_bytes: Size = Field(default=64 << 20, alias="disk-reserve")
    wal_limit_bytes: Size = Field(default=1 << 30, alias="wal-limit", ge=1 << 20)
    checkpoint_every_bytes: Size = Field(default=16 << 20, alias="checkpoint-every", ge=64 << 10)
    history_retention_ms: Duration = 7 * _DAY_MS
    history_max_bytes: Size = 1 << 30
    marks_retention_ms: Duration = Field(default=_DAY_MS, ge=1000)
    elide: bool = True
    id_block: int = Field(default=1 << 20, ge=1024, le=1 << 40)
    duplicate_ids_per_address: int = Field(default=20_000, ge=0, le=10_000_000)
    #: A journal with more messages is counted at the start instead of read, and read a page at a time.
    load_limit: int = Field(default=20_000, ge=0, le=10_000_000)
    #: Relative to the data directory.
    backup_directory: str = Field(default="backups", min_length=1, max_length=4096)
    archive_directory: str = Field(default="archive", min_length=1, max_length=4096)
    report_directory: str = Field(default="reports", min_length=1, max_length=4096)
    keep_before_migration: bool = True
    on_damage: Literal["refuse", "quarantine"] = "refuse"
    #: None: the journal is on this machine alone.
    replication: ReplicationSection | None = None


class ShareSection(Section):
    """What one user, or one address, may have together; None: as much as there is."""

    max_connections: int | None = Field(default=None, ge=1)
    max_channels: int | None = Field(default=None, ge=1)
    #: Those made since the broker started that are there.
    max_queues: int | None = Field(default=None, ge=0)
    max_message_bytes: OptionalSize = None
    max_unconfirmed_bytes: OptionalSize = None
    max_logins_per_minute: int | None = Field(default=None, ge=1)

    def allowance(self) -> Allowance:
        return Allowance(**self.model_dump())


def network(name: str) -> str:
    try:
        return name if name == EVERYBODY else str(ip_network(name))
    except ValueError:
        raise ValueError("expected a network such as 10.0.0.0/8, an address, or '*'") from None


Network = Annotated[str, AfterValidator(network)]


class LimitsSection(Section):
    max_connections: int = Field(default=10_000, ge=1)
    max_connections_per_peer: int = Field(default=8_000, ge=1)
    #: Sockets that have not logged in yet: see admission.
    max_handshakes: int = Field(default=2_000, ge=1)
    max_handshakes_per_peer: int = Field(default=1_000, ge=1)
    max_queues: int = Field(default=20_000, ge=1)
    max_frame_bytes: Size = Field(default=16 << 20, ge=64 << 10, le=1 << 30)
    #: Of one message, however it comes; a native one has to fit into a frame besides.
    max_message_bytes: Size = Field(default=16 << 20, ge=1024, le=128 << 20)
    max_properties_bytes: Size = Field(default=64 << 10, ge=1024)
    max_nesting: int = Field(default=16, ge=4, le=64)
    max_bytes_before_login: Size = Field(default=8 << 10, alias="max-bytes-before-login", ge=512)
    login_timeout_ms: Duration = Field(default=10_000, ge=100)
    #: Threads that check passwords; argon2 is meant to be slow, the loop is not.
    login_threads: int = Field(default=2, ge=1, le=64)
    #: The longest the broker agrees to; 0: no heartbeats.
    heartbeat_ms: Duration = 10_000
    #: A connection is lost after this many heartbeats without a byte.
    heartbeat_tolerance: float = Field(default=2.5, ge=1.5, le=100, allow_inf_nan=False)
    #: A peer that takes nothing of what waits for it is given up after this long.
    write_timeout_ms: Duration = Field(default=30_000, ge=100)
    #: Of frames and messages that one connection has half sent; None: a quarter of memory-limit, and one message always.
    max_partial_bytes: OptionalSize = None
    #: What waits for one connection to read it before it is handed and answered nothing more.
    max_unread_bytes: Size = Field(default=1 << 20, ge=1024)
    #: What is remembered for one connection; a 64th of memory-limit at most.
    max_cache_bytes: Size = 1 << 20
    max_transaction_operations: int = Field(default=10_000, ge=1)
    max_transaction_bytes: Size = Field(default=64 << 20, ge=1024)
    max_transaction_references: int = Field(default=50_000, ge=1)
    transaction_timeout_ms: Duration = Field(default=300_000, ge=100)
    max_selector_characters: int = Field(default=4096, ge=1, le=65_536)
    max_selector_depth: int = Field(default=64, ge=1, le=100)
    #: What of a queue is in memory: see entries.Windows.
    window_messages: int = Field(default=32_000, ge=1, le=10_000_000)
    window_bytes: Size = Field(default=32 << 20, alias="window-bytes", ge=1)
    window_scheduled: int = Field(default=10_000, ge=1, le=10_000_000)

    @property
    def answer_bytes(self) -> int:
        """Of a page of an answer, beyond its first entry."""
        return min(_ANSWER_BYTES, self.max_frame_bytes // 2)

    @model_validator(mode="after")
    def _fit_into_a_frame(self) -> LimitsSection:
        if self.max_properties_bytes > self.max_frame_bytes:
            raise ValueError("max-properties-bytes must not be more than max-frame-bytes: a message travels in one frame")
        return self


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


RoutingType = Literal["anycast", "multicast"]


class AddressDeclaration(Section):
    """An address that is there from the start and never removes itself."""

    routing_types: Annotated[tuple[RoutingType, ...], BeforeValidator(_as_tuple)] = Field(default=("anycast",), min_length=1)


class QueueDeclaration(Section):
    """A queue that is there from the start and never removes itself. ``settings`` beat those of its address."""

    #: The queue's own name where not given.
    address: str | None = Field(default=None, min_length=1)
    routing_type: RoutingType = "anycast"
    selector: str | None = None
    durable: bool = True
    exclusive: bool = False
    #: -1: any number.
    max_consumers: int = Field(-1, ge=-1)
    #: Field name -> value, of DECLARABLE_SETTINGS; in YAML they stand beside the others.
    settings: dict[str, object] = Field(default_factory=dict)

    @field_validator("selector")
    @classmethod
    def _compiles(cls, selector: str | None) -> str | None:
        if selector is not None:
            try:
                compile_selector(selector)
            except SelectorError as error:
                raise ValueError(str(error)) from None
        return selector

    def arguments(self, name: str) -> dict[str, object]:
        """As the call create-queue takes them (docs/protocol.md, 2.7); what is not set is left out."""
        given: dict[str, object] = {
            "queue": name,
            "address": self.address or name,
            "routing_type": self.routing_type,
            "durable": self.durable,
        }
        if self.selector is not None:
            given["selector"] = self.selector
        if self.exclusive:
            given["exclusive"] = True
        if self.max_consumers >= 0:
            given["max_consumers"] = self.max_consumers
        return {**given, **self.settings}


def _virtual_host(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


VirtualHostName = Annotated[str, AfterValidator(_virtual_host)]
VirtualHostNames = Annotated[tuple[VirtualHostName, ...], BeforeValidator(_as_tuple), Field(max_length=999)]


def _policy_name(name: str) -> str:
    try:
        return read_name(name)
    except PolicyError as error:
        raise ValueError(f"{error.message}\n{error.fix}") from None


PolicyName = Annotated[str, AfterValidator(_policy_name)]


class PolicyDeclaration(Section):
    """One of AMQP's policies; its definition has RabbitMQ's keys, times and sizes with or without a unit."""

    pattern: str
    apply_to: str = ALL
    priority: int = 0
    virtual_host: VirtualHostName = DEFAULT
    definition: dict[str, object]

    @model_validator(mode="after")
    def _can_be_read(self) -> PolicyDeclaration:
        try:
            self.read("name")
        except PolicyError as error:
            raise ValueError(f"{error.message}\n{error.fix}") from None
        return self

    def read(self, name: str) -> Policy:
        """Raises PolicyError."""
        return read_policy(name, self.pattern, self.definition, self.apply_to, self.priority, self.virtual_host)


def argon2_hash(value: str) -> str:
    """Refuses what is no argon2 hash; a password in the clear is the likely mistake, so the value is never repeated."""
    from argon2 import extract_parameters
    from argon2.exceptions import InvalidHash

    try:
        extract_parameters(value)
    except InvalidHash:
        raise ValueError("expected an argon2 hash\nmake one with: homing user hash") from None
    return value


UserHash = Annotated[str, AfterValidator(argon2_hash)]


def _grant(said: object) -> Grant:
    try:
        if not isinstance(said, dict):
            raise GrantError("expected a mapping", 'write {rights: [send, create], pattern: "orders.#"}')
        return read_grant({str(key).replace("-", "_"): value for key, value in said.items()})
    except GrantError as error:
        raise ValueError(f"{error.message}\n{error.fix}") from None


class UserDeclaration(Section):
    hash: UserHash
    grants: Annotated[tuple[Annotated[Grant, PlainValidator(_grant)], ...], BeforeValidator(_as_tuple)] = ()

    def said(self) -> list[GrantContent]:
        """What the user was granted."""
        return [grant.describe() for grant in self.grants]


def _user(said: object) -> object:
    """A hash alone is an administrator's."""
    return {"hash": said, "grants": [{"rights": ADMINISTRATOR}]} if isinstance(said, str) else said


DeclaredUser = Annotated[UserDeclaration, BeforeValidator(_user)]
