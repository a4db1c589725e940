"""The results on disk: every table as Parquet and as one CSV file with a header, and the page beside them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AnalyticsError
from ..input.files import files_of
from ..input.inputs import cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT_NAME, FINDINGS_NAME = "report.html", "findings.json"
#: Lies in every directory written by this package, which may therefore be written again.
MARKER_NAME = ".homing-report"
#: What a spreadsheet takes for a formula when a cell begins with it, or with blanks and it, for some readers strip those.
_FORMULA = r"^([\x00-\x20]*[=+\-@\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]|[\t\r\n])"


class Output:
    """A report's directory: ``report.html``, ``parquet/TABLE/``, ``csv/TABLE.csv``. Nothing else is touched in it."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        """Raises AnalyticsError out-exists for a directory with anything in it that no report made."""
        self._files = files_of(spark)
        self._out = out.rstrip("/") or "/"
        names = self._files.names(self._out)
        if names and MARKER_NAME not in names:
            raise AnalyticsError("out-exists", f"{out} is not empty and holds no report.", "Name a new directory, or an earlier report's.")
        for name in (REPORT_NAME, FINDINGS_NAME):
            self._files.remove(f"{self._out}/{name}")
        self._files.write_text(f"{self._out}/{MARKER_NAME}", "")

    @property
    def report_path(self) -> str:
        return f"{self._out}/{REPORT_NAME}"

    def write_table(self, name: str, frame: DataFrame) -> Any:
        """Compute ``frame`` and write it in its order, as Parquet and CSV. Returns it as a pyarrow.Table."""
        import pyarrow.parquet as pq

        table = frame.toArrow()
        place = f"{self._out}/parquet/{name}"
        with tempfile.TemporaryDirectory(prefix="homing-") as scratch, self._reported():
            pq.write_table(table, f"{scratch}/{name}.parquet")
            _write_csv(table, Path(scratch, f"{name}.csv"))
            self._files.remove(place)
            self._files.put(f"{scratch}/{name}.parquet", f"{place}/{name}.parquet")
            self._files.put(f"{scratch}/{name}.csv", f"{self._out}/csv/{name}.csv")
        return table

    def write_report(self, html: str, findings: Sequence[Mapping[str, Any]] | None = None) -> None:
        """The page, and ``findings.json`` beside it for programs."""
        with self._reported():
            if findings is not None:
                self._files.write_text(f"{self._out}/{FINDINGS_NAME}", json.dumps(findings, indent=1, ensure_ascii=False) + "\n")
            self._files.write_text(self.report_path, html)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """What goes wrong here is no fault of the input. Raises AnalyticsError out-io."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            yield
        except (Py4JJavaError, OSError) as error:
            if isinstance(error, ConnectionError):  # Java has ended
                raise
            text = f"{self._out} cannot be written: {cause(error)}"
            raise AnalyticsError("out-io", text, "Check the address, the room and the rights there.") from error


def _write_csv(table: Any, path: Path) -> None:
    """Quotes doubled, as spreadsheets and csv readers expect; null is empty, an empty string is "".

    Texts of others that a spreadsheet would run begin with a quote, as OWASP advises ("CSV injection"). Parquet has them as they are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, pc.replace_substring_regex(table[index], _FORMULA, r"'\1"))
        elif pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, pc.strftime(table[index], "%Y-%m-%dT%H:%M:%SZ"))
    csv.write_csv(table, path)
