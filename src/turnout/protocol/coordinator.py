"""Coordinator of one training task as a state machine, without network, files and clock.

`Coordinator` decides which clients take part and what is released. The program that drives it, a
simulation or a service, supplies messages and randomness; after an event that the coordinator
refuses, its state is unchanged. `Admissions` enforces a participation for arrays of clients: a
client takes part at most as often as the participation allows, and only in steps that the
participation allows. Whether a device drew its step from the right distribution cannot be observed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.mechanisms import Mechanism, State
from turnout.protocol.messages import (
    COORDINATOR_TABLE,
    CheckIns,
    ClientIds,
    CoordinatorEvent,
    CoordinatorState,
    Receipt,
    Release,
    StepOpened,
    UpdateRequests,
    Updates,
    Verdict,
    ascending,
    next_state,
)
from turnout.randomness import Source
from turnout.schemes import Participation
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
    """Admission of check-ins, with a record of the accepted check-ins.

    Guarantees: each client is accepted at most once a step and at most ``quota`` times a block, and
    never in a step that the client draws with probability 0.

    Memory is 4 bytes a client (12 where a block allows several check-ins). Only entries of clients
    that check in are written, and none is cleared at the end of a block.

    Args:
        participation: participation of the clients.
        capacity: number of client ids, which are 0 … ``capacity − 1``; may exceed the population.

    Raises:
        ParameterError: the capacity is not a whole number of at least 1.
        UnsupportedError: the participation or one of its draws is unknown.
    """

    def __init__(self, participation: Participation, capacity: int) -> None:
        checks.count(capacity=capacity)
        self._spans = _enforced(participation)
        self._span = self._spans[0]
        self._quota = max(span.quota for span in self._spans)
        self._capacity = capacity
        # Stamps hold block + 1 (or step + 1) of the last acceptance; 0 is "never".
        self._window_stamp = np.zeros(capacity, np.int32)
        self._used = np.zeros(capacity if self._quota > 1 else 0, np.int32)
        self._step_stamp = np.zeros(capacity if self._quota > 1 else 0, np.int32)

    def admit(self, clients: ClientIds, step: int) -> NDArray[np.uint8]:
        """`Verdict` codes of check-ins, in their order; accepted check-ins are recorded.

        Args:
            clients: ids of clients, shape (n,), possibly repeated.
            step: number of the step, from 0.

        Raises:
            RemoteProtocolError: an id is not below ``capacity``; then no check-in is recorded.
        """
        if clients.size and int(clients.max()) >= self._capacity:
            raise RemoteProtocolError(
                f"step {step}: client {int(clients.max())} checked in, "
                f"but ids end at {self._capacity - 1}"
            )
        # The first check-in of each client is accepted while the quota lasts. Its repetitions in
        # the same request, and check-ins beyond the quota, are duplicates.
        span, stamp = self._at(step)
        first = slice(None) if ascending(clients) else np.unique(clients, return_index=True)[1]
        accepted = np.zeros(clients.shape, np.bool_)
        accepted[first] = self._has_quota(clients[first], step, span.quota, stamp)
        verdicts = np.where(accepted, _ACCEPTED, _DUPLICATE)
        # Steps in which the client has probability 0 are refused, with their own verdict.
        if span.eligible is not None:
            eligible = span.eligible(span.draw, clients, step - span.first_step)
            verdicts[~eligible] = _OUTSIDE
            accepted &= eligible
        self._record(clients[accepted], step, stamp)
        return verdicts

    def resume(self, clients: ClientIds, used: NDArray[np.int64], step: int) -> None:
        """Restore how many check-ins of each client were accepted before ``step`` in its block.

        Args:
            clients: different client ids, shape (n,).
            used: number of accepted check-ins of each client, at least 1, shape (n,).
            step: number of the step, from 0; only earlier steps of the same block count.

        Raises:
            ParameterError: an id is not below ``capacity``, or a client has more check-ins than the
                participation allows.
        """
        span, stamp = self._at(step)
        if used.shape != clients.shape or np.any((used < 1) | (used > span.quota)):
            raise ParameterError("used", used.shape, f"1 to {span.quota} check-ins of each client")
        if clients.size and not 0 <= int(clients.min()) <= int(clients.max()) < self._capacity:
            raise ParameterError("clients", clients.shape, f"ids from 0 to {self._capacity - 1}")
        self._window_stamp[clients] = stamp
        if self._quota > 1:
            self._used[clients] = used

    def _at(self, step: int) -> tuple[_Enforced, int]:
        """Span that contains a step, and the stamp (number in the run) of the step's block."""
        span = self._span
        if not span.first_step <= step < span.end:
            behind = bisect_right(self._spans, step, hi=len(self._spans) - 1, key=attrgetter("end"))
            self._span = span = self._spans[behind]
        return span, span.first_stamp + (step - span.first_step) // span.block_steps

    def _has_quota(
        self, clients: ClientIds, step: int, quota: int, stamp: int
    ) -> NDArray[np.bool_]:
        """For each of these different clients, whether it may check in again, shape ``(n,)``."""
        stamps = self._window_stamp[clients]
        if self._quota == 1:
            return stamps != stamp
        used_up = (stamps == stamp) & (self._used[clients] >= quota)
        return ~used_up & (self._step_stamp[clients] != step + 1)

    def _record(self, clients: ClientIds, step: int, stamp: int) -> None:
        """Record one accepted check-in of each of these different clients."""
        if self._quota > 1:
            current = self._window_stamp[clients] == stamp
            self._used[clients] = np.where(current, self._used[clients], 0) + 1
            self._step_stamp[clients] = step + 1
        self._window_stamp[clients] = stamp


