"""ε so far, at every step of a run, from as few priced points as give a useful curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.plans import PreparedPlan
from turnout.plans.preparation import costliest_clients
from turnout.spec import AvailabilityCheckIn


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
    """ε every ``interval`` steps; for clients with windows of their own, at window ends.

    Guarantees:
        Rises, and never above the whole run's ε: who sees a part of the releases sees no more
        than who sees all.
    """
    from turnout.accounting import spent

    scheme = prepared.scheme
    law = scheme.participation
    if isinstance(law, AvailabilityCheckIn):
        interval = law.window
        scheme = costliest_clients(scheme)
    steps = np.unique(np.append(np.arange(0, law.steps, interval), law.steps))
    delta = prepared.plan.privacy.delta
    inner = np.array(spent(scheme, delta, steps[1:-1].tolist()), dtype=np.float64)
    total = prepared.guarantee.epsilon.upper
    epsilon = np.concatenate([[0.0], np.minimum(inner, total), [total]])
    return EpsilonCurve(steps, np.minimum.accumulate(epsilon[::-1])[::-1])
