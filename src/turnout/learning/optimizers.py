"""Server optimizers, learning-rate schedules and averages of iterates, as pure functions of state.

`build_optimizer_of` builds all that a plan's table says; `build_optimizer`, `build_schedule` and
`build_averaging` build one part each. `register_optimizer` gives an optimizer its name in plans and
its title in reports.

An optimizer is two functions, ``init(parameters) -> state`` and ``update(parameters, state,
direction, step) -> (parameters, state)``. Neither changes its arguments, and the state is a flat
dict of arrays, so a checkpoint is that dict. Whatever is done here is done to a release, so it
costs no privacy. Arithmetic is in the dtype of the parameters. Iterates are released already, so
averaging them is free; it removes much of the noise that the last few steps added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from turnout.plans.sections import OptimizerSection

Schedule = Callable[[int], float]
"""The learning rate of each step, counted from 0."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Schedule with the same rate at every step."""

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """Learning rate of ``step``."""
        return self.rate


def as_schedule(rate: Schedule | float) -> Schedule:
    """Schedule from a schedule or from a constant rate."""
    return rate if callable(rate) else Constant(rate)


@dataclass(frozen=True, slots=True)
class _Falling:
    """Base of schedules that fall from ``rate`` at step 0 to ``final`` · rate at step ``steps``."""

    rate: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.count(steps=self.steps)
        checks.probability(final=self.final)


@dataclass(frozen=True, slots=True)
class Linear(_Falling):
    """Schedule that falls linearly from ``rate`` to ``final`` · rate at step ``steps``."""

    def __call__(self, step: int) -> float:
        """Learning rate of ``step``."""
        done = min(step / self.steps, 1.0)
        return self.rate * (1 - (1 - self.final) * done)


@dataclass(frozen=True, slots=True)
class Cosine(_Falling):
    """Schedule that falls along half a cosine wave to ``final`` · rate at step ``steps``."""

    def __call__(self, step: int) -> float:
        """Learning rate of ``step``."""
        wave = (1 + math.cos(math.pi * min(step / self.steps, 1.0))) / 2
        return self.rate * (self.final + (1 - self.final) * wave)


@dataclass(frozen=True, slots=True)
class InverseSquareRoot:
    """Schedule ``rate`` / √(step + 1), from the theory of stochastic gradient descent."""

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """Learning rate of ``step``."""
        return self.rate / math.sqrt(step + 1)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Schedule that multiplies ``then`` by a factor rising to 1 over the first ``steps`` steps."""

    then: Schedule | float
    steps: int

    def __post_init__(self) -> None:
        as_schedule(self.then)
        checks.count(0, steps=self.steps)

    def __call__(self, step: int) -> float:
        """Learning rate of ``step``."""
        return as_schedule(self.then)(step) * min(1.0, (step + 1) / (self.steps + 1))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": lambda rate, steps: Constant(rate),
    "linear": Linear,
    "cosine": Cosine,
    "inverse-sqrt": lambda rate, steps: InverseSquareRoot(rate),
}
"""Schedules by the name a plan gives them, from the first rate and the steps of the run."""


def build_schedule(name: str, rate: float, steps: int, warm_up: int = 0) -> Schedule:
    """Schedule by its name in `SCHEDULES`, with the largest rate ``rate``.

    ``steps`` counts the updates of the whole run, ``warm_up`` those in which the rate rises first.
    """
    if name not in SCHEDULES:
        raise ParameterError("optimizer.schedule", name, f"one of {', '.join(SCHEDULES)}")
    schedule = SCHEDULES[name](rate, steps)
    return WarmUp(schedule, warm_up) if warm_up else schedule


Vector = NDArray[np.floating]
State = dict[str, NDArray]


def prefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """State with a prefix added to each name."""
    return {prefix + name: array for name, array in state.items()}


def unprefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """Part of a state whose names have a prefix, with the prefix removed."""
    return {n.removeprefix(prefix): array for n, array in state.items() if n.startswith(prefix)}


class Optimizer(Protocol):
    """Server optimizer: descends along the directions of the releases."""

    def init(self, parameters: Vector) -> State:
        """State before the first step."""
        ...

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and state; ``step`` counts updates from 0."""
        ...

    def released(self, parameters: Vector, state: State) -> Vector:
        """Released parameters: the current ones, or an average of past ones."""
        ...


