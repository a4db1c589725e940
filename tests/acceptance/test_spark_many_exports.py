"""Many exports read as one: of many brokers and days, overlapping, late, of several schema versions, damaged or foreign."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from benchmarks.analytics import sample
from homing.analytics.commands.analyze import AnalysisSummary, analyze
from homing.analytics.commands.compare import compare_periods
from homing.analytics.errors import AnalyticsError
from homing.analytics.input import delta, schema
from homing.analytics.input.files import Files
from homing.analytics.input.inputs import find_exports, open_exports, read_export
from homing.analytics.input.schema import MANIFEST_NAME
from homing.analytics.input.source import Source
from homing.analytics.input.store import Store
from homing.analytics.input.window import Window
from homing.analytics.reports.overview import overview
from tests.acceptance.spark_support import as_of, day, rows_of, session, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from homing.analytics.input.export import Export
    from homing.analytics.input.inputs import Found

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

FAR = "viewfs://elsewhere/far"
#: All tables of the input are read for these.
FAR_TABLES = ("overview", "dead_letters", "settings_in_force")
COMPARED = ("messages", "attempts", "dead_letters", "deliveries_by_minute")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "dump"
    sample.write_sample(out, seed=11, messages=400, hours=30)
    return out


@pytest.fixture(scope="module")
def four(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three exports of one broker that overlap, the last with the first ten hours forgotten, and one of another broker."""
    folder = tmp_path_factory.mktemp("four") / "dumps"
    as_of(whole, folder / "monday" / "a", day(whole, 9))
    as_of(whole, folder / "monday" / "b", day(whole, 17))
    last = json.loads((whole / MANIFEST_NAME).read_text())["exported_at_us"] // 60_000_000 * 60
    as_of(whole, folder / "tuesday+late 1", datetime.fromtimestamp(last, day(whole, 0).tzinfo), forget_before=day(whole, 10))
    sample.write_sample(folder / "other", seed=12, messages=60)
    return folder


@pytest.fixture
def dumps(four: Path, tmp_path: Path) -> Path:
    """These, to be changed."""
    return shutil.copytree(four, tmp_path / "dumps")


