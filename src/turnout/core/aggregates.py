"""Sums of clients' updates; the coordinator keeps only these sums.

`UpdateSum` is a float64 sum with its count, `IntegerSum` an exact sum of whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes

Noise = Callable[[float, int], NDArray[Any]]
"""``noise(std, dimension)`` gives fresh, independent draws of N(0, std²), or of N(0, std²) rounded
to integers, shape ``(dimension,)``."""


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class UpdateSum:
    """Sum of clipped updates, and the number of updates: a commutative monoid.

    ``a + b`` is the sum over both groups and `zero` the empty group, so the sums
    of chunks, of workers and of single uploads can be added in any grouping. Sums are float64 for
    updates of every type. With float32 the rounding of a sum of 10,000 updates changes the sum by
    about 1e-5 of its norm; this error depends on which clients take part, and no sensitivity
    includes it. With float64 the error is 1e-14, at a cost of one vector per step. Two groupings
    agree up to rounding (exactly for updates on a lattice), and the same grouping gives the same
    bits.

    Attributes:
        total: float64 (int64 in an `IntegerSum`), shape ``(d,)``, the sum of the updates.
        count: number of updates in the sum.
        noised: number of these updates to which their clients already added noise.
        clipped: number of updates that exceeded the clip norm, if known. The number is a statistic
            of private data and must not be released.
    """

    dtype: ClassVar[type[np.number[Any]]] = np.float64

    total: NDArray[Any]
    count: int
    noised: int = 0
    clipped: int | None = None

    def __init__(
        self, total: ArrayLike, count: int, noised: int = 0, clipped: int | None = None
    ) -> None:
        given = np.asarray(total)
        if not np.can_cast(given.dtype, self.dtype, "same_kind"):
            raise ParameterError("total", given.dtype, f"an array of {self.dtype.__name__}")
        vector = given.astype(self.dtype, copy=False).view()
        vector.flags.writeable = False
        if vector.ndim != 1:
            raise ParameterError("total", vector.shape, "one vector of shape (dimension,)")
        checks.count(0, count=count, noised=noised)
        checks.at_most("count", count, noised=noised)
        object.__setattr__(self, "total", vector)
        object.__setattr__(self, "count", int(count))
        object.__setattr__(self, "noised", int(noised))
        object.__setattr__(self, "clipped", clipped)

    @classmethod
    def zero(cls, dimension: int) -> Self:
        """Empty sum, without any update."""
        return cls(np.zeros(dimension, cls.dtype), 0)

    @property
    def dimension(self) -> int:
        """Number of coordinates of an update."""
        return self.total.size

    def __add__(self, other: UpdateSum) -> Self:
        """Sum over two groups of clients, which must be disjoint."""
        if type(other) is not type(self):
            raise ParameterError("sum", type(other).__name__, f"the type {type(self).__name__}")
        if self.dimension != other.dimension:
            raise ParameterError(
                "dimension", other.dimension, f"{self.dimension}, as in the other sum"
            )
        known = self.clipped is not None and other.clipped is not None
        return type(self)(
            self.total + other.total,
            self.count + other.count,
            self.noised + other.noised,
            (self.clipped or 0) + (other.clipped or 0) if known else None,
        )

    def with_noise(self, std: float, noise: Noise) -> Self:
        """Sum as if each client in the sum had added independent N(0, std²) noise.

        Args:
            std: standard deviation of one client's noise in each coordinate.
            noise: source of the noise, called once for the whole group.

        Guarantees:
            Updates to which clients already added noise get no further noise. For the other k
            updates one draw of standard deviation std·√k is added. This draw has the distribution
            of the sum of k separate draws.
        """
        bare = self.count - self.noised
        if bare == 0:
            return self
        drawn = noise(std * float(np.sqrt(bare)), self.dimension)
        return type(self)(self.total + drawn, self.count, self.count)


class IntegerSum(UpdateSum):
    """Exact sum of int64 vectors of whole numbers, such as lattice updates or bits.

    A sum below 2⁶³ is exact in any grouping. Numbers that are not whole, in updates or in noise,
    raise a ParameterError.
    """

    __slots__ = ()
    dtype: ClassVar[type[np.number[Any]]] = np.int64
