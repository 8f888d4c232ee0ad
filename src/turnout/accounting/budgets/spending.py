"""ε so far, at every step of a run: the one place that decides how bounds become a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from turnout.accounting import pricing
from turnout.core import checks
from turnout.core.errors import NumericalError
from turnout.schemes import Scheme


def spent(
    scheme: Scheme, delta: float, steps: Iterable[int], whole: float = math.inf
) -> list[float]:
    """Proved upper bounds on ε of a scheme after each number of steps, as `running` gives them."""
    last = scheme.participation.steps
    return running(
        lambda step: pricing.epsilon_upper(scheme, delta, step, shared=step < last), steps, whole
    )


def running(
    bound: Callable[[int], float], steps: Iterable[int], whole: float = math.inf
) -> list[float]:
    """Bounds on ε along a run, from bounds at single steps.

    Args:
        bound: a proved upper bound on ε after a number of steps of at least 1; where it raises
            NumericalError the next step's bound counts. Asked for once a step.
        steps: numbers of steps, in any order.
        whole: a proved upper bound on ε of the whole run, which no answer exceeds.

    Returns:
        Bounds in the order of ``steps``; 0 before the first step.

    Guarantees:
        Never falls with more steps. Who sees a part of the releases sees no more than who sees
        all of them, so a later bound holds earlier too.

    Raises:
        NumericalError: nothing can be certified from some step on.
    """
    if whole != math.inf:  # which is a bound, if a useless one
        checks.non_negative(whole=whole)
    asked = list(steps)
    checks.count(0, **{f"steps[{i}]": step for i, step in enumerate(asked)})
    bounds: dict[int, float] = {}
    least = whole
    failure: NumericalError | None = None
    for step in sorted(set(asked), reverse=True):
        if step == 0:
            least = 0.0
        else:
            try:
                least = min(least, bound(step))
            except NumericalError as error:
                failure = error
        if math.isinf(least):
            raise failure or NumericalError(f"epsilon after {step} steps is infinite")
        bounds[step] = least
    return [bounds[step] for step in asked]
