"""Random draws of the steps in which clients take part, and expected values of a run.

`draw` and `draw_run` draw the steps of one client or of millions of clients; this module has one
sampler for each draw of `turnout.schemes.normal_form`. `expected_check_ins`, `expected_empty_steps`
and `expected_turns` return expected values. Devices, simulation and coordinator use this module;
accounting never imports this module.

Notation
    n  population
    m  window
    p₀ check-in probability
    k  picks
    μ  expected number of participations of some clients
    σ  standard deviation of this number, or an upper bound on it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.schedule import Schedule, ScheduleBlock, blocks, grouped, numbered
from turnout.randomness import Source
from turnout.schemes import Participation
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    DrawTable,
    Form,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Span,
    Staggered,
    normal_form,
)

if TYPE_CHECKING:
    from turnout.randomness import SimulationStreams

_FULL_DRAW = 1 / 16
_CELLS = 2**22


def all_clients(
    draw: Always, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which every client takes part in every step; nothing is random."""
    return _one_step(block, clients, np.arange(len(clients)))


def independent(
    draw: Bernoulli, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule of one step in which each client takes part independently with the draw's rate.

    The draws have the same distribution whether the clients or the server make them.
    """
    return _one_step(block, clients, _participants(len(clients), draw.rate, source))


def cohort(
    draw: Cohort, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule of a uniform subset of the clients, drawn by the server.

    Raises:
        UnsupportedError: ``clients`` is a part of the population; only the server can draw all.
    """
    if len(clients) != draw.population:
        raise UnsupportedError(
            "a client cannot draw its own steps under FixedSize: the server draws the clients"
        )
    return _one_step(block, clients, source.subset(draw.population, draw.size))


def one_of(
    draw: OneOf, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which each client takes part with `draw.probability`, in one uniform step."""
    present = _participants(len(clients), draw.probability, source)
    slots = source.below(block.steps, len(present))
    return grouped(block.first_step, block.steps, slots, numbered(clients, present))


def kept(
    draw: Kept, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which each client takes part once in every epoch, or in no epoch.

    A client takes part with the probability ``draw.slot.probability``. Its slot in an epoch is
    uniform, and the same in every epoch.
    """
    present = _participants(len(clients), draw.slot.probability, source)
    slots = source.below(draw.slot.steps, len(present))
    steps = np.concatenate([slots + epoch * draw.slot.steps for epoch in range(draw.epochs)])
    who = np.tile(numbered(clients, present), draw.epochs)
    return grouped(block.first_step, block.steps, steps, who)


def k_of(
    draw: KOf, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which each client takes part in a uniform subset of the block's steps."""
    slots = _subset_each(len(clients), block.steps, draw.picks, source)
    who = np.repeat(numbered(clients, np.arange(len(clients))), draw.picks)
    return grouped(block.first_step, block.steps, slots.reshape(-1), who)


def staggered(
    draw: Staggered, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which each client takes part in a uniform slot of its own window.

    The first slot lies ``window − 1`` steps before step 0; a client whose slot lies outside the run
    takes part in no step.
    """
    positions = np.arange(len(clients))
    slots = (positions + clients.start) // draw.clients_per_slot
    slots += source.below(draw.window, len(clients))
    slots -= draw.window - 1
    served = np.flatnonzero((slots >= 0) & (slots < block.steps))
    return grouped(block.first_step, block.steps, slots[served], numbered(clients, served))


def among_available(
    draw: OneOfOwn, clients: range, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule in which each client takes part at most once, in one of its available steps.

    A client takes part with the probability ``draw.probability``. Its step is uniform among the
    block's steps at which the client is available.
    """
    begin = block.first_step - first_step
    window = slice(begin, begin + block.steps)
    free = draw.available[clients.start : clients.stop, window]
    free_slots = np.nonzero(free)[1]
    ends = np.cumsum(np.count_nonzero(free, axis=1))
    sizes = np.diff(ends, prepend=0)
    # A client without an available step uses no random bits, as on its own device.
    able = np.flatnonzero(sizes)
    present = able[_participants(len(able), draw.probability, source)]
    ranks = source.below_each(sizes[present])
    slots = free_slots[ends[present] - sizes[present] + ranks]
    return grouped(block.first_step, block.steps, slots, numbered(clients, present))


def _one_step(block: ScheduleBlock, clients: range, present: NDArray[np.int64]) -> Schedule:
    """Schedule of a block of one step, from the positions of the participating clients."""
    offsets = np.array([0, len(present)], dtype=np.int64)
    return Schedule(block.first_step, offsets, numbered(clients, present))


def _participants(n: int, probability: float, source: Source) -> NDArray[np.int64]:
    """Ascending positions of the participating clients, each with the same probability.

    For a small probability the number of participants is drawn first and then the clients, so the
    cost is proportional to that number; otherwise one random draw per client is faster.
    """
    if probability == 1:
        return np.arange(n)
    if probability > _FULL_DRAW:
        return np.flatnonzero(source.bernoulli(probability, n))
    return source.subset(n, source.binomial(n, probability))


def _subset_each(clients: int, window: int, picks: int, source: Source) -> NDArray[np.integer]:
    """Independent uniform subset of ``picks`` of ``window`` slots for each client.

    The result has the shape (clients, picks); the slots of a row are in no particular order.
    """
    chosen = np.empty((clients, picks), dtype=np.int32)
    few = min(picks, window - picks)
    # Chunks keep the rounds in the processor's cache and the masks of `_complement` small.
    chunk = max(1, _CELLS // max(1, 16 * few, window if few < picks else 0))
    for start in range(0, clients, chunk):
        rows = chosen[start : start + chunk]
        drawn = _floyd(len(rows), window, few, source)
        rows[:] = drawn.T if few == picks else _complement(drawn, window)
    return chosen


def _floyd(clients: int, window: int, picks: int, source: Source) -> NDArray[np.int32]:
    """Uniform subset of slots for each client, by Floyd's algorithm; shape (picks, clients).

    Round r draws from {0, …, window − picks + r}. A client that draws a slot that it already holds
    takes the largest slot of the range, which no earlier round could draw.
    """
    held = np.empty((picks, clients), dtype=np.int32)
    for r in range(picks):
        top = window - picks + r
        held[r] = source.below(top + 1, clients)
        repeated = np.zeros(clients, dtype=np.bool_)
        for earlier in held[:r]:
            repeated |= earlier == held[r]
        held[r][repeated] = top
    return held


def _complement(drawn: NDArray[np.int32], window: int) -> NDArray[np.integer]:
    """Ascending slots of the window that were not drawn, for each client."""
    picks, clients = drawn.shape
    free = np.ones((clients, window), dtype=np.bool_)
    free[np.arange(clients), drawn] = False
    return np.nonzero(free)[1].reshape(clients, window - picks)


SAMPLERS: DrawTable[Callable[[Any, range, ScheduleBlock, Source, int], Schedule]] = DrawTable(
    "a sampler",
    {
        Always: all_clients,
        Bernoulli: independent,
        Cohort: cohort,
        OneOf: one_of,
        KOf: k_of,
        Kept: kept,
        Staggered: staggered,
        OneOfOwn: among_available,
    },
)
"""Sampler of one block for each draw; its last argument is the first step of the block's span."""


def draw(
    participation: Participation,
    population: int,
    block: ScheduleBlock,
    source: Source,
    *,
    client: int | None = None,
) -> Schedule:
    """Schedule of one block of a run, drawn at random.

    Time and memory grow with the number of participations or, for a check-in probability above
    1/16, with the number of clients; no client becomes a Python object.

    Args:
        participation: rule that decides in which steps a client takes part.
        population: number of clients of the run, at least 1. It must equal the number of
            clients that `FixedSize`, `SlidingWindow` and `AvailabilityCheckIn` determine.
        block: one of ``blocks(participation)``.
        source: source of randomness; `turnout.randomness.OSRandomness` on a device.
        client: client to draw for, as on its own device; None to draw for all clients.

    Returns:
        Schedule of the block's steps. Its distribution is exactly that of the participation if
        ``source`` draws uniform numbers exactly.

    Raises:
        ParameterError: a population, block or client that does not fit the participation.
        UnsupportedError: an unknown participation or draw, or a draw for one client under
            `FixedSize`.

    Guarantees:
        Blocks drawn from independent sources are independent.
    """
    form = check_population(participation, population)
    known = 0 <= block.index < form.blocks
    if not known or form.block(block.index) != (block.first_step, block.steps):
        raise ParameterError("block", block, f"one of the participation's {form.blocks} blocks")
    span, first_step, _ = form.at_step(block.first_step)
    clients = range(population)
    if client is not None:
        checks.count(0, client=client)
        if client >= population:
            raise ParameterError("client", client, f"below the population, {population}")
        clients = range(client, client + 1)
    return SAMPLERS[span.draw](span.draw, clients, block, source, first_step)


def draw_run(
    participation: Participation, population: int, streams: SimulationStreams, first_block: int = 0
) -> Iterator[Schedule]:
    """Iterator over the schedules of a simulated run, block by block, from ``first_block`` on.

    Block b is drawn from the stream ``("participation", b)``, so a run that is resumed at any
    block has the same schedules as an uninterrupted run.

    Args:
        participation: rule that decides in which steps a client takes part.
        population: number of clients of the run, at least 1.
        streams: random streams of the simulation.
        first_block: number of the first block to draw, at least 0.
    """
    cut = blocks(participation)
    for index in range(first_block, len(cut)):
        yield draw(participation, population, cut[index], streams.source("participation", index))


def check_population(participation: Participation, population: int) -> Form:
    """Normal form of a participation, after a check of the population.

    Args:
        participation: rule that decides in which steps a client takes part.
        population: number of clients, at least 1.

    Raises:
        ParameterError: the population is below 1, or differs from the number of clients that the
            participation determines.
    """
    form = normal_form(participation)
    form.check_population(population)
    return form


def expected_check_ins(participation: Participation, population: int) -> NDArray[np.float64]:
    """Expected number of clients at each step, shape (steps,), exact up to rounding.

    Args:
        participation: rule that decides in which steps a client takes part.
        population: number of clients of the run, at least 1.

    Raises:
        ParameterError: the participation does not permit this number of clients.
        UnsupportedError: an unknown participation or draw.

    >>> from turnout.schemes import CheckIn
    >>> expected_check_ins(CheckIn(window=4, probability=0.5), 16)
    array([2., 2., 2., 2.])
    """
    spans = check_population(participation, population).spans
    means = [EXPECTED[span.draw].check_ins(span.draw, population, span.steps) for span in spans]
    return means[0] if len(means) == 1 else np.concatenate(means)


def expected_empty_steps(participation: Participation, population: int) -> float:
    """Expected number of steps without any client, exact up to rounding.

    Source: the proofs of Propositions 3.4 (`CheckIn`) and 4.4 (`SlidingWindow`) of the
    check-in paper, before the last inequality of each proof. For window m and population n,
    the proof of 4.4 states the range of steps as m … n − m + 1. The steps after the warm-up are
    m … n; the bound of 4.4 and this function count all of them.

    Args:
        participation: rule that decides in which steps a client takes part.
        population: number of clients of the run, at least 1.

    Raises:
        ParameterError: the participation does not permit this number of clients.
        UnsupportedError: an unknown participation or draw.

    >>> from turnout.schemes import CheckIn
    >>> round(expected_empty_steps(CheckIn(window=1000), 1000), 3)
    367.695
    """
    spans = check_population(participation, population).spans
    with np.errstate(divide="ignore"):
        return sum(
            EXPECTED[span.draw].empty_steps(span.draw, population, span.steps) for span in spans
        )


FAR_DEVIATIONS, FAR_SHARE = 6.0, 0.05


def is_far_below(count: float, expected: float, variance: float) -> bool:
    """True if a count is far below its mean: below μ − 6σ and more than 5 % below μ.

    The count of a correct participation is below μ − 6σ with a probability of about 1e-9. The limit
    of 5 % prevents a false alarm for participations without variance (every client once per window)
    when one device is offline.

    Args:
        count: observed number of participations.
        expected: mean μ of the number of participations.
        variance: variance σ² of the number of participations, or an upper bound on σ².
    """
    far = expected - max(FAR_DEVIATIONS * math.sqrt(variance), FAR_SHARE * expected)
    return count < far


def expected_turns(
    participation: Participation, population: int, clients: Sequence[int], steps: int
) -> tuple[float, float]:
    """Expected number of participations of some clients, and an upper bound on its variance.

    Clients draw independently. A client takes part at most k times in a window. If S is the sum of
    the client's participation probabilities in the window, the number of the client's
    participations in the window has variance at most S(1 − S/k). The bound is exact for a whole
    window.

    Args:
        participation: a participation that clients can draw by themselves.
        population: number of clients of the run, at least 1.
        clients: numbers of the clients, each in 0 … population − 1.
        steps: number of steps to include, from the first one on.

    Returns:
        μ, exact up to rounding, and an upper bound on the variance σ².

    Raises:
        ParameterError: the participation does not permit this number of clients.
        UnsupportedError: an unknown participation or draw.

    >>> from turnout.schemes import CheckIn
    >>> expected_turns(CheckIn(window=4, windows=2, probability=0.5), 16, range(8), 8)
    (8.0, 4.0)
    """
    spans = check_population(participation, population).spans
    mean = bound = 0.0
    for span in spans if clients else ():
        counted = min(steps, span.steps)
        if counted <= 0:
            break
        turns = _turns(span, population, np.asarray(clients), counted)
        mean, bound = mean + turns[0], bound + turns[1]
        steps -= counted
    return mean, bound


_CANDIDATES: DrawTable[Callable[[Any, int], tuple[int, float]]] = DrawTable(
    "the same chance of several clients at each step",
    {
        Always: lambda draw, n: (n, 1.0),
        Bernoulli: lambda draw, n: (n, draw.rate),
        Cohort: lambda draw, n: (n, draw.size / draw.population),
        OneOf: lambda draw, n: (n, draw.probability / draw.steps),
        Kept: lambda draw, n: (n, draw.slot.probability / draw.slot.steps),
        KOf: lambda draw, n: (n, draw.picks / draw.steps),
        # After the warm-up each slot lies in the windows of clients that began in the last m.
        Staggered: lambda draw, n: (draw.window * draw.clients_per_slot, 1 / draw.window),
    },
)
"""Number of clients that may take part at each step, and the probability of each."""


def _turns(
    span: Span, population: int, clients: NDArray[np.int64], steps: int
) -> tuple[float, float]:
    """Results of `expected_turns` for the first ``steps`` steps of one span."""
    draw = span.draw
    chances, alike = EXPECTED[draw].turns(draw, clients, population, steps)
    length, together = draw.steps, 1
    if isinstance(draw, Kept):  # a client takes part in all epochs or in none
        length, together = draw.slot.steps, draw.epochs
    sums = np.add.reduceat(chances, np.arange(0, steps, length), axis=1)
    most = draw.picks if isinstance(draw, KOf) else 1
    spread = np.maximum(0.0, sums * (1 - sums / most))
    repeats = min(together, sums.shape[1])
    return alike * float(sums.sum()), alike * repeats * float(spread.sum())


def _mean_check_ins(draw: Draw, population: int, steps: int) -> NDArray[np.float64]:
    clients, chance = _CANDIDATES[draw](draw, population)
    return np.full(steps, clients * chance)


def _mean_empty_steps(draw: Draw, population: int, steps: int) -> float:
    clients, chance = _CANDIDATES[draw](draw, population)
    return float(steps * np.exp(clients * np.log1p(-chance)))


def _chances(draw: OneOfOwn) -> NDArray[np.float64]:
    """Participation probability of each client at each step, shape (clients, steps)."""
    sizes = np.repeat(draw.block_sizes(), draw.steps, axis=1)[:, : draw.available.shape[1]]
    chances = np.zeros(draw.available.shape)
    np.divide(draw.probability, sizes, out=chances, where=draw.available)
    return chances


def _alike_turns(
    draw: Draw, clients: NDArray[np.int64], population: int, steps: int
) -> tuple[NDArray[np.float64], int]:
    return _mean_check_ins(draw, population, steps)[np.newaxis] / population, len(clients)


def _staggered_turns(
    draw: Staggered, clients: NDArray[np.int64], population: int, steps: int
) -> tuple[NDArray[np.float64], int]:
    first = clients // draw.clients_per_slot - (draw.window - 1)
    ahead = np.arange(steps) % draw.steps - first[:, np.newaxis]
    return ((ahead >= 0) & (ahead < draw.window)) / draw.window, 1


class _Expected(NamedTuple):
    """Functions that return the expectations of a span of steps with one kind of draw.

    Attributes:
        check_ins: returns the expected number of clients at each step.
        empty_steps: returns the expected number of steps without any client.
        turns: returns the participation probabilities of given clients at the span's first steps,
            shape (rows, steps), and the number of clients that each row stands for.
    """

    check_ins: Callable[[Any, int, int], NDArray[np.float64]] = _mean_check_ins
    empty_steps: Callable[[Any, int, int], float] = _mean_empty_steps
    turns: Callable[[Any, NDArray[np.int64], int, int], tuple[NDArray[np.float64], int]] = (
        _alike_turns
    )


EXPECTED: DrawTable[_Expected] = DrawTable(
    "an expectation",
    {
        Always: _Expected(),
        Bernoulli: _Expected(),
        Cohort: _Expected(empty_steps=lambda draw, n, steps: 0.0),
        OneOf: _Expected(),
        KOf: _Expected(),
        Kept: _Expected(),
        Staggered: _Expected(turns=_staggered_turns),
        OneOfOwn: _Expected(
            check_ins=lambda draw, n, steps: _chances(draw).sum(axis=0),
            empty_steps=lambda draw, n, steps: float(
                np.exp(np.log1p(-_chances(draw)).sum(axis=0)).sum()
            ),
            turns=lambda draw, clients, n, steps: (_chances(draw)[clients, :steps], 1),
        ),
    },
)
