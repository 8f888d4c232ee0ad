"""The choice of several messages for a mean, made from public numbers before data are seen.

Each shape's error is predicted at the level at which its shuffled messages cost about (ε, δ); the
shape of least error is priced by what is proved of it afterwards (`shuffled_means`), so nothing
about privacy rests on what is approximate here.

Notation: n clients, L messages each, e = e^{ε_j} of message j. Shuffled messages of many clients
are nearly a Gaussian mechanism of

    μ² = Σ_j (e − 1)²/(e·n)            a bit of a coordinate that is known
    μ² = Σ_j 2(e − 1)²/((e + 1)·n)     a uniform coordinate and its bit

at the worst messages of all others: the means of what is shuffled differ by so many deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from turnout.accounting.calibration import log_gaussian_mu
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.private.shuffled_means import (
    ShuffledMean,
    l2_of_level,
    linf_of_level,
    shuffled_randomizer,
)
from turnout.randomizers.vectors import KashinFrame, L2Randomizer, VectorRandomizer
from turnout.schemes import KaryResponse

_MOST_LEVELS = 8
_REDUNDANCY = 4.0
_NEAR = 1.05  # errors this near to the least count as no worse, so that fewer bits decide
_MOST_WORK = 2**25  # clients times coefficients for which Kashin's representation takes minutes
_HALVINGS = 24
_TOWARDS_LESS = 0.8  # of a predicted level, so that most often the first price is within ε


@dataclass(frozen=True)
class _Shape:
    """A family of randomizers, by level, and the level and error that are predicted."""

    make: Callable[[float], VectorRandomizer]
    level: float
    error: float
    bits: int


def predicted_error(randomizer: VectorRandomizer, clients: int) -> float:
    """Largest E‖estimate − mean‖₂² over what clients hold, with what a rotation's clip takes."""
    clipped = 0.0
    if isinstance(randomizer, L2Randomizer) and not isinstance(randomizer.rotation, KashinFrame):
        clipped = randomizer.clipping_error
    return randomizer.worst_squared_error / clients + clipped


@lru_cache(maxsize=64)  # of public numbers alone: a second estimate need not choose anew
def several_messages(
    norm: str,
    dimension: int,
    radius: float,
    clients: int,
    target: tuple[float, float],
    *,
    bits: int | None = None,
    quick: bool = True,
) -> ShuffledMean:
    """The multi-message randomizer of about the least predicted error, priced.

    Source: Algorithms 3.5.1 and 3.6.1 (girgis2023thesis), their shapes chosen numerically.

    Args:
        norm: "l1", "l2" or "linf", which bounds the vectors; an ℓ1 ball lies in the ℓ2 ball.
        dimension: d.
        radius: r.
        clients: n, all of whom follow the protocol.
        target: (ε, δ) of all shuffled messages together.
        bits: most bits of all of a client's messages; None: any number.
        quick: whether representations that take long to find are left out.

    Raises:
        ParameterError: no two messages are that short.
    """
    deviations = math.exp(log_gaussian_mu(*target))
    shapes = [
        _predicted(make, clients, deviations)
        for make in _makers(norm, dimension, radius, clients if quick else 0)
        if bits is None or make(1.0).message_bits <= bits
    ]
    if not shapes:
        raise ParameterError("bits", bits, "room for two messages of a bit each")
    least = min(shape.error for shape in shapes)
    near = [shape for shape in shapes if shape.error <= _NEAR * least]
    best = min(near, key=lambda shape: (shape.bits, shape.error))
    return shuffled_randomizer(best.make, clients, *target, _TOWARDS_LESS * best.level)


def _makers(
    norm: str, dimension: int, radius: float, clients: int
) -> Iterator[Callable[[float], VectorRandomizer]]:
    """Families of at least two messages a client."""
    if norm == "linf" or dimension == 1:
        for samples in _counts(dimension):
            for levels in range(1 if samples > 1 else 2, _MOST_LEVELS + 1):
                yield linf_of_level(dimension, samples, levels, radius)
        return
    for samples in _counts(dimension)[1:]:
        yield l2_of_level(dimension, samples, 1.0, radius)
    if clients * _REDUNDANCY * dimension <= _MOST_WORK:
        for samples in _counts(math.ceil(_REDUNDANCY * dimension))[1:]:
            yield l2_of_level(dimension, samples, _REDUNDANCY, radius)


def _counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … and the largest."""
    steps = {size for power in range(most.bit_length()) for size in (1 << power, 3 << power)}
    return sorted({size for size in steps if size < most} | {most})


def _predicted(
    make: Callable[[float], VectorRandomizer], clients: int, deviations: float
) -> _Shape:
    """The level at which messages are about that many deviations apart, by bisection of ln ε₀."""

    def within(level: float) -> bool:
        try:
            return _apart(make(level), clients) <= deviations
        except (ParameterError, UnsupportedError):
            return False

    low, high = math.log(1e-6), math.log(1e5)
    ends = bisected(lambda log_level: within(math.exp(log_level)), high, low, halvings=_HALVINGS)
    level = math.exp(ends.holding)
    found = make(level)
    return _Shape(make, level, predicted_error(found, clients), found.message_bits)


def _apart(randomizer: VectorRandomizer, clients: int) -> float:
    """μ of a client's shuffled messages, about."""
    square = 0.0
    for law, count in randomizer.laws:
        e = math.exp(law.epsilon0)
        known = isinstance(law, KaryResponse)
        square += count * (e - 1) ** 2 * (1 / e if known else 2 / (e + 1)) / clients
    return math.sqrt(square)
