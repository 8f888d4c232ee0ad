"""From a game to an audit: events are chosen on some trials and counted on all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.auditing.confidence import (
    CLEARLY,
    Counted,
    Event,
    Findings,
    FoundAt,
    Rates,
    Statement,
    best_event,
    counted,
)
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.randomness import SimulationStreams

Tell = Callable[[int, int], None]
"""Progress: trials played, of all."""

_PILOT, _PILOT_OF_MANY, _ENOUGH = 0.1, 0.02, 20_000  # of the trials, for each way to play
_ALSO = 0.2  # of the error, for what is stated at other δ
FEWEST = 100
_TwoWorlds = list[dict[str, FloatArray]]


class Game(Protocol):
    """Two worlds, which nobody should tell apart."""

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Statistics of independent trials of a world, each of shape (trials,), by name.

        World 0 is the one with the client's record, 1 its neighbour.
        """
        ...


def play(
    games: Sequence[Game],
    words: str,
    stated: Statement,
    *,
    trials: int,
    confidence: float,
    seed: int,
    also: Sequence[Statement] = (),
    tell: Tell = lambda done, of: None,
) -> Findings:
    """An audit of what is stated, by the best of some ways to play.

    Up to a tenth of the trials goes into each way; the best one's events are counted on the rest,
    which had no part in choosing them, so bounds need no correction for what was tried.

    Args:
        games: ways to play, the first of which is taken unless another promises clearly more.
        words: what is played.
        stated: bounds by direction.
        trials: of each world, at least 100.
        confidence: of all bounds together, strictly between 0 and 1.
        seed: names all random streams; it protects nobody, and nothing here needs protection.
        also: what is stated at other δ, by the same directions. A mistake of a few per cent shows
            where events are frequent, at a large δ, long before it shows in the tail.
        tell: is told the progress.

    Raises:
        ParameterError: a value outside its domain.
    """
    checks.count(FEWEST, trials=trials)
    checks.count(0, seed=seed)
    checks.open_unit(confidence=confidence)
    started, streams = time.perf_counter(), SimulationStreams(seed)
    asked = _asked(stated, also, 1.0 - confidence)
    pilot = int(min(_PILOT * trials, _ENOUGH + _PILOT_OF_MANY * trials))
    rest, done = trials - pilot * len(games), 0
    chosen: tuple[Game, list[Event]] | None = None
    promised = -1.0
    for number, game in enumerate(games):
        worlds = _worlds(game, pilot, streams, "pilot", number)
        done += pilot
        tell(done, trials)
        events, promise = _chosen(worlds, asked, rest)
        if chosen is None or promise > CLEARLY * promised:
            chosen, promised = (game, events), promise
    assert chosen is not None
    worlds = _worlds(chosen[0], rest, streams, "counted", 0)
    tell(trials, trials)
    found = [one.counted(event, worlds) for one, event in zip(asked, chosen[1], strict=True)]
    first, *others = _by_statement(found, (stated, *also))
    rates = {
        name: Rates.of(counted.event, *_in_order(worlds, name, counted.event.statistic))
        for name, counted in first.found.items()
    }
    seconds = time.perf_counter() - started
    return Findings(words, stated, first.found, rates, tuple(others), confidence, trials, seed,
                    seconds)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Asked:
    """One bound to find: a direction at a δ, with its share of the error."""

    direction: str
    proved: float
    delta: float
    error: float

    def event(self, worlds: _TwoWorlds, trials: int) -> tuple[Event, float]:
        """The event that promises most, and the part of what is proved that it promises."""
        ours, others = worlds[::-1] if self.direction == "add" else worlds
        event, epsilon = best_event(ours, others, trials, self.delta, self.error)
        return event, epsilon / self.proved if self.proved > 0 else epsilon

    def counted(self, event: Event, worlds: _TwoWorlds) -> Counted:
        """The bound by these trials."""
        ours, others = _in_order(worlds, self.direction, event.statistic)
        return counted(event, ours, others, self.delta, self.error)


def _asked(stated: Statement, also: Sequence[Statement], error: float) -> list[_Asked]:
    """All bounds to find, in order."""
    shares = [1.0] if not also else [1.0 - _ALSO, *[_ALSO / len(also)] * len(also)]
    return [
        _Asked(name, proved.upper, one.delta, share * error / len(one.directions))
        for one, share in zip((stated, *also), shares, strict=True)
        for name, proved in one.directions.items()
    ]


def _by_statement(found: Sequence[Counted], stated: Sequence[Statement]) -> list[FoundAt]:
    """The counts, by the statement that they are about."""
    left = iter(found)
    return [FoundAt(one, {name: next(left) for name in one.directions}) for one in stated]


def _worlds(game: Game, trials: int, streams: SimulationStreams, *name: str | int) -> _TwoWorlds:
    return [game.scores(world, trials, streams, *name) for world in (0, 1)]


def _in_order(worlds: _TwoWorlds, direction: str, statistic: str) -> tuple[FloatArray, FloatArray]:
    """A statistic in the world that a direction's events speak for, and in the other one."""
    ours, others = worlds[::-1] if direction == "add" else worlds
    return ours[statistic], others[statistic]


def _chosen(worlds: _TwoWorlds, asked: Sequence[_Asked], trials: int) -> tuple[list[Event], float]:
    """The best event of each bound, and the largest part of what is proved that one promises."""
    pairs = [one.event(worlds, trials) for one in asked]
    return [event for event, _ in pairs], max(part for _, part in pairs)
