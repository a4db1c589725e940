"""broker.yaml: from text to a frozen Config, or to every error in it at once.

``load(path)`` and ``parse(text)`` are the ways in, ``default_config()`` is what holds without a file: the values of the broker.yaml that is
shipped. ``check`` tells what is valid but perhaps not meant. Reload parses anew and compares: ``changes.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field, PrivateAttr, ValidationError

from ..core.settings.address_settings import (
    DECLARABLE_SETTINGS,
    FIELD_OF_KEY,
    KEY_OF_FIELD,
    AddressSettingsRepository,
    Layer,
    Values,
    built_in,
    plain,
    read_setting,
    removing,
)
from ..core.settings.units import format_duration_ms, format_size_bytes
from ..core.settings.values import SettingError
from ..core.settings.wildcard import pattern_problem
from .checks import layer_problems, removal_problems, settings_warnings
from .cut import NO_FILE, Outline, outline
from .models import (
    AddressDeclaration,
    AmqpSection,
    AuditSection,
    BrokerSection,
    ConsoleSection,
    DeclaredUser,
    HttpSection,
    JournalSection,
    LimitsSection,
    Listener,
    LogSection,
    NativeSection,
    Network,
    PolicyDeclaration,
    PolicyName,
    QueueDeclaration,
    Section,
    ShareSection,
    StompSection,
    TlsSection,
    UserDeclaration,
    VirtualHostNames,
    is_loopback,
)
from .source import MAX_FILE_BYTES, TOO_LARGE, ConfigError, ConfigProblem, KeyPath, Source, read_source, show_path, shown

__all__ = ["Config", "ConfigError", "ConfigProblem", "check", "default_config", "load", "parse"]


class Config(Section):
    """Everything that is configured, validated. Immutable; a reload makes a new one."""

    native: NativeSection = NativeSection()
    #: None: nobody listens for AMQP.
    amqp: AmqpSection | None = None
    stomp: StompSection | None = None
    http: HttpSection | None = None
    console: ConsoleSection | None = None
    tls: TlsSection | None = None
    #: Whether there may be listeners without TLS beyond loopback.
    insecure: bool = False
    #: Absolute when it came from a file: relative paths are relative to the file.
    data_directory: Path = Path("homing-data")
    log: LogSection = LogSection()
    audit: AuditSection = AuditSection()
    broker: BrokerSection = BrokerSection()
    journal: JournalSection = JournalSection()
    limits: LimitsSection = LimitsSection()
    #: User, or ``*``, -> what all connections of one may have together; the same for networks that connections come from.
    user_limits: dict[str, ShareSection] = Field(default_factory=dict)
    peer_limits: dict[Network, ShareSection] = Field(default_factory=dict)
    address_settings: AddressSettingsRepository = Field(default_factory=lambda: AddressSettingsRepository({}))
    addresses: dict[str, AddressDeclaration] = Field(default_factory=dict)
    queues: dict[str, QueueDeclaration] = Field(default_factory=dict)
    #: AMQP's, besides ``/``.
    virtual_hosts: VirtualHostNames = ()
    policies: dict[PolicyName, PolicyDeclaration] = Field(default_factory=dict)
    #: Besides those that commands made. Neither: everybody is anonymous.
    users: dict[str, DeclaredUser] = Field(default_factory=dict)

    _lines: Mapping[KeyPath, int] = PrivateAttr(default_factory=dict)
    _doubts: Sequence[ConfigProblem] = PrivateAttr(default=())
    _source_path: Path | None = PrivateAttr(default=None)
    #: What the file sets at all, and how it ends: see config_cut.
    _outline: Outline = PrivateAttr(default=NO_FILE)
    _data_given: bool = PrivateAttr(default=False)
    _removing: tuple[ConfigProblem, ...] = PrivateAttr(default=())

    @property
    def source_path(self) -> Path | None:
        """The file it was loaded from, which a reload reads again; None without one."""
        return self._source_path

    @property
    def data_given(self) -> bool:
        """Whether the data directory was named beside the file, which does not count then."""
        return self._data_given

    @property
    def removing(self) -> tuple[ConfigProblem, ...]:
        """Values of the file that would remove every message, and do not hold."""
        return self._removing

    @property
    def doubts(self) -> Sequence[ConfigProblem]:
        """What its text has that is valid but perhaps not meant."""
        return self._doubts

    @property
    def log_file(self) -> Path | None:
        """Absolute; None: standard error."""
        return self._beside(self.log.file)

    @property
    def audit_file(self) -> Path | None:
        """Absolute; None: none of its own."""
        return self._beside(self.audit.file)

    def _beside(self, name: str | None) -> Path | None:
        if name is None:
            return None
        return self.directory / name

    @property
    def directory(self) -> Path:
        """What names of files in it are relative to."""
        return self._source_path.parent if self._source_path is not None else Path.cwd()

    def with_data(self, directory: Path) -> Config:
        """A copy whose journal is in another place than the file says."""
        config = self.model_copy(update={"data_directory": directory.absolute()})
        config._data_given = True
        return config

    def listeners(self) -> dict[str, Listener]:
        """Of each protocol that is spoken, by its name."""
        sections = {"native": self.native, "amqp": self.amqp, "stomp": self.stomp, "http": self.http}
        return {name: section for name, section in sections.items() if section is not None}

    def beyond_loopback(self) -> list[str]:
        """Listeners whose clients log in and may come from other machines, such as ``native-tls``."""
        console = {} if self.console is None else {"console": self.console}
        return [
            name
            for protocol, section in (self.listeners() | console).items()
            for name, host, port in ((protocol, section.host, section.port), (f"{protocol}-tls", section.tls_host, section.tls_port))
            if protocol != "http" and port is not None and not is_loopback(host) and (self.tls is not None or name == protocol)
        ]

    def settings_repository(self) -> AddressSettingsRepository:
        """The address settings; ``explain`` names the line of each value."""
        return self.address_settings

    def line_of(self, *path: str) -> int | None:
        """The 1-based line that sets ``path`` (YAML keys), or None where the file leaves it to its default."""
        return self._lines.get(path)

    def names(self, section: str) -> bool:
        """Whether its file does: what is there without having been asked for need not work out."""
        return self.line_of(section) is not None

    def describe(self, in_force: AddressSettingsRepository | None = None) -> dict[str, Any]:
        """Everything as plain values under field names, which carry the units. Hashes are left out.

        ``in_force``: the address settings, where others than those of the file hold.
        """
        values = self.model_dump(exclude={"address_settings", "users", "data_directory"})
        layers = {
            pattern: {name: plain(value) for name, value in layer.items()}
            for pattern, layer in (in_force or self.address_settings).layers.items()
        }
        return {**values, "data_directory": str(self.data_directory), "address_settings": layers, "users": sorted(self.users)}

    def journal_settings(self, in_force: AddressSettingsRepository | None = None) -> dict[str, Any]:
        """For the journal's table of settings in force: pattern -> {setting: value}, broker-wide ones under ``""``."""
        described = self.describe(in_force)
        layers = described.pop("address_settings")
        return {"": {**described, "default_address_settings": built_in()}, **layers}


