"""Contents of a run's report, and the model card.

A `Summary` has all contents of a report, an `Outcome` the results of one run. `model_card` returns
a model's data, training, guarantee and limits as Markdown. Functions named ``…_words`` return
texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.plugins import loaded
from turnout.learning.optimizers import optimizer_rule
from turnout.reporting.surroundings import machine, versions
from turnout.reporting.words import PERSONAL, Headline, guarantee_record, rounded_up
from turnout.schemes import PrivacyUnit, ReleaseRule, TrustModel

if TYPE_CHECKING:
    from turnout.participation.traces import TraceStatistics
    from turnout.plans import PreparedPlan
    from turnout.plans.spending import EpsilonCurve
    from turnout.simulation import History

SIMULATORS_VIEW = (
    "the simulator's view: exact counts, which ε does not cover; not for release. In a deployment "
    "only the operator knows them"
)
"""Note that accompanies exact counts of participants."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """Size of the test set, and the chance level of its accuracy.

    Attributes:
        records: number of records.
        chance: share of the most frequent class, which is the accuracy without training; None if
            labels are not classes.
    """

    __test__ = False  # pytest would collect this class as a test

    records: int
    chance: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Plan and results of one simulated run.

    Attributes:
        prepared: the plan with its scheme, noise and guarantee.
        history: metrics and counts over the steps.
        seconds: running time of the training.
        expected_check_ins: mean number of check-ins at each step, shape ``(steps,)``.
        expected_empty_steps: mean number of steps without participants.
        spent: upper bound on ε so far, at some of the steps.
        parameters: parameters of the final model, shape ``(dimension,)``.
        last: parameters of the last iterate, shape ``(dimension,)``; equal to ``parameters`` unless
            iterates are averaged.
        test: size of the test set that gives the metrics.
    """

    prepared: PreparedPlan
    history: History
    seconds: float
    expected_check_ins: NDArray[np.float64]
    expected_empty_steps: float
    spent: EpsilonCurve
    parameters: NDArray[np.floating]
    last: NDArray[np.floating]
    test: TestSet

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the final model by name, the headline metric first."""
        return {name: float(values[-1]) for name, values in self.history.metrics.items()}

    @property
    def headline(self) -> Headline:
        """Names and formatting of the headline metric, the first metric of the history."""
        return Headline(next(iter(self.history.metrics)))

    @property
    def result(self) -> float:
        """Value of the headline metric for the final model."""
        return self.metrics[self.headline.name]

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the headline metric for a new test set; None if none is known."""
        return self.headline.interval(self.result, self.test.records)

    @property
    def loss(self) -> float:
        """Loss of the final model on the test set."""
        return self.metrics["loss"]

    def epsilon_at(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Upper bound on ε after each of the given numbers of steps, shape of ``steps``.

        Between two points of `spent`, the result is ε at the later point, which is never below ε at
        the given step.
        """
        return self.spent.epsilon()[np.searchsorted(self.spent.steps, steps)]


@dataclass(frozen=True, slots=True, eq=False)
class TraceFindings:
    """Effects of an availability trace on a run.

    Attributes:
        statistics: statistics of the trace, over the slots whose availability is known.
        check_ins_per_slot: mean check-ins by time of day, shape ``(steps_per_day,)``.
        everyone: run of the same plan with every device always available.
    """

    statistics: TraceStatistics
    check_ins_per_slot: NDArray[np.float64]
    everyone: Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """A finished run, with the effects of its trace and its baseline.

    Attributes:
        outcome: plan and results of the run.
        trace: effects of an availability trace; None without a trace.
        baseline: history of the same plan without noise and clipping, which protects no client;
            None if it was not run.
    """

    outcome: Outcome
    trace: TraceFindings | None = None
    baseline: History | None = None

    def record(self) -> dict[str, Any]:
        """The report as JSON-ready values; equal for equal runs, except for ``seconds``.

        Guarantees:
            The report has no exact count of participants; only `counts` returns exact counts. ε
            covers only the released models, and under add-remove an exact count distinguishes the
            two worlds.
        """
        outcome, prepared = self.outcome, self.outcome.prepared
        # Every run has metrics, a guarantee, noise and a seed.
        record = {
            **outcome.metrics,
            **_test_record(outcome),
            **guarantee_record(prepared.guarantee),
            **_run_record(outcome),
            "seed": prepared.plan.run.seed,
            "randomness": f"simulation only (seed {prepared.plan.run.seed})",
        }
        # Only some runs have an ε of each client, a trace, or personal models.
        if prepared.guarantee.clients is not None:
            record["clients_epsilon"] = _distribution(prepared.guarantee.clients.epsilon_upper)
        if self.trace is not None:
            record["trace"] = _trace_record(self.trace, outcome)
        if PERSONAL in outcome.history.metrics:
            record["not_covered"] = [*outcome.history.metrics]
        # The versions and the whole plan.
        return {
            **record,
            "versions": versions(),
            "machine": machine(),
            "plan": prepared.plan.model_dump(mode="json"),
        }

    def counts(self) -> dict[str, Any]:
        """JSON-ready exact counts of participants, which ε does not cover."""
        record = {"note": SIMULATORS_VIEW, **_counts_record(self.outcome)}
        if self.trace is not None:
            record["all_present"] = _counts_record(self.trace.everyone)
        if self.baseline is not None:
            metrics = {name: float(values[-1]) for name, values in self.baseline.metrics.items()}
            record["without_noise_and_clipping"] = metrics
        return record


def _run_record(outcome: Outcome) -> dict[str, Any]:
    """JSON-ready noise, expected counts and running time of a run."""
    prepared, history = outcome.prepared, outcome.history
    averaged = prepared.scheme.release.shows_counts
    # Plug-ins, if any are loaded.
    plugins = {"plugins": [str(plugin) for plugin in loaded()]} if loaded() else {}
    return {
        **plugins,
        **protection_record(prepared, outcome.parameters.size),
        "clients": prepared.population,
        "steps": int(history.check_ins.size),
        "expected_dummy_steps": 0.0 if averaged else outcome.expected_empty_steps,
        "expected_skipped_steps": outcome.expected_empty_steps if averaged else 0.0,
        "expected_participations": float(outcome.expected_check_ins.sum()),
        "seconds": outcome.seconds,
    }


def protection_record(prepared: PreparedPlan, dimension: int) -> dict[str, Any]:
    """JSON-ready noise multiplier of the coordinator, or the clients' randomized messages."""
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
    """JSON-ready size of the test set, interval of the headline metric, and chance level."""
    record: dict[str, Any] = {"test_records": outcome.test.records}
    if outcome.interval is not None:
        record[f"{outcome.headline.name}_interval"] = list(outcome.interval)
    if outcome.test.chance is not None:
        record["chance_level"] = outcome.test.chance
    return record


def _counts_record(outcome: Outcome) -> dict[str, Any]:
    """JSON-ready exact counts of participants, and statistics of the clients' updates."""
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
    """Share of each step's updates that were clipped, shape (steps,); NaN without updates."""
    known = (history.clipped >= 0) & (history.served > 0)
    return np.where(known, history.clipped / np.maximum(history.served, 1), np.nan)


def signal_to_noise(outcome: Outcome) -> NDArray[np.float64]:
    """Norm of each step's sum of updates, divided by the norm of the step's noise; shape (steps,).

    The norm of the noise is about σ·C·√d in d dimensions. If each client adds its own noise, the
    step's noise is the sum of the noise of all clients. The result is NaN for a step without
    updates, and for all steps if clients send randomized messages instead of updates.
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
    """JSON-ready distribution of ε over clients: maximum, percentiles, and number with ε = 0.

    Percentiles are over the clients with ε above 0.
    """
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
    """JSON-ready statistics of the trace, and results of the run without absences."""
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


BASELINE = "without noise and clipping, which protects no client"


def test_words(outcome: Outcome) -> str:
    """Number of test records, interval for another test set, and chance level, in words."""
    said = f"{outcome.test.records:,}"
    if outcome.interval is not None:
        low, high = (outcome.headline.text(end, 1) for end in outcome.interval)
        said += f": 95 % interval {low} to {high}"
    if outcome.test.chance is not None and outcome.headline.name == "accuracy":
        said += f"; chance level {outcome.headline.text(outcome.test.chance, 1)}"
    return said


def updates_words(outcome: Outcome) -> str:
    """Share of clipped updates, and signal-to-noise ratio, in words; empty without updates."""
    clipped, ratio = clipped_share(outcome.history), signal_to_noise(outcome)
    parts = []
    if not np.isnan(clipped).all():
        parts.append(f"{np.nanmean(clipped):.0%} of the updates were clipped")
    if not np.isnan(ratio).all():
        parts.append(f"a step's sum has {np.nanmedian(ratio):.2g} times the norm of its noise")
    if PERSONAL in outcome.history.metrics:
        parts.append("accuracy of the clients' own models on their own classes")
    return "; ".join([*parts, "statistics of private data, not covered by ε"]) if parts else ""


def baseline_words(outcome: Outcome, baseline: History) -> str:
    """Headline metric without privacy, and the loss due to privacy, in words."""
    headline = outcome.headline
    free = float(baseline.metrics[headline.name][-1])
    return f"{BASELINE}: {headline.text(free)}; privacy costs {headline.lost(free, outcome.result)}"


def settings_words(outcome: Outcome) -> list[tuple[str, str]]:
    """Rows (name, text) with the model, the optimizer, the clip norm and the device of a run."""
    prepared = outcome.prepared
    plan = prepared.plan
    # The optimizer, and the iterates that give the final model.
    optimizer = plan.optimizer
    rule = optimizer_rule(optimizer.name).title
    momentum = f", momentum {optimizer.momentum:g}" if optimizer.momentum else ""
    averaging = {
        "none": "the last iterate is the result",
        "ema": f"an exponential average of the iterates (decay {optimizer.averaging_decay:g}) is "
        "the result",
        "tail": f"the average of the last {optimizer.averaging_tail:.0%} of the iterates is the "
        "result",
    }[optimizer.averaging]
    ball = "" if optimizer.radius is None else f", iterates of norm {optimizer.radius:g} at most"
    # The inputs of the model.
    seen = features_words(plan.model.features)
    # One row for each subject.
    return [
        ("Model", f"{plan.model.title} on {seen}, {outcome.parameters.size:,} parameters"),
        (
            "Optimizer",
            f"{rule}, learning rate {optimizer.learning_rate:g} ({optimizer.schedule}){momentum}"
            f"{ball}; {averaging}",
        ),
        ("Clip norm", clip_words(prepared)),
        ("Computed", f"on {plan.run.device}, forward and backward passes in {plan.run.precision}"),
    ]


def features_words(features: str) -> str:
    """Inputs of the model in words, from the key `features` of a plan's [model]."""
    return "inputs as they are" if features == "pixels" else features


def clip_words(prepared: PreparedPlan) -> str:
    """Clip norm, and the treatment of longer updates, in words."""
    clip, unit = prepared.plan.privacy.clip_norm, prepared.guarantee.unit.value
    section = prepared.plan.messages
    norm = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}["l2" if section is None else section.norm]
    if norm == "ℓ∞":
        return f"{clip:g}: each coordinate of a {unit}'s update is cut at ±{clip:g}"
    return f"{clip:g}: a {unit}'s update longer than that ({norm}) is scaled down"


