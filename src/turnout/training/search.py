"""A random search: candidates of a plan, compared on held-out clients; the best one is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ParameterError, StorageError, UnsupportedError
from turnout.core.files import write
from turnout.data import ClientData, Target
from turnout.plans import AvailabilitySection, Plan, PreparedPlan, prepare
from turnout.plans.data_sections import DataSection
from turnout.plans.plan import Range, TuneSection, parse_ranges
from turnout.randomness import SimulationStreams
from turnout.reporting.summary import Outcome
from turnout.reporting.training_report import SIMULATOR
from turnout.training.execution import ReadyRun, Unwatched, Watcher
from turnout.training.held_out import HeldOut
from turnout.training.runs import Beside
from turnout.training.search_price import SearchPrice, search_price, stopping_law
from turnout.training.views import Views
from turnout.training.workload import UnseenPhase

if TYPE_CHECKING:
    from turnout.learning.algorithm import FedSGD

STATE = "search.json"
"""How far a search is; of a private one not for release, and removed at its end."""
_LARGEST_SEED = 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A run of a search.

    Attributes:
        values: chosen values by their dotted keys.
        score: on held-out clients, larger is better; under private tuning with its noise.
    """

    number: int
    values: Mapping[str, Any]
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """A finished search.

    Attributes:
        plan: the plan with the values of the best candidate, to train with.
        best: the best candidate; its number is 0 under private tuning, where it is not released.
        candidates: all of them; empty under private tuning, where even their number is secret.
        metric: what the scores are.
        held_out: the number of held-out clients.
        data: of which data the candidates learned, by name.
        price: of a search on the plan's own clients; None on public ones.
        own_public: whether the plan says of its own data that they are public.
        outcome: the run of the best candidate, under private tuning: its model is covered by the
            price.
        model_data: the data of that run.
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
    """A search that nothing refuses any more.

    Attributes:
        plan: whose [tune] is ``section``.
        held: the clients, with some held out.
        prepared: a candidate's scheme, under the guarantee of the whole search if it is private.
        price: None on public data.
        views: the clients' records as models see them.
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
        """The search that a plan's [tune] asks for; paths are relative to a place.

        With public data, beside the plan or named by [tune], nothing of [data] is read.

        Raises:
            ParameterError: no [tune], a range, or data that do not fit.
            UnsupportedError: nothing is known of the price of such a search.
        """
        section = plan.tune
        if section is None:
            raise ParameterError("tune", None, "a table [tune] with ranges")
        if isinstance(plan.participation, AvailabilitySection):
            raise UnsupportedError("a search needs clients with the same law, not a trace of each")
        free = public is not None or section.data is not None
        ranges = parse_ranges(section.ranges)
        _check_values(plan, ranges, section.candidates if free else stopping_law(section).most)
        tried, given = plan, beside or Beside()
        if free:
            tried = plan.model_copy(update={"data": section.data or DataSection.model_validate({})})
            given = Beside(public, given.module)
        with watcher.phase("reading the data") as phase:
            workload = given.gathered(tried, place, phase, place)
            from turnout.training.building import holdings_of  # loads PyTorch

            held = HeldOut.of(workload, holdings_of(workload), section.held_out)
        with watcher.phase("pricing the search"):
            if free:
                prepared, price = prepare(_free(tried), held.workload.population), None
            else:
                _check_private(held)
                prepared, price = search_price(tried, section, held)
        return cls(plan, section, ranges, held, prepared, price, Views(held.workload))

    def finished(self, watcher: Watcher, folder: Path | None = None) -> Searched:
        """The best of all candidates; with a folder, from the candidate on that is not done."""
        count = self._count()
        path = None if folder is None else folder / SIMULATOR / STATE
        done = _read(path)
        kept: tuple[Candidate, Outcome] | None = None
        with watcher.phase("searching") as phase:
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
        """The number of candidates; of a private search it is drawn, and secret."""
        if self.price is None:
            return self.section.candidates
        streams = SimulationStreams(self.plan.run.seed)
        return self.price.stopping.draw(streams.source("stopping"))

    def _run(self, number: int, values: Mapping[str, Any]) -> tuple[float, Outcome]:
        """The score and the outcome of a candidate's run, with draws of its own."""
        streams = SimulationStreams(self.plan.run.seed)
        seed = int(streams.generator("tuning run", number).integers(_LARGEST_SEED))
        from turnout.learning.algorithm import FedSGD

        steps = self.prepared.scheme.participation.steps
        plan = with_values(self.held.workload.plan, values)
        run = plan.run.model_copy(update={"seed": seed, "evaluate_every": steps})
        plan = plan.model_copy(update={"run": run})
        prepared = replace(self.prepared, plan=plan)
        ready = ReadyRun.of(self.views.workload(plan), prepared, UnseenPhase())
        outcome = ready.carried_out(None, "a candidate", None, Unwatched())
        algorithm = ready.simulation.algorithm
        assert isinstance(algorithm, FedSGD)
        if self.price is None:
            task: Any = algorithm.task
            score = outcome.result if task.higher_is_better else -outcome.result
            return (score if math.isfinite(score) else -math.inf), outcome
        return self._noisy_score(algorithm, outcome, number), outcome

    def _noisy_score(self, algorithm: FedSGD, outcome: Outcome, number: int) -> float:
        """The mean accuracy of held-out clients, with noise from the simulation's own stream."""
        assert self.price is not None
        task: Any = algorithm.task
        exact = self.held.mean_accuracy(lambda: task.predicted(outcome.parameters))
        streams = SimulationStreams(self.plan.run.seed)
        noise = streams.generator("score noise", number).normal(0.0, self.price.score_deviation)
        return exact + float(noise)


