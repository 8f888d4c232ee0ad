"""Audit of a game: events are chosen on some trials and counted on the remaining trials.

`Game` is the interface of a game, and `play` tests proved bounds on ε by the best of several games.
"""

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
"""Progress report: number of trials played, and number of all trials."""

_PILOT, _PILOT_OF_MANY, _ENOUGH = 0.1, 0.02, 20_000  # share of trials in the pilot of a game
_ALSO = 0.2  # share of the error for statements at further δ
FEWEST = 100
_TwoWorlds = list[dict[str, FloatArray]]


class Game(Protocol):
    """Distinguishing game: scores of trials in two neighbouring worlds."""

    def scores(
        self, world: int, trials: int, streams: SimulationStreams, *name: str | int
    ) -> dict[str, FloatArray]:
        """Scores of independent trials of a world by the name of the statistic, shape (trials,).

        World 0 has the client's record; world 1 is its neighbour.
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
    """Lower bounds on ε from the best of several games, and the proved bounds that they test.

    Each game chooses its events on at most a tenth of the trials. The events of the best game are
    counted on the remaining trials, which are independent of the choice. So the bounds need no
    correction for the number of games and events.

    Args:
        games: games to choose from; the first game is used unless another game predicts a clearly
            larger bound.
        words: description of the game.
        stated: proved bounds on ε, by direction.
        trials: number of trials of each world, at least 100.
        confidence: probability that all lower bounds hold together, strictly between 0 and 1.
        seed: seed of all random streams, at least 0.
        also: proved bounds at further δ, for the same directions. With few trials an error of a few
            per cent is detected only at a large δ, where events are frequent.
        tell: function that is called with the number of trials played and the number of all trials.

    Raises:
        ParameterError: a value outside its domain.
    """
    # Lower bounds to compute, which share the probability of error.
    checks.count(FEWEST, trials=trials)
    checks.count(0, seed=seed)
    checks.open_unit(confidence=confidence)
    started, streams = time.perf_counter(), SimulationStreams(seed)
    asked = _asked(stated, also, 1.0 - confidence)
    # Pilot: each game chooses its events on separate trials, and the best game is kept.
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
    # Count the events on the remaining trials.
    worlds = _worlds(chosen[0], rest, streams, "counted", 0)
    tell(trials, trials)
    found = [one.counted(event, worlds) for one, event in zip(asked, chosen[1], strict=True)]
    # Collect the bounds by statement, with the ROC curve of each direction.
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
    """Lower bound to compute: its direction, proved upper bound, δ and failure probability."""

    direction: str
    proved: float
    delta: float
    error: float

    def event(self, worlds: _TwoWorlds, trials: int) -> tuple[Event, float]:
        """Event with the largest predicted bound, and the ratio of predicted to proved bound."""
        ours, others = worlds[::-1] if self.direction == "add" else worlds
        event, epsilon = best_event(ours, others, trials, self.delta, self.error)
        return event, epsilon / self.proved if self.proved > 0 else epsilon

    def counted(self, event: Event, worlds: _TwoWorlds) -> Counted:
        """Counts of the event in trials of both worlds, and the lower bounds from them."""
        ours, others = _in_order(worlds, self.direction, event.statistic)
        return counted(event, ours, others, self.delta, self.error)


def _asked(stated: Statement, also: Sequence[Statement], error: float) -> list[_Asked]:
    """Lower bounds to compute, one for each δ and direction; their errors sum to ``error``."""
    shares = [1.0] if not also else [1.0 - _ALSO, *[_ALSO / len(also)] * len(also)]
    return [
        _Asked(name, proved.upper, one.delta, share * error / len(one.directions))
        for one, share in zip((stated, *also), shares, strict=True)
        for name, proved in one.directions.items()
    ]


def _by_statement(found: Sequence[Counted], stated: Sequence[Statement]) -> list[FoundAt]:
    """Counts of the events, grouped by δ and direction, in the order of ``stated``."""
    left = iter(found)
    return [FoundAt(one, {name: next(left) for name in one.directions}) for one in stated]


def _worlds(game: Game, trials: int, streams: SimulationStreams, *name: str | int) -> _TwoWorlds:
    """Scores of trials of world 0 and of world 1."""
    return [game.scores(world, trials, streams, *name) for world in (0, 1)]


def _in_order(worlds: _TwoWorlds, direction: str, statistic: str) -> tuple[FloatArray, FloatArray]:
    """Scores in the world in which a direction's events are likely, and scores in the other."""
    ours, others = worlds[::-1] if direction == "add" else worlds
    return ours[statistic], others[statistic]


def _chosen(worlds: _TwoWorlds, asked: Sequence[_Asked], trials: int) -> tuple[list[Event], float]:
    """Best event for each bound, and the largest of the ratios of predicted to proved bound."""
    pairs = [one.event(worlds, trials) for one in asked]
    return [event for event, _ in pairs], max(part for _, part in pairs)
