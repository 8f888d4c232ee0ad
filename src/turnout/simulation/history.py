"""What a run leaves behind, step by step, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.protocol import Release


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The columns of a run so far. Counts are for whoever runs the simulation.

    Attributes:
        check_ins: clients accepted, int64, shape ``(steps done,)``; likewise for the next three.
        served: updates that came in, int64.
        dummy: whether noise alone was released, bool.
        skipped: whether the step was left out, bool.
        step: steps done at each evaluation, int64, shape ``(evaluations,)``; likewise below.
        accuracy: fraction of the test set, float64.
        loss: mean test loss, float64.
        seconds: running time up to the evaluation, float64; all else repeats exactly, this
            does not.
    """

    check_ins: NDArray[np.int64]
    served: NDArray[np.int64]
    dummy: NDArray[np.bool_]
    skipped: NDArray[np.bool_]
    step: NDArray[np.int64]
    accuracy: NDArray[np.float64]
    loss: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @property
    def participations(self) -> int:
        """Check-ins of all steps together."""
        return int(self.check_ins.sum())

    @property
    def dummy_steps(self) -> int:
        """Steps that released noise alone."""
        return int(self.dummy.sum())

    @property
    def skipped_steps(self) -> int:
        """Steps that were left out."""
        return int(self.skipped.sum())

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


HISTORY_TYPES: dict[str, type[Any]] = {
    "check_ins": np.int64,
    "served": np.int64,
    "dummy": np.bool_,
    "skipped": np.bool_,
    "step": np.int64,
    "accuracy": np.float64,
    "loss": np.float64,
    "seconds": np.float64,
}


class Recorder:
    """A history that grows: columns with room for the whole run, filled step by step.

    What is noted beyond the last committed step (a step that was interrupted) is overwritten
    or cut off, never seen.
    """

    def __init__(self, steps: int, evaluations: int) -> None:
        self._per_step = {
            name: np.zeros(steps, HISTORY_TYPES[name])
            for name in ("check_ins", "served", "dummy", "skipped")
        }
        self._per_evaluation = {
            name: np.zeros(evaluations, HISTORY_TYPES[name])
            for name in ("step", "accuracy", "loss", "seconds")
        }

    def restore(self, history: History) -> None:
        """Begin with what an earlier part of the run noted."""
        for name, column in history.columns().items():
            group = self._per_step if name in self._per_step else self._per_evaluation
            group[name][: column.size] = column

    def note_release(self, release: Release) -> None:
        """Note the counts of a step."""
        self._per_step["check_ins"][release.step] = release.checked_in
        self._per_step["served"][release.step] = release.served
        self._per_step["dummy"][release.step] = release.dummy
        self._per_step["skipped"][release.step] = release.skipped

    def note_evaluation(
        self, index: int, step: int, accuracy: float, loss: float, seconds: float
    ) -> None:
        """Note the evaluation number ``index``."""
        values = {"step": step, "accuracy": accuracy, "loss": loss, "seconds": seconds}
        for name, value in values.items():
            self._per_evaluation[name][index] = value

    def until(self, step: int, evaluations: int) -> History:
        """The first ``step`` steps and the first ``evaluations`` evaluations, copied."""
        return History(
            **{name: column[:step].copy() for name, column in self._per_step.items()},
            **{name: column[:evaluations].copy() for name, column in self._per_evaluation.items()},
        )
