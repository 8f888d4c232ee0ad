"""Drawing: one entry for all laws, for one device or for millions of simulated clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.availability import among_available
from turnout.participation.sampling import (
    check_in,
    coins,
    every_step,
    fixed_assignment,
    fixed_size,
    k_subset,
)
from turnout.participation.schedule import Schedule
from turnout.participation.sliding import sliding
from turnout.participation.windows import Block, blocks
from turnout.randomness import Source
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)

if TYPE_CHECKING:
    from turnout.randomness import SimulationStreams

_SAMPLERS: dict[type, Callable[[Any, range, Block, Source], Schedule]] = {
    EveryStep: every_step,
    PoissonSampling: coins,
    SelfSampling: coins,
    FixedSize: fixed_size,
    CheckIn: check_in,
    KSubset: k_subset,
    FixedAssignment: fixed_assignment,
    SlidingWindow: sliding,
    AvailabilityCheckIn: among_available,
}


def draw(
    law: ParticipationLaw,
    population: int,
    block: Block,
    source: Source,
    *,
    client: int | None = None,
) -> Schedule:
    """The participations of one block of a run.

    Time and memory grow with the participations (for a check-in probability above 1/16, with
    the clients); no client becomes a Python object.

    Args:
        law: who takes part when.
        population: clients of the run, at least 1. A law that knows its population
            (`FixedSize`, `SlidingWindow`, `AvailabilityCheckIn`) must agree.
        block: one of ``blocks(law)``.
        source: where draws come from; `turnout.randomness.OSRandomness` on a device.
        client: draw for this client alone, as her own device does; None draws for everybody.

    Returns:
        the schedule of the block's steps. Its law is exactly that of the spec, given that
        ``source`` is.

    Raises:
        ParameterError: a population, block or client that does not fit the law.
        UnsupportedError: an unknown law, or one client's own draw under `FixedSize`.

    Guarantees:
        blocks drawn from independent sources are independent.
    """
    check_population(law, population)
    if not (0 <= block.index < len(blocks(law)) and blocks(law)[block.index] == block):
        raise ParameterError("block", block, f"one of the {len(blocks(law))} blocks of the law")
    return _SAMPLERS[type(law)](law, _range_of(population, client), block, source)


def draw_run(
    law: ParticipationLaw, population: int, streams: SimulationStreams, first_block: int = 0
) -> Iterator[Schedule]:
    """The schedules of a simulated run, block after block, from ``first_block`` on.

    Block b is drawn from the stream ``("participation", b)``, so a run that is resumed at any
    block draws what the uninterrupted one drew.
    """
    cut = blocks(law)
    for index in range(first_block, len(cut)):
        yield draw(law, population, cut[index], streams.source("participation", index))


def check_population(law: ParticipationLaw, population: int) -> None:
    """Refuses a population below 1, or another one than the law's own."""
    if type(law) not in _SAMPLERS:
        raise UnsupportedError(f"no sampler is known for the law {type(law).__name__}")
    checks.count(population=population)
    own = getattr(law, "population", population)
    if population != own:
        raise ParameterError("population", population, f"the law's own, {own}")


def _range_of(population: int, client: int | None) -> range:
    """The clients to draw for."""
    if client is None:
        return range(population)
    checks.count(0, client=client)
    if client >= population:
        raise ParameterError("client", client, f"below the population, {population}")
    return range(client, client + 1)
