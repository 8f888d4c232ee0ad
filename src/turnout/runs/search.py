"""Random search over the settings of a plan; candidates are compared on held-out clients.

`Search` runs the candidates. `HeldOut` holds the clients on whom candidates are compared;
`search_price` returns the ε of a search on private clients, and the noise for the plan's target ε.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError, StorageError, UnsupportedError
from turnout.core.files import SIMULATOR, write
from turnout.core.showing import shows_shapes
from turnout.data import ClientData, PredictionTarget, Records
from turnout.learning.holdings import Holdings
from turnout.plans import AvailabilitySection, Plan, PreparedPlan, prepare
from turnout.plans.data_sections import DataSection
from turnout.plans.plan import Range, TuneSection, parse_ranges
from turnout.plans.preparation import MOST_STEPS
from turnout.randomness import SimulationStreams
from turnout.reporting.summary import Outcome
from turnout.runs.execution import ReadyRun, Unwatched, Watcher
from turnout.runs.workload import Beside, UnseenPhase, Views, Workload
from turnout.schemes import EveryStep, GaussianNoise, Scheme

if TYPE_CHECKING:
    from turnout.accounting import Guarantee, Stopping
    from turnout.learning.algorithm import FedSGD


@shows_shapes()
@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Workload whose test set is replaced by the records of held-out training clients.

    Guarantees:
        Each client is either held out or trained on, by an independent draw that depends on no
        data, so that a client affects either the runs or their scores. The test set is not read.

    Attributes:
        workload: the remaining clients, with the held-out clients' records as the test set.
        clients: number of held-out clients.
        owners: held-out client, from 0, of each held-out record, int64, shape ``(records,)``.
    """

    workload: Workload
    clients: int
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, holdings: Holdings, share: float) -> HeldOut:
        """Workload in which each client is held out with probability ``share``.

        Raises:
            ParameterError: no client is held out, or none is left for training, or the
                participation does not fit the remaining clients.
        """
        # An independent draw for each client; both sides need clients with records.
        population = holdings.population
        streams = SimulationStreams(workload.plan.run.seed)
        out = streams.generator("held-out clients").random(population) < share
        held, kept = np.flatnonzero(out), np.flatnonzero(~out)
        if not held.size or not kept.size or not holdings.counts(held).any():
            expected = f"a probability that holds out some of {population:,} clients, but not all"
            raise ParameterError("tune.held_out", share, expected)
        # The held-out clients' records take the place of the test set.
        ours, theirs = _part(holdings, kept), _part(holdings, held)
        train = workload.data.train
        test = Records(train.inputs[theirs.records], train.labels[theirs.records])
        data = replace(workload.data, test=test, holdings=ours)
        participation = workload.plan.participation_for(kept.size)
        left = replace(workload, data=data, population=kept.size, participation=participation)
        owners = np.repeat(np.arange(held.size), np.diff(theirs.offsets))
        return cls(left, held.size, owners)

    def mean_accuracy(self, predicted: Callable[[], NDArray[np.int64]]) -> float:
        """Mean accuracy over held-out clients, from 0 to 1, each client with the same weight.

        A client without records has accuracy 0. One client changes the mean by at most
        1/``clients``.

        Args:
            predicted: function that returns the predicted class of each held-out record, shape
                (records,).
        """
        data = self.workload.data
        assert data.target is PredictionTarget.CLASS
        right = predicted() == data.test.labels
        totals = np.bincount(self.owners, minlength=self.clients)
        shares = np.bincount(self.owners, right, self.clients) / np.maximum(totals, 1)
        return float(shares.mean())


def _part(holdings: Holdings, clients: NDArray[np.int64]) -> Holdings:
    """Holdings of some clients, in the order given; the numbers of records do not change."""
    counts = holdings.counts(clients)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    starts = np.repeat(holdings.offsets[clients] - offsets[:-1], counts)
    return Holdings(offsets, holdings.records[starts + np.arange(offsets[-1])])


@dataclass(frozen=True, slots=True, eq=False)
class SearchPrice:
    """Privacy cost of a search on private clients.

    Attributes:
        guarantee: guarantee of the best run's model, values and score together, for every client.
        one_run: upper bound on ε of one run alone, without search.
        stopping: distribution of the number of runs; the distribution is public, the number secret.
        noise_multiplier: noise multiplier of each run.
        score_deviation: standard deviation of the noise on a score.
    """

    guarantee: Guarantee
    one_run: float
    stopping: Stopping
    noise_multiplier: float
    score_deviation: float


