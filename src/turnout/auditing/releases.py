"""Distinguishing game on releases, with the sampler and the mechanism of training.

`ReleaseGame` uses only the sampler and the mechanism; `SimulationGame` uses the whole
`turnout.simulation.Simulation`, with its engine and coordinator.

A trial is a whole run in which one client, the canary, sends the largest possible update in one
direction. Noise is independent between the coordinates of an update, and draws are independent
between clients. So many trials are played at once: each trial is a client of the sampler and a
coordinate of the mechanism.

The adversary knows everything except whether and when the canary takes part: the updates of all
other clients (the crowd, which takes part in each step with the canary's opposite update), the
divisor and the scheme. In one world the canary sends its update. In the other world it is absent
(add-remove), sends zero (zero-out) or sends the opposite update (replace-one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.auditing.canaries import require_independent, simulated
from turnout.auditing.confidence import LOG_RATIOS, Statistics, merged_scores
from turnout.core import checks
from turnout.core.aggregates import Noise
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.drawing import SAMPLERS
from turnout.participation.schedule import Schedule, ScheduleBlock, blocks
from turnout.protocol.mechanisms import Mechanism, Released, State
from turnout.randomness import SimulationStreams, Source, rounded_gaussian
from turnout.schemes import GaussianNoise, Relation, Scheme, TrustModel
from turnout.schemes.normal_form import Cohort, Draw, OneOfOwn, Staggered, normal_form

Sampler = Callable[[Draw, int, ScheduleBlock, Source, int], Schedule]
"""Function that draws the canary's steps of a block in each trial, as a schedule whose clients are
the trials. Its last argument is the first step of the draw's span."""

_CELLS, _FEWEST, _MOST = 2**21, 2**10, 2**16
"""Most releases in memory at once, and the least and largest number of trials of a group."""
_FAR = 1e3  # length of the canary's update in units of C, which clipping must reduce


