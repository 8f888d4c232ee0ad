"""The release of a step: the ε that it spends, the noisy sum, the new model, the ledger record.

`Releases` makes releases and reads stored ones; the noise of a stored release is never drawn again.
`Learner` is the plan's optimizer, which changes the model. `pack_state` and `to_bytes` turn
optimizer state and parameters into bytes; `unpack_state` and `from_bytes` are the inverses.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import Noise
from turnout.core.errors import NumericalError, StorageError
from turnout.plans import Plan
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.messages import Release as StepRelease
from turnout.protocol.messages import Updates
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, Record, require_chain
from turnout.service.storage.interface import ReleaseRow
from turnout.service.storage.writes import Transaction

if TYPE_CHECKING:
    from turnout.service.contract.charter import Charter


class Releases:
    """All releases of a task, and the model after the last of them.

    Guarantees:
        The noise of a step is drawn once, after the budget has allowed the step.

    Args:
        charter: terms of the task.
        learner: optimizer that changes the model.
        noise: function that draws the noise of releases.
        view: transaction of a snapshot, from which the releases are read.

    Raises:
        StorageError: the ledger or the model is damaged.
    """

    def __init__(self, charter: Charter, learner: Learner, noise: Noise, view: Transaction) -> None:
        self._charter, self._task = charter, charter.task
        self._learner, self._noise = learner, noise
        self._digests = [bytes.fromhex(charter.task)]
        head = self.head
        for record in view.records():
            head = require_chain(self._task, head, record)
            self._digests.append(record.digest)
        self._read_model(view)

    def _read_model(self, view: Transaction) -> None:
        """Read the model and optimizer state after the last release; check the model's digest."""
        # The stored model and states. Before the first release the charter has the model's digest;
        # after it the ledger has it.
        last = view.last_release()
        self._state: State | None = None
        self.mechanism_state = self._charter.mechanism.initial_state()
        if last is None:
            self.parameters, digest = view.initial_parameters(), self._charter.initial_model
        else:
            self.parameters, digest = last.parameters, last.record.model_digest
            self._state = unpack_state(last.optimizer_state)
            self.mechanism_state = unpack_mechanism_state(
                self.mechanism_state, last.mechanism_state
            )
        # A model with another digest was damaged or changed.
        if hashlib.sha256(self.parameters).digest() != digest:
            raise StorageError(
                f"the stored model after {self.head.steps} steps is not the model in the ledger: "
                "the database is damaged"
            )

    @property
    def head(self) -> Head:
        """Ledger head after the last release."""
        return Head(len(self._digests) - 1, self._digests[-1])

    def holds(self, head: Head) -> bool:
        """Whether a ledger head is the current head or an earlier head of this ledger."""
        return head.steps < len(self._digests) and self._digests[head.steps] == head.digest

    def release(self, tx: Transaction, coordinator: Coordinator, block_ends: int) -> ReleaseRow:
        """Compute and store the release of the step that ``coordinator`` is about to close.

        Args:
            tx: transaction that stores the release.
            coordinator: the protocol's coordinator, at this step.
            block_ends: first step after the block of the participation that contains this step.

        Raises:
            BudgetExceededError: ε after the step would exceed the target; no noise was drawn.
            NumericalError: the model after the step is not finite.
            StorageError: stored check-ins and updates contradict each other.
        """
        # The budget comes first: without it no noise is drawn.
        step = coordinator.step
        epsilon = self._charter.spent(step + 1)
        # The noisy sum of the stored updates, and the model after it.
        updates = self._stored_updates(tx, step)
        if updates.clients.size:
            coordinator.receive(updates)
        outcome = coordinator.close_step(self._noise)
        assert outcome.total is not None  # under the served rules every step has a release
        parameters, state = self._next_model(outcome)
        # Record and models are stored together, or none of them.
        record = Record(
            task=self._task,
            step=step,
            sum_digest=hashlib.sha256(_little_endian(outcome.total).tobytes()).digest(),
            model_digest=hashlib.sha256(parameters).digest(),
            epsilon=epsilon,
            delta=self._charter.delta,
            previous=self._digests[-1],
        )
        stored = ReleaseRow(
            record,
            parameters,
            pack_state(state),
            pack_mechanism_state(coordinator.mechanism_state),
            outcome.checked_in,
            outcome.served,
        )
        tx.release(stored, block_ends)
        self.parameters, self._state = parameters, state
        self._digests.append(record.digest)
        return stored

    def _stored_updates(self, tx: Transaction, step: int) -> Updates:
        """Sum of the stored updates of a step, as the protocol's coordinator decodes them.

        Each update was checked before it was acknowledged, and is stored with authenticated
        encryption, so no update is checked again.
        """
        clients: list[int] = []

        def bodies() -> Iterator[bytes]:
            for client, body in tx.bodies(step):
                clients.append(client)
                yield body

        total = self._charter.encoding.summed(bodies())
        if not self._charter.asks_one and not np.array_equal(clients, tx.arrived(step)):
            raise StorageError(
                f"step {step} has check-ins without updates, or updates without check-ins"
            )
        return Updates(step, np.array(clients, np.int64), total)

    def _next_model(self, outcome: StepRelease) -> tuple[bytes, State]:
        """Parameters (as bytes) and optimizer state after a release."""
        parameters = from_bytes(self.parameters)
        state = self._learner.init(parameters) if self._state is None else self._state
        if outcome.direction is None:
            return self.parameters, state
        move = outcome.step // self._charter.minibatch
        parameters, state = self._learner.moved(parameters, state, outcome.direction, move)
        return to_bytes(parameters), state


