"""Bounds on random allocation from the papers that no command shows: closed forms and enumeration.

Notation and sources: `turnout.accounting.published.random_allocation` and `allocation_rdp`, which
contain the theorems that `turnout compare` shows. The bounds here also cover only the *remove*
direction.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np

from turnout.accounting.divergence.pairs import (
    GaussianPair,
    Pair,
    hockey_stick,
    reverse_hockey_stick,
)
from turnout.accounting.published.random_allocation import (
    ALLOCATION,
    MOST_ORDER,
    SHARE,
    FloatArray,
    PoissonPrice,
    corollary_3_12,
    engine_poisson,
    log_sum_exp,
    part_of,
    poisson_run,
)
from turnout.accounting.published.renyi import RenyiCurve
from turnout.accounting.published.results import Paper, Status
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import Relation

_MOST_TERMS = 2_000_000  # limit on the terms of the enumeration


def theorem_3_2(
    pair: Pair,
    window: int,
    delta: float,
    *,
    share: float = SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε of one check-in in a window, by Poisson sampling at a rate slightly above 1/t.

    Source: Theorem 3.2: `corollary_3_12` with one pick.

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: the whole δ in (0, 1).
        share: the part of δ that the tail bound may use.
        poisson: function that computes ε of the Poisson run.

    Returns:
        ε, never below the true one in the remove direction.

    Raises:
        UnsupportedError: γ ≥ 1, where the theorem gives no bound.
        NumericalError: the Poisson run cannot be certified.
    """
    return corollary_3_12(pair, window, delta, 1, share=share, poisson=poisson)


