"""Admission of check-ins: the coordinator's side of a participation law.

The law promises how often a client takes part. Whether a device drew its slot as it should
cannot be seen from here, but that it comes at most as often as the law allows, and only where
the law gives it a chance, is enforced here, vectorised over clients.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.messages import ClientIds, Verdict, ascending
from turnout.schemes import ParticipationLaw
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
    normal_form,
)

_ACCEPTED, _DUPLICATE, _OUTSIDE = map(
    np.uint8, (Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.OUTSIDE_ITS_WINDOW)
)


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
        self._spans = _enforced(law)
        self._span = self._spans[0]
        self._quota = max(span.quota for span in self._spans)
        self._capacity = capacity
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
        span, stamp = self._at(step)
        first = slice(None) if ascending(clients) else np.unique(clients, return_index=True)[1]
        accepted = np.zeros(clients.shape, np.bool_)
        accepted[first] = self._has_quota(clients[first], step, span.quota, stamp)
        verdicts = np.where(accepted, _ACCEPTED, _DUPLICATE)
        if span.eligible is not None:
            eligible = span.eligible(span.draw, clients, step - span.first_step)
            verdicts[~eligible] = _OUTSIDE
            accepted &= eligible
        self._record(clients[accepted], step, stamp)
        return verdicts

    def resume(self, clients: ClientIds, used: NDArray[np.int64], step: int) -> None:
        """Record how often different clients were accepted in the earlier steps of a step's block.

        Raises:
            ParameterError: an id that was never handed out, or more turns than the law allows.
        """
        span, stamp = self._at(step)
        if used.shape != clients.shape or np.any((used < 1) | (used > span.quota)):
            raise ParameterError("used", used.shape, f"turns from 1 to {span.quota} a client")
        if clients.size and not 0 <= int(clients.min()) <= int(clients.max()) < self._capacity:
            raise ParameterError("clients", clients.shape, f"ids from 0 to {self._capacity - 1}")
        self._window_stamp[clients] = stamp
        if self._quota > 1:
            self._used[clients] = used

    def _at(self, step: int) -> tuple[_Enforced, int]:
        """The span of a step, and the stamp of its block."""
        span = self._span
        if not span.first_step <= step < span.end:
            behind = bisect_right(self._spans, step, hi=len(self._spans) - 1, key=attrgetter("end"))
            self._span = span = self._spans[behind]
        return span, span.first_stamp + (step - span.first_step) // span.block_steps

    def _has_quota(
        self, clients: ClientIds, step: int, quota: int, stamp: int
    ) -> NDArray[np.bool_]:
        """Whether each of these different clients may come once more."""
        stamps = self._window_stamp[clients]
        if self._quota == 1:
            return stamps != stamp
        used_up = (stamps == stamp) & (self._used[clients] >= quota)
        return ~used_up & (self._step_stamp[clients] != step + 1)

    def _record(self, clients: ClientIds, step: int, stamp: int) -> None:
        """Note one acceptance of each of these different clients."""
        if self._quota > 1:
            current = self._window_stamp[clients] == stamp
            self._used[clients] = np.where(current, self._used[clients], 0) + 1
            self._step_stamp[clients] = step + 1
        self._window_stamp[clients] = stamp


class _Enforced(NamedTuple):
    """A span of a law's normal form up to the step ``end``, and its draw's rule.

    ``first_stamp`` is the stamp of its first block.
    """

    draw: Draw
    first_step: int
    end: int
    block_steps: int
    first_stamp: int
    quota: int
    eligible: Callable[[Any, ClientIds, int], NDArray[np.bool_]] | None


def _enforced(law: ParticipationLaw) -> list[_Enforced]:
    """The spans of a law in their order."""
    spans, first_step, stamp = [], 0, 1
    for span in normal_form(law).spans:
        rule, end = RULES[span.draw], first_step + span.steps
        blocks = first_step, end, span.draw.steps, stamp
        spans.append(_Enforced(span.draw, *blocks, rule.quota(span.draw), rule.eligible))
        first_step, stamp = end, stamp + span.blocks
    return spans


def quota(law: ParticipationLaw) -> int:
    """Most check-ins of a client in one block of a law.

    Raises:
        UnsupportedError: an unknown law or draw.
    """
    return max(span.quota for span in _enforced(law))


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
