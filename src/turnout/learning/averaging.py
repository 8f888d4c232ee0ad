"""Averages of the iterates: what is evaluated and released instead of the last one.

The iterates are released already, so averaging them is free; it takes out much of the noise
that the last few steps added. Pure functions of explicit state, as in
`turnout.learning.optimizers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.learning.optimizers import Optimizer, State, Vector, prefixed, unprefixed

_AVERAGE = "average."


class Averaging(Protocol):
    """A running average of iterates."""

    def init(self, parameters: Vector) -> State:
        """The state before the first update."""
        ...

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """The state after the iterate that update ``step`` (from 0) led to."""
        ...

    def value(self, state: State, parameters: Vector) -> Vector:
        """The average so far, in the dtype of ``parameters``, the current iterate."""
        ...


@dataclass(frozen=True, slots=True)
class LastIterate:
    """No averaging."""

    def init(self, parameters: Vector) -> State:
        """Nothing."""
        return {}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """Nothing."""
        return {}

    def value(self, state: State, parameters: Vector) -> Vector:
        """The current iterate."""
        return parameters


@dataclass(frozen=True, slots=True)
class ExponentialAverage:
    """Weights that fall by ``decay`` a step into the past, adding up to 1 from the start."""

    decay: float

    def __post_init__(self) -> None:
        checks.open_unit(decay=self.decay)

    def init(self, parameters: Vector) -> State:
        """An empty average, of weight 0."""
        return {"average": np.zeros(parameters.shape), "weight": np.zeros(1)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """The average moved towards the iterate."""
        share = 1 - self.decay
        return {
            "average": self.decay * state["average"] + share * parameters,
            "weight": self.decay * state["weight"] + share,
        }

    def value(self, state: State, parameters: Vector) -> Vector:
        """The average; the current iterate before the first update."""
        if state["weight"][0] == 0:
            return parameters
        return (state["average"] / state["weight"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class TailAverage:
    """The plain mean of the iterates from update ``first_step`` on."""

    first_step: int

    def __post_init__(self) -> None:
        checks.count(0, first_step=self.first_step)

    def init(self, parameters: Vector) -> State:
        """An empty sum."""
        return {"sum": np.zeros(parameters.shape), "count": np.zeros(1, dtype=np.int64)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """The sum with the iterate added, once its time has come."""
        if step < self.first_step:
            return state
        return {"sum": state["sum"] + parameters, "count": state["count"] + 1}

    def value(self, state: State, parameters: Vector) -> Vector:
        """The mean; the current iterate before there is one."""
        if state["count"][0] == 0:
            return parameters
        return (state["sum"] / state["count"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class Averaged:
    """An optimiser whose iterates are averaged; the average is what is released.

    The optimiser itself goes on from the last iterate.
    """

    optimizer: Optimizer
    averaging: Averaging

    def init(self, parameters: Vector) -> State:
        """Both states side by side."""
        average = self.averaging.init(parameters)
        return self.optimizer.init(parameters) | prefixed(_AVERAGE, average)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """The next iterate, and the average with it."""
        own = {key: value for key, value in state.items() if not key.startswith(_AVERAGE)}
        parameters, own = self.optimizer.update(parameters, own, direction, step)
        average = self.averaging.update(unprefixed(_AVERAGE, state), parameters, step)
        return parameters, own | prefixed(_AVERAGE, average)

    def released(self, parameters: Vector, state: State) -> Vector:
        """The average."""
        return self.averaging.value(unprefixed(_AVERAGE, state), parameters)


def build_averaging(name: str, steps: int, decay: float = 0.99, tail: float = 0.5) -> Averaging:
    """The averaging of that name: "none", "ema" (of ``decay``) or "tail".

    ``tail`` is the share of all ``steps`` updates, at their end, that "tail" averages.
    """
    if name == "none":
        return LastIterate()
    if name == "ema":
        return ExponentialAverage(decay)
    if name == "tail":
        checks.probability(tail=tail)
        return TailAverage(steps - round(tail * steps))
    raise ParameterError("optimizer.averaging", name, "one of none, ema, tail")
