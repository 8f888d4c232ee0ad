"""Learning rates as functions of the step, from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from turnout.core import checks
from turnout.core.errors import ParameterError

Schedule = Callable[[int], float]
"""The learning rate of each step, counted from 0."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The same rate at every step."""

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """The rate of ``step``."""
        return self.rate


def as_schedule(rate: Schedule | float) -> Schedule:
    """The schedule; of a number, that rate at every step."""
    return rate if callable(rate) else Constant(rate)


@dataclass(frozen=True, slots=True)
class _Falling:
    """From ``rate`` at step 0 to ``final`` · rate at step ``steps``."""

    rate: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.count(steps=self.steps)
        checks.probability(final=self.final)


@dataclass(frozen=True, slots=True)
class Linear(_Falling):
    """Falls evenly from ``rate`` at step 0; would reach ``final`` · rate at step ``steps``."""

    def __call__(self, step: int) -> float:
        """The rate of ``step``."""
        done = min(step / self.steps, 1.0)
        return self.rate * (1 - (1 - self.final) * done)


@dataclass(frozen=True, slots=True)
class Cosine(_Falling):
    """Falls along half a cosine wave from ``rate`` to ``final`` · rate at step ``steps``."""

    def __call__(self, step: int) -> float:
        """The rate of ``step``."""
        wave = (1 + math.cos(math.pi * min(step / self.steps, 1.0))) / 2
        return self.rate * (self.final + (1 - self.final) * wave)


@dataclass(frozen=True, slots=True)
class InverseSquareRoot:
    """``rate`` / √(step + 1): what the theory of stochastic gradient descent asks for."""

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """The rate of ``step``."""
        return self.rate / math.sqrt(step + 1)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Rises evenly over the first ``steps`` steps, and is ``then`` times at most 1."""

    then: Schedule | float
    steps: int

    def __post_init__(self) -> None:
        as_schedule(self.then)
        checks.count(0, steps=self.steps)

    def __call__(self, step: int) -> float:
        """The rate of ``step``."""
        return as_schedule(self.then)(step) * min(1.0, (step + 1) / (self.steps + 1))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": lambda rate, steps: Constant(rate),
    "linear": Linear,
    "cosine": Cosine,
    "inverse-sqrt": lambda rate, steps: InverseSquareRoot(rate),
}
"""Schedules by the name a plan gives them, from the first rate and the steps of the run."""


def build_schedule(name: str, rate: float, steps: int, warm_up: int = 0) -> Schedule:
    """The schedule of that name, a key of `SCHEDULES`, whose largest rate is ``rate``.

    ``steps`` counts the updates of the whole run, ``warm_up`` those in which the rate rises first.
    """
    if name not in SCHEDULES:
        raise ParameterError("optimizer.schedule", name, f"one of {', '.join(SCHEDULES)}")
    schedule = SCHEDULES[name](rate, steps)
    return WarmUp(schedule, warm_up) if warm_up else schedule
