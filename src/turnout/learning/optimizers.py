"""Server optimizers, learning-rate schedules and averages of iterates, as pure functions of state.

`build_optimizer_of` builds the optimizer of a plan with its schedule and average;
`build_optimizer`, `build_schedule` and `build_averaging` build these separately.
`register_optimizer` gives an optimizer its name in plans and its title in reports.

An optimizer has the methods ``init(parameters) -> state``, ``update(parameters, state, direction,
step) -> (parameters, state)`` and ``released(parameters, state) -> parameters``. No method changes
its arguments. The state is a flat dict of arrays, which checkpoints store as it is. Arithmetic is
in the dtype of the parameters.

An optimizer reads releases only, so its steps are postprocessing and cost no privacy. The same
holds for averages of iterates, which remove much of the noise of the last steps.
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
"""Function from a step, counted from 0, to the learning rate."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Learning-rate schedule with the same rate at every step.

    Raises:
        ParameterError: a rate that is not a positive number.
    """

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """Learning rate at ``step``."""
        return self.rate


def as_schedule(rate: Schedule | float) -> Schedule:
    """Schedule from a schedule or from a constant learning rate.

    Raises:
        ParameterError: a constant that is not a positive number.
    """
    return rate if callable(rate) else Constant(rate)


@dataclass(frozen=True, slots=True)
class _Falling:
    """Schedule that falls from ``rate`` at step 0 to ``final`` · ``rate`` at step ``steps``."""

    rate: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)
        checks.count(steps=self.steps)
        checks.probability(final=self.final)


@dataclass(frozen=True, slots=True)
class Linear(_Falling):
    """Learning rate that falls linearly from ``rate`` to ``final`` · ``rate`` at step ``steps``.

    Raises:
        ParameterError: ``rate`` is not above 0, ``steps`` below 1, or ``final`` not in [0, 1].
    """

    def __call__(self, step: int) -> float:
        """Learning rate at ``step``."""
        done = min(step / self.steps, 1.0)
        return self.rate * (1 - (1 - self.final) * done)


@dataclass(frozen=True, slots=True)
class Cosine(_Falling):
    """Learning rate that falls along half a cosine wave to ``final`` · ``rate`` at step ``steps``.

    Raises:
        ParameterError: ``rate`` is not above 0, ``steps`` below 1, or ``final`` not in [0, 1].
    """

    def __call__(self, step: int) -> float:
        """Learning rate at ``step``."""
        wave = (1 + math.cos(math.pi * min(step / self.steps, 1.0))) / 2
        return self.rate * (self.final + (1 - self.final) * wave)


@dataclass(frozen=True, slots=True)
class InverseSquareRoot:
    """Learning rate ``rate`` / √(step + 1), from the theory of stochastic gradient descent.

    Raises:
        ParameterError: a rate that is not a positive number.
    """

    rate: float

    def __post_init__(self) -> None:
        checks.positive(rate=self.rate)

    def __call__(self, step: int) -> float:
        """Learning rate at ``step``."""
        return self.rate / math.sqrt(step + 1)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Schedule ``then`` multiplied by a factor that rises to 1 over the first ``steps`` steps.

    Raises:
        ParameterError: ``steps`` is negative, or ``then`` is not a schedule or a positive number.
    """

    then: Schedule | float
    steps: int

    def __post_init__(self) -> None:
        as_schedule(self.then)
        checks.count(0, steps=self.steps)

    def __call__(self, step: int) -> float:
        """Learning rate at ``step``."""
        return as_schedule(self.then)(step) * min(1.0, (step + 1) / (self.steps + 1))


SCHEDULES: dict[str, Callable[[float, int], Schedule]] = {
    "constant": lambda rate, steps: Constant(rate),
    "linear": Linear,
    "cosine": Cosine,
    "inverse-sqrt": lambda rate, steps: InverseSquareRoot(rate),
}
"""Schedules by their names in plans, as functions of the largest rate and the number of updates."""


