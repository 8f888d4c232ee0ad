"""Published bounds on ε of one round of shuffled ε₀-messages at a given δ.

This module has the bounds of Erlingsson et al. 2019 (``efm19_…``), clones (``clones_2021_…``,
`stronger_clones_2023`), Lemma 2.3.1 of the thesis, and the privacy blanket (``blanket_2019_…``).
Theorem 5.1 of the check-in paper is `check_ins.theorem_5_1`; its branch for (ε₀, δ₀)-randomizers is
`check_ins.theorem_5_1_approximate`. Rényi bounds are in `shuffling_rdp`; bounds for sampled clients
and for several rounds are in `shuffled_training`.

Every bound is under replace-one and covers both directions. Unless the docstring states otherwise,
a proved bound holds for ε₀-randomizers that may depend on earlier messages, if the order of
speaking is uniform and unknown to the adversary and to the party that chooses the next randomizer
(`turnout.schemes.SpeakingOrder.HIDDEN`; docs/errata.md has a counterexample for a known order). All
bounds except the stronger clones are loose: for guarantees use `turnout.accounting.price`.

Notation
    ε₀  local_epsilon   > 0, of the local randomizer
    n   clients         ≥ 1, number of clients           δ  delta, in (0, 1)
    v   variance        bound on Σ εᵢ² of the n messages, each given all earlier messages
    k   categories      ≥ 2, number of values of k-ary randomized response
    γ, ω                with probability γ a message of any record is drawn from ω, the blanket
    M ~ Bin(n, γ)       number of messages drawn from ω
    L                   (R(x)(y) − e^ε R(x')(y))/ω(y) with y ~ ω, for the victim's randomizer R and
                        records x, x';  E L = −a, a = e^ε − 1

**Privacy blanket.** Source: Balle, Bell, Gascón and Nissim 2019 (balle2019blanket). All clients use
one non-adaptive randomizer. The victim's message hides among the M − 1 blanket messages of other
clients. By the size-biased binomial δ(ε) ≤ E(Σ_{i≤M} Lᵢ)₊ / (γn). If L lies in a range of width b
(Hoeffding),

    E(Σ_{i≤m} Lᵢ)₊ ≤ b²/(4a)·e^{−2ma²/b²},

and with L ≤ c and E L² ≤ v (Bennett; L need not be centred, as E
e^{tL} ≤ exp(−ta + v(e^{tc} − 1 − tc)/c²)), u = ac/v, h(u) = (1 + u)ln(1 + u) − u,

    E(Σ_{i≤m} Lᵢ)₊ ≤ c/ln(1 + u)·e^{−m·h(u)·v/c²}.

The generating function of M sums either bound over m. For k-ary response ω is uniform and
γ = k/(e^{ε₀} + k − 1). For any other randomizer only e^{−ε₀} ≤ γ ≤ 1 is known. A blanket of
probability e^{−ε₀} exists, so γ = e^{−ε₀} is used in the distribution of M, while the range of L
must hold for every γ ≤ 1. (With e^{−ε₀} in both places the bounds would be smaller, but they are
not proved.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from turnout.accounting.divergence.pairs import log_expm1
from turnout.accounting.published import shuffling_rdp
from turnout.accounting.published.results import Paper, Status
from turnout.accounting.shuffling.blanket import clones_2021, pair_epsilon
from turnout.accounting.shuffling.blanket_pairs import stronger_clones_pair
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError

_ROUNDING = 1e-12  # relative
_LARGEST_EXPONENT = 700.0


def efm19_corollary_9(local_epsilon: float, clients: int, delta: float) -> float:
    """Upper bound ε = 12ε₀√(ln(1/δ)/n) on shuffled ε₀-messages, for ε₀ ≤ ½.

    Source: Corollary 9 of Erlingsson et al. 2019 (erlingsson2019amplification), second part of
    Lemma 2.3.1 of Girgis 2023 (girgis2023thesis); stated for ε₀ < ½. The bound holds at ε₀ = ½ too:
    if a ½-randomizer draws from a fixed distribution with probability η instead, its ε₀ is below ½
    and δ changes by at most 2en·η with e = e^{ε₀}, which vanishes with η. (Theorem 5.1 of the
    check-in paper implies the bound too, for all ε₀ ≤ ½: √2·e^{3ε₀/2}(e^{ε₀} − 1) < 4ε₀ there.)

    Args:
        local_epsilon: ε₀ of each message, in (0, ½].
        clients: n, number of clients, at least 1000.
        delta: δ, in (0, 1/100).

    Returns:
        ε under replace-one, never below the true value.

    Raises:
        ParameterError: ε₀ > ½, n < 1000 or δ ≥ 1/100.

    >>> round(efm19_corollary_9(0.5, 10**4, 1e-6), 4)
    0.223
    """
    _check(local_epsilon, clients, delta)
    if local_epsilon > 0.5:
        raise ParameterError("local_epsilon", local_epsilon, "at most 1/2 (Corollary 9)")
    checks.count(1000, clients=clients)
    if delta >= 0.01:
        raise ParameterError("delta", delta, "below 1/100 (Corollary 9)")
    return _up(12 * local_epsilon * math.sqrt(-math.log(delta) / clients))


def efm19_theorem_7(local_epsilon: float, clients: int, delta: float) -> float:
    """Upper bound on ε of shuffled ε₀-messages for every ε₀, by swapping.

    ε = ε₁√(2n ln(1/δ)) + nε₁(e^{ε₁} − 1) with ε₁ = 2e^{2ε₀}(e^{ε₀} − 1)/n.

    Source: Theorem 7 of Erlingsson et al. 2019 (erlingsson2019amplification); Figure 2 of the
    check-in paper shows this bound. ε₁ is the ε of each message given all earlier messages, also in
    Remark 1. The bound also follows from Theorem 5.1 of the check-in paper: the v of that theorem,
    e^{3ε₀}(e^{ε₀} − 1)²/n, is at most nε₁², so its bound is smaller.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value; infinite where it exceeds the largest
        float.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(efm19_theorem_7(0.5, 10**4, 1e-6), 4)
    0.1866
    """
    _check(local_epsilon, clients, delta)
    log_first = math.log(2 / clients) + 2 * local_epsilon + log_expm1(local_epsilon)
    if log_first > math.log(_LARGEST_EXPONENT):
        return math.inf
    first = math.exp(log_first)
    mean = clients * first * math.expm1(first)
    return _up(first * math.sqrt(-2 * clients * math.log(delta)) + mean)


def efm19_theorem_8(local_epsilon: float, clients: int, delta: float) -> float:
    """ε of swapping the victim's record with a random record, by the formula of Theorem 7.

    Source: Theorem 8 of Erlingsson et al. 2019 (erlingsson2019amplification), amplification by
    swapping: only the first record is moved, to a uniform place, and neighbours differ in the first
    record. Theorem 7 follows, because a shuffle is a mixture of such swaps.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replacement of the first record, never below the true value; infinite where it
        exceeds the largest float.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    return efm19_theorem_7(local_epsilon, clients, delta)


