"""Training from a plan, and simulations of who takes part when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.api.prices import Result
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.reporting.words import rounded_up
from turnout.schemes import Participation, Scheme

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.accounting import Guarantee
    from turnout.data import ClientData
    from turnout.learning.algorithm import Algorithm
    from turnout.learning.tasks import Executor
    from turnout.plans import Plan
    from turnout.randomizers.vectors import VectorRandomizer
    from turnout.reporting.drawing import Picture
    from turnout.reporting.summary import Outcome, Summary
    from turnout.simulation import History, SimulationResult


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Result):
    """A finished run of a plan.

    Two runs are equal if their plans, models and histories are, running times apart.

    Attributes:
        summary: everything that a report says.
        folder: where the report is; None where none was written.
    """

    summary: Summary
    folder: Path | None

    @property
    def _outcome(self) -> Outcome:
        return self.summary.outcome

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the run to each client."""
        return self._outcome.prepared.guarantee

    @property
    def history(self) -> History:
        """The run step by step; its exact counts of who came are not covered by ε."""
        return self._outcome.history

    @property
    def parameters(self) -> NDArray[np.floating]:
        """The final model, shape (dimension,)."""
        return self._outcome.parameters

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the final model on the test set, by name; the headline first, loss too."""
        return self._outcome.metrics

    @property
    def baseline(self) -> History | None:
        """The same plan without noise and clipping; None if it was not asked for."""
        return self.summary.baseline

    @property
    def interval(self) -> tuple[float, float] | None:
        """A 95 % interval of the headline metric, for a test set drawn anew; None if not known."""
        return self._outcome.interval

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model.

        Raises:
            UnsupportedError: the plan asks for other metrics.
        """
        if "accuracy" not in self.metrics:
            raise UnsupportedError(f"no accuracy here; the metrics are {', '.join(self.metrics)}")
        return self.metrics["accuracy"]

    @property
    def loss(self) -> float:
        """Test loss of the final model."""
        return self._outcome.loss

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json: no exact count of who came."""
        return self.summary.record()

    def table(self) -> RenderableType:
        """The table that the command line prints, for rich to print."""
        from turnout.reporting.console import run_table

        return run_table(self.summary)

    def plot(self) -> Picture:
        """Accuracy and ε over the steps."""
        require("plots", what="plot")
        from turnout.reporting.pictures import pictures

        return pictures(self.summary)[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrainingRun):
            return NotImplemented
        mine, others = self.history.columns(), other.history.columns()
        return (
            self._outcome.prepared.plan == other._outcome.prepared.plan
            and np.array_equal(self.parameters, other.parameters)
            and mine.keys() == others.keys()
            and all(np.array_equal(mine[name], others[name]) for name in mine.keys() - {"seconds"})
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        guarantee, headline = self.guarantee, self._outcome.headline
        return (
            f"TrainingRun({headline.words} {headline.text(self._outcome.result)}, "
            f"{self.history.check_ins.size:,} steps; "
            f"{guarantee.trust.value}, ε = {rounded_up(guarantee.epsilon.upper)}, "
            f"δ = {guarantee.delta:g}, {guarantee.relation.value}, {guarantee.unit.value})"
        )


def train(
    plan: str | os.PathLike[str] | Plan | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    example: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    data: ClientData | None = None,
    module: Any = None,
    engine: Executor | None = None,
    baseline: bool = False,
    progress: bool = False,
) -> TrainingRun:
    """A run of a plan, its noise calibrated to its budget before anything runs.

    Clients and their randomness are simulated: draws follow from the plan's seed, which protects
    nobody. The guarantee is that of a deployment of the same scheme with the system's randomness.

    Args:
        plan: the path of a TOML file, its tables as a mapping, or a `turnout.plans.Plan`; the path
            of a trace in it is relative to the file, or to the current folder.
        out: a new or empty folder for checkpoints and the report; None writes nothing.
        example: an example plan by name, such as "digits", in place of ``plan``.
        resume: a folder with a run that was stopped or killed, in place of both.
        data: the clients' data, as `client_data` makes them, for a plan whose [data] names none; a
            run that is resumed is given them again.
        module: a torch.nn.Module, or what makes one, for a plan whose [model] names none; a run
            that is resumed is given it again.
        engine: what computes clients' updates, such as `turnout.integrations.ray.RayEngine` inside
            of its ``with``; None for threads of this process, to the same bits.
        baseline: whether to run the plan without noise and clipping too, as `TrainingRun.baseline`;
            that result protects nobody. A run that began so goes on so.
        progress: whether a terminal shows how far it is.

    Raises:
        ParameterError: the plan, its budget or the folder is refused.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: the guarantee cannot be certified.
        StorageError: a file cannot be written, or a checkpoint is damaged or another run's.
    """
    require("train", what="turnout.train")
    from turnout.plans import Plan, example_plan
    from turnout.reporting.console import Console
    from turnout.runs import Unwatched, training
    from turnout.runs.workload import Beside

    given = {"plan": plan, "example": example, "resume": resume}
    if sum(one is not None for one in given.values()) != 1:
        named = ", ".join(name for name, one in given.items() if one is not None) or "none of them"
        raise ParameterError("plan", named, "one of plan, example and resume")
    watcher, beside = Console() if progress else Unwatched(), Beside(data, module, engine)
    if resume is not None:
        if out is not None:
            raise ParameterError("out", str(out), "none beside resume")
        finished = training.resume(Path(resume), watcher, beside, baseline)
    else:
        if isinstance(plan, Mapping):
            source = Plan.from_mapping(dict(plan))
        elif example is not None:
            source = example_plan(example)
        else:
            assert plan is not None
            source = plan if isinstance(plan, Plan) else Path(plan)
        folder = None if out is None else Path(out)
        finished = training.train(source, folder, watcher, beside, baseline)
    return TrainingRun(finished.summary, finished.folder)


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedRun(Result):
    """A simulated run: who came, and the model that was trained on them, if one was.

    Attributes:
        law: who takes part when.
        clients: how many there are.
        seed: all draws follow from it.
        check_ins: clients who came at each step, int64, shape (steps,).
        expected_check_ins: the law's mean of that, shape (steps,).
        expected_empty_steps: the law's mean number of steps at which nobody comes.
        history: of the training; None without an algorithm.
        parameters: of the final model, shape (dimension,); None without an algorithm.
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
        """Steps at which nobody came."""
        return int(np.count_nonzero(self.check_ins == 0))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model and running times, as JSON-ready values."""
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
        if self.history is not None:
            metrics = {name: column.tolist() for name, column in self.history.metrics.items()}
            record["evaluations"] = {"step": self.history.step.tolist(), **metrics}
        return record

    def table(self) -> RenderableType:
        """Counts beside their expectation, as something that rich prints."""
        from rich.table import Table

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
        if self.history is not None:
            rows |= {name: f"{value[-1]:.4g}" for name, value in self.history.metrics.items()}
        table = Table.grid(padding=(0, 2))
        for name, text in rows.items():
            table.add_row(name, text)
        return table

    def plot(self) -> Picture:
        """Check-ins of each step beside their expectation."""
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
) -> SimulatedRun:
    """A simulated run of a scheme: who comes at each step and, with an algorithm, what is learned.

    For simulation only. All draws follow from the seed and protect nobody; the counts are exact,
    and no ε covers them. Nothing is priced here: `price` does that.

    Args:
        scheme: who takes part when; with an algorithm a whole `Scheme`.
        clients: how many there are, from a few to many millions; without an algorithm.
        algorithm: what is learned on whose data; it knows its number of clients.
        seed: names all random streams. The same seed gives the same run.
        minibatch: steps accumulated before the model moves, as of `turnout.simulation.Simulation`;
            with an algorithm, as the next two.
        expected_check_ins: public divisor of aggregated check-ins; None takes the law's mean.
        evaluate_every: steps between evaluations; None makes about 60 of them.
        messages: under local or shuffled trust, the randomizer of each client's update; the
            scheme's randomizer is its ``law``, the algorithm's ``clip_norm`` its radius.

    Raises:
        ParameterError: a number of clients that does not fit the law, or none; messages that are
            not the scheme's.
        UnsupportedError: no analysis of the scheme covers what the algorithm does.
        turnout.runs.InterruptedRunError: Ctrl-C while an algorithm learned.

    >>> from turnout.schemes import CheckIn
    >>> simulate(CheckIn(window=4, windows=2), clients=1_000)
    SimulatedRun(CheckIn(window=4, windows=2, probability=1.0), 1,000 clients: 2,000 check-ins, \
nobody came at 0 of 8 steps)
    """
    from turnout.participation.drawing import draw_run, expected_empty_steps
    from turnout.participation.drawing import expected_check_ins as expected
    from turnout.randomness import SimulationStreams
    from turnout.runs.workload import EVALUATIONS

    law = scheme.participation if isinstance(scheme, Scheme) else scheme
    population = clients if algorithm is None else algorithm.population
    if population is None or (algorithm is not None and clients is not None):
        raise ParameterError("clients", clients, "how many there are, or an algorithm")
    means = expected(law, population), expected_empty_steps(law, population)
    if algorithm is None:
        drawn = draw_run(law, population, SimulationStreams(seed))
        counts = np.concatenate([schedule.counts() for schedule in drawn])
        return SimulatedRun(law, population, seed, counts, *means)
    if not isinstance(scheme, Scheme):
        raise ParameterError("scheme", scheme, "a Scheme, with what protects a contribution")
    result = _learned(
        scheme,
        algorithm,
        seed=seed,
        minibatch=minibatch,
        expected_check_ins=expected_check_ins,
        evaluate_every=evaluate_every or max(1, law.steps // EVALUATIONS),
        messages=messages,
    )
    history = result.history
    return SimulatedRun(
        law, population, seed, history.check_ins, *means, history, result.parameters
    )


def _learned(scheme: Scheme, algorithm: Algorithm, **settings: Any) -> SimulationResult:
    """The result of a whole simulation.

    Raises:
        InterruptedRunError: Ctrl-C.
    """
    from turnout.runs import InterruptedRunError
    from turnout.simulation import Simulation

    result = Simulation(scheme, algorithm, **settings).run()
    if not result.finished:
        raise InterruptedRunError(None, result.steps_done, scheme.participation.steps)
    return result
