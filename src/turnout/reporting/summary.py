"""Everything that a report says about a run, gathered in one place."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout._version import __version__
from turnout.plans import PreparedPlan
from turnout.reporting.guarantees import guarantee_record
from turnout.reporting.headline import PERSONAL, Headline
from turnout.schemes import ReleaseRule
from turnout.simulation import History

if TYPE_CHECKING:
    from turnout.participation.traces import TraceStatistics

TRACKED = ("numpy", "scipy", "torch")
"""Packages whose versions a report records."""
SIMULATORS_VIEW = (
    "the simulator's view: exact counts, which ε does not cover; not for release. In a deployment "
    "they are the operator's alone"
)
"""The note beside every count of who came."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """The records by which a model is judged, in numbers.

    Attributes:
        records: how many there are.
        chance: share of the most frequent class, which a model gets without training; None where
            labels are no classes.
    """

    __test__ = False  # no test of pytest's

    records: int
    chance: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One simulated run: what was planned and what happened.

    Attributes:
        expected_check_ins: the law's mean check-ins at each step, shape ``(steps,)``.
        expected_empty_steps: the law's mean number of steps at which nobody comes.
        spent_steps: steps done, from 0 to all, at which ε so far is known, ``(points,)``.
        spent: proved upper bounds on ε after that many steps, shape ``(points,)``.
        parameters: of the final model, shape ``(dimension,)``.
        last: of the last iterate, shape ``(dimension,)``; the final model if none is averaged.
        test: the records that judged it.
    """

    prepared: PreparedPlan
    history: History
    seconds: float
    expected_check_ins: NDArray[np.float64]
    expected_empty_steps: float
    spent_steps: NDArray[np.int64]
    spent: NDArray[np.float64]
    parameters: NDArray[np.floating]
    last: NDArray[np.floating]
    test: TestSet

    @property
    def metrics(self) -> dict[str, float]:
        """Of the final model, by name; the headline first."""
        return {name: float(values[-1]) for name, values in self.history.metrics.items()}

    @property
    def headline(self) -> Headline:
        """The metric that titles speak of."""
        return Headline(next(iter(self.history.metrics)))

    @property
    def result(self) -> float:
        """The headline metric of the final model."""
        return self.metrics[self.headline.name]

    @property
    def interval(self) -> tuple[float, float] | None:
        """A 95 % interval of the headline metric, for a test set drawn anew; None if not known."""
        return self.headline.interval(self.result, self.test.records)

    @property
    def loss(self) -> float:
        """Of the final model."""
        return self.metrics["loss"]

    def epsilon_at(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """ε after each number of steps: that of the next known point, which is not too small."""
        return self.spent[np.searchsorted(self.spent_steps, steps)]


@dataclass(frozen=True, slots=True, eq=False)
class TraceFindings:
    """The role of an availability trace in a run.

    Attributes:
        statistics: of the trace itself; unknown slots are in no denominator.
        check_ins_per_slot: mean check-ins by time of day, shape ``(steps_per_day,)``.
        everyone: the same plan with every phone always available.
    """

    statistics: TraceStatistics
    check_ins_per_slot: NDArray[np.float64]
    everyone: Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """A finished run and, for a trace, what the trace did to it.

    Attributes:
        outcome: of the run.
        trace: what an availability trace did to it.
        baseline: of the same plan without noise and clipping, which protects nobody.
    """

    outcome: Outcome
    trace: TraceFindings | None = None
    baseline: History | None = None

    def record(self) -> dict[str, Any]:
        """The report as JSON-ready values; the same run gives the same, ``seconds`` apart.

        Guarantees:
            No exact count of who came: ε covers released models, and under add-remove a count
            tells the two worlds apart. `counts` has them.
        """
        outcome, prepared = self.outcome, self.outcome.prepared
        record = {
            **outcome.metrics,
            **_test_record(outcome),
            **guarantee_record(prepared.guarantee),
            **_run_record(outcome),
            "seed": prepared.plan.run.seed,
            "randomness": f"simulation only (seed {prepared.plan.run.seed})",
        }
        if prepared.guarantee.clients is not None:
            record["clients_epsilon"] = _distribution(prepared.guarantee.clients.epsilon_upper)
        if self.trace is not None:
            record["trace"] = _trace_record(self.trace, outcome)
        if PERSONAL in outcome.history.metrics:
            record["not_covered"] = [*outcome.history.metrics]
        return {**record, "versions": versions(), "plan": prepared.plan.model_dump(mode="json")}

    def counts(self) -> dict[str, Any]:
        """The simulator's view as JSON-ready values: exact counts, not covered by ε."""
        record = {"note": SIMULATORS_VIEW, **_counts_record(self.outcome)}
        if self.trace is not None:
            record["all_present"] = _counts_record(self.trace.everyone)
        if self.baseline is not None:
            metrics = {name: float(values[-1]) for name, values in self.baseline.metrics.items()}
            record["without_noise_and_clipping"] = metrics
        return record


def _run_record(outcome: Outcome) -> dict[str, Any]:
    """Noise, expected counts and time of a run."""
    prepared, history = outcome.prepared, outcome.history
    averaged = prepared.scheme.release.shows_counts
    return {
        **protection_record(prepared, outcome.parameters.size),
        "clients": prepared.population,
        "steps": int(history.check_ins.size),
        "expected_dummy_steps": 0.0 if averaged else outcome.expected_empty_steps,
        "expected_skipped_steps": outcome.expected_empty_steps if averaged else 0.0,
        "expected_participations": float(outcome.expected_check_ins.sum()),
        "seconds": outcome.seconds,
    }


def protection_record(prepared: PreparedPlan, dimension: int) -> dict[str, Any]:
    """The noise of the coordinator, or what clients send in its place."""
    from turnout.accounting.published.shuffled_training import thesis_epsilons

    messages, section = prepared.messages(dimension), prepared.plan.messages
    if messages is None or section is None:
        return {"noise_multiplier": prepared.noise.noise_multiplier}
    return {
        "epsilon0": messages.epsilon0,
        "message": type(messages).__name__,
        "message_bits": messages.message_bits,
        "messages": section.messages,
        "step_bits": messages.histogram_bits(section.messages),
        "thesis_epsilon": thesis_epsilons(prepared.scheme, prepared.guarantee.delta),
    }


def _test_record(outcome: Outcome) -> dict[str, Any]:
    """The test set, and how far another one might lead."""
    record: dict[str, Any] = {"test_records": outcome.test.records}
    if outcome.interval is not None:
        record[f"{outcome.headline.name}_interval"] = list(outcome.interval)
    if outcome.test.chance is not None:
        record["chance_level"] = outcome.test.chance
    return record


def _counts_record(outcome: Outcome) -> dict[str, Any]:
    """Exact counts and statistics of the clients' updates, of a whole run."""
    history = outcome.history
    clipped, ratio = clipped_share(history), signal_to_noise(outcome)
    return {
        "participations": history.participations,
        "steps_without_anybody": int((history.check_ins == 0).sum()),
        "dummy_steps": history.dummy_steps,
        "skipped_steps": history.skipped_steps,
        "clipped_share": None if np.isnan(clipped).all() else float(np.nanmean(clipped)),
        "signal_to_noise": None if np.isnan(ratio).all() else float(np.nanmedian(ratio)),
    }


def clipped_share(history: History) -> NDArray[np.float64]:
    """Share of each step's updates that were clipped, (steps,); NaN where none came."""
    known = (history.clipped >= 0) & (history.served > 0)
    return np.where(known, history.clipped / np.maximum(history.served, 1), np.nan)


def signal_to_noise(outcome: Outcome) -> NDArray[np.float64]:
    """ℓ2 norm of each step's sum of updates by that of its noise, (steps,); NaN where none came.

    The noise's norm is about σ·C·√d in d dimensions; where each client adds its own, that of all.
    NaN too where clients send messages, whose sum is not one of updates.
    """
    prepared, history = outcome.prepared, outcome.history
    if prepared.plan.messages is not None:
        return np.full(history.served.size, np.nan)
    alone = prepared.noise.noise_multiplier * prepared.plan.privacy.clip_norm
    own = prepared.scheme.release is ReleaseRule.AVERAGED
    times = np.maximum(history.served, 1) if own else np.ones(history.served.size)
    noise = alone * np.sqrt(outcome.parameters.size * times)
    return np.where(history.served > 0, history.signal / noise, np.nan)


def _distribution(epsilons: NDArray[np.float64]) -> dict[str, Any]:
    """ε over clients: the worst, quantiles, and those who never come."""
    coming = epsilons[epsilons > 0]
    levels = (0, 10, 25, 50, 75, 90, 100)
    quantiles = np.percentile(coming, levels, method="higher") if coming.size else []
    return {
        "worst": float(epsilons.max(initial=0.0)),
        "clients": int(epsilons.size),
        "never_come": int(epsilons.size - coming.size),
        "percentiles": {str(k): float(q) for k, q in zip(levels, quantiles, strict=False)},
    }


def _trace_record(trace: TraceFindings, outcome: Outcome) -> dict[str, Any]:
    """The trace, and the run without absences."""
    statistics, everyone = trace.statistics, trace.everyone
    return {
        "known_fraction": statistics.known_fraction,
        "available_fraction": statistics.available_fraction,
        "never_available": statistics.never_available,
        "all_present": {
            **everyone.metrics,
            "epsilon": everyone.prepared.guarantee.epsilon.upper,
            **_run_record(everyone),
        },
        f"{outcome.headline.name}_lost_to_absence": everyone.result - outcome.result,
    }


def versions() -> dict[str, str]:
    """Of turnout, Python and what the numbers rest on."""
    found = {name: metadata.version(name) for name in TRACKED}
    return {"turnout": __version__, "python": platform.python_version(), **found}
