"""Fast, repeatable draws for simulation, and random streams that are identified by name.

These draws protect no client, because anyone who knows the seed can compute every draw.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness.packed_coins import packed_from_words
from turnout.randomness.source import Source, check_range, check_subset


class SimulationRandomness(Source):
    """Source that draws from a NumPy generator. FOR SIMULATION ONLY.

    A seed determines all draws. `bernoulli` and `binomial` compare floats, so their probabilities
    have errors of about 2⁻⁵³. No real client's privacy may depend on these draws; ``secure`` is
    False, so that a service can refuse this source. Every draw advances the generator.
    """

    secure: ClassVar[bool] = False

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """``size`` independent integers, each uniform on {0, …, n − 1}.

        Raises:
            ParameterError: ``n`` is outside 1 to 2⁶², or ``size`` is below 0.
        """
        check_range(n, size)
        return self._generator.integers(n, size=size)

    def _words(self, size: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self._generator.integers(2**64, size=size, dtype=np.uint64)

    def below_each(self, limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Independent integers, the i-th uniform on {0, …, limits[i] − 1}, shape of ``limits``."""
        return self._generator.integers(limits)

    def bernoulli(self, p: float | Fraction, size: int) -> NDArray[np.bool_]:
        """Array of ``size`` independent truth values, each True with probability ``p``.

        Raises:
            ParameterError: ``p`` is outside [0, 1], or ``size`` is below 0.
        """
        checks.probability(p=p)
        checks.count(0, size=size)
        return self._generator.random(size) < float(p)

    def packed_bernoulli(self, p: float | Fraction, rows: int, columns: int) -> NDArray[np.uint64]:
        """Packed bits of ``rows × columns`` truth values, 64 in a word (see `Source`)."""
        return packed_from_words(self._words, p, rows, columns)

    def binomial(self, n: int, p: float) -> int:
        """Number of True values among ``n`` independent draws; the time does not depend on ``n``.

        Raises:
            ParameterError: ``n`` is below 0, or ``p`` is outside [0, 1].
        """
        checks.count(0, n=n)
        checks.probability(p=p)
        return int(self._generator.binomial(n, p))

    def subset(self, n: int, k: int) -> NDArray[np.int64]:
        """Uniform subset of ``k`` elements of {0, …, n − 1}, ascending, shape (k,).

        Raises:
            ParameterError: ``k`` is below 0 or above ``n``.
        """
        check_subset(n, k)
        if n == 0:
            return np.empty(0, dtype=np.int64)
        return np.sort(self._generator.choice(n, k, replace=False, shuffle=False))


class SimulationStreams:
    """Independent simulation streams, each a pure function of (seed, name).

    The name of a stream describes its purpose, for example ``("noise", step)``. So no position in a
    stream has to be stored: a resumed run uses the same names and gets the same draws, and further
    draws from one stream never change another stream.

    Guarantees:
        Equal seeds and names give equal draws. Different names give streams that are independent
        for every practical purpose (names are hashed with BLAKE2b to 256 bits).

    Raises:
        ParameterError: ``seed`` is not a whole number of at least 0.

    >>> streams = SimulationStreams(7)
    >>> bool(streams.generator("noise", 3).random() == streams.generator("noise", 3).random())
    True
    >>> bool(streams.generator("noise", 3).random() == streams.generator("noise", 4).random())
    False
    """

    def __init__(self, seed: int) -> None:
        checks.count(0, seed=seed)
        self.seed = int(seed)

    def generator(self, *name: str | int) -> np.random.Generator:
        """New NumPy generator at the start of the stream ``name``."""
        digest = hashlib.blake2b(_encoded((self.seed, *name)), digest_size=32).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))

    def source(self, *name: str | int) -> SimulationRandomness:
        """New `SimulationRandomness` at the start of the stream ``name``."""
        return SimulationRandomness(self.generator(*name))


def _encoded(parts: tuple[str | int, ...]) -> bytes:
    """Parts of a name as bytes with types and lengths, so that different names differ in bytes."""
    encoded = b""
    for part in parts:
        if isinstance(part, str):
            tag, text = b"s", part.encode()
        elif isinstance(part, Integral) and not isinstance(part, bool):
            tag, text = b"i", str(int(part)).encode()
        else:
            raise ParameterError("name", part, "strings and whole numbers")
        encoded += tag + len(text).to_bytes(8, "little") + text
    return encoded