#: Of a file, at the top.
_KEYS: Final = frozenset(field.alias or name for name, field in Config.model_fields.items())


def load(path: Path, *, insecure: bool = False, only: Collection[str] = ()) -> Config:
    """The configuration in the file ``path``. Raises ConfigError (``config-not-found``, ``config-invalid``).

    ``insecure``: as if the file said so. ``only``: sections, besides which nothing is read; what is no section at all is refused still.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError([TOO_LARGE], str(path))
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        problem = ConfigProblem(
            "", None, "there is no such file", "name the file with --config, or start from the broker.yaml that is shipped"
        )
        raise ConfigError([problem], str(path), "config-not-found") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([ConfigProblem("", line, "this is not UTF-8 text", "save the file as UTF-8")], str(path)) from None
    except OSError as error:
        raise ConfigError(
            [ConfigProblem("", None, f"it cannot be read ({error.strerror})", "check the file's permissions")], str(path)
        ) from None
    config = parse(text, path.absolute().parent, str(path), insecure=insecure, only=only)
    config._source_path = path.absolute()
    return config


def parse(
    text: str, directory: Path | None = None, source: str = "broker.yaml", *, insecure: bool = False, only: Collection[str] = ()
) -> Config:
    """The configuration that ``text`` says. Relative paths are taken from ``directory``, where given; ``insecure``, ``only``: see ``load``.

    Raises ConfigError with every problem that was found.
    """
    read = read_source(text, source)
    # A section with nothing in it, or with comments only, is one that sets nothing.
    left_out = _KEYS.difference(only) if only else ()
    values = {key: value for key, value in read.values.items() if value is not None and key not in left_out}
    problems = list(read.problems)
    repository = _address_settings(values.pop("address-settings", {}), read, problems)
    users = values.get("users")
    if isinstance(values.get("queues"), dict):
        values["queues"] = _queues(values["queues"], read, problems)
    if isinstance(values.get("addresses"), dict):
        values["addresses"] = {name: {} if value is None else value for name, value in values["addresses"].items()}
    if insecure:
        values["insecure"] = True
    values["data-directory"] = _data_directory(values.get("data-directory", "homing-data"), directory, read, problems)
    config: Config | None = None
    try:
        config = Config.model_validate({**values, "address-settings": repository})
        if config.tls is not None and directory is not None:
            config = config.model_copy(update={"tls": config.tls.under(directory.absolute())})
        problems += _listener_problems(config, read)
    except ValidationError as error:
        problems += _validation_problems(error, read)
    if problems or config is None:
        raise ConfigError(_without_secrets(sorted(problems, key=lambda each: each.line or 0), users), source)
    config._lines, config._doubts = read.lines, read.doubts
    config._removing = tuple(removal_problems(repository, read.lines, config.queues))
    for name, declared in config.queues.items():
        if not repository.resolve(declared.address or name).allow_remove_all:
            for setting in removing(declared.settings):
                del declared.settings[setting]
    config._outline = outline(text, read.values)
    return config


def _listener_problems(config: Config, read: Source) -> list[ConfigProblem]:
    """Listeners without TLS beyond loopback, where passwords and messages would be in the clear; HTTP has only its probes there."""
    problems = []
    for name, section in config.listeners().items():
        if name != "http" and not config.insecure and section.port is not None and not is_loopback(section.host):
            message = f"expected a loopback address where there is no TLS (127.0.0.1, ::1 or localhost), got {shown(section.host)}"
            fix = (
                f"listen there with TLS: tls: and {name}.tls-host; or, for passwords and messages in the clear, insecure: true (--insecure)"
            )
            problems.append(_problem(read, (name, "host"), message, fix))
    return problems


def default_config(directory: Path | None = None) -> Config:
    """What holds when no file is given: the values of the shipped broker.yaml. ``directory`` as for ``parse``."""
    data = Path("homing-data")
    return Config.model_validate(
        {
            "data-directory": directory.absolute() / data if directory else data,
            "amqp": AmqpSection(),
            "stomp": StompSection(),
            "http": HttpSection(),
            "console": ConsoleSection(),
        }
    )


def without_removing(config: Config) -> Config:
    """The configuration as somebody may write it now. Raises ConfigError: it has values that would remove every message."""
    if config.removing:
        raise ConfigError(config.removing, str(config.source_path))
    return config


def check(config: Config | Path) -> list[str]:
    """What is valid but perhaps not meant, a sentence each, with line and path. A path is loaded first: raises ConfigError."""
    loaded = load(config) if isinstance(config, Path) else config
    found = [*loaded.doubts, *settings_warnings(loaded.address_settings, loaded._lines, loaded.queues)]
    return [f"{warning} ({warning.fix})" for warning in found]


def _address_settings(layers: object, read: Source, problems: list[ConfigProblem]) -> AddressSettingsRepository:
    """The repository of everything in the section that can be read; the rest becomes problems."""
    root = "address-settings"
    kept: dict[str, Values] = {}
    if not isinstance(layers, dict):
        problems.append(
            _problem(
                read, (root,), f"expected a mapping from pattern to settings, got {shown(layers)}", 'write "#": {redelivery-delay: 5s}'
            )
        )
        layers = {}
    for pattern, layer in layers.items():
        if wrong := pattern_problem(pattern):
            problems.append(_problem(read, (root, pattern), wrong, "see docs/settings.md, patterns"))
        elif layer is not None and not isinstance(layer, dict):
            problems.append(
                _problem(read, (root, pattern), f"expected a mapping of settings, got {shown(layer)}", "write {redelivery-delay: 5s}")
            )
        elif layer:
            kept[pattern] = _settings(layer, (root, pattern), frozenset(FIELD_OF_KEY.values()), read, problems)
    lines = {path[1:]: line for path, line in read.lines.items() if len(path) == 3 and path[0] == root}
    repository = AddressSettingsRepository(kept, {(pattern, key): line for (pattern, key), line in lines.items()})
    problems += layer_problems(repository, read.lines)
    return repository


def _settings(values: Layer, path: KeyPath, allowed: frozenset[str], read: Source, problems: list[ConfigProblem]) -> Values:
    """Field name -> value of what can be read. Only YAML's keys are taken, so that each setting has one name in a file."""
    found: Values = {}
    for key, value in values.items():
        field = FIELD_OF_KEY.get(key)
        if field is not None and field not in allowed:
            known = ", ".join(sorted(KEY_OF_FIELD[each] for each in allowed))
            problems.append(
                _problem(
                    read, (*path, key), "a queue cannot be declared with this setting", f"set it for its address; a queue takes {known}"
                )
            )
            continue
        try:
            if field is None and key in KEY_OF_FIELD:
                raise SettingError(key, value, "a setting of addresses", f"write {KEY_OF_FIELD[key]}")
            name, found_value = read_setting(key, value)
            found[name] = found_value
        except SettingError as error:
            message = f"expected {error.expected}, got {shown(error.value)}" if field else "there is no such setting"
            problems.append(_problem(read, (*path, key), message, error.fix or "docs/settings.md says what it takes"))
    return found


