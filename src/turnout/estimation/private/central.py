"""The central model: rows summed in whole numbers, with noise of an exact law on the sum.

Notation: K whole units of one radius, d coordinates, a the reach of one row over K (in ℓ1 for
Laplace, in ℓ2 for Gaussian noise), F the largest ℓ2 norm of a mean over the radius.

Under add-remove the number n of rows is private. It is summed along as one more coordinate, of w·K
for each row. The mean's error is then as (d + F²/w²) times the noise of one number, whose scale is
as a + w (Laplace) or √(a² + w²) (Gaussian): least at w³ = a·F²/d and at w⁴ = a²·F²/d.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from turnout.core.errors import ParameterError
from turnout.estimation.frequency_intervals import sampled_limits, sampling_errors
from turnout.estimation.means import sampling_bounds
from turnout.estimation.private.answers import Cost, Frequencies, Mean, PrivacyRequest
from turnout.estimation.private.choices import NORMS
from turnout.estimation.private.noise import SumNoise, gaussian_noise, laplace_noise
from turnout.estimation.simplex import POST_PROCESSING
from turnout.randomness import Source

FloatArray = NDArray[np.float64]
_UNITS = 2**24  # K
_MARGIN = 1 - 1e-9  # of clipping, so that rounding never leaves the ball
_ABOVE = 1 + 2**-40
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
    """Noisy counts. Under add-remove n is private and estimated by their sum."""
    if post_processing not in POST_PROCESSING:
        expected = f"one of {', '.join(POST_PROCESSING)} in the central model"
        raise ParameterError("post_processing", post_processing, expected)
    one = 1 if privacy.relation == "add-remove" else 2
    noise, reason = _cheaper(privacy, one, math.sqrt(one), mechanism)
    counts = np.zeros(items, dtype=np.int64)
    for block in blocks:
        counts += np.bincount(block, minlength=items)
    n = None if privacy.relation == "add-remove" else int(counts.sum())
    noisy = counts + noise.draw(items, source)
    about = float(max(noisy.sum(), 1)) if n is None else float(n)
    raw = noisy / about
    shares, spread = np.clip(raw, 0, 1), np.full(items, noise.deviation)
    if n is None:  # Each share moves with the noise of the sum of all counts, too.
        spread = noise.deviation * np.sqrt((1 - shares) ** 2 + (items - 1) * shares**2)

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
    """Half widths of intervals of the counts, from noise alone, shape (k,)."""
    half = np.full(shares.size, noise.half_width(confidence))
    if private:  # Each share moves with the noise of the sum of all counts, too.
        normal = float(ndtri((1 + confidence) / 2))
        half += shares * normal * noise.deviation * math.sqrt(shares.size)
    return half


def _divided(noise: SumNoise, confidence: float, clients: float) -> tuple[float, float]:
    """Division of a chance of missing between noise and sampling, without a look at counts.

    Returns:
        The confidence of the noise's limits, and the chance that either of the sample's may miss:
        the shortest interval together, about a share of one in ten.
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
    """A noisy sum; under add-remove with a noisy count, which is one more coordinate."""
    private = privacy.relation == "add-remove"
    noise, weight = _mean_noise(norm, dimension, privacy)
    total, clients = np.zeros(dimension, dtype=np.int64), 0
    for block in blocks:
        total += _whole(block, norm, radius).sum(axis=0)
        clients += len(block)
    drawn = noise.draw(dimension + 1, source)
    about = max((weight * clients + int(drawn[-1])) / weight, 1.0) if private else float(clients)
    scaled = (total + drawn[:-1]) * (radius / _UNITS) / about
    value = np.asarray(scaled, dtype=np.float64)
    unit = noise.deviation * radius / _UNITS / about
    pull = value / radius * (_UNITS / weight) if private else np.zeros(dimension)
    errors = unit * np.sqrt(1 + pull**2)
    return Mean(
        value,
        errors,
        np.hypot(errors, sampling_bounds(value, errors, NORMS[norm], radius, about)),
        "at most, by the ball's radius and the estimated mean",
        float(np.sum(errors**2)),
        None if private else clients,
        about,
        _central_cost(privacy, noise, _only_or_less(privacy, noise), "the sum of clipped vectors"),
    )


