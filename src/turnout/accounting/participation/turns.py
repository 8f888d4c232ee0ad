"""The turns of a client by the draw: in how many releases it takes part, and how they may lie."""

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

_ROUNDING = 1e-14  # relative, of the logarithm of a factorial


@dataclass(frozen=True, slots=True)
class Drawn:
    """So many independent blocks in which a client takes part with the same chances.

    Attributes:
        count: blocks.
        chance: to take part in one.
        releases: in which it does then, at most.
        log_sets: ln of the number of equally likely sets of steps; None where ``releases`` is more
            than a client surely has.
        apart: whether two records can draw sets of steps that have none in common.
    """

    count: int
    chance: float = 1.0
    releases: int = 1
    log_sets: float | None = 0.0
    apart: bool = False


def turns_of(part: ReleasedSteps) -> list[Drawn]:
    """Of the steps that one draw decided, those of a client who takes part as often as may be."""
    draw, full, rest = part
    found = _TURNS[draw](draw, full, rest)
    return [drawn for drawn in found if drawn.count and drawn.chance > 0 and drawn.releases]


def in_windows(chance: float, *windows: tuple[int, int]) -> list[Drawn]:
    """One release in each of some windows, by their steps and their number."""
    return [_one_in(steps, chance, count) for steps, count in windows if steps]


def _one_in(steps: int, chance: float, count: int, releases: int = 1) -> Drawn:
    return Drawn(count, chance, releases, math.log(steps), steps > 1)


def _every_step(draw: Always, full: int, rest: int) -> list[Drawn]:
    return [Drawn(full)]


def _coins(draw: Bernoulli, full: int, rest: int) -> list[Drawn]:
    return [Drawn(full, draw.rate)]


def _cohorts(draw: Cohort, full: int, rest: int) -> list[Drawn]:
    return [Drawn(full, draw.size / draw.population)]


def _one_of(draw: OneOf, full: int, rest: int) -> list[Drawn]:
    begun = [_one_in(rest, draw.probability * rest / draw.steps, 1)] if rest else []
    return [_one_in(draw.steps, draw.probability, full), *begun]


def _k_of(draw: KOf, full: int, rest: int) -> list[Drawn]:
    t, k = draw.steps, draw.picks
    terms = [float(gammaln(n + 1.0)) for n in (t, k, t - k)]
    log_sets = terms[0] - terms[1] - terms[2] + _ROUNDING * sum(terms) if k < t else 0.0
    return [Drawn(full, 1.0, k, log_sets, 2 * k <= t), Drawn(1, 1.0, min(rest, k), None)]


def _kept(draw: Kept, full: int, rest: int) -> list[Drawn]:
    window, chance = draw.slot.steps, draw.slot.probability
    epochs, left = divmod(rest, window)
    whole = _one_in(window, chance, full, draw.epochs)
    if epochs:
        return [whole, Drawn(1, chance, epochs + (left > 0), None)]
    return [whole, *([_one_in(left, chance * left / window, 1)] if left else [])]


def _staggered(draw: Staggered, full: int, rest: int) -> list[Drawn]:
    # The client with the most steps of a begun block need not have the most of the others: no lower
    # end counts its turn there.
    most, begun = min(draw.steps, draw.window), min(rest, draw.window)
    last = [Drawn(1, begun / draw.window, 1, None, begun > 1)] if begun else []
    return [*([_one_in(most, most / draw.window, full)] if most else []), *last]


_TURNS: DrawTable[Callable[[Any, int, int], Sequence[Drawn]]] = DrawTable(
    "the number of turns",
    {
        Always: _every_step,
        Bernoulli: _coins,
        Cohort: _cohorts,
        OneOf: _one_of,
        KOf: _k_of,
        Kept: _kept,
        Staggered: _staggered,
    },
)
"""`OneOfOwn` has windows that differ by client (`in_windows`)."""
