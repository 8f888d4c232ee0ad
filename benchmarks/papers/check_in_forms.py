"""Bounds on random check-ins from the paper that no command shows.

Notation and source (balle2020checkins): `turnout.accounting.published.check_ins`, which contains
the theorems themselves, including those for (ε₀, δ₀).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnout.accounting.published import check_ins
from turnout.accounting.published.check_ins import (
    at_eightfold,
    binned,
    theorem_3_2,
    theorem_3_2_approximate,
    theorem_4_1,
    theorem_a_4,
)
from turnout.accounting.published.results import Paper, PrivacyPoint, Status
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError

_ROUNDING = 1e-12  # relative error of exp for exponents below 700


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


def theorem_3_2_simple(
    local_epsilon: float, window: int, delta: float, probability: float = 1.0
) -> float:
    """Simplified bound 7p₀ε₀√(ln(1/δ)/m), never below `theorem_3_2`.

    Source: Theorem 3.2 and Theorem A.4, "in particular", for ε₀ ≤ 1 and δ ≤ 1/100.

    Raises:
        ParameterError: ε₀ > 1 or δ > 1/100.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(probability=probability)
    if local_epsilon > 1:
        raise ParameterError("local_epsilon", local_epsilon, "at most 1 for this closed form")
    if delta > 0.01:
        raise ParameterError("delta", delta, "at most 1/100 for this closed form")
    return _up(7 * probability * local_epsilon * math.sqrt(-math.log(delta) / window))