@pytest.fixture(scope="module")
def counted(spark: SparkSession, whole: Path, four: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The table overview of each of the two brokers, of the one export that knows all of it; by the broker."""
    alone = [read_export(spark, str(path)) for path in (whole, four / "other")]
    return {each.manifest.broker_id: rows_of(overview(each.messages, each.deliveries_by_minute)) for each in alone}


def same(found: Export, expected: list[Path]) -> None:
    """The keys of all rows, each once."""
    for name in COMPARED:
        wanted = pa.concat_tables([pq.read_table(dump / name, partitioning=None) for dump in expected]).select(schema.KEYS[name])
        rows = [tuple(row.values()) for row in wanted.to_pylist()]
        keys = [(*row[:-1], row[-1].replace(tzinfo=None)) if isinstance(row[-1], datetime) else row for row in rows]
        assert rows_of(getattr(found, name).select(*schema.KEYS[name])) == sorted(keys, key=repr), name


def test_overlapping_exports_count_every_row_once(
    spark: SparkSession, whole: Path, four: Path, counted: dict[str, list[tuple[Any, ...]]]
) -> None:
    """Also what only the older ones still know; the balance comes out."""
    from homing.analytics.reports.overview import overview

    found = read_export(spark, str(four))
    assert (found.exports, len(found.brokers)) == (4, 2)
    same(found, [whole, four / "other"])
    assert found.labels() == {broker: f"shop-{broker[:4]}" for broker in found.brokers}
    assert counted.keys() == set(found.brokers)
    alone = sorted((row for rows in counted.values() for row in rows), key=repr)
    assert rows_of(overview(found.messages, found.deliveries_by_minute)) == alone


def test_since_opens_only_what_may_have_anything_of_it(spark: SparkSession, whole: Path, four: Path) -> None:
    window = Window(int(day(whole, 20).timestamp()) * 1_000_000)
    source = Source(spark, [str(four)], skip=False, store=None, window=window)
    found, every = source.open(), open_exports(spark, find_exports(spark, [str(four)])[0], (), window)
    assert source.describe().startswith("opened 2 exports")
    for name in COMPARED:
        assert rows_of(getattr(found, name)) == rows_of(getattr(every, name)), name


def test_counts_by_the_hour_stand_for_those_by_the_minute(
    spark: SparkSession, whole: Path, counted: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    """An export taken within a day knows minutes of it that a later one only knows by the hour: they count once."""
    from homing.analytics.reports.overview import overview

    as_of(whole, tmp_path / "both" / "early", day(whole, 9))
    as_of(whole, tmp_path / "both" / "late", day(whole, 30), forget_before=day(whole, 26))
    found = read_export(spark, str(tmp_path / "both")).deliveries_by_minute
    assert found.where("minute(minute) = 0").count() > 0.5 * found.count()
    at_once = read_export(spark, str(whole))
    assert rows_of(overview(at_once.messages, found)) == counted[at_once.manifest.broker_id]


def test_the_latest_export_tells_what_is_still_here(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """A message that was waiting and is not known any more has left; its death lies nowhere."""
    early = as_of(whole, tmp_path / "both" / "early", day(whole, 20))
    late = as_of(whole, tmp_path / "both" / "late", day(whole, 26), forget_before=day(whole, 26))
    found = read_export(spark, str(tmp_path / "both"))
    here = {row["sequence"] for row in found.messages.where("state <> 'settled'").collect()}
    assert here == {row["sequence"] for row in table(late, "messages") if row["state"] != "settled"}
    gone = {row["sequence"] for row in table(early, "dead_letters")} - {row["sequence"] for row in table(late, "dead_letters")}
    assert gone
    assert {row["sequence"] for row in found.dead_letters.where("size(lies_in) = 0").collect()} >= gone


def test_until_tells_what_an_export_taken_then_would(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    from homing.analytics.reports.fates import fates
    from homing.analytics.reports.overview import overview

    at = day(whole, 17)
    then = read_export(spark, str(as_of(whole, tmp_path / "then", at)))
    now = Source(spark, [str(whole)], skip=False, store=None, window=Window.parse(None, f"{at:%Y-%m-%dT%H:%M}")).open()
    left, right = (rows_of(overview(e.messages, e.deliveries_by_minute, cut=e.until_us is not None)) for e in (then, now))
    assert left == right
    assert len(left) > 3
    assert rows_of(fates(then.messages, then.attempts)) == rows_of(fates(now.messages, now.attempts))
    later = Source(spark, [str(whole)], skip=False, store=None, window=Window.parse(f"{at:%Y-%m-%dT%H:%M}", None)).open()
    sent = [sum(row["sent"] for row in e.deliveries_by_minute.collect()) for e in (then, later, read_export(spark, str(whole)))]
    assert sent[0] + sent[1] == sent[2] > sent[1] > 0


def test_periods_of_which_one_holds_the_other_are_not_compared(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    at = day(whole, 17)
    as_of(whole, tmp_path / "then", at)
    with pytest.raises(AnalyticsError) as raised:
        compare_periods([tmp_path / "then", whole], tmp_path / "out")
    assert raised.value.code == "one-period"
    middle = f"{at:%Y-%m-%dT%H:%M}"
    assert f"--until {middle} --since {middle}" in raised.value.fix
    assert compare_periods([whole, whole], tmp_path / "out", until=middle, since=middle) == str(tmp_path / "out" / "report.html")
    both = pq.read_table(tmp_path / "out" / "parquet" / "comparison").to_pylist()
    counts = table(whole, "deliveries_by_minute")
    assert sum((row["sent_a"] or 0) + (row["sent_b"] or 0) for row in both) == sum(row["sent"] for row in counts)


def test_incremental_runs_come_to_the_same_and_read_only_what_is_new(
    spark: SparkSession, dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, merge = tmp_path / "store", Store._merge
    # All tables are merged alike: these will do.
    monkeypatch.setattr(Store, "_merge", lambda self, table, *of: merge(self, table, *of) if table in COMPARED else {})

    def found(*names: str) -> list[Found]:
        return find_exports(spark, [str(dumps / name) for name in names])[0]

    # Late data: the older ones come last. Two at a time: the second to finish takes in what the first has made, and leaves alone what that
    # one has read.
    latest, one, other = found("tuesday+late 1"), Store(spark, str(place)), Store(spark, str(place))
    commits = iter((delta.commit, delta.commit, _cut_off))
    with monkeypatch.context() as patch:
        patch.setattr(delta, "commit", lambda *of: next(commits)(*of))
        with pytest.raises(KeyboardInterrupt):
            one.add(latest)
    reading = one.open().messages
    before = rows_of(reading)
    publish = iter((Files.publish, _cut_off))
    with monkeypatch.context() as patch:
        patch.setattr(Files, "publish", lambda *of: next(publish)(*of))
        with pytest.raises(KeyboardInterrupt):
            other.add([*latest, *found("monday", "other")])
    assert Store(spark, str(place)).known == {latest[0].manifest.key}
    assert len(other.add([*latest, *found("monday", "other")])) == 3
    assert rows_of(reading) == before

    store = Store(spark, str(place))
    at_once, kept = read_export(spark, str(dumps)), store.open()
    assert kept.exports == 4
    for name in COMPARED:
        assert rows_of(getattr(kept, name)) == rows_of(getattr(at_once, name)), name
    states = sorted(path.name for path in place.glob("_homing_store*"))
    assert states == [f"_homing_store-{number:06d}.json" for number in (1, 2)]
    parts = json.loads((place / states[-1]).read_text())["parts"]["attempts"].values()
    assert len({part.split("/")[1] for part in parts}) > 1  # days that nothing touched stay where they were
    assert store.add(found("monday", "other")) == []
    assert sorted(path.name for path in place.glob("_homing_store*")) == states

    outside(place, overview(at_once.messages, at_once.deliveries_by_minute).toArrow().to_pylist())
    # Whoever opens a file of an export that is known fails now.
    for part in (dumps / "monday").rglob("*.parquet"):
        part.write_bytes(b"gone")
    again = Source(spark, [str(dumps)], skip=False, store=str(place))
    assert again.open().exports == 4
    assert again.describe() == "merged 0 exports (0 files, 0.0 MB) into the store; 4 were in it already"


def outside(store: Path, report: list[dict[str, Any]]) -> None:
    """What others count in the tables of the store: DuckDB in the files of which deltalake tells, polars by itself."""
    tables = {name: DeltaTable(store / name) for name in schema.TABLES}
    assert {each.version() for each in tables.values()} == {1}
    names = ("sent", "delivered", "succeeded", "failed")
    sums, files = ", ".join(f"sum({name})::BIGINT" for name in names), tables["deliveries_by_minute"].file_uris()
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT broker_id, queue, {sums} FROM read_parquet(?) GROUP BY ALL", [files]).fetchall()
    assert sorted(rows) == sorted((row["broker_id"], row["queue"], *(row[name] for name in names)) for row in report)
    here = (
        pl.scan_delta(str(store / "messages"))
        .filter((pl.col("state") != "settled") & (pl.col("exported_at_us") == pl.col("exported_at_us").max().over("broker_id")))
        .group_by("broker_id", "queue")
        .len()
        .collect()
    )
    assert sorted(here.rows()) == sorted((row["broker_id"], row["queue"], row["here"]) for row in report if row["here"])


def test_what_nothing_names_any_more_goes_after_a_day(spark: SparkSession, dumps: Path, tmp_path: Path) -> None:
    place, files = tmp_path / "store", Files(spark)
    for number, parts in ((1, ["old", "kept"]), (2, ["new", "kept"]), (3, ["newer", "kept"])):
        for part in parts:
            (place / "runs" / part / "messages").mkdir(parents=True, exist_ok=True)
        state = {"schema_version": schema.SCHEMA_VERSION, "exports": [], "parts": {"messages": {p: f"runs/{p}/messages" for p in parts}}}
        (place / f"_homing_store-{number:06d}.json").write_text(json.dumps(state))
    (place / "runs" / "cut-off").mkdir()
    (place / "runs" / "under-way").mkdir()
    for path in (*place.glob("*"), *(place / "runs").glob("*")):
        os.utime(path, (0, 0))
    for name in ("_homing_store-000003.json", "runs/under-way"):
        os.utime(place / name)
    Store(spark, str(place)).tidy()
    assert {path.name for path in (place / "runs").iterdir()} == {"new", "newer", "kept", "under-way"}
    assert files.names(str(place)) == ["_homing_store-000002.json", "_homing_store-000003.json", "runs"]


def _cut_off(*_: object) -> bool:
    raise KeyboardInterrupt


@pytest.fixture
def old_version(monkeypatch: pytest.MonkeyPatch) -> int:
    """A version 0 as it might have been: the delay in seconds, under another name; later versions added a column."""
    made = {"attempts": {"delay_ms": "CAST(delay_s * 1000 AS BIGINT)"}}
    monkeypatch.setattr(schema, "VERSIONS", schema.VERSIONS | {0: made})
    monkeypatch.setattr(schema, "ADDED", {"attempts": {"policy"}})
    return 0


def test_schema_versions_mix(spark: SparkSession, whole: Path, tmp_path: Path, old_version: int) -> None:
    sample.write_sample(tmp_path / "dumps" / "new", seed=12, messages=60)
    old = tmp_path / "dumps" / "old"
    as_of(whole, old, day(whole, 20))
    part = old / "attempts" / "part-00000.parquet"
    rows = pq.read_table(part)
    delay_s = pa.array([None if ms is None else ms / 1000 for ms in rows["delay_ms"].to_pylist()], pa.float64())
    pq.write_table(rows.drop_columns(["delay_ms", "policy"]).append_column("delay_s", delay_s), part)
    manifest = json.loads((old / MANIFEST_NAME).read_text())
    (old / MANIFEST_NAME).write_text(json.dumps(manifest | {"schema_version": old_version}))
    found = read_export(spark, str(tmp_path / "dumps"))
    delays = {(row["broker_id"], row["sequence"], row["attempt"]): (row["delay_ms"], row["policy"]) for row in found.attempts.collect()}
    for row in rows.to_pylist():
        assert delays[row["broker_id"], row["sequence"], row["attempt"]] == (row["delay_ms"], None)
    for row in table(tmp_path / "dumps" / "new", "attempts"):
        assert delays[row["broker_id"], row["sequence"], row["attempt"]] == (row["delay_ms"], row["policy"])


def spoil(whole: Path, dumps: Path) -> dict[str, str]:
    """Add exports that are damaged in different ways, and what is foreign; path -> code that must name it."""
    footer = as_of(whole, dumps / "monday" / "c", day(whole, 5)) / "messages" / "part-00000.parquet"
    footer.write_bytes(footer.read_bytes()[:-20])
    page = as_of(whole, dumps / "monday" / "d", day(whole, 13)) / "attempts" / "part-00000.parquet"
    body = bytearray(page.read_bytes())
    body[40 : len(body) // 3] = b"\xff" * (len(body) // 3 - 40)  # the footer stays whole
    page.write_bytes(body)
    (dumps / "notes.txt").write_text("not an export")
    alone = as_of(whole, dumps / "alone", day(whole, 8))
    manifest = json.loads((alone / MANIFEST_NAME).read_text())
    (alone / MANIFEST_NAME).write_text(json.dumps(manifest | {"since_us": 1}))
    future = as_of(whole, dumps / "future", day(whole, 7))
    manifest = json.loads((future / MANIFEST_NAME).read_text())
    (future / MANIFEST_NAME).write_text(json.dumps(manifest | {"schema_version": 99}))
    wrong = {"monday/c": "export-damaged", "monday/d": "export-damaged", "notes.txt": "not-an-export"}
    return wrong | {"future": "export-version", "alone": "export-base"}


@dataclass(frozen=True)
class Analysed:
    place: Path
    summary: AnalysisSummary
    #: What is damaged or foreign there, and the code that must name it.
    wrong: dict[str, str]


def among_damage(whole: Path, four: Path, place: Path, only: tuple[str, ...]) -> Analysed:
    """The four exports here, among what is damaged or foreign; one named as a URI, and so is the report."""
    dumps = shutil.copytree(four, place / "dumps")
    wrong = spoil(whole, dumps)
    (dumps / "other").rename(place / "other")
    out = (place / "out").as_uri().replace("file://", "file:")
    return Analysed(place, analyze([dumps, (place / "other").as_uri()], out, on_damage="skip", only=only), wrong)


def test_what_is_damaged_or_foreign_is_refused(spark: SparkSession, dumps: Path) -> None:
    (dumps / "notes.txt").write_text("not an export")
    with pytest.raises(AnalyticsError) as raised:
        read_export(spark, str(dumps))
    assert raised.value.code == "not-an-export"
    assert "notes.txt" in raised.value.message
    assert "--on-damage skip" in raised.value.fix


def test_or_left_out_and_named(whole: Path, four: Path, counted: dict[str, list[tuple[Any, ...]]], tmp_path: Path) -> None:
    """What is left comes to the same as the four exports alone. That the page says so: test_spark_reports.py."""
    # The damaged page is met by who reads attempts.
    rest = among_damage(whole, four, tmp_path, ("overview", "thundering_herds"))
    assert {str(Path(each.path).relative_to(rest.place / "dumps")): each.code for each in rest.summary.skipped} == rest.wrong
    found = pq.read_table(rest.place / "out" / "parquet" / "overview").to_pylist()
    alone = sorted((row for rows in counted.values() for row in rows), key=repr)
    assert sorted((tuple(row.values()) for row in found), key=repr) == alone
    assert len(found) > 3


def test_nothing_left(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    spoil(whole, tmp_path)
    shutil.rmtree(tmp_path / "monday" / "d")
    with pytest.raises(AnalyticsError) as raised:
        Source(spark, [str(tmp_path)], skip=True, store=None).open()
    assert raised.value.code == "no-export"


@pytest.mark.campaign
def test_input_output_and_store_on_another_file_system(spark: SparkSession, whole: Path, four: Path, tmp_path: Path) -> None:
    """One that Hadoop knows and this machine's paths do not: a mount table's. Nothing on the way takes a path for a local one, and what
    is made there comes to the same as what is made here.
    """
    place = tmp_path / "far"
    shutil.copytree(four, place / "dumps")
    spark.sparkContext._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.elsewhere.link./far", place.as_uri())
    far = Analysed(place, analyze(f"{FAR}/dumps", f"{FAR}/out", store=f"{FAR}/store", only=FAR_TABLES), {})
    assert far.summary.out == f"{FAR}/out"
    assert far.summary.rows["overview"] > 3
    here = among_damage(whole, four, tmp_path / "here", FAR_TABLES)
    for name in FAR_TABLES:
        left, right = ((each.place / "out" / "csv" / f"{name}.csv").read_text() for each in (far, here))
        assert left == right, name
    assert (place / "store" / "_homing_store-000001.json").is_file()