def search_price(
    plan: Plan, section: TuneSection, held: HeldOut
) -> tuple[PreparedPlan, SearchPrice]:
    """Scheme of a candidate, and an upper bound on the privacy cost of the search.

    The bound meets the plan's target ε. A client affects the runs or their scores, never both, so
    the ε of the search is the larger of the two ε's, not their sum.

    Raises:
        ParameterError: the plan's noise multiplier does not meet the target ε.
        UnsupportedError: no sound analysis is known for this combination.
    """
    from turnout.accounting import calibrate_selection, price, selected

    # The number of candidates is random, and its distribution is public.
    privacy, participation = plan.privacy, held.workload.participation
    if participation.steps > MOST_STEPS:
        raise ParameterError(
            "participation.steps", participation.steps, f"at most {MOST_STEPS:,} in all"
        )
    stopping = stopping_distribution(section)

    # A candidate is a run of the plan; its score is one noisy release.
    def run(noise: float) -> Scheme:
        release, unit = plan.protocol.release, privacy.unit
        return Scheme(GaussianNoise(noise), participation, privacy.relation, release, unit)

    def score(noise: float) -> Scheme:
        return Scheme(GaussianNoise(noise), EveryStep(1), privacy.relation, unit=privacy.unit)

    # The noise of a run: calibrated for the whole search, or given by the plan.
    noise = privacy.noise_multiplier
    if noise is None:
        assert privacy.epsilon is not None
        noise, guarantee = calibrate_selection(run, stopping, privacy.epsilon, privacy.delta)
    else:
        guarantee = selected(run(noise), stopping, privacy.delta)
    # A given noise must keep the search within the budget.
    target = privacy.epsilon or guarantee.epsilon.upper
    if guarantee.epsilon.upper > target:
        expected = f"at least {guarantee.epsilon.upper:.4g}, which the search costs with this noise"
        raise ParameterError("privacy.epsilon", target, expected)
    # The noise of the scores; the search costs the larger of the two.
    score_noise, of_score = calibrate_selection(score, stopping, target, privacy.delta)
    total = _larger(guarantee, of_score)
    found = SearchPrice(
        guarantee=total,
        one_run=price(run(noise), privacy.delta).epsilon.upper,
        stopping=stopping,
        noise_multiplier=noise,
        score_deviation=score_noise / held.clients,
    )
    return PreparedPlan(plan, held.workload.population, run(noise), total), found


def stopping_distribution(section: TuneSection) -> Stopping:
    """Distribution of the number of runs, from the settings in a plan's table [tune]."""
    from turnout.accounting import Stopping

    mean = float(section.candidates)
    if section.stopping == "poisson":
        return Stopping.poisson(mean)
    return Stopping.negative_binomial(mean, 0.0 if section.stopping == "logarithmic" else 1.0)


def _larger(runs: Guarantee, scores: Guarantee) -> Guarantee:
    """Guarantee of the runs, with ε raised to the ε of the scores if that is larger."""

    def raised(bounds: Bounds) -> Bounds:
        return Bounds(bounds.lower, max(bounds.upper, scores.epsilon.upper))

    directions = {name: raised(bounds) for name, bounds in runs.directions.items()}
    return replace(runs, epsilon=raised(runs.epsilon), directions=directions)


