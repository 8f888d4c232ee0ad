"""Private recoverability: one analyst gets every value back, everybody else ε.

Notation: k values, s heavy keys of probability e^ε/t and k − s light ones of 1/t,
t = s·e^ε + k − s.

The thesis' two conditions on keys (Theorem 7.5.1) are necessary and not sufficient: for k = 2
and ε = 0 the key law (0.6, 0.2, 0.2) meets both, and no mechanism with it is private. What is
sufficient is Lemma 7.5.1: message = value + key in a group of as many elements as keys.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness import Source
from turnout.refinement.designs import Direct, hadamard, projective, spread
from turnout.refinement.multilevel import MultiLevel

RecoveryFamily = Literal["minimal", "hadamard", "projective", "k-ary"]
_SERIES_BELOW = 0.5
_TERMS = 24


def heavy_optimum(size: int, epsilon: float) -> float:
    """l: the real number of heavy keys at which the key's entropy is least.

    Source: (7.48), Girgis 2023 [girgis2023thesis]. As printed, k(e^ε(ε−1)+1)/(e^ε−1)², it
    cancels near 0; there a series is summed.

    Args:
        size: k, at least 2.
        epsilon: at least 0.
    """
    checks.count(2, size=size)
    checks.non_negative(epsilon=epsilon)
    if epsilon < _SERIES_BELOW:
        # (ε e^ε − (e^ε − 1))/ε² and (e^ε − 1)/ε, by their series.
        above = math.fsum(
            (n - 1) * epsilon ** (n - 2) / math.factorial(n) for n in range(2, _TERMS)
        )
        below = math.fsum(epsilon ** (n - 1) / math.factorial(n) for n in range(1, _TERMS))
        return size * above / below**2
    decay = math.exp(-epsilon)
    return size * (epsilon - 1 + decay) * decay / math.expm1(-epsilon) ** 2


def heavy_count(size: int, epsilon: float) -> int:
    """s*: how many keys are heavy in the law with the least entropy.

    Source: Theorem 7.5.1, Girgis 2023 [girgis2023thesis]; 0 heavy keys, which it does not
    exclude, are the uniform law and never optimal.

    >>> [heavy_count(1000, epsilon) for epsilon in (0.01, 1, 3, 8)]
    [498, 339, 113, 2]
    """
    optimum = heavy_optimum(size, epsilon)
    near = {min(max(round_(optimum), 1), size - 1) for round_ in (math.floor, math.ceil)}
    return min(near, key=lambda heavy: key_entropy(size, epsilon, heavy))


def key_entropy(size: int, epsilon: float, heavy: int) -> float:
    """Entropy in bits of the key law with ``heavy`` of ``size`` keys heavy: (7.47)."""
    checks.count(size=size, heavy=heavy)
    checks.at_most("size", size, heavy=heavy)
    checks.non_negative(epsilon=epsilon)
    decay = math.exp(-epsilon)
    surprise = math.log1p(heavy - 1 + (size - heavy) * decay)  # −ln of a heavy key
    light_mass = (size - heavy) * decay / (heavy + (size - heavy) * decay)
    return (surprise + light_mass * epsilon) / math.log(2)


def least_key_bits(size: int, epsilon: float, samples: int = 1) -> float:
    """The least entropy of a key that hides ``samples`` values with ε and recovers them.

    Source: Theorems 7.5.1 and 7.6.1, Girgis 2023 [girgis2023thesis]: keys cannot be reused, so
    it is ``samples`` times what one value needs. A necessary amount; `recoverable` with
    family "minimal" needs no more.
    """
    checks.count(samples=samples)
    return samples * key_entropy(size, epsilon, heavy_count(size, epsilon))


def recoverable(size: int, epsilon: float, family: RecoveryFamily = "minimal") -> MultiLevel:
    """A mechanism whose one key gives every value back, while everybody else has ε.

    Args:
        size: how many values.
        epsilon: of the public messages.
        family: "minimal": the key of least entropy (Theorem 7.5.1), s* heavy elements of
            ℤ_size chosen so that the public can estimate. "hadamard" and "projective": better
            public estimates for a larger key. "k-ary": randomized response.
    """
    checks.positive(epsilon=epsilon)
    if family == "minimal":
        design = spread(size, heavy_count(size, epsilon))
    elif family == "hadamard":
        design = hadamard(size, epsilon)
    elif family == "projective":
        design = projective(size, epsilon)
    elif family == "k-ary":
        design = Direct(size)
    else:
        raise ParameterError("family", family, "'minimal', 'hadamard', 'projective' or 'k-ary'")
    return MultiLevel(design, (math.inf, epsilon))


def encode_sequence(
    levels: MultiLevel, values: ArrayLike, source: Source | None = None
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
    """Messages and keys of T values a client, every one with noise of its own.

    Source: §7.6, Girgis 2023 [girgis2023thesis]. ε holds for each single value (neighbours
    differ in one of them); all T values of a client together have T·ε. A key used for two
    values would show their difference without any noise, so no function takes a key to encode
    with.

    Args:
        levels: the mechanism.
        values: whole numbers, shape (n, T).
        source: the operating system's by default.

    Returns:
        messages of shape (n, T), keys of shape (d − 1, n, T). Value t of client i is number
        i·T + t for `MultiLevel.totals`.
    """
    held = np.asarray(values)
    if held.ndim != 2:
        raise ParameterError("values", held.shape, "shape (clients, values a client)")
    messages, keys = levels.encode(held.ravel(), source)
    return messages.reshape(held.shape), keys.reshape(len(keys), *held.shape)