def canary_steps(
    draw: Draw, trials: int, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule of the canary's steps in each trial, drawn by the sampler of training.

    With sliding windows, the canary is a client whose window has the most released steps. With a
    trace of available steps, it is the client of `costliest_row`, the only row of ``draw``.
    """
    if isinstance(draw, Cohort):
        return _cohorts(draw, trials, block, source, first_step)
    clients = range(trials)
    if isinstance(draw, Staggered):
        draw = replace(draw, clients_per_slot=trials)
        clients = range((draw.window - 1) * trials, draw.window * trials)
    if isinstance(draw, OneOfOwn):
        row = draw.available[:1]
        draw = replace(draw, available=np.broadcast_to(row, (trials, row.shape[1])))
    drawn = SAMPLERS[draw](draw, clients, block, source, first_step)
    if clients.start == 0:
        return drawn
    return Schedule(drawn.first_step, drawn.offsets, drawn.clients - clients.start)


def _cohorts(
    draw: Cohort, trials: int, block: ScheduleBlock, source: Source, first_step: int
) -> Schedule:
    """Schedule of the trials in which the cohort of the step contains client 0."""
    clients = range(draw.population)
    hits = [
        trial
        for trial in range(trials)
        if 0 in SAMPLERS[draw](draw, clients, block, source, first_step).clients[:1]
    ]
    offsets = np.array([0, len(hits)], np.int64)
    return Schedule(block.first_step, offsets, np.array(hits, np.int64))


def costliest_row(draw: OneOfOwn) -> OneOfOwn:
    """Draw of the client with the largest sum of 1/n over blocks, with n its available steps."""
    sizes = draw.block_sizes().astype(np.float64)
    sizes[sizes == 0] = np.inf
    row = int(np.argmax((1.0 / sizes).sum(axis=1)))
    return replace(draw, available=draw.available[row : row + 1])


def float_noise(generator: np.random.Generator) -> Noise:
    """Floating-point Gaussian noise of a simulation."""
    return lambda deviation, size: deviation * generator.standard_normal(size)


def whole_noise(generator: np.random.Generator) -> Noise:
    """Exactly rounded Gaussian noise of a deployment, drawn from a generator's bytes."""
    return lambda deviation, size: rounded_gaussian(deviation, size, generator.bytes)


@dataclass(frozen=True, eq=False)
class ReleaseGame:
    """Distinguishing game on all releases of a run, with and without the canary.

    Attributes:
        scheme: scheme that the accountant analyses, with Gaussian noise and central trust.
        mechanism: function that builds the mechanism for a number of coordinates.
        crowd: number of other clients in each step, whose updates are the canary's opposite; at
            least 0, and 0 if releases reveal counts.
        sampler: function that draws the canary's steps.
        noise: function that builds the noise of a release from a generator.
        longest: length of the canary's update before clipping, in units of C.

    Raises:
        ParameterError: a crowd outside its domain.
        UnsupportedError: the scheme has no Gaussian noise or no central trust, it averages
            check-ins with a given population, or no likelihood ratio of its participation is known.
    """

    scheme: Scheme
    mechanism: Callable[[int], Mechanism]
    crowd: int = 0
    sampler: Sampler = canary_steps
    noise: Callable[[np.random.Generator], Noise] = float_noise
    longest: float = _FAR

    def __post_init__(self) -> None:
        # The game needs a mechanism of the coordinator and releases that the game can simulate.
        checks.count(0, crowd=self.crowd)
        if not isinstance(self.scheme.randomizer, GaussianNoise):
            kind = type(self.scheme.randomizer).__name__
            raise UnsupportedError(f"no mechanism of this package executes {kind} in training")
        if self.scheme.trust is not TrustModel.CENTRAL:
            raise UnsupportedError(
                f"trust = {self.scheme.trust.value!r}: an audit of releases needs central trust; "
                "audit the clients' randomizer instead"
            )
        if self.scheme.release.shows_counts and self.scheme.population is not None:
            raise UnsupportedError(
                "averaged check-ins with a given population cannot be audited: the ε depends on "
                "the noise of all clients, but the game has no client except the canary"
            )
        # Released counts would show the crowd, and scores need a known likelihood ratio.
        if self.crowd and self.scheme.release.shows_counts:
            raise ParameterError("crowd", self.crowd, "0, since releases reveal counts")
        LOG_RATIOS.require(self.scheme.participation)

    @cached_property
    def _unit(self) -> tuple[float, float]:
        """Encoded clipped updates of the canary in the directions +1 and −1."""
        alone, source = self.mechanism(1), SimulationStreams(0).source("nothing is drawn")
        far = np.array([self.longest * alone.clip_norm])
        up, down = (alone.encode(sign * far, source).total[0] for sign in (1.0, -1.0))
        return float(up), float(down)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Scores of independent runs by the name of the statistic, each of shape (trials,).

        Args:
            world: 0 with the canary, 1 without it.
            trials: number of runs.
            streams: random streams of the runs.
            name: name of the streams; different names give independent runs.
        """
        form = normal_form(self.scheme.participation)
        longest = max(_shown(span.draw) for span in form.spans)
        group = int(np.clip(_CELLS // longest, _FEWEST, _MOST))
        starts = range(0, trials, group)
        return merged_scores(
            self._group(world, min(group, trials - start), streams, (*name, world, start))
            for start in starts
        )

    def _group(
        self,
        world: int,
        trials: int,
        streams: SimulationStreams,
        name: tuple[str | int, ...],
    ) -> dict[str, FloatArray]:
        statistics = Statistics(self.scheme, trials)
        playing = _Playing(self, world, trials, streams, name)
        for draw, block, first_step in drawn_blocks(self.scheme):
            statistics.add(draw, playing.block(draw, block, first_step))
        return statistics.by_name()


def _shown(draw: Draw) -> int:
    """Largest number of steps of a block in which the canary can take part."""
    return min(draw.window, draw.steps) if isinstance(draw, Staggered) else draw.steps


def drawn_blocks(scheme: Scheme) -> Iterator[tuple[Draw, ScheduleBlock, int]]:
    """Each block of a run, with the canary's draw and the first step of the draw's span.

    Yields:
        (draw, block, first step).
    """
    form = normal_form(scheme.participation)
    rows = {id(s.draw): costliest_row(s.draw) for s in form.spans if isinstance(s.draw, OneOfOwn)}
    for block in blocks(scheme.participation):
        span, first_step, _ = form.at_step(block.first_step)
        yield rows.get(id(span.draw), span.draw), block, first_step


class _Playing:
    """Group of runs in one world, played step by step."""

    def __init__(
        self,
        game: ReleaseGame,
        world: int,
        trials: int,
        streams: SimulationStreams,
        name: tuple[str | int, ...],
    ) -> None:
        self._game, self._trials = game, trials
        up, down = game._unit
        relation = game.scheme.relation
        self._record = down if world == 0 else up if relation is Relation.REPLACE_ONE else 0.0
        self._there = world == 0 or relation is not Relation.ADD_REMOVE
        self._asks_one = game.scheme.release.asks_one
        self._others = 1 if self._asks_one and game.crowd else game.crowd
        self._crowd = self._others * up
        self._mechanism = game.mechanism(trials)
        bound: Any = getattr(self._mechanism, "bound", None)
        self._unit = 1.0 if bound is None else float(bound.to_model(np.ones(1))[0])
        self._state: State = self._mechanism.initial_state()
        self._source = streams.source("audit", "participation", *name)
        self._noise = game.noise(streams.generator("audit", "noise", *name))

    def block(self, draw: Draw, block: ScheduleBlock, first_step: int) -> FloatArray:
        """Canary's coordinate, in units of C, in the steps in which the canary can take part.

        The shape is (steps, trials); skipped steps are NaN.
        """
        schedule = self._game.sampler(draw, self._trials, block, self._source, first_step)
        # Only steps in which the canary can take part are observed.
        steps = range(block.first_step, block.first_step + block.steps)
        if isinstance(draw, Staggered):
            steps = steps[: draw.window]
        if isinstance(draw, OneOfOwn):
            begin = block.first_step - first_step
            own = draw.available[0, begin : begin + block.steps]
            steps = [steps[i] for i in np.flatnonzero(own)]
        seen = np.empty((len(steps), self._trials))
        for row, step in zip(seen, steps, strict=True):
            row[:] = self._step(step, schedule.at(step))
        return seen

    def _step(self, step: int, came: NDArray[np.integer]) -> FloatArray:
        """Canary's coordinate in the release of one step, shape (trials,), in units of C."""
        # Release without the canary in all trials, then again in the trials with the canary.
        total = np.full(self._trials, self._crowd)
        seen, after = self._released(step, total, self._others, self._state)
        if came.size and self._there:
            added = self._with_canary(came)
            count = 1 if self._asks_one else self._others + 1
            state = {key: array[..., came] for key, array in self._state.items()}
            seen[came], after_came = self._released(step, added, count, state)
            for key, array in after.items():
                after[key] = array.copy()
                after[key][..., came] = after_came[key]
        self._state = after
        # The canary's update is −1 and the crowd's +1; change the sign so that the canary has +1.
        return -seen / self._mechanism.clip_norm

    def _with_canary(self, came: NDArray[np.integer]) -> FloatArray:
        """Sums of the trials in which the canary takes part in the step."""
        if not self._asks_one:
            return np.full(came.size, self._crowd + self._record)
        arrived = np.arange(self._others + 1, dtype=np.int64)
        select, source = self._mechanism.select, self._source
        asked = np.array([select(arrived, source)[0] == self._others for _ in range(came.size)])
        return np.where(asked, self._record, self._crowd)

    def _released(
        self, step: int, total: FloatArray, count: int, state: State
    ) -> tuple[FloatArray, dict[str, NDArray[Any]]]:
        """Released coordinates minus the crowd's sum, in the model's units, and the next state."""
        all_of_them = total.size == self._trials
        mechanism = self._mechanism if all_of_them else self._game.mechanism(total.size)
        zero = mechanism.zero()
        aggregate = type(zero)(total.astype(zero.dtype), count)
        released, after = mechanism.release(aggregate, state, step, self._noise)
        crowd = self._crowd if count or not self._asks_one else 0.0
        return self._view(released, total.size) - crowd * self._unit, dict(after)

    def _view(self, released: Released, size: int) -> FloatArray:
        """Released sum of a step, shape (size,); NaN if the step is skipped."""
        divisor = getattr(self._mechanism, "expected_check_ins", None)
        if divisor is not None and released.direction is not None:
            return released.direction * divisor
        if released.total is None:
            return np.full(size, np.nan)
        bound: Any = getattr(self._mechanism, "bound", None)
        return np.array(released.total if bound is None else bound.to_model(released.total))


_SIMULATED_CELLS, _SIMULATED_FEWEST, _SIMULATED_MOST = 2**22, 2**10, 2**16
"""Most releases in memory at once, and the least and largest number of trials of a run."""
_SEEDS = 2**31


@dataclass(frozen=True, eq=False)
class SimulationGame:
    """Distinguishing game on simulated runs, in which each client is a canary.

    Attributes:
        scheme: a scheme with aggregated releases, and draws that are independent and identically
            distributed over clients.
        clip_norm: C.
        expected_check_ins: the public divisor; by default the expected number of participants.

    Raises:
        UnsupportedError: releases are not aggregated, or clients' draws differ or depend on each
            other.
    """

    scheme: Scheme
    clip_norm: float = 1.0
    expected_check_ins: float | None = None

    def __post_init__(self) -> None:
        require_independent(self.scheme)

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Scores of independent canaries by the name of the statistic, each of shape (trials,)."""
        group = int(
            np.clip(
                _SIMULATED_CELLS // self.scheme.participation.steps,
                _SIMULATED_FEWEST,
                _SIMULATED_MOST,
            )
        )
        starts = range(0, trials, group)
        seeds = streams.generator("audit", "simulations", *name, world).integers(
            _SEEDS, size=len(starts)
        )
        return merged_scores(
            self._group(world, min(group, trials - start), int(seed))
            for start, seed in zip(starts, seeds, strict=True)
        )

    def _group(self, world: int, trials: int, seed: int) -> dict[str, FloatArray]:
        inside = np.full(trials, world == 0)
        seen, _ = simulated(self.scheme, inside, self.clip_norm, self.expected_check_ins, seed)
        statistics = Statistics(self.scheme, trials)
        for draw, block, _ in drawn_blocks(self.scheme):
            statistics.add(draw, seen[block.first_step : block.first_step + block.steps])
        return statistics.by_name()
