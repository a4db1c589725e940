"""Since when and until when each policy decided, and the settings that it came from.

Worked out here and not in Spark: of rows there are as many as queues have policies that decided, which are written as a table anyway, and
of settings as many as were loaded and differ from those before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..spark.connect import frame_of
from ..what_if.policy import regex_of, specificity

#: The settings that decide when and how often a message is tried again; policies hold them under these names.
DECIDING = ("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier", "max_redelivery_delay_ms")
#: What a policy holds under the name of the setting; others are made of several.
NAMED = (
    *("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier", "redelivery_collision_avoidance_factor"),
    *("max_redelivery_delay_ms", "redelivery_back_off", "allow_consumer_policy"),
)
_QUEUE = ("broker_id", "queue")
DECIDED = (*_QUEUE, "policy", "rule")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InForce:
    """What the settings loaded at a time come to for an address."""

    loaded_at: datetime
    #: setting -> its value of the most specific pattern that names it
    named: Mapping[str, Any]
    #: The most specific that names any.
    pattern: str

    def made(self, policy: Mapping[str, Any], rule: str) -> bool:
        """Whether the policy is what these come to, or one of their rules; never one that a consumer brought."""
        if rule:
            return bool(self.named.get("rules", []) != [])
        same = all(policy.get(name) == value for name, value in self.named.items() if name in NAMED)
        return same and policy.get("consumer_policy") is None


def policy_periods(attempts: DataFrame, policies: DataFrame, settings: DataFrame, queues: DataFrame) -> DataFrame:
    """One row for each broker, queue, policy and rule (empty: none) that decided there: ``from_at``, ``until``, ``current``, ``pattern``
    as in settings_in_force, the policy's settings of DECIDING, and all in ``settings_json``.
    """
    import pyarrow as pa

    # A queue's settings are those of its own address: a dead-letter queue's are not those of what is in it.
    addresses = queues.groupBy(*_QUEUE).agg(F.max_by("address", "created_at").alias("address"))
    decided = (
        attempts.where("policy IS NOT NULL")
        .groupBy(*_QUEUE, "policy", F.expr("coalesce(rule, '') AS rule"))
        .agg(F.expr("min(at) AS first_at"), F.expr("max(at) AS until"))
        .join(addresses, list(_QUEUE), "left")
    )
    known = policies.groupBy("broker_id", "policy").agg(F.expr("max_by(settings_json, from_at) AS settings_json"))
    about = f"pattern != '' AND setting IN {(*NAMED, 'rules')}"
    said = F.expr(f"sort_array(collect_list(struct(pattern, setting, value_json)) FILTER (WHERE {about})) AS said")
    loads = settings.groupBy("broker_id", "from_at").agg(said)
    rows = periods(*(frame.toArrow().to_pylist() for frame in (decided, known, loads)))
    kinds = {"from_at": pa.timestamp("us", "UTC"), "until": pa.timestamp("us", "UTC"), "current": pa.bool_()}
    kinds |= dict.fromkeys(DECIDING, pa.int64()) | {"redelivery_delay_multiplier": pa.float64()}
    names = (*DECIDED, "from_at", "until", "current", "pattern", *DECIDING, "settings_json")
    table = pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.string())) for name in names]))
    return frame_of(attempts.sparkSession, table)


def periods(decided: Sequence[Row], known: Iterable[Row], loads: Iterable[Row]) -> list[Row]:
    """The rows of policy_periods. ``loads``: for each time at which settings were ``said``, those about redelivery."""
    texts = {(row["broker_id"], row["policy"]): row["settings_json"] for row in known}
    settings = _Settings(loads)
    latest: dict[tuple[str, ...], datetime] = {}
    for row in decided:
        of_queue = row["broker_id"], row["queue"], row["rule"]
        latest[of_queue] = max(row["first_at"], latest.get(of_queue, row["first_at"]))
    found = []
    for row in decided:
        text = texts.get((row["broker_id"], row["policy"]))
        policy = json.loads(text or "{}")
        said = settings.of(row["broker_id"], row["address"]) if (row["broker_id"], row["policy"]) in texts else []
        made = [(each, each.made(policy, row["rule"])) for each in said]
        since = None
        for each, agrees in made:
            if each.loaded_at <= row["first_at"]:
                since = (since or each.loaded_at) if agrees else None
        # Where no settings say so the queue was declared with its own, or its consumers bring theirs: whoever decided last decides now.
        current, pattern = row["until"] >= latest[row["broker_id"], row["queue"], row["rule"]], None
        if since is not None:
            last, current = made[-1]
            pattern = last.pattern if current else max(each.pattern for each, agrees in made if agrees)
        of_policy = {name: policy.get(name) for name in DECIDING}
        found.append(row | {"from_at": since or row["first_at"], "current": current, "pattern": pattern, "settings_json": text} | of_policy)
    return found


class _Settings:
    """What was in force where, of all brokers."""

    def __init__(self, loads: Iterable[Row]) -> None:
        #: broker -> when its settings changed -> pattern -> what it named, the most specific pattern last
        self._loads: dict[str, dict[datetime, dict[str, Row]]] = {}
        self._found: dict[tuple[str, str], list[InForce]] = {}
        before: dict[str, Any] = {}
        for row in sorted(loads, key=lambda row: (row["broker_id"], row["from_at"])):
            broker = row["broker_id"]
            if row["said"] != before.get(broker):
                self._loads.setdefault(broker, {})[row["from_at"]] = _layers(row["said"])
            before[broker] = row["said"]

    def of(self, broker: str, address: str | None) -> list[InForce]:
        """In the order of time, where they differ from those before."""
        if address is None:
            return []
        key = broker, address
        if key not in self._found:
            self._found[key] = self._look_up(broker, address)
        return self._found[key]

    def _look_up(self, broker: str, address: str) -> list[InForce]:
        changes = self._loads.get(broker, {})
        fits = {pattern: re.match(regex_of(pattern), f"{address}.") for pattern in {each for layers in changes.values() for each in layers}}
        found: list[InForce] = []
        for at, layers in changes.items():
            named: Row = {}
            pattern = None
            for pattern in (each for each in layers if fits[each]):
                named |= layers[pattern]
            if pattern is not None and (not found or (named, pattern) != (found[-1].named, found[-1].pattern)):
                found.append(InForce(at, named, pattern))
        return found


def _layers(said: Sequence[Row]) -> dict[str, Row]:
    layers: dict[str, Row] = {}
    for row in sorted(said, key=lambda row: (specificity(row["pattern"]), row["pattern"])):
        layers.setdefault(row["pattern"], {})[row["setting"]] = json.loads(row["value_json"] or "null")
    return layers
