"""The shape of the house, checked from the source: who may import whom, and how big a file or function may grow."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from homing.broker.auth import access
from homing.broker.broker import Broker
from homing.broker.management.calls import VERBS
from tests.model.world import World

ROOT = Path(__file__).parent.parent
PACKAGES = ("analytics", "broker", "client", "journal")
COMPILED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["homing"]["compiled"]
FILES = sorted(
    [
        *(ROOT / "homing").glob("*.py"),
        *(ROOT / "homing" / "testing").glob("*.py"),
        *(ROOT / "homing" / "integrations").rglob("*.py"),
        *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
    ]
)
TEXTS = sorted([*FILES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").glob("*")])

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70

_CONTRACT = {"journal/contract", "journal/declarations"}
_RECORDS = _CONTRACT | {"journal/errors", "journal/fingerprint", "journal/options"}
#: Which rooms a room may look into, besides itself. A room is a folder with all that is below it, or a file beside the folders; the
#: longest name that fits counts. Each sees those below it, never beside or above: process -> protocols, management -> the Broker's verbs ->
#: delivery -> topology -> entries -> recording -> core, and the journal's contract.
ALLOWED: dict[str, set[str]] = {
    "homing": {"client"},
    "__main__": {"broker/cli"},
    # Runs in the environments of others.
    "integrations": set(),
    "testing": {"broker/clock", "broker/config", "broker/core", "broker/process", "homing"},
    "broker/core": set(_CONTRACT),
    "broker/errors": set(),
    "broker/clock": set(),
    "broker/steps": set(),
    "broker/step_times": {"broker/core", "broker/steps"},
    "broker/long_work": {"broker/steps"},
    "broker/shares": {"broker/errors"},
    "broker/properties": {"broker/errors", "journal/properties"},
    "broker/connection": {"broker/core", "broker/shares"},
    "broker/config": {"broker/core", "broker/shares", "journal/declarations"},
    "broker/logs": {"broker/config", "broker/errors", "broker/words"},
    "broker/tls": {"broker/config", "broker/errors"},
    "broker/auth": {"broker/answers", "broker/core", "broker/errors", "broker/logs", "journal/declarations"},
    "broker/recording": {
        *("broker/core", "broker/properties", "journal/commit", "journal/contract", "journal/fingerprint"),
        "journal/read",
    },
    "broker/entries": {
        *("broker/core", "broker/errors", "broker/properties", "broker/recording", "broker/steps", "journal/commit", "journal/fingerprint"),
        *("journal/read", *_CONTRACT),
    },
    "broker/topology": {
        *(
            "broker/auth",
            "broker/config",
            "broker/connection",
            "broker/core",
            "broker/entries",
            "broker/errors",
            "broker/recording",
            "broker/steps",
            "codec",
        ),
        *_CONTRACT,
    },
    "broker/delivery": {
        *("broker/auth", "broker/config", "broker/connection", "broker/core", "broker/entries", "broker/errors", "broker/long_work"),
        *("broker/properties", "broker/recording", "broker/shares", "broker/steps", "broker/topology", *_CONTRACT),
    },
    "broker/broker": {
        *("broker/auth", "broker/config", "broker/core", "broker/delivery", "broker/entries", "broker/long_work", "broker/recording"),
        *("broker/step_times", "broker/topology"),
    },
    "codec": set(),
    "broker/protocols": {
        *("broker/broker", "broker/connection", "broker/core", "broker/errors", "broker/logs", "broker/properties", "broker/shares"),
        *("broker/steps", "broker/topology", "codec", "journal/declarations"),
    },
    "broker/management": {
        *(
            "broker/answers",
            "broker/auth",
            "broker/broker",
            "broker/config",
            "broker/connection",
            "broker/core",
            "broker/delivery",
            "broker/errors",
            "broker/steps",
        ),
        "broker/topology",
        *_CONTRACT,
    },
    "broker/http": {
        "broker/answers",
        "broker/auth",
        "broker/broker",
        "broker/core",
        "broker/errors",
        "broker/management",
        "broker/steps",
        "codec",
    },
    "broker/from_activemq": {"broker/auth", "broker/errors"},
    "broker/process": {
        *(
            "broker",
            "broker/answers",
            "broker/auth",
            "broker/broker",
            "broker/clock",
            "broker/config",
            "broker/connection",
            "broker/core",
            "broker/delivery",
        ),
        *("broker/entries", "broker/errors", "broker/http", "broker/logs", "broker/long_work", "broker/management"),
        *(
            "broker/protocols",
            "broker/recording",
            "broker/shares",
            "broker/step_times",
            "broker/steps",
            "broker/tls",
            "broker/topology",
            "broker/words",
            "codec",
        ),
        *_CONTRACT,
        *("journal", "journal/backup", "journal/errors", "journal/export", "journal/migrations", "journal/options", "journal/read"),
        *("journal/replication", "journal/store"),
    },
    # What management writes and its readers read.
    "broker/answers": set(),
    # Of the client what applies a patch to a body, which is pure.
    "broker/words": {"broker/answers", "broker/core", "client", "codec", "journal/json_text"},
    # A client like any other, and no part of the broker.
    "broker/console": {"broker/answers", "broker/words", "client", "homing", "journal/json_text"},
    "broker/cli": {
        *("analytics", "broker", "broker/answers", "broker/auth", "broker/config", "broker/console", "broker/core"),
        *("broker/from_activemq", "broker/process"),
        *("broker/properties", "broker/tls", "broker/words", "client", "homing"),
        *("journal/backup", "journal/export", "journal/json_text", "journal/read", "journal/replication"),
    },
    "broker": set(),
    "broker/__main__": {"broker/cli"},
    "client": {"codec"},
    "journal/contract": {"journal/declarations", "journal/properties"},
    "journal/declarations": {"journal/properties"},
    "journal/properties": set(),
    "journal/fingerprint": set(),
    "journal/json_text": set(),
    "journal/errors": set(),
    "journal/apart": set(),
    "journal/options": set(),
    "journal/store": _RECORDS,
    "journal/migrations": {"journal/errors", "journal/fingerprint", "journal/store"},
    "journal/upkeep": _RECORDS | {"journal/commit", "journal/store"},
    "journal/commit": _RECORDS | {"journal/backup", "journal/store", "journal/upkeep"},
    "journal/read": _RECORDS | {"journal/apart", "journal/commit", "journal/migrations", "journal/store", "journal/upkeep"},
    "journal/backup": _RECORDS | {"journal/apart", "journal/commit", "journal/migrations", "journal/read", "journal/store"},
    "journal/export": _RECORDS
    | {"journal/json_text", "journal/apart", "journal/commit", "journal/read", "journal/store", "journal/upkeep"},
    "journal/replication": _RECORDS | {"journal/commit"},
    "journal": _RECORDS
    | {"journal/backup", "journal/commit", "journal/migrations", "journal/read", "journal/replication", "journal/store", "journal/upkeep"},
    "analytics": set(),
}

#: broker/core gets time and randomness as arguments and does no input or output.
IMPURE = {
    *("asyncio", "concurrent", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "secrets", "select"),
    *("shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "uuid", "uvloop", "aiosqlite"),
}

#: What ``import homing`` must not bring along: scripts that only send start fast and install little.
HEAVY = ("aiosqlite", "argon2", "jinja2", "lark", "opentelemetry", "pyarrow", "pydantic", "pyspark", "rich", "ruamel", "typer", "uvloop")


#: What other files may reach of a class's private attributes: of the public Message and Session what no program is to see, and what
#: libraries have no public name for.
SHARED_PRIVATE: dict[str, set[str]] = {
    "client": {"_end", "_scope", "_settlement", "_state", "_tag"},
    "broker/config": {"_outline"},
    "broker/process/shutdown": {"_exit"},
    "broker/process/export_child": {"_exit"},
    "journal/store": {"_STOP_RUNNING_SENTINEL", "_thread"},
    "testing": {"_selector"},
    "homing/integrations": {"_RabbitmqConsumer", "_tag", "_basic_publish", "_impl", "_on_socket_writable", "_transport"},
    "analytics": {"_gateway", "_jsc", "_jsparkSession", "_jvm"},
}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


def module_of(path: Path) -> str:
    """A folder's name is its import name behind ``homing``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "homing" else ("homing", *parts)).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room a module of ours stands in."""
    parts = module.split(".")[1:]
    if parts[:2] == ["broker", "protocols"] and parts[-1].startswith("codec"):
        return "codec"
    names = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in ALLOWED), "homing")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import in a file, also those inside functions."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield node.lineno, inner if is_ours_module(inner) else module


