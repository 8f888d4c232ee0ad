"""Published bounds on amplification by random allocation, by Poisson sampling and by RDP.

`corollary_3_12` and `theorem_4_1` compare one random allocation with a run of Poisson sampling,
whose ε `engine_poisson` computes from a PLD. `theorem_4_6` and `corollary_4_7` return Rényi curves.
All of them cover the *remove* direction alone: ε in the *add* direction can be larger
(docs/errata.md, random allocation 1), so none is a guarantee. `comparison` uses them.

Source: Feldman and Shenfeld 2025 (feldman2025allocation); for Rényi divergences also Dong, Chen and
Ozgur 2025 (dong2025randomness), Theorem 3.1.

Notation (docs/design/accounting.md: P present, Q absent, X = dP/dQ under Q)
    t   window          number of steps      k   picks   steps in which a client takes part
    u   ⌊t/k⌋           number of steps of the window of one pick (Lemma 3.11)
    ε₀  local_epsilon   of the pair          δ   delta   total, in (0, 1)
    γ   excess          how far below 1 the average of u ratios may fall
    η   rate            1/(u(1 − γ)), of the Poisson sampling
    α   order           S  mean of the window's ratios X
    D_p                 E_Q[X^p] of one step;  D_α = E_Q[S^α] of random allocation
    μ                   1/σ, σ the noise multiplier

Given all outputs so far, the client takes part in the next step with probability
1/(t + Σ(Xⱼ − 1)) (Claim A.2). So Theorem 3.2 is a tail bound: Σ(1 − Xⱼ) ≤ γu at every step, except
with a probability that is a part of δ. Under P one ratio X is larger than under Q, so the tail
bound under Q holds under P too.

Theorem 4.6 sums over the integer partitions of α. The same number is a coefficient of a power
series, D_α = α!/t^α · [x^α] (Σ_p D_p x^p/p!)^t, all of whose terms are positive: repeated squaring
in log space gives every order up to A at once in A² log t operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, Pair, hockey_stick
from turnout.accounting.published.renyi import RenyiCurve
from turnout.accounting.published.results import Paper, Status
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected, grown
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import Relation

SHARE = 0.1  # of δ that goes to the tail bound by default
_REFINEMENT = 0  # of the Poisson run's grid
_ROUNDING = 1e-12

PoissonPrice = Callable[[Pair, float, int, float], float]
"""ε of Poisson sampling in the remove direction, from pair, rate, steps and δ."""


def engine_poisson(pair: Pair, rate: float, steps: int, delta: float) -> float:
    """Upper bound on ε of Poisson sampling in the remove direction, from a composed PLD.

    Args:
        pair: dominating pair of one step.
        rate: sampling rate in (0, 1].
        steps: number of steps, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε of the remove direction, never below the true value.

    Raises:
        ParameterError: a rate outside (0, 1], no steps, or a δ outside (0, 1).
        NumericalError: δ is too small to be certified for so many steps.
    """
    checks.positive(rate=rate)
    checks.probability(rate=rate)
    checks.count(steps=steps)
    checks.open_unit(delta=delta)
    run = [(PairBlock(pair, rate), steps)]
    return run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, _REFINEMENT)


def corollary_3_12(
    pair: Pair,
    window: int,
    delta: float,
    picks: int,
    *,
    share: float = SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε (remove direction only) of k picks in a window, by Poisson sampling just above rate k/t.

    Source: Corollary 3.12, first part, with sinh instead of cosh, as Lemma 3.9 of the paper allows
    and the second part of the corollary needs. The paper's Lemma 3.8, from (ε₀, δ₀) to ε₀, compares
    events of two randomizers. Here ratios are cut to [e^{−ε₀}, e^{ε₀}] instead. The cut moves the
    mean of a ratio by at most H = H_{e^{ε₀}}(P‖Q) and adds Q(X < e^{−ε₀}) per step to δ:
    γ = H + sinh(ε₀)√(2 ln(2k/(sδ))/u) with s = ``share``. Half of the part sδ is for this addition,
    and ε₀ is the smallest value at which this half suffices.

    Args:
        pair: dominating pair of one step.
        window: t, number of steps of the window, at least 1.
        delta: δ, strictly between 0 and 1.
        picks: k, from 1 to t.
        share: part of δ that the tail bound may use, strictly between 0 and 1.
        poisson: function that returns ε of Poisson sampling.

    Returns:
        ε of the remove direction, never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: γ ≥ 1, or no ε₀ up to 700 suffices; the corollary does not apply.
        NumericalError: ε of Poisson sampling cannot be certified.
    """
    part = part_of(window, picks)
    checks.open_unit(delta=delta, share=share)
    # Half of the tail bound's part of δ is for ratios below e^{−ε₀}, in all steps.
    local = _cheapest_local_epsilon(pair, share * delta / (2 * picks * part))
    # The other half is for γ: H, and Hoeffding's bound; sinh would overflow for ε₀ ≥ 300.
    tail = -math.log(share * delta / (2 * picks))
    mean = float(hockey_stick(pair, np.array(math.exp(local))))
    excess = mean + math.sinh(local) * math.sqrt(2 * tail / part) if local < 300 else math.inf
    # The rest of δ is for the Poisson sampling.
    return poisson(pair, *poisson_run(excess, part, picks, (1 - share) * delta))


