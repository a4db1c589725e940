"""The results on disk: every table as Parquet and as one CSV file with a header, and the page beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import AnalyticsError
from ..input.files import Files
from ..spark.kept import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT_NAME = "report.html"
#: Lies in every directory written by this package, which may therefore be written again.
MARKER_NAME = ".homing-report"


#: What a spreadsheet takes for a formula when a cell begins with it, or with blanks and it: Spark's writer strips those.
_FORMULA = r"^[\x00-\x20]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]"


def _for_spreadsheets(frame: DataFrame) -> DataFrame:
    """Texts of others that a spreadsheet would run begin with a quote, as OWASP advises ("CSV injection"). Parquet has them as they are."""
    from pyspark.sql import functions as f

    columns = []
    for name, kind in frame.dtypes:
        column = f.col(f"`{name}`")
        safe = f.when(column.rlike(_FORMULA), f.concat(f.lit("'"), column)).otherwise(column)
        columns.append(safe.alias(name) if kind == "string" else column)
    return frame.select(columns)


class Output:
    """A report's directory: ``report.html``, ``parquet/TABLE/``, ``csv/TABLE.csv``. Nothing else is touched in it."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        """Raises AnalyticsError out-exists for a directory with anything in it that no report made."""
        self._files = Files(spark)
        self._out = out.rstrip("/") or "/"
        names = self._files.names(self._out)
        if names and MARKER_NAME not in names:
            raise AnalyticsError("out-exists", f"{out} is not empty and holds no report.", "Name a new directory, or an earlier report's.")
        self._files.remove(self.report_path)
        self._files.write_text(f"{self._out}/{MARKER_NAME}", "")

    @property
    def report_path(self) -> str:
        return f"{self._out}/{REPORT_NAME}"

    def write_table(self, name: str, frame: DataFrame, *, small: bool) -> DataFrame:
        """Write ``frame`` in its order, as Parquet and CSV, computing it once. Returns it as kept; unpersist it when done."""
        computed = kept(frame.coalesce(1), small=small)
        computed.write.mode("overwrite").parquet(f"{self._out}/parquet/{name}")
        scratch = f"{self._out}/csv/.{name}"
        # Quotes doubled, as spreadsheets and csv readers expect; null is empty, an empty string is "".
        written = _for_spreadsheets(computed).write.mode("overwrite").options(header=True, escape='"', emptyValue='""')
        written.csv(scratch, timestampFormat="yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
        part = next(part for part in self._files.names(scratch) if part.startswith("part-"))
        self._files.move(f"{scratch}/{part}", f"{self._out}/csv/{name}.csv")
        self._files.remove(scratch)
        return computed

    def rows(self, name: str) -> int:
        """How many rows of a table were written, as the files' footers say."""
        return sum(self._files.parquet_footer(path).rows for path in self._files.parquet_files(f"{self._out}/parquet/{name}"))

    def write_report(self, html: str) -> None:
        self._files.write_text(self.report_path, html)
