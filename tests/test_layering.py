"""The shape of the house, checked from the source: who may import whom, and how big a file or function may grow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("analytics", "broker", "client", "journal")
COMPILED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["homing"]["compiled"]
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TEXTS = sorted([*FILES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").glob("*")])

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

#: Which rooms a room may look into, besides itself. server -> transport, protocols, management -> broker -> core, journal.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "codec": set(),
    "journal": set(),
    "analytics": set(),
    "client": {"codec"},
    "config": {"core", "journal"},
    "broker": {"config", "core", "journal"},
    "protocols": {"broker", "codec", "config", "core"},
    "management": {"broker", "config", "core", "journal"},
    "transport": {"broker", "codec", "config", "core", "management", "protocols"},
    "server": {"broker", "codec", "config", "core", "journal", "management", "protocols", "transport"},
    "command line": {"analytics", "broker", "client", "codec", "config", "core", "journal", "server"},
}

#: broker/core gets time and randomness as arguments and does no input or output.
IMPURE = {
    *("asyncio", "concurrent", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "secrets", "select"),
    *("shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "uuid", "uvloop", "aiosqlite"),
}

#: What ``import client`` must not bring along: scripts that only send start fast and install little.
HEAVY = ("aiosqlite", "argon2", "jinja2", "lark", "pyarrow", "pydantic", "pyspark", "rich", "ruamel", "typer", "uvloop")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room a module of ours stands in."""
    parts = module.split(".")
    if parts[0] != "broker":
        return parts[0]
    if len(parts) == 1:
        return "broker"
    if parts[1] == "protocols":
        return "codec" if parts[-1].startswith("codec") else "protocols"
    if parts[1] == "__main__" or parts[1].startswith("cli"):
        return "command line"
    name = parts[1].split("_")[0]
    return name if name in ALLOWED else "broker"


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import in a file, also those inside functions."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
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
            if module.split(".")[0] not in PACKAGES:
                continue
            other = room_of(module)
            namespace_only = (ROOT.joinpath(*module.split(".")) / "__init__.py").is_file() and module in (
                "broker",
                "homing.broker.protocols",
            )
            if other != room and other not in ALLOWED[room] and not namespace_only:
                wrong.append(f"{path.relative_to(ROOT)}:{line} ({room}) imports {module} ({other})")
    assert not wrong, "\n".join(wrong)


def test_every_room_has_rules() -> None:
    rooms = {room_of(module_of(path)) for path in FILES}
    assert rooms <= set(ALLOWED)
    assert {"codec", "core", "journal"} <= rooms


def test_the_core_is_pure() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sorted((ROOT / "broker" / "core").rglob("*.py"))
        for line, module in imports_of(path)
        if module.split(".")[0] in IMPURE
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_takes_its_randomness_as_an_argument() -> None:
    calls = re.compile(r"\brandom\.(?!Random\b)\w+|\bRandom\(")
    wrong = [path.name for path in (ROOT / "broker" / "core").rglob("*.py") if calls.search(path.read_text())]
    assert not wrong


def test_importing_the_client_is_light() -> None:
    program = f"import sys, client; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_fit_the_eye(path: Path) -> None:
    text = path.read_text()
    too_long = [f"the file has {text.count(chr(10))} lines"] if text.count("\n") > MAX_FILE_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                too_long.append(f"line {node.lineno}: {node.name} has {lines} lines")
    assert not too_long, f"split {path.relative_to(ROOT)} by subject: {'; '.join(too_long)}"


def test_nothing_is_left_for_later() -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
    left = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, "\n".join(left)


@pytest.mark.parametrize("path", COMPILED)
def test_what_can_be_compiled_does_not_catch_two_types_by_one_name(path: str) -> None:
    """mypyc gives a name one type in a function, that of its first ``except … as``, and raises TypeError in the second."""
    wrong = []
    for function in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            caught: dict[str, str] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    kind = ast.unparse(node.type)
                    if caught.setdefault(node.name, kind) != kind:
                        wrong.append(f"{path}:{node.lineno} {function.name} catches {kind} by the name of {caught[node.name]}")
    assert not wrong, "\n".join(wrong)
