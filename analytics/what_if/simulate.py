"""What another policy would have made of the same failures. ``what_if`` is the calculation, analytics/commands/simulate.py the command.

The first attempt of a message does not depend on the policy: it failed, at a time that is on record; and what follows is as it was for as
long as the new policy has the same delays as the one in force. From there on it is played again with the new delays and the new limit, by
every replicate in one of two ways of looking at trouble, for the record seldom tells which is true:

- **time**: trouble lasts until some moment. Between a message's last failure and its success that moment is somewhere (drawn, and how
  early is drawn anew for each replicate); for a dead letter it is later than its last attempt.
- **attempt**: each attempt is a new throw of the dice.

Either way a share of those that did not succeed never will; that share, the chances and how much later trouble passes are drawn from what
became of messages of the same queue and error class (cure.py).

Where the record shows **outages** (outages.py) both ways look at these: an attempt fails while one lasts, and succeeds otherwise; when
exactly one began and ended, between the attempts that show it, is drawn for each replicate.

*Observed* is what needs neither: what was as it was, an attempt no later than a failure on record, or no earlier than the success there.
The interval of a figure reaches from the lower end of either way's 90 % to the upper end of the other's. Everything random is a hash of
the seed, the replicate and the message, so a seed gives the same answer on any cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from .cure import LAST, drawn
from .outages import FAULT
from .policy import ENDLESS, MAX_DELAY_MS, Policies, in_force_policy

REPLICATES = 40
#: Failed entries of one queue that a replicate plays at most: of more it plays a share, another one each time, and reckons it up.
PLAYED = 15_000
KEY = ("broker_id", "sequence")
QUEUE = ("broker_id", "queue")
#: Ends that another policy might have changed. The others are verdicts of the application or of a rule, and deaths for want of room.
CHANGING = ("delivery_limit", "expired", "deleted")


def uniform(seed: int, what: str, *columns: str | Column) -> Column:
    """In (0, 1), from the seed, what it is for, and the columns."""
    return (F.shiftrightunsigned(F.xxhash64(F.lit(seed), F.lit(what), *columns), 11) + 0.5) / F.lit(float(1 << 53))


def _early(seed: int) -> Column:
    """Whether trouble passes early between a failure and a success, or late, in one replicate as a whole: an exponent of a throw."""
    return F.exp(1.1 * (2 * uniform(seed, "early", "replicate") - 1))


def failed_entries(messages: DataFrame, attempts: DataFrame, until_us: int | None = None) -> DataFrame:
    """One row for each queue entry that failed at least once and has an attempt on record.

    ``first_at``: of the first failure, or when it came into the queue where that is not on record; ``failures_ms``: when it failed, since
    ``first_at``, the first ENDLESS times, with what is not on record spaced evenly between its neighbours; ``success_ms``: when it
    succeeded, null where it did not; ``died``: or was parked; ``verdict``: the application said that it must not be tried again;
    ``before_ms``: from sending to the first failure; ``error_class`` of the first failure on record; ``lag_ms``: from due to done, of its
    last recorded retry, null where there was none; ``message_key``: of the message, null where it has none; ``policy``: that decided last;
    ``ruled``: a rule had a say; ``over_ms``: no attempt comes later, for the message has expired or was taken away then, or the record
    ends (``until_us``, since 1970); null: neither.
    """
    one = F.struct("attempt", "at", "due_at", "error_class", "message_key", "policy", "rule")
    # At most 100 records a message: max-redelivery-records.
    recorded = attempts.groupBy(*KEY).agg(F.sort_array(F.collect_list(one)).alias("recorded"))
    first, last = F.col("recorded")[0], F.element_at("recorded", -1)

    def since(at: Column) -> Column:
        return (F.unix_micros(at) - F.unix_micros(F.col("first_at"))) / 1000

    def between(n: Column) -> Column:
        before = F.element_at(F.filter("knots", lambda knot: knot["attempt"] <= n), -1)
        after = F.filter("knots", lambda knot: knot["attempt"] >= n)[0]
        part = F.coalesce(F.try_divide(n - before["attempt"], after["attempt"] - before["attempt"]), F.lit(0.0))
        return before["at_ms"] + part * (after["at_ms"] - before["at_ms"])

    succeeded = F.col("outcome") == "succeeded"
    entries = messages.where("failed_attempts > 0").select(
        *(*KEY, "queue", "address", "sent_at", "entered_at", "settled_at", "expires_at", "state", "outcome", "reason", "failed_attempts"),
        "message_key",
    )
    from_start = first["attempt"] == 1
    knots = F.transform("recorded", lambda each: F.struct(each["attempt"].alias("attempt"), since(each["at"]).alias("at_ms")))
    start = F.array(F.struct(F.lit(1).alias("attempt"), F.lit(0.0).alias("at_ms")))
    joined = (
        entries.join(recorded, list(KEY))
        .withColumn("first_at", F.when(from_start, first["at"]).otherwise(F.least("entered_at", first["at"])))
        .withColumn("knots", F.when(from_start, knots).otherwise(F.concat(start, knots)))
    )
    every = F.transform(F.sequence(F.lit(1), F.least("failed_attempts", F.lit(ENDLESS))), between)
    taken_away = F.when(F.col("outcome").isin("expired", "purged", "redriven", "moved", "edited", "delayed"), F.col("settled_at"))
    return joined.select(
        *KEY,
        "queue",
        "address",
        "first_at",
        "failed_attempts",
        F.coalesce(first["error_class"], F.lit("")).alias("error_class"),
        F.when(F.size("knots") == F.col("failed_attempts"), F.col("knots.at_ms")).otherwise(every).alias("failures_ms"),
        F.when(succeeded, since(F.col("settled_at"))).alias("success_ms"),
        F.coalesce(~F.col("reason").isin(*CHANGING), F.lit(False)).alias("verdict"),
        F.coalesce((F.unix_micros("first_at") - F.unix_micros("sent_at")) / 1000, F.lit(0.0)).alias("before_ms"),
        F.when(succeeded, (F.unix_micros("settled_at") - F.unix_micros(last["due_at"])) / 1000).alias("lag_ms"),
        F.coalesce(F.col("outcome").isin("dead-lettered", "dropped"), F.col("state") == "parked").alias("died"),
        F.coalesce("message_key", first["message_key"]).alias("message_key"),
        last["policy"].alias("policy"),
        F.exists("recorded", lambda each: each["rule"].isNotNull()).alias("ruled"),
        since(F.least("expires_at", taken_away, F.timestamp_micros(F.lit(until_us).cast("long")))).alias("over_ms"),
    )


def hazards_of(entries: DataFrame) -> DataFrame:
    """How the nth attempts ended, for each broker, queue and error class.

    ``won`` of ``risk``, and for how long these had waited, ``gap_ms``: arrays by attempt, from the second to LAST.
    """
    times = F.when(F.col("success_ms").isNull(), F.col("failures_ms")).otherwise(F.array_append("failures_ms", F.col("success_ms")))
    each = (
        entries.where("NOT verdict AND (size(failures_ms) > 1 OR success_ms IS NOT NULL)")
        .select(*FAULT, "success_ms", times.alias("times"))
        .withColumn("n", F.explode(F.sequence(F.lit(2), F.size("times"))))
        .withColumn("gap_ms", F.element_at("times", F.col("n")) - F.element_at("times", F.col("n") - 1))
        .withColumn("won", F.col("success_ms").isNotNull() & (F.col("n") == F.size("times")))
        .groupBy(*FAULT, F.least("n", F.lit(LAST)).alias("n"))
        .agg(F.count_if("won").alias("won"), F.count(F.lit(1)).alias("risk"), F.sum("gap_ms").alias("gap_ms"))
    )
    numbers = F.sequence(F.lit(2), F.lit(LAST))

    def by_number(name: str) -> Column:
        found = F.map_from_entries(F.collect_list(F.struct("n", name)))
        return F.transform(numbers, lambda n: F.coalesce(F.element_at(found, n), F.lit(0)).cast("double"))

    return each.groupBy(*FAULT).agg(*(by_number(name).alias(name) for name in ("won", "risk", "gap_ms")))


def chances_of(hazards: DataFrame, outages: DataFrame, seed: int, replicates: int) -> DataFrame:
    """For each broker, queue, class and replicate: ``chance``, ``hopeless``, ``late_ms`` (cure.drawn), and where time decided ``down``:
    from when to when (``from_us``, ``to_us``), drawn between the attempts that show it; null elsewhere.
    """

    def down(each: Column, number: Column) -> Column:
        # It began before its first failure, by about as much as messages are apart; it ended before the first success.
        who = (*FAULT, "replicate", number)
        apart_us = (each["to_us"] - each["from_us"]) / F.greatest(each["met"], F.lit(1))
        begin = F.greatest(each["from_us"] + F.log(uniform(seed, "begin", *who)) * apart_us, each["after_us"].cast("double"))
        end = each["to_us"] + (F.coalesce(each["before_us"], each["to_us"]) - each["to_us"]) * F.pow(
            uniform(seed, "end", *who), _early(seed)
        )
        return F.struct(begin.cast("long").alias("from_us"), end.cast("long").alias("to_us"))

    classes = hazards.toArrow().to_pylist()
    rows = [
        {name: fault[name] for name in FAULT} | each
        for fault in classes
        for each in drawn(fault, repr([fault[name] for name in FAULT]), seed, replicates)
    ]
    of_class = ", ".join(f"{name} string" for name in FAULT)
    fields = f"{of_class}, replicate int, chance array<double>, hopeless array<double>, late_ms double"
    return (
        hazards.sparkSession.createDataFrame([tuple(row.values()) for row in rows], fields)
        .join(F.broadcast(outages), list(FAULT), "left")
        .withColumn("down", F.transform("outages", down))
        .drop("outages")
    )


def with_policy(entries: DataFrame, policies: Policies, recorded: DataFrame | None = None, queues: DataFrame | None = None) -> DataFrame:
    """``delays_ms``, ``cap_ms``, ``factor``, ``full_jitter``, ``first_exact``, ``endless`` of the policy to ask about; ``same``: it is the
    one in force; ``agree``: the retries, from the first on, for which both have the same delay. Addresses that no pattern names are left
    out.

    ``recorded``: ``policies`` of the export: what the file does not name stays as in the policy that decided last; None: as by default.
    ``queues``: of the export: what a queue was declared with goes before what the file names.
    What is collected is one row for each set of patterns that some address matches, declaration, and policy: bounded by settings, not
    messages. Raises AnalyticsError nothing-to-simulate where no address is left.
    """
    dotted = F.concat(F.coalesce("address", "queue"), F.lit("."))
    names = [F.when(dotted.rlike(regex), F.lit(pattern)) for pattern, regex in policies.patterns()]
    known = entries.withColumns({"in_force": F.lit(""), "declared": F.lit("")})
    if recorded is not None:
        named = recorded.groupBy("broker_id", "policy").agg(F.max_by("settings_json", "from_at").alias("in_force"))
        known = known.drop("in_force").join(F.broadcast(named), ["broker_id", "policy"], "left")
    if queues is not None:
        options = queues.groupBy(*QUEUE).agg(F.max_by("options_json", "created_at").alias("declared"))
        known = known.drop("declared").join(F.broadcast(options), list(QUEUE), "left")
    known = known.fillna("", ["in_force", "declared"])
    marked = known.withColumn("kind", F.concat_ws("\0", F.array_join(F.array(*names), "\n"), "in_force", "declared"))
    kinds = [row["kind"] for row in marked.select("kind").distinct().collect()]
    rows = []
    for kind in kinds:
        patterns, in_force, declared = kind.split("\0")
        policy = policies.of(frozenset(patterns.split("\n")) - {""}, in_force or None, declared or None)
        if policy is not None:
            before = in_force_policy(in_force) if in_force else None
            agree, same = (0, False) if before is None else (policy.agrees_with(before), policy == before)
            said = policy.cap_ms, policy.factor, policy.full_jitter, policy.first_exact, policy.endless
            rows.append((kind, list(policy.delays_ms), *said, agree, same))
    if not rows:
        raise AnalyticsError(
            "nothing-to-simulate",
            "No message that failed was sent to an address that the policy file names.",
            "Name the addresses in address-settings; # matches all.",
        )
    fields = "kind string, delays_ms array<double>, cap_ms bigint, factor double, full_jitter boolean, first_exact boolean"
    found = marked.sparkSession.createDataFrame(rows, f"{fields}, endless boolean, agree int, same boolean")
    # What the rules come to is not played: what they had a say in stays as it was.
    return marked.join(F.broadcast(found), "kind").drop("kind", "in_force", "declared").withColumn("same", F.col("same") | F.col("ruled"))


def play(entries: DataFrame, chances: DataFrame, seed: int, replicates: int, *, times: bool = False, keep: Sequence[str] = ()) -> DataFrame:
    """Every entry under the new policy, once for each replicate: ``by_time`` (which way), ``success_ms``, ``dead``, ``deliveries``,
    ``known`` of ``asked`` outcomes that were observed, and for how many it stands: ``weight``.

    ``entries``: of ``with_policy``; its columns ``keep`` come along. ``chances``: of ``chances_of``. With ``times``: all of them, and
    ``times_ms`` of every attempt from the first failure on; else at most PLAYED of each queue.
    """
    most = F.lit(2**60 if times else PLAYED)
    of_queue = entries.groupBy(*QUEUE).agg(
        F.percentile_approx("lag_ms", 0.5).alias("typical_lag_ms"), F.greatest(F.lit(1.0), F.count(F.lit(1)) / most).alias("weight")
    )
    each = (
        entries.join(F.broadcast(of_queue), list(QUEUE))
        .withColumn("replicate", F.explode(F.sequence(F.lit(0), F.lit(replicates - 1))))
        .where(uniform(seed, "sample", "replicate", *KEY) * F.col("weight") < 1)
        .join(F.broadcast(chances), [*FAULT, "replicate"], "left")
    )
    # A class of which no second attempt is on record: nothing is known of it, and half is as good a guess as any.
    unknown = F.array_repeat(F.lit(0.5), LAST - 1)
    last_ms, who = F.element_at("failures_ms", -1), ("replicate", *KEY)
    hopeless = uniform(seed, "hopeless", *who) < F.element_at("hopeless", F.least("failed_attempts", F.lit(LAST)))
    later_ms = last_ms - F.log(uniform(seed, "passes", *who)) * F.coalesce("late_ms", F.lit(60_000.0))
    between_ms = (F.col("success_ms") - last_ms) * F.pow(uniform(seed, "gap", *who), _early(seed))
    passes_ms = F.when(F.col("success_ms").isNull(), later_ms).otherwise(last_ms + between_ms)
    won = F.col("success_ms").isNotNull()
    ready = each.withColumns(
        {
            "blind": F.col("chance").isNull(),
            "chance": F.coalesce("chance", unknown),
            "by_time": F.col("replicate") % 2 == 0,
            "passes_ms": passes_ms,
            "hopeless": F.coalesce(F.col("success_ms").isNull() & hopeless, F.lit(False)),
            "lag_ms": F.greatest(F.coalesce("typical_lag_ms", F.lit(0)).cast("double"), F.lit(0.0)),
            "last_ms": last_ms,
            "recorded_ms": F.when(won, F.array_append("failures_ms", F.col("success_ms"))).otherwise(F.col("failures_ms")),
            "begin_us": F.unix_micros("first_at"),
            # Neither succeeded nor dead: it waits, expired, or was taken away, and the same policy tries it no more.
            "left": ~won & ~F.col("died"),
        }
    )
    # Who failed while nothing was down fails for reasons of its own, and for good.
    up = F.exists("failures_ms", lambda ms: ~_is_down(ms))
    ready = ready.withColumn("doomed", F.col("died") & F.col("down").isNotNull() & up)
    played = ready.withColumn("end", F.aggregate(_numbers(), _start(times), lambda end, n: _step(end, n, seed, who, times)))
    end, same, tries = F.col("end"), F.col("same"), F.col("failed_attempts") + won.cast("int")
    modelled = ~same & (end["known"] < end["n"] - 1)
    dead = F.col("verdict") | ~(end["won"] | end["over"] | F.col("endless"))
    return played.select(
        *KEY,
        "replicate",
        "queue",
        "by_time",
        "weight",
        "first_at",
        "before_ms",
        *keep,
        F.when(same, F.col("success_ms")).when(end["won"], end["at_ms"]).alias("success_ms"),
        # Of a class of which nobody saw a second attempt nothing can be known, where the new policy makes one.
        (modelled & F.col("blind") & ~F.col("verdict")).alias("blind"),
        F.when(same, F.col("died")).otherwise(dead).alias("dead"),
        F.when(same, tries).otherwise(end["n"]).alias("deliveries"),
        F.when(same, tries - 1).otherwise(end["known"]).alias("known"),
        (F.when(same, tries).otherwise(end["n"]) - 1).alias("asked"),
        *([F.when(same, F.col("recorded_ms")).otherwise(end["times_ms"]).alias("times_ms")] if times else []),
    )


def _numbers() -> Column:
    """The attempts after the first that the new policy allows, up to a verdict; none where it is the one in force."""
    allowed = F.least(F.size("delays_ms") + 1, F.lit(ENDLESS + 1), F.when(F.col("verdict"), F.col("failed_attempts")))
    none = F.array().cast("array<int>")
    return F.when(F.col("same") | (allowed < 2), none).otherwise(F.sequence(F.lit(2), allowed))


def _start(times: bool) -> Column:
    no = F.lit(False)
    fields = [F.lit(0.0).alias("at_ms"), F.lit(1).alias("n"), no.alias("won"), no.alias("over"), F.lit(0).alias("known")]
    return F.struct(*fields, *([F.array(F.lit(0.0)).alias("times_ms")] if times else []))


def _is_down(at_ms: Column) -> Column:
    at_us = F.col("begin_us") + at_ms * 1000
    # A microsecond lost in rounding is none of up time.
    return F.exists("down", lambda each: (each["from_us"] - 1 <= at_us) & (at_us <= each["to_us"] + 1))


def _step(end: Column, n: Column, seed: int, who: tuple[str, ...], times: bool) -> Column:
    """The nth attempt of a message that has not succeeded yet; one that has stays as it is."""
    base = F.element_at("delays_ms", n - 1)
    drawn = F.when(F.col("full_jitter"), base * uniform(seed, "jitter", *who, n)).otherwise(base)
    sign = 2 * uniform(seed, "spread", *who, n) - 1  # sign and size in one: U(-1, 1) is ± U(0, 1)
    factor = F.when(F.col("first_exact") & (n == 2), 0.0).otherwise(F.col("factor"))
    delay = F.greatest(F.lit(0.0), F.least(drawn * (1 + factor * sign), F.col("cap_ms"), F.lit(float(MAX_DELAY_MS))))
    by_chance = uniform(seed, "throw", *who, n) < F.element_at("chance", F.least(n - 1, F.lit(LAST - 1)))
    # Half are done sooner than is typical, and half later.
    lag = F.col("lag_ms") * -F.log2(uniform(seed, "lag", *who, n))
    # As long as nothing differs what happened happens again.
    agreed = n <= F.col("agree") + 1
    again = agreed & (n <= F.size("recorded_ms"))
    comes_ms = F.when(again, F.try_element_at("recorded_ms", n)).otherwise(end["at_ms"] + delay + lag)

    def ended(at_ms: Column) -> Column:
        observed = again | (at_ms <= F.col("last_ms")) | F.coalesce(at_ms >= F.col("success_ms"), F.lit(False))
        by_itself = ~F.col("hopeless") & F.when(F.col("by_time"), at_ms >= F.col("passes_ms")).otherwise(by_chance)
        guessed = F.when(F.col("down").isNotNull(), ~F.col("doomed") & ~_is_down(at_ms)).otherwise(by_itself)
        won = ~F.col("verdict") & F.when(again, n > F.size("failures_ms")).otherwise(guessed)
        # One that would come too late is not made: the message ends as it is.
        over = ~again & (F.coalesce(at_ms > F.col("over_ms"), F.lit(False)) | (agreed & F.col("left")))
        fields = [F.when(over, end["at_ms"]).otherwise(at_ms).alias("at_ms"), F.when(over, end["n"]).otherwise(n).alias("n")]
        fields += [(won & ~over).alias("won"), over.alias("over")]
        fields.append((end["known"] + (observed & ~over).cast("int")).alias("known"))
        if times:
            every = end["times_ms"]
            fields.append(F.when(over, every).otherwise(F.array_append(every, at_ms)).alias("times_ms"))
        return F.struct(*fields)

    # As the variable of a lambda the time is reckoned once, not wherever it is written.
    one = F.transform(F.array(comes_ms), ended)[0]
    return F.when(end["won"] | end["over"], end).otherwise(one)