class _Enforced(NamedTuple):
    """Span of consecutive blocks with the same draw, and the admission rule of this draw.

    The span ends before the step ``end``. ``first_stamp`` is the stamp of the span's first block;
    the stamp of a block is its number in the run, from 1.
    """

    draw: Draw
    first_step: int
    end: int
    block_steps: int
    first_stamp: int
    quota: int
    eligible: Callable[[Any, ClientIds, int], NDArray[np.bool_]] | None


def _enforced(participation: Participation) -> list[_Enforced]:
    """Spans of a participation's normal form in order, each with its admission rule."""
    spans, first_step, stamp = [], 0, 1
    for span in normal_form(participation).spans:
        rule, end = RULES[span.draw], first_step + span.steps
        blocks = first_step, end, span.draw.steps, stamp
        spans.append(_Enforced(span.draw, *blocks, rule.quota(span.draw), rule.eligible))
        first_step, stamp = end, stamp + span.blocks
    return spans


def quota(participation: Participation) -> int:
    """Largest number of check-ins of a client in one block of a participation.

    Raises:
        UnsupportedError: the participation or one of its draws is unknown.
    """
    return max(span.quota for span in _enforced(participation))


@dataclass(frozen=True, slots=True)
class _Rule:
    """Admission rule of a draw.

    Attributes:
        quota: function from the draw to the largest number of check-ins of a client in one block.
        eligible: function that returns whether each client has a probability above 0 in a step,
            counted from the span's first step; None if all clients have.
    """

    quota: Callable[[Any], int]
    eligible: Callable[[Any, ClientIds, int], NDArray[np.bool_]] | None = None


def _once(draw: object) -> int:
    """Quota of draws with one check-in in each block: 1."""
    return 1


