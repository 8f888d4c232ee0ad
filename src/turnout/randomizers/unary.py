"""Unary encodings: a bitmap with one bit set, every bit randomized on its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal

from numpy.typing import ArrayLike

from turnout.core.errors import ParameterError
from turnout.randomizers.bitmaps import BitmapRandomizer, set_bits
from turnout.randomizers.interface import Rows
from turnout.randomizers.levels import exponential_below, on_grid_above, root_below
from turnout.randomizers.registry import mechanism
from turnout.randomness import Source


@mechanism("oue", rank=3)
@dataclass(frozen=True)
class UnaryEncoding(BitmapRandomizer):
    """The own bit is 1 with probability p, every other bit with probability q.

    Two items change two bits, so the ratio is p(1 − q)/(q(1 − p)).

    Source: "symmetric", p = 1 − q = e^{ε/2}/(e^{ε/2} + 1): Erlingsson, Pihur, Korolova, RAPPOR,
        CCS 2014 (the permanent response without Bloom filter). "optimised", p = 1/2 and
        q = 1/(e^ε + 1): Wang, Blocki, Li, Jha, USENIX Security 2017 (OUE). The thesis' Table 7.1
        prints e^ε/(e^ε + 1) for RAPPOR's bits, which is 2ε-private.

    Attributes:
        form: which p and q.

    >>> UnaryEncoding(epsilon=1.0, items=10).mse_bound(clients=1) < 37.9
    True
    """

    form: Literal["optimised", "symmetric"] = field(default="optimised", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in ("optimised", "symmetric"):
            raise ParameterError("form", self.form, "'optimised' or 'symmetric'")

    @property
    def other(self) -> Fraction:
        """Probability that a message supports another item, q."""
        return self._noise

    @cached_property
    def _noise(self) -> Fraction:
        e = exponential_below(self.epsilon)
        return on_grid_above(1 / (1 + (root_below(e) if self.form == "symmetric" else e)))

    @property
    def own(self) -> Fraction:
        """Probability that a message supports the client's item, p."""
        return 1 - self.other if self.form == "symmetric" else Fraction(1, 2)

    @property
    def ratio(self) -> Fraction:
        """The largest ratio of a message's probabilities under two items, exactly."""
        return self.own / (1 - self.own) * (1 - self.other) / self.other

    def probabilities(self, item: int) -> list[Fraction]:
        """Probability of each of the 2^k bitmaps under an item; for small cases."""
        law = [Fraction(1)]
        for column in range(self.items):
            one = self.own if column == item else self.other
            law = [p * (1 - one) for p in law] + [p * one for p in law]
        return law

    def encode(self, values: ArrayLike, source: Source) -> Rows:
        """One bitmap for each value, uint64 of shape (n, ⌈k / 64⌉)."""
        array = self.checked(values)
        rows = source.packed_bernoulli(self.other, array.size, self.items)
        set_bits(rows, array, source.bernoulli(self.own, array.size))
        return rows


mechanism("rappor", rank=2)(partial(UnaryEncoding, form="symmetric"))