def is_ours_module(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_imports_run_one_way() -> None:
    wrong: list[str] = []
    for path in FILES:
        room = room_of(module_of(path))
        for line, module in imports_of(path):
            other = room_of(module) if module.split(".")[0] == "homing" else room
            if other != room and other not in ALLOWED[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} ({room}) imports {module} ({other})")
    assert not wrong, "\n".join(wrong)


def test_no_room_of_the_broker_sees_one_that_sees_it() -> None:
    rooms = {room: {other for other in seen if other.startswith("broker")} for room, seen in ALLOWED.items() if room.startswith("broker")}
    while ground := {room for room, seen in rooms.items() if not seen & rooms.keys()}:
        rooms = {room: seen for room, seen in rooms.items() if room not in ground}
    assert not rooms, f"these stand on one another: {sorted(rooms)}"


def test_rules_are_of_what_rooms_do_see() -> None:
    """A rule that nobody needs would let somebody in who is not meant to be there."""
    seen = {room: set[str]() for room in ALLOWED}
    for path in FILES:
        seen[room_of(module_of(path))].update(room_of(module) for _, module in imports_of(path) if module.split(".")[0] == "homing")
    unneeded = {room: sorted(ALLOWED[room] - others) for room, others in seen.items() if room.startswith("broker")}
    assert not {room: others for room, others in unneeded.items() if others}


#: Of what front ends call, what asks for no right, by why: all that a service has, or single calls.
FREE: dict[str, str] = {
    "the login was checked": "connections.connect connections.disconnect",
    "of a producer that was opened, or a route that was worked out": "flow intake duplicate_ids producers.open_sender producers.close",
    "of a consumer that was let in": "consumers settlement failing settling settled_reports dispatcher gets.check gets.may_answer"
    " gets.when_read",
    "of what was asked for before": "transactions removal.consumers_gone removal.delete_exclusive declared_queues.find"
    " declared_queues.check_delete declared_queues.check_reply_queue declared_queues.read_consumer_arguments resources.make_topic"
    " resources.read_selector",
    "of time, turns and the disk": "journal memory now_ms ready step_times throttle work in_force.alone",
    "answers to a front end, which asks before it shows them": "access by_number commanded counting explanations post_office statistics"
    " declared_queues.all_consumers fault_groups faults.shown_to faults.with_places"
    " faults.of in_force.of in_force.would_hold policies.all redriving.with_places virtual_hosts.list_exchanges virtual_hosts.bindings_of"
    " virtual_hosts.names virtual_hosts.exchanges_of hand.in_the_way editing.signatures_of",
}
#: A service of the broker, where it is taken.
_PART = re.compile(r"(?:^|[._])broker\.(\w+)$")
CALLS = (ROOT / "docs" / "architecture.md").read_text().partition("## What a front end may call")[2].partition("\n## ")[0]


def services() -> dict[str, set[str]]:
    """What a front end may ask of a part of the broker, by its name: docs/architecture.md says it, for some in one row."""
    table = CALLS.partition("| service |")[2].partition("\n\n")[0]
    found: dict[str, set[str]] = {}
    for _, names, said, _ in (row.split("|") for row in table.splitlines() if row.startswith("| `")):
        parts = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names))
        each = said.split(";") if len(parts) > 1 else [said]
        found |= {name: set(re.findall(r"`(\w+)`", text)) for name, text in zip(parts, each, strict=len(parts) == len(each))}
    return found