def build_schedule(name: str, rate: float, steps: int, warm_up: int = 0) -> Schedule:
    """Schedule with the given name.

    Args:
        name: name of a schedule in `SCHEDULES`.
        rate: largest learning rate, above 0.
        steps: number of updates of the whole run.
        warm_up: number of updates at the beginning in which the learning rate rises.

    Raises:
        ParameterError: an unknown name, or a number outside its domain.
    """
    if name not in SCHEDULES:
        raise ParameterError("optimizer.schedule", name, f"one of {', '.join(SCHEDULES)}")
    schedule = SCHEDULES[name](rate, steps)
    return WarmUp(schedule, warm_up) if warm_up else schedule


Vector = NDArray[np.floating]
State = dict[str, NDArray]


def prefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """Optimizer state with a prefix added to each name."""
    return {prefix + name: array for name, array in state.items()}


def unprefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """Entries of a state whose names have a prefix, with the prefix removed."""
    return {n.removeprefix(prefix): array for n, array in state.items() if n.startswith(prefix)}


class Optimizer(Protocol):
    """Interface of server optimizers, which descend along released directions."""

    def init(self, parameters: Vector) -> State:
        """Optimizer state before the first step."""
        ...

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and optimizer state; ``step`` counts updates from 0."""
        ...

    def released(self, parameters: Vector, state: State) -> Vector:
        """Released parameters: the current iterate or an average of past iterates."""
        ...


class _Plain:
    """Base of optimizers that release the last iterate."""

    __slots__ = ()

    def released(self, parameters: Vector, state: State) -> Vector:
        """Current parameters, unchanged."""
        return parameters


@dataclass(frozen=True, slots=True)
class SGD(_Plain):
    """Stochastic gradient descent, with optional momentum.

    For direction g, learning rate η, momentum μ, velocity v and weight decay λ, a step is
    v ← μ v + g; θ ← θ − η (v + λ θ). With Nesterov momentum, g + μ v takes the place of v in the
    second assignment. Fields: η is ``rate``, μ ``momentum`` in [0, 1), λ ``weight_decay`` ≥ 0.

    Source: the conventions of ``torch.optim.SGD`` without dampening. Unlike there, weight decay
        acts on the parameters directly, not through the velocity.

    Raises:
        ParameterError: a value outside its domain, or Nesterov momentum with momentum 0.
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
            raise ParameterError("momentum", self.momentum, "above 0 with Nesterov momentum")

    def init(self, parameters: Vector) -> State:
        """Initial state: zero velocity; an empty state without momentum."""
        return {"velocity": np.zeros_like(parameters)} if self.momentum else {}

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and velocity after one step of gradient descent."""
        move = _as_parameters(direction, parameters)
        after: State = {}
        if self.momentum:
            velocity = _scaled(self.momentum, state["velocity"]) + move
            after = {"velocity": velocity}
            move = move + _scaled(self.momentum, velocity) if self.nesterov else velocity
        return _moved(parameters, move, as_schedule(self.rate)(step), self.weight_decay), after


@dataclass(frozen=True, slots=True)
class Adam(_Plain):
    """Optimizer Adam: steps scaled by running means of directions and of squared directions.

    Source: Kingma and Ba, *Adam* (ICLR 2015), Algorithm 1, with the defaults of PyTorch.
        Weight decay acts on the parameters directly (Loshchilov and Hutter, ICLR 2019).

    Attributes:
        rate: learning rate, above 0, or a schedule.
        first_decay: decay of the mean of directions per step, in (0, 1).
        second_decay: decay of the mean of squared directions per step, in (0, 1).
        stabilizer: number that is added to the root of the mean square, above 0.
        weight_decay: factor of the weight decay, at least 0.

    Raises:
        ParameterError: a value outside its domain.
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
        """Initial state: running means of zero."""
        return {
            "mean": np.zeros_like(parameters),
            "square": np.zeros_like(parameters),
            "updates": np.zeros(1, dtype=np.int64),
        }

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters and running means, with bias correction."""
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
    """Optimizer whose iterates are projected onto the ball ‖θ‖₂ ≤ ``radius``.

    Source: Algorithm 4.3.1 (girgis2023thesis), where the ball is the set C.

    Raises:
        ParameterError: a radius that is not positive.
    """

    optimizer: Optimizer
    radius: float

    def __post_init__(self) -> None:
        checks.positive(radius=self.radius)

    def init(self, parameters: Vector) -> State:
        """Initial state of the inner optimizer."""
        return self.optimizer.init(parameters)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next parameters of the inner optimizer, projected onto the ball, and its state."""
        moved, after = self.optimizer.update(parameters, state, direction, step)
        length = float(np.linalg.norm(moved.astype(np.float64)))
        return (moved if length <= self.radius else _scaled(self.radius / length, moved)), after

    def released(self, parameters: Vector, state: State) -> Vector:
        """Released parameters of the inner optimizer."""
        return self.optimizer.released(parameters, state)


