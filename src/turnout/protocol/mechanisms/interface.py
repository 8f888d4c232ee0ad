"""A step's mechanism and the two halves it is made of: a bound of sensitivity, and noise.

| symbol | here | |
|---|---|---|
| C | ``clip_norm`` | ℓ2 bound of one update |
| σ | ``law.noise_multiplier`` | noise standard deviation over C |
| b | ``minibatch`` | steps accumulated before the model moves |
| n̄ | ``expected_check_ins`` | public number that divides an aggregated sum |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import Noise, UpdateSum
from turnout.protocol.messages import ClientIds
from turnout.randomness import Source
from turnout.schemes import Randomizer

State = Mapping[str, NDArray[Any]]
"""A mechanism's state from step to step: arrays by name, of the same types and shapes always.
They are never changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """The private result of one step.

    Attributes:
        total: the noisy sum of the step in the units of the sums, shape ``(d,)``; None where
            nothing is released.
        direction: float64, shape ``(d,)``, what moves the model, in its units; None where it
            does not move.
        skipped: True where an empty step is left out.
    """

    total: NDArray[Any] | None
    direction: NDArray[np.float64] | None
    skipped: bool = False


class SensitivityBound(Protocol):
    """The first half, on the client: what one client can move the sum by is at most C.

    `clipping.Clipping` (floating point) and `lattice.Lattice` (whole numbers).
    """

    @property
    def dimension(self) -> int:
        """Coordinates d of an update."""
        ...

    @property
    def clip_norm(self) -> float:
        """C, in the model's units."""
        ...

    def constrained(self, update: NDArray[Any]) -> UpdateSum:
        """One client's contribution, a sum of one."""
        ...

    def zero(self) -> UpdateSum:
        """The sum of nobody's updates."""
        ...

    def noise_deviation(self, noise_multiplier: float) -> float:
        """σC in the units of the sums, never below the exact number where sums are exact."""
        ...

    def to_model(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """A released vector in the model's units."""
        ...


class NoiseProcess(Protocol):
    """The second half, on the server: noise of a deviation, step after step.

    The draws of one step are independent over the coordinates; those of different steps need not
    be, which is what the state is for.
    """

    def initial_state(self, dimension: int) -> State:
        """The state before the first step."""
        ...

    def draw(
        self, deviation: float, dimension: int, state: State, fresh: Noise
    ) -> tuple[NDArray[Any], State]:
        """The noise of the next step, and the state after it.

        ``deviation`` is σC in the units of the sums; draws from ``fresh`` were never handed out.
        """
        ...


class Mechanism(Protocol):
    """All that a step does with updates: the client's half, and the server's.

    Guarantees: whatever is released, `law` prices under the scheme's participation and relation
    (docs/design/protocols.md has the argument for each).
    """

    @property
    def law(self) -> Randomizer:
        """The randomizer of the scheme, which accounting prices."""
        ...

    @property
    def clip_norm(self) -> float:
        """C, bound on the ℓ2 norm of one update in the model's units."""
        ...

    def encode(self, update: NDArray[Any], source: Source) -> UpdateSum:
        """Client: the message of one update, constrained (and randomized, where clients do that).

        A message is the aggregate of one client.
        """
        ...

    def zero(self) -> UpdateSum:
        """The aggregate of nobody: what the messages are added to."""
        ...

    def require(self, total: UpdateSum) -> None:
        """Nothing where messages of so many clients can have this aggregate.

        Raises:
            RemoteProtocolError: they cannot.
        """
        ...

    def select(self, arrived: ClientIds, source: Source) -> ClientIds:
        """The clients asked for an update, of those who checked in; both in increasing order."""
        ...

    def initial_state(self) -> State:
        """The state before the first step; its names, types and shapes stay."""
        ...

    def release(
        self, total: UpdateSum, state: State, step: int, noise: Noise
    ) -> tuple[Released, State]:
        """Server: the release of a step, and the state after it.

        ``total`` is the aggregate of all who answered; draws of ``noise`` are in its type.
        """
        ...
