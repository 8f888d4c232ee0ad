"""Central-model estimates: rows summed in whole numbers, plus noise of an exact distribution.

`central_frequencies` and `central_mean` return estimates. `laplace_noise` and `gaussian_noise`
return the noise of a sum (`SumNoise`), and `discrete_laplace` draws samples. The module `estimates`
calls these functions.

Notation: Δ₁ and Δ₂ are the largest changes of the sum by one client, in whole units, in ℓ1 and in
ℓ2; s and t are whole numbers; K is the number of whole units in one radius, d the number of
coordinates, a the norm of one row divided by K (ℓ1 for Laplace, ℓ2 for Gaussian noise), F the
largest ℓ2 norm of a mean divided by the radius.

The discrete Laplace distribution is P(x) ∝ exp(−|x|·s/t), so its ε is Δ₁·s/t, exactly. The rounded
Gaussian is a function of the output of the Gaussian mechanism, so the ε of the Gaussian mechanism
is an upper bound.

Under add-remove the number n of rows is private. The noisy sum of one more coordinate, which is
w·K in each row, estimates n. The mean's squared error is then (d + F²/w²) times the variance of the
noise on one coordinate. The scale of this noise is proportional to a + w (Laplace) or √(a² + w²)
(Gaussian). The error is least at w³ = a·F²/d (Laplace) and at w⁴ = a²·F²/d (Gaussian).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from turnout.accounting import gaussian_epsilon
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.frequencies import sampled_limits, sampling_errors
from turnout.estimation.means import sampling_bounds
from turnout.estimation.private.answers import (
    NORMS,
    EstimateCost,
    Frequencies,
    Mean,
    PrivacyRequest,
)
from turnout.estimation.tallies import POST_PROCESSING
from turnout.randomness import Source, rounded_gaussian

_FINENESS = 2**20  # s where one client changes a sum by few units
_LARGEST_SCALE = 2**55  # largest t; the sampler's series stays within the range of `Source.below`
_STEPS = 40


@dataclass(frozen=True)
class SumNoise:
    """Distribution of the noise on each coordinate of a sum, with its privacy guarantee.

    Attributes:
        law: "laplace" or "gaussian".
        deviation: standard deviation of the noise on one coordinate, in units of the sum.
        epsilon: upper bound on ε of the whole sum.
        delta: δ; 0 for Laplace noise.
        scale: (t, s) of Laplace noise, whose probability at x is proportional to exp(−|x|·s/t).
    """

    law: str
    deviation: float
    epsilon: float
    delta: float
    scale: tuple[int, int] = (0, 1)

    def draw(self, size: int, source: Source) -> NDArray[np.int64]:
        """Independent noise samples, in units, shape (size,)."""
        if self.law == "laplace":
            return discrete_laplace(*self.scale, size, source)

        def read(count: int) -> bytes:
            return source.below(256, count).astype(np.uint8).tobytes()

        return rounded_gaussian(self.deviation, size, read)

    def half_width(self, confidence: float) -> float:
        """Bound that |noise| of one coordinate keeps with probability at least ``confidence``."""
        if self.law == "laplace":
            t, s = self.scale
            return t / s * math.log(1 / (1 - confidence)) + 1
        from scipy.special import ndtri

        return self.deviation * float(ndtri((1 + confidence) / 2)) + 0.5


def laplace_noise(epsilon: float, sensitivity: int) -> SumNoise:
    """Discrete Laplace noise of the least scale that is ε-private at ℓ1 ``sensitivity``.

    Args:
        epsilon: ε, above 0.
        sensitivity: Δ₁, whole units, at least 1.

    Raises:
        ParameterError: ``epsilon`` is so small that the noise exceeds 64 bits.

    >>> noise = laplace_noise(0.5, 1)
    >>> 0.49999 < noise.epsilon <= 0.5, noise.delta
    (True, 0.0)
    """
    checks.positive(epsilon=epsilon)
    checks.count(sensitivity=sensitivity)
    fineness = max(1, _FINENESS // sensitivity)
    t = math.ceil(Fraction(sensitivity * fineness) / Fraction(epsilon))
    if t > _LARGEST_SCALE:
        raise ParameterError("epsilon", epsilon, "a larger epsilon, so that the noise fits 64 bits")
    exact = Fraction(sensitivity * fineness, t)
    level = float(exact)
    level = math.nextafter(level, math.inf) if Fraction(level) < exact else level
    ratio = math.exp(-fineness / t)
    deviation = math.sqrt(2 * ratio) / -math.expm1(-fineness / t)
    return SumNoise("laplace", deviation, level, 0.0, (t, fineness))


def gaussian_noise(epsilon: float, delta: float, sensitivity: float) -> SumNoise:
    """Gaussian noise of nearly the least scale that is (ε, δ)-private at ℓ2 ``sensitivity``.

    Its ε is computed numerically from the Gaussian pair and rounded up; ``sensitivity`` is exact or
    rounded up by the caller.

    Args:
        epsilon: ε, above 0.
        delta: δ, in (0, 1).
        sensitivity: Δ₂ in units, above 0.

    Raises:
        UnsupportedError: no noise multiplier up to 2³⁰ reaches ``epsilon``.
    """
    checks.positive(epsilon=epsilon, sensitivity=sensitivity)
    checks.open_unit(delta=delta)
    # Bracket the noise multiplier between one that is too small and one that is enough.
    high = 1.0
    while gaussian_epsilon(high, delta) > epsilon:
        high *= 2
        if high > 2**30:
            raise UnsupportedError(
                f"no Gaussian noise reaches epsilon = {epsilon:g} and this delta: increase epsilon "
                "or delta"
            )
    low = high / 2
    while low > 2**-10 and gaussian_epsilon(low, delta) <= epsilon:
        low, high = low / 2, low
    # Halve the bracket; its upper end always satisfies (ε, δ).
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if high / low < 1 + 1e-6:
            break
        low, high = (low, middle) if gaussian_epsilon(middle, delta) <= epsilon else (middle, high)
    # The deviation is rounded up, so that the noise still satisfies (ε, δ).
    deviation = math.nextafter(high * sensitivity, math.inf)
    return SumNoise("gaussian", deviation, gaussian_epsilon(high, delta), delta)


def discrete_laplace(t: int, s: int, size: int, source: Source) -> NDArray[np.int64]:
    """Exact samples with P(x) ∝ exp(−|x|·s/t), shape (size,), for s ≥ 1 and t from 1 to 2⁵⁵.

    Source: Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020,
        Algorithms 1 and 2.

    Raises:
        ParameterError: s or t is below 1, or t is above 2⁵⁵.
    """
    checks.count(t=t, s=s)
    checks.at_most("2**55", _LARGEST_SCALE, t=t)
    drawn = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        # A rest below t, accepted with probability exp(−rest/t).
        rest = source.below(t, open_.size)
        kept = _exponential_coins(rest, t, source)
        open_now, rest = open_[kept], rest[kept]
        # Plus t for each success of probability 1/e: geometric in units of 1/t. Then divide by s.
        magnitude = (rest + t * _unit_successes(rest.size, source)) // s
        negative = source.below(2, rest.size) == 1
        # A fair sign; reject −0, which would make 0 twice as likely.
        good = ~(negative & (magnitude == 0))
        drawn[open_now[good]] = np.where(negative, -magnitude, magnitude)[good]
        done = np.zeros(size, dtype=np.bool_)
        done[open_now[good]] = True
        open_ = open_[~done[open_]]
    return drawn


def _exponential_coins(numerators: NDArray[np.int64], t: int, source: Source) -> NDArray[np.bool_]:
    """Random booleans, true with probability exp(−numerator/t), for numerators 0 to t."""
    rounds = np.ones(numerators.size, dtype=np.int64)
    open_, k = np.arange(numerators.size), 1
    while open_.size:
        going = source.below(t * k, open_.size) < numerators[open_]
        open_ = open_[going]
        rounds[open_] += 1
        k += 1
    return rounds % 2 == 1


def _unit_successes(size: int, source: Source) -> NDArray[np.int64]:
    """Geometric samples (size,): number of successes of probability 1/e before a failure."""
    count = np.zeros(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        open_ = open_[_exponential_coins(np.ones(open_.size, dtype=np.int64), 1, source)]
        count[open_] += 1
    return count


UNITS = 2**24  # K
_MARGIN = 1 - 1e-9  # factor of clipped rows, so that rounding never leaves the ball
_ABOVE = 1 + 2**-40
SAMPLING_BOUND = (
    "at most, by the radius and the estimated mean; a smaller radius lowers this bound, but clips "
    "more rows"
)
"""How the sampling error of a mean is computed, where the variance of the rows is not released."""
_SEEN = "whoever runs this sees every row; what it prints is what is private"


def central_frequencies(
    blocks: Iterable[NDArray[np.int64]],
    items: int,
    privacy: PrivacyRequest,
    source: Source,
    *,
    mechanism: str,
    post_processing: str,
    confidence: float,
) -> Frequencies:
    """Frequencies from noisy counts; under add-remove the sum of all noisy counts estimates n.

    Args:
        blocks: items of the rows, from 0 to k − 1, in blocks of shape (rows,).
        items: k.
        privacy: request for the central model.
        source: source of the noise.
        mechanism: "auto", "laplace" or "gaussian".
        post_processing: one of `POST_PROCESSING`.
        confidence: confidence of the limits, in [0.5, 1).

    Raises:
        ParameterError: an unknown mechanism or post-processing, or Gaussian noise without δ.
    """
    # One client changes one count under add-remove, and two under replace-one.
    if post_processing not in POST_PROCESSING:
        expected = f"one of {', '.join(POST_PROCESSING)} in the central model"
        raise ParameterError("post_processing", post_processing, expected)
    one = 1 if privacy.relation == "add-remove" else 2
    noise, reason = _cheaper(privacy, one, math.sqrt(one), mechanism)
    # Exact counts, then noise; n is the sum of the noisy counts where it is private.
    counts = np.zeros(items, dtype=np.int64)
    for block in blocks:
        counts += np.bincount(block, minlength=items)
    n = None if privacy.relation == "add-remove" else int(counts.sum())
    noisy = counts + noise.draw(items, source)
    about = float(max(noisy.sum(), 1)) if n is None else float(n)
    raw = noisy / about
    shares, spread = np.clip(raw, 0, 1), np.full(items, noise.deviation)
    if n is None:  # Each share also changes with the noise of the sum of all counts.
        spread = noise.deviation * np.sqrt((1 - shares) ** 2 + (items - 1) * shares**2)

    # Limits for these clients from noise alone; for the population, noise and sampling share the
    # probability of failure.
    half = _half_widths(noise, shares, confidence, private=n is None)
    inner, tail = _divided(noise, confidence, about)
    wider = _half_widths(noise, shares, inner, private=n is None)
    return Frequencies(
        POST_PROCESSING[post_processing](raw),
        raw,
        spread / about,
        np.hypot(spread / about, sampling_errors(shares, about)),
        np.clip(raw - half / about, 0, 1),
        np.clip(raw + half / about, 0, 1),
        *sampled_limits((raw * about - wider, raw * about + wider), about, tail),
        confidence,
        n,
        about,
        _central_cost(privacy, noise, reason, "counts"),
    )


def _half_widths(
    noise: SumNoise, shares: FloatArray, confidence: float, *, private: bool
) -> FloatArray:
    """Half widths of confidence intervals of the counts for privacy noise alone, shape (k,)."""
    half = np.full(shares.size, noise.half_width(confidence))
    if private:  # Each share also changes with the noise of the sum of all counts.
        normal = float(ndtri((1 + confidence) / 2))
        half += shares * normal * noise.deviation * math.sqrt(shares.size)
    return half


def _divided(noise: SumNoise, confidence: float, clients: float) -> tuple[float, float]:
    """Division of the failure probability 1 − ``confidence`` between noise and sampling.

    Returns the confidence of the limits for the noise, and the failure probability of each of the
    two limits for the sampling. The division does not depend on the counts; it minimises the sum of
    both widths for an item with a share of 0.1.
    """
    miss = 1 - confidence

    def width(share: float) -> float:
        sample = float(ndtri(1 - (1 - share) * miss / 2)) * math.sqrt(0.09 * clients)
        return noise.half_width(1 - share * miss) + sample

    share = min((0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.995), key=width)
    return 1 - share * miss, (1 - share) * miss / 2


def central_mean(
    blocks: Iterable[FloatArray],
    privacy: PrivacyRequest,
    source: Source,
    *,
    norm: str,
    dimension: int,
    radius: float,
) -> Mean:
    """Mean from a noisy sum and, under add-remove, a noisy count as one more coordinate.

    Args:
        blocks: vectors of the rows, each of shape (rows, d).
        privacy: request for the central model.
        source: source of the noise.
        norm: one of `NORMS`.
        dimension: d.
        radius: radius of the ball, above 0.

    Raises:
        ParameterError: a row is outside the ball after rounding, or ε is too small for the noise.
        UnsupportedError: no Gaussian noise reaches ε.
    """
    # The noise depends on public numbers alone.
    private = privacy.relation == "add-remove"
    noise, weight = mean_noise(norm, dimension, privacy)
    # The exact sum of clipped rows in whole units, then noise on it and on the count.
    total, clients = np.zeros(dimension, dtype=np.int64), 0
    for block in blocks:
        total += whole_units(block, norm, radius).sum(axis=0)
        clients += len(block)
    drawn = noise.draw(dimension + 1, source)
    about = max((weight * clients + int(drawn[-1])) / weight, 1.0) if private else float(clients)
    scaled = (total + drawn[:-1]) * (radius / UNITS) / about
    value = np.asarray(scaled, dtype=np.float64)
    # Standard errors; a private count adds an error in the direction of the mean.
    unit = noise.deviation * radius / UNITS / about
    pull = value / radius * (UNITS / weight) if private else np.zeros(dimension)
    errors = unit * np.sqrt(1 + pull**2)
    # The sampling error is an upper bound, since the variance of the rows is private.
    return Mean(
        value,
        errors,
        np.hypot(errors, sampling_bounds(value, errors, NORMS[norm], radius, about)),
        SAMPLING_BOUND,
        float(np.sum(errors**2)),
        None if private else clients,
        about,
        _central_cost(privacy, noise, _only_or_less(privacy, noise), "the sum of clipped vectors"),
    )


def mean_noise(norm: str, dimension: int, privacy: PrivacyRequest) -> tuple[SumNoise, int]:
    """Noise that minimises the error of a mean, and the weight of a private count of rows.

    The weight is the value, in whole units, that each row adds to the coordinate of the count; 0
    under replace-one, where the number of rows is public.
    """
    private, doubled = privacy.relation == "add-remove", privacy.relation == "replace-one"
    # Largest norm of a row in ℓ1 (for Laplace noise) and in ℓ2 (for Gaussian), in units.
    sensitivity = {
        "l1": (UNITS, float(UNITS)),
        "l2": (math.isqrt(dimension * UNITS**2) + 1, float(UNITS)),
        "linf": (dimension * UNITS, math.sqrt(dimension) * UNITS),
    }[norm]
    # Laplace noise, with the weight of the count that is best for it.
    furthest = (sensitivity[1] / UNITS) ** 2 / dimension  # F²/d
    weight = math.ceil(UNITS * (furthest * sensitivity[0] / UNITS) ** (1 / 3)) if private else 0
    options = [(laplace_noise(privacy.epsilon, sensitivity[0] * (1 + doubled) + weight), weight)]
    # Gaussian noise, with its own best weight; the sensitivity is rounded up.
    if privacy.delta is not None:
        weight = math.ceil(UNITS * (furthest * (sensitivity[1] / UNITS) ** 2) ** (1 / 4))
        weight = weight if private else 0
        own = math.hypot(sensitivity[1] * (1 + doubled), weight)
        options.append((gaussian_noise(privacy.epsilon, privacy.delta, own * _ABOVE), weight))

    def error(option: tuple[SumNoise, int]) -> float:
        pull = furthest * (UNITS / option[1]) ** 2 if private else 0.0
        return option[0].deviation ** 2 * (1 + pull)

    return min(options, key=error)


def clip_rows(vectors: FloatArray, norm: str, radius: float) -> FloatArray:
    """Rows moved into the ball: scaled down for ℓ1 and ℓ2, clipped for ℓ∞.

    Args:
        vectors: the rows, shape (rows, d).
        norm: one of `NORMS`.
        radius: radius of the ball, above 0, in the unit of the rows.

    >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), "l2", 1.0).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    if norm == "linf":
        return np.clip(vectors, -radius, radius)
    # In two steps, so that squares of large numbers do not overflow.
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), radius)
    scaled = vectors / largest
    sizes = np.linalg.norm(scaled, ord=NORMS[norm], axis=1, keepdims=True)
    return scaled * np.minimum(largest, radius / np.maximum(sizes, 1e-300))


