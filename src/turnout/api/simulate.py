"""`simulate`: a simulated run of a scheme without a plan, optionally with training.

A `SimulatedRun` is the result: the number of participants of each step, and the trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.api.price import Result
from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.schemes import Participation, Scheme

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.learning.algorithm import Algorithm
    from turnout.participation.schedule import Schedule
    from turnout.randomizers.vectors import VectorRandomizer
    from turnout.reporting.drawing import Picture
    from turnout.simulation import History, SimulationResult


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRun(Result):
    """Simulated run: participants of each step, and the trained model if an algorithm was given.

    Attributes:
        participation: rule that decides in which steps each client takes part.
        clients: number of clients.
        seed: seed from which all draws follow.
        check_ins: number of participants of each step, int64, shape (steps,).
        expected_check_ins: expected number of participants of each step, shape (steps,).
        expected_empty_steps: expected number of steps without participants.
        history: measurements of the training; None without an algorithm.
        parameters: parameters of the final model, shape (dimension,); None without an algorithm.
    """

    participation: Participation
    clients: int
    seed: int
    check_ins: NDArray[np.int64]
    expected_check_ins: NDArray[np.float64]
    expected_empty_steps: float
    history: History | None = None
    parameters: NDArray[np.floating] | None = None

    @property
    def empty_steps(self) -> int:
        """Number of steps without participants."""
        return int(np.count_nonzero(self.check_ins == 0))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the run, without the model and running times."""
        # Exact counts with their expectations.
        record = {
            "law": repr(self.participation),
            "clients": self.clients,
            "randomness": f"simulation only (seed {self.seed})",
            "steps": self.check_ins.size,
            "participations": int(self.check_ins.sum()),
            "expected_participations": float(self.expected_check_ins.sum()),
            "steps_without_anybody": self.empty_steps,
            "expected_steps_without_anybody": self.expected_empty_steps,
            "check_ins": self.check_ins.tolist(),
            "expected_check_ins": self.expected_check_ins.tolist(),
        }
        # Metrics of the model, if there is one.
        if self.history is not None:
            metrics = {name: column.tolist() for name, column in self.history.metrics.items()}
            record["evaluations"] = {"step": self.history.step.tolist(), **metrics}
        return record

    def table(self) -> RenderableType:
        """Table of the counts and of their expected values, as a ``rich`` renderable."""
        from rich.table import Table

        # Exact counts with their expectations.
        rows = {
            "who takes part when": f"{self.participation}, {self.clients:,} clients",
            "check-ins": f"{self.check_ins.sum():,} in {self.check_ins.size:,} steps; "
            f"{self.expected_check_ins.sum():,.0f} expected",
            "a step": f"{self.check_ins.min():,} to {self.check_ins.max():,}; "
            f"{self.expected_check_ins.mean():,.1f} expected on average",
            "nobody came at": f"{self.empty_steps:,} steps; "
            f"{self.expected_empty_steps:,.1f} expected",
            "randomness": f"simulation only (seed {self.seed}); exact counts, not covered by ε",
        }
        # Metrics of the model, if there is one.
        if self.history is not None:
            rows |= {name: f"{value[-1]:.4g}" for name, value in self.history.metrics.items()}
        table = Table.grid(padding=(0, 2))
        for name, text in rows.items():
            table.add_row(name, text)
        return table

    def plot(self) -> Picture:
        """Picture of the number of check-ins in each step and of its expected value.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.pictures import check_in_picture

        return check_in_picture(self.check_ins, self.expected_check_ins, self.expected_empty_steps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SimulatedRun):
            return NotImplemented
        mine, others = self.parameters, other.parameters
        if mine is None or others is None:
            return mine is others and self.to_dict() == other.to_dict()
        return np.array_equal(mine, others) and self.to_dict() == other.to_dict()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return (
            f"SimulatedRun({self.participation}, {self.clients:,} clients: "
            f"{self.check_ins.sum():,} check-ins, nobody came at {self.empty_steps:,} of "
            f"{self.check_ins.size:,} steps)"
        )


def simulate(
    scheme: Scheme | Participation,
    *,
    clients: int | None = None,
    algorithm: Algorithm | None = None,
    seed: int = 1,
    minibatch: int = 1,
    expected_check_ins: float | None = None,
    evaluate_every: int | None = None,
    messages: VectorRandomizer | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> SimulatedRun:
    """Simulated run of a scheme: the participants of each step, and training if requested.

    The result is for simulation only. All draws follow from the seed and give no privacy; the
    counts are exact, and no ε covers them. `price` computes the ε of a scheme.

    Args:
        scheme: a participation, or a `Scheme`; training needs a `Scheme`.
        clients: number of clients, which may be many millions; None with an algorithm.
        algorithm: algorithm to train with, which holds the clients' data and their number; None
            draws participants only.
        seed: seed of all random streams. The same seed gives the same run.
        minibatch: number of steps that are accumulated before the model is updated, as in
            `turnout.simulation.Simulation`. Used only with an algorithm.
        expected_check_ins: public divisor of the sum of updates; if None, the expected number of
            participants of a step. Used only with an algorithm.
        evaluate_every: number of steps between evaluations; if None, the model is evaluated about
            60 times. Used only with an algorithm.
        messages: under local or shuffled trust, the randomizer of each client's update. Its
            attribute ``priced_as`` must be the scheme's randomizer (of one message, if a client
            sends several), and its radius must be the algorithm's ``clip_norm``.
        watch: function that is called with the number of finished steps and the number of all
            steps, after each step or, without an algorithm, after each block of steps. None shows a
            progress bar on a terminal or in a notebook after two seconds.

    Returns:
        The run, with counts of shape (steps,) and, with an algorithm, the history and parameters.

    Raises:
        ParameterError: the number of clients is missing or does not fit the participation, or
            ``messages`` does not fit the scheme.
        UnsupportedError: no analysis of the scheme covers the steps of the algorithm.
        turnout.runs.InterruptedRunError: Ctrl-C stopped the training.

    >>> from turnout.schemes import CheckIn
    >>> simulate(CheckIn(window=4, windows=2), clients=1_000, seed=1)
    SimulatedRun(CheckIn(window=4, windows=2, probability=1.0), 1,000 clients: 2,000 check-ins,
    nobody came at 0 of 8 steps)
    """
    from turnout.participation.drawing import draw_run, expected_empty_steps
    from turnout.participation.drawing import expected_check_ins as expected
    from turnout.randomness import SimulationStreams
    from turnout.runs.workload import EVALUATIONS

    participation = scheme.participation if isinstance(scheme, Scheme) else scheme
    # The number of clients: given, or that of the algorithm.
    population = clients if algorithm is None else algorithm.population
    if population is None or (algorithm is not None and clients is not None):
        raise ParameterError(
            "clients", clients, "the number of clients, or an algorithm (exactly one)"
        )
    # Expectations follow from the participation alone.
    means = expected(participation, population), expected_empty_steps(participation, population)
    # Without an algorithm: participation only.
    if algorithm is None:
        with _watched(watch) as tell:
            drawn = draw_run(participation, population, SimulationStreams(seed))
            counts = _counts(drawn, participation.steps, tell)
        return SimulatedRun(participation, population, seed, counts, *means)
    # With an algorithm: training under the scheme.
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", scheme, "a Scheme, which includes the randomizer")
    with _watched(watch) as tell:
        result = _learned(
            scheme,
            algorithm,
            tell,
            seed=seed,
            minibatch=minibatch,
            expected_check_ins=expected_check_ins,
            evaluate_every=evaluate_every or max(1, participation.steps // EVALUATIONS),
            messages=messages,
        )
    history = result.history
    return SimulatedRun(
        participation, population, seed, history.check_ins, *means, history, result.parameters
    )


def _watched(
    watch: Callable[[int, int], None] | None,
) -> AbstractContextManager[Callable[[int, int], None]]:
    """Context that yields ``watch``, or a progress bar's update function if ``watch`` is None."""
    if watch is not None:
        return nullcontext(watch)
    from turnout.reporting.progress import progress_bar

    return progress_bar("simulating")


def _counts(
    drawn: Iterable[Schedule], steps: int, tell: Callable[[int, int], None]
) -> NDArray[np.int64]:
    """Number of participants of each step, shape (steps,); ``tell`` is called after each block."""
    parts: list[NDArray[np.int64]] = []
    done = 0
    for schedule in drawn:
        parts.append(schedule.counts())
        done += parts[-1].size
        tell(done, steps)
    return np.concatenate(parts)


def _learned(
    scheme: Scheme, algorithm: Algorithm, tell: Callable[[int, int], None], **settings: Any
) -> SimulationResult:
    """Result of a whole simulation with an algorithm.

    Raises:
        InterruptedRunError: Ctrl-C stopped the simulation before its last step.
    """
    from turnout.runs import InterruptedRunError
    from turnout.simulation import Simulation

    simulation = Simulation(scheme, algorithm, **settings)
    result = simulation.run(on_progress=lambda now: tell(now.step, now.steps))
    if not result.finished:
        raise InterruptedRunError(None, result.steps_done, scheme.participation.steps)
    return result
