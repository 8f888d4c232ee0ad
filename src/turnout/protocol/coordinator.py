"""The coordinator as a state machine: no network, no files, no clock.

Whoever drives it (a simulation, a service) feeds it messages and hands it randomness; it
decides who is served and what is released. An event that is refused leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.admissions import Admissions
from turnout.protocol.mechanisms import Mechanism, State
from turnout.protocol.messages import (
    CheckIns,
    ClientIds,
    Receipt,
    Release,
    StepOpened,
    UpdateRequests,
    Updates,
    ascending,
)
from turnout.protocol.tables import (
    COORDINATOR_TABLE,
    CoordinatorEvent,
    CoordinatorState,
    next_state,
)
from turnout.randomness import Source
from turnout.schemes import ParticipationLaw

_NOBODY: ClientIds = np.zeros(0, np.int64)


class Coordinator:
    """Runs the steps of one training task.

    A step goes `open_step`, `check_in` (any number of times), `close_check_ins`, `receive`
    (any number of times), `close_step`. Who was asked and does not answer counts as a zero
    update (aggregated, one-client) or as absent (averaged).

    Guarantees:
        A client is accepted at most as often as the participation law allows, per window and
        per step, and never where it gives it no chance; late and early check-ins are refused.
        Only who was asked can answer, and only once.
        Only sums that the mechanism takes for sums of updates are added.
        Nothing is released but what the mechanism makes of the sum, with its noise.

    Args:
        participation: the law of who takes part when.
        mechanism: whom a step asks, and what it makes of the answers.
        capacity: client ids are 0 … ``capacity − 1``.
        first_step: where to begin; above 0 to go on after a stop.
        mechanism_state: `mechanism_state` at that point; None for the mechanism's first one.
        admitted: check-ins accepted before that point (those of the window in progress are
            enough), so that a client cannot come a second time after a restart.
        used: in place of ``admitted`` where the steps are not known: clients, each once, and how
            often each was accepted in the block of ``first_step`` before it.

    Raises:
        ParameterError: a value outside its domain.
    """

    def __init__(
        self,
        participation: ParticipationLaw,
        mechanism: Mechanism,
        *,
        capacity: int,
        first_step: int = 0,
        mechanism_state: State | None = None,
        admitted: Iterable[CheckIns] = (),
        used: tuple[ClientIds, NDArray[np.int64]] | None = None,
    ) -> None:
        checks.count(0, first_step=first_step)
        self._mechanism, self._steps = mechanism, participation.steps
        checks.at_most("steps", self._steps, first_step=first_step)
        self._mechanism_state = _checked(mechanism_state, mechanism.initial_state())
        self._admissions = Admissions(participation, capacity)
        for message in admitted:
            self._admissions.admit(message.clients, message.step)
        if used is not None:
            self._admissions.resume(*used, first_step)
        self._step = first_step
        done = first_step == self._steps
        self._state = CoordinatorState.FINISHED if done else CoordinatorState.IDLE
        self._start_step()

    @property
    def state(self) -> CoordinatorState:
        """The coordinator's state."""
        return self._state

    @property
    def step(self) -> int:
        """The step in progress, or the next one; the number of steps when finished."""
        return self._step

    @property
    def mechanism_state(self) -> State:
        """The mechanism's state after the last step; to be stored, never to be changed."""
        return self._mechanism_state

    def open_step(self) -> StepOpened:
        """Open the next step for check-ins."""
        self._state = self._after(CoordinatorEvent.OPEN_STEP)
        return StepOpened(self._step)

    def check_in(self, message: CheckIns) -> Receipt:
        """A verdict for each client; one client's fault is not another's.

        Raises:
            RemoteProtocolError: no step takes check-ins, the message is for another step, or
                an id was never handed out. Nobody in the message is recorded then.
        """
        state = self._after(CoordinatorEvent.CHECK_INS)
        self._refuse_other_steps(message.step, "check-in")
        verdicts = self._admissions.admit(message.clients, message.step)
        receipt = Receipt(message.step, message.clients, verdicts)
        self._arrived.append(receipt.accepted)
        self._state = state
        return receipt

    def close_check_ins(self, source: Source) -> UpdateRequests:
        """Close the step for check-ins and choose whom to ask.

        The choice does not depend on the order in which clients came.
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
            RemoteProtocolError: no updates are awaited, the step is another one, a client was
                not asked or has answered, or the mechanism refuses the sum. A sum cannot be
                split, so the whole message is refused.
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
        """The release that the mechanism makes of the step, which ends.

        The noise must be fresh in every step: two releases with the same draws reveal a difference.
        """
        last = self._step + 1 == self._steps
        state = self._after(
            CoordinatorEvent.CLOSE_LAST_STEP if last else CoordinatorEvent.CLOSE_STEP
        )
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
        self._mechanism_state = after
        self._step += 1
        self._state = state
        self._start_step()
        return release

    def _start_step(self) -> None:
        """Forget the clients of the step before."""
        self._arrived: list[ClientIds] = [_NOBODY]
        self._requested = _NOBODY
        self._answered = np.zeros(0, np.bool_)
        self._checked_in = 0
        self._sum = self._mechanism.zero()

    def _after(self, event: CoordinatorEvent) -> CoordinatorState:
        return next_state(COORDINATOR_TABLE, self._state, event, f"step {self._step}")

    def _refuse_other_steps(self, step: int, what: str) -> None:
        if step != self._step:
            lateness = "late" if step < self._step else "early"
            raise RemoteProtocolError(
                f"{what} for step {step} is {lateness}: step {self._step} is in progress"
            )

    def _places(self, clients: ClientIds) -> NDArray[np.int64]:
        """Positions of these clients among the requested ones; refused unless all are due."""
        places = np.searchsorted(self._requested, clients)
        found = places < self._requested.size
        found[found] = self._requested[places[found]] == clients[found]
        if not found.all():
            raise RemoteProtocolError(
                f"step {self._step}: client {int(clients[~found][0])} sent an update unasked"
            )
        named = np.bincount(places, minlength=self._requested.size)
        if (named + self._answered > 1).any():
            raise RemoteProtocolError(f"step {self._step}: a client sent a second update")
        return places


def _checked(state: State | None, initial: State) -> State:
    """The state to begin with: a mechanism's first one, or a stored one of the same arrays."""
    if state is None:
        return initial
    for name in initial.keys() | state.keys():
        first, given = initial.get(name), state.get(name)
        if first is None or given is None:
            raise ParameterError(name, None, f"a state of {', '.join(initial) or 'nothing'}")
        if given.shape != first.shape or given.dtype != first.dtype or not np.isfinite(given).all():
            raise ParameterError(name, given.shape, f"finite {first.dtype}, shape {first.shape}")
    return state