def whole_units(block: FloatArray, norm: str, radius: float) -> NDArray[np.int64]:
    """Clipped rows in whole units, rounded towards 0 so that each row is in the ball.

    Args:
        block: rows before clipping, shape (rows, d).
        norm: one of `NORMS`.
        radius: radius of the ball, above 0, in the unit of the rows.

    Returns:
        int64, shape (rows, d).

    Raises:
        ParameterError: a row is outside the ball after clipping and rounding.
    """
    units = np.trunc(clip_rows(block, norm, radius) / radius * (UNITS * _MARGIN)).astype(np.int64)
    sizes = np.abs(units)
    within = {
        "l1": lambda: sizes.sum(axis=1) <= UNITS,
        "l2": lambda: (sizes**2).sum(axis=1) <= UNITS**2,
        "linf": lambda: sizes.max(axis=1) <= UNITS,
    }[norm]()
    if not np.all(within):
        raise ParameterError(
            "values", "a row outside the ball", "rows that clipping can move into the ball"
        )
    return units


def _cheaper(
    privacy: PrivacyRequest, sensitivity1: int, sensitivity2: float, mechanism: str
) -> tuple[SumNoise, str]:
    """Noise of the mechanism (for "auto": of smaller deviation), and why it was chosen."""
    if mechanism not in ("auto", "laplace", "gaussian"):
        expected = "auto, laplace or gaussian in the central model"
        raise ParameterError("mechanism", mechanism, expected)
    if mechanism == "gaussian" and privacy.delta is None:
        raise ParameterError("delta", None, "a number in (0, 1) for Gaussian noise")
    options = []
    if mechanism != "gaussian":
        options.append(laplace_noise(privacy.epsilon, sensitivity1))
    if mechanism != "laplace" and privacy.delta is not None:
        options.append(gaussian_noise(privacy.epsilon, privacy.delta, sensitivity2 * _ABOVE))
    noise = min(options, key=lambda option: option.deviation)
    reason = f"{mechanism} was requested"
    return noise, reason if mechanism != "auto" else _only_or_less(privacy, noise)


def _only_or_less(privacy: PrivacyRequest, noise: SumNoise) -> str:
    """Reason for the automatic choice of Laplace or Gaussian noise."""
    other = "Gaussian" if noise.law == "laplace" else "Laplace"
    return "no δ was given" if privacy.delta is None else f"less noise than {other} at this ε and δ"


def _central_cost(privacy: PrivacyRequest, noise: SumNoise, reason: str, what: str) -> EstimateCost:
    """Privacy cost of a central estimate, from the guarantee of its noise."""
    # The count of clients is private only under add-remove.
    pure = noise.law == "laplace"
    assert privacy.relation is not None
    count = (
        "the number of clients is private too and only estimated"
        if privacy.relation == "add-remove"
        else "the number of clients is public"
    )
    # Laplace noise is pure and its ε exact; Gaussian noise has an upper bound on (ε, δ).
    return EstimateCost(
        noise.epsilon,
        noise.delta,
        "pure, exact" if pure else "(ε, δ) of the Gaussian mechanism, an upper bound",
        privacy.relation,
        "central",
        f"{'discrete Laplace' if pure else 'rounded Gaussian'} noise on {what}",
        reason,
        assumptions=(_SEEN, count),
    )