def clones_2021_limit(clients: int, delta: float) -> float:
    """Largest ε₀ of the clones bound in closed form, ln(n/(16 ln(2/δ))), rounded down.

    Args:
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    limit = math.log(clients / (16 * math.log(2 / delta)))
    return limit - 1e-12 * abs(limit)


def clones_2021_closed_form(local_epsilon: float, clients: int, delta: float) -> float:
    """Upper bound on ε of shuffled ε₀-messages by clones, in closed form.

    ε = ln(1 + (e − 1)/(e + 1)·(8√(e ln(4/δ)/n) + 8e/n)) with e = e^{ε₀}.

    Source: Theorem 3.1 of Feldman, McMillan and Talwar 2021 (feldman2021clones). The theorem needs
    ε₀ ≤ ln(n/(16 ln(2/δ))). Without this condition the inverse of the formula, (6.10) of Girgis
    2023, is unsafe (`thesis_6_10_as_printed`).

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: ε₀ is above `clones_2021_limit`.

    >>> round(clones_2021_closed_form(1.0, 10**5, 1e-6), 4)
    0.0726
    """
    _check(local_epsilon, clients, delta)
    limit = clones_2021_limit(clients, delta)
    if local_epsilon > limit:
        raise UnsupportedError(
            f"the clones bound in closed form needs epsilon_0 <= {max(limit, 0.0):.4g} at "
            f"n = {clients}, delta = {delta:g}; clones_2021 has no such limit"
        )
    return _up(_clones_formula(local_epsilon, clients, delta))


def thesis_6_10_as_printed(epsilon: float, clients: int, delta: float) -> float:
    """UNSAFE: ε₀ at which the closed form of the clones bound equals ε, without its limit on ε₀.

    Source: (6.10) of Girgis 2023. At n = 10⁴, δ = 1e-6, ε = 4 the formula gives ε₀ = 9.72, beyond
    the limit of 3.76, and binary randomized response has a true δ of 0.55. Use the calibration of
    `turnout.accounting`.

    Args:
        epsilon: target ε, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε₀, at most 50, at which the closed form is at most ε. Shuffled ε₀-messages may have a
        larger ε.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    _check(epsilon, clients, delta)

    def within(local_epsilon: float) -> bool:
        return not _clones_formula(local_epsilon, clients, delta) > epsilon

    return bisected(within, 50.0, 0.0, halvings=100).holding


