"""Who may check in: the coordinator's side of a participation law.

The law promises how often a client takes part. Whether a device drew its slot as it should
cannot be seen from here, but that it comes at most as often as the law allows, and only where
the law gives it a chance, is enforced here, vectorised over clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, RemoteProtocolError, UnsupportedError
from turnout.participation import blocks
from turnout.protocol.messages import ClientIds, Verdict, ascending
from turnout.spec import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)


class Admissions:
    """The record of accepted check-ins.

    Guarantees: each client is accepted at most once a step and at most ``quota`` times a
    window, and never in a step in which the law gives it no chance.

    Memory is 4 bytes a client (12 where a window allows several check-ins), touched only
    where clients come; nothing is cleared when a window ends.

    Args:
        law: the participation law.
        capacity: client ids are 0 … ``capacity − 1``; it may be generous.

    Raises:
        ParameterError: a capacity that is no whole number of at least 1.
        UnsupportedError: an unknown law.
    """

    def __init__(self, law: ParticipationLaw, capacity: int) -> None:
        checks.count(capacity=capacity)
        self._law = law
        self._length = blocks(law)[0].steps
        self._rule = _rule_of(law)
        self._quota = self._rule.quota(law)
        self._capacity = capacity
        # Stamps hold window + 1 (or step + 1) of the last acceptance; 0 is "never".
        self._window_stamp = np.zeros(capacity, np.int32)
        self._used = np.zeros(capacity if self._quota > 1 else 0, np.int32)
        self._step_stamp = np.zeros(capacity if self._quota > 1 else 0, np.int32)

    def admit(self, clients: ClientIds, step: int) -> NDArray[np.uint8]:
        """`Verdict` codes of a batch of check-ins, in its order; accepted ones are recorded.

        Raises:
            RemoteProtocolError: an id that was never handed out; nothing is recorded then.
        """
        if clients.size and int(clients.max()) >= self._capacity:
            raise RemoteProtocolError(
                f"step {step}: client {int(clients.max())} checked in, "
                f"but ids end at {self._capacity - 1}"
            )
        verdicts = np.full(clients.shape, Verdict.DUPLICATE, np.uint8)
        first = slice(None) if ascending(clients) else np.unique(clients, return_index=True)[1]
        allowed = self._has_quota(clients[first], step)
        verdicts[first] = np.where(allowed, Verdict.ACCEPTED, Verdict.DUPLICATE)
        verdicts[~self._rule.eligible(self._law, clients, step)] = Verdict.OUTSIDE_ITS_WINDOW
        self._record(clients[verdicts == Verdict.ACCEPTED], step)
        return verdicts

    def resume(self, clients: ClientIds, used: NDArray[np.int64], step: int) -> None:
        """Record turns that were taken in the block of a step, before that step.

        Args:
            clients: different ids.
            used: how often each of them was accepted in the block's earlier steps.
            step: where the coordinator goes on.

        Raises:
            ParameterError: an id that was never handed out, or more turns than the law allows.
        """
        if used.shape != clients.shape or np.any((used < 1) | (used > self._quota)):
            raise ParameterError("used", used.shape, f"turns from 1 to {self._quota} a client")
        if clients.size and not 0 <= int(clients.min()) <= int(clients.max()) < self._capacity:
            raise ParameterError("clients", clients.shape, f"ids from 0 to {self._capacity - 1}")
        self._window_stamp[clients] = step // self._length + 1
        if self._quota > 1:
            self._used[clients] = used

    def _has_quota(self, clients: ClientIds, step: int) -> NDArray[np.bool_]:
        """Whether each of these different clients may come once more."""
        current = self._window_stamp[clients] == step // self._length + 1
        if self._quota == 1:
            return ~current
        used_up = current & (self._used[clients] >= self._quota)
        return ~used_up & (self._step_stamp[clients] != step + 1)

    def _record(self, clients: ClientIds, step: int) -> None:
        """Note one acceptance of each of these different clients."""
        stamp = step // self._length + 1
        if self._quota > 1:
            current = self._window_stamp[clients] == stamp
            self._used[clients] = np.where(current, self._used[clients], 0) + 1
            self._step_stamp[clients] = step + 1
        self._window_stamp[clients] = stamp


@dataclass(frozen=True, slots=True)
class _Rule:
    """A law's rule of admission.

    Attributes:
        quota: how often a client may come in one block of the law.
        eligible: whether the law gives each of these clients a chance of a step.
    """

    quota: Callable[[Any], int]
    eligible: Callable[[Any, ClientIds, int], NDArray[np.bool_]]


def quota(law: ParticipationLaw) -> int:
    """Most check-ins of a client in one block of a law.

    Raises:
        UnsupportedError: an unknown law.
    """
    return _rule_of(law).quota(law)


def _rule_of(law: ParticipationLaw) -> _Rule:
    rule = _RULES.get(type(law))
    if rule is None:
        raise UnsupportedError(f"who may check in is not known for the law {type(law).__name__}")
    return rule


def _once(law: object) -> int:
    return 1


def _always(law: object, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    return np.ones(clients.shape, np.bool_)


def _in_her_window(law: SlidingWindow, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    age = step + law.window - 1 - clients // law.clients_per_slot
    return (age >= 0) & (age < law.window)


def _available(law: AvailabilityCheckIn, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    known = clients < law.population
    return known & law.available[np.where(known, clients, 0), step]


_RULES: dict[type, _Rule] = {
    EveryStep: _Rule(_once, _always),
    PoissonSampling: _Rule(_once, _always),
    SelfSampling: _Rule(_once, _always),
    FixedSize: _Rule(_once, _always),
    CheckIn: _Rule(_once, _always),
    KSubset: _Rule(lambda law: law.picks, _always),
    FixedAssignment: _Rule(lambda law: law.epochs, _always),
    SlidingWindow: _Rule(_once, _in_her_window),
    AvailabilityCheckIn: _Rule(_once, _available),
}
"""Every law that is enforced; there is no rule for others, and none is guessed."""
