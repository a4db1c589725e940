"""Cumulative incidence as another library has it: scikit-survival, where the report uses statsmodels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def incidence(ends: Mapping[float, tuple[int, int, int]]) -> dict[float, tuple[int, float, float]]:
    """Time -> (succeeded, died, censored) at it. Returns time -> (at risk before it, part that succeeded by then, part that is dead)."""
    # It takes seconds to import, in each process that collects tests.
    from sksurv.nonparametric import cumulative_incidence_competing_risks, kaplan_meier_estimator

    counts: Any = np.array([ends[at] for at in sorted(ends)])
    times: Any = np.repeat(np.array(sorted(ends), dtype=float), counts.sum(axis=1))
    events: Any = np.concatenate([np.repeat([1, 2, 0], each) for each in counts])
    if {1, 2} <= set(events):
        at, (_, home, dead) = cumulative_incidence_competing_risks(events, times)
    else:  # nothing competes
        at, alive = kaplan_meier_estimator(events > 0, times)
        home, dead = (1 - alive if cause in events else 0 * alive for cause in (1, 2))
    left = [int(sum(times >= each)) for each in at]
    return {float(each): (n, float(won), float(lost)) for each, n, won, lost in zip(at, left, home, dead, strict=True)}