def asked_of(path: Path, parts: Container[str]) -> tuple[set[str], set[tuple[str, str]]]:
    """What a front end's file takes of the broker, and what it calls there: (service, call), also where it has made a service its own."""
    taken, called, own = set[str](), set[tuple[str, str]](), dict[str, str]()
    for node in nodes(path):
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
            own |= {ast.unparse(to): found[1] for to, value in pairs if (found := _PART.search(ast.unparse(value)))}
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner.split(".")[-1] in ("broker", "_broker"):
                taken.add(node.attr)
            found = _PART.search(owner)
            part = found[1] if found else own.get(owner, "")
            if part in parts:
                called.add((part, node.attr))
    return taken, called


def test_front_ends_call_the_services_of_the_page_and_nothing_behind_them() -> None:
    parts, called = services(), set[tuple[str, str]]()
    for path in [path for room in ("protocols", "management", "http") for path in (ROOT / "broker" / room).rglob("*.py")]:
        taken, more = asked_of(path, [name for name, calls in parts.items() if calls])
        called |= more
        assert taken <= parts.keys(), f"{path.relative_to(ROOT)} takes {sorted(taken - parts.keys())}"
    said = {(name, each) for name, calls in parts.items() for each in calls}
    assert said - called == set(), "said on the page, and called by nobody"
    assert called - said == set(), "a front end calls what the page does not say"


