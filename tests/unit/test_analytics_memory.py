"""What Java is given, and what is said where that was too little."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from homing.analytics.errors import AnalyticsError
from homing.analytics.spark.memory import GREATEST_MB, LEAST_MB, check_memory, fault, java_mb, machine_mb

pytest.importorskip("py4j")


@pytest.mark.parametrize(("machine", "java"), [(2_000, LEAST_MB), (8_000, 2_000), (16_000, 4_000), (256_000, GREATEST_MB)])
def test_java_gets_a_part_of_the_machine(machine: int, java: int) -> None:
    assert java_mb(machine) == java


def test_the_machine_has_some() -> None:
    assert machine_mb() > 256


def reported(error: Exception, exit_code: int | None) -> str:
    process = None
    if exit_code is not None:
        process = subprocess.Popen([sys.executable, "-c", f"import os; os._exit({exit_code})"])
        process.wait()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
    found = fault(spark, "the dump", error)
    assert found.fix
    return found.code


def test_what_went_wrong_has_a_name() -> None:
    assert reported(RuntimeError("Caused by: java.lang.OutOfMemoryError: Java heap space"), None) == "no-memory"
    assert reported(ConnectionRefusedError("refused"), 137) == "no-memory"
    assert reported(ConnectionRefusedError("refused"), 52) == "no-memory"
    assert reported(ConnectionRefusedError("refused"), 3) == "spark-lost"
    assert reported(ConnectionRefusedError("refused"), None) == "spark-lost"
    assert reported(RuntimeError("java.io.IOException: No space left on device"), None) == "no-disk"
    assert reported(RuntimeError("page 3 is not Parquet"), None) == "export-damaged"


@pytest.mark.parametrize(("memory", "code"), [("10x", "bad-memory"), ("4", "bad-memory"), ("449m", "no-memory"), ("460000k", "no-memory")])
def test_a_size_that_spark_would_not_start_with_is_refused_before(memory: str, code: str) -> None:
    with pytest.raises(AnalyticsError) as raised:
        check_memory(memory)
    assert raised.value.code == code


@pytest.mark.parametrize("memory", [None, "450m", "4g", "1T", "460800K"])
def test_sizes_that_spark_starts_with(memory: str | None) -> None:
    check_memory(memory)
