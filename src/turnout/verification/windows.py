"""ε of a row of independent windows, in each of which the client may take one step.

A window of t steps, of which the client takes with probability p exactly one, uniform, has the
ratio L = 1 − p + p·(X₁ + … + X_t)/t with independent X as in `ratios.gaussian`; windows multiply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnout.core.errors import NumericalError
from turnout.verification.ratios import Law, Side, added, gaussian, message, multiplied, opposed

_NEGLIGIBLE = 1e-8  # part of δ that all cut tails together may take


@dataclass(frozen=True, slots=True)
class Window:
    """So many equal windows.

    Attributes:
        noise: standard deviation of a step's noise, in units of what the client moves it by.
        steps: t.
        probability: p.
        count: how many.
        opposed: the record is compared not with the null record but with one that pulls to
            the opposite side; of one step only.
    """

    noise: float
    steps: int = 1
    probability: float = 1.0
    count: int = 1
    opposed: bool = False


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """So many messages, each of which is seen with its sender.

    Attributes:
        epsilon0: ε₀ of one.
        total_variation: τ of one, at most tanh(ε₀/2).
        probability: that one is sent.
        count: how many.
    """

    epsilon0: float
    total_variation: float
    probability: float = 1.0
    count: int = 1


Run = tuple[Window | SeenMessage, ...]


def run_law(run: Run, side: Side, delta: float) -> Law:
    """The ratio's law after all windows of a run that has at least one.

    Raises:
        NumericalError: ratios leave float64, or so many steps that rounding is not negligible.
    """
    cut = _NEGLIGIBLE * delta / (64.0 * sum(window.count for window in run))
    parts = [
        _power(_window(window, side, cut), window.count, multiplied, side, cut) for window in run
    ]
    law = parts[0]
    for part in parts[1:]:
        law = multiplied(law, part, side, cut)
    if law.mass_error > 0.01:
        raise NumericalError("too many steps: rounding could not be told from cost")
    return law


def _window(window: Window | SeenMessage, side: Side, cut: float) -> Law:
    if isinstance(window, SeenMessage):
        return message(window.epsilon0, window.total_variation, window.probability)
    if window.opposed:
        return opposed(window.noise, window.probability, side)
    total = _power(gaussian(window.noise, side), window.steps, added, side, cut)
    return total.mixed(window.probability, float(window.steps))


def _power(
    law: Law, times: int, joined: Callable[[Law, Law, Side, float], Law], side: Side, cut: float
) -> Law:
    """``times`` independent copies joined, by repeated squaring."""
    done: Law | None = None
    while True:
        if times & 1:
            done = law if done is None else joined(done, law, side, cut)
        times >>= 1
        if times == 0:
            assert done is not None
            return done
        law = joined(law, law, side, cut)


def remove_delta(law: Law, epsilon: float) -> float:
    """E[(L − e^ε)₊] and what tells for sure."""
    return float(law.masses @ np.maximum(law.values - math.exp(epsilon), 0.0)) + law.infinity_mass


def add_delta(law: Law, epsilon: float) -> float:
    """E[(1 − e^ε·L)₊]."""
    below = int(np.searchsorted(law.values, math.exp(-epsilon)))
    return float(law.masses[:below] @ (1.0 - math.exp(epsilon) * law.values[:below]))


def epsilon(law: Law, side: Side, delta: float) -> float:
    """ε at δ of the worse direction, on its side of the truth, rounding charged."""
    upper = side is Side.UPPER
    goal = delta / (1 + law.mass_error) if upper else delta * (1 + law.mass_error)
    crossings = [_crossing(partial(curve, law), goal) for curve in (remove_delta, add_delta)]
    if upper:
        return max(high for _, high in crossings) + law.value_error
    return max(max(low for low, _ in crossings) - law.value_error, 0.0)


def _crossing(delta_at: Callable[[float], float], goal: float) -> tuple[float, float]:
    """Two neighbouring ε between which a falling curve comes down to δ."""
    if delta_at(0.0) <= goal:
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > goal:
        low, high = high, 2 * high
        if high > 600.0:
            raise NumericalError(f"no finite epsilon was found at delta = {goal:g}")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > goal else (low, middle)
    return low, high


def two_bound_epsilon(first: Law, second: Law, delta: float) -> float:
    """An upper bound on ε from one record over the null record to another; both laws are upper.

    δ(ε₁ + ε₂) ≤ δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂).
    """
    mass_error = max(first.mass_error, second.mass_error)
    curves = partial(remove_delta, first), partial(add_delta, second)
    least = min(_two_bounds(*curves, delta / (1 + mass_error)))
    return least + first.value_error + second.value_error


def _two_bounds(
    to_absence: Callable[[float], float], from_absence: Callable[[float], float], delta: float
) -> Iterator[float]:
    for share in np.linspace(0.02, 0.98, 25):
        first = _crossing(to_absence, float(share) * delta)[1]
        rest = (1.0 - float(share)) * delta * math.exp(-first)
        yield first + _crossing(from_absence, rest)[1]
