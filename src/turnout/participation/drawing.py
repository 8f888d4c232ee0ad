"""Drawing: one entry for all laws, for one device or for millions of simulated clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.participation.sampling import (
    among_available,
    cohort,
    coins,
    everybody,
    k_of,
    kept,
    one_of,
    staggered,
)
from turnout.participation.schedule import Schedule
from turnout.participation.windows import Block, blocks
from turnout.randomness import Source
from turnout.spec import ParticipationLaw
from turnout.spec.draws import (
    Always,
    Bernoulli,
    Cohort,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
)
from turnout.spec.forms import DrawTable, Form, normal_form

if TYPE_CHECKING:
    from turnout.randomness import SimulationStreams

SAMPLERS: DrawTable[Callable[[Any, range, Block, Source, int], Schedule]] = DrawTable(
    "a sampler",
    {
        Always: everybody,
        Bernoulli: coins,
        Cohort: cohort,
        OneOf: one_of,
        KOf: k_of,
        Kept: kept,
        Staggered: staggered,
        OneOfOwn: among_available,
    },
)
"""The sampler of one block, of a span that begins at the step that is its last argument."""


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
        UnsupportedError: an unknown law or draw, or one client's own draw under `FixedSize`.

    Guarantees:
        blocks drawn from independent sources are independent.
    """
    form = check_population(law, population)
    known = 0 <= block.index < form.blocks
    if not known or form.block(block.index) != (block.first_step, block.steps):
        raise ParameterError("block", block, f"one of the {form.blocks} blocks of the law")
    span, first_step, _ = form.at_step(block.first_step)
    clients = _range_of(population, client)
    return SAMPLERS[span.draw](span.draw, clients, block, source, first_step)


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


def check_population(law: ParticipationLaw, population: int) -> Form:
    """The normal form; refuses a population below 1, or another one than the law's own."""
    form = normal_form(law)
    checks.count(population=population)
    own = form.population
    if own is not None and population != own:
        raise ParameterError("population", population, f"the law's own, {own}")
    return form


def _range_of(population: int, client: int | None) -> range:
    """The clients to draw for."""
    if client is None:
        return range(population)
    checks.count(0, client=client)
    if client >= population:
        raise ParameterError("client", client, f"below the population, {population}")
    return range(client, client + 1)
