"""A second opinion on tables of the report: what DuckDB says of the same export, in SQL by definitions of its own.

duck.py has the three that are raced. Groups of error texts are no SQL: of what is told by them the sums are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

#: What became of each message that failed in the queue that it was sent to; ms: from its first failure to its end, or its last failure.
FATES = """(
WITH home AS (
  SELECT message_id, queue, sum(failed_attempts)::BIGINT AS failed, sum(attempts)::BIGINT AS tries,
         max(struct_pack(sequence, outcome, reason, settled_at)) AS ended
  FROM {messages} WHERE queue = home_queue GROUP BY ALL HAVING failed > 0
), met AS (
  SELECT message_id, queue, min(struct_pack("at", sequence, attempt, error_class)) AS first,
         max(struct_pack("at", sequence, attempt, policy, rule)) AS last
  FROM {attempts} WHERE queue = home_queue GROUP BY ALL
), fates AS (
  SELECT *, ended.outcome AS outcome, ended.reason AS reason, first.error_class AS error_class, first."at" AS first_at,
         last."at" AS last_at, last.policy AS policy, last.rule AS rule, coalesce(ended.outcome = 'succeeded', false) AS won,
         coalesce(ended.outcome IN ('dead-lettered', 'dropped'), false) AS died FROM home JOIN met USING (message_id, queue)
)
SELECT *, (epoch_us(CASE WHEN won OR died THEN ended.settled_at ELSE last_at END) - epoch_us(first_at)) // 1000 AS ms FROM fates)"""
#: Each death on record by itself: dead-lettered, expired or dropped. It ended with its last error only if failing was the reason.
DEATHS = """(
WITH last AS (
  SELECT sequence, arg_max(error_class, attempt) AS error_class, arg_max(error_text, attempt) AS error_text FROM {attempts}
    GROUP BY sequence
), died AS (
  SELECT queue, message_id, died_at, target_queues, address, reason, error_class, error_text, lies_in FROM {dead_letters} UNION ALL
  SELECT queue, message_id, settled_at, target_queues, address, coalesce(reason, outcome), error_class, error_text, []
  FROM {messages} LEFT JOIN last USING (sequence) WHERE outcome IN ('expired', 'dropped')
)
SELECT * REPLACE (CASE WHEN failing THEN error_class END AS error_class, CASE WHEN failing THEN error_text END AS error_text) FROM (
  SELECT *, reason NOT IN ('expired', 'maxlen', 'deleted', 'dead-letter-retention', 'dead-letter-quota') AS failing FROM died))"""
#: When counts by the minute begin: in the hour of the first that is not of an hour.
FINE = "min(date_trunc('hour', minute)) FILTER (minute <> date_trunc('hour', minute))"
#: By what a consumer is known over restarts: its number in the program that named itself.
KNOWN = "CASE WHEN client_id IS NULL THEN consumer ELSE split_part(consumer, '/', -1) END AS consumer"
#: What of a table is compared, where that is not all of it.
PARTS = {
    "time_to_success": "WHERE queue IS NOT NULL AND error_class IS NULL",
    "poison_clusters": "GROUP BY ALL",
    "dead_letter_groups": "GROUP BY ALL",
}
#: table -> its columns and the SQL that says the same of the files, by definitions of its own; of one broker.
OPINIONS = {
    "retry_load": (
        "queue minute succeeded_first succeeded_retry failed_first failed_retry retries wasted failed_ms",
        """
WITH wasted AS (
  SELECT queue, date_trunc('minute', settled_at) AS minute, sum(failed_attempts - 1)::BIGINT AS wasted FROM {messages}
  WHERE failed_attempts > 1 AND outcome IN ('dead-lettered', 'dropped') GROUP BY ALL
), load AS (
  SELECT queue, minute, sum(first_try) AS f, sum(succeeded) AS s, sum(failed_first) AS ff, sum(failed) AS x, sum(failed_ms) AS ms
  FROM {deliveries_by_minute} WHERE succeeded + failed > 0 GROUP BY ALL
)
SELECT queue, minute, coalesce(f, 0), coalesce(s - f, 0), coalesce(ff, 0), coalesce(x - ff, 0), coalesce(s - f + x - ff, 0),
       coalesce(wasted, 0), coalesce(ms, 0) FROM load FULL JOIN wasted USING (queue, minute)""",
    ),
    "recent_load": (
        "second failed_first failed_retry succeeded_retry",
        """
SELECT date_trunc('second', "at") AS second, count(*) FILTER (n = 1), count(*) FILTER (n > 1), count(*) FILTER (n = 0) FROM (
  SELECT "at", attempt AS n FROM {attempts} UNION ALL
  SELECT settled_at, 0 FROM {messages} WHERE outcome = 'succeeded' AND failed_attempts > 0)
WHERE epoch_us("at") >= {at_us} - 600000000 GROUP BY second""",
    ),
    "thundering_herds": (
        "queue second due herded",
        """
WITH seconds AS (
  SELECT queue, date_trunc('second', due_at) AS second, count(*) AS due, epoch_us(max("at")) - epoch_us(min("at")) AS spread_us
  FROM {attempts} WHERE due_at IS NOT NULL GROUP BY ALL
), beside AS (SELECT *, sum(due) OVER q - due AS rest, count(*) OVER q - 1 AS others FROM seconds WINDOW q AS (PARTITION BY queue))
SELECT queue, second, due, spread_us > 5000000 FROM beside
WHERE due >= 20 AND due >= 8 * CASE WHEN others > 0 THEN rest / others ELSE 1 END""",
    ),
    "due_error": (
        "queue retries early max_ms within_10_ms later",
        """
WITH each AS (SELECT *, lag(due_at) OVER e AS was_due, lag(attempt) OVER e AS before FROM {attempts}
  WINDOW e AS (PARTITION BY sequence ORDER BY attempt)),
late AS (SELECT queue, (epoch_us(assigned_at) - epoch_us(was_due) + 999) // 1000 AS ms FROM each
  WHERE before = attempt - 1 AND was_due IS NOT NULL AND assigned_at IS NOT NULL)
SELECT queue, count(*), count(*) FILTER (ms < 0), max(ms) FILTER (ms >= 0), count(*) FILTER (ms BETWEEN 0 AND 10),
       count(*) FILTER (ms > 10000)
FROM late GROUP BY queue""",
    ),
    "flow": (
        "source target why messages first_at last_at",
        """
SELECT queue, target, outcome, count(*), min(settled_at), max(settled_at)
FROM (SELECT *, unnest(target_queues) AS target FROM {messages} WHERE outcome NOT IN ('succeeded', 'dropped', 'purged')) GROUP BY ALL""",
    ),
    "journeys": (
        "way hops messages",
        """
WITH ways AS (
  SELECT message_id, count(*) AS hops, arg_min(queue, sequence)
         || string_agg(CASE WHEN outcome IN ('moved', 'redriven', 'edited', 'delayed') THEN ' ⇒ ' ELSE ' → ' END
                       || target_queues[1], '' ORDER BY sequence) AS way
  FROM {messages} WHERE outcome NOT IN ('succeeded', 'dropped', 'purged') AND len(target_queues) > 0 GROUP BY message_id
)
SELECT way, hops, count(*) FROM ways GROUP BY ALL""",
    ),
    "failed_most": (
        "message_id failed_attempts address queue state last_error_class last_error_text last_failed_at",
        """
WITH failed AS (
  SELECT message_id, sum(failed_attempts)::BIGINT AS failed, max(address) AS address, arg_max(queue, sequence) AS queue,
         arg_max(state, sequence) AS state FROM {messages} GROUP BY message_id HAVING failed > 0 ORDER BY failed DESC, message_id LIMIT 50
), last AS (
  SELECT DISTINCT ON (message_id) message_id, error_class, error_text, "at" FROM {attempts}
  ORDER BY message_id, "at" DESC, sequence DESC, attempt DESC
)
SELECT message_id, failed, address, queue, state, error_class, error_text, "at" FROM failed LEFT JOIN last USING (message_id)""",
    ),
    "dead_letter_growth": (
        "queue hour deaths so_far",
        """
WITH hours AS (SELECT queue, date_trunc('hour', died_at) AS hour, count(*) AS deaths FROM {deaths} GROUP BY ALL)
SELECT queue, hour, deaths, sum(deaths) OVER (PARTITION BY queue ORDER BY hour)::BIGINT FROM hours""",
    ),
    "time_to_success": (
        "queue messages p50_ms p90_ms p99_ms max_ms max_attempts",
        """
WITH home AS (
  SELECT message_id, queue, sum(failed_attempts) AS failed, sum(attempts) AS tries, arg_max(outcome, sequence) AS outcome,
         (epoch_us(max(settled_at)) - epoch_us(min(sent_at))) // 1000 AS ms FROM {messages} WHERE queue = home_queue GROUP BY ALL
)
SELECT queue, count(*), quantile_disc(ms, 0.5), quantile_disc(ms, 0.9), quantile_disc(ms, 0.99), max(ms), max(tries)::BIGINT
FROM home WHERE failed > 0 AND outcome = 'succeeded' GROUP BY queue""",
    ),
    "faults": (
        "queue fingerprint failures dead attempts",
        """
WITH last AS (SELECT queue, fingerprint, CASE WHEN attempt = max(attempt) OVER e THEN attempt - count(*) OVER e ELSE 0 END AS lost
  FROM {attempts} WINDOW e AS (PARTITION BY sequence)),
met AS (SELECT queue, fingerprint, sum(1 + lost)::BIGINT AS attempts FROM last GROUP BY ALL)
SELECT queue, fingerprint, failures, dead, coalesce(attempts, 0) FROM {faults} FULL JOIN met USING (queue, fingerprint)""",
    ),
    "redrive_yield": (
        "dead_letter_queue queue fingerprint lie",
        """
SELECT place, queue, fingerprint, count(*) FROM (SELECT *, unnest(lies_in) AS place FROM {dead_letters}) GROUP BY ALL""",
    ),
    "survival": (
        'queue error_class "by" "at" at_risk succeeded died censored round(came_home,9) round(dead,9)',
        """
WITH steps AS (
  SELECT *, 'time' AS "by", ms AS t FROM {fates} UNION ALL
  SELECT *, 'attempts', CASE WHEN won THEN tries ELSE failed END FROM {fates}
), counted AS (
  SELECT queue, error_class, "by", t, count(*) FILTER (won) AS home, count(*) FILTER (died) AS dead, count(*) AS ended
  FROM steps GROUP BY GROUPING SETS ((queue, error_class, "by", t), (queue, "by", t), ("by", t))
), watched AS (
  SELECT *, sum(ended) OVER (PARTITION BY queue, error_class, "by" ORDER BY t DESC)::BIGINT AS n FROM counted
), alive AS (
  SELECT *, coalesce(product(1 - (home + dead) / n) OVER (
    PARTITION BY queue, error_class, "by" ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 1) AS s FROM watched
)
SELECT queue, error_class, "by", t, n, home, dead, ended - home - dead, round(sum(s * home / n) OVER c, 9),
  round(sum(s * dead / n) OVER c, 9)
FROM alive WINDOW c AS (PARTITION BY queue, error_class, "by" ORDER BY t)""",
    ),
    "retry_storms": (
        "queue from_at until minutes retries deliveries peak",
        """
WITH load AS (
  SELECT queue, minute, sum(succeeded + failed)::BIGINT AS deliveries,
         sum(succeeded + failed - first_try - failed_first)::BIGINT AS retries FROM {deliveries_by_minute} GROUP BY ALL
), stormy AS (
  SELECT *, minute - lag(minute) OVER (PARTITION BY queue ORDER BY minute) > INTERVAL 3 MINUTE AS anew FROM load
  WHERE minute >= (SELECT {fine} FROM {deliveries_by_minute} AS each WHERE each.queue = load.queue) AND retries >= 30
    AND 2 * retries >= deliveries
), storms AS (SELECT *, count(*) FILTER (anew) OVER (PARTITION BY queue ORDER BY minute) AS storm FROM stormy)
SELECT queue, min(minute), max(minute) + INTERVAL 1 MINUTE, count(*), sum(retries)::BIGINT, sum(deliveries)::BIGINT, max(retries)
FROM storms GROUP BY queue, storm""",
    ),
    "outages": (
        "queue error_class from_at to_at up_before up_after failures messages succeeded",
        """
WITH counts AS (
  SELECT queue, minute, sum(succeeded) AS won, sum(failed) AS lost, sum(first_try) AS first_won, sum(failed_first) AS first_lost
  FROM {deliveries_by_minute} GROUP BY ALL HAVING won + lost > 0
), fine AS (
  SELECT *, 9 * won <= lost AS down FROM counts
  WHERE minute >= (SELECT {fine} FROM {deliveries_by_minute} AS each WHERE each.queue = counts.queue)
), usual AS (
  SELECT queue, sum(won) / sum(won + lost) AS share, sum(first_lost) / sum(first_lost + first_won) AS fails FROM fine
    WHERE NOT down GROUP BY queue
), parted AS (
  SELECT *, NOT down OR coalesce(minute - lag(minute) OVER q > INTERVAL 30 MINUTE, false) AS parts FROM fine
  WINDOW q AS (PARTITION BY queue ORDER BY minute)
), numbered AS (SELECT *, count(*) FILTER (parts) OVER (PARTITION BY queue ORDER BY minute) AS run FROM parted), runs AS (
  SELECT queue, min(minute) AS since, max(minute) + INTERVAL 1 MINUTE AS until, sum(lost)::BIGINT AS failures
  FROM numbered JOIN usual USING (queue) WHERE down AND share >= 0.5 GROUP BY queue, run HAVING count(*) >= 2 AND failures >= 10
), failed AS (
  SELECT queue, since, mode(error_class) AS error_class, min("at") AS from_at, max("at") AS to_at, count(DISTINCT message_id) AS every
  FROM runs JOIN {attempts} AS a USING (queue) WHERE a."at" >= since AND a."at" < until GROUP BY ALL
), met AS (
  SELECT queue, since, count(*) AS messages, count(*) FILTER (won) AS saved, count(DISTINCT date_trunc('minute', first_at)) AS spread
  FROM runs JOIN {fates} AS f USING (queue) WHERE first_at >= since AND first_at < until GROUP BY ALL
)
SELECT queue, error_class, from_at, to_at,
       (SELECT max(minute) FROM fine WHERE fine.queue = runs.queue AND NOT down AND minute < since),
       (SELECT min(minute) FROM fine WHERE fine.queue = runs.queue AND NOT down AND minute >= until), failures, messages, saved
FROM runs JOIN failed USING (queue, since) JOIN met USING (queue, since) JOIN usual USING (queue)
WHERE messages >= 5 AND 2 * messages >= every AND (spread > 2 OR 2 * saved >= messages) AND greatest(fails, 0.01) ** messages < 1e-6""",
    ),
    "dead_letter_trend": (
        "queue deaths round(hours,6) early late round(slope_per_day,6) verdict",
        """
WITH since AS (SELECT epoch_us(min(minute)) AS us FROM {deliveries_by_minute}
  WHERE minute >= (SELECT {fine} FROM {deliveries_by_minute})),
parts AS (
  SELECT queue, least((epoch_us(died_at) - us) * 12 // ({at_us} - us), 11) AS part FROM {deaths}, since WHERE epoch_us(died_at) >= us
), whole AS (
  SELECT queue, n.part, count(parts.part) AS deaths FROM (SELECT DISTINCT queue FROM parts) CROSS JOIN range(12) AS n(part)
  LEFT JOIN parts USING (queue, part) GROUP BY ALL
), lines AS (
  SELECT queue, sum(deaths)::BIGINT AS deaths, coalesce(sum(deaths) FILTER (part < 6), 0)::BIGINT AS early,
         coalesce(sum(deaths) FILTER (part >= 6), 0)::BIGINT AS late, regr_slope(deaths, part) AS slope,
         sqrt((1 - coalesce(regr_r2(deaths, part), 0)) * regr_syy(deaths, part) / 10 / regr_sxx(deaths, part)) AS error
           FROM whole GROUP BY queue
)
SELECT queue, deaths, round(({at_us} - us) / 3.6e9, 6), early, late, round(slope * (12 * 8.64e10 / ({at_us} - us)) ** 2, 6),
       CASE WHEN deaths < 20 THEN 'too-few' WHEN abs(late - early) <= greatest(3 * sqrt(deaths), deaths / 5) THEN 'steady'
            WHEN abs(slope) <= 3 * error THEN 'uneven' WHEN slope > 0 THEN 'growing' ELSE 'falling' END FROM lines, since""",
    ),
    "settings_in_force": (
        "queue policy pattern from_at until current max_delivery_attempts failed succeeded died died_share within_ms gives_up_ms "
        "retries wasted",
        """
WITH decided AS (SELECT queue, policy, min("at") AS since, max("at") AS until FROM {attempts} WHERE policy IS NOT NULL GROUP BY ALL),
periods AS (
  SELECT *, until = max(until) OVER (PARTITION BY queue) AS current,
         (SELECT max(from_at) FROM {settings} AS s WHERE s.pattern = decided.queue AND s.from_at <= since) AS loaded FROM decided
)
SELECT queue, policy, queue, loaded, until, current, (p.settings_json->>'max_delivery_attempts')::BIGINT, count(*), count(*) FILTER (won),
       count(*) FILTER (died), count(*) FILTER (died) / nullif(count(*) FILTER (won OR died), 0), quantile_disc(ms, 0.93) FILTER (won),
       quantile_disc(ms, 0.5) FILTER (died), sum(tries - 1)::BIGINT, coalesce(sum(failed - 1) FILTER (died), 0)::BIGINT
FROM {fates} AS f JOIN periods USING (queue, policy) JOIN {policies} AS p USING (policy) GROUP BY ALL""",
    ),
    "advice": (
        "queue error_class kind failed succeeded died verdicts within_ms gives_up_ms needs_ms most_attempts last_two late_wins retries "
        "wasted "
        "first_at last_at",
        """
WITH allowed AS (
  SELECT queue, policy, coalesce(max(tries) FILTER (died AND reason = 'delivery_limit'), max(tries)) AS most FROM {fates} GROUP BY ALL
), ends AS (SELECT queue, policy, error_class, quantile_disc(ms, 0.5) FILTER (died) AS gives_up FROM {fates} GROUP BY ALL), summed AS (
  SELECT queue, policy, error_class, any_value(most) AS most, any_value(gives_up) AS gives_up, count(*) AS n, count(*) FILTER (won) AS won,
         count(*) FILTER (died) AS dead, count(*) FILTER (died AND reason = 'not-retryable') AS verdicts,
         quantile_disc(ms, 0.93) FILTER (won) AS within, count(*) FILTER (won AND tries >= most - 1 AND most > 2) AS last_two,
         count(*) FILTER (won AND ms > gives_up / 2) AS late, sum(greatest(least(ms, gives_up) - gives_up / 2, 0)) AS late_ms,
         sum(tries - 1)::BIGINT AS retries, coalesce(sum(failed - 1) FILTER (died), 0)::BIGINT AS wasted, min(first_at) AS since,
         max(last_at) AS until
  FROM {fates} JOIN allowed USING (queue, policy) JOIN ends USING (queue, policy, error_class) GROUP BY queue, policy, error_class
), judged AS (
  SELECT *, CASE WHEN n < 20 THEN 'too-few' WHEN won <= 0.02 * n AND wasted > 0 AND 2 * verdicts < dead THEN 'not-retryable'
    WHEN won > 0 AND ((10 * last_two >= won AND dead > 0) OR (10 * late >= won AND 20 * dead >= n)) THEN 'longer' ELSE 'fine' END AS kind,
    gives_up + ln(nullif(dead, 0) / n / 0.01) * late_ms / nullif(late, 0) AS needs FROM summed
)
SELECT queue, error_class, kind, n, won, dead, verdicts, within, gives_up,
       CASE WHEN kind = 'longer' AND needs <= 50 * gives_up THEN round(needs)::BIGINT END, most, last_two, late, retries, wasted, since,
         until
FROM judged""",
    ),
    "consumers": (
        "queue client_id host version consumer deliveries failed together round(share,9) round(fairness,9) hold_p50_ms hold_p90_ms "
        "round(hold_mean_ms,6) "
        "window_p50_ms window_p90_ms slow hoards greedy",
        """
WITH failing AS (
  SELECT queue, client_id, host, version, {known}, count(*) AS seen, min(assigned_at) AS since, max("at") AS until,
         quantile_disc((epoch_us("at") - epoch_us(given_at)) / 1000, [0.5, 0.9]) AS hold,
         quantile_disc((epoch_us(given_at) - epoch_us(assigned_at)) / 1000, [0.5, 0.9]) AS wait FROM {attempts}
  WHERE consumer IS NOT NULL AND given_at IS NOT NULL GROUP BY ALL
), counted AS (
  SELECT queue, client_id, host, version, {known}, sum(succeeded) AS won, sum(held_ms) AS held, sum(failed) AS failed,
         min(first_at) AS first_at, max(last_at) AS last_at FROM {deliveries_by_consumer} GROUP BY ALL
), each AS (
  SELECT coalesce(c.queue, f.queue) AS queue, coalesce(c.client_id, f.client_id) AS client_id, coalesce(c.host, f.host) AS host,
         coalesce(c.version, f.version) AS version, coalesce(c.consumer, f.consumer) AS consumer,
         coalesce(failed, seen, 0)::BIGINT AS lost, coalesce(won, 0)::BIGINT AS won, lost + coalesce(c.won, 0)::BIGINT AS n,
         hold[1] AS h50, hold[2] AS h90, held / nullif(c.won, 0) AS mean, wait[1] AS w50, wait[2] AS w90,
         epoch_us(least(since, first_at)) AS a, epoch_us(greatest(until, last_at)) AS b
  FROM counted AS c FULL JOIN failing AS f ON c.queue = f.queue AND c.consumer = f.consumer AND
    (c.client_id, c.host, c.version) IS NOT DISTINCT FROM (f.client_id, f.host, f.version)
), beside AS (
  SELECT x.*, count(*) AS together, sum(y.n) AS whole, sum(y.n) ** 2 / count(*) / sum(y.n ** 2) AS even
  FROM each AS x JOIN each AS y ON x.queue = y.queue AND least(x.b, y.b) >= greatest(x.a, y.a) AND 2 * (least(x.b, y.b) - greatest(x.a,
    y.a)) >= greatest(x.b - x.a, y.b - y.a)
  GROUP BY ALL
), typical AS (SELECT queue, median(h50) AS h50, median(mean) AS mean, median(w50) AS w50 FROM each GROUP BY queue HAVING count(*) > 1)
SELECT queue, client_id, host, version, consumer, n, lost, together, round(n / whole, 9), round(even, 9), e.h50, e.h90, round(e.mean, 6),
  e.w50, e.w90,
       coalesce(lost >= 10 AND e.h50 > greatest(4 * t.h50, 100), false) OR coalesce(won >= 10 AND e.mean > greatest(4 * t.mean, 100),
         false),
       coalesce(lost >= 10 AND e.w50 > greatest(10 * t.w50, 5000), false),
       n >= 10 AND n / whole >= 1.5 / together AND n / whole - 1 / together > 3 * sqrt(1 / together * (1 - 1 / together) / whole)
FROM beside AS e LEFT JOIN typical AS t USING (queue)""",
    ),
    "releases": (
        "queue error_class kind name failed deliveries others_failed others_deliveries round(lift,9) suspect first_at last_at",
        """
WITH told AS (
  SELECT queue, error_class, message_id, 'version' AS kind, version AS name, "at" FROM {attempts} UNION ALL
  SELECT queue, error_class, message_id, 'host', host, "at" FROM {attempts} UNION ALL
  SELECT queue, error_class, message_id, 'client_id', client_id, "at" FROM {attempts}
), alone AS (
  SELECT queue, error_class, kind, min(name) AS name, min("at") AS "at" FROM told
  GROUP BY queue, error_class, kind, message_id
  HAVING count(DISTINCT name) = 1
), failed AS (
  SELECT queue, error_class, kind, name, epoch_us("at") // 300000000 AS slice, count(*) AS failed, min("at") AS since, max("at") AS until
  FROM alone GROUP BY ALL
), served AS (
  SELECT *, unnest(range(epoch_us(first_at) // 300000000, epoch_us(last_at) // 300000000 + 1)) AS slice,
         (succeeded + coalesce(failed, 0)) / (epoch_us(last_at) // 300000000 - epoch_us(first_at) // 300000000 + 1) AS n
  FROM {deliveries_by_consumer}
), given AS (
  SELECT queue, 'version' AS kind, version AS name, slice, sum(n) AS n FROM served GROUP BY ALL UNION ALL
  SELECT queue, 'host', host, slice, sum(n) FROM served GROUP BY ALL UNION ALL
  SELECT queue, 'client_id', client_id, slice, sum(n) FROM served GROUP BY ALL
), there AS (
  SELECT x.*, sum(y.n) AS others FROM given AS x JOIN given AS y ON x.queue = y.queue AND x.kind = y.kind AND x.slice = y.slice
    AND x.name <> y.name
  GROUP BY ALL
), cells AS (
  SELECT m.error_class, t.*, coalesce(f.failed, 0) AS a, greatest(t.n, a) AS own, f.since, f.until
  FROM there AS t JOIN (SELECT DISTINCT queue, error_class, kind, slice FROM failed) AS m USING (queue, kind, slice)
  LEFT JOIN failed AS f ON f.queue = t.queue AND f.error_class = m.error_class AND f.kind = t.kind AND f.name = t.name AND f.slice = t.slice
), tables AS (
  SELECT *, sum(own) OVER s AS all_n, sum(a) OVER s AS all_a FROM cells WINDOW s AS (PARTITION BY queue, error_class, kind, slice)
), tests AS (
  SELECT queue, error_class, kind, name, sum(a)::BIGINT AS met, sum(all_a - a)::BIGINT AS others_met,
         sum(a * (all_n - own) / all_n) / nullif(sum((all_a - a) * own / all_n), 0) AS lift, min(since) AS since, max(until) AS until,
         sum(a - all_a * own / all_n) / sqrt(nullif(sum(
           own * (all_n - own) * all_a * (all_n - all_a) / (all_n ** 2 * nullif(all_n - 1, 0))), 0)) AS errors FROM tables GROUP BY ALL
), whole AS (SELECT queue, kind, name, sum(n) AS n, sum(others) AS others FROM there GROUP BY ALL)
SELECT queue, error_class, kind, name, met, round(n)::BIGINT, others_met, round(others)::BIGINT, round(lift, 9),
       met >= 5 AND n >= 20 AND others >= 20 AND coalesce(errors > 4, false) AND coalesce(lift, 2) >= 2, since, until
FROM tests JOIN whole USING (queue, kind, name) WHERE met > 0""",
    ),
    "poison_clusters": (
        "queue error_class sum(attempts)::BIGINT sum(deaths)::BIGINT sum(here)::BIGINT sum(succeeded)::BIGINT min(first_at) max(last_at)",
        """
WITH met AS (
  SELECT queue, error_class, min("at") AS since, max("at") AS until, count(*) AS attempts FROM {attempts}
  WHERE error_text IS NOT NULL GROUP BY ALL
), died AS (
  SELECT queue, error_class, message_id, bool_or(len(lies_in) > 0) AS here FROM {deaths}
  WHERE error_text IS NOT NULL GROUP BY ALL
), dead AS (
  SELECT d.queue, d.error_class, count(*) AS deaths, count(*) FILTER (here) AS here, count(*) FILTER (f.won) AS saved
  FROM died AS d LEFT JOIN {fates} AS f USING (message_id, queue) GROUP BY ALL
)
SELECT queue, error_class, attempts, coalesce(deaths, 0), coalesce(here, 0), coalesce(saved, 0), since, until
FROM met LEFT JOIN dead USING (queue, error_class)""",
    ),
    "dead_letter_groups": (
        "dead_letter_queue queue source reason error_class sum(deaths)::BIGINT sum(remaining)::BIGINT sum(under_hour)::BIGINT "
        "sum(under_day)::BIGINT sum(under_week)::BIGINT sum(older)::BIGINT min(first_died_at) max(last_died_at)",
        """
WITH died AS (SELECT *, ({at_us} - epoch_us(died_at)) / 3.6e9 AS hours FROM {deaths})
SELECT target_queues[1], queue, address, reason, coalesce(error_class, reason), count(*), count(*) FILTER (len(lies_in) > 0),
       count(*) FILTER (hours < 1), count(*) FILTER (hours >= 1 AND hours < 24), count(*) FILTER (hours >= 24 AND hours < 168),
       count(*) FILTER (hours >= 168), min(died_at), max(died_at) FROM died GROUP BY 1, 2, 3, 4, 5""",
    ),
}


def opinions(dump: Path, report: Path, exported_at_us: int) -> dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """table -> the rows of the report of one export, and those by SQL; both sorted."""
    files = {each.name: f"read_parquet('{each}/**/*.parquet', hive_partitioning=false)" for each in dump.iterdir() if each.is_dir()}
    files |= {"fates": FATES.format(**files), "deaths": DEATHS.format(**files), "fine": FINE, "known": KNOWN}
    found = {}
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        for name, (columns, sql) in OPINIONS.items():
            written = f"SELECT {', '.join(columns.split())} FROM '{report}/parquet/{name}/*.parquet' {PARTS.get(name, '')}"
            both = (written, sql.format(**files, at_us=exported_at_us))
            ours, theirs = (sorted(connection.execute(each).fetchall(), key=repr) for each in both)
            found[name] = ours, theirs
    return found