def protection_words(prepared: PreparedPlan, dimension: int) -> list[tuple[str, str]]:
    """Rows (name, text) with the coordinator's noise, or the clients' randomized messages."""
    messages, section = prepared.messages(dimension), prepared.plan.messages
    # A trusted coordinator adds noise.
    if messages is None or section is None:
        return [("Noise multiplier", f"{prepared.noise.noise_multiplier:.5g}")]
    # Clients randomize messages: their size, and how many a client sends.
    step_bits = messages.histogram_bits(section.messages)
    shorter = 32 * dimension / step_bits
    several = "" if section.messages == 1 else f"{section.messages} a client and step in one "
    several += "" if section.messages == 1 else f"histogram of {step_bits:,} bits, "
    of_records = "; each of one record" if section.each == "record" else ""
    return [
        (
            "Message",
            f"{type(messages).__name__}, {messages.message_bits} bits, {several}"
            f"1/{shorter:,.0f} of the update in float32{of_records}",
        ),
        ("ε₀ of a message alone", f"{rounded_up(messages.epsilon0)} (replace-one, local trust)"),
        *_thesis_words(prepared),
    ]


def _thesis_words(prepared: PreparedPlan) -> list[tuple[str, str]]:
    """Row with ε by the thesis' theorems for a shuffled run; empty for other trust models."""
    from turnout.accounting.published.shuffled_training import thesis_epsilons

    scheme, delta = prepared.scheme, prepared.guarantee.delta
    if scheme.trust is not TrustModel.SHUFFLED:
        return []
    found = thesis_epsilons(scheme, delta)
    words = ", ".join(f"{rounded_up(value, 4)} ({name})" for name, value in found.items())
    terms = f"replace-one, both directions alike, δ = {delta:g}, {scheme.unit.value}, shuffled"
    said = f"{words}; {terms}" if words else "none: no theorem is about such a run"
    return [("ε by the thesis, to compare", said)]


