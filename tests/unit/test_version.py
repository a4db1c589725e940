"""The release stands once; builds say which commit they are of, and never claim to be a release that was not tagged."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from homing.broker import __version__
from homing.broker.version import RELEASE, commit
from tests.process import ROOT

NEEDED = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "broker/version.py")


def git(*words: str, cwd: Path) -> str:
    named = ("-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    return subprocess.run(["git", *named, *words], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def version_of(tree: Path) -> str:
    """What its setup.py hands over."""
    with patch("setuptools.setup") as made:
        runpy.run_path(str(tree / "setup.py"))
    return str(made.call_args.kwargs["version"])


def test_the_newest_entry_of_the_changelog_is_the_release() -> None:
    entries = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert entries[0] == RELEASE
    assert __version__.startswith(RELEASE)
    assert entries == sorted(entries, key=lambda each: tuple(map(int, each.split("."))), reverse=True)


def test_a_work_tree_builds_a_later_version_than_its_release_and_a_tag_the_release(tmp_path: Path) -> None:
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "homing").mkdir()
    (tmp_path / "homing" / "broker").symlink_to("../broker")
    assert version_of(tmp_path) == RELEASE, "nobody knows the commit"
    git("init", "--quiet", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("commit", "--quiet", "-m", "one", cwd=tmp_path)
    assert version_of(tmp_path) == f"{RELEASE}.post1"
    git("commit", "--quiet", "--allow-empty", "-m", "two", cwd=tmp_path)
    assert version_of(tmp_path) == f"{RELEASE}.post2"
    git("tag", f"v{RELEASE}", cwd=tmp_path)
    assert version_of(tmp_path) == RELEASE
    git("commit", "--quiet", "--allow-empty", "-m", "three", cwd=tmp_path)
    assert version_of(tmp_path) == f"{RELEASE}.post1"
    # Who packs sources says what they are; a repository around them has no say.
    (tmp_path / "homing" / "broker" / "build.json").write_text(json.dumps({"version": "1.2.3", "commit": "abc"}))
    assert version_of(tmp_path) == "1.2.3"
    said = subprocess.run([sys.executable, "setup.py", "--quiet", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "1.2.3"


@pytest.mark.plain
def test_a_work_tree_names_its_commit() -> None:
    assert commit() == (git("rev-parse", "HEAD", cwd=ROOT) if (ROOT / ".git").exists() else "unknown")
