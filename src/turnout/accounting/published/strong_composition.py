"""Strong composition: what T repetitions of an (ε, δ)-mechanism cost, by the papers' own numbers.

Source: Dwork, Rothblum and Vadhan 2010 (dwork2010boosting) as Lemma 2.1.2 of Girgis 2023
(girgis2023thesis); Kairouz, Oh and Viswanath 2015 (kairouz2015composition), Theorems 3.3 and 3.4.
Adaptive composition under any relation, in both directions. A shuffle's (ε, δ) says far less than
its privacy curve: `turnout.accounting.price` composes curves.

Notation
    ε, δ   point             of one round, ε > 0
    T      rounds            to 10⁵ and beyond
    δ'     slack             in (0, 1), of the composition; the whole: 1 − (1 − δ)^T (1 − δ')
    p = e^ε/(1 + e^ε)

The T rounds are dominated by T binary randomized responses at ε, except with δ each, so
δ'(ε') = P(Bin(T, p) > t) − e^{ε'} P(Bin(T, 1 − p) > t) with t = (T + ε'/ε)/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import betainc

from turnout.accounting.published.results import THESIS, Paper, PrivacyPoint
from turnout.accounting.shuffling.blanket.blocks import clones_2021
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError

ShuffleBound = Callable[[float, int, float], float]
_SLACK = 1e-9  # relative error that a binomial tail may have
_ROUNDING = 1e-12
_HALVINGS = 60


def lemma_2_1_2(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """(√(2T ln(1/δ'))·ε + Tε(e^ε − 1), Tδ + δ') of T rounds.

    Source: Lemma 2.1.2 of Girgis 2023 (girgis2023thesis); Dwork, Rothblum and Vadhan 2010
    (dwork2010boosting).

    >>> round(lemma_2_1_2(PrivacyPoint(0.01, 0.0), 100, 1e-6).epsilon, 4)
    0.5357
    """
    _check(point, rounds, slack)
    epsilon = point.epsilon * math.sqrt(-2 * rounds * math.log(slack))
    if point.epsilon < 700:
        epsilon += rounds * point.epsilon * math.expm1(point.epsilon)
    else:
        epsilon = math.inf
    return PrivacyPoint(_up(epsilon), _up(rounds * point.delta + slack))


def kov_theorem_3_3(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """The least (T − 2i)ε, i = 0 … ⌊T/2⌋, whose δ_i is at most δ', and the whole δ.

    Source: Theorem 3.3 of Kairouz, Oh and Viswanath 2015 (kairouz2015composition), at the ε' it
    lists. In between `kov_optimal` is smaller, by the same laws.
    """
    _check(point, rounds, slack)
    enough, too_many = 0, rounds // 2 + 1
    while too_many - enough > 1:
        i = (enough + too_many) // 2
        if _composed_delta((rounds - 2 * i) * point.epsilon, point.epsilon, rounds) <= slack:
            enough = i
        else:
            too_many = i
    return PrivacyPoint(_up((rounds - 2 * enough) * point.epsilon), _whole(point, rounds, slack))


def kov_optimal(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """The least real ε' with δ'(ε') at most δ', and the whole δ: no bound from (ε, δ) is smaller.

    Source: the privacy region of Theorem 3.3 of Kairouz, Oh and Viswanath 2015
    (kairouz2015composition), between the ε' that it lists.

    Returns:
        Never below the optimum, above it by the rounding of binomial tails.
    """
    _check(point, rounds, slack)

    def met(epsilon: float) -> bool:
        return _composed_delta(epsilon, point.epsilon, rounds) <= slack

    most = 0.0 if met(0.0) else rounds * point.epsilon
    found = bisected(met, 0.0, most, halvings=_HALVINGS).holding
    return PrivacyPoint(_up(found), _whole(point, rounds, slack))


def kov_theorem_3_4(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """The closed form: the least of Tε and Tε·tanh(ε/2) + ε√(2T ln g), g of two kinds.

    Source: Theorem 3.4 of Kairouz, Oh and Viswanath 2015 (kairouz2015composition):
    g = 1/δ' or e + √(Tε²)/δ'.
    """
    _check(point, rounds, slack)
    mean = rounds * point.epsilon * math.tanh(point.epsilon / 2)
    growth = min(1 / slack, math.e + math.sqrt(rounds) * point.epsilon / slack)
    deviation = point.epsilon * math.sqrt(2 * rounds * math.log(growth))
    epsilon = min(rounds * point.epsilon, mean + deviation)
    return PrivacyPoint(_up(epsilon), _whole(point, rounds, slack))


def kov_of_shuffle(
    local_epsilon: float,
    clients: int,
    delta: float,
    rounds: int,
    *,
    bound: ShuffleBound = clones_2021,
    share: float | None = None,
) -> float:
    """ε of T rounds of shuffled ε₀-messages, from one round's (ε, δ) alone.

    Source: as the curves "Clones + strong composition" of Figure 5.4 of Girgis 2023
    (girgis2023thesis): a shuffle bound at δ̃, composed by `kov_optimal`. A share s of δ goes to
    the rounds, δ̃ = sδ/T. If none is given two are tried: ½, and the one that makes
    √(ln(1/δ̃) ln(1/δ')) least to first order, s/(1 − s) = ln(1/δ)/ln(T/δ).

    ``bound`` is (ε₀, n, δ̃) ↦ ε of one round, by default the numeric clones bound.

    Returns:
        ε under replace-one, never below the true one if ``bound`` is not.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    if share is not None:
        checks.open_unit(share=share)
    odds = math.log(delta) / (math.log(delta) - math.log(rounds))
    found = math.inf
    for part in (0.5, odds / (1 + odds)) if share is None else (share,):
        tilde = part * delta / rounds
        epsilon = bound(local_epsilon, clients, tilde)
        if epsilon <= 0:
            return 0.0
        slack = (1 - part) * delta * (1 - _ROUNDING)
        found = min(found, kov_optimal(PrivacyPoint(epsilon, tilde), rounds, slack).epsilon)
    return found


def _composed_delta(total: float, epsilon: float, rounds: int) -> float:
    """δ'(ε') of T binary randomized responses, rounded up."""
    least = math.floor((rounds + total / epsilon) / 2 * (1 - 1e-15)) + 1
    if least > rounds:
        return 0.0
    rest = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    gain = float(betainc(least, rounds - least + 1, 1 - rest))
    tail = float(betainc(least, rounds - least + 1, rest))
    loss = math.exp(min(total + math.log(tail), 0.0)) if tail > 0 else 0.0
    return max(gain - loss, 0.0) + _SLACK * (gain + loss)


def _whole(point: PrivacyPoint, rounds: int, slack: float) -> float:
    """1 − (1 − δ)^T (1 − δ')."""
    return _up(-math.expm1(rounds * math.log1p(-point.delta) + math.log1p(-slack)))


def _check(point: PrivacyPoint, rounds: int, slack: float) -> None:
    checks.positive(epsilon=point.epsilon)
    checks.non_negative(delta=point.delta)
    if point.delta >= 1:
        raise ParameterError("delta", point.delta, "below 1")
    checks.count(rounds=rounds)
    checks.open_unit(slack=slack)


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


_KOV = Paper("KOV", "kairouz2015composition", None)
_POINT, _RANGE = "(epsilon, delta)", "delta' in (0, 1); adaptive"
RESULTS = (
    THESIS.states("Lemma 2.1.2", lemma_2_1_2, _POINT, _RANGE),
    _KOV.states("Theorem 3.3", kov_theorem_3_3, _POINT, _RANGE),
    _KOV.states("Theorem 3.3, optimal", kov_optimal, _POINT, _RANGE),
    _KOV.states("Theorem 3.4", kov_theorem_3_4, _POINT, _RANGE),
    Paper("clones with KOV", "kairouz2015composition").states(
        "Theorem 3.3", kov_of_shuffle, "pure epsilon_0", f"{_RANGE}, hidden order"
    ),
)
