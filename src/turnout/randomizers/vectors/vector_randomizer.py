"""The interface of randomizers of vectors: blocks of clients in, unbiased sums out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core.errors import ParameterError
from turnout.randomizers.packing import (
    bits_for,
    histogram_bits,
    pack_fields,
    pack_histogram,
    unpack_fields,
    unpack_histogram,
)
from turnout.randomness import Source
from turnout.schemes import PureRandomizer

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_ROUNDING = 1e-9  # how far above the radius a norm may lie and count as rounding


class VectorRandomizer(ABC):
    """A client's vector in, one message out; the server sums what messages stand for.

    Guarantees:
        `encode` is `epsilon0`-private for one client's whole message, on its own (local model,
        replacement), whatever the vector and whatever floats do before bits are drawn.
        The expectation of `total`, put through `mean`, is the mean of the vectors, but for the
        stated `bias`.

    Attributes:
        dimension: coordinates of a vector.
        radius: largest norm of a vector, in the randomizer's norm.
        norm: p of that norm.
        dtype: of the vectors that `encode` asks for; floats never carry privacy.
    """

    dimension: int
    radius: float
    norm: ClassVar[float]
    dtype: ClassVar[type[np.floating]] = np.float64

    @property
    @abstractmethod
    def epsilon0(self) -> float:
        """Exact ε₀ of one client's whole message."""

    @property
    def law(self) -> PureRandomizer:
        """The law that prices a whole message: ε₀ alone where clients draw from private choices."""
        return PureRandomizer(self.epsilon0)

    @property
    def laws(self) -> Sequence[tuple[PureRandomizer, int]]:
        """The laws of messages that have a shuffler of their own each, and the number of each."""
        return [(self.law, 1)]

    @property
    @abstractmethod
    def radices(self) -> tuple[int, ...]:
        """The number of values of each number of a message."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each number of a message as serialised."""
        return tuple(bits_for(radix) for radix in self.radices)

    @property
    def message_bits(self) -> int:
        """Bits of one client's message as serialised; public randomness is not among them."""
        return sum(self.widths)

    @property
    def total_size(self) -> int:
        """Numbers in `total`."""
        return self.dimension

    @property
    def public_randomness(self) -> str:
        """The public randomness that clients and server share beforehand, in words."""
        return "none"

    @abstractmethod
    def encode(self, values: ArrayLike, source: Source, first: int = 0) -> NDArray:
        """Messages of a block of clients, shape (n, numbers of a message).

        Args:
            values: shape (n, dimension), each of norm at most ``radius``.
            source: of everything that is private.
            first: number of the block's first client; matters to public randomness only.
        """

    def encode_updates(self, updates: NDArray[np.floating], source: Source) -> NDArray:
        """Messages of updates of any length, shape (n, dimension): `encode` of `constrained`."""
        return self.encode(self.constrained(updates), source)

    def constrained(self, updates: NDArray[np.floating]) -> NDArray[np.floating]:
        """Updates (n, dimension) within the radius, of `dtype`; zero where one is not finite.

        ℓ∞ is clipped coordinate by coordinate; other norms scale the whole vector down.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.asarray(updates, dtype=self.dtype)
            if self.norm == np.inf:
                return np.clip(finite_rows(rows), -self.radius, self.radius)
            squared = self.norm == 2
            sizes = np.einsum("ij,ij->i", rows, rows) if squared else np.abs(rows).sum(axis=1)
        norms = (np.sqrt(sizes) if squared else sizes).astype(np.float64)
        finite = np.isfinite(norms)
        if not finite.all():
            rows, norms = np.where(finite[:, None], rows, 0), np.where(finite, norms, 1.0)
        factors = np.minimum(1.0, self.radius / np.maximum(norms, 1e-300))
        return rows * factors.astype(rows.dtype)[:, None]

    @abstractmethod
    def total(self, messages: NDArray, first: int = 0) -> FloatArray:
        """The sum of what neighbouring clients' messages stand for; sums of blocks add up."""

    def mean(self, total: FloatArray, clients: int) -> FloatArray:
        """The estimated mean, shape (dimension,), from the sum over all clients."""
        return total / clients

    @abstractmethod
    def squared_error(self, values: ArrayLike) -> FloatArray:
        """E‖message's vector − its mean‖₂² of each client, exact; shape (n,)."""

    @property
    @abstractmethod
    def worst_squared_error(self) -> float:
        """The largest E‖message's vector − its mean‖₂² over all vectors allowed."""

    def bias(self, values: ArrayLike) -> FloatArray:
        """The bias of the estimated mean, shape (dimension,)."""
        return np.zeros(self.dimension)

    @property
    def worst_squared_bias(self) -> float:
        """A bound on E‖bias‖₂² over all vectors allowed, which more clients do not lower.

        The mean is over public randomness, on which the vectors do not depend.
        """
        return 0.0

    def mse_bound(self, clients: int) -> float:
        """Largest E‖estimate − mean‖₂² over what so many clients hold, bias included."""
        return self.worst_squared_error / clients + self.worst_squared_bias

    def mean_squared_error(self, values: ArrayLike) -> float:
        """Exact E‖estimate − mean‖₂² over these clients, given the public randomness."""
        errors = self.squared_error(values)
        return float(errors.sum() / len(errors) ** 2 + np.sum(self.bias(values) ** 2))

    def pack(self, messages: NDArray) -> bytes:
        """Messages as bytes, `message_bits` each, no gaps; shape (n, …) in."""
        return pack_fields(messages, self.widths)

    def unpack(self, data: bytes, clients: int) -> NDArray:
        """The messages that `pack` packed.

        Raises:
            ParameterError: not that many messages, or a number that none can have.
        """
        return unpack_fields(data, clients, self.radices)

    def histogram_bits(self, count: int) -> int:
        """Bits of so many messages of one client as serialised, whose order nobody needs."""
        return self.message_bits if count == 1 else histogram_bits(math.prod(self.radices), count)

    def pack_histogram(self, messages: NDArray) -> bytes:
        """One client's messages as bytes, without their order; shape (n, …) in."""
        words = []
        for row in np.asarray(messages).reshape(len(messages), -1).tolist():
            word = 0
            for number, radix in zip(row, self.radices, strict=True):
                if not 0 <= number < radix:
                    raise ParameterError("messages", number, f"numbers below {radix}")
                word = word * radix + number
            words.append(word)
        return pack_histogram(words, math.prod(self.radices))

    def unpack_histogram(self, data: bytes, count: int) -> NDArray:
        """The messages that `pack_histogram` packed, ordered; shape (count, numbers of a message).

        Raises:
            ParameterError: no histogram of so many messages.
        """
        rows = []
        for word in unpack_histogram(data, math.prod(self.radices), count):
            row: list[int] = []
            for radix in reversed(self.radices):
                word, number = divmod(word, radix)  # noqa: PLW2901
                row.append(number)
            rows.append(row[::-1])
        return np.array(rows, dtype=np.int64)

    def single_words(self, messages: NDArray) -> IntArray:
        """Messages of one number each, shape (n,).

        Raises:
            ParameterError: a number that no message has.
        """
        words = np.asarray(messages, dtype=np.int64).reshape(-1)
        if np.any(words < 0) or np.any(words >= self.radices[0]):
            raise ParameterError("messages", "out of range", f"numbers below {self.radices[0]}")
        return words

    def require_shape(self, values: NDArray[np.floating]) -> None:
        """Nothing where these are vectors of the dimension.

        Raises:
            ParameterError: any other shape.
        """
        if values.ndim != 2 or values.shape[1] != self.dimension:
            raise ParameterError("values", values.shape, f"shape (clients, {self.dimension})")

    def checked(self, values: ArrayLike) -> FloatArray:
        """The vectors as floats, scaled to norm at most 1.

        Raises:
            ParameterError: a wrong shape, a number that is none, or a norm above the radius.
        """
        vectors = np.asarray(values, dtype=np.float64)
        self.require_shape(vectors)
        sizes = np.linalg.norm(vectors, ord=self.norm, axis=1) / self.radius
        if not np.all(sizes <= 1 + _ROUNDING):
            largest = float(np.max(sizes)) * self.radius
            raise ParameterError("values", largest, f"norms of at most {self.radius:g}")
        return vectors / (self.radius * np.maximum(sizes, 1.0))[:, None]


def finite_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows, shape (n, d), with zeros for each that has a number that is none or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(rows.sum(axis=1, dtype=np.float64))
    return rows if finite.all() else np.where(finite[:, None], rows, 0)
