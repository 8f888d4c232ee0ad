"""Who takes part when: the participation laws, as frozen specs.

A law says how *one* client's slots are drawn; clients are independent of each other except
under `FixedSize`. Steps are numbered 0 … ``steps − 1`` over the whole run. The sampler
(`turnout.participation`) executes a law and accounting prices it; both read it from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.spec.classes import close, plain_numbers


@dataclass(frozen=True, slots=True)
class EveryStep:
    """Guarantee: each client takes part in every one of ``steps`` steps."""

    steps: int

    def __post_init__(self) -> None:
        checks.count(steps=self.steps)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class PoissonSampling:
    """Guarantee: in each step each client takes part with probability ``rate``, independently.

    The server tosses the coins.
    """

    rate: float
    steps: int

    def __post_init__(self) -> None:
        checks.probability(rate=self.rate)
        checks.count(steps=self.steps)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class SelfSampling:
    """Guarantee: in each round each client comes with probability ``rate``, independently.

    The law of `PoissonSampling`, but the client tosses her own coin, so no server needs to
    address her.
    """

    rate: float
    steps: int

    def __post_init__(self) -> None:
        checks.probability(rate=self.rate)
        checks.count(steps=self.steps)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Guarantee: each step serves ``size`` of ``population`` clients, a uniform subset, afresh."""

    size: int
    population: int
    steps: int

    def __post_init__(self) -> None:
        checks.count(size=self.size, population=self.population, steps=self.steps)
        checks.at_most("population", self.population, size=self.size)
        plain_numbers(self)


@dataclass(frozen=True, slots=True)
class CheckIn:
    """Random check-in, windows drawn afresh.

    Guarantee: in each of ``windows`` consecutive windows of ``window`` steps each client, with
    probability ``probability``, takes part in exactly one step, uniform in the window; draws
    of different windows are independent.
    """

    window: int
    windows: int = 1
    probability: float = 1.0

    def __post_init__(self) -> None:
        checks.count(window=self.window, windows=self.windows)
        checks.probability(probability=self.probability)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.window * self.windows


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Check-in paper §4.2: every client has a window of her own, and windows slide.

    Time slots are 0 … ``slots − 1``. Client j wakes at slot ⌊j / clients_per_slot⌋ and draws
    one uniform slot among the next ``window`` ones. The first ``window − 1`` slots are the
    warm-up: nothing is released then, and who drew one of them is not served; nor is who drew
    a slot past the end. Step 0 of the run is slot ``window − 1``.

    Guarantee: each client takes part at most once, and in any given slot of her window with
    probability at most 1 / ``window``.
    """

    window: int
    slots: int
    clients_per_slot: int = 1

    def __post_init__(self) -> None:
        checks.count(window=self.window, slots=self.slots, clients_per_slot=self.clients_per_slot)
        checks.at_most("slots", self.slots, window=self.window)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Steps that release something: slots after the warm-up."""
        return self.slots - self.window + 1

    @property
    def population(self) -> int:
        """Clients who wake during the run."""
        return self.slots * self.clients_per_slot


@dataclass(frozen=True, slots=True)
class KSubset:
    """Guarantee: in each of ``windows`` windows of ``window`` steps each client takes part in
    exactly ``picks`` different steps, a uniform subset.
    """

    window: int
    picks: int
    windows: int = 1

    def __post_init__(self) -> None:
        checks.count(window=self.window, picks=self.picks, windows=self.windows)
        checks.at_most("window", self.window, picks=self.picks)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.window * self.windows


@dataclass(frozen=True, slots=True)
class FixedAssignment:
    """A slot drawn once and kept ("balls in bins"); not `CheckIn`, which draws windows afresh.

    Guarantee: each client, with probability ``probability`` and independently of all others,
    draws one uniform slot of ``window`` and takes part in exactly that slot of each of ``epochs``
    consecutive windows. So the number of clients in a slot is random, and some may be empty.

    A data loader that shuffles is not this, whether it reuses its permutation or draws it afresh:
    it deals records without replacement into batches of one size, so that the others' batches
    tell a record's own (docs/which-guarantee.md; `EveryStep` of as many steps as it has epochs
    holds).
    """

    window: int
    epochs: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        checks.count(window=self.window, epochs=self.epochs)
        checks.probability(probability=self.probability)
        plain_numbers(self)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.window * self.epochs


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityCheckIn:
    """Windows cut from a trace of when each client really was available.

    The run's ``steps`` steps are cut into consecutive windows of ``window`` steps (the last
    may be shorter). In each window a client draws uniformly among *her own* available steps in
    it; without any she does not come.

    Guarantee: in each window each client with ``a ≥ 1`` available steps takes part in exactly
    one of them, uniform, with probability ``probability``; with none, in none.

    Attributes:
        available: bool array of shape (clients, steps). Unknown must be settled before this
            point: a step counts as available only where that is known.
        window: steps a window.
        probability: chance of coming at all, per window.
    """

    available: np.ndarray = field(repr=False)
    window: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        available: object = self.available
        expected = "a bool array of shape (clients, steps)"
        if not isinstance(available, np.ndarray):
            raise ParameterError("available", available, expected)
        if available.ndim != 2 or available.dtype != np.bool_:
            raise ParameterError("available", (available.dtype, available.shape), expected)
        own = available.copy()  # what was priced must not change under the sampler
        own.setflags(write=False)
        object.__setattr__(self, "available", own)
        checks.count(window=self.window)
        checks.at_most("steps", self.steps, window=self.window)
        checks.probability(probability=self.probability)
        plain_numbers(self)

    @property
    def population(self) -> int:
        """Clients in the trace."""
        return self.available.shape[0]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.available.shape[1]

    @property
    def windows(self) -> int:
        """Windows, the last of which may be shorter."""
        return -(-self.steps // self.window)

    def window_sizes(self) -> np.ndarray:
        """Available steps of each client in each window, int64, shape (clients, windows)."""
        starts = np.arange(0, self.steps, self.window)
        return np.add.reduceat(self.available.astype(np.int64), starts, axis=1)


ParticipationLaw = (
    EveryStep
    | PoissonSampling
    | SelfSampling
    | FixedSize
    | CheckIn
    | SlidingWindow
    | KSubset
    | FixedAssignment
    | AvailabilityCheckIn
)

close(*get_args(ParticipationLaw))