_QUEUE_KEYS: Final = frozenset({"address", "routing-type", "selector", "durable", "exclusive", "max-consumers"})


def _queues(queues: Mapping[str, object], read: Source, problems: list[ConfigProblem]) -> dict[str, object]:
    """Each queue's own keys as they are, its settings read and put into ``settings``."""
    split: dict[str, object] = {}
    for name, declared in queues.items():
        if declared is None:
            split[name] = {}
        elif not isinstance(declared, dict):
            split[name] = declared
        else:
            others = {key: value for key, value in declared.items() if key not in _QUEUE_KEYS}
            own = {key: value for key, value in declared.items() if key in _QUEUE_KEYS}
            split[name] = {**own, "settings": _settings(others, ("queues", name), DECLARABLE_SETTINGS, read, problems)}
    return split


def _data_directory(value: object, directory: Path | None, read: Source, problems: list[ConfigProblem]) -> Path:
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        problems.append(
            _problem(
                read, ("data-directory",), f"expected a directory, got {shown(value)}", "write a path; a relative one starts at this file"
            )
        )
        return Path("homing-data")
    path = Path(value).expanduser()
    return directory.absolute() / path if directory is not None else path


def _problem(read: Source, path: KeyPath, message: str, fix: str) -> ConfigProblem:
    line = next((read.lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in read.lines), None)
    return ConfigProblem(show_path(path), line, message, fix)