@pytest.mark.plain
def test_the_record_of_services_is_what_the_page_says_and_holds_what_it_says() -> None:
    text = (ROOT / "broker" / "broker.py").read_text().partition("# -- what front ends call")[2].partition("# -- what stands behind it")[0]
    assert sorted(re.findall(r"^    (\w+): ", text, re.MULTILINE)) == sorted(services())
    # Compiled, the record checks it by itself, and its hints are no classes.
    broker, kinds = World({}).broker, get_type_hints(Broker).items()
    classes = {name: kind for name, kind in kinds if isinstance(kind, type) and not getattr(kind, "_is_protocol", False)}
    assert not [name for name, kind in classes.items() if not isinstance(getattr(broker, name), kind)]


def test_whatever_a_front_end_calls_says_which_right_it_asks_for_or_why_it_asks_for_none() -> None:
    broker, free = World({}).broker, {name for names in FREE.values() for name in names.split()}
    parts = services()
    for name, call in [(name, call) for name, calls in parts.items() for call in calls]:
        verb = getattr(getattr(broker, name), call)
        asks = not callable(verb) or access.declared(verb) is not None
        assert asks or name in free or f"{name}.{call}" in free, f"{name}.{call} asks for no right, and nobody says why"
        assert not (asks and f"{name}.{call}" in free), f"{name}.{call} asks for a right"
    assert free <= parts.keys() | {f"{name}.{call}" for name, calls in parts.items() for call in calls}
    for verb, handler in VERBS.items():
        found = access.declared(handler)
        assert found is not None, verb
        assert f"`{verb}`" in (ROOT / "docs" / "security.md").read_text(), verb
        assert f'"{verb}"' in (ROOT / "tests" / "integration" / "test_rights.py").read_text(), f"{verb} is tried with no right"


def test_nothing_of_ours_is_imported_by_a_name_that_others_may_have() -> None:
    """``import client`` would find a user's own client.py; the four folders are imported as ``homing.…`` alone, within one by relation."""
    wrong: list[str] = []
    for path in [file for file in TEXTS if file.suffix == ".py"]:
        inside = path.relative_to(ROOT).parts[0]
        for node in nodes(path):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                from_outside = path.name in ("__main__.py", "job.py")
                if name.split(".")[0] in PACKAGES or (name.startswith(f"homing.{inside}.") and not from_outside):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_folders_stand_at_the_top_and_are_linked_where_their_names_are() -> None:
    assert {path.name: str(path.readlink()) for path in (ROOT / "homing").iterdir() if path.is_symlink()} == {
        name: f"../{name}" for name in PACKAGES
    }


def test_what_is_to_be_compiled_exists() -> None:
    assert [path for path in COMPILED if not (ROOT / path).is_file()] == []


def test_imports_go_round_only_among_the_four_nouns_of_the_core() -> None:
    """Message, consumer, queue with its suspects, and pending speak of one another, but for the queue in types alone."""
    imported = {module_of(path): {name for _, name in imports_of(path)} for path in FILES}
    left = {name: others & imported.keys() - {name} for name, others in imported.items()}
    while done := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in done}
    while done := {name for name in left if not any(name in others for others in left.values())}:
        left = {name: others for name, others in left.items() if name not in done}
    assert sorted(left) == [f"homing.broker.core.{noun}" for noun in ("consumer", "message", "pending", "queue", "suspects")]


def test_every_room_has_rules() -> None:
    rooms = {room_of(module_of(path)) for path in FILES}
    assert rooms <= set(ALLOWED)
    assert set(ALLOWED) - rooms == set(), "a rule for a room that is not there"


def test_the_core_is_pure() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sorted((ROOT / "broker" / "core").rglob("*.py"))
        for line, module in imports_of(path)
        if module.split(".")[0] in IMPURE
    ]
    assert not wrong, "\n".join(wrong)


