"""Exact distribution of a small sampler, as fractions, by enumeration of its draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from math import comb
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.randomness import Source

_MAX_PATHS = 1_000_000
_MAX_DRAWS = 1000  # of one run; a sampler with rejection may go on forever
_NOT_REPEATABLE = (
    "the sampler makes other draws when its draws are replayed: "
    "expected a function of nothing but the draws"
)


def enumerate_outputs(
    sampler: Callable[[Source], object], max_paths: int = _MAX_PATHS
) -> dict[Hashable, Fraction]:
    """Exact probabilities of all outcomes of ``sampler``.

    The sampler runs once for each sequence of draws that its source can return. A Bernoulli draw
    has exactly the probability ``Fraction(p)``.

    Args:
        sampler: function of a `Source`, whose result depends on nothing but the draws. Arrays and
            lists in the result become tuples, so that outcomes can be compared.
        max_paths: largest permitted number of sequences of draws.

    Returns:
        Probabilities by outcome; they sum to 1 exactly.

    Raises:
        UnsupportedError: more than ``max_paths`` sequences (a sampler with rejection has
            infinitely many), or an outcome that cannot be compared.
        NumericalError: the sampler does not depend on the draws alone, since it makes other draws
            when the draws are replayed.

    >>> enumerate_outputs(lambda source: int(source.below(3, 1)[0]) == 0)
    {True: Fraction(1, 3), False: Fraction(2, 3)}
    """
    distribution: defaultdict[Hashable, Fraction] = defaultdict(Fraction)
    prefix: list[_Choice] | None = []
    paths = 0
    while prefix is not None:
        paths += 1
        if paths > max_paths:
            raise UnsupportedError(
                f"the sampler has more than {max_paths} sequences of draws: "
                "expected a smaller sampler, or a larger max_paths"
            )
        source = _EnumeratingSource(prefix, max_paths)
        outcome = _hashable(sampler(source))
        distribution[outcome] += source.probability
        prefix = _next_prefix(source.path)
    if sum(distribution.values()) != 1:
        raise NumericalError(_NOT_REPEATABLE)
    return dict(distribution)


class _Choice(NamedTuple):
    """A draw of the sampler: index of the branch that it takes, and number of its branches."""

    taken: int
    branches: int


def _next_prefix(path: Sequence[_Choice]) -> list[_Choice] | None:
    """Next sequence of choices in depth-first order; None after the last one."""
    prefix = list(path)
    while prefix:
        last = prefix.pop()
        if last.taken + 1 < last.branches:
            return [*prefix, _Choice(last.taken + 1, last.branches)]
    return None


class _EnumeratingSource(Source):
    """Source that replays a prefix of choices, then takes the first branch of each draw."""

    secure: ClassVar[bool] = False

    def __init__(self, prefix: Sequence[_Choice], max_branches: int) -> None:
        self._prefix = prefix
        self._max_branches = max_branches
        self.path: list[_Choice] = []
        self.probability = Fraction(1)

    def _branch(self, branches: int) -> int:
        """Number of the branch that this run takes at its next draw."""
        if branches > self._max_branches:
            raise UnsupportedError(f"a draw among {branches} values is too large to enumerate")
        position = len(self.path)
        if position >= _MAX_DRAWS:
            raise UnsupportedError(f"a run of the sampler draws more than {_MAX_DRAWS} times")
        choice = self._prefix[position] if position < len(self._prefix) else _Choice(0, branches)
        if choice.branches != branches:
            raise NumericalError(_NOT_REPEATABLE)
        self.path.append(choice)
        return choice.taken

    def below(self, n: int, size: int) -> NDArray[np.int64]:
        """Uniform draws, each with ``n`` branches."""
        checks.count(n=n)
        checks.count(0, size=size)
        self.probability /= n**size
        return np.array([self._branch(n) for _ in range(size)], dtype=np.int64)

    def bernoulli(self, p: float | Fraction, size: int) -> NDArray[np.bool_]:
        """Bernoulli draws, each with its branches of positive probability."""
        checks.probability(p=p)
        coins = (self._weighted((1 - Fraction(p), Fraction(p))) == 1 for _ in range(size))
        return np.fromiter(coins, np.bool_, size)

    def binomial(self, n: int, p: float) -> int:
        """Binomial draw, with its branches of positive probability."""
        checks.probability(p=p)
        q = Fraction(p)
        return self._weighted([comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)])

    def _weighted(self, probabilities: Sequence[Fraction]) -> int:
        """Draw of a value with the given probabilities."""
        possible = [value for value, probability in enumerate(probabilities) if probability]
        value = possible[self._branch(len(possible))]
        self.probability *= probabilities[value]
        return value


def _hashable(outcome: object) -> Hashable:
    """Outcome with arrays and sequences as nested tuples of Python scalars."""
    if isinstance(outcome, np.ndarray | np.generic):
        outcome = outcome.tolist()
    if isinstance(outcome, list | tuple):
        return tuple(_hashable(item) for item in outcome)
    if not isinstance(outcome, Hashable):
        raise UnsupportedError(f"an outcome of type {type(outcome).__name__} cannot be compared")
    return outcome
