"""The server's model step on a release: the plan's optimizer, with its state as bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import NumericalError, StorageError
from turnout.plans import Plan

if TYPE_CHECKING:
    from turnout.service.charter import Charter

PARAMETERS = np.dtype("<f4")
"""Parameters on disk and on the wire."""

State = dict[str, NDArray[Any]]


class Learner:
    """The optimiser of a charter's plan. It is loaded at once, so that no release waits for it."""

    def __init__(self, charter: Charter) -> None:
        from turnout.runs.building import build_optimizer_of

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


def packed(state: Mapping[str, NDArray[Any]]) -> bytes:
    """An optimiser's state as bytes, the same for the same state."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: state[name] for name in sorted(state)})
    return buffer.getvalue()


def unpacked(data: bytes) -> State:
    """The state that `packed` wrote.

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
