"""The noise of one run with which a whole private search meets its target."""

from __future__ import annotations

from collections.abc import Callable

from turnout.accounting.calibration import calibrate_noise
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.selection.best_of import selected
from turnout.accounting.selection.stopping import Stopping
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import Scheme

_CLOSE = 2e-3  # relative gap to the target at which the search ends
_MOST_PRICES = 14


def calibrate_selection(
    scheme_for: Callable[[float], Scheme], stopping: Stopping, epsilon: float, delta: float
) -> tuple[float, Guarantee]:
    """A noise multiplier with which the best of K runs meets a target ε, and the guarantee.

    It is searched for through the ε of one run, between which and the target it nearly is a
    straight line; the answer's ε is at most the target.

    Raises:
        UnsupportedError: no noise meets the target.
        NumericalError: nothing can be certified.
    """
    checks.positive(epsilon=epsilon)
    low, high, one = 0.0, epsilon, 0.5 * epsilon
    best: tuple[float, Guarantee] | None = None
    for _ in range(_MOST_PRICES):
        noise = calibrate_noise(scheme_for, one, delta)
        guarantee = selected(scheme_for(noise), stopping, delta)
        upper = guarantee.epsilon.upper
        if upper <= epsilon:
            low, best = one, (noise, guarantee)
            if upper >= epsilon * (1.0 - _CLOSE):
                break
        else:
            high = one
        aim = one * (1.0 - 0.25 * _CLOSE) * epsilon / upper
        one = aim if low < aim < high else 0.5 * (low + high)
    if best is None:
        raise UnsupportedError(f"no noise is found with which a search has ε = {epsilon:g}")
    return best
