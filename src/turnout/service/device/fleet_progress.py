"""Progress of a fleet's turns beside its law's expectation, and the devices that still answer.

A fleet is a trial: it may compare what came with what was expected. A real device never does:
its own turns are all that it knows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from turnout.participation.drawing import expected_turns, is_far_below
from turnout.schemes.codec import law_from_dict
from turnout.service.device.link import Link, UnreachableError
from turnout.service.device.memory import Memory
from turnout.service.wire import STATUS_PATH, Phase

_AHEAD = "to come"
_REASONS = {
    "late": "they came late: steps are too short for so many devices in one process; more "
    "--processes, or longer steps",
    "missed": "their steps went by: the devices were not there, or too busy to look",
    "unconfirmed": "no receipt came back for them",
    "passed over": "their steps were closed before the update was sent",
    _AHEAD: "their devices ended early",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The states of the turns of some devices.

    Attributes:
        tally: how many turns ended how, or are to come.
        taken: those in which a device came and was taken.
        expected, variance: turns that the law lets expect by now, and its bound.
    """

    tally: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Standing) -> Standing:
        """Both together; clients draw independently."""
        return Standing(
            self.tally + other.tally,
            self.taken + other.taken,
            self.expected + other.expected,
            self.variance + other.variance,
        )

    def warning(self) -> str:
        """The warnings of counts far below their expectation; empty where there are none."""
        if not is_far_below(self.taken, self.expected, self.variance):
            return ""
        said = f"{self.taken} of {self.expected:.0f} expected turns were taken"
        lost = {what: self.tally[what] for what in _REASONS if self.tally[what]}
        if not lost:
            return f"{said}; the devices drew {self.tally.total()}"
        most = max(lost, key=lambda what: lost[what])
        return f"{said}; {lost[most]} {most}: {_REASONS[most]}"


def standing(memories: Sequence[Memory], steps: int, asks_one: bool) -> Standing:
    """The states of the turns of devices after that many steps."""
    tally = sum((memory.tally() for memory in memories), Counter[str]())
    taken = tally["accepted"]
    if asks_one:
        taken += tally.pop("passed over", 0)
        tally["not asked"] = taken - tally["accepted"]
        tally = +tally
    if not memories:
        return Standing(tally)
    clients = [memory.client for memory in memories]
    law, population = law_from_dict(memories[0].law), memories[0].population
    return Standing(tally, taken, *expected_turns(law, population, clients, steps))


class Watch:
    """Whether the coordinator answers, as all devices of a process notice it together.

    Attributes:
        step: the highest step that it said is in progress.
        finished: whether it said that all steps are over.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard_at = now()
        self._failed_at: float | None = None
        self.step, self.finished = 0, False

    def heard(self) -> None:
        """An answer came."""
        self._heard_at, self._failed_at = self._now(), None

    def failed(self) -> None:
        """No answer came."""
        if self._failed_at is None:
            self._failed_at = self._now()

    def quiet_seconds(self) -> float:
        """Since the last answer; nobody may have asked."""
        return self._now() - self._heard_at

    def silent_seconds(self) -> float:
        """Since the first question without an answer after the last answer; 0 without one."""
        return 0.0 if self._failed_at is None else self._now() - self._failed_at

    def told(self, status: bytes) -> None:
        """A status came; devices read it strictly, here a word in it is enough."""
        with suppress(ValueError, TypeError, KeyError):
            said = json.loads(status)
            self.step = max(self.step, int(said["step"]))
            self.finished = said["phase"] == Phase.FINISHED.value


class WatchedLink(Link):
    """A link that many devices share, and that notices whether anything comes back."""

    def __init__(self, watch: Watch, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._watch = watch

    async def _exchange(self, *arguments: Any, **named: Any) -> Any:
        try:
            answer = await super()._exchange(*arguments, **named)
        except UnreachableError:
            self._watch.failed()
            raise
        self._watch.heard()
        if STATUS_PATH in arguments:
            self._watch.told(answer[-1])
        return answer
