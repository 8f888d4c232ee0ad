"""Who may check in: the coordinator's side of a participation law.

The law promises how often a client takes part. Whether a device drew its slot as it should
cannot be seen from here, but that it comes at most as often as the law allows, and only where
the law gives it a chance, is enforced here, vectorised over clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.messages import ClientIds, Verdict, ascending
from turnout.spec import ParticipationLaw
from turnout.spec.draws import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
)
from turnout.spec.forms import DrawTable, normal_form


class Admissions:
    """The record of accepted check-ins.

    Guarantees: each client is accepted at most once a step and at most ``quota`` times a
    block, and never in a step in which the law gives it no chance.

    Memory is 4 bytes a client (12 where a block allows several check-ins), touched only
    where clients come; nothing is cleared when a block ends.

    Args:
        law: the participation law.
        capacity: client ids are 0 … ``capacity − 1``; it may be generous.

    Raises:
        ParameterError: a capacity that is no whole number of at least 1.
        UnsupportedError: an unknown law or draw.
    """

    def __init__(self, law: ParticipationLaw, capacity: int) -> None:
        checks.count(capacity=capacity)
        self._form = normal_form(law)
        self._quota = quota(law)
        self._capacity = capacity
        self._last: _Place | None = None
        # Stamps hold block + 1 (or step + 1) of the last acceptance; 0 is "never".
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
        eligible = self._eligible(clients, step)
        if eligible is not None:
            verdicts[~eligible] = Verdict.OUTSIDE_ITS_WINDOW
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
        place = self._place(step)
        if used.shape != clients.shape or np.any((used < 1) | (used > place.quota)):
            raise ParameterError("used", used.shape, f"turns from 1 to {place.quota} a client")
        if clients.size and not 0 <= int(clients.min()) <= int(clients.max()) < self._capacity:
            raise ParameterError("clients", clients.shape, f"ids from 0 to {self._capacity - 1}")
        self._window_stamp[clients] = place.stamp
        if self._quota > 1:
            self._used[clients] = used

    def _eligible(self, clients: ClientIds, step: int) -> NDArray[np.bool_] | None:
        """Whether the law gives each of these clients a chance of a step; None: all of them."""
        place = self._place(step)
        if place.rule.eligible is None:
            return None
        return place.rule.eligible(place.draw, clients, step - place.first_step)

    def _has_quota(self, clients: ClientIds, step: int) -> NDArray[np.bool_]:
        """Whether each of these different clients may come once more."""
        place = self._place(step)
        current = self._window_stamp[clients] == place.stamp
        if self._quota == 1:
            return ~current
        used_up = current & (self._used[clients] >= place.quota)
        return ~used_up & (self._step_stamp[clients] != step + 1)

    def _record(self, clients: ClientIds, step: int) -> None:
        """Note one acceptance of each of these different clients."""
        stamp = self._place(step).stamp
        if self._quota > 1:
            current = self._window_stamp[clients] == stamp
            self._used[clients] = np.where(current, self._used[clients], 0) + 1
            self._step_stamp[clients] = step + 1
        self._window_stamp[clients] = stamp

    def _place(self, step: int) -> _Place:
        """Where a step stands; the last one's is kept."""
        if self._last is None or step != self._last.step:
            span, first_step, block = self._form.at_step(step)
            rule, draw = RULES[span.draw], span.draw
            self._last = _Place(step, draw, rule, first_step, block + 1, rule.quota(draw))
        return self._last


class _Place(NamedTuple):
    """Where a step stands in a law, and the rule there.

    Attributes:
        step: counted over the whole run.
        draw, rule: of its block.
        first_step: of the draw's blocks.
        stamp: of its block.
        quota: how often a client may come in it.
    """

    step: int
    draw: Draw
    rule: _Rule
    first_step: int
    stamp: int
    quota: int


def quota(law: ParticipationLaw) -> int:
    """Most check-ins of a client in one block of a law.

    Raises:
        UnsupportedError: an unknown law or draw.
    """
    return max(RULES[span.draw].quota(span.draw) for span in normal_form(law).spans)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A draw's rule of admission.

    Attributes:
        quota: how often a client may come in one block.
        eligible: whether the draw gives each of these clients a chance of a step, which is
            counted from the first one of all of its blocks; None where it gives all of them one.
    """

    quota: Callable[[Any], int]
    eligible: Callable[[Any, ClientIds, int], NDArray[np.bool_]] | None = None


def _once(draw: object) -> int:
    return 1


def _if_ever(draw: OneOf, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    return (np.ones if draw.probability > 0 else np.zeros)(clients.shape, np.bool_)


def _in_her_window(draw: Staggered, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    age = step + draw.window - 1 - clients // draw.clients_per_slot
    return (age >= 0) & (age < draw.window)


def _her_own(draw: OneOfOwn, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    known = clients < draw.population
    return known & draw.available[np.where(known, clients, 0), step]


RULES: DrawTable[_Rule] = DrawTable(
    "who may check in",
    {
        Always: _Rule(_once),
        Bernoulli: _Rule(_once),
        Cohort: _Rule(_once),
        OneOf: _Rule(_once, _if_ever),
        KOf: _Rule(lambda draw: draw.picks),
        Kept: _Rule(lambda draw: draw.epochs),
        Staggered: _Rule(_once, _in_her_window),
        OneOfOwn: _Rule(_once, _her_own),
    },
)
"""Every draw that is enforced; there is no rule for others, and none is guessed."""
