"""Upper bounds on the ε that a plan's run has spent after each step, computed on demand.

`epsilon_curve` returns an `EpsilonCurve`. Reports use all its points; a running service uses the
few points of a coarse curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import AvailabilityCheckIn, Relation, ReleaseRule, Scheme
from turnout.schemes.normal_form import Form, normal_form
from turnout.schemes.participation.availability_check_in import costliest_clients

if TYPE_CHECKING:
    from turnout.plans.preparation import PreparedPlan

_TRACE_POINTS = 6
"""Number of points of a curve if clients have different windows; each point takes seconds."""
_FEW, _FEW_SLOW = 12, 6
"""Number of points of a running service's coarse curve: usual, and if each point takes long."""


@dataclass(frozen=True, eq=False)
class EpsilonCurve:
    """Proved upper bounds on the ε after each number of steps, computed on demand.

    Attributes:
        steps: increasing numbers of steps from 0 to the whole run, int64, shape ``(points,)``.
        bound: function that returns a proved upper bound on ε after a number of steps; infinite if
            none is known.
        whole: upper bound on the ε of the whole run.
        few: increasing numbers of steps of the coarse curve, from 0 to the whole run.

    Guarantees:
        The bounds are non-decreasing and at most the bound of the whole run, since a part of the
        releases reveals no more than all of them.
    """

    steps: NDArray[np.int64]
    bound: Callable[[int], float]
    whole: float
    few: NDArray[np.int64]

    def epsilon(self, tell: Callable[[int], None] | None = None) -> NDArray[np.float64]:
        """Upper bounds on ε after each of ``steps``, shape ``(points,)``.

        Args:
            tell: function that is called with the number of points computed so far.
        """
        return self._rising(self.steps, tell)

    def at(self, step: int) -> float:
        """Upper bound on ε after ``step`` steps: the value at the next coarse point."""
        return float(self._at_few[np.searchsorted(self.few, step)])

    @cached_property
    def _at_few(self) -> NDArray[np.float64]:
        """Upper bounds on ε at the points ``few`` of the coarse curve."""
        return self._rising(self.few, None)

    def _rising(
        self, steps: NDArray[np.int64], tell: Callable[[int], None] | None
    ) -> NDArray[np.float64]:
        """Non-decreasing upper bounds on ε at these steps, the last of which is the whole run."""
        from turnout.accounting import running

        computed = count(1)

        def bound(step: int) -> float:
            if tell is not None:
                tell(next(computed))
            return self.bound(step)

        inner = running(bound, steps[:-1].tolist(), self.whole)
        return np.array([*inner, self.whole])


def epsilon_curve(prepared: PreparedPlan, interval: int) -> EpsilonCurve:
    """Curve of ε with a point after every ``interval`` steps.

    If clients have different windows, the points are the ends of some windows instead.
    """
    scheme = prepared.scheme
    participation, delta = scheme.participation, prepared.plan.privacy.delta
    zeroed = scheme.relation is Relation.ZERO_OUT and scheme.release is ReleaseRule.ONE_CLIENT
    slow = zeroed or scheme.relation is Relation.REPLACE_ONE
    if isinstance(participation, AvailabilityCheckIn):
        interval, slow = participation.window * -(-participation.windows // _TRACE_POINTS), True
    steps = np.unique(np.append(np.arange(0, participation.steps, interval), participation.steps))
    few = _few(steps, normal_form(participation), _FEW_SLOW if slow else _FEW)
    return EpsilonCurve(steps, _bound(scheme, delta), prepared.guarantee.epsilon.upper, few)


def _few(steps: NDArray[np.int64], form: Form, most: int) -> NDArray[np.int64]:
    """Coarse selection from numbers of steps: at most ``most`` + 1, densest at the beginning.

    ε grows about as the square root of the number of steps, so fastest at the beginning. After the
    first block each number is the end of a block, since bounds of whole blocks are reused, while an
    unfinished block needs a separate computation.
    """
    places = np.ceil(np.linspace(0.0, 1.0, most + 1) ** 2 * (steps.size - 1)).astype(np.intp)
    few = {0}
    for step in steps[places[1:]].tolist():
        first, size = form.block(form.at_step(step - 1).block)
        few.add(step if first == 0 else first + size)
    return np.array(sorted(few))


def _bound(scheme: Scheme, delta: float) -> Callable[[int], float]:
    """Function that returns the upper bound on ε, over all clients, after a number of steps."""
    from turnout.accounting import epsilon_upper

    participation = scheme.participation

    @cache
    def bound(step: int) -> float:
        try:
            if not isinstance(participation, AvailabilityCheckIn):
                return epsilon_upper(scheme, delta, step, shared=True)
            part = replace(scheme, participation=participation.part(steps=step))
            return epsilon_upper(costliest_clients(part), delta)
        except (NumericalError, UnsupportedError):
            return math.inf  # the bound of the whole run holds for its parts as well

    return bound
