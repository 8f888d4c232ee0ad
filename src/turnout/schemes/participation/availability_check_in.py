"""Availability check-in: one uniform step among those of a trace, in each window.

`AvailabilityCheckIn` is the participation. `costliest_clients` reduces a scheme to the clients that
can have the largest ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes.normal_form import Form, OneOfOwn
from turnout.schemes.parameters import chance, check_parameters, count
from turnout.schemes.registry import register_participation

if TYPE_CHECKING:
    from turnout.schemes.scheme import Scheme


@register_participation(
    "availability",
    "In each window each client draws among the steps in which a trace shows it as available.",
    rank=9,
)
@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityCheckIn:
    """Check-ins in the steps in which a recorded trace shows a client as available.

    The run's ``steps`` steps are divided into consecutive windows of ``window`` steps; the last
    one may be shorter. In each window a client draws uniformly among *its own* available steps in
    this window; without any it does not take part.

    Guarantee: in each window each client with ``a ≥ 1`` available steps takes part in exactly
    one of them, uniform, with probability ``probability``; with none, in none.

    Attributes:
        available: whether a client is available in a step, bool, shape (clients, steps); False
            where the trace does not say.
        window: steps of a window.
        probability: probability of taking part at all, per window.

    Raises:
        ParameterError: ``available`` is no such array, or a value outside its domain.
    """

    available: np.ndarray = field(repr=False)
    window: int = count("steps a window")
    probability: float = chance("chance of taking part at all, per window", 1.0)

    def __post_init__(self) -> None:
        available: object = self.available
        expected = "a bool array of shape (clients, steps)"
        if not isinstance(available, np.ndarray):
            raise ParameterError("available", available, expected)
        if available.ndim != 2 or available.dtype != np.bool_:
            raise ParameterError("available", (available.dtype, available.shape), expected)
        own = available.copy()  # accounting and sampler must see the same array
        own.setflags(write=False)
        object.__setattr__(self, "available", own)
        check_parameters(self)
        checks.at_most("steps", self.steps, window=self.window)

    @property
    def population(self) -> int:
        """Number of clients in the trace."""
        return self.available.shape[0]

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.available.shape[1]

    @property
    def windows(self) -> int:
        """Number of windows, the last of which may be shorter."""
        return -(-self.steps // self.window)

    def window_sizes(self) -> np.ndarray:
        """Available steps of each client in each window, int64, shape (clients, windows)."""
        return OneOfOwn(self.available, self.window).block_sizes()

    def form(self) -> Form:
        """Normal form: one uniform step among the client's own steps in each window."""
        return Form.of(OneOfOwn(self.available, self.window, self.probability))

    def part(
        self, clients: slice | Sequence[int] = slice(None), steps: int | None = None
    ) -> AvailabilityCheckIn:
        """Participation of some of the clients, or in the first ``steps`` steps."""
        return replace(self, available=self.available[clients, :steps])


def costliest_clients(scheme: Scheme, most: int | None = None) -> Scheme:
    """Scheme with fewer clients but the same largest ε, where clients have own windows.

    A client A dominates a client B if to each window of B belongs a window of A that is no larger.
    Then the ε of A is at least that of B: an average over fewer slots is larger in convex order,
    and more windows are more releases. So dominated clients can be left out.

    Args:
        scheme: scheme; others than those of `AvailabilityCheckIn` are returned as they are.
        most: largest number of clients to keep, those with the largest sum of 1/size, about the
            variance of their privacy losses. The client of largest ε may be left out then.
    """
    participation = scheme.participation
    if not isinstance(participation, AvailabilityCheckIn) or participation.population == 0:
        return scheme
    # Sizes of each client's windows in rising order; equal rows have equal ε.
    sizes = participation.window_sizes().astype(np.float64)
    sizes[sizes == 0] = np.inf
    sizes.sort(axis=1)
    order, first = np.unique(sizes, axis=0, return_index=True)
    # Clients that no other one dominates.
    kept: list[int] = []
    for i, client in zip(range(len(order)), first, strict=True):
        dominated = (order <= order[i]).all(axis=1)
        dominated[i] = False
        if not dominated.any():
            kept.append(int(client))
    if most is not None:
        kept = sorted(kept, key=lambda client: -float((1.0 / sizes[client]).sum()))[:most]
    return replace(scheme, participation=participation.part(clients=sorted(kept)))
