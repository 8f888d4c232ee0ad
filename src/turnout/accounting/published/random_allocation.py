"""Amplification by random allocation through Poisson sampling, by the paper's own numbers.

Source: Feldman and Shenfeld 2025 (feldman2025allocation). Each bound compares one random
allocation with a run of Poisson sampling, which the engine prices as a PLD. All of them cover the
*remove* direction alone: *add* can be the larger one (docs/errata.md, random allocation 1), so
none is a guarantee.

Notation (docs/design/accounting.md: P present, Q absent, X = dP/dQ under Q)
    t   window      k  picks        u = ⌊t/k⌋, the window of one pick (Lemma 3.11)
    ε₀  local_epsilon, of the pair
    γ   excess      how far below 1 the average of u ratios may fall
    η   rate        1/(u(1 − γ)), of the Poisson sampling

The posterior probability of the next slot is 1/(t + Σ(Xⱼ − 1)) (Claim A.2), so Theorem 3.2 is
a tail bound: Σ(1 − Xⱼ) ≤ γu throughout, but for a share of δ. Under P one of the X's is larger
than under Q, so the bound under Q serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from turnout.accounting.divergence.blocks import PairBlock
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import GaussianPair, Pair, call, put
from turnout.accounting.divergence.runs import run_epsilon
from turnout.accounting.published.results import Result, Status
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.roots import bisected, grown
from turnout.spec import Relation

_SHARE = 0.1  # of δ that goes to the tail bound unless told otherwise
_REFINEMENT = 0  # of the Poisson run's grid
_ROUNDING = 1e-12

PoissonPrice = Callable[[Pair, float, int, float], float]
"""ε of Poisson sampling in the remove direction, from pair, rate, steps and δ."""


def engine_poisson(pair: Pair, rate: float, steps: int, delta: float) -> float:
    """ε of Poisson sampling in the remove direction, a proved upper bound.

    Raises:
        ParameterError: a rate outside (0, 1], no steps, or a δ outside (0, 1).
        NumericalError: δ lies below what the engine can certify for so many steps.
    """
    checks.positive(rate=rate)
    checks.probability(rate=rate)
    checks.count(steps=steps)
    checks.open_unit(delta=delta)
    run = [(PairBlock(pair, rate), steps)]
    return run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, _REFINEMENT)


def theorem_3_2(
    pair: Pair,
    window: int,
    delta: float,
    *,
    share: float = _SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε of one check-in in a window, by Poisson sampling at a rate just above 1/t.

    Source: Theorem 3.2: `corollary_3_12` with one pick.

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: the whole δ in (0, 1).
        share: the part of δ that the tail bound may use.
        poisson: prices the Poisson run.

    Returns:
        ε, never below the true one in the remove direction.

    Raises:
        UnsupportedError: γ ≥ 1, where the theorem says nothing.
        NumericalError: the Poisson run cannot be certified.
    """
    return corollary_3_12(pair, window, delta, 1, share=share, poisson=poisson)