class _Plain:
    """Base of optimizers that release their last iterate."""

    __slots__ = ()

    def released(self, parameters: Vector, state: State) -> Vector:
        """Current parameters."""
        return parameters


@dataclass(frozen=True, slots=True)
class SGD(_Plain):
    """Gradient descent, with optional momentum.

    v ← μ v + g; θ ← θ − η (v + λ θ), or with Nesterov's look-ahead g + μ v in place of v.

    Source: the conventions of ``torch.optim.SGD`` without dampening. Weight decay λ acts on
    the parameters directly, not through the velocity.
    """

    rate: Schedule | float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        as_schedule(self.rate)
        checks.non_negative(weight_decay=self.weight_decay)
        if self.momentum:
            checks.open_unit(momentum=self.momentum)
        elif self.nesterov:
            raise ParameterError("momentum", self.momentum, "above 0 with Nesterov's look-ahead")

    def init(self, parameters: Vector) -> State:
        """State: zero velocity, or nothing without momentum."""
        return {"velocity": np.zeros_like(parameters)} if self.momentum else {}

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and velocity."""
        move = _as_parameters(direction, parameters)
        after: State = {}
        if self.momentum:
            velocity = _scaled(self.momentum, state["velocity"]) + move
            after = {"velocity": velocity}
            move = move + _scaled(self.momentum, velocity) if self.nesterov else velocity
        return _moved(parameters, move, as_schedule(self.rate)(step), self.weight_decay), after


@dataclass(frozen=True, slots=True)
class Adam(_Plain):
    """Optimizer Adam: steps scaled by running means of directions and of their squares.

    Source: Kingma and Ba, *Adam* (ICLR 2015), Algorithm 1, with the defaults of PyTorch.
        Weight decay acts on the parameters directly (Loshchilov and Hutter, ICLR 2019).
    """

    rate: Schedule | float
    first_decay: float = 0.9
    second_decay: float = 0.999
    stabilizer: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        as_schedule(self.rate)
        checks.non_negative(weight_decay=self.weight_decay)
        checks.open_unit(first_decay=self.first_decay, second_decay=self.second_decay)
        checks.positive(stabilizer=self.stabilizer)

    def init(self, parameters: Vector) -> State:
        """State: zero means."""
        return {
            "mean": np.zeros_like(parameters),
            "square": np.zeros_like(parameters),
            "updates": np.zeros(1, dtype=np.int64),
        }

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and means, corrected for their start at zero."""
        move = _as_parameters(direction, parameters)
        first, second = self.first_decay, self.second_decay
        mean = _scaled(first, state["mean"]) + _scaled(1 - first, move)
        square = _scaled(second, state["square"]) + _scaled(1 - second, move * move)
        updates = state["updates"] + 1
        root = np.sqrt(square) / parameters.dtype.type(np.sqrt(1 - second ** updates[0]))
        move = mean / (root + parameters.dtype.type(self.stabilizer))
        move = move / parameters.dtype.type(1 - first ** updates[0])
        after = {"mean": mean, "square": square, "updates": updates}
        return _moved(parameters, move, as_schedule(self.rate)(step), self.weight_decay), after


