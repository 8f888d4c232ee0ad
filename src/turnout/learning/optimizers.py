"""Server optimizers: pure functions of explicit state that turn a direction into a model change.

An optimiser is two functions, ``init(parameters) -> state`` and ``update(parameters, state,
direction, step) -> (parameters, state)``. Neither changes what it is given, and the state is a
flat dict of arrays, so a checkpoint is that dict. Whatever is done here is done to a release,
so it costs no privacy.

Arithmetic is in the dtype of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.learning.schedules import Schedule, as_schedule

Vector = NDArray[np.floating]
State = dict[str, NDArray]


def prefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """The state under names that begin with a prefix."""
    return {prefix + name: array for name, array in state.items()}


def unprefixed(prefix: str, state: Mapping[str, NDArray]) -> State:
    """The part of a state whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): array for n, array in state.items() if n.startswith(prefix)}


class Optimizer(Protocol):
    """Descends along the directions that it is given."""

    def init(self, parameters: Vector) -> State:
        """The state before the first step."""
        ...

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """The next parameters and state; ``step`` counts updates from 0."""
        ...

    def released(self, parameters: Vector, state: State) -> Vector:
        """The released parameters: the current ones, or an average of past ones."""
        ...


class _Plain:
    """Hands out its last iterate."""

    __slots__ = ()

    def released(self, parameters: Vector, state: State) -> Vector:
        """The parameters."""
        return parameters


@dataclass(frozen=True, slots=True)
class SGD(_Plain):
    """Gradient descent, with momentum if asked for.

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
        """Zero velocity, or nothing without momentum."""
        return {"velocity": np.zeros_like(parameters)} if self.momentum else {}

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """The next parameters and velocity."""
        move = _as_parameters(direction, parameters)
        after: State = {}
        if self.momentum:
            velocity = _scaled(self.momentum, state["velocity"]) + move
            after = {"velocity": velocity}
            move = move + _scaled(self.momentum, velocity) if self.nesterov else velocity
        return _moved(parameters, move, as_schedule(self.rate)(step), self.weight_decay), after


@dataclass(frozen=True, slots=True)
class Adam(_Plain):
    """Steps scaled by running means of the directions and of their squares.

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
        """Zero means."""
        return {
            "mean": np.zeros_like(parameters),
            "square": np.zeros_like(parameters),
            "updates": np.zeros(1, dtype=np.int64),
        }

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """The next parameters and means, the latter corrected for having started at zero."""
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
    """Another optimiser whose iterates are brought back to a ball around 0.

    Source: the set C of Algorithm 4.3.1 (girgis2023thesis), here ‖θ‖₂ ≤ radius.
    """

    optimizer: Optimizer
    radius: float

    def __post_init__(self) -> None:
        checks.positive(radius=self.radius)

    def init(self, parameters: Vector) -> State:
        """The state of the other optimiser."""
        return self.optimizer.init(parameters)

    def update(
        self, parameters: Vector, state: State, direction: Vector, step: int
    ) -> tuple[Vector, State]:
        """The nearest point of the ball to the other's next parameters, and its state."""
        moved, after = self.optimizer.update(parameters, state, direction, step)
        length = float(np.linalg.norm(moved.astype(np.float64)))
        return (moved if length <= self.radius else _scaled(self.radius / length, moved)), after

    def released(self, parameters: Vector, state: State) -> Vector:
        """The other optimiser's."""
        return self.optimizer.released(parameters, state)


def _as_parameters(direction: Vector, parameters: Vector) -> Vector:
    """The direction in the parameters' dtype."""
    if direction.shape != parameters.shape:
        raise ParameterError("direction", direction.shape, f"shape {parameters.shape}")
    return direction.astype(parameters.dtype, copy=False)


def _moved(parameters: Vector, move: Vector, rate: float, weight_decay: float) -> Vector:
    """θ − η (move + λ θ)."""
    if weight_decay:
        move = move + _scaled(weight_decay, parameters)
    return parameters - _scaled(rate, move)


def _scaled(factor: float, vector: Vector) -> Vector:
    """A multiple of the vector without a change of dtype."""
    return vector.dtype.type(factor) * vector


def build_optimizer(
    name: str, rate: Schedule | float, *, momentum: float = 0.0, weight_decay: float = 0.0
) -> Optimizer:
    """Returns the optimiser of that name: "sgd" (with ``momentum``), "nesterov" or "adam".

    ``momentum`` is in [0, 1); above 0 for "nesterov", 0 for "adam".
    """
    if name == "sgd":
        return SGD(rate, momentum, weight_decay=weight_decay)
    if name == "nesterov":
        return SGD(rate, momentum, nesterov=True, weight_decay=weight_decay)
    if name == "adam":
        if momentum:
            raise ParameterError("optimizer.momentum", momentum, "0 with adam, which has its own")
        return Adam(rate, weight_decay=weight_decay)
    raise ParameterError("optimizer.name", name, "one of sgd, nesterov, adam")
