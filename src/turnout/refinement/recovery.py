"""Private recoverability: one analyst gets every value back, everybody else ε.

Notation: k values, s heavy keys of probability e^ε/t and k − s light ones of 1/t,
t = s·e^ε + k − s.

The thesis' two conditions on keys (Theorem 7.5.1) are necessary and not sufficient: for k = 2
and ε = 0 the key law (0.6, 0.2, 0.2) meets both, and no mechanism with it is private. What is
sufficient is Lemma 7.5.1: message = value + key in a group of as many elements as keys.
"""

from __future__ import annotations

import math

from turnout.core import checks

_SERIES_BELOW = 0.5
_TERMS = 24


def heavy_optimum(size: int, epsilon: float) -> float:
    """l: the real number of heavy keys at which the key's entropy is least.

    Source: (7.48), Girgis 2023 [girgis2023thesis]. As printed, k(e^ε(ε−1)+1)/(e^ε−1)², it
    cancels near 0; there a series is summed.
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
    it is ``samples`` times what one value needs. A necessary amount; `multi_level` with the
    mechanism "minimal" needs no more.
    """
    checks.count(samples=samples)
    return samples * key_entropy(size, epsilon, heavy_count(size, epsilon))