@dataclass(frozen=True, slots=True)
class Projected:
    """Optimizer whose iterates are projected onto a ball around 0.

    Source: the set C of Algorithm 4.3.1 (girgis2023thesis), here ‖θ‖₂ ≤ radius.
    """

    optimizer: Optimizer
    radius: float

    def __post_init__(self) -> None:
        checks.positive(radius=self.radius)

    def init(self, parameters: Vector) -> State:
        """State of the inner optimizer."""
        return self.optimizer.init(parameters)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Projection of the inner optimizer's next parameters onto the ball, and its state."""
        moved, after = self.optimizer.update(parameters, state, direction, step)
        length = float(np.linalg.norm(moved.astype(np.float64)))
        return (moved if length <= self.radius else _scaled(self.radius / length, moved)), after

    def released(self, parameters: Vector, state: State) -> Vector:
        """Released parameters of the inner optimizer."""
        return self.optimizer.released(parameters, state)


def _as_parameters(direction: Vector, parameters: Vector) -> Vector:
    """Direction in the dtype of the parameters."""
    if direction.shape != parameters.shape:
        raise ParameterError("direction", direction.shape, f"shape {parameters.shape}")
    return direction.astype(parameters.dtype, copy=False)


def _moved(parameters: Vector, move: Vector, rate: float, weight_decay: float) -> Vector:
    """Parameters after a step: θ − η (move + λ θ)."""
    if weight_decay:
        move = move + _scaled(weight_decay, parameters)
    return parameters - _scaled(rate, move)


def _scaled(factor: float, vector: Vector) -> Vector:
    """Multiple of the vector, in the same dtype."""
    return vector.dtype.type(factor) * vector


OptimizerBuilder = Callable[[Schedule | float, float, float], Optimizer]
"""Function that builds an optimizer from learning rate, momentum and weight decay."""


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """An optimizer that plans can name, as `register_optimizer` registers it.

    Attributes:
        title: its name in reports.
        build: builds it from learning rate, momentum and weight decay.
    """

    title: str
    build: OptimizerBuilder


_RULES: dict[str, OptimizerRule] = {}


def register_optimizer(name: str, title: str) -> Callable[[OptimizerBuilder], OptimizerBuilder]:
    """Decorator that registers the function that builds an optimizer.

    Runs and reports read the registration alone. `plans.sections` lists the names that plans take.

    Args:
        name: word for the optimizer in plans.
        title: its name in reports.

    Raises:
        ParameterError: another optimizer has the name.
    """

    def register(build: OptimizerBuilder) -> OptimizerBuilder:
        if name in _RULES:
            raise ParameterError("optimizer", name, "a name that no other optimizer has")
        _RULES[name] = OptimizerRule(title, build)
        return build

    return register


def optimizer_rule(name: str) -> OptimizerRule:
    """Registered optimizer of a name.

    Raises:
        ParameterError: no optimizer has the name.
    """
    if name not in _RULES:
        raise ParameterError("optimizer.name", name, f"one of {', '.join(_RULES)}")
    return _RULES[name]


