"""Numbers in [−C, C] on a lattice, so that noise can be drawn in whole steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def pack_numbers(messages: NDArray[np.int64]) -> bytes:
    """Four bytes each, little-endian, two's complement."""
    return messages.astype("<i4").tobytes()


def unpack_numbers(data: bytes, n: int) -> NDArray[np.int64]:
    """The numbers that `pack_numbers` packed.

    Raises:
        ParameterError: a wrong length.
    """
    if len(data) != 4 * n:
        raise ParameterError("data", f"{len(data)} bytes", f"{4 * n} bytes")
    return np.frombuffer(data, dtype="<i4").astype(np.int64)


def within_32_bits(messages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Messages cut to 32 bits: a function of the message alone, so it costs no privacy."""
    return np.clip(messages, -(2**31), 2**31 - 1)
