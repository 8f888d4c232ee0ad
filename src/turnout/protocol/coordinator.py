"""The coordinator as a state machine: no network, no files, no clock.

Whoever drives it (a simulation, a service) feeds it messages and hands it randomness; it
decides who is served and what is released. An event that is refused leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import Noise, UpdateSum
from turnout.core.errors import ParameterError, RemoteProtocolError
from turnout.protocol.admissions import Admissions
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
from turnout.protocol.releases import rule_for
from turnout.protocol.tables import (
    COORDINATOR_TABLE,
    CoordinatorEvent,
    CoordinatorState,
    next_state,
)
from turnout.randomness import Source
from turnout.spec import Scheme

CLIP_SLACK = 1e-5
"""Relative slack of the norm check: float32 clipping overshoots by a few of its 1e-7 roundings."""

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
        An update that is not finite, has the wrong length, or a norm above the clip norm never
        gets into a sum.
        Nothing is released but what the scheme's rule makes of the sum, with its noise.

    Args:
        scheme: participation law, noise and release rule.
        dimension: coordinates d of an update.
        clip_norm: C, bound on the ℓ2 norm of one client's update.
        capacity: client ids are 0 … ``capacity − 1``.
        expected_check_ins: public divisor of `ReleaseRule.AGGREGATED`, which needs it.
        minibatch: b, steps accumulated before the model moves (`ReleaseRule.ONE_CLIENT`).
        first_step: where to begin; above 0 to go on after a stop.
        pending: the accumulator `pending` at that point, shape ``(d,)``; None for zeros.
        admitted: check-ins accepted before that point (those of the window in progress are
            enough), so that a client cannot come a second time after a restart.
        used: in place of ``admitted`` where the steps are not known: clients, each once, and how
            often each was accepted in the block of ``first_step`` before it.

    Raises:
        ParameterError: a value outside its domain.
    """

    def __init__(
        self,
        scheme: Scheme,
        dimension: int,
        *,
        clip_norm: float,
        capacity: int,
        expected_check_ins: float | None = None,
        minibatch: int = 1,
        first_step: int = 0,
        pending: NDArray[np.floating] | None = None,
        admitted: Iterable[CheckIns] = (),
        used: tuple[ClientIds, NDArray[np.int64]] | None = None,
    ) -> None:
        checks.count(dimension=dimension)
        checks.count(0, first_step=first_step)
        self._rule = rule_for(
            scheme,
            clip_norm_l2=clip_norm,
            expected_check_ins=expected_check_ins,
            minibatch=minibatch,
        )
        self._steps = scheme.participation.steps
        checks.at_most("steps", self._steps, first_step=first_step)
        self._dimension, self._clip_norm, self._minibatch = dimension, clip_norm, minibatch
        self._pending = _accumulator(pending, dimension)
        self._admissions = Admissions(scheme.participation, capacity)
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
        """Where it stands."""
        return self._state

    @property
    def step(self) -> int:
        """The step in progress, or the next one; the number of steps when finished."""
        return self._step

    @property
    def pending(self) -> NDArray[np.float64]:
        """A copy of the noisy minibatch so far, shape ``(d,)``; zeros between minibatches."""
        return self._pending.copy()

    def open_step(self) -> StepOpened:
        """Open the next step for check-ins."""
        self._state = self._after(CoordinatorEvent.OPEN_STEP)
        return StepOpened(self._step)

    def check_in(self, message: CheckIns) -> Receipt:
        """Record who came, client by client.

        Returns:
            A verdict for each client; one client's fault is not another's.

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

        Args:
            source: decides which one client is asked under `ReleaseRule.ONE_CLIENT`. The
                choice does not depend on the order in which clients came.
        """
        state = self._after(CoordinatorEvent.CLOSE_CHECK_INS)
        arrived = np.concatenate(self._arrived)
        if not ascending(arrived):
            arrived.sort()
        self._requested = self._rule.select(arrived, source)
        self._answered = np.zeros(self._requested.size, np.bool_)
        self._checked_in = arrived.size
        self._state = state
        return UpdateRequests(self._step, self._requested)

    def receive(self, message: Updates) -> None:
        """Add updates to the sum of the step.

        Raises:
            RemoteProtocolError: no updates are awaited, the step is another one, a client was
                not asked or has answered, or the sum is not finite, has the wrong length, has
                a norm above what clipping leaves, or carries noise where the rule adds it.
                A sum cannot be split, so the whole message is refused.
        """
        state = self._after(CoordinatorEvent.UPDATES)
        self._refuse_other_steps(message.step, "update")
        places = self._places(message.clients)
        self._refuse_unsound(message.sum)
        self._sum = self._sum + message.sum
        self._answered[places] = True
        self._state = state

    def close_step(self, noise: Noise) -> Release:
        """End the step and release what the rule makes of it.

        Args:
            noise: ``noise(std, dimension)`` draws independent N(0, std²) coordinates. It must
                be fresh in every step: two releases with the same noise reveal a difference.

        Returns:
            The release; its ``direction`` is None where the model does not move.
        """
        last = self._step + 1 == self._steps
        state = self._after(
            CoordinatorEvent.CLOSE_LAST_STEP if last else CoordinatorEvent.CLOSE_STEP
        )
        batch_full = (self._step + 1) % self._minibatch == 0
        outcome = self._rule.release(self._sum, self._pending, batch_full, noise)
        release = Release(
            step=self._step,
            direction=outcome.direction,
            skipped=outcome.skipped,
            checked_in=self._checked_in,
            served=self._sum.count,
            dummy=self._sum.count == 0 and not outcome.skipped,
        )
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
        self._sum = UpdateSum.zero(self._dimension)

    def _after(self, event: CoordinatorEvent) -> CoordinatorState:
        return next_state(COORDINATOR_TABLE, self._state, event, f"step {self._step}")

    def _refuse_other_steps(self, step: int, what: str) -> None:
        if step != self._step:
            lateness = "late" if step < self._step else "early"
            raise RemoteProtocolError(
                f"{what} for step {step} is {lateness}: step {self._step} is in progress"
            )

    def _places(self, clients: ClientIds) -> NDArray[np.int64]:
        """Where these clients stand among the requested ones; refused unless all are due."""
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

    def _refuse_unsound(self, updates: UpdateSum) -> None:
        """Refuse a sum that no clipped, finite updates can have."""
        if updates.dimension != self._dimension:
            raise RemoteProtocolError(
                f"step {self._step}: an update has {updates.dimension} coordinates, "
                f"not {self._dimension}"
            )
        if not np.isfinite(updates.total).all():
            raise RemoteProtocolError(f"step {self._step}: an update is not finite")
        if updates.noised and not self._rule.client_noise_allowed:
            raise RemoteProtocolError(
                f"step {self._step}: an update carries noise, which this rule adds once itself"
            )
        limit = updates.count * self._clip_norm * (1 + CLIP_SLACK)
        # Not linalg.norm: its BLAS threads spin for longer than all else in a step takes.
        norm = float(np.sqrt(np.square(updates.total).sum()))
        if not updates.noised and norm > limit:
            raise RemoteProtocolError(
                f"step {self._step}: the norm of {updates.count} updates is above {limit:.6g}, "
                "so one of them is not clipped"
            )


def _accumulator(pending: NDArray[np.floating] | None, dimension: int) -> NDArray[np.float64]:
    """The minibatch accumulator to begin with: zeros, or a copy of a stored one."""
    if pending is None:
        return np.zeros(dimension)
    if pending.shape != (dimension,) or not np.isfinite(pending).all():
        raise ParameterError("pending", pending.shape, f"finite numbers, shape ({dimension},)")
    return np.array(pending, dtype=np.float64)