def _if_possible(draw: OneOf, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    """Whether the draw gives the step a probability above 0, which is equal for all clients."""
    return (np.ones if draw.probability > 0 else np.zeros)(clients.shape, np.bool_)


def _in_own_window(draw: Staggered, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    """For each client, whether the step lies in the window of this client."""
    age = step + draw.window - 1 - clients // draw.clients_per_slot
    return (age >= 0) & (age < draw.window)


def _available(draw: OneOfOwn, clients: ClientIds, step: int) -> NDArray[np.bool_]:
    """For each client, whether it is available in the step."""
    known = clients < draw.population
    return known & draw.available[np.where(known, clients, 0), step]


RULES: DrawTable[_Rule] = DrawTable(
    "who may check in",
    {
        Always: _Rule(_once),
        Bernoulli: _Rule(_once),
        Cohort: _Rule(_once),
        OneOf: _Rule(_once, _if_possible),
        KOf: _Rule(lambda draw: draw.picks),
        Kept: _Rule(lambda draw: draw.epochs),
        Staggered: _Rule(_once, _in_own_window),
        OneOfOwn: _Rule(_once, _available),
    },
)
"""Admission rules by draw; a draw without a rule is refused."""


_NO_CLIENTS: ClientIds = np.zeros(0, np.int64)


class Coordinator:
    """Coordinator of the steps of one training task.

    The calls of a step are `open_step`, `check_in` (any number of times), `close_check_ins`,
    `receive` (any number of times), `close_step`. If a client does not send a requested update,
    aggregated and one-client releases count a zero update, and averaged releases leave the client
    out.

    Guarantees:
        A client is accepted at most as often as the participation allows, per window and per step,
        and never in a step that it draws with probability 0. Late and early check-ins are refused.
        Only clients whose update was requested can send one, and only once.
        Only sums that the mechanism accepts as sums of clipped updates are added.
        Only the release of the mechanism, with its noise, leaves the coordinator.

    Args:
        participation: participation of the clients.
        mechanism: selects the clients whose update is requested, and computes the release.
        capacity: number of client ids, which are 0 … ``capacity − 1``.
        first_step: first step, from 0; above 0 to go on after a stop.
        mechanism_state: state of the mechanism before that step; None for its initial state.
        admitted: check-ins that were accepted before that step, at least those of the window in
            progress, so that a client cannot check in a second time after a restart.
        used: given in place of ``admitted`` if the steps of the check-ins are unknown: different
            client ids, and for each client the number of check-ins that were accepted before
            ``first_step`` in the block of this step.

    Raises:
        ParameterError: a value is outside its domain.
    """

    def __init__(
        self,
        participation: Participation,
        mechanism: Mechanism,
        *,
        capacity: int,
        first_step: int = 0,
        mechanism_state: State | None = None,
        admitted: Iterable[CheckIns] = (),
        used: tuple[ClientIds, NDArray[np.int64]] | None = None,
    ) -> None:
        # The first step, from 0 to the number of steps, and the state of the mechanism before it.
        checks.count(0, first_step=first_step)
        self._mechanism, self._steps = mechanism, participation.steps
        checks.at_most("steps", self._steps, first_step=first_step)
        self._mechanism_state = _checked(mechanism_state, mechanism.initial_state())
        # Check-ins of the block in progress, which count against the quota after a restart.
        self._admissions = Admissions(participation, capacity)
        for message in admitted:
            self._admissions.admit(message.clients, message.step)
        if used is not None:
            self._admissions.resume(*used, first_step)
        # The state between two steps, or after the last step.
        self._step = first_step
        done = first_step == self._steps
        self._state = CoordinatorState.FINISHED if done else CoordinatorState.IDLE
        self._start_step()

    @property
    def state(self) -> CoordinatorState:
        """State: between steps, open for check-ins, collecting updates, or finished."""
        return self._state

    @property
    def step(self) -> int:
        """Number of the step in progress, or of the next one; the number of steps when finished."""
        return self._step

    @property
    def mechanism_state(self) -> State:
        """State of the mechanism after the last closed step; callers must not change it."""
        return self._mechanism_state

    def open_step(self) -> StepOpened:
        """Message to all clients that the next step is open for check-ins; the step is opened.

        Raises:
            LocalProtocolError: a step is in progress, or all steps are over.
        """
        self._state = self._after(CoordinatorEvent.OPEN_STEP)
        return StepOpened(self._step)

    def check_in(self, message: CheckIns) -> Receipt:
        """Receipt with a verdict for each client; a refused client does not affect other clients.

        Raises:
            RemoteProtocolError: no step accepts check-ins, the message is for another step, or an
                id is not below ``capacity``. Then no check-in of the message is recorded.
        """
        state = self._after(CoordinatorEvent.CHECK_INS)
        self._refuse_other_steps(message.step, "check-in")
        verdicts = self._admissions.admit(message.clients, message.step)
        receipt = Receipt(message.step, message.clients, verdicts)
        self._arrived.append(receipt.accepted)
        self._state = state
        return receipt

    def close_check_ins(self, source: Source) -> UpdateRequests:
        """Close the step for check-ins and select the clients whose update is requested.

        The selection does not depend on the order of the check-ins.

        Raises:
            LocalProtocolError: no step accepts check-ins.
        """
        state = self._after(CoordinatorEvent.CLOSE_CHECK_INS)
        arrived = np.concatenate(self._arrived)
        if not ascending(arrived):
            arrived.sort()
        self._requested = self._mechanism.select(arrived, source)
        self._answered = np.zeros(self._requested.size, np.bool_)
        self._checked_in = arrived.size
        self._state = state
        return UpdateRequests(self._step, self._requested)

    def receive(self, message: Updates) -> None:
        """Add updates to the sum of the step.

        Raises:
            RemoteProtocolError: no updates are awaited, the message is for another step, a client's
                update was not requested or was sent before, or the mechanism refuses the sum. A
                sum cannot be split, so the whole message is refused.
        """
        state = self._after(CoordinatorEvent.UPDATES)
        self._refuse_other_steps(message.step, "update")
        places = self._places(message.clients)
        try:
            self._mechanism.require(message.sum)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"step {self._step}: {error}") from None
        self._sum = self._sum + message.sum
        self._answered[places] = True
        self._state = state

    def close_step(self, noise: Noise) -> Release:
        """Release of the step in progress; this call ends the step.

        The noise must be fresh in every step: two releases with the same draws reveal a difference.

        Args:
            noise: source of fresh noise, in the type of the sums.

        Raises:
            LocalProtocolError: no step awaits updates.
        """
        last = self._step + 1 == self._steps
        state = self._after(
            CoordinatorEvent.CLOSE_LAST_STEP if last else CoordinatorEvent.CLOSE_STEP
        )
        # The mechanism adds the noise; nothing without noise leaves the coordinator.
        outcome, after = self._mechanism.release(
            self._sum, self._mechanism_state, self._step, noise
        )
        release = Release(
            step=self._step,
            total=outcome.total,
            direction=outcome.direction,
            skipped=outcome.skipped,
            checked_in=self._checked_in,
            served=self._sum.count,
            dummy=self._sum.count == 0 and not outcome.skipped,
        )
        # The next step starts without clients, and with the new state of the mechanism.
        self._mechanism_state = after
        self._step += 1
        self._state = state
        self._start_step()
        return release

    def _start_step(self) -> None:
        """Reset the clients, requests and sum for the next step."""
        self._arrived: list[ClientIds] = [_NO_CLIENTS]
        self._requested = _NO_CLIENTS
        self._answered = np.zeros(0, np.bool_)
        self._checked_in = 0
        self._sum = self._mechanism.zero()

    def _after(self, event: CoordinatorEvent) -> CoordinatorState:
        """State after an event; an error if the transition table does not allow the event now."""
        return next_state(COORDINATOR_TABLE, self._state, event, f"step {self._step}")

    def _refuse_other_steps(self, step: int, what: str) -> None:
        """Raise an error for a message about a step other than the one in progress."""
        if step != self._step:
            lateness = "late" if step < self._step else "early"
            raise RemoteProtocolError(
                f"{what} for step {step} is {lateness}: step {self._step} is in progress"
            )

    def _places(self, clients: ClientIds) -> NDArray[np.int64]:
        """Positions among the requested clients; an error if a client must not send an update."""
        places = np.searchsorted(self._requested, clients)
        found = places < self._requested.size
        found[found] = self._requested[places[found]] == clients[found]
        if not found.all():
            raise RemoteProtocolError(
                f"step {self._step}: client {int(clients[~found][0])} sent an update that was not "
                "requested"
            )
        named = np.bincount(places, minlength=self._requested.size)
        if (named + self._answered > 1).any():
            raise RemoteProtocolError(f"step {self._step}: a client sent a second update")
        return places


def _checked(state: State | None, initial: State) -> State:
    """Given state of a mechanism, after a check of its arrays; if None, the initial state."""
    if state is None:
        return initial
    # A stored state has the names, types and shapes of the initial state, and finite numbers.
    for name in initial.keys() | state.keys():
        first, given = initial.get(name), state.get(name)
        if first is None or given is None:
            raise ParameterError(
                name,
                None,
                f"a state with the arrays {', '.join(initial)}"
                if initial
                else "no array in the state",
            )
        if given.shape != first.shape or given.dtype != first.dtype or not np.isfinite(given).all():
            raise ParameterError(name, given.shape, f"finite {first.dtype}, shape {first.shape}")
    return state
