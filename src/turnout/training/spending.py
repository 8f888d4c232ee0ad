"""ε so far, at every step of a run, from as few priced points as give a useful curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnout.plans import PreparedPlan
from turnout.plans.preparation import costliest_clients
from turnout.schemes import AvailabilityCheckIn, Scheme

_TRACE_POINTS = 6
"""Points of a curve over clients with windows of their own; each takes seconds to price."""


@dataclass(frozen=True, slots=True, eq=False)
class EpsilonCurve:
    """Proved upper bounds on what has been spent.

    Attributes:
        steps: steps done, rising from 0 to the whole run, int64, shape ``(points,)``.
        epsilon: ε after that many steps, shape ``(points,)``.
    """

    steps: NDArray[np.int64]
    epsilon: NDArray[np.float64]

    def at(self, step: int) -> float:
        """ε after ``step`` steps: that of the next point, which is never too small."""
        return float(self.epsilon[np.searchsorted(self.steps, step)])


def epsilon_curve(prepared: PreparedPlan, interval: int) -> EpsilonCurve:
    """ε every ``interval`` steps; for clients with windows of their own, at some window ends.

    Guarantees:
        Rises, and never above the whole run's ε: who sees a part of the releases sees no more
        than who sees all.
    """
    from turnout.accounting import running

    scheme = prepared.scheme
    law, delta = scheme.participation, prepared.plan.privacy.delta
    if isinstance(law, AvailabilityCheckIn):
        interval = law.window * -(-law.windows // _TRACE_POINTS)
    steps = np.unique(np.append(np.arange(0, law.steps, interval), law.steps))
    total = prepared.guarantee.epsilon.upper
    until = _until(scheme, delta)
    inner = running(until, steps[:-1].tolist(), total)
    return EpsilonCurve(steps, np.array([*inner, total]))


def _until(scheme: Scheme, delta: float) -> Callable[[int], float]:
    """ε after a number of steps; the worst client may change, so it is found anew."""
    from turnout.accounting import epsilon_upper

    law = scheme.participation
    if not isinstance(law, AvailabilityCheckIn):
        return lambda step: epsilon_upper(scheme, delta, step, shared=True)

    def until(step: int) -> float:
        part = replace(scheme, participation=law.part(steps=step))
        return epsilon_upper(costliest_clients(part), delta)

    return until
