"""Where a run's rows come from: exports, or the store that keeps them, and what is left out of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import AnalyticsError
from ..spark.memory import fault
from ..words import number, plural
from .export import Export, Skipped
from .inputs import Found, cause, find_exports, open_exports
from .schema import TABLES
from .window import WHOLE, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .store import Store


def held(export: Export) -> Export:
    """The export in memory, each table in one piece: no report reads a file again, and none needs a shuffle."""
    return replace(export, **{table: getattr(export, table).coalesce(1).localCheckpoint(eager=False) for table in TABLES})


class Source:
    def __init__(self, spark: SparkSession, dumps: Sequence[str], *, skip: bool, store: str | None, window: Window = WHOLE) -> None:
        self._spark, self._dumps, self._skip, self._store, self._window = spark, dumps, skip, store, window
        self._found: list[Found] = []
        self._skipped: list[Skipped] = []
        self._read: list[Found] = []

    def describe(self) -> str:
        """What was read, as a step of the progress."""
        files = sum(len(names) for each in self._read for names in each.files.values())
        size = sum(each.bytes for each in self._read) / 1_000_000
        text = f"{plural(len(self._read), 'export')} ({plural(files, 'file')}, {size:,.1f} MB)"
        if self._store is None:
            return f"opened {text}"
        return f"merged {text} into the store; {number(len(self._found) - len(self._read))} were in it already"

    def before(self) -> Export:
        """What was before the window, of the exports that ``open`` has found."""
        window = Window(None, self._window.since_us)
        if self._store is not None:
            return self._kept().open(self._skipped, window)
        found, _ = find_exports(self._spark, self._dumps, skip=self._skip)
        return open_exports(self._spark, found, self._skipped, window)

    @property
    def name(self) -> str:
        return ", ".join(self._dumps)

    def open(self) -> Export:
        """Check every export; merge the new ones into the store where there is one. Raises AnalyticsError."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        known, since_us = (self._kept().known, 0) if self._store is not None else ((), self._window.since_us or 0)
        try:
            self._found, self._skipped = find_exports(self._spark, self._dumps, skip=self._skip, known=known, since_us=since_us)
        except (Py4JError, OSError) as error:
            text = f"{self.name} cannot be reached: {cause(error)}"
            raise AnalyticsError("input-io", text, "Check the address, the network and the rights there.") from error
        while True:
            try:
                return self._opened()
            except (PySparkException, Py4JError, ConnectionError) as error:  # only merging into a store reads rows here
                if not self._drop(error):
                    raise fault(self._spark, self.name, error) from error
            except AnalyticsError as error:
                if not self._drop(error):
                    raise

    def _opened(self) -> Export:
        if self._store is None:
            self._read = [each for each in self._found if each.files]
            export = open_exports(self._spark, self._found, self._skipped, self._window)
        else:
            store = self._kept()
            self._read = store.add(self._found)
            export = store.open(self._skipped, self._window)
        return held(export) if export.manifest.is_small else export

    def _kept(self) -> Store:
        from .store import Store

        return Store(self._spark, self._store or "")

    def without(self, error: Exception) -> Export | None:
        """The input without the export whose file an error names: its footer was whole, a page in it is not.

        None where nothing may be left out, or nothing would be left.
        """
        return self._opened() if self._store is None and self._drop(error) else None

    def _drop(self, error: Exception) -> bool:
        named = re.findall(r"[^\s'\"]+\.parquet", str(error))
        guilty = [found for found in self._found if any(f"{found.path}/" in name for name in named)]
        rest = [found for found in self._found if found not in guilty]
        if not self._skip or not guilty or not rest:
            return False
        self._skipped += [Skipped(each.path, "export-damaged", cause(error)) for each in guilty]
        self._found = rest
        return True