def theorem_3_2_by_variance(
    pair: Pair,
    window: int,
    delta: float,
    picks: int = 1,
    *,
    share: float = SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε by Theorem 3.2 and Corollary 3.12 with Bernstein's inequality in place of Lemma 3.9.

    Source: ours, with the proof of Theorem 3.2. 1 − X is at most 1 with variance v = E X² − 1, so
    no ε₀ is needed: γ = ℓ/3 + √(ℓ²/9 + 2vℓ) with ℓ = ln(k/δ)/u. Far tighter where ε₀ is large.

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: the whole δ in (0, 1).
        picks: k ≤ t.
        share: the part of δ that the tail bound may use.
        poisson: function that computes ε of the Poisson run.

    Raises:
        UnsupportedError: γ ≥ 1, where there is no bound.
        NumericalError: the Poisson run cannot be certified.
    """
    part = part_of(window, picks)
    checks.open_unit(delta=delta, share=share)
    rate = -math.log(share * delta / picks) / part
    variance = max(pair.second_moment - 1.0, 0.0) * (1 + 1e-9)
    excess = rate / 3 + math.sqrt(rate**2 / 9 + 2 * variance * rate)
    return poisson(pair, *poisson_run(excess, part, picks, (1 - share) * delta))


def theorem_3_2_as_printed(
    pair: Pair,
    window: int,
    delta: float,
    local_epsilon: float,
    *,
    share: float = SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε by Theorem 3.2 as printed: cosh(ε₀)√(2 ln(1/δ)/t), with tδ₀ added to δ.

    Source: Theorem 3.2. δ₀ is the larger of the pair's two hockey-sticks at ε₀. The bound is looser
    than with sinh, and its Lemma 3.8 has a gap for δ₀ > 0; no violation is known.

    Raises:
        UnsupportedError: γ ≥ 1, or tδ₀ leaves nothing of δ.
        NumericalError: the Poisson run cannot be certified.
    """
    part = part_of(window, 1)
    checks.open_unit(delta=delta, share=share)
    checks.positive(local_epsilon=local_epsilon)
    k = np.array(math.exp(min(local_epsilon, 300.0)))
    local_delta = float(max(hockey_stick(pair, k), k * reverse_hockey_stick(pair, 1 / k)))
    excess = math.cosh(min(local_epsilon, 300.0)) * math.sqrt(-2 * math.log(share * delta) / window)
    return poisson(pair, *poisson_run(excess, part, 1, (1 - share) * delta - window * local_delta))


def corollary_3_12_gaussian(
    noise_multiplier: float,
    window: int,
    delta: float,
    picks: int = 1,
    *,
    share: float = SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε of k picks with Gaussian noise, by Poisson sampling at the rate 2k/t.

    Source: Corollary 3.12, second part, for σ > 8·max(√ln(t/δ'), √(k/t)·ln(t/δ')), with
    2δ' = share·δ. Follows from `corollary_3_12`'s γ ≤ ½ there; cosh ≤ 3ε₀/2, which the paper's
    proof writes, holds for sinh only.

    Args:
        noise_multiplier: σ.
        window: t, a multiple of k.
        delta: the whole δ in (0, 1).
        picks: k.
        share: the part of δ that is 2δ'.
        poisson: function that computes ε of the Poisson run.

    Raises:
        UnsupportedError: σ is not that large.
        NumericalError: the Poisson run cannot be certified.
    """
    part = part_of(window, picks)
    pair = GaussianPair(noise_multiplier)
    checks.open_unit(delta=delta, share=share)
    if part * picks != window:
        raise ParameterError("window", window, f"a multiple of picks = {picks}")
    tail = math.log(2 * window / (share * delta))
    least = 8 * max(math.sqrt(tail), math.sqrt(picks / window) * tail)
    if noise_multiplier <= least:
        raise UnsupportedError(
            f"the second part of Corollary 3.12 needs a noise multiplier above {least:.4g}"
        )
    rate = min(1.0, 2 * picks / window)
    return poisson(pair, rate, window, (1 - share) * delta)


def randomized_response_log_moments(
    local_epsilon: float, largest_order: int = MOST_ORDER
) -> FloatArray:
    """Ln D_p of binary randomized response for p = 0 … A, shape (A + 1,).

    Binary randomized response is the worst case of all ε₀-randomizers (Kairouz, Oh and Viswanath
    2015, kairouz2015composition): X = e^{±ε₀}.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(2, largest_order=largest_order)
    orders = np.arange(largest_order + 1.0)
    up = (orders - 1) * local_epsilon
    return np.logaddexp(up, -up - local_epsilon) - math.log1p(math.exp(-local_epsilon))


def dong_2025_exact(
    noise_multiplier: float, window: int, picks: int, largest_order: int
) -> RenyiCurve:
    """Rényi curve of k picks with Gaussian noise, by enumeration of α subsets.

    Source: Dong et al. 2025, Theorem 3.1, first bound, as Feldman and Shenfeld 2025 describe it
    (appendix B.3): E exp(Σ_{i<j}|Sᵢ ∩ Sⱼ|/σ²) over α independent uniform k-subsets. This is the
    only exact Rényi curve for k > 1. By symmetry, the first subset is fixed.

    Raises:
        UnsupportedError: more than two million terms.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    checks.count(2, largest_order=largest_order)
    count = math.comb(window, picks)
    if count ** (largest_order - 1) > _MOST_TERMS:
        raise UnsupportedError(
            f"{count}^{largest_order - 1} terms are too many to enumerate. Use dong_2025."
        )
    subsets = [frozenset(chosen) for chosen in combinations(range(window), picks)]
    overlaps = np.array([[len(a & b) for b in subsets] for a in subsets])
    logs = [0.0, 0.0]
    for order in range(2, largest_order + 1):
        shared = [
            sum(overlaps[a, b] for a, b in combinations((0, *rest), 2))
            for rest in product(range(count), repeat=order - 1)
        ]
        total = float(log_sum_exp(np.array(shared, dtype=float) / noise_multiplier**2))
        logs.append(total - (order - 1) * math.log(count))
    return RenyiCurve(np.array(logs) * (1 + 1e-12))


def dong_2025(
    noise_multiplier: float, window: int, picks: int, largest_order: int = MOST_ORDER
) -> RenyiCurve:
    """Upper bound on the Rényi curve of k picks with Gaussian noise; exact at order 2.

    Source: Dong et al. 2025, Theorem 3.1, second bound: R_α ≤ ln E e^{αJ/(2σ²)} with J the
    overlap of two uniform k-subsets of t. Proof for whole α: Σ_{i<j} aᵢⱼ is the average over i of
    (α/2)·Σ_j aᵢⱼ, exp is convex, and given Sᵢ the overlaps with the other α − 1 are independent.

    Args:
        noise_multiplier: σ.
        window: t.
        picks: k ≤ t.
        largest_order: A.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    checks.count(2, largest_order=largest_order)
    overlaps = np.arange(max(0, 2 * picks - window), picks + 1.0)
    # Ratios of neighbouring probabilities: differences of log-factorials would lose digits.
    free = picks - overlaps[:-1]
    ratios = free**2 / ((overlaps[:-1] + 1) * (window - 2 * picks + overlaps[:-1] + 1))
    distribution = np.append(0.0, np.cumsum(np.log(ratios)))
    distribution = distribution - log_sum_exp(distribution)
    orders = np.arange(largest_order + 1.0)
    tilts = np.multiply.outer(orders, overlaps) / (2 * noise_multiplier**2)
    logs = np.maximum(log_sum_exp(distribution + tilts), 0.0) * (orders - 1)
    logs[:2] = 0.0
    return RenyiCurve(logs * (1 + 1e-12) + 1e-12 * np.maximum(orders - 1, 0.0))


_DONG = Paper("Dong et al. 2025,", "dong2025randomness", Relation.ZERO_OUT)
_PAIR = "dominating pair"
RESULTS = (
    ALLOCATION.states("Theorem 3.2", theorem_3_2, _PAIR, "gamma < 1"),
    ALLOCATION.states("Theorem 3.2, by variance", theorem_3_2_by_variance, _PAIR, "gamma < 1"),
    ALLOCATION.states(
        "Theorem 3.2, cosh", theorem_3_2_as_printed, _PAIR, "gamma < 1", Status.REPRODUCTION
    ),
    ALLOCATION.states(
        "Corollary 3.12, Gaussian",
        corollary_3_12_gaussian,
        "Gaussian",
        "sigma > 8 max(sqrt(ln(t/delta)), sqrt(k/t) ln(t/delta))",
    ),
    _DONG.states(
        "Theorem 3.1, first bound", dong_2025_exact, "Gaussian", "two million terms at most"
    ),
    _DONG.states("Theorem 3.1, second bound", dong_2025, "Gaussian", "k of t picks"),
)
