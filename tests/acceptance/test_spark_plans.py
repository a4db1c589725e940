"""How the five heaviest reports are computed on a large input: what moves between machines, and what is sorted, operator by operator.

After a change that is meant, ``HOMING_APPROVE=1`` writes the files anew, and their difference is read before it is committed.
"""

from __future__ import annotations

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.analytics import sample
from homing.analytics.input import inputs
from homing.analytics.input.export import Export
from homing.analytics.reports.clusters import error_kinds
from homing.analytics.reports.deaths import deaths
from homing.analytics.reports.due_error import due_error
from homing.analytics.reports.fates import fates, in_order
from homing.analytics.reports.outages import outage_windows
from homing.analytics.reports.retry_load import retry_load
from homing.analytics.spark.session import with_settings
from tests.acceptance.spark_support import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

APPROVED = Path(__file__).with_name("spark_plans")
#: As a session for large inputs plans before it has seen any data.
LARGE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.optimizer.maxIterations": "100",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.execution.topKSortFallbackThreshold": str(2**31 - 16),
}
PLANS = {
    "fates": lambda e: fates(e.messages, e.attempts),
    "deaths": lambda e: deaths(e.dead_letters, e.messages, e.attempts, e.deliveries_by_minute),
    "retry_load": lambda e: retry_load(e.attempts, e.deliveries_by_minute, e.messages),
    "due_error": lambda e: due_error(in_order(e.attempts)),
    "error_kinds": lambda e: error_kinds(e.attempts),
}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    out = tmp_path_factory.mktemp("plans") / "dump"
    sample.write_sample(out, seed=1, messages=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "SMALL_ROWS", 0)  # else it is read into memory
        return inputs.read_export(session(), str(out))


#: Of these operators the columns are told, too.
BY = {"Exchange": r" (\w+(\([^)]*\))?)", "Sort": r" (\[[^\]]*\])"}


def plan(frame: DataFrame) -> str:
    said = StringIO()
    with redirect_stdout(said):
        frame.explain()
    return re.sub(r"#\d+L?", "", said.getvalue())


def outline(frame: DataFrame) -> str:
    """The operators, indented; of what moves or is sorted by which columns."""
    lines = []
    for line in plan(frame).splitlines():
        if (match := re.match(r"([ :+-]*)(\w+(?: parquet)?)(.*)", line)) is not None:
            indent, name, rest = match.groups()
            by = re.match(BY[name], rest) if name in BY else None
            lines.append(f"{indent}{name}{f' {by[1]}' if by else ''}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_the_approved_one(export: Export, name: str) -> None:
    with with_settings(session(), LARGE):
        found = outline(PLANS[name](export))
    path = APPROVED / f"{name}.txt"
    if os.environ.get("HOMING_APPROVE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()


def test_no_minute_goes_through_all_that_follow_it(export: Export) -> None:
    """From the current row on to the end Spark reckons anew for each row: a queue's 20,000 minutes took half a minute of one core."""
    with with_settings(session(), LARGE):
        tables = fates(export.messages, export.attempts), export.attempts, export.deliveries_by_minute
        found = plan(outage_windows(*tables, export.manifest.exported_at_us))
    assert "windowspecdefinition" in found
    assert not re.search(r"currentrow\$\(\), unboundedfollowing\$", found)