STATE = "search.json"
"""File of the finished candidates; a private search's file is secret and removed at the end."""
_LARGEST_SEED = 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One run of a search.

    Attributes:
        number: number of the run, from 0.
        values: chosen values of the plan's settings, by their dotted keys.
        score: score on held-out clients; larger is better. In a private search it contains noise.
    """

    number: int
    values: Mapping[str, Any]
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """Result of a search.

    Attributes:
        plan: plan with the values of the best candidate.
        best: best candidate. In a private search its number is secret, and the attribute has 0.
        candidates: all candidates. In a private search even their count is secret, and the
            attribute is empty.
        metric: name of the metric of the scores.
        held_out: number of held-out clients.
        data: name of the data on which the candidates were trained.
        price: privacy cost of a search on the plan's own clients; None on public data.
        own_public: whether the plan declares its own data public.
        outcome: run of the best candidate of a private search; ``price`` covers its model.
        model_data: data of that run.
    """

    plan: Plan
    best: Candidate
    candidates: tuple[Candidate, ...]
    metric: str
    held_out: int
    data: str
    price: SearchPrice | None
    own_public: bool = False
    outcome: Outcome | None = None
    model_data: ClientData | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Search that has passed all checks.

    Attributes:
        plan: plan to be tuned.
        section: table [tune] of the plan.
        ranges: range of values for each dotted key.
        held: remaining and held-out clients.
        prepared: plan and scheme of a candidate; in a private search with the guarantee of the
            whole search.
        price: privacy cost of the search; None on public data.
        views: workloads with computed features.
    """

    plan: Plan
    section: TuneSection
    ranges: Mapping[str, Range]
    held: HeldOut
    prepared: PreparedPlan
    price: SearchPrice | None
    views: Views

    @classmethod
    def of(
        cls,
        plan: Plan,
        place: Path,
        watcher: Watcher,
        beside: Beside | None = None,
        public: ClientData | None = None,
    ) -> Search:
        """Search of a plan's table [tune], after all checks.

        With public data, given here or named in [tune], the plan's table [data] is not read.

        Args:
            plan: plan with a table [tune].
            place: folder to which the plan's paths are relative.
            watcher: observer of the progress.
            beside: data, module and engine that are given in addition to the plan.
            public: public data, in place of the plan's own.

        Raises:
            ParameterError: [tune] is missing, or a range or the data do not fit.
            UnsupportedError: no sound analysis of such a search is known.
        """
        # The table [tune], and every value that a candidate may have.
        section = plan.tune
        if section is None:
            raise ParameterError("tune", None, "a table [tune] with ranges")
        if isinstance(plan.participation, AvailabilitySection):
            raise UnsupportedError(
                "a search has no analysis with a trace of availability: use another participation"
            )
        free = public is not None or section.data is not None
        ranges = parse_ranges(section.ranges)
        _check_values(
            plan, ranges, section.candidates if free else stopping_distribution(section).most
        )
        # The data: public data, or the plan's own.
        tried, given = plan, beside or Beside()
        if free:
            tried = plan.model_copy(update={"data": section.data or DataSection.model_validate({})})
            given = Beside(public, given.module)
        with watcher.phase("reading the data") as phase:
            workload = given.gathered(tried, place, phase, place)
            from turnout.runs.building import holdings_of  # loads PyTorch

            held = HeldOut.of(workload, holdings_of(workload), section.held_out)
        # The privacy cost of the search; public data cost nothing.
        with watcher.phase("pricing the search"):
            if free:
                prepared, price = prepare(_free(tried), held.workload.population), None
            else:
                _check_private(held)
                prepared, price = search_price(tried, section, held)
        return cls(plan, section, ranges, held, prepared, price, Views(held.workload))

    def finished(self, watcher: Watcher, folder: Path | None = None) -> Searched:
        """Result of the search; candidates that finished earlier are read from the folder."""
        # Candidates that an earlier part of the search finished are read again.
        count = self._count()
        path = None if folder is None else folder / SIMULATOR / STATE
        done = _read(path)
        kept: tuple[Candidate, Outcome] | None = None
        with watcher.phase("searching") as phase:
            # Each candidate is a run; the best one so far is kept with its result.
            for number in range(len(done), count):
                values = drawn_values(self.plan, self.ranges, number)
                score, outcome = self._run(number, values)
                done.append(Candidate(number, values, score))
                if kept is None or _above(done[-1], kept[0]):
                    kept = done[-1], outcome
                if path is not None:
                    write(path, json.dumps([_record(each) for each in done]))
                if self.price is None:
                    phase.rows("candidates", number + 1)
        # The best candidate of all, which may be one that was read; then it runs again.
        best = done[0]
        for each in done[1:]:
            best = each if _above(each, best) else best
        if kept is None or kept[0].number != best.number:
            kept = best, self._run(best.number, best.values)[1]
        return self._searched(best, done, kept[1])

    def _searched(self, best: Candidate, done: list[Candidate], outcome: Outcome) -> Searched:
        private = self.price is not None
        return Searched(
            plan=with_values(self.plan, best.values),
            best=replace(best, number=0) if private else best,
            candidates=() if private else tuple(done),
            metric="accuracy with noise" if private else outcome.headline.name,
            held_out=self.held.clients,
            data=self.held.workload.data.name,
            price=self.price,
            own_public=self.section.data == self.plan.data,
            outcome=outcome if private else None,
            model_data=self.held.workload.data if private else None,
        )

    def _count(self) -> int:
        """Number of candidates; in a private search the number is drawn at random and secret."""
        if self.price is None:
            return self.section.candidates
        streams = SimulationStreams(self.plan.run.seed)
        return self.price.stopping.draw(streams.source("stopping"))

    def _run(self, number: int, values: Mapping[str, Any]) -> tuple[float, Outcome]:
        """Score and outcome of a candidate's run; each candidate has a different seed."""
        # The seed of the candidate's run depends on the plan's seed and the candidate's number.
        streams = SimulationStreams(self.plan.run.seed)
        seed = int(streams.generator("tuning run", number).integers(_LARGEST_SEED))
        from turnout.learning.algorithm import FedSGD

        # The plan with the candidate's values, evaluated once, at the end.
        steps = self.prepared.scheme.participation.steps
        plan = with_values(self.held.workload.plan, values)
        run = plan.run.model_copy(update={"seed": seed, "evaluate_every": steps})
        plan = plan.model_copy(update={"run": run})
        prepared = replace(self.prepared, plan=plan)
        ready = ReadyRun.of(self.views.workload(plan), prepared, UnseenPhase())
        outcome = ready.carried_out(None, "a candidate", None, Unwatched())
        # A public search compares results; a private one compares noisy scores.
        algorithm = ready.simulation.algorithm
        assert isinstance(algorithm, FedSGD)
        if self.price is None:
            task: Any = algorithm.task
            score = outcome.result if task.higher_is_better else -outcome.result
            return (score if math.isfinite(score) else -math.inf), outcome
        return self._noisy_score(algorithm, outcome, number), outcome

    def _noisy_score(self, algorithm: FedSGD, outcome: Outcome, number: int) -> float:
        """Mean accuracy of held-out clients plus noise from the simulation's stream."""
        assert self.price is not None
        task: Any = algorithm.task
        exact = self.held.mean_accuracy(lambda: task.predicted(outcome.parameters))
        streams = SimulationStreams(self.plan.run.seed)
        noise = streams.generator("score noise", number).normal(0.0, self.price.score_deviation)
        return exact + float(noise)


