"""ε so far, at every step of a plan's run; each point is priced when somebody asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import NumericalError, UnsupportedError
from turnout.plans.preparation import PreparedPlan, costliest_clients
from turnout.schemes import AvailabilityCheckIn, Relation, Scheme
from turnout.schemes.normal_form import Form, normal_form

_TRACE_POINTS = 6
"""Points of a curve over clients with windows of their own; each takes seconds to price."""
_FEW, _FEW_SLOW = 12, 6
"""Points that stand for the others while a run goes on; the fewer where each takes long."""


@dataclass(frozen=True, eq=False)
class EpsilonCurve:
    """Proved upper bounds on what has been spent, priced when they are asked for.

    Attributes:
        steps: steps done, rising from 0 to the whole run, int64, shape ``(points,)``.
        bound: a proved bound on ε after so many steps alone, infinite where there is none.
        whole: ε of the whole run.
        few: steps done from 0 to all too, but fewer: those that `at` takes.

    Guarantees:
        Rises, and never above the whole run's ε: who sees a part of the releases sees no more
        than who sees all.
    """

    steps: NDArray[np.int64]
    bound: Callable[[int], float]
    whole: float
    few: NDArray[np.int64]

    def epsilon(self, tell: Callable[[int], None] | None = None) -> NDArray[np.float64]:
        """ε after each of ``steps``, shape ``(points,)``; ``tell`` hears how many are found."""
        return self._rising(self.steps, tell)

    def at(self, step: int) -> float:
        """ε after ``step`` steps: that of the next of a few points, which is never too small."""
        return float(self._at_few[np.searchsorted(self.few, step)])

    @cached_property
    def _at_few(self) -> NDArray[np.float64]:
        return self._rising(self.few, None)

    def _rising(
        self, steps: NDArray[np.int64], tell: Callable[[int], None] | None
    ) -> NDArray[np.float64]:
        from turnout.accounting import running

        asked = count(1)

        def bound(step: int) -> float:
            if tell is not None:
                tell(next(asked))
            return self.bound(step)

        inner = running(bound, steps[:-1].tolist(), self.whole)
        return np.array([*inner, self.whole])


def epsilon_curve(prepared: PreparedPlan, interval: int) -> EpsilonCurve:
    """ε every ``interval`` steps; for clients with windows of their own, at some window ends."""
    scheme = prepared.scheme
    law, delta = scheme.participation, prepared.plan.privacy.delta
    slow = scheme.relation is Relation.REPLACE_ONE
    if isinstance(law, AvailabilityCheckIn):
        interval, slow = law.window * -(-law.windows // _TRACE_POINTS), True
    steps = np.unique(np.append(np.arange(0, law.steps, interval), law.steps))
    few = _few(steps, normal_form(law), _FEW_SLOW if slow else _FEW)
    return EpsilonCurve(steps, _bound(scheme, delta), prepared.guarantee.epsilon.upper, few)


def _few(steps: NDArray[np.int64], form: Form, most: int) -> NDArray[np.int64]:
    """A few numbers of steps, denser at the beginning: ε grows about as the root of the steps.

    After the first block they end with a block: one that was begun has a price of its own, while
    whole ones share theirs.
    """
    places = np.ceil(np.linspace(0.0, 1.0, most + 1) ** 2 * (steps.size - 1)).astype(np.intp)
    few = {0}
    for step in steps[places[1:]].tolist():
        first, size = form.block(form.at_step(step - 1).block)
        few.add(step if first == 0 else first + size)
    return np.array(sorted(few))


def _bound(scheme: Scheme, delta: float) -> Callable[[int], float]:
    """ε after a number of steps; the worst client may change, so it is found anew."""
    from turnout.accounting import epsilon_upper

    law = scheme.participation

    @cache
    def bound(step: int) -> float:
        try:
            if not isinstance(law, AvailabilityCheckIn):
                return epsilon_upper(scheme, delta, step, shared=True)
            part = replace(scheme, participation=law.part(steps=step))
            return epsilon_upper(costliest_clients(part), delta)
        except (NumericalError, UnsupportedError):
            return math.inf  # the whole run has a bound, which holds for its parts too

    return bound
