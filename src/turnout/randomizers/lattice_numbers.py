"""Numbers in [−C, C] on a lattice, so that noise can be drawn in whole steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomness import Source

_GRID = 2**53


def on_lattice(values: ArrayLike, clip: float, steps: int, source: Source) -> NDArray[np.int64]:
    """Whole numbers from 0 to ``steps`` whose means are (value + C)·steps/2C.

    Values beyond ±C are clipped. Between two steps a coin decides, so rounding adds no bias; as
    the message is then one of two lattice points' messages, it is as private as theirs.

    Args:
        values: finite numbers, shape (n,).
        clip: C, above 0.
        steps: how many steps −C and C are apart.
        source: for the coins; nothing is drawn where all values lie on the lattice.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        raise ParameterError("values", numbers.shape, "finite numbers of shape (clients,)")
    scaled = (np.clip(numbers / clip, -1, 1) + 1) / 2 * steps
    lower = np.floor(scaled)
    rest = scaled - lower
    if rest.any():
        lower += source.below(_GRID, numbers.size) < rest * _GRID
    return lower.astype(np.int64)


class NoisyNumber(ABC):
    """A number in [−C, C] as whole steps with noise, cut to 32 bits.

    The cut is a function of the message alone, so it costs no privacy.
    """

    clip: float

    @property
    @abstractmethod
    def unit(self) -> float:
        """The value of a message's number, in the unit of ``clip``."""

    @property
    @abstractmethod
    def variance_bound(self) -> float:
        """Variance of `decode` at most."""

    @abstractmethod
    def noisy(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Noisy numbers in units from −C, of any size."""

    @property
    def message_bits(self) -> int:
        """Bits of a client's message."""
        return 32

    def mse_bound(self, clients: int) -> float:
        """Largest expected squared error of the mean of `decode` over n clients."""
        checks.count(clients=clients)
        return self.variance_bound / clients

    def encode(self, values: ArrayLike, source: Source) -> NDArray[np.int64]:
        """Noisy numbers of finite ``values``, shape (n,), in units from −C, cut to 32 bits."""
        return np.clip(self.noisy(values, source), -(2**31), 2**31 - 1)

    def decode(self, messages: ArrayLike) -> NDArray[np.float64]:
        """Unbiased estimates of the (clipped) numbers, shape (n,)."""
        return np.asarray(messages) * self.unit - self.clip

    def pack(self, messages: NDArray[np.int64]) -> bytes:
        """Four bytes each, little-endian, two's complement."""
        return messages.astype("<i4").tobytes()

    def unpack(self, data: bytes, n: int) -> NDArray[np.int64]:
        """The n messages in ``data``.

        Raises:
            ParameterError: this is not what n clients sent.
        """
        if len(data) != 4 * n:
            raise ParameterError("data", f"{len(data)} bytes", f"{4 * n} bytes")
        return np.frombuffer(data, dtype="<i4").astype(np.int64)