def pack_mechanism_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Bytes of a mechanism's state: all arrays, little-endian, joined in the order of their names.

    Args:
        state: arrays of any shape, by name.
    """
    return b"".join(_little_endian(state[name]).tobytes() for name in sorted(state))


def unpack_mechanism_state(
    initial: Mapping[str, NDArray[Any]], data: bytes
) -> dict[str, NDArray[Any]]:
    """Mechanism state from the bytes of `pack_mechanism_state`.

    Args:
        initial: arrays with the names, types and shapes of the state.
        data: the bytes.

    Raises:
        StorageError: the length of ``data`` differs from the total length of the arrays.
    """
    little = {name: _little_endian(initial[name]) for name in sorted(initial)}
    if len(data) != sum(array.nbytes for array in little.values()):
        raise StorageError("the mechanism's state is damaged: it has the wrong length")
    state, start = dict[str, NDArray[Any]](), 0
    for name, array in little.items():
        read = np.frombuffer(data, array.dtype, array.size, start).reshape(array.shape)
        state[name], start = read.astype(initial[name].dtype), start + array.nbytes
    return state


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """Array with its numbers in little-endian byte order."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


PARAMETERS = np.dtype("<f4")
"""Type of parameters in the storage and on the wire."""

State = dict[str, NDArray[Any]]


class Learner:
    """Optimizer of a charter's plan, loaded in advance so that no release waits for it."""

    def __init__(self, charter: Charter) -> None:
        from turnout.learning.optimizers import build_optimizer_of

        moves = charter.steps // charter.minibatch
        self._optimizer = build_optimizer_of(Plan.from_toml(charter.plan).optimizer, moves)

    def init(self, parameters: NDArray[np.float32]) -> State:
        """Optimizer state before the first release, for parameters of shape ``(d,)``."""
        return self._optimizer.init(parameters)

    def moved(
        self,
        parameters: NDArray[np.float32],
        state: State,
        direction: NDArray[np.float64],
        move: int,
    ) -> tuple[NDArray[np.float32], State]:
        """Parameters and optimizer state after one more step of the optimizer.

        Args:
            parameters: parameters before the optimizer's step, shape ``(d,)``.
            state: optimizer state before this step.
            direction: released direction, shape ``(d,)``.
            move: number of the optimizer's steps before this one.

        Raises:
            NumericalError: the model after the optimizer's step is not finite, since the learning
                rate or the noise is too large.
        """
        # Rounding a release is postprocessing, which costs no privacy.
        rounded = direction.astype(parameters.dtype)
        after, state = self._optimizer.update(parameters, state, rounded, move)
        if not np.isfinite(after).all():
            raise NumericalError(
                f"the model is not finite after its update {move}; use a smaller learning rate"
            )
        return after.astype(np.float32, copy=False), state

    def released(self, parameters: NDArray[np.float32], state: State) -> NDArray[np.float32]:
        """Model for use, shape ``(d,)``: the current parameters, or an average of earlier ones."""
        return self._optimizer.released(parameters, state).astype(np.float32, copy=False)


def pack_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Bytes of an optimizer state, arrays of any shape by name; equal states have equal bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: state[name] for name in sorted(state)})
    return buffer.getvalue()


def unpack_state(data: bytes) -> State:
    """Optimizer state from the bytes of `pack_state`.

    Raises:
        StorageError: the bytes are damaged.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, KeyError) as error:
        raise StorageError(f"the optimizer's state is damaged: {error}") from None


def to_bytes(parameters: NDArray[np.floating]) -> bytes:
    """Bytes of model parameters of shape ``(d,)``, little-endian float32."""
    return parameters.astype(PARAMETERS).tobytes()


def from_bytes(data: bytes) -> NDArray[np.float32]:
    """Model parameters, shape ``(d,)``, from the bytes of `to_bytes`, as a copy."""
    return np.frombuffer(data, dtype=PARAMETERS).astype(np.float32)
