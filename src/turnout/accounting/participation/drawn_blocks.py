"""Number of releases in which a client takes part, for each independent block of a draw.

`drawn_blocks_of` returns the `DrawnBlocks` of the steps that one draw covers. `in_windows` returns
the `DrawnBlocks` of one client of an availability trace. From the `DrawnBlocks`, `decomposition`
and `pricing` make bounds for an adversary that observes participation (`divergence.unhidden`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import gammaln

from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    ReleasedSteps,
    Staggered,
)

_ROUNDING = 1e-14  # bound on the relative error of the logarithm of a factorial


@dataclass(frozen=True, slots=True)
class DrawnBlocks:
    """Independent blocks of steps in which a client takes part with the same probabilities.

    Attributes:
        count: number of blocks.
        chance: probability that the client takes part in a block.
        releases: largest number of releases of one block in which the client takes part.
        log_sets: ln of the number of equally likely sets of steps that the client can draw; None if
            the client may take part in fewer than ``releases`` steps.
        apart: whether the steps that the client draws with one record can be made disjoint from the
            steps that it draws with another record.
    """

    count: int
    chance: float = 1.0
    releases: int = 1
    log_sets: float | None = 0.0
    apart: bool = False


def drawn_blocks_of(part: ReleasedSteps) -> list[DrawnBlocks]:
    """Blocks of the client that takes part most often in the steps covered by one draw.

    Args:
        part: the draw, its number of whole windows (or steps), and the number of released steps of
            a window that has begun but not ended.

    Raises:
        UnsupportedError: the number of participations is not known for this draw.
    """
    draw, full, rest = part
    blocks = _DRAWN_BLOCKS[draw](draw, full, rest)
    return [block for block in blocks if block.count and block.chance > 0 and block.releases]


def in_windows(chance: float, *windows: tuple[int, int]) -> list[DrawnBlocks]:
    """Blocks with one release per window, from pairs (steps of a window, number of windows).

    Args:
        chance: probability that the client takes part in a window.
        windows: pairs (steps of a window, number of such windows); windows of 0 steps are left out.
    """
    return [_one_in(steps, chance, count) for steps, count in windows if steps]


def _one_in(steps: int, chance: float, count: int, releases: int = 1) -> DrawnBlocks:
    return DrawnBlocks(count, chance, releases, math.log(steps), steps > 1)


def _every_step(draw: Always, full: int, rest: int) -> list[DrawnBlocks]:
    return [DrawnBlocks(full)]


def _independent(draw: Bernoulli, full: int, rest: int) -> list[DrawnBlocks]:
    return [DrawnBlocks(full, draw.rate)]


def _cohorts(draw: Cohort, full: int, rest: int) -> list[DrawnBlocks]:
    return [DrawnBlocks(full, draw.size / draw.population)]


def _one_of(draw: OneOf, full: int, rest: int) -> list[DrawnBlocks]:
    begun = [_one_in(rest, draw.probability * rest / draw.steps, 1)] if rest else []
    return [_one_in(draw.steps, draw.probability, full), *begun]


def _k_of(draw: KOf, full: int, rest: int) -> list[DrawnBlocks]:
    t, k = draw.steps, draw.picks
    terms = [float(gammaln(n + 1.0)) for n in (t, k, t - k)]
    log_sets = terms[0] - terms[1] - terms[2] + _ROUNDING * sum(terms) if k < t else 0.0
    return [
        DrawnBlocks(full, 1.0, k, log_sets, 2 * k <= t),
        DrawnBlocks(1, 1.0, min(rest, k), None),
    ]


def _kept(draw: Kept, full: int, rest: int) -> list[DrawnBlocks]:
    window, chance = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    whole = _one_in(window, chance, full, draw.epochs)
    if epochs:
        return [whole, DrawnBlocks(1, chance, epochs + (left > 0), None)]
    return [whole, *([_one_in(left, chance * left / window, 1)] if left else [])]


def _staggered(draw: Staggered, full: int, rest: int) -> list[DrawnBlocks]:
    # The client with the most steps of a begun block need not have the most of the whole ones, so
    # no lower bound counts its participation there.
    most, begun = min(draw.steps, draw.window), min(rest, draw.window)
    last = [DrawnBlocks(1, begun / draw.window, 1, None, begun > 1)] if begun else []
    return [*([_one_in(most, most / draw.window, full)] if most else []), *last]


_DRAWN_BLOCKS: DrawTable[Callable[[Any, int, int], Sequence[DrawnBlocks]]] = DrawTable(
    "the number of participations",
    {
        Always: _every_step,
        Bernoulli: _independent,
        Cohort: _cohorts,
        OneOf: _one_of,
        KOf: _k_of,
        Kept: _kept,
        Staggered: _staggered,
    },
)
"""Functions that make the blocks of each kind of draw; for `OneOfOwn` see `in_windows`."""
