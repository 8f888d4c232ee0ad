"""Availability check-in: in each window, one uniform step among a client's available steps.

`AvailabilityCheckIn` is the participation. `costliest_clients` restricts a scheme to those clients
that can have the largest ε.
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

    The run is divided into consecutive windows of ``window`` steps; the last window may be shorter.
    In each window a client draws uniformly among *its own* available steps in this window. A client
    without available steps in a window does not take part in this window.

    Guarantee: in each window each client with at least one available step takes part, with
    probability ``probability``, in exactly one step, uniform among its available steps.

    Attributes:
        available: whether a client is available in a step, bool, shape (clients, steps); False
            where the trace has no information.
        window: number of steps of a window.
        probability: probability of taking part in a window.

    Raises:
        ParameterError: ``available`` has a wrong type or shape, or a value is outside its domain.
    """

    available: np.ndarray = field(repr=False)
    window: int = count("number of steps of a window")
    probability: float = chance("probability with which a client participates in a window", 1.0)

    def __post_init__(self) -> None:
        available: object = self.available
        expected = "a bool array of shape (clients, steps)"
        if not isinstance(available, np.ndarray):
            raise ParameterError("available", available, expected)
        if available.ndim != 2 or available.dtype != np.bool_:
            raise ParameterError("available", (available.dtype, available.shape), expected)
        own = available.copy()  # a later change of the caller's array must have no effect
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
        """Number of steps of the whole run."""
        return self.available.shape[1]

    @property
    def windows(self) -> int:
        """Number of windows, the last of which may be shorter."""
        return -(-self.steps // self.window)

    def window_sizes(self) -> np.ndarray:
        """Number of available steps of each client in each window, shape (clients, windows)."""
        return OneOfOwn(self.available, self.window).block_sizes()

    def form(self) -> Form:
        """Normal form: one uniform step among the client's own steps in each window."""
        return Form.of(OneOfOwn(self.available, self.window, self.probability))

    def part(
        self, clients: slice | Sequence[int] = slice(None), steps: int | None = None
    ) -> AvailabilityCheckIn:
        """Participation of the given clients only, in the first ``steps`` steps (None: all)."""
        return replace(self, available=self.available[clients, :steps])


def costliest_clients(scheme: Scheme, most: int | None = None) -> Scheme:
    """Scheme with the same largest ε, restricted to the clients that can have it.

    A client A dominates a client B if each window of B can be paired with a window of A that has at
    most as many available steps, and no window of A is used twice. Then the ε of A is at least that
    of B: a mixture over fewer steps is larger in convex order, and a client with more windows
    contributes to more releases. So dominated clients can be removed.

    Args:
        scheme: any scheme; unless its participation is `AvailabilityCheckIn`, it is returned
            unchanged.
        most: largest number of clients to keep; None: no limit. With a limit, the kept clients are
            those with the largest sum of 1/(available steps) over their windows, which is about
            proportional to the variance of the privacy loss. The client with the largest ε may then
            be removed.
    """
    participation = scheme.participation
    if not isinstance(participation, AvailabilityCheckIn) or participation.population == 0:
        return scheme
    # Sort the numbers of available steps in each client's windows. Clients with equal rows have
    # equal ε, so one of them suffices.
    sizes = participation.window_sizes().astype(np.float64)
    sizes[sizes == 0] = np.inf
    sizes.sort(axis=1)
    order, first = np.unique(sizes, axis=0, return_index=True)
    # Keep the clients that no other client dominates.
    kept: list[int] = []
    for i, client in zip(range(len(order)), first, strict=True):
        dominated = (order <= order[i]).all(axis=1)
        dominated[i] = False
        if not dominated.any():
            kept.append(int(client))
    # Apply the limit.
    if most is not None:
        kept = sorted(kept, key=lambda client: -float((1.0 / sizes[client]).sum()))[:most]
    return replace(scheme, participation=participation.part(clients=sorted(kept)))
