"""Checkpoints from which a run can be resumed, and the history of the run's steps.

`Checkpoint` is the state of a run. `FileCheckpoints` stores this state in a file that stays usable
if the process is killed at any time. `History` has the measurements of the steps as columns, which
a `Recorder` fills.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError, StorageError
from turnout.core.files import replace_file
from turnout.core.identity import Identity
from turnout.core.showing import shows_shapes
from turnout.protocol.messages import Release

if TYPE_CHECKING:
    from turnout.learning.algorithm import ClientStates, ServerState

_PER_STEP = {
    **{"check_ins": np.int64, "served": np.int64, "dummy": np.bool_, "skipped": np.bool_},
    **{"clipped": np.int64, "signal": np.float64},
}
_PER_EVALUATION = {"step": np.int64, "seconds": np.float64}
_METRIC = "metric."


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Measurements of each step and of each evaluation of a run.

    ε does not cover counts and metrics, so they are only for the party that runs the simulation.

    The first six arrays have the shape ``(finished steps,)``, the others ``(evaluations,)``. If a
    run is repeated, all columns except ``seconds`` are the same.

    Attributes:
        check_ins: number of accepted check-ins, int64.
        served: number of received updates, int64.
        dummy: whether the step released noise only, without any update, bool.
        skipped: whether the step released nothing, bool.
        clipped: number of updates longer than the clip norm, int64; −1 if it is not known.
        signal: ℓ2 norm of the sum of clipped updates before noise, float64.
        step: number of finished steps at the evaluation, int64.
        seconds: running time up to the evaluation, in seconds, float64.
        metrics: the algorithm's metrics by name, float64 each.
    """

    check_ins: NDArray[np.int64]
    served: NDArray[np.int64]
    dummy: NDArray[np.bool_]
    skipped: NDArray[np.bool_]
    clipped: NDArray[np.int64]
    signal: NDArray[np.float64]
    step: NDArray[np.int64]
    seconds: NDArray[np.float64]
    metrics: Mapping[str, NDArray[np.float64]]

    @property
    def participations(self) -> int:
        """Number of accepted check-ins in all steps together."""
        return int(self.check_ins.sum())

    @property
    def dummy_steps(self) -> int:
        """Number of steps that released noise only."""
        return int(self.dummy.sum())

    @property
    def skipped_steps(self) -> int:
        """Number of steps without a release."""
        return int(self.skipped.sum())

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name; the name of a metric begins with ``metric.``."""
        own = {name: getattr(self, name) for name in _PER_STEP | _PER_EVALUATION}
        return own | {_METRIC + name: column for name, column in self.metrics.items()}

    @classmethod
    def of_columns(cls, columns: Mapping[str, NDArray[Any]]) -> History:
        """History with the given columns.

        Raises:
            LookupError: a column is missing.
            TypeError: a column has a type that cannot be converted without loss.
        """
        types: dict[str, type[Any]] = {
            **dict.fromkeys(columns, np.float64),
            **_PER_STEP,
            **_PER_EVALUATION,
        }
        typed: dict[str, NDArray[Any]] = {
            name: columns[name].astype(types[name], casting="safe") for name in types
        }
        own = {name: typed.pop(name) for name in _PER_STEP | _PER_EVALUATION}
        return cls(**own, metrics={name.removeprefix(_METRIC): typed[name] for name in typed})


class Recorder:
    """History of a run in progress, whose columns have room for the whole run.

    Entries of an interrupted step are overwritten when the step is repeated; the result of `until`
    does not contain them.
    """

    def __init__(self, steps: int, evaluations: int) -> None:
        self._per_step = {name: np.zeros(steps, dtype) for name, dtype in _PER_STEP.items()}
        self._per_evaluation: dict[str, NDArray[Any]] = {}
        self._evaluations = evaluations

    def restore(self, history: History) -> None:
        """Fill the columns with the history of an earlier part of the run."""
        for name, column in history.columns().items():
            if name in self._per_step:
                self._per_step[name][: column.size] = column
            elif history.step.size:
                self._per_evaluation[name] = self._room(name, column)

    def _room(self, name: str, start: NDArray[Any]) -> NDArray[Any]:
        """Column of evaluations with room for the whole run, which starts with the given values."""
        column = np.zeros(self._evaluations, _PER_EVALUATION.get(name, np.float64))
        column[: start.size] = start
        return column

    def note_sum(self, step: int, total: UpdateSum) -> None:
        """Record the sum of the clients' updates in a step, before noise is added."""
        self._per_step["clipped"][step] = -1 if total.clipped is None else total.clipped
        self._per_step["signal"][step] = math.sqrt(float(np.square(total.total).sum()))

    def note_release(self, release: Release) -> None:
        """Record a step's check-ins and received updates, and whether it released anything."""
        self._per_step["check_ins"][release.step] = release.checked_in
        self._per_step["served"][release.step] = release.served
        self._per_step["dummy"][release.step] = release.dummy
        self._per_step["skipped"][release.step] = release.skipped

    def note_evaluation(
        self, index: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        """Record evaluation number ``index``, counted from 0.

        Raises:
            LocalProtocolError: the names of the metrics differ from those of the first evaluation.
        """
        values = {"step": step, "seconds": seconds}
        values |= {_METRIC + name: float(value) for name, value in metrics.items()}
        if not self._per_evaluation:
            none = np.zeros(0)
            self._per_evaluation = {name: self._room(name, none) for name in values}
        if values.keys() != self._per_evaluation.keys():
            raise LocalProtocolError(
                f"the algorithm's metrics are {', '.join(metrics)}, unlike those of the previous "
                "evaluation: return the same names in every evaluation"
            )
        for name, value in values.items():
            self._per_evaluation[name][index] = value

    def until(self, step: int, evaluations: int) -> History:
        """History of the first ``step`` steps and ``evaluations`` evaluations, as a copy."""
        none = {name: np.zeros(0, dtype) for name, dtype in _PER_EVALUATION.items()}
        evaluated = none | self._per_evaluation
        return History.of_columns(
            {name: column[:step] for name, column in self._per_step.items()}
            | {name: column[:evaluations] for name, column in evaluated.items()}
        )


FORMAT = 1
"""Number of the format of checkpoints; a file with another number is an error."""
_SERVER, _CLIENTS, _MECHANISM, _HISTORY = "server.", "clients.", "mechanism.", "history."
KEY_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class RunIdentity:
    """Settings and data of a run, as a checkpoint stores them.

    Attributes:
        fingerprint: digest of the settings, 32 hexadecimal digits; it may be published.
        data_key: 32 random bytes from the operating system, drawn anew for each run.
        data_digest: keyed digest of all data, 32 bytes. The key and the digest together allow a
            test of guesses of the data, so they are stored in the checkpoint only.
    """

    fingerprint: str
    data_key: bytes = field(repr=False)
    data_digest: bytes = field(repr=False)

    @classmethod
    def new(cls, identity: Identity) -> RunIdentity:
        """Identity of a new run, with a new key."""
        key = os.urandom(KEY_BYTES)
        return cls(identity.public_digest(), key, identity.keyed_digest(key))

    def require(self, identity: Identity) -> None:
        """Raise an error unless a checkpoint with this identity belongs to the given run.

        Raises:
            StorageError: the settings or the data differ.
        """
        here = identity.public_digest()
        if self.fingerprint != here:
            raise StorageError(
                f"the checkpoint is of run {self.fingerprint}, which differs from this run, "
                f"{here}: the scheme, the settings, the seed or the computation of a client differs"
            )
        if not hmac.compare_digest(self.data_digest, identity.keyed_digest(self.data_key)):
            raise StorageError(
                "the checkpoint is of a run on other data: its examples, their order, their "
                "assignment to clients, the test set or the clients' availability differ"
            )


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """State of a run after some steps.

    A checkpoint has no state of random generators, since each random stream is derived from its
    name.

    Attributes:
        run: settings and data of the run.
        step: number of finished steps.
        server: the server's state.
        clients: states of the clients that have participated; empty if clients have no states.
        mechanism_state: arrays of the mechanism by name; None for its initial state.
        history: measurements of the finished steps.
        seconds: running time, in seconds.
    """

    run: RunIdentity
    step: int
    server: ServerState
    clients: ClientStates
    mechanism_state: Mapping[str, NDArray[Any]] | None
    history: History
    seconds: float


class CheckpointStore(Protocol):
    """Interface of a store for the newest checkpoint of one run."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint; after a crash at any time the old or the new one can be loaded."""
        ...

    def load(self) -> Checkpoint | None:
        """Newest checkpoint, or None if nothing was saved."""
        ...


class FileCheckpoints:
    """Store of the newest checkpoint in one ``.npz`` file, without pickle.

    Guarantee: if the process is killed or the power fails, the file has either the complete old
    or the complete new checkpoint. A checkpoint is written to a second file and synced, this file
    replaces the old one in one operation, and the folder is synced.

    Only the owner of the file may read it. The file contains a keyed digest of the clients' data,
    and the key; with both, guesses of the data can be tested.
    """

    def __init__(self, path: Path | str) -> None:
        """Make a store for the file ``path``, in a folder that exists."""
        self._path = Path(path)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the file by a file with the given checkpoint.

        Raises:
            StorageError: the file cannot be written; the old file is unchanged.
        """
        arrays = _arrays(checkpoint)

        def write(file: BinaryIO) -> None:
            np.savez(file, allow_pickle=False, **arrays)

        replace_file(self._path, write, "checkpoint", 0o600)

    def load(self) -> Checkpoint | None:
        """Checkpoint in the file, or None if the file does not exist.

        Raises:
            StorageError: the file cannot be read, is damaged or has another format.
        """
        if not self._path.exists():
            return None
        with (
            _storage_errors(self._path),
            self._path.open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return _checkpoint(dict(arrays))


def _arrays(checkpoint: Checkpoint) -> dict[str, NDArray[Any]]:
    """Named arrays of a checkpoint."""
    single = {
        "format": np.array(FORMAT),
        "fingerprint": np.array(checkpoint.run.fingerprint),
        "data_key": np.frombuffer(checkpoint.run.data_key, np.uint8),
        "data_digest": np.frombuffer(checkpoint.run.data_digest, np.uint8),
        "step": np.array(checkpoint.step),
        "seconds": np.array(checkpoint.seconds),
    }
    server = {_SERVER + k: np.asarray(v) for k, v in checkpoint.server.items()}
    mechanism = {_MECHANISM + k: v for k, v in (checkpoint.mechanism_state or {}).items()}
    history = {_HISTORY + k: v for k, v in checkpoint.history.columns().items()}
    return single | server | mechanism | _stacked(checkpoint.clients) | history


def _stacked(clients: ClientStates) -> dict[str, NDArray[Any]]:
    """States of the clients as one array for each name; row i belongs to client ``clients[i]``."""
    numbers = sorted(clients)
    names = clients[numbers[0]] if numbers else {}
    rows = {_CLIENTS + k: np.stack([clients[client][k] for client in numbers]) for k in names}
    return {_CLIENTS: np.array(numbers, np.int64)} | rows


def _group(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Arrays whose names begin with a prefix, under their names without the prefix."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _checkpoint(arrays: dict[str, NDArray[Any]]) -> Checkpoint:
    """Checkpoint from its named arrays."""
    # Other formats are refused.
    written = int(arrays["format"])
    if written != FORMAT:
        raise ValueError(
            f"format = {written}: expected {FORMAT}; resume the run with the version of turnout "
            "that wrote the checkpoint, or start a new run"
        )
    # The clients' states, one row for each client.
    clients = _group(arrays, _CLIENTS)
    numbers = clients.pop("").tolist()
    # Everything else by its name or prefix.
    return Checkpoint(
        run=RunIdentity(
            str(arrays["fingerprint"]),
            arrays["data_key"].tobytes(),
            arrays["data_digest"].tobytes(),
        ),
        step=int(arrays["step"]),
        server=_group(arrays, _SERVER),
        clients={
            client: {name: rows[i] for name, rows in clients.items()}
            for i, client in enumerate(numbers)
        },
        mechanism_state=_group(arrays, _MECHANISM) or None,
        history=History.of_columns(_group(arrays, _HISTORY)),
        seconds=float(arrays["seconds"]),
    )


_DAMAGE = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    RuntimeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


@contextlib.contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Context that turns errors of numpy or zipfile on a damaged file into one clear error."""
    try:
        yield
    except _DAMAGE as error:
        raise StorageError(f"{path}: not a usable checkpoint: {error}") from error
