"""The privacy blanket's bounds on shuffled messages, by the paper's own numbers.

Source: Balle, Bell, Gascón and Nissim 2019 (balle2019blanket). One non-adaptive randomizer for
everybody, not adaptive; replace-one, both directions. Proved; `turnout.accounting.price` is
tighter.

Notation
    ε₀  local_epsilon > 0    n  clients ≥ 1    δ  delta, in (0, 1)
    k   categories ≥ 2, of k-ary randomized response
    γ   every message is with chance γ drawn from one law ω, the blanket, whatever the record
    M ~ Bin(n, γ)        L = (R(x)(y) − e^ε R(x')(y))/ω(y), y ~ ω;  E L = −a, a = e^ε − 1

The victim's message hides among the M − 1 blanket messages of the others. By the size-biased
binomial δ(ε) ≤ E(Σ_{i≤M} Lᵢ)₊ / (γn). With L in a range of width b (Hoeffding)

    E(Σ_{i≤m} Lᵢ)₊ ≤ b²/(4a)·e^{−2ma²/b²},

and with L ≤ c and E L² ≤ v (Bennett; L need not be centred, as E e^{tL} ≤ exp(−ta + v(e^{tc} − 1 −
tc)/c²)), u = ac/v, h(u) = (1 + u)ln(1 + u) − u,

    E(Σ_{i≤m} Lᵢ)₊ ≤ c/ln(1 + u)·e^{−m·h(u)·v/c²}.

M's generating function sums either over m. For k-ary response ω is uniform, γ = k/(e^{ε₀} + k − 1).
For any other randomizer all that is known is e^{−ε₀} ≤ γ ≤ 1: M thinned to chance e^{−ε₀} is still
a blanket, and L has the range that goes with γ ≤ 1. (With e^{−ε₀} in both places the bounds would
be smaller and unproved.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from turnout.accounting.published.results import Paper
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError

_HALVINGS = 60
_LOGARITHM_ROUNDING = 1e-9  # relative; logarithms below lose n times a few units of the last place
_LARGEST_LOCAL_EPSILON = 300.0


def blanket_2019_kary(local_epsilon: float, clients: int, delta: float, categories: int) -> float:
    """ε of shuffled k-ary randomized response in closed form.

    Source: Theorem 3.1 of Balle, Bell, Gascón and Nissim 2019 (balle2019blanket), n ≥ 2:
    ε ≤ 1 where γ = max{14k ln(2/δ)/((n − 1)ε²), 27k/((n − 1)ε)} < 1, solved for ε.
    Proof: with c = (n − 1)γ/k, the likelihood ratio exceeds e^ε only if one of two Bin(n − 1, γ/k)
    is at most c·e^{−ε/2}, or the other plus 1 at least c·e^{ε/2}. As 1 − e^{−ε/2} ≥ 0.393ε and
    e^{ε/2} − 1 − 1/c ≥ ε/2 − ε/27, Chernoff bounds each chance by δ/2: 14·0.393²/2 and
    14·(25/54)²/3 are at least 1.

    Raises:
        UnsupportedError: the ε found exceeds 1.
    """
    checks.count(2, clients=clients, categories=categories)
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(delta=delta)
    gamma = _kary_gamma(local_epsilon, categories)
    mass = (clients - 1) * gamma / categories
    if mass <= 0:
        raise UnsupportedError("Theorem 3.1 (privacy blanket) proves nothing at this epsilon_0")
    epsilon = max(math.sqrt(14 * math.log(2 / delta) / mass), 27 / mass) * (1 + 1e-12)
    if epsilon > 1:
        raise UnsupportedError(
            f"Theorem 3.1 (privacy blanket) holds for epsilon <= 1; it would be {epsilon:.4g}"
        )
    return epsilon


def blanket_2019_hoeffding(
    local_epsilon: float, clients: int, delta: float, categories: int | None = None
) -> float:
    """ε of shuffled messages of one non-adaptive randomizer, by Hoeffding's inequality.

    Source: Balle, Bell, Gascón and Nissim 2019 (balle2019blanket), the numeric bound; see the
    module's notes. ε₀ is at most 300; without ``categories`` any ε₀-randomizer is meant.

    Returns:
        ε ≤ ε₀, never below the true one.

    >>> round(blanket_2019_hoeffding(0.5, 10**4, 1e-6), 4)
    0.054
    """
    return _smallest(_log_hoeffding, local_epsilon, clients, delta, categories)


def blanket_2019_bennett(
    local_epsilon: float, clients: int, delta: float, categories: int | None = None
) -> float:
    """ε of shuffled messages of one non-adaptive randomizer, by Bennett's inequality.

    Source: as `blanket_2019_hoeffding`; Balle, Bell, Gascón and Nissim 2019 (balle2019blanket).
    Arguments, range and side of the error are the same.
    """
    return _smallest(_log_bennett, local_epsilon, clients, delta, categories)


@dataclass(frozen=True, slots=True)
class _Blanket:
    """γ, and of L at an ε: a = −E L, the width of its range, its maximum, its second moment."""

    gamma: float
    mean: float
    width: float
    largest: float
    square: float

    @classmethod
    def of(cls, epsilon: float, local_epsilon: float, categories: int | None) -> _Blanket:
        big, local, mean = math.exp(epsilon), math.exp(local_epsilon), math.expm1(epsilon)
        if categories is None:
            small = 1 / local
            square = local * (big**2 + 1) - 2 * small * big * small**2
            return cls(small, mean, (1 + big) * (local - small), local - big * small, square)
        gamma = _kary_gamma(local_epsilon, categories)
        own, other, rest = gamma * (local - big), gamma * (1 - big * local), gamma * (1 - big)
        square = (own**2 + other**2 + (categories - 2) * rest**2) / categories
        return cls(gamma, mean, own - other, own, square)


def _kary_gamma(local_epsilon: float, categories: int) -> float:
    weight = categories * math.exp(-local_epsilon)
    return weight / (1 - math.exp(-local_epsilon) + weight)


def _log_hoeffding(blanket: _Blanket, clients: int) -> float:
    ratio = blanket.mean / blanket.width
    first = math.log(blanket.width / (4 * ratio * blanket.gamma * clients))
    return first + clients * math.log1p(blanket.gamma * math.expm1(-2 * ratio**2))


def _log_bennett(blanket: _Blanket, clients: int) -> float:
    if blanket.largest <= 0:
        return -math.inf
    u = blanket.mean * blanket.largest / blanket.square
    if u == 0:  # the second moment overflows: nothing is claimed
        return math.inf
    # Below 1e-4 the sum would cancel; the series ends with a negative term, so it is no larger.
    h = (1 + u) * math.log1p(u) - u if u > 1e-4 else u**2 / 2 - u**3 / 6
    first = math.log(blanket.largest / math.log1p(u)) - math.log(blanket.gamma * clients)
    rate = h * blanket.square / blanket.largest**2
    return first + clients * math.log1p(blanket.gamma * math.expm1(-rate))


def _smallest(
    log_bound: Callable[[_Blanket, int], float],
    local_epsilon: float,
    clients: int,
    delta: float,
    categories: int | None,
) -> float:
    """The smallest ε at which the bound was found to be at most δ; ε₀ always serves."""
    checks.positive(local_epsilon=local_epsilon)
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    if categories is not None:
        checks.count(2, categories=categories)
    if local_epsilon > _LARGEST_LOCAL_EPSILON:
        raise ParameterError("local_epsilon", local_epsilon, "at most 300 for this formula")

    def met(epsilon: float) -> bool:
        log_delta = log_bound(_Blanket.of(epsilon, local_epsilon, categories), clients)
        return log_delta + _LOGARITHM_ROUNDING * (1 + abs(log_delta)) <= math.log(delta)

    return bisected(met, 0.0, local_epsilon, halvings=_HALVINGS).holding


_PAPER = Paper("privacy blanket 2019,", "balle2019blanket")
_FIXED = "one non-adaptive randomizer, pure epsilon_0 or k-ary response"
RESULTS = (
    _PAPER.states("Theorem 3.1", blanket_2019_kary, "k-ary response", "epsilon <= 1"),
    _PAPER.states("Hoeffding", blanket_2019_hoeffding, _FIXED, "not adaptive"),
    _PAPER.states("Bennett", blanket_2019_bennett, _FIXED, "not adaptive"),
)