_NOT_COVERED = (
    "the evaluation: metrics are computed on test records, exactly and without noise",
    "exact counts of participants, in the folder `simulator`: they are not for release",
    "other runs on the same clients: each costs its own ε, and so does every choice between runs",
    "the seed: this run is a simulation whose draws follow from its seed, so anybody who knows the "
    "seed can compute the noise; the guarantee is that of a deployment with the system's "
    "randomness",
    "choices made by looking at the clients' data before the plan was written",
)

PERSONAL_METRICS = (
    "metrics of personal models: they depend on the clients' own labels and models, only the "
    "simulator knows them, and they are not for release"
)

_ALL_RECORDS = (
    "all records of one client together: ε is that of one record, and m records of a client are "
    "protected by no more than m·ε, at a larger δ"
)

_OUTPUTS = {"class": "classes", "tags": "tags", "numbers": "numbers", "tokens": "tokens"}


def model_card(facts: Mapping[str, Any]) -> str:
    """Model card as Markdown text, from the facts in the model's file."""
    # The guarantee, the training and the data, row by row.
    guarantee, optimizer = facts["guarantee"], facts["optimizer"]
    lower, unit = guarantee["epsilon_lower"], guarantee["unit"]
    known = f"{lower:.5g}" if lower > 0 else "none is known"
    rows = {
        "ε, upper bound (proved)": rounded_up(guarantee["epsilon"], 5),
        "ε, lower bound": known,
        **{
            f"direction {name}": f"ε at most {rounded_up(one['epsilon'], 5)}"
            for name, one in sorted(guarantee["directions"].items(), reverse=True)
        },
        "δ": f"{guarantee['delta']:g}",
        "neighbouring relation": guarantee["relation"],
        "unit of privacy": guarantee["unit"],
        "trust model": guarantee["trust_model"],
        "analysis": guarantee["method"],
        "clip norm": facts["clip_words"],
        **_protection(facts),
        # Data, model and training.
        "data": f"{facts['data']}, {facts['clients']:,} {unit}s, {facts['steps']:,} steps",
        "model": f"{facts['model']} on {features_words(facts['features'])}, {facts['outputs']} "
        + _OUTPUTS[facts["target"]],
        "optimiser": f"{optimizer['name']}, learning rate {optimizer['learning_rate']:g}, "
        f"{optimizer['schedule']}; averaging: {optimizer['averaging']}",
        "parameters handed out": facts["handed_out"],
        **{f"test {name}": Headline(name).text(value) for name, value in facts["metrics"].items()},
        **({"test records": facts["test"]} if "test" in facts else {}),
        "plan (SHA-256)": f"`{facts['plan_sha256']}`",
    }
    # The table, and the list of releases that ε does not cover.
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    not_covered = [*_NOT_COVERED]
    if unit == PrivacyUnit.EXAMPLE.value:
        not_covered.insert(0, _ALL_RECORDS)
    if PERSONAL in facts["metrics"]:
        not_covered.insert(0, PERSONAL_METRICS)
    uncovered = "\n".join(f"- {what};" for what in not_covered)
    return (
        f"# Model card\n\n| | |\n|---|---|\n{table}\n\n## Tuning\n\n"
        f"{_tuning(facts)}\n\n"
        f"## Not covered by ε\n\n{uncovered.removesuffix(';')}.\n"
    )