def corollary_3_12(
    pair: Pair,
    window: int,
    delta: float,
    picks: int,
    *,
    share: float = _SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε of k picks in a window, by Poisson sampling at a rate just above k/t.

    Source: Corollary 3.12, first part, with sinh for cosh as its Lemma 3.9 allows and its second
    part needs. The paper's Lemma 3.8, from (ε₀, δ₀) to ε₀, compares events of two randomizers;
    here ratios are cut to [e^{−ε₀}, e^{ε₀}] instead, which moves their mean by at most
    H_{e^{ε₀}}(P‖Q) and costs Q(X < e^{−ε₀}) a step: γ = H + sinh(ε₀)√(2 ln(k/δ)/u). ε₀ is the
    smallest that half of the share pays for.

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: the whole δ in (0, 1).
        picks: k ≤ t.
        share: the part of δ that the tail bound may use.
        poisson: prices the Poisson run.

    Raises:
        UnsupportedError: γ ≥ 1, where the corollary says nothing.
        NumericalError: the Poisson run cannot be certified.
    """
    part = _part(window, picks)
    checks.open_unit(delta=delta, share=share)
    local = _cheapest_local_epsilon(pair, share * delta / (2 * picks * part))
    tail = -math.log(share * delta / (2 * picks))
    mean = float(call(pair, np.array(math.exp(local))))
    excess = mean + math.sinh(local) * math.sqrt(2 * tail / part) if local < 300 else math.inf
    return poisson(pair, *_run(excess, part, picks, (1 - share) * delta))


def theorem_3_2_by_variance(
    pair: Pair,
    window: int,
    delta: float,
    picks: int = 1,
    *,
    share: float = _SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """Theorem 3.2 and Corollary 3.12 with Bernstein's inequality in place of Lemma 3.9.

    Source: ours, with the proof of Theorem 3.2. 1 − X is at most 1 with variance v = E X² − 1, so
    no ε₀ is needed: γ = ℓ/3 + √(ℓ²/9 + 2vℓ) with ℓ = ln(k/δ)/u. Far tighter where ε₀ is large.

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: the whole δ in (0, 1).
        picks: k ≤ t.
        share: the part of δ that the tail bound may use.
        poisson: prices the Poisson run.

    Raises:
        UnsupportedError: γ ≥ 1, where the bound says nothing.
        NumericalError: the Poisson run cannot be certified.
    """
    part = _part(window, picks)
    checks.open_unit(delta=delta, share=share)
    rate = -math.log(share * delta / picks) / part
    variance = max(pair.second_moment - 1.0, 0.0) * (1 + 1e-9)
    excess = rate / 3 + math.sqrt(rate**2 / 9 + 2 * variance * rate)
    return poisson(pair, *_run(excess, part, picks, (1 - share) * delta))


def theorem_3_2_as_printed(
    pair: Pair,
    window: int,
    delta: float,
    local_epsilon: float,
    *,
    share: float = _SHARE,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε by Theorem 3.2 as it stands: cosh(ε₀)√(2 ln(1/δ)/t), and tδ₀ added to δ.

    Source: Theorem 3.2. δ₀ is the larger of the pair's two hockey-sticks at ε₀. Looser than sinh,
    and its Lemma 3.8 has a gap for δ₀ > 0; no violation is known.

    Raises:
        UnsupportedError: γ ≥ 1, or tδ₀ leaves nothing of δ.
        NumericalError: the Poisson run cannot be certified.
    """
    part = _part(window, 1)
    checks.open_unit(delta=delta, share=share)
    checks.positive(local_epsilon=local_epsilon)
    k = np.array(math.exp(min(local_epsilon, 300.0)))
    local_delta = float(max(call(pair, k), k * put(pair, 1 / k)))
    excess = math.cosh(min(local_epsilon, 300.0)) * math.sqrt(-2 * math.log(share * delta) / window)
    return poisson(pair, *_run(excess, part, 1, (1 - share) * delta - window * local_delta))


def corollary_3_12_gaussian(
    noise_multiplier: float,
    window: int,
    delta: float,
    picks: int = 1,
    *,
    share: float = _SHARE,
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
        poisson: prices the Poisson run.

    Raises:
        UnsupportedError: σ is not that large.
        NumericalError: the Poisson run cannot be certified.
    """
    part = _part(window, picks)
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


def theorem_4_1(
    pair: Pair,
    window: int,
    delta: float,
    rate: float | None = None,
    *,
    poisson: PoissonPrice = engine_poisson,
) -> float:
    """ε of one check-in in a window, from Poisson sampling that happened to take her.

    Source: Theorem 4.1 ("decomposition"): δ(ε) ≤ δ_Poisson(ε')/λ' with λ' = 1 − (1 − λ)^t,
    e^{ε'} = 1 + λ'(e^ε − 1). Its Lemma 4.2 has a gap (docs/errata.md, random allocation 3).

    Args:
        pair: the randomizer's dominating pair.
        window: t.
        delta: δ in (0, 1).
        rate: λ in (0, 1]; 1/t if None.
        poisson: prices the Poisson run.

    Raises:
        NumericalError: the Poisson run cannot be certified.
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


def _part(window: int, picks: int) -> int:
    checks.count(window=window, picks=picks)
    checks.at_most("window", window, picks=picks)
    return window // picks


def _run(excess: float, part: int, picks: int, delta: float) -> tuple[float, int, float]:
    """Rate, steps and δ of the Poisson run."""
    if excess >= 1:
        raise UnsupportedError(f"the bound is void here: gamma = {excess:.4g} is not below 1")
    if delta <= 0:
        raise UnsupportedError("t * delta_0 leaves nothing of delta")
    rate = min(1.0, (1 + _ROUNDING) / (part * (1 - excess)))
    return rate, part * picks, delta


def _cheapest_local_epsilon(pair: Pair, mass: float) -> float:
    """About the smallest ε₀ with Q(X < e^{−ε₀}) ≤ ``mass``, from above."""

    def light(epsilon: float) -> bool:
        return not float(pair.q_below(np.array(math.exp(-epsilon)))) > mass

    first = grown(light, 1.0, 700)
    if first is None:
        raise UnsupportedError("the likelihood ratio falls too low for this delta")
    return bisected(light, *first, relative=1e-9).holding


def _stated(
    number: str,
    function: Callable[..., object],
    holds: str,
    randomizer: str = "dominating pair",
    status: Status = Status.PROVED,
) -> Result:
    return Result(
        f"random allocation {number}",
        f"feldman2025allocation, {number}",
        status,
        Relation.ZERO_OUT,
        ("remove",),
        randomizer,
        holds,
        function,
    )


RESULTS = (
    _stated("Theorem 3.2", theorem_3_2, "gamma < 1"),
    _stated("Theorem 3.2, by variance", theorem_3_2_by_variance, "gamma < 1"),
    _stated("Theorem 3.2, cosh", theorem_3_2_as_printed, "gamma < 1", status=Status.REPRODUCTION),
    _stated("Corollary 3.12", corollary_3_12, "gamma < 1"),
    _stated(
        "Corollary 3.12, Gaussian",
        corollary_3_12_gaussian,
        "sigma > 8 max(sqrt(ln(t/delta)), sqrt(k/t) ln(t/delta))",
        "Gaussian",
    ),
    _stated("Theorem 4.1", theorem_4_1, "lambda in (0, 1]", status=Status.REPRODUCTION),
)
