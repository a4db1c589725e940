"""What of the trouble passes, and how fast: a mixture cure model of each error class, from how its nth attempts ended.

A share of the messages never recovers; the trouble of the others passes at a constant rate, by the attempt or by the millisecond (Berkson
and Gage 1952, Farewell 1982). The record does not tell one from the other where it ends early: so each replicate has a share and a rate
of its own, drawn from what the record leaves likely. Only the later half of lives is looked at; earlier attempts are taken as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

#: Numbers of attempts are told up to this one; later ones count with it.
LAST = 16
#: Shares that never recover, and rates, as what is expected in the time on record: what takes far longer counts as never.
SHARES, RATES = np.linspace(0, 1, 33), np.geomspace(0.05, 20, 33)
#: How far the rate after the record's end may be from that before: its logarithm has these standard deviations.
TIME_DRIFT, ATTEMPT_DRIFT = 0.7, 0.35
#: Of fewer attempts the chance is taken from the model.
ENOUGH = 5


class _Fit(NamedTuple):
    """Of one replicate. ``share``, by attempt from the second on: of those that are given it these never recover; ``passes``: the chance of
    the others; ``rate``: of what comes later.
    """

    share: Any
    passes: Any
    rate: float


def drawn(fault: Mapping[str, Any], name: str, seed: int, replicates: int) -> list[dict[str, Any]]:
    """For each replicate ``chance``: of those that recover, by attempt from the second to LAST; ``hopeless``: how probably one never
    recovers that has failed so often, from 1 on; ``late_ms``: the others' mean time after the end of the record. Even replicates look at
    time, odd ones at attempts. ``fault``: ``won``, ``risk``, ``gap_ms`` by attempt, of one error class, which is called ``name``.
    """
    random = np.random.default_rng([seed, crc32(name.encode())])
    won, risk, gap = (np.array(fault[each], float) for each in ("won", "risk", "gap_ms"))
    seen = int(np.flatnonzero(risk)[-1]) + 1
    won, risk, gap = won[:seen], risk[:seen], gap[:seen]
    steps = gap / np.maximum(risk, 1) + 1, np.ones(seen)
    likely = [_likely(won, risk, each) for each in steps]
    found = []
    for replicate in range(replicates):
        way = replicate % 2
        fit = _fit(won, risk, steps[way], *_draw(likely[way], random))
        chance, hopeless = _by_attempt(won, risk, fit, random)
        late_ms = np.exp(TIME_DRIFT * random.standard_normal()) / fit.rate
        found.append({"replicate": replicate, "chance": chance.tolist(), "hopeless": hopeless.tolist(), "late_ms": float(late_ms)})
    return found


def _late(steps: Any) -> Any:
    """The later half of attempts, and what had gone by before each since its beginning."""
    late = np.arange(len(steps)) >= (len(steps) - 1) / 2
    return late, np.cumsum(steps * late) - steps * late


def _likely(won: Any, risk: Any, steps: Any) -> Any:
    """How likely each share and rate are, of those that are given the first attempt of the later half; and the rates."""
    late, before = _late(steps)
    rates = RATES / steps[late].sum()
    share, rate = SHARES[:, None, None], rates[None, :, None]
    susceptible = (1 - share) * np.exp(-rate * before[late])
    chance = susceptible * -np.expm1(-rate * steps[late]) / (share + susceptible)
    chance = np.clip(chance, 1e-12, 1 - 1e-12)
    log = (won[late] * np.log(chance) + (risk - won)[late] * np.log1p(-chance)).sum(axis=2)
    weights = np.exp(log - log.max())
    if won.any():  # else nothing says that any recovers
        weights[0] *= len(SHARES) - 1
    return weights / weights.sum(), rates


def _draw(likely: Any, random: np.random.Generator) -> tuple[float, float]:
    weights, rates = likely
    share, rate = divmod(int(random.choice(weights.size, p=weights.ravel())), len(rates))
    return float(SHARES[share]), float(rates[rate])


def _fit(won: Any, risk: Any, steps: Any, share: float, rate: float) -> _Fit:
    late, before = _late(steps)
    susceptible = (1 - share) * np.exp(-rate * before)
    # As many as never recover later never recovered before.
    early = np.minimum(share * risk[late][0], risk - won) / np.maximum(risk, 1)
    return _Fit(np.where(late, share / (share + susceptible), early), -np.expm1(-rate * steps), rate)


def _by_attempt(won: Any, risk: Any, fit: _Fit, random: np.random.Generator) -> tuple[Any, Any]:
    able = np.maximum(risk * (1 - fit.share), won)
    chance = np.where(risk >= ENOUGH, (won + 2 * fit.passes) / (able + 2), fit.passes)
    chance = chance + np.sqrt(chance * (1 - chance) / (able + 3)) * random.standard_normal(len(won))
    later = fit.passes[-1] * np.exp(ATTEMPT_DRIFT * random.standard_normal())
    chances = np.clip(np.concatenate([chance, np.full(LAST - 1, later)])[: LAST - 1], 0, 1)
    # Who has failed the attempt, too.
    failed = fit.share / np.maximum(fit.share + (1 - fit.share) * (1 - np.where(risk > 0, won / np.maximum(able, 1), 0)), 1e-12)
    hopeless = np.concatenate([fit.share[:1], failed, np.full(LAST, failed[-1])])[:LAST]
    return chances, np.clip(hopeless, 0, 1)