def drawn_values(plan: Plan, ranges: Mapping[str, Range], number: int) -> dict[str, Any]:
    """The values of a candidate: which ones are drawn is public."""
    generator = SimulationStreams(plan.run.seed).generator("tuning candidate", number)
    return {key: ranges[key].draw(generator) for key in sorted(ranges)}


def with_values(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """A plan with some values in place of its own, by their dotted keys.

    Raises:
        ParameterError: a value that the plan refuses.
    """
    tables = plan.model_dump(mode="json", exclude_none=True)
    for key, value in values.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    return Plan.from_mapping(tables)


def _check_values(plan: Plan, ranges: Mapping[str, Range], most: int) -> None:
    """Everything that a search may try, so that it is not refused halfway.

    Raises:
        ParameterError: an end, a choice or a combination that the plan refuses.
    """
    for key, one in ranges.items():
        for value in one.choices or one.ends:
            with_values(plan, {key: value})
    for number in range(most):
        with_values(plan, drawn_values(plan, ranges, number))


def _free(plan: Plan) -> Plan:
    """A plan on public data: noise that is given counts, and its ε there is nobody's."""
    if plan.privacy.noise_multiplier is None:
        return plan
    return plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"epsilon": None})})


def _check_private(held: HeldOut) -> None:
    """Scores on private clients are accuracies: other metrics have no bound a client.

    Raises:
        UnsupportedError: another metric, or another kind of label.
    """
    if held.workload.plan.client.rule != "fedsgd":
        raise UnsupportedError("a search on private clients compares one model for all, not theirs")
    metrics = held.workload.plan.model.metrics
    if held.workload.data.target is not Target.CLASS or (metrics and metrics[0] != "accuracy"):
        raise UnsupportedError(
            "a search on private clients compares accuracies of classes; use public data "
            "([tune.data]) for other metrics"
        )


def _above(one: Candidate, other: Candidate) -> bool:
    return one.score > other.score


def _record(candidate: Candidate) -> dict[str, Any]:
    score = candidate.score if math.isfinite(candidate.score) else None
    return {"number": candidate.number, "values": dict(candidate.values), "score": score}


def _read(path: Path | None) -> list[Candidate]:
    """The candidates that are done.

    Raises:
        StorageError: a damaged file.
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