def stronger_clones_2023(local_epsilon: float, clients: int, delta: float) -> float:
    """Upper bound on ε of shuffled ε₀-messages by the stronger clones pair.

    Source: Theorem 3.2 of Feldman, McMillan and Talwar 2023 (feldman2023stronger), numerically.
    Their erratum withdraws the proof for general randomizers, since the proof uses Lemma 3.5, which
    fails where p < 1/(e^{ε₀} + 1) (docs/errata.md has a counterexample). The bound holds by another
    proof, which was reviewed independently and which we have not found in print
    (docs/design/shuffling.md: Theorem 2 for one non-adaptive randomizer, Theorem 3 for adaptive
    randomizers in a hidden order). `turnout.accounting.price` uses the bound for `PureRandomizer`
    and `NonAdaptiveRandomizer`.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
        NumericalError: the composition cannot be certified at this δ.

    >>> round(stronger_clones_2023(1.0, 100_000, 1e-6), 4)
    0.0124
    """
    return pair_epsilon(stronger_clones_pair(local_epsilon), clients, delta)


def lemma_2_3_1_first(
    local_epsilon: float, clients: int, delta: float, constant: float = 1.0
) -> float:
    """ε = c·min(ε₀, 1)·e^{ε₀}√(ln(1/δ)/n) of shuffled ε₀-messages.

    The source does not give the constant c.

    Source: first part of Lemma 2.3.1 of Girgis 2023 (girgis2023thesis), which quotes Corollary
    5.3.1 of the privacy blanket (balle2019blanket) as O(·). The bound behind it is
    `blanket_2019_hoeffding`; the lemma's second part is `efm19_corollary_9`.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        constant: c, positive.

    Returns:
        ε under replace-one, rounded up; below the true value if c is too small.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: ε₀ > ½ ln(n/ln(1/δ)).
    """
    _check(local_epsilon, clients, delta)
    checks.positive(constant=constant)
    log_inverse = -math.log(delta)
    limit = math.log(clients / log_inverse) / 2
    if local_epsilon > limit:
        raise UnsupportedError(
            f"epsilon_0 = {local_epsilon:g}: expected at most {limit:.4g} (Lemma 2.3.1)"
        )
    rate = min(local_epsilon, 1.0) * math.exp(local_epsilon) * math.sqrt(log_inverse / clients)
    return _up(constant * rate)


def theorem_5_3_1_epsilon(local_epsilon: float, clients: int, delta: float) -> float:
    """ε of shuffled ε₀-messages by the first Rényi bound of the thesis, smallest over the orders.

    Source: Theorem 5.3.1 and Lemma 2.1.3 of Girgis 2023 (girgis2023thesis).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.open_unit(delta=delta)
    return shuffling_rdp.theorem_5_3_1(local_epsilon, clients).epsilon(delta)


def theorem_5_3_2_epsilon(local_epsilon: float, clients: int, delta: float) -> float:
    """ε of shuffled ε₀-messages by the second Rényi bound of the thesis, smallest over the orders.

    Source: Theorem 5.3.2 and Lemma 2.1.3 of Girgis 2023 (girgis2023thesis).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.open_unit(delta=delta)
    return shuffling_rdp.theorem_5_3_2(local_epsilon, clients).epsilon(delta)


def _clones_formula(local_epsilon: float, clients: int, delta: float) -> float:
    growth = math.exp(local_epsilon)
    spread = 8 * math.sqrt(growth * math.log(4 / delta) / clients) + 8 * growth / clients
    return math.log1p(math.tanh(local_epsilon / 2) * spread)


def _check(local_epsilon: float, clients: int, delta: float) -> None:
    checks.positive(local_epsilon=local_epsilon)
    checks.count(clients=clients)
    checks.open_unit(delta=delta)


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


_EFM = Paper("EFM19", "erlingsson2019amplification")
_CLONES = Paper("clones 2021,", "feldman2021clones")
_THESIS = Paper("thesis", "girgis2023thesis")
_PURE, _ANY = "pure epsilon_0", "delta in (0, 1); adaptive, hidden order"
_SMALL = "epsilon_0 <= 1/2, n >= 1000, delta < 1/100; adaptive, hidden order"


_HALVINGS = 60
_LOGARITHM_ROUNDING = 1e-9  # relative; logarithms below lose n times a few units of the last place
_LARGEST_LOCAL_EPSILON = 300.0


