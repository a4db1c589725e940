"""A Spark session that suits a laptop: loopback only, quiet, no pages, and quick on small inputs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from ..errors import AnalyticsError
from ..input.export import SHORT_ROWS, SMALL_ROWS
from .connect import CONNECT_S, DEFAULT_PORT, SCHEME
from .java import Archive, Java, find_java
from .memory import LEAST_MB, check_memory, java_mb, no_memory, out_of_memory

_PARTITIONS = "spark.sql.shuffle.partitions"
#: What the reports need.
_SQL = {"spark.sql.session.timeZone": "UTC", "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
#: No plan is looked at twice, where there is little to do.
_PLANNED_ONCE = {
    "spark.sql.ui.explainMode": "simple",
    # One pass of the optimizer makes the plan that is run; those after it mostly find that there is no more to do.
    "spark.sql.optimizer.maxIterations": "1",
    # Checks of what the optimizer does, and where a column was written down: for those who work on Spark.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
#: For work so small that preparing it takes longer than doing it: one task a query, nothing compiled.
_SMALL = _PLANNED_ONCE | {
    _PARTITIONS: "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # What is sorted to be cut off, and more than a few groups of arrays, would be compiled after all.
    "spark.sql.execution.topKSortFallbackThreshold": "0",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
}
#: For what of a small input is much work, where it is planned.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
#: What is kept stays as it was put together (fates.in_order), so that nothing is moved or sorted again to read it.
_LARGE = {"spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false"}
#: With the first compiler alone Java takes a fifth of the usual room for what it compiled, and Spark ends where that is full.
_FIRST_COMPILER = " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_SMALL_JAVA = f"{_FIRST_COMPILER} -XX:+UseSerialGC -XX:MetaspaceSize=256m"
#: And a collector that does not look for what is over beside the work.
_SHORT_JAVA = f"{_FIRST_COMPILER} -XX:+UseParallelGC"
#: The whole heap at once: starting small, the collector would run forty times in the first seconds.
_SMALL_HEAP = f" -Xms{LEAST_MB}m -Xmn{LEAST_MB // 2}m"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@contextmanager
def spark_session(
    master: str | None = None, *, ui: bool = False, rows: int = SHORT_ROWS, memory: str | None = None, whole: bool = False
) -> Iterator[SparkSession]:
    """A session on ``master`` (default: this machine's cores), stopped at the end if it was started here.

    ``memory``: of Java here, or of each executor of a cluster, as Spark writes it (``4g``); default: memory.java_mb, or the cluster's own.

    ``rows``: how many are worked on. The work on less than SHORT_ROWS takes less time than Java's second compiler needs to pay, so that it
    stays off; on less than SMALL_ROWS so do its parallel collectors.

    ``whole``: it is all of a report, so that of its classes the best archive is made (java.Archive).

    Under spark-submit, or inside another program's session, that one is used as it is. Raises AnalyticsError: no-java, no-memory,
    bad-memory, spark-start.
    """
    check_memory(memory)
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    remote = master is not None and master.startswith(SCHEME)
    session, archive = (_connected(str(master)), None) if remote else _start(master, ui, rows, memory, whole)
    try:
        yield session
        if archive is not None:
            archive.keep(whole=whole)
    finally:
        with suppress(Py4JNetworkError, ConnectionError):  # Java has ended before: who hears of that is given the reason
            session.stop()


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings that a session can be given while it runs, taken back at the end."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, kept in before.items():
            with suppress(ConnectionError):  # Java has ended, and its settings with it
                spark.conf.unset(key) if kept is None else spark.conf.set(key, kept)


def suited_to(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """The session's settings for inputs of so many rows."""
    return with_settings(spark, _SMALL if rows < SMALL_ROWS else _LARGE | (_PLANNED_ONCE if rows < SHORT_ROWS else {}))


def in_one_piece(frame: DataFrame) -> DataFrame:
    """``frame``, of which Spark knows that it is in one piece, where all is (_SMALL).

    After a full join, an expansion, and of rows of Python's it does not, and would move them to sort or group them.
    """
    return frame.coalesce(1) if _is_small(frame) else frame


def settled(frame: DataFrame) -> DataFrame:
    """``frame``, computed once where that is little (_SMALL), however often it is used: planning each use costs more than the use."""
    return frame.coalesce(1).localCheckpoint(eager=False) if _is_small(frame) else frame


def kept(frame: DataFrame, *, small: bool) -> DataFrame:
    """``frame``, computed once however many use it at the same time.

    A ``small`` one at its first use, in memory, and Spark forgets how it was made: planning each use of it again costs more than the use.
    Others now, on disk, for memory is for what Spark sorts and counts, and with their plan, so that what is lost with a machine is made
    again; unpersist these.
    """
    if small:
        return frame.coalesce(1).localCheckpoint(eager=False)
    frame = frame.persist(StorageLevel.DISK_ONLY)
    frame.write.format("noop").mode("overwrite").save()
    return frame


def _is_small(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get(_PARTITIONS) == _SMALL[_PARTITIONS]


def _installed_spark() -> Path:
    """Without importing it."""
    found = find_spec("pyspark")
    return Path((found and found.origin) or "").parent


def _start(master: str | None, ui: bool, rows: int, memory: str | None, whole: bool) -> tuple[SparkSession, Archive | None]:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName("homing analyze").config(map={**_settings(master, ui, rows < SMALL_ROWS, submitted, memory)})
    importing = Thread(target=_import_quietly, daemon=True)
    importing.start()  # while Java starts
    variables: dict[str, str] = {}
    archive = None
    if not submitted:
        java = find_java()
        variables = _variables(java, master)
        archive = java.archive(_installed_spark() / "jars")
        builder = builder.config("spark.driver.extraJavaOptions", _java_options(archive.options(whole=whole), rows, memory))
    with _environment({**_workers(master, submitted), **variables}):
        try:
            session = builder.getOrCreate()
        except Exception as error:  # py4j, pyspark and the launcher each raise their own
            if out_of_memory(str(error)):
                raise no_memory("Spark did not start with so little memory.") from error
            raise _not_started(error) from error
    importing.join()
    _remember_functions(session)
    # What goes wrong is raised here and reported once, in a sentence, instead of once for each task that it stopped.
    session.sparkContext.setLogLevel("FATAL")
    if submitted and _is_local(session.sparkContext.master) and not session.sparkContext.getConf().contains(_PARTITIONS):
        session.conf.set(_PARTITIONS, _few_partitions())
    return session, archive


def _connected(address: str) -> SparkSession:
    """Of a server, by Spark Connect: all but the session's settings of SQL is that server's affair."""
    try:
        place = urlsplit(address)
        # Its client would try again for ten minutes.
        create_connection((place.hostname, place.port or DEFAULT_PORT), CONNECT_S).close()
        return SparkSession.builder.remote(address).config(map={**_SQL}).create()
    except Exception as error:  # grpc and pyspark each raise their own
        raise _not_started(error) from error


def _not_started(error: Exception) -> AnalyticsError:
    first_line = (str(error).strip() or repr(error)).splitlines()[0]
    return AnalyticsError("spark-start", f"Spark did not start: {first_line}", "See the lines above; check --master.")


def _remember_functions(session: SparkSession) -> None:
    """pyspark asks Java for the class of functions and for the function by name, whenever one is used: thousands of times in a run."""
    java: Any = session.sparkContext._jvm
    name = "org.apache.spark.sql.functions"
    vars(java)[name] = vars(java)["functions"] = _Remembered(getattr(java, name))
    for helper in ("PythonUtils", "PythonSQLUtils"):  # looked for in each package that pyspark imports
        vars(java)[helper] = _Remembered(getattr(java, helper))


class _Remembered:
    """What a class of Java's has, each looked up at its first use."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        setattr(self, name, found)
        return found


def _few_partitions() -> str:
    """200, the default, spends seconds on empty tasks; adaptive execution splits what is too large."""
    return str(2 * (os.cpu_count() or 1))


def _import_quietly() -> None:
    """pyspark imports this with its first literal, and where a newer pandas happens to be installed (which nothing here uses) it warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyspark.testing.utils  # noqa: F401


def _is_local(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _workers(master: str | None, submitted: bool) -> dict[str, str]:
    """Spark's workers run this Python, not the PATH's python3; a cluster's are its own affair, as is what the user names."""
    named = submitted or not _is_local(master) or "PYSPARK_PYTHON" in os.environ
    return {} if named else {"PYSPARK_PYTHON": sys.executable}


def _variables(java: Java, master: str | None) -> dict[str, str]:
    variables = {"JAVA_HOME": str(java.quiet_home())}
    if _is_local(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return variables


def _java_options(shared: str, rows: int, memory: str | None) -> str:
    small = _SMALL_JAVA + (_SMALL_HEAP if memory is None else "")
    suited = small if rows < SMALL_ROWS else _SHORT_JAVA if rows < SHORT_ROWS else ""
    return f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} {shared}{suited}"


def _settings(master: str | None, ui: bool, small: bool, submitted: bool, memory: str | None) -> dict[str, str]:
    """What the session is started with. Under spark-submit its own options win, so only what the reports need is set."""
    settings = {
        **_SQL,
        # Lower case by Java's tables: ICU's take a second to build, for letters that no error text needs.
        "spark.sql.icu.caseMappings.enabled": "false",
        # Else pyspark asks Java for the session with every column that is written down, to tell the line of an error.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if submitted and master is None:
        return settings
    settings |= {
        "spark.master": master or "local[*]",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        # Those that come with Spark, for machine learning: finding and making them takes most of a second. What is named in
        # spark.sql.extensions is loaded all the same.
        "spark.sql.extensions.test.loadFromCp": "false",
    }
    if _is_local(master):
        settings |= {
            "spark.driver.memory": memory or f"{LEAST_MB if small else java_mb()}m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            _PARTITIONS: _few_partitions(),
            "spark.default.parallelism": str(os.cpu_count() or 1),
        }
    elif memory is not None:
        settings["spark.executor.memory"] = memory
    return settings


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set for the launch only: the Java process keeps its copy."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