def theorem_4_1(
    pair: Pair,
    window: int,
    delta: float,
    rate: float | None = None,
    *,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε (remove direction only) of one check-in in a window, by conditional Poisson sampling.

    The Poisson sampling is conditioned on at least one participation.

    Source: Theorem 4.1 ("decomposition"): δ(ε) ≤ δ_Poisson(ε')/λ' with λ' = 1 − (1 − λ)^t,
    e^{ε'} = 1 + λ'(e^ε − 1). Its Lemma 4.2 has a gap (docs/errata.md, random allocation 3).

    Args:
        pair: dominating pair of one step.
        window: t, number of steps of the window, at least 1.
        delta: δ, strictly between 0 and 1.
        rate: λ in (0, 1], rate of the Poisson sampling; 1/t if None.
        poisson: function that returns ε of Poisson sampling.

    Returns:
        ε of the remove direction, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.
        NumericalError: ε of Poisson sampling cannot be certified.
    """
    checks.count(window=window)
    checks.open_unit(delta=delta)
    chosen = 1 / window if rate is None else rate
    checks.positive(rate=chosen)
    checks.probability(rate=chosen)
    taken = 1.0 if chosen == 1 else -math.expm1(window * math.log1p(-chosen))
    inner = poisson(pair, chosen, window, taken * delta * (1 - _ROUNDING))
    if inner > 700:
        return inner - math.log(taken)
    return math.log1p(math.expm1(inner) / taken) * (1 + _ROUNDING)


def part_of(window: int, picks: int) -> int:
    """Number of steps u = ⌊t/k⌋ of each of the k parts of a window, with one pick in each part.

    Raises:
        ParameterError: a number below 1, or more picks than steps.
    """
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    return window // picks


def poisson_run(excess: float, part: int, picks: int, delta: float) -> tuple[float, int, float]:
    """Rate, number of steps and δ of the Poisson sampling that bounds a random allocation.

    Args:
        excess: γ, how far below 1 the average of the likelihood ratios of u steps may fall.
        part: u, number of steps of the part of one pick.
        picks: k, number of picks.
        delta: δ that is left for the Poisson sampling.

    Raises:
        UnsupportedError: γ is at least 1, or ``delta`` is not positive.
    """
    if excess >= 1:
        raise UnsupportedError(
            f"the bound does not apply here: gamma = {excess:.4g} is not below 1"
        )
    if delta <= 0:
        raise UnsupportedError(
            "no delta is left for Poisson sampling: the tail bound of the allocation uses up delta"
        )
    rate = min(1.0, (1 + _ROUNDING) / (part * (1 - excess)))
    return rate, part * picks, delta


def _cheapest_local_epsilon(pair: Pair, mass: float) -> float:
    """Upper bound, nearly tight, on the smallest ε₀ with Q(X < e^{−ε₀}) ≤ ``mass``.

    X is the likelihood ratio of the pair.
    """

    def light(epsilon: float) -> bool:
        return not float(pair.q_below(np.array(math.exp(-epsilon)))) > mass

    first = grown(light, 1.0, 700)
    if first is None:
        raise UnsupportedError(
            "no epsilon_0 up to 700 bounds the likelihood ratio from below with a failure "
            f"probability of at most {mass:.3g}; use a larger delta or more noise"
        )
    return bisected(light, *first, relative=1e-9).holding


MOST_ORDER = 256


def gaussian_log_moments(noise_multiplier: float, largest_order: int = MOST_ORDER) -> FloatArray:
    """Log-moments ln D_p = p(p − 1)/(2σ²) of Gaussian noise for p = 0 … A, shape (A + 1,).

    Args:
        noise_multiplier: σ, standard deviation of the noise over the sensitivity, positive.
        largest_order: A, largest order of the curve, at least 2.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(2, largest_order=largest_order)
    orders = np.arange(largest_order + 1.0)
    return orders * (orders - 1) / (2 * noise_multiplier**2)


def theorem_4_6(log_moments: FloatArray, window: int) -> RenyiCurve:
    """Rényi curve (remove direction only) of one check-in in a window, exact up to rounding up.

    Source: Theorem 4.6, as a power series.

    Args:
        log_moments: ln D_0 … ln D_A, shape (A + 1,), A ≥ 2, where D_p = E_Q[X^p] is the moment of
            the likelihood ratio X of one step in the remove direction.
        window: t, number of steps of the window, at least 1.

    Returns:
        The curve of ln E_Q[S^α] for α = 0 … A, rounded up. S is the mean of the window's t ratios.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> curve = theorem_4_6(gaussian_log_moments(1.0, 2), 10)
    >>> round(math.exp(curve.divergence(2)), 6) == round(1 + (math.e - 1) / 10, 6)
    True
    """
    checks.count(window=window)
    moments = np.asarray(log_moments, dtype=float)
    if moments.ndim != 1 or moments.size < 3 or abs(moments[:2]).max() > 1e-9:
        expected = "a vector ln D_0, ln D_1, ln D_2, ... whose first two numbers are 0"
        raise ParameterError("log_moments", moments[:3], expected)
    orders = np.arange(moments.size, dtype=np.float64)
    factorials = gammaln(orders + 1.0)
    series = moments - factorials
    power = _series_power(series, window)
    logs = power + factorials - orders * math.log(window)
    logs = logs + _rounding_error(np.max(np.abs(np.append(series, power))), orders, window)
    logs[:2] = 0.0
    # D_α ≥ 1 by Jensen.
    return RenyiCurve(np.maximum(logs, 0.0))


def corollary_4_7(
    noise_multiplier: float, window: int, picks: int = 1, largest_order: int = MOST_ORDER
) -> RenyiCurve:
    """Rényi curve (remove direction only) of check-ins with Gaussian noise.

    Source: Corollary 4.7; k picks are bounded by k windows of ⌊t/k⌋ steps. The curve is exact for
    k = 1, except that it is rounded up.

    Args:
        noise_multiplier: σ, standard deviation of the noise over the sensitivity, positive.
        window: t, number of steps, at least 1.
        picks: k, from 1 to t.
        largest_order: A, largest order of the curve, at least 2.

    Returns:
        The curve of ln D_α for α = 0 … A, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    moments = gaussian_log_moments(noise_multiplier, largest_order)
    return theorem_4_6(moments, window // picks).composed(picks)


def log_sum_exp(terms: FloatArray) -> FloatArray:
    """Logarithm of the sum of exponentials along the last axis, (…, n) to (…)."""
    largest = np.max(terms, axis=-1, keepdims=True)
    return largest[..., 0] + np.log(np.sum(np.exp(terms - largest), axis=-1))


def _series_power(series: FloatArray, exponent: int) -> FloatArray:
    """Logarithms of the coefficients of a power of a power series, by repeated squaring."""
    power, base = None, series
    while exponent:
        if exponent & 1:
            power = base if power is None else _product(power, base)
        exponent >>= 1
        if exponent:
            base = _product(base, base)
    assert power is not None
    return power


def _product(first: FloatArray, second: FloatArray) -> FloatArray:
    size = first.size
    index = np.arange(size)[:, None] - np.arange(size)
    terms = np.where(index >= 0, first + second[np.maximum(index, 0)], -np.inf)
    return log_sum_exp(terms)


def _rounding_error(largest: float, orders: FloatArray, window: int) -> FloatArray:
    """Bound on the rounding error of ln D_α, the logarithm of a coefficient of a power series.

    The power is computed by products of series. The constant coefficient of each series is exactly
    1, so at most α factors of a term have an error. Each product adds an error of a few unit
    round-offs, times the largest logarithm plus the number of terms of a sum.
    """
    products = 2 * window.bit_length() + 2
    return orders * products * UNIT_ROUNDOFF * (8 * (1 + largest) + 2 * orders.size)


ALLOCATION = Paper("random allocation", "feldman2025allocation", Relation.ZERO_OUT)
_PAIR = "dominating pair"
RESULTS = (
    ALLOCATION.states("Corollary 3.12", corollary_3_12, _PAIR, "gamma < 1"),
    ALLOCATION.states("Theorem 4.1", theorem_4_1, _PAIR, "lambda in (0, 1]", Status.REPRODUCTION),
    ALLOCATION.states(
        "Theorem 4.6",
        theorem_4_6,
        "moments of the likelihood ratio",
        "one pick; real orders by convexity",
    ),
    ALLOCATION.states(
        "Corollary 4.7", corollary_4_7, "Gaussian", "k picks as k windows (Lemma 3.11)"
    ),
)