def blanket_2019_kary(local_epsilon: float, clients: int, delta: float, categories: int) -> float:
    """ε of shuffled k-ary randomized response in closed form.

    Source: Theorem 3.1 of Balle, Bell, Gascón and Nissim 2019 (balle2019blanket), n ≥ 2:
    ε ≤ 1 where γ = max{14k ln(2/δ)/((n − 1)ε²), 27k/((n − 1)ε)} < 1, solved for ε.
    Proof: let c = (n − 1)γ/k, and let Y and Z be the numbers of the others' blanket messages that
    have one and the other of the victim's two values, each Bin(n − 1, γ/k). The likelihood ratio
    exceeds e^ε only if Y ≤ c·e^{−ε/2} or Z + 1 ≥ c·e^{ε/2}. As 1 − e^{−ε/2} ≥ 0.393ε and
    e^{ε/2} − 1 − 1/c ≥ ε/2 − ε/27, Chernoff's bound on each of the two probabilities is at most
    δ/2, since 14·0.393²/2 and 14·(25/54)²/3 are at least 1.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        categories: k of k-ary randomized response, at least 2.

    Returns:
        ε ≤ 1 under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: ε of the formula exceeds 1.
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
            f"Theorem 3.1 (privacy blanket) holds for epsilon <= 1; here epsilon = {epsilon:.4g}"
        )
    return epsilon


def blanket_2019_hoeffding(
    local_epsilon: float, clients: int, delta: float, categories: int | None = None
) -> float:
    """ε of shuffled messages of one non-adaptive randomizer, by Hoeffding's inequality.

    Source: Balle, Bell, Gascón and Nissim 2019 (balle2019blanket), the numeric bound, described in
    the module's docstring.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        categories: k of k-ary randomized response, at least 2; None for any ε₀-randomizer.

    Returns:
        ε ≤ ε₀, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(blanket_2019_hoeffding(0.5, 10**4, 1e-6), 4)
    0.054
    """
    return _smallest(_log_hoeffding, local_epsilon, clients, delta, categories)


def blanket_2019_bennett(
    local_epsilon: float, clients: int, delta: float, categories: int | None = None
) -> float:
    """ε of shuffled messages of one non-adaptive randomizer, by Bennett's inequality.

    Source: as `blanket_2019_hoeffding`; Balle, Bell, Gascón and Nissim 2019 (balle2019blanket).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        categories: k of k-ary randomized response, at least 2; None for any ε₀-randomizer.

    Returns:
        ε ≤ ε₀ under replace-one, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    return _smallest(_log_bennett, local_epsilon, clients, delta, categories)


@dataclass(frozen=True, slots=True)
class _Blanket:
    """Blanket of a randomizer at one ε: its probability γ, and the moments and range of L.

    L = (R(x)(y) − e^ε·R(x')(y))/ω(y) for a message y drawn from the blanket ω; R(x) and R(x') are
    the distributions of the victim's message. The fields are γ, −E L, the width of the range of L,
    the maximum of L, and a bound on E L².
    """

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
    if u == 0:  # the second moment overflows: no bound
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
    """Smallest ε found at which a bound is at most δ; ε₀ if no smaller ε is found."""
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
    _EFM.states("Corollary 9", efm19_corollary_9, _PURE, _SMALL),
    _EFM.states("Theorem 7", efm19_theorem_7, _PURE, _ANY),
    _EFM.states("Theorem 8", efm19_theorem_8, _PURE, _ANY),
    _CLONES.states(
        "Theorem 3.1, closed form",
        clones_2021_closed_form,
        _PURE,
        "epsilon_0 <= ln(n/(16 ln(2/delta))); adaptive, hidden order",
    ),
    _CLONES.states("Theorem 3.1, numeric", clones_2021, _PURE, _ANY),
    Paper("stronger clones 2023,", "feldman2023stronger").states(
        "Theorem 3.2; proof in docs/design/shuffling.md, not found in print by us",
        stronger_clones_2023,
        _PURE,
        _ANY,
    ),
    _THESIS.states(
        "(6.10)",
        thesis_6_10_as_printed,
        _PURE,
        "unsafe where the epsilon_0 it finds exceeds ln(n/(16 ln(2/delta)))",
        Status.UNSAFE,
    ),
    _THESIS.states(
        "Lemma 2.3.1, first part",
        lemma_2_3_1_first,
        _PURE,
        "epsilon_0 <= ln(n/ln(1/delta))/2; its constant is not stated",
        Status.REPRODUCTION,
    ),
    _THESIS.states("Lemma 2.3.1, second part", efm19_corollary_9, _PURE, _SMALL),
    _THESIS.states("Theorem 5.3.1, (epsilon, delta)", theorem_5_3_1_epsilon, _PURE, _ANY),
    _THESIS.states("Theorem 5.3.2, (epsilon, delta)", theorem_5_3_2_epsilon, _PURE, _ANY),
    _PAPER.states("Theorem 3.1", blanket_2019_kary, "k-ary response", "epsilon <= 1"),
    _PAPER.states("Hoeffding", blanket_2019_hoeffding, _FIXED, "not adaptive"),
    _PAPER.states("Bennett", blanket_2019_bennett, _FIXED, "not adaptive"),
)
