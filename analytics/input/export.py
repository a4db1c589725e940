"""What is read of exports, all of them as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from .schema import SCHEMA_VERSION
from .taken import Taken

#: What to do about archives without an export.
ADD_AN_EXPORT = "Name an export of their broker, too (homing journal export --out DIR)."
#: Below this many rows a run is over before Java has warmed up.
SMALL_ROWS = 1_000_000
#: Below this many it is over before what Java's second compiler costs has paid.
SHORT_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class Manifest:
    broker_id: str
    exported_at_us: int
    #: table -> rows
    rows: dict[str, int]
    schema_version: int = SCHEMA_VERSION
    #: What happened before it may be gone; None: nothing is.
    history_from_us: int | None = None
    #: Some dead letters and no more (docs/export-schema.md, archives).
    is_archive: bool = False
    #: When the export was made that it is to be read with; None: it is whole.
    since_us: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Names an export for good: its broker and its moment."""
        return self.broker_id, self.exported_at_us

    @property
    def base(self) -> tuple[str, int] | None:
        """The key of the export that it is to be read with; None: it is whole."""
        return None if self.since_us is None else (self.broker_id, self.since_us)

    @property
    def taken(self) -> Taken:
        return Taken(*self.key, self.history_from_us, self.is_archive)

    @property
    def size(self) -> int:
        """Rows of all tables; SHORT_ROWS where it does not tell."""
        return sum(self.rows.values()) or SHORT_ROWS

    @property
    def is_small(self) -> bool:
        return self.size < SMALL_ROWS


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the input that was left out, and why."""

    path: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Export:
    """All exports read as one. ``manifest``: of one export its own; of many the latest time, the rows before merging."""

    manifest: Manifest
    messages: DataFrame
    attempts: DataFrame
    dead_letters: DataFrame
    deliveries_by_minute: DataFrame
    queues: DataFrame
    settings: DataFrame
    policies: DataFrame
    deliveries_by_consumer: DataFrame
    faults: DataFrame
    redrives: DataFrame
    edits: DataFrame
    brokers: tuple[str, ...] = ()
    exports: int = 1
    skipped: tuple[Skipped, ...] = field(default=())
    #: broker -> where its window begins, of those where that is not with the broker (window.py), and the counts before that.
    begins: dict[str, int] = field(default_factory=dict)
    before: DataFrame | None = None
    #: All that died until its end, also before it began; None: those in ``dead_letters``.
    ever_died: DataFrame | None = None
    #: Where all of it ends before it was exported (window.py).
    until_us: int | None = None
    #: Dead letters that were removed, and nothing of what was sent or succeeded beside them.
    archives_only: bool = False

    @property
    def deaths(self) -> DataFrame:
        """Also before the window."""
        return self.dead_letters if self.ever_died is None else self.ever_died

    def lying(self) -> DataFrame:
        """One row for each broker and queue of which dead letters lie somewhere, whenever they died: ``oldest_died_at``."""
        return self.deaths.where("size(lies_in) > 0").groupBy("broker_id", "queue").agg(F.min("died_at").alias("oldest_died_at"))

    def labels(self) -> dict[str, str]:
        """Broker -> what it is called: its name, else the beginning of its number where it has none, or not for itself."""
        own = self.settings.where("pattern = '' AND setting = 'broker'").groupBy("broker_id")
        named = own.agg(F.max_by(F.get_json_object("value_json", "$.name"), "from_at").alias("name")).collect()
        names = {row["broker_id"]: row["name"] for row in named}
        shared = Counter(names.values())
        return {broker: names[broker] if shared[names.get(broker)] == 1 and names[broker] else broker[:8] for broker in self.brokers}

    def check_whole(self, what: str) -> None:
        """Raises AnalyticsError archives-only where there is no more than archives, of which ``what`` cannot be said."""
        if self.archives_only:
            raise AnalyticsError(
                "archives-only", f"Archives alone hold dead letters that were removed, which is not enough for {what}.", ADD_AN_EXPORT
            )
