"""Questions on the command line as calls of the verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.api.prices import Price, price
from turnout.plans.questions import DELTA, NOISE, Question, flags_named, own_name

if TYPE_CHECKING:
    from turnout.api.calibrations import CalibratedPrice


def priced(question: Question) -> Price:
    """The price of the scheme that a question is about.

    Raises:
        UnsupportedError: no sound analysis is known, or no ε holds at so small a δ.
        NumericalError: nothing can be certified.
    """
    target = question.target
    with flags_named():
        found = price(question.scheme, delta=target.delta, tolerance=target.tolerance)
    return found.named(question.randomizer_words)


def solved(question: Question, solve_for: str = NOISE) -> CalibratedPrice:
    """The value of one unknown that spends the question's ε.

    Args:
        question: asked with the same unknown.
        solve_for: one of `solvable`, or `NOISE`.

    Raises:
        ParameterError: no target.
        UnsupportedError: no sound analysis is known, or no value meets the target.
        NumericalError: nothing can be certified.
    """
    from turnout.api.calibrations import calibrate as solve

    target, name = question.target, own_name(solve_for, question.randomizer.randomizer)
    with flags_named():
        found = solve(
            lambda value: question.answered(name, value).scheme,
            epsilon=question.target_epsilon,
            delta=None if name == DELTA else target.delta,
            solve_for=name,
            tolerance=target.tolerance,
        )
    return found.named(question.answered(name, found.value).randomizer_words)