@register_optimizer("sgd", "SGD")
def _sgd(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Gradient descent, with or without momentum."""
    return SGD(rate, momentum, weight_decay=weight_decay)


@register_optimizer("nesterov", "Nesterov's accelerated SGD")
def _nesterov(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Gradient descent with Nesterov's look-ahead."""
    return SGD(rate, momentum, nesterov=True, weight_decay=weight_decay)


@register_optimizer("adam", "Adam")
def _adam(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Adam, which has two decay rates in place of a momentum."""
    if momentum:
        raise ParameterError("optimizer.momentum", momentum, "0 with adam, which has its own")
    return Adam(rate, weight_decay=weight_decay)


def build_optimizer(
    name: str, rate: Schedule | float, *, momentum: float = 0.0, weight_decay: float = 0.0
) -> Optimizer:
    """Optimizer by name: "sgd" (with ``momentum``), "nesterov" or "adam".

    Args:
        name: word of a registered optimizer.
        rate: learning rate, above 0, or a schedule of it.
        momentum: in [0, 1); above 0 for "nesterov", 0 for "adam".
        weight_decay: factor λ of the pull towards 0, at least 0.

    Raises:
        ParameterError: an unknown name, or a momentum that does not fit it.
    """
    return optimizer_rule(name).build(rate, momentum, weight_decay)


_AVERAGE = "average."


class Averaging(Protocol):
    """Running average of iterates."""

    def init(self, parameters: Vector) -> State:
        """State before the first update."""
        ...

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State after the iterate of update ``step`` (counted from 0)."""
        ...

    def value(self, state: State, parameters: Vector) -> Vector:
        """Average so far, in the dtype of ``parameters``, the current iterate."""
        ...


@dataclass(frozen=True, slots=True)
class LastIterate:
    """Averaging that returns the last iterate."""

    def init(self, parameters: Vector) -> State:
        """Empty state."""
        return {}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """Empty state."""
        return {}

    def value(self, state: State, parameters: Vector) -> Vector:
        """Current iterate."""
        return parameters


@dataclass(frozen=True, slots=True)
class ExponentialAverage:
    """Average with weights that fall by ``decay`` for each step into the past and sum to 1."""

    decay: float

    def __post_init__(self) -> None:
        checks.open_unit(decay=self.decay)

    def init(self, parameters: Vector) -> State:
        """State: an empty average, of weight 0."""
        return {"average": np.zeros(parameters.shape), "weight": np.zeros(1)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State with the average moved towards the iterate."""
        share = 1 - self.decay
        return {
            "average": self.decay * state["average"] + share * parameters,
            "weight": self.decay * state["weight"] + share,
        }

    def value(self, state: State, parameters: Vector) -> Vector:
        """Average; the current iterate before the first update."""
        if state["weight"][0] == 0:
            return parameters
        return (state["average"] / state["weight"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class TailAverage:
    """Plain mean of the iterates from update ``first_step`` on."""

    first_step: int

    def __post_init__(self) -> None:
        checks.count(0, first_step=self.first_step)

    def init(self, parameters: Vector) -> State:
        """State: an empty sum."""
        return {"sum": np.zeros(parameters.shape), "count": np.zeros(1, dtype=np.int64)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State with the iterate added to the sum, from ``first_step`` on."""
        if step < self.first_step:
            return state
        return {"sum": state["sum"] + parameters, "count": state["count"] + 1}

    def value(self, state: State, parameters: Vector) -> Vector:
        """Mean; the current iterate before ``first_step``."""
        if state["count"][0] == 0:
            return parameters
        return (state["sum"] / state["count"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class AveragedOptimizer:
    """Optimizer that releases an average of its iterates.

    The optimiser itself goes on from the last iterate.
    """

    optimizer: Optimizer
    averaging: Averaging

    def init(self, parameters: Vector) -> State:
        """States of the optimizer and of the average."""
        average = self.averaging.init(parameters)
        return self.optimizer.init(parameters) | prefixed(_AVERAGE, average)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next iterate, and the updated average."""
        own = {key: value for key, value in state.items() if not key.startswith(_AVERAGE)}
        parameters, own = self.optimizer.update(parameters, own, direction, step)
        average = self.averaging.update(unprefixed(_AVERAGE, state), parameters, step)
        return parameters, own | prefixed(_AVERAGE, average)

    def released(self, parameters: Vector, state: State) -> Vector:
        """Average of the iterates."""
        return self.averaging.value(unprefixed(_AVERAGE, state), parameters)


def build_averaging(name: str, steps: int, decay: float = 0.99, tail: float = 0.5) -> Averaging:
    """Averaging by name: "none", "ema" (with ``decay``) or "tail".

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


def build_optimizer_of(section: OptimizerSection, steps: int) -> Optimizer:
    """Optimizer of a run with a number of moves, averaging included."""
    rate = build_schedule(section.schedule, section.learning_rate, steps, section.warmup_steps)
    optimizer = build_optimizer(
        section.name, rate, momentum=section.momentum, weight_decay=section.weight_decay
    )
    if section.radius is not None:
        optimizer = Projected(optimizer, section.radius)
    if section.averaging == "none":
        return optimizer
    averaging = build_averaging(
        section.averaging, steps, section.averaging_decay, section.averaging_tail
    )
    return AveragedOptimizer(optimizer, averaging)