def _mean_noise(norm: str, dimension: int, privacy: PrivacyRequest) -> tuple[SumNoise, int]:
    """The noise of a sum of vectors that makes the mean's error least, and w·K."""
    private, doubled = privacy.relation == "add-remove", privacy.relation == "replace-one"
    sensitivity = {
        "l1": (_UNITS, float(_UNITS)),
        "l2": (math.isqrt(dimension * _UNITS**2) + 1, float(_UNITS)),
        "linf": (dimension * _UNITS, math.sqrt(dimension) * _UNITS),
    }[norm]
    furthest = (sensitivity[1] / _UNITS) ** 2 / dimension  # F²/d
    weight = math.ceil(_UNITS * (furthest * sensitivity[0] / _UNITS) ** (1 / 3)) if private else 0
    options = [(laplace_noise(privacy.epsilon, sensitivity[0] * (1 + doubled) + weight), weight)]
    if privacy.delta is not None:
        weight = math.ceil(_UNITS * (furthest * (sensitivity[1] / _UNITS) ** 2) ** (1 / 4))
        weight = weight if private else 0
        own = math.hypot(sensitivity[1] * (1 + doubled), weight)
        options.append((gaussian_noise(privacy.epsilon, privacy.delta, own * _ABOVE), weight))

    def error(option: tuple[SumNoise, int]) -> float:
        pull = furthest * (_UNITS / option[1]) ** 2 if private else 0.0
        return option[0].deviation ** 2 * (1 + pull)

    return min(options, key=error)


def clipped(vectors: FloatArray, norm: str, radius: float) -> FloatArray:
    """The rows, those beyond the ball moved onto it: scaled for ℓ1 and ℓ2, cut for ℓ∞.

    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), "l2", 1.0).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    if norm == "linf":
        return np.clip(vectors, -radius, radius)
    # In two steps, so that squares of large numbers do not overflow.
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), radius)
    scaled = vectors / largest
    sizes = np.linalg.norm(scaled, ord=NORMS[norm], axis=1, keepdims=True)
    return scaled * np.minimum(largest, radius / np.maximum(sizes, 1e-300))


def _whole(block: FloatArray, norm: str, radius: float) -> NDArray[np.int64]:
    """Clipped rows in whole units, towards 0, so that each is within the ball for certain."""
    units = np.trunc(clipped(block, norm, radius) / radius * (_UNITS * _MARGIN)).astype(np.int64)
    sizes = np.abs(units)
    within = {
        "l1": lambda: sizes.sum(axis=1) <= _UNITS,
        "l2": lambda: (sizes**2).sum(axis=1) <= _UNITS**2,
        "linf": lambda: sizes.max(axis=1) <= _UNITS,
    }[norm]()
    if not np.all(within):
        raise ParameterError("values", "rows beyond the ball", "rows that can be clipped")
    return units


def _cheaper(
    privacy: PrivacyRequest, sensitivity1: int, sensitivity2: float, law: str
) -> tuple[SumNoise, str]:
    """The noise of the smaller deviation, or of the law asked for."""
    if law not in ("auto", "laplace", "gaussian"):
        raise ParameterError("mechanism", law, "auto, laplace or gaussian in the central model")
    if law == "gaussian" and privacy.delta is None:
        raise ParameterError("delta", None, "a number in (0, 1) for Gaussian noise")
    options = []
    if law != "gaussian":
        options.append(laplace_noise(privacy.epsilon, sensitivity1))
    if law != "laplace" and privacy.delta is not None:
        options.append(gaussian_noise(privacy.epsilon, privacy.delta, sensitivity2 * _ABOVE))
    noise = min(options, key=lambda option: option.deviation)
    return noise, f"{law} was asked for" if law != "auto" else _only_or_less(privacy, noise)


def _only_or_less(privacy: PrivacyRequest, noise: SumNoise) -> str:
    other = "Gaussian" if noise.law == "laplace" else "Laplace"
    return "no δ was given" if privacy.delta is None else f"less noise than {other} at this ε and δ"


def _central_cost(privacy: PrivacyRequest, noise: SumNoise, reason: str, what: str) -> Cost:
    pure = noise.law == "laplace"
    assert privacy.relation is not None
    count = (
        "the number of clients is private too and only estimated"
        if privacy.relation == "add-remove"
        else "the number of clients is public"
    )
    return Cost(
        noise.epsilon,
        noise.delta,
        "pure, exact" if pure else "(ε, δ) of the Gaussian mechanism, an upper bound",
        privacy.relation,
        "central",
        f"{'discrete Laplace' if pure else 'rounded Gaussian'} noise on {what}",
        reason,
        assumptions=(_SEEN, count),
    )
