"""Windows cut from a trace of availability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.normal_form import Form, OneOfOwn
from turnout.schemes.parameters import chance, check_parameters, count
from turnout.schemes.registry import register_participation


@register_participation(
    "availability",
    "In each window each client draws among the steps in which a trace saw it available.",
    rank=9,
)
@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityCheckIn:
    """Windows cut from a trace of when each client really was available.

    The run's ``steps`` steps are cut into consecutive windows of ``window`` steps (the last
    may be shorter). In each window a client draws uniformly among *its own* available steps in
    it; without any it does not come.

    Guarantee: in each window each client with ``a ≥ 1`` available steps takes part in exactly
    one of them, uniform, with probability ``probability``; with none, in none.

    Attributes:
        available: bool array of shape (clients, steps). Unknown must be settled before this
            point: a step counts as available only where that is known.
        window: steps a window.
        probability: chance of coming at all, per window.
    """

    available: np.ndarray = field(repr=False)
    window: int = count("steps a window")
    probability: float = chance("chance of coming at all, per window", 1.0)

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
        check_parameters(self)
        checks.at_most("steps", self.steps, window=self.window)

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
        return OneOfOwn(self.available, self.window).block_sizes()

    def form(self) -> Form:
        """One of the client's own steps of each window."""
        return Form.of(OneOfOwn(self.available, self.window, self.probability))

    def part(
        self, clients: slice | Sequence[int] = slice(None), steps: int | None = None
    ) -> AvailabilityCheckIn:
        """The law of some of the clients, or of the first steps."""
        return replace(self, available=self.available[clients, :steps])