def _protection(facts: Mapping[str, Any]) -> dict[str, str]:
    """Rows with the coordinator's noise, or with the clients' randomized messages."""
    if "noise_multiplier" in facts:
        return {"noise multiplier": f"{facts['noise_multiplier']:.5g} clip norms"}
    return {
        "message of a client": f"{facts['message']}, {facts['message_bits']} bits"
        + (f", {facts['messages']} in each step" if facts["messages"] > 1 else ""),
        "ε₀ of a message alone": f"{rounded_up(facts['epsilon0'], 5)} (replace-one, local trust)",
    }


def _tuning(facts: Mapping[str, Any]) -> str:
    """Paragraph on the choice of the settings and its privacy cost."""
    tuned = facts.get("tuned")
    if tuned is None:
        return (
            "The model's file does not record how the settings were chosen. If they were chosen on "
            "data of the run's clients, ε does not cover the choice."
        )
    keys = ", ".join(f"{key} = {value!r}" for key, value in tuned["values"].items())
    return (
        f"The best of a random number of runs, {tuned['candidates']:g} on average, by accuracy on "
        f"{tuned['held_out_clients']:,} held-out clients, with noise: {tuned['score']:.4g} ± "
        f"{tuned['score_noise']:.2g}. Chosen: {keys}. The search is in ε."
    )