def _as_parameters(direction: Vector, parameters: Vector) -> Vector:
    """Direction converted to the dtype of the parameters."""
    if direction.shape != parameters.shape:
        raise ParameterError("direction", direction.shape, f"shape {parameters.shape}")
    return direction.astype(parameters.dtype, copy=False)


def _moved(parameters: Vector, move: Vector, rate: float, weight_decay: float) -> Vector:
    """Parameters after a step: parameters − rate · (move + weight_decay · parameters)."""
    if weight_decay:
        move = move + _scaled(weight_decay, parameters)
    return parameters - _scaled(rate, move)


def _scaled(factor: float, vector: Vector) -> Vector:
    """Vector times a number, in the dtype of the vector."""
    return vector.dtype.type(factor) * vector


OptimizerBuilder = Callable[[Schedule | float, float, float], Optimizer]
"""Function that builds an optimizer from learning rate, momentum and weight decay."""


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """Entry of the optimizer registry: the title of an optimizer and its builder.

    Attributes:
        title: name of the optimizer in reports.
        build: function from learning rate, momentum and weight decay to the optimizer.
    """

    title: str
    build: OptimizerBuilder


_RULES: dict[str, OptimizerRule] = {}


def register_optimizer(name: str, title: str) -> Callable[[OptimizerBuilder], OptimizerBuilder]:
    """Decorator that registers a function as the builder of a named optimizer.

    Runs and reports use only this registration. `plans.sections` lists the names that plans accept.

    Args:
        name: name of the optimizer in plans.
        title: name of the optimizer in reports.

    Raises:
        ParameterError: the name belongs to another optimizer.
    """

    def register(build: OptimizerBuilder) -> OptimizerBuilder:
        if name in _RULES:
            raise ParameterError("optimizer", name, "a name that no other optimizer has")
        _RULES[name] = OptimizerRule(title, build)
        return build

    return register


def optimizer_rule(name: str) -> OptimizerRule:
    """Registry entry of the optimizer with the given name.

    Raises:
        ParameterError: no optimizer has the name.
    """
    if name not in _RULES:
        raise ParameterError("optimizer.name", name, f"one of {', '.join(_RULES)}")
    return _RULES[name]