def drawn_values(plan: Plan, ranges: Mapping[str, Range], number: int) -> dict[str, Any]:
    """Random values of a candidate, drawn from the ranges with the plan's public seed."""
    generator = SimulationStreams(plan.run.seed).generator("tuning candidate", number)
    return {key: ranges[key].draw(generator) for key in sorted(ranges)}


def with_values(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """Plan with some values replaced, by their dotted keys.

    Raises:
        ParameterError: the plan does not accept a value.
    """
    tables = plan.model_dump(mode="json", exclude_none=True)
    for key, value in values.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    return Plan.from_mapping(tables)


def _check_values(plan: Plan, ranges: Mapping[str, Range], most: int) -> None:
    """Check every value that a search may try, so that no candidate fails later.

    Raises:
        ParameterError: the end of a range, a choice or a combination is invalid in the plan.
    """
    for key, one in ranges.items():
        for value in one.choices or one.ends:
            with_values(plan, {key: value})
    for number in range(most):
        with_values(plan, drawn_values(plan, ranges, number))


def _free(plan: Plan) -> Plan:
    """Plan for candidates on public data: the same noise, but ε has no meaning."""
    if plan.privacy.noise_multiplier is None:
        return plan
    return plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"epsilon": None})})


def _check_private(held: HeldOut) -> None:
    """Raise an error if the score of a private search is not the accuracy of one shared model.

    Only the accuracy has a known bound on the influence of each client.

    Raises:
        UnsupportedError: the plan has personal models, another metric, or labels without classes.
    """
    if held.workload.plan.client.rule != "fedsgd":
        raise UnsupportedError(
            "a search on private clients needs one shared model, not personal ones"
        )
    metrics = held.workload.plan.model.metrics
    if held.workload.data.target is not PredictionTarget.CLASS or (
        metrics and metrics[0] != "accuracy"
    ):
        raise UnsupportedError(
            "a search on private clients compares accuracies only: use public data ([tune.data]) "
            "for other metrics"
        )


def _above(one: Candidate, other: Candidate) -> bool:
    return one.score > other.score


def _record(candidate: Candidate) -> dict[str, Any]:
    score = candidate.score if math.isfinite(candidate.score) else None
    return {"number": candidate.number, "values": dict(candidate.values), "score": score}


def _read(path: Path | None) -> list[Candidate]:
    """Finished candidates from a file.

    Raises:
        StorageError: the file is damaged.
    """
    if path is None or not path.is_file():
        return []
    try:
        records = json.loads(path.read_text("utf-8"))
        return [
            Candidate(
                int(each["number"]),
                dict(each["values"]),
                -math.inf if each["score"] is None else float(each["score"]),
            )
            for each in records
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: damaged: {error}") from None
