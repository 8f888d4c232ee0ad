"""What a step's end makes of the stored updates: one charge, one noisy sum, one model, one record.

Nothing here talks to anybody. A release that is stored is read back, never drawn again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.protocol import Coordinator, Updates, UpdateSum
from turnout.protocol import Release as StepRelease
from turnout.service import learner as learning
from turnout.service.charter import Charter
from turnout.service.learner import Learner
from turnout.service.ledger import Head, Record, require_chain
from turnout.service.storage.interface import Release
from turnout.service.storage.writes import Transaction
from turnout.spec import ReleaseRule

IntegerNoise = Callable[[float, int], NDArray[np.int64]]
"""``noise(deviation, dimension)``: rounded Gaussians in units of the lattice."""


class Releases:
    """The chain of releases so far, and the model that they made.

    Guarantees: the budget allows a step before its noise is drawn; one draw a step, of the
    charter's deviation.

    Args:
        charter: the terms.
        learner: how a release moves the model.
        noise: where the noise comes from.
        view: the stored releases.

    Raises:
        StorageError: the ledger or the model is damaged.
    """

    def __init__(
        self, charter: Charter, learner: Learner, noise: IntegerNoise, view: Transaction
    ) -> None:
        self._charter, self._task = charter, charter.task
        self._learner, self._noise = learner, noise
        self._deviation = charter.lattice.noise_deviation(charter.scheme.noise_multiplier)
        self._asks_one = charter.scheme.release is ReleaseRule.ONE_CLIENT
        self._digests = [bytes.fromhex(charter.task)]
        head = self.head
        for record in view.records():
            head = require_chain(self._task, head, record)
            self._digests.append(record.digest)
        self._read_model(view)

    def _read_model(self, view: Transaction) -> None:
        last = view.last_release()
        self._state: learning.State | None = None
        self.pending: NDArray[np.floating] | None = None
        if last is None:
            self.parameters, digest = view.initial_parameters(), self._charter.initial_model
        else:
            self.parameters, digest = last.parameters, last.record.model_digest
            self._state = learning.unpacked(last.optimizer_state)
            self.pending = np.frombuffer(last.pending, dtype="<f8")
        if hashlib.sha256(self.parameters).digest() != digest:
            raise StorageError(f"the model after {self.head.steps} steps is not the ledger's")

    @property
    def head(self) -> Head:
        """How far the ledger is."""
        return Head(len(self._digests) - 1, self._digests[-1])

    def holds(self, head: Head) -> bool:
        """Whether the ledger once ended there."""
        return head.steps < len(self._digests) and self._digests[head.steps] == head.digest

    def release(self, tx: Transaction, coordinator: Coordinator, block_ends: int) -> Release:
        """Release the step that a coordinator is about to close, and store it.

        Args:
            tx: where all of it is stored, or nothing.
            coordinator: of the protocol.
            block_ends: the first step after the block of the law in which the step lies.

        Raises:
            BudgetExceededError: the step would cost more than the target; nothing is drawn.
            NumericalError: the model is not finite any more.
            StorageError: what is stored does not fit together.
        """
        step = coordinator.step
        epsilon = self._charter.spent(step + 1)
        total = self._received(tx, coordinator)
        noisy, outcome = self._closed(coordinator, total)
        parameters, state = self._moved(outcome)
        record = Record(
            task=self._task,
            step=step,
            sum_digest=hashlib.sha256(noisy.astype("<i8").tobytes()).digest(),
            model_digest=hashlib.sha256(parameters).digest(),
            epsilon=epsilon,
            delta=self._charter.delta,
            previous=self._digests[-1],
        )
        pending = coordinator.pending.astype("<f8").tobytes()
        stored = Release(
            record,
            parameters,
            learning.packed(state),
            pending,
            outcome.checked_in,
            outcome.served,
        )
        tx.release(stored, block_ends)
        self.parameters, self._state = parameters, state
        self._digests.append(record.digest)
        return stored

    def _received(self, tx: Transaction, coordinator: Coordinator) -> NDArray[np.int64]:
        """The exact sum of the stored updates, handed to the protocol's coordinator."""
        lattice, step = self._charter.lattice, coordinator.step
        total, clients = lattice.zero(), []
        for client, body in tx.bodies(step):
            total += lattice.decode(body)
            clients.append(client)
        if not self._asks_one and not np.array_equal(clients, tx.arrived(step)):
            raise StorageError(f"step {step} has check-ins without updates, or the reverse")
        if clients:
            # Whole numbers below 2⁵³: exact in float64 as well.
            summed = UpdateSum(total.astype(np.float64), len(clients))
            coordinator.receive(Updates(step, np.array(clients), summed))
        return total

    def _closed(
        self, coordinator: Coordinator, total: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], StepRelease]:
        """The noisy sum, and what the rule makes of it."""
        drawn: list[NDArray[np.int64]] = []

        def noise(std: float, dimension: int) -> NDArray[np.float64]:
            if drawn or abs(std / self._deviation - 1) > 1e-9:
                raise StorageError("a step has one draw of noise, of the charter's deviation")
            drawn.append(self._noise(self._deviation, dimension))
            return drawn[0].astype(np.float64)

        outcome = coordinator.close_step(noise)
        return total + drawn[0], outcome

    def _moved(self, outcome: StepRelease) -> tuple[bytes, learning.State]:
        """Parameters and optimiser state after a release."""
        parameters = learning.from_bytes(self.parameters)
        state = self._learner.init(parameters) if self._state is None else self._state
        if outcome.direction is None:
            return self.parameters, state
        in_units_of_the_model = outcome.direction * self._charter.lattice.step
        move = outcome.step // self._charter.minibatch
        parameters, state = self._learner.moved(parameters, state, in_units_of_the_model, move)
        return learning.to_bytes(parameters), state
