"""Spark's Java started without Spark's scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from homing.analytics.spark.launch import launch

SETTINGS = {"spark.driver.memory": "1024m", "spark.master": "local[*]"}
#: As Spark's launcher it writes a command and counts that; as Spark it tells where it listens, as PythonGatewayServer does, and waits.
JAVA = """#!/bin/bash
if [[ $3 == org.apache.spark.launcher.Main ]]; then
  echo >>"$COUNTED"
  printf '\\0\\n'; printf '%s\\0' "$0" -Xmx1024m org.apache.spark.deploy.SparkSubmit --conf x=y pyspark-shell
else
  printf '%s\\n' "$@" >"$COUNTED.arguments"
  [[ $ENDS ]] && exit 1
  printf '\\0\\0\\1\\2\\0\\0\\0\\3abc' >"$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
  mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
  cat
fi
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """Spark, Java's home, the cache."""
    spark, java, cache = tmp_path / "spark", tmp_path / "java", tmp_path / "cache"
    for place in (spark / "jars", java / "bin", cache):
        place.mkdir(parents=True)
    (spark / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    (java / "bin" / "java").write_text(JAVA)
    (java / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))
    for name in list(os.environ):  # pyspark leaves some behind in a process that has had a session
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")):
            monkeypatch.delenv(name)
    return spark, java, cache


def test_the_command_is_asked_for_once(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    spark, java, cache = places
    for _ in range(2):
        launched = launch(spark, java, "-Da=b", SETTINGS, cache)
        assert launched is not None
        assert launched.gateway() == {"PYSPARK_GATEWAY_PORT": "258", "PYSPARK_GATEWAY_SECRET": "abc"}
        assert not launched.told.parent.exists()
        launched.process.communicate(timeout=10)  # it ends with its input
    assert (tmp_path / "counted").read_text() == "\n"
    arguments = (tmp_path / "counted.arguments").read_text().split()
    assert arguments[:2] == ["-Xmx1024m", "org.apache.spark.deploy.SparkSubmit"]
    assert "spark.master=local[*]" in arguments
    assert arguments[-1] == "pyspark-shell"


def test_a_java_that_ends_is_left_to_the_scripts(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    spark, java, cache = places
    monkeypatch.setenv("ENDS", "yes")
    launched = launch(spark, java, "", SETTINGS, cache)
    assert launched is not None
    assert launched.gateway() is None
    assert launched.process.stdin is not None
    launched.process.stdin.close()


def test_settings_for_the_scripts_are_the_scripts_to_read(places: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    spark, java, cache = places
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert launch(spark, java, "", SETTINGS, cache) is None
    monkeypatch.delenv("SPARK_CONF_DIR")
    (java / "bin" / "java").write_text("#!/bin/bash\nexit 1\n")  # the launcher does not say
    assert launch(spark, java, "", SETTINGS, cache) is None