def theorem_3_2_as_printed(
    local_epsilon: float, window: int, delta: float, probability: float = 1.0
) -> float:
    """UNSAFE: the formula that the proof of Theorem 3.2 prints, with m outside the root.

    At ε₀ = 1, m = 1000, δ = 1e-6 the formula gives 0.017; binary randomized response has ε = 0.127.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(probability=probability)
    if local_epsilon > 700.0 / 3:
        return math.inf
    growth = math.exp(local_epsilon)
    change = probability * math.expm1(local_epsilon)
    first = change**2 * growth / (2 * window)
    return first + change * math.sqrt(-2 * growth * math.log(delta)) / window


def corollary_3_3(
    local_epsilon: float, population: int, window: int, beta: float, delta: float
) -> PrivacyPoint:
    """(ε, δ) of n/m windows of check-ins with p₀ = m/n, by advanced composition.

    Source: inequality (7) in the proof of Corollary 3.3, evaluated as it stands:
    ε₁√(2r ln(1/δ)) + r ε₁(e^{ε₁} − 1) with ε₁ of Theorem 3.2 at β and r = ⌈n/m⌉ windows.

    Args:
        local_epsilon: ε₀ > 0.
        population: n.
        window: m, at most n.
        beta: δ of each window.
        delta: δ of the composition.

    Returns:
        ε and the whole δ, which is δ + rβ.
    """
    first = _first_epsilon(local_epsilon, population, window, beta)
    checks.open_unit(delta=delta)
    windows = -(-population // window)
    total = windows * beta + delta
    if total >= 1:
        raise ParameterError("beta", beta, "so small that the total of all windows is below 1")
    if first > 700.0:
        return PrivacyPoint(math.inf, total)
    epsilon = first * math.sqrt(-2 * windows * math.log(delta))
    return PrivacyPoint(_up(epsilon + windows * first * math.expm1(first)), _up(total))


def corollary_3_3_closed_form(
    local_epsilon: float, population: int, window: int, beta: float, delta: float
) -> PrivacyPoint:
    """(ε, δ) of n/m windows by the last line of the proof, in terms of only n and ε₀.

    Source: Corollary 3.3: 4(e^{ε₀} − 1)√(e^{ε₀} ln(1/β) ln(1/δ)/n) +
    12(e^{ε₀} − 1)²e^{ε₀} ln(1/β)/n. It needs ε₁ ≤ ½, which is checked here. The proof derives
    ε₁ ≤ ½ from ε₀ ≤ ⅔ ln(n/(8√m)) alone, which does not suffice; together with the other condition
    of the corollary, n ≥ (e^{ε₀} − 1)²e^{ε₀}√m ln(1/β) it suffices.

    Raises:
        ParameterError: m does not divide n.
        UnsupportedError: ε₁ > ½ or β > ½.
    """
    first = _first_epsilon(local_epsilon, population, window, beta)
    checks.open_unit(delta=delta)
    if population % window:
        raise ParameterError("window", window, f"a divisor of the population {population}")
    if first > 0.5 or beta > 0.5:
        raise UnsupportedError(
            f"Corollary 3.3 in closed form needs beta <= 1/2 and one window's epsilon <= 1/2; "
            f"here they are {beta:.4g} and {first:.4g}"
        )
    growth, log_beta = math.exp(local_epsilon), -math.log(beta)
    change = math.expm1(local_epsilon) ** 2 * growth * log_beta / population
    epsilon = 4 * math.sqrt(-change * math.log(delta)) + 12 * change
    return PrivacyPoint(_up(epsilon), _up(population // window * beta + delta))


def theorem_4_1_best_split(
    local_epsilon: float, population: int, window: int, delta: float
) -> float:
    """ε of averaged check-ins for a total δ, at the best tried split of δ.

    Source: Theorem 4.1.
    """
    checks.open_unit(delta=delta)
    shares = (2.0**-power for power in range(1, 30))
    return min(
        theorem_4_1(local_epsilon, population, window, (1 - share) * delta, share * delta).epsilon
        for share in shares
    )


def theorem_a_5(local_epsilon: float, loads: Sequence[int], delta: float) -> float:
    """ε of averaged updates over bins of known sizes, if one record is replaced in a random bin.

    Source: Theorem A.5, pure branch.

    Args:
        local_epsilon: ε₀ > 0.
        loads: ℓ, number of clients that check in at each step; their sum n is at least 1.
        delta: δ in (0, 1).
    """
    for load in loads:
        checks.count(0, load=load)
    population = sum(loads)
    checks.count(population=population)
    return binned(local_epsilon, math.hypot(*loads), population, delta)


def theorem_4_3(local_epsilon: float, window: int, delta: float) -> float:
    """ε of check-ins over a sliding window, with one client per step.

    Source: Theorem 4.3: Theorem A.4 with m the length of the client's own window and w_max = 1.

    Args:
        local_epsilon: ε₀ > 0.
        window: m, number of slots in which the client may check in.
        delta: δ in (0, 1).
    """
    return theorem_a_4(local_epsilon, window, delta, 1.0)


def _first_epsilon(local_epsilon: float, population: int, window: int, beta: float) -> float:
    checks.count(population=population, window=window)
    checks.at_most("population", population, window=window)
    checks.open_unit(beta=beta)
    return theorem_3_2(local_epsilon, window, beta, window / population)


def theorem_4_1_approximate(
    local_epsilon: float,
    local_delta: float,
    population: int,
    window: int,
    *,
    delta: float,
    load_delta: float,
    slack: float | None = None,
) -> PrivacyPoint:
    """(ε', δ') of one window of averaged check-ins in which every client participates.

    Source: Theorem 4.1 and Theorem A.5, second branch. The paper counts m messages. This
    function counts n, which errs on the safe side, since each of the n clients sends a message
    that may be replaced.

    Args:
        local_epsilon: ε₀ > 0.
        local_delta: δ₀ in (0, 1).
        population: n.
        window: m.
        delta: the δ of the pure branch.
        load_delta: δ₂ of Lemma A.6.
        slack: δ₁; the smallest possible if None.

    Raises:
        ParameterError: δ₀ is too large for δ₁.
        UnsupportedError: Lemma A.3 does not apply, or δ' would be 1.
    """
    pure_delta = check_ins.theorem_4_1(local_epsilon, population, window, delta, load_delta).delta
    return at_eightfold(
        lambda pure: check_ins.theorem_4_1(pure, population, window, delta, load_delta).epsilon,
        population,
        (local_epsilon, local_delta, pure_delta, slack),
    )


def theorem_4_3_approximate(
    local_epsilon: float,
    local_delta: float,
    window: int,
    delta: float,
    slack: float | None = None,
) -> PrivacyPoint:
    """(ε', δ') of check-ins over a sliding window.

    Source: Theorem 4.3, second branch: `theorem_3_2_approximate` with p₀ = 1.
    """
    return theorem_3_2_approximate(local_epsilon, local_delta, window, delta, slack=slack)


_PAPER, _PURE = Paper("check-ins", "balle2020checkins"), "pure epsilon_0"
_ALL, _ALLOWED = "delta in (0, 1)", "delta_0 as Lemma A.3 allows"
_BOTH = "(epsilon_0, delta_0)"
RESULTS = (
    _PAPER.states(
        "Theorem 3.2, simple", theorem_3_2_simple, _PURE, "epsilon_0 <= 1, delta <= 1/100"
    ),
    _PAPER.states("Theorem 3.2, proof", theorem_3_2_as_printed, _PURE, _ALL, Status.UNSAFE),
    _PAPER.states("Corollary 3.3", corollary_3_3, _PURE, "window <= population"),
    _PAPER.states(
        "Corollary 3.3, closed form",
        corollary_3_3_closed_form,
        _PURE,
        "window divides population, one window's epsilon <= 1/2, beta <= 1/2",
    ),
    _PAPER.states("Theorem 4.1, best split", theorem_4_1_best_split, _PURE, "everybody checks in"),
    _PAPER.states("Theorem A.5", theorem_a_5, _PURE, _ALL),
    _PAPER.states("Theorem 4.3", theorem_4_3, _PURE, _ALL),
    _PAPER.states("Theorem 4.1, approximate", theorem_4_1_approximate, _BOTH, _ALLOWED),
    _PAPER.states("Theorem 4.3, approximate", theorem_4_3_approximate, _BOTH, _ALLOWED),
)
