"""Neighbour bounds of participation: a client's presence against its absence, by the draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnout.accounting.divergence.blocks import Block, NeighbourBound, PairBlock, Run
from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.dominating_pairs import DominatingPair
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.laws.check_ins.block import AllocationBlock
from turnout.core.errors import UnsupportedError
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    Released,
    Staggered,
)

_MOST_SUBSETS = 10**7  # composing the bounds of more takes long, and no run has as many


def blocks_of(part: Released, upper: DominatingPair, lower: DominatingPair) -> NeighbourBound:
    """A client's presence against its absence in the steps that one draw decided.

    ``upper`` is what one step shows at the largest sensitivity, ``lower`` what is really attained.
    """
    draw, full, rest = part
    bound = NEIGHBOUR_BOUNDS[draw]
    above = bound.run(draw, upper, full, rest, Side.UPPER)
    below = bound.run(draw, lower, full, rest, Side.LOWER)
    return NeighbourBound(above, below, bound.method, bound.tight)


def _every_step(draw: Always, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return repeated(worst, full)


def _coins(draw: Bernoulli, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    return [(PairBlock(worst.pair, draw.rate, worst.infinity_mass), full)] if draw.rate > 0 else []


def _one_of(draw: OneOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    # In a begun window the client has come so far with probability p₀·rest/window, then uniformly.
    begun = (rest, draw.probability * rest / draw.steps, 1 if rest else 0)
    return _windows(worst, (draw.steps, draw.probability, full), begun)


def _kept(draw: Kept, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    window, probability = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    # Of a begun epoch the client has taken part in at most the whole and at least nothing.
    begun = epochs + (side is Side.UPPER and epochs > 0 and left > 0)
    run: list[tuple[Block, int]] = []
    for times, count in ((draw.epochs, full), (begun, 1)):
        if probability > 0 and times and count:
            run += _windows(_summed(worst, times), (window, probability, count))
    first = (left, probability * left / window, 0 if epochs else 1)
    return [*run, *_windows(worst, first)]


def _summed(worst: DominatingPair, times: int) -> DominatingPair:
    """The pair of a slot that is held ``times`` times: Gaussian ratios multiply to a Gaussian's."""
    if times == 1:
        return worst
    if not isinstance(worst.pair, GaussianPair):
        raise UnsupportedError("a slot kept over several epochs is priced for Gaussian noise only")
    return DominatingPair(GaussianPair(worst.pair.noise_multiplier / times**0.5))


def _staggered(draw: Staggered, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    whole, begun = min(draw.steps, draw.window), min(rest, draw.window)
    counts = ((whole, full), (begun, 1 if begun else 0))
    return _windows(worst, *((n, n / draw.window, count) for n, count in counts))


def _k_of(draw: KOf, worst: DominatingPair, full: int, rest: int, side: Side) -> Run:
    from turnout.accounting.laws.k_subset import SubsetBlock  # a room that few schemes need

    count = full + (side is Side.UPPER and rest > 0)
    if count > _MOST_SUBSETS:
        raise UnsupportedError(
            f"more than {_MOST_SUBSETS:,} windows of k-subsets have no price here"
        )
    block = SubsetBlock(worst.pair, draw.steps, draw.picks, 1.0, worst.infinity_mass)
    return [(block, count)] if count else []


class _Analysis(NamedTuple):
    """The run of so many whole blocks and steps of one that was begun, and its analysis."""

    run: Callable[[Any, DominatingPair, int, int, Side], Run]
    method: str
    tight: bool = True


NEIGHBOUR_BOUNDS: DrawTable[_Analysis] = DrawTable(
    "an analysis",
    {
        Always: _Analysis(_every_step, "every step, no amplification, exact"),
        Bernoulli: _Analysis(_coins, "Poisson-subsampled steps, composed as PLD"),
        OneOf: _Analysis(_one_of, "exact law of random allocation, windows composed as PLD"),
        KOf: _Analysis(
            _k_of,
            "k-subset by one statistic of its steps, below the bound of k windows",
            tight=False,
        ),
        Kept: _Analysis(_kept, "exact law of random allocation, one slot kept in all epochs"),
        Staggered: _Analysis(_staggered, "exact law of random allocation in its own window"),
    },
)
"""Presence against absence of a client, by the draw.

`Cohort` fixes how many come, so that nobody is just absent, and of `OneOfOwn` each
client has a price of its own (`window_bound`).
"""


def window_bound(
    upper: DominatingPair, lower: DominatingPair, sizes: Sequence[int], probability: float
) -> NeighbourBound:
    """The bound of one client of an availability law, by its number of steps in each window."""
    counts = sorted(Counter(size for size in sizes if size > 0).items())
    above, below = (
        _windows(worst, *((size, probability, n) for size, n in counts)) for worst in (upper, lower)
    )
    return NeighbourBound(above, below, "exact law of random allocation in its own windows")


def _windows(worst: DominatingPair, *windows: tuple[int, float, int]) -> Run:
    """The blocks of windows, by their steps, the chance to come in one, and their number."""
    return [
        (AllocationBlock(worst.pair, steps, chance, worst.infinity_mass), count)
        for steps, chance, count in windows
        if chance > 0 and count
    ]


def repeated(worst: DominatingPair, times: int) -> Run:
    """The same step again and again; Gaussians add up to one."""
    if times and isinstance(worst.pair, GaussianPair):
        return [(PairBlock(GaussianPair(worst.pair.noise_multiplier / times**0.5)), 1)]
    return [(PairBlock(worst.pair, 1.0, worst.infinity_mass), times)] if times else []
