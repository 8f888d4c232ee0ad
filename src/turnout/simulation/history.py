"""The history of a run, step by step, as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import LocalProtocolError
from turnout.core.showing import shows_shapes
from turnout.protocol.messages import Release

_PER_STEP = {
    **{"check_ins": np.int64, "served": np.int64, "dummy": np.bool_, "skipped": np.bool_},
    **{"clipped": np.int64, "signal": np.float64},
}
_PER_EVALUATION = {"step": np.int64, "seconds": np.float64}
_METRIC = "metric."


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The columns of a run so far. Counts are for whoever runs the simulation.

    Attributes:
        check_ins: clients accepted, int64, shape ``(steps done,)``; likewise for the next five.
        served: updates that came in, int64.
        dummy: whether noise alone was released, bool.
        skipped: whether the step was left out, bool.
        clipped: updates longer than the clip norm, int64; −1 where that is not known.
        signal: ℓ2 norm of the sum of clipped updates before any noise, float64.
        step: steps done at each evaluation, int64, shape ``(evaluations,)``; likewise below.
        seconds: running time up to the evaluation, float64; all else repeats exactly, this
            does not.
        metrics: the algorithm's metrics by name, float64.
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
        """All columns by name; a metric's name begins with ``metric.``."""
        own = {name: getattr(self, name) for name in _PER_STEP | _PER_EVALUATION}
        return own | {_METRIC + name: column for name, column in self.metrics.items()}

    @classmethod
    def of_columns(cls, columns: Mapping[str, NDArray[Any]]) -> History:
        """The history with these `columns`; LookupError or TypeError where they are not its own."""
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
    """A history that grows: columns with room for the whole run, filled step by step.

    What is noted beyond the last committed step (a step that was interrupted) is overwritten
    or cut off, never seen.
    """

    def __init__(self, steps: int, evaluations: int) -> None:
        self._per_step = {name: np.zeros(steps, dtype) for name, dtype in _PER_STEP.items()}
        self._per_evaluation: dict[str, NDArray[Any]] = {}
        self._evaluations = evaluations

    def restore(self, history: History) -> None:
        """Begin with what an earlier part of the run noted."""
        for name, column in history.columns().items():
            if name in self._per_step:
                self._per_step[name][: column.size] = column
            elif history.step.size:
                self._per_evaluation[name] = self._room(name, column)

    def _room(self, name: str, start: NDArray[Any]) -> NDArray[Any]:
        """A column of evaluations that begins with what there is."""
        column = np.zeros(self._evaluations, _PER_EVALUATION.get(name, np.float64))
        column[: start.size] = start
        return column

    def note_sum(self, step: int, total: UpdateSum) -> None:
        """Note the clients' sum in a step, before any noise."""
        self._per_step["clipped"][step] = -1 if total.clipped is None else total.clipped
        self._per_step["signal"][step] = math.sqrt(float(np.square(total.total).sum()))

    def note_release(self, release: Release) -> None:
        """Note the counts of a step."""
        self._per_step["check_ins"][release.step] = release.checked_in
        self._per_step["served"][release.step] = release.served
        self._per_step["dummy"][release.step] = release.dummy
        self._per_step["skipped"][release.step] = release.skipped

    def note_evaluation(
        self, index: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        """Note the evaluation number ``index``.

        Raises:
            LocalProtocolError: metrics of other names than before.
        """
        values = {"step": step, "seconds": seconds}
        values |= {_METRIC + name: float(value) for name, value in metrics.items()}
        if not self._per_evaluation:
            none = np.zeros(0)
            self._per_evaluation = {name: self._room(name, none) for name in values}
        if values.keys() != self._per_evaluation.keys():
            raise LocalProtocolError(
                f"the algorithm's metrics are {', '.join(metrics)}, which they were not before"
            )
        for name, value in values.items():
            self._per_evaluation[name][index] = value

    def until(self, step: int, evaluations: int) -> History:
        """The first ``step`` steps and the first ``evaluations`` evaluations, copied."""
        none = {name: np.zeros(0, dtype) for name, dtype in _PER_EVALUATION.items()}
        evaluated = none | self._per_evaluation
        return History.of_columns(
            {name: column[:step] for name, column in self._per_step.items()}
            | {name: column[:evaluations] for name, column in evaluated.items()}
        )
