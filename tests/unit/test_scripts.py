"""scripts/setup: what it needs it says, what it did it does not do again. With a pretended Python, so nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT

#: Answers questions as the real one would, makes a virtual environment out of itself, and writes down what it was asked to install.
PRETENDED_PYTHON = """\
#!/usr/bin/env bash
if [ "${{1:-}}" = -c ] && [[ "${{2:-}}" == *ensurepip* ]] && [ -n "${{NO_VENV:-}}" ]; then exit 1; fi
if [ "${{1:-}}" = -m ] && [ "${{2:-}}" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit; fi
if [ "${{1:-}}" = -m ]; then echo "$@" >>"{log}"; exit; fi
exec "{real}" "$@"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(PRETENDED_PYTHON.format(log=tmp_path / "asked", real=sys.executable))
    python.chmod(0o755)
    return tmp_path


def setup(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs it with next to no environment: no HOME, no terminal."""
    return subprocess.run(
        [project / "scripts" / "setup"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(project / "python"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def asked(project: Path) -> list[str]:
    log = project / "asked"
    return log.read_text().splitlines() if log.exists() else []


def test_it_installs_the_lock_with_hashes_once(project: Path) -> None:
    first = setup(project)
    assert first.returncode == 0, first.stderr
    packages, itself, libraries, bytecode = asked(project)
    assert packages.endswith("--require-hashes -r requirements.lock")
    assert itself.endswith("--no-deps --no-build-isolation --editable .")
    second = setup(project)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    # Bytecode each time: sources change in between.
    assert asked(project) == [packages, itself, libraries, bytecode, bytecode]
    assert bytecode == "-m compileall -q analytics broker client homing journal"


def test_a_changed_lock_is_installed(project: Path) -> None:
    setup(project)
    with (project / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert setup(project).returncode == 0
    assert len(asked(project)) == 8


def test_without_venv_it_says_the_one_command_that_adds_it(project: Path) -> None:
    done = setup(project, NO_VENV="1")
    assert done.returncode == 1
    assert "venv" in done.stderr
    assert [line.strip().split()[0] for line in done.stderr.splitlines() if line.startswith("    ")] == ["sudo"]
    assert not (project / ".venv").exists()


def test_every_version_is_locked_with_its_hashes() -> None:
    entries = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0].isalpha()]
    assert len(entries) > 30
    assert all("==" in line and line.endswith("\\") for line in entries)
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_the_continuous_check_is_the_test_script() -> None:
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'exec "$(dirname "${BASH_SOURCE[0]}")/../scripts/test" "$@" </dev/null']