@register_optimizer("sgd", "SGD")
def _sgd(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Gradient descent with or without momentum, from the settings of a run."""
    return SGD(rate, momentum, weight_decay=weight_decay)


@register_optimizer("nesterov", "Nesterov's accelerated SGD")
def _nesterov(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Gradient descent with Nesterov momentum, from the settings of a run."""
    return SGD(rate, momentum, nesterov=True, weight_decay=weight_decay)


@register_optimizer("adam", "Adam")
def _adam(rate: Schedule | float, momentum: float, weight_decay: float) -> Optimizer:
    """Adam, from the settings of a run; two decay rates replace the momentum."""
    if momentum:
        raise ParameterError(
            "optimizer.momentum", momentum, "0 with adam, which has decay rates instead"
        )
    return Adam(rate, weight_decay=weight_decay)


def build_optimizer(
    name: str, rate: Schedule | float, *, momentum: float = 0.0, weight_decay: float = 0.0
) -> Optimizer:
    """Optimizer with the given name: "sgd", "nesterov", "adam" or another registered optimizer.

    Args:
        name: name of a registered optimizer.
        rate: learning rate, above 0, or a schedule of it.
        momentum: in [0, 1); above 0 for "nesterov", 0 for "adam".
        weight_decay: weight-decay factor λ, at least 0.

    Raises:
        ParameterError: an unknown name, a number outside its domain, or a momentum that the
            optimizer does not accept.
    """
    return optimizer_rule(name).build(rate, momentum, weight_decay)


_AVERAGE = "average."


class Averaging(Protocol):
    """Interface of running averages of iterates."""

    def init(self, parameters: Vector) -> State:
        """State of the average before the first update."""
        ...

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State of the average after the iterate of update ``step`` (counted from 0)."""
        ...

    def value(self, state: State, parameters: Vector) -> Vector:
        """Current average, in the dtype of the current iterate ``parameters``."""
        ...


@dataclass(frozen=True, slots=True)
class LastIterate:
    """Averaging rule that returns the last iterate."""

    def init(self, parameters: Vector) -> State:
        """Empty state, since no average is kept."""
        return {}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """Empty state, since no average is kept."""
        return {}

    def value(self, state: State, parameters: Vector) -> Vector:
        """Current iterate, unchanged."""
        return parameters


@dataclass(frozen=True, slots=True)
class ExponentialAverage:
    """Average of iterates whose weights decay by the factor ``decay`` per step and sum to 1.

    Raises:
        ParameterError: a decay outside (0, 1).
    """

    decay: float

    def __post_init__(self) -> None:
        checks.open_unit(decay=self.decay)

    def init(self, parameters: Vector) -> State:
        """Initial state: an empty average of weight 0."""
        return {"average": np.zeros(parameters.shape), "weight": np.zeros(1)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State after the average has moved towards the new iterate."""
        share = 1 - self.decay
        return {
            "average": self.decay * state["average"] + share * parameters,
            "weight": self.decay * state["weight"] + share,
        }

    def value(self, state: State, parameters: Vector) -> Vector:
        """Exponential average; the current iterate before the first update."""
        if state["weight"][0] == 0:
            return parameters
        return (state["average"] / state["weight"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class TailAverage:
    """Mean of the iterates from update ``first_step`` on, counted from 0.

    Raises:
        ParameterError: ``first_step`` is negative or not a whole number.
    """

    first_step: int

    def __post_init__(self) -> None:
        checks.count(0, first_step=self.first_step)

    def init(self, parameters: Vector) -> State:
        """Initial state: an empty sum."""
        return {"sum": np.zeros(parameters.shape), "count": np.zeros(1, dtype=np.int64)}

    def update(self, state: State, parameters: Vector, step: int) -> State:
        """State with the new iterate added to the sum, if ``first_step`` is reached."""
        if step < self.first_step:
            return state
        return {"sum": state["sum"] + parameters, "count": state["count"] + 1}

    def value(self, state: State, parameters: Vector) -> Vector:
        """Mean of the iterates from ``first_step`` on; the current iterate before that step."""
        if state["count"][0] == 0:
            return parameters
        return (state["sum"] / state["count"]).astype(parameters.dtype)


@dataclass(frozen=True, slots=True)
class AveragedOptimizer:
    """Optimizer that releases a running average of its iterates.

    The inner optimizer continues from the last iterate.
    """

    optimizer: Optimizer
    averaging: Averaging

    def init(self, parameters: Vector) -> State:
        """Initial states of the inner optimizer and of the average."""
        average = self.averaging.init(parameters)
        return self.optimizer.init(parameters) | prefixed(_AVERAGE, average)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """Next iterate of the inner optimizer, and the states with the updated average."""
        own = {key: value for key, value in state.items() if not key.startswith(_AVERAGE)}
        parameters, own = self.optimizer.update(parameters, own, direction, step)
        average = self.averaging.update(unprefixed(_AVERAGE, state), parameters, step)
        return parameters, own | prefixed(_AVERAGE, average)

    def released(self, parameters: Vector, state: State) -> Vector:
        """Average of the iterates."""
        return self.averaging.value(unprefixed(_AVERAGE, state), parameters)


def build_averaging(name: str, steps: int, decay: float = 0.99, tail: float = 0.5) -> Averaging:
    """Averaging rule with the given name.

    Args:
        name: "none", "ema" or "tail".
        steps: number of updates of the whole run.
        decay: factor by which the weight of an iterate falls per step, in (0, 1), for "ema".
        tail: fraction of the updates, at the end of the run, that "tail" averages, in [0, 1].

    Raises:
        ParameterError: an unknown name, or a number outside its domain.
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
    """Optimizer from the settings of a plan, with schedule, projection and average.

    Args:
        section: settings of the optimizer.
        steps: number of updates of the whole run.

    Raises:
        ParameterError: an unknown name, or a number outside its domain.
    """
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