#: pydantic's kinds of error in our words.
_EXPECTED: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text (put it in quotes)",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list in brackets",
}


def _validation_problems(error: ValidationError, read: Source) -> list[ConfigProblem]:
    problems = []
    for each in error.errors(include_url=False):
        path = tuple(str(part) for part in each["loc"])
        kind, text, context = each["type"], each["msg"], each.get("ctx", {})
        fix = "docs/settings.md lists every setting and what it takes"
        if kind == "extra_forbidden":
            problems.append(_problem(read, path, "there is no such setting", _near(path) or fix))
            continue
        if kind == "missing":
            problems.append(_problem(read, path, "it is missing", fix))
            continue
        if kind == "value_error":
            text, _, own_fix = text.removeprefix("Value error, ").partition("\n")
            fix = own_fix or fix
        elif kind in ("greater_than_equal", "less_than_equal"):
            side, bound = ("least", context["ge"]) if "ge" in context else ("most", context["le"])
            text = f"expected at {side} {_with_unit(path, bound)}"
        else:
            text = "expected " + _EXPECTED.get(kind, text.removeprefix("Input should be "))
        whole_section = kind == "value_error" and isinstance(each["input"], dict)
        problems.append(_problem(read, path, text if whole_section else f"{text}, got {shown(_written(read, path, each['input']))}", fix))
    return problems


def _written(read: Source, path: KeyPath, otherwise: object) -> object:
    """The value as the file has it, before units were read."""
    value: object = read.values
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return otherwise
        value = value[part]
    return value


def _with_unit(path: KeyPath, bound: Any) -> str:
    """A bound as the file would say it: 100 of a duration is 100ms."""
    section = SECTIONS.get(path[0])
    fields = section.model_fields.items() if section else ()
    name = next((name for name, field in fields if field.alias == path[-1]), "")
    if name.endswith("_ms"):
        return format_duration_ms(bound)
    return format_size_bytes(bound) if name.endswith("_bytes") else str(bound)


SECTIONS: Final[Mapping[str, type[Section]]] = {
    "native": NativeSection,
    "amqp": AmqpSection,
    "stomp": StompSection,
    "http": HttpSection,
    "console": ConsoleSection,
    "tls": TlsSection,
    "audit": AuditSection,
    "log": LogSection,
    "broker": BrokerSection,
    "journal": JournalSection,
    "limits": LimitsSection,
    "policies": PolicyDeclaration,
    "users": UserDeclaration,
}


def _near(path: KeyPath) -> str:
    """A hint for a key that is nearly one, or stands in the wrong place."""
    from difflib import get_close_matches

    sections: dict[str, type[Section]] = {"": Config, **SECTIONS}
    section = sections.get(path[0] if len(path) > 1 else "")
    keys = [field.alias or name for name, field in section.model_fields.items()] if section else sorted(_QUEUE_KEYS)
    if close := get_close_matches(path[-1].replace("_", "-"), keys, n=2, cutoff=0.6):
        return f"did you mean {' or '.join(close)}?"
    homes = [name for name, other in sections.items() if name and path[-1] in {field.alias for field in other.model_fields.values()}]
    return f"it belongs under {homes[0]}:" if homes else f"the settings here are {', '.join(keys)}"


def _without_secrets(problems: list[ConfigProblem], users: object) -> list[ConfigProblem]:
    """Errors under users: never repeat the value, which may be a password."""
    return [
        each._replace(message=each.message.split(", got ")[0]) if each.path.startswith("users") and users is not None else each
        for each in problems
    ]
