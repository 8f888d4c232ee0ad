"""The end of a step: one charge, one noisy sum, one model, one record, from the stored updates.

`Releases` makes them without any network; a release that is stored is read back, never drawn again.
`Learner` is the server's model step: the plan's optimizer, with its state as bytes.
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
    """The chain of releases so far, and the model that they made.

    Guarantees: the budget allows a step before its noise is drawn; the mechanism's one draw a step.

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
        if hashlib.sha256(self.parameters).digest() != digest:
            raise StorageError(f"the model after {self.head.steps} steps is not the ledger's")

    @property
    def head(self) -> Head:
        """The ledger's head."""
        return Head(len(self._digests) - 1, self._digests[-1])

    def holds(self, head: Head) -> bool:
        """Whether the ledger once ended there."""
        return head.steps < len(self._digests) and self._digests[head.steps] == head.digest

    def release(self, tx: Transaction, coordinator: Coordinator, block_ends: int) -> ReleaseRow:
        """Release the step that a coordinator is about to close, and store it.

        ``block_ends`` is the first step after the block of the law in which the step lies.

        Raises:
            BudgetExceededError: the step would cost more than the target; nothing is drawn.
            NumericalError: the model is not finite any more.
            StorageError: what is stored does not fit together.
        """
        step = coordinator.step
        epsilon = self._charter.spent(step + 1)
        updates = self._received(tx, step)
        if updates.clients.size:
            coordinator.receive(updates)
        outcome = coordinator.close_step(self._noise)
        assert outcome.total is not None  # the rules that are served leave no step out
        parameters, state = self._moved(outcome)
        record = Record(
            task=self._task,
            step=step,
            sum_digest=hashlib.sha256(_little(outcome.total).tobytes()).digest(),
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

    def _received(self, tx: Transaction, step: int) -> Updates:
        """The sum of the stored updates.

        Each was decoded and checked before it was acknowledged, and is sealed since: what opens
        is the same bytes for the same client, so they are only added, some at a time.
        """
        clients: list[int] = []

        def bodies() -> Iterator[bytes]:
            for client, body in tx.bodies(step):
                clients.append(client)
                yield body

        total = self._charter.encoding.summed(bodies())
        if not self._charter.asks_one and not np.array_equal(clients, tx.arrived(step)):
            raise StorageError(f"step {step} has check-ins without updates, or the reverse")
        return Updates(step, np.array(clients, np.int64), total)

    def _moved(self, outcome: StepRelease) -> tuple[bytes, State]:
        """Parameters and optimiser state after a release."""
        parameters = from_bytes(self.parameters)
        state = self._learner.init(parameters) if self._state is None else self._state
        if outcome.direction is None:
            return self.parameters, state
        move = outcome.step // self._charter.minibatch
        parameters, state = self._learner.moved(parameters, state, outcome.direction, move)
        return to_bytes(parameters), state


def pack_mechanism_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """A mechanism's arrays one after the other, by name, little-endian."""
    return b"".join(_little(state[name]).tobytes() for name in sorted(state))


def unpack_mechanism_state(
    initial: Mapping[str, NDArray[Any]], data: bytes
) -> dict[str, NDArray[Any]]:
    """The state that `pack_mechanism_state` wrote, with the names, types and shapes of ``initial``.

    Raises:
        StorageError: bytes of another length.
    """
    little = {name: _little(initial[name]) for name in sorted(initial)}
    if len(data) != sum(array.nbytes for array in little.values()):
        raise StorageError("the mechanism's state is damaged: it has another length")
    state, start = dict[str, NDArray[Any]](), 0
    for name, array in little.items():
        read = np.frombuffer(data, array.dtype, array.size, start).reshape(array.shape)
        state[name], start = read.astype(initial[name].dtype), start + array.nbytes
    return state


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


PARAMETERS = np.dtype("<f4")
"""Parameters on disk and on the wire."""

State = dict[str, NDArray[Any]]


class Learner:
    """The optimiser of a charter's plan. It is loaded at once, so that no release waits for it."""

    def __init__(self, charter: Charter) -> None:
        from turnout.learning.optimizers import build_optimizer_of

        moves = charter.steps // charter.minibatch
        self._optimizer = build_optimizer_of(Plan.from_toml(charter.plan).optimizer, moves)

    def init(self, parameters: NDArray[np.float32]) -> State:
        """The optimiser's state before the first release."""
        return self._optimizer.init(parameters)

    def moved(
        self,
        parameters: NDArray[np.float32],
        state: State,
        direction: NDArray[np.float64],
        move: int,
    ) -> tuple[NDArray[np.float32], State]:
        """Parameters and state after a move along a released direction, the ``move``-th from 0.

        Raises:
            NumericalError: the model is not finite any more; learning rate or noise is too large.
        """
        # What happens to a release is postprocessing: rounding it costs no privacy.
        rounded = direction.astype(parameters.dtype)
        after, state = self._optimizer.update(parameters, state, rounded, move)
        if not np.isfinite(after).all():
            raise NumericalError(f"the model is not finite after move {move}")
        return after.astype(np.float32, copy=False), state

    def released(self, parameters: NDArray[np.float32], state: State) -> NDArray[np.float32]:
        """The model to be used: the parameters, or an average of past ones."""
        return self._optimizer.released(parameters, state).astype(np.float32, copy=False)


def pack_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """An optimiser's state as bytes, the same for the same state."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: state[name] for name in sorted(state)})
    return buffer.getvalue()


def unpack_state(data: bytes) -> State:
    """The state that `pack_state` wrote.

    Raises:
        StorageError: anything else.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, KeyError) as error:
        raise StorageError(f"the optimiser's state is damaged: {error}") from None


def to_bytes(parameters: NDArray[np.floating]) -> bytes:
    """Parameters as little-endian float32."""
    return parameters.astype(PARAMETERS).tobytes()


def from_bytes(data: bytes) -> NDArray[np.float32]:
    """The parameters that `to_bytes` wrote; a copy."""
    return np.frombuffer(data, dtype=PARAMETERS).astype(np.float32)
