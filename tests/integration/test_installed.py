"""The wheel, installed, in a folder whose files have the names of our folders: nothing of ours is imported by a name that others have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.analytics.sample import write_sample
from homing.broker.version import RELEASE
from tests.process import ROOT
from tests.wheels import build, copy_of_source, run

FOLDERS = ("homing", "broker", "journal", "client", "analytics")
#: What a user's own files would do to a program that takes them for ours.
FOREIGN = "raise ImportError('a file of the user, by a name that is not ours to take')\n"
EVERY_MODULE = """
import importlib, pkgutil, homing.analytics
for each in pkgutil.walk_packages(homing.analytics.__path__, "homing.analytics."):
    importlib.import_module(each.name)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_source(tmp_path_factory.mktemp("source") / "homing")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked: what stands first on the path of the programs below."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    for name in ("client", "broker", "journal", "analytics"):
        (tmp_path / f"{name}.py").write_text(FOREIGN)
    return tmp_path


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_is_what_is_tested_and_the_same_when_built_from_the_sdist(source: Path, wheel: Path, tmp_path: Path) -> None:
    for folder in ("sdist", "unpacked", "wheel"):
        (tmp_path / folder).mkdir()
    with tarfile.open(build("sdist", source, tmp_path / "sdist")) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.2, of Debian 12, has none
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    ours = contents(wheel)
    build_info = json.loads(ours.pop("homing/broker/build.json"))
    assert build_info == {"version": RELEASE, "commit": "unknown"}, "a copy without git's folder"
    again = contents(build("wheel", unpacked, tmp_path / "wheel"))
    assert json.loads(again.pop("homing/broker/build.json")) == build_info
    assert again == ours
    shipped = {name: data for name, data in ours.items() if name.startswith("homing/")}
    tracked = [path.relative_to(source).as_posix() for top in FOLDERS for path in (source / top).rglob("*") if path.is_file()]
    assert shipped.keys() == {name if name.startswith("homing/") else f"homing/{name}" for name in tracked}
    assert all((ROOT / name).read_bytes() == data for name, data in shipped.items())


def test_a_broker_and_the_program_of_the_readme_run_beside_files_of_our_folders_names(installed: Path, users_folder: Path) -> None:
    assert run("-c", "import homing; print(homing.__file__)", cwd=users_folder, path=installed).startswith(str(installed))
    (users_folder / "broker.yaml").write_text("native: {port: 0}\n")
    (program,) = re.findall(r"^```python\n(import asyncio\n.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    serve = [sys.executable, "-m", "homing", "serve", "--data", "data"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    with subprocess.Popen(serve, cwd=users_folder, env=environment, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            (address,) = re.findall(r"native=(\S+)", broker.stdout.readline())
            (users_folder / "program.py").write_text(program.replace("127.0.0.1:7171", address))
            assert "shipped b'a loaf of bread' at attempt 1" in run("program.py", cwd=users_folder, path=installed)
        finally:
            broker.terminate()
            assert broker.wait(30) == 0


def test_every_module_of_the_analytics_is_found_beside_files_of_our_folders_names(installed: Path, users_folder: Path) -> None:
    run("-c", EVERY_MODULE, cwd=users_folder, path=installed)


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_analysis_runs_beside_files_of_our_folders_names(installed: Path, users_folder: Path) -> None:
    write_sample(users_folder / "export", messages=50)
    run("-m", "homing", "analyze", "export", "--out", "report", "--only", "overview", cwd=users_folder, path=installed, timeout=500)
    assert len((users_folder / "report" / "csv" / "overview.csv").read_text().splitlines()) > 1