def test_what_runs_in_the_environments_of_others_needs_no_more_than_python_3_9() -> None:
    """Beside the libraries that the program has imported by then."""
    allowed = sys.stdlib_module_names | {"aiormq", "amqp", "billiard", "celery", "dramatiq", "faststream", "pamqp", "pika", "taskiq"}
    for path in [*(ROOT / "homing" / "integrations").rglob("*.py"), *(ROOT / "tests" / "instrumented" / "programs").glob("*.py")]:
        ast.parse(path.read_text(), feature_version=(3, 9))
        if path.is_relative_to(ROOT / "homing"):
            names = {module.split(".")[0] for _, module in imports_of(path)} - {"homing"}
            assert names <= allowed, f"{path.name} imports {names - allowed}"


def test_the_core_takes_its_randomness_as_an_argument() -> None:
    calls = re.compile(r"\brandom\.(?!Random\b)\w+|\bRandom\(")
    wrong = [path.name for path in (ROOT / "broker" / "core").rglob("*.py") if calls.search(path.read_text())]
    assert not wrong


def test_importing_the_client_is_light() -> None:
    program = f"import sys, homing; homing.connect; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


def test_files_and_functions_fit_the_eye() -> None:
    too_long: list[str] = []
    for path in [*(path for path in TEXTS if path.suffix == ".py"), *(ROOT / "benchmarks").rglob("*.py")]:
        name, lines = path.relative_to(ROOT), path.read_text().count("\n")
        if lines > MAX_FILE_LINES:
            too_long.append(f"{name} has {lines} lines")
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{name}:{node.lineno} {node.name} has {lines} lines")
    assert not too_long, "split by subject:\n" + "\n".join(too_long)


def test_nothing_is_left_for_later() -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
    left = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, "\n".join(left)


def test_what_can_be_compiled_does_not_catch_two_types_by_one_name() -> None:
    """mypyc gives a name one type in a function, that of its first ``except … as``, and raises TypeError in the second."""
    wrong = []
    for path, function in ((file, node) for file in COMPILED for node in nodes(ROOT / file)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            caught: dict[str, str] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    kind = ast.unparse(node.type)
                    if caught.setdefault(node.name, kind) != kind:
                        wrong.append(f"{path}:{node.lineno} {function.name} catches {kind} by the name of {caught[node.name]}")
    assert not wrong, "\n".join(wrong)


def test_a_compiled_verb_that_asks_for_a_right_can_be_asked_for_its_signature() -> None:
    """``needs`` reads it at import; of what mypyc has compiled with a default that is no plain value there is none."""
    verbs = [
        (path, verb)
        for path in COMPILED
        for verb in nodes(ROOT / path)
        if isinstance(verb, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(each, ast.Call) and ast.unparse(each.func) in ("needs", "needs_any") for each in verb.decorator_list)
    ]
    assert verbs
    defaults = [
        (path, verb.name, each) for path, verb in verbs for each in (*verb.args.defaults, *verb.args.kw_defaults) if each is not None
    ]
    assert not [f"{path} {name}: {ast.unparse(each)}" for path, name, each in defaults if not isinstance(each, ast.Constant)]


def test_private_attributes_are_left_alone() -> None:
    wrong: list[str] = []
    for path in FILES:
        name = str(path.relative_to(ROOT))
        reached, own = set[str](), {"_asdict", "_fields", "_make", "_replace"}
        for node in nodes(path):
            if isinstance(node, ast.Attribute):
                if re.match("_[^_]", node.attr):
                    reached.add(node.attr)
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    own.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                own.add(node.value)
        allowed = {each for room, names in SHARED_PRIVATE.items() if name.startswith(room) for each in names}
        wrong += [f"{name}: {each}" for each in sorted(reached - own - allowed)]
    assert not wrong, "\n".join(wrong)


def test_errors_that_docstrings_speak_of_exist() -> None:
    defined: set[str] = set()
    for node in (node for path in FILES for node in nodes(path)):
        if isinstance(node, ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            defined.update(alias.name for alias in node.names)
    texts = {path: " ".join(path.read_text().split()) for path in FILES}
    reported = {(path, name) for path, text in texts.items() for name in re.findall(r"\bRaises ([A-Z]\w*)", text)}
    assert len(reported) > 60
    assert not {f"{path}: {name}" for path, name in reported if name not in defined and not hasattr(builtins, name)}
