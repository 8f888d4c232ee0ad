"""Views of a served task: a public view and an operator's view.

`public_view` and `operator_view` build these views. The number of participants of a step is for the
operator alone, also after the task, since the promised (ε, δ) covers the models and not these
numbers. `Certainties` computes upper bounds on an observer's certainty about one client. The
computation of a bound may take many seconds, so a separate thread computes it; until then the page
shows the bound as unknown.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from turnout.core.errors import TurnoutError
from turnout.participation.drawing import expected_check_ins
from turnout.plans import Plan
from turnout.schemes import AvailabilityCheckIn
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head
from turnout.service.contract.wire import StepPhase
from turnout.service.storage.interface import LogEvent, Scored
from turnout.service.storage.writes import Transaction

EVEN = (0.5, 0.5)
"""Certainty of presence and of absence before the first release: the prior of ½."""

Sides = tuple[float, float]


class Certainties:
    """Two upper bounds on an observer's certainty: that one client participated, or did not.

    A certainty is a posterior probability; the prior probability of participation is ½. Each bound
    is exceeded with probability at most δ.

    Args:
        charter: terms of the task.
    """

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[int, Sides] = {}
        self._wanted: list[int] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def after(self, steps: int) -> Sides | None:
        """Bounds for presence and for absence after ``steps`` releases; None while not computed.

        An observer of more releases learns no less, so the bounds after more releases are upper
        bounds as well; for each side the smallest computed bound is returned.
        """
        if steps == 0:
            return EVEN
        at = self._charged(steps)
        with self._lock:
            if at not in self._known and at not in self._wanted:
                self._wanted.append(at)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._compute_wanted, daemon=True)
                    self._thread.start()
            later = [self._known[step] for step in self._known if step >= at]
        if not later:
            return None
        return min(side[0] for side in later), min(side[1] for side in later)

    def settle(self) -> None:
        """Wait until all requested bounds are computed."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _charged(self, steps: int) -> int:
        """Smallest number of steps, at least ``steps``, for which the charter states an ε.

        For check-ins with availability windows the result is the number of steps of the whole run.
        """
        charter = self._charter
        if isinstance(charter.scheme.participation, AvailabilityCheckIn):
            return charter.steps
        return charter.charged_steps[bisect_left(charter.charged_steps, steps)]

    def _compute_wanted(self) -> None:
        """Compute all requested bounds, one after the other, in a thread."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                at = self._wanted[0]
            sides = self._bounds_after(at)
            with self._lock:
                self._known[at] = sides
                self._wanted.remove(at)

    def _bounds_after(self, steps: int) -> Sides:
        """Upper bounds for presence and absence after ``steps`` releases; 1 if none is found."""
        from turnout.accounting.meaning.membership import scheme_certainty
        from turnout.schemes.participation.availability_check_in import costliest_clients

        charter = self._charter
        part = None if steps == charter.steps else steps
        try:
            scheme = costliest_clients(charter.scheme)
            return scheme_certainty(scheme, charter.delta, steps=part).sides
        except TurnoutError:
            return 1.0, 1.0


_EVENTS = 200
_BLOCK = 20
"""Number of steps of a block if the participation has no windows."""


@dataclass(frozen=True, slots=True)
class ServedProgress:
    """Published state of a task's schedule.

    Attributes:
        head: ledger head.
        step: step in progress; the number of steps once all are over.
        phase: phase of the step.
        seconds_left: time to the end of the phase.
        seconds_to_next_step: time to the next publication; 0 once all steps are over.
    """

    head: Head
    step: int
    phase: StepPhase
    seconds_left: float
    seconds_to_next_step: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Accuracy and loss of one published model on public data.

    Attributes:
        steps: number of releases in the model.
        epsilon: upper bound on the ε of these releases.
        accuracy: fraction of correct predictions; None if it is not finite.
        loss: mean loss; None if it is not finite.
    """

    steps: int
    epsilon: float
    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class PublicView:
    """Public view of a task: terms, schedule, ε and the model's accuracy.

    Attributes:
        task: name of the task.
        title: model and data, for a title.
        plan: TOML text of the plan.
        population: number of clients.
        release, relation, unit, trust_model: terms of the scheme.
        step, steps, phase, seconds_left, seconds_to_next_step: as in `ServedProgress`.
        step_seconds: length of a step.
        released: number of published releases.
        head: text of the ledger head.
        epsilon_spent: upper bound on the ε of the published releases.
        epsilon_target: the ε that the spent ε must not exceed.
        delta: the δ of both values of ε.
        curve: evaluations of published models, ascending by number of steps.
        charged: pairs (number of steps, upper bound on the ε of these steps), for the whole plan.
        sure: two upper bounds on an observer's certainty after the published releases: that one
            client participated, and that this client did not. The prior probability is ½, and each
            bound is exceeded with probability at most δ. None while the bounds are computed.
        sure_in_all: the same two bounds after all releases of the plan.
    """

    task: str
    title: str
    plan: str
    population: int
    release: str
    relation: str
    unit: str
    trust_model: str
    step: int
    steps: int
    phase: str
    seconds_left: float
    seconds_to_next_step: float
    step_seconds: float
    released: int
    head: str
    epsilon_spent: float
    epsilon_target: float
    delta: float
    curve: tuple[CurvePoint, ...]
    charged: tuple[tuple[int, float], ...] = ()
    sure: tuple[float, float] | None = None
    sure_in_all: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class StepCount:
    """Counts of one published step: check-ins, summed updates, expected check-ins."""

    step: int
    checked_in: int
    served: int
    expected: float


@dataclass(frozen=True, slots=True)
class OperatorView:
    """Operator's view of a task: the public view, counts of devices, and the log.

    Attributes:
        public: the public view.
        invited: number of invitations.
        enrolled: number of used invitations.
        arrived: number of check-ins in the step in progress so far.
        arrived_expected: expected number of check-ins in the step in progress; 0 after the last
            step.
        counts: numbers of check-ins and updates of each published step.
        waiting_jobs: number of jobs that are not committed yet.
        waiting_bytes: total size in bytes of the request bodies of these jobs.
        events: last lines of the log, oldest first.
        block: number of published steps in the last window of the participation.
        block_variance: upper bound on the variance of the number of check-ins in these steps.
        evaluation: state of the evaluation of models, as text, with the cause of a failure.
    """

    public: PublicView
    invited: int
    enrolled: int
    arrived: int
    arrived_expected: float
    counts: tuple[StepCount, ...]
    waiting_jobs: int
    waiting_bytes: int
    events: tuple[LogEvent, ...]
    block: int = 0
    block_variance: float = 0.0
    evaluation: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PublicTerms:
    """Charter of a task with the values that are computed from it once.

    Attributes:
        charter: terms of the task.
        plan: the charter's plan.
        expected: expected number of check-ins in each step.
        certainties: bounds on an observer's certainty.
    """

    charter: Charter
    plan: Plan
    expected: tuple[float, ...]
    certainties: Certainties

    @classmethod
    def of(cls, charter: Charter) -> Self:
        """Terms of a charter, with the values that are computed from the charter once."""
        expected = expected_check_ins(charter.scheme.participation, charter.population)
        plan = Plan.from_toml(charter.plan)
        counts = tuple(float(n) for n in expected)
        return cls(charter, plan, counts, Certainties(charter))

    def last_block(self, released: int) -> tuple[int, float]:
        """Number of published steps in the last window, and a bound on their check-ins' variance.

        The bound is never below the variance of the number of check-ins in these steps.

        Args:
            released: number of published releases.
        """
        length = getattr(self.charter.scheme.participation, "window", _BLOCK)
        expected = self.expected[max(0, released - 1) // length * length : released]
        # Clients are independent, and the variance of a step is Σp(1 − p) ≤ μ − μ²/n. Check-ins of
        # one client in a window exclude each other, so the sum of the variances is an upper bound.
        population = self.charter.population
        return len(expected), sum(max(0.0, mean - mean**2 / population) for mean in expected)


def public_view(
    terms: PublicTerms, progress: ServedProgress, scores: Iterable[Scored]
) -> PublicView:
    """Public view of a task.

    Args:
        terms: terms of the task.
        progress: published state of the schedule.
        scores: evaluations of models; evaluations of unpublished models are left out.
    """
    charter, plan = terms.charter, terms.plan
    return PublicView(
        # Terms.
        task=charter.task,
        title=f"{plan.model.title} on {plan.data.title}",
        plan=charter.plan,
        population=charter.population,
        release=charter.scheme.release.value,
        relation=charter.scheme.relation.value,
        unit=charter.scheme.unit.value,
        trust_model=charter.scheme.trust.value,
        # Schedule.
        step=progress.step,
        steps=charter.steps,
        phase=progress.phase.value,
        seconds_left=progress.seconds_left,
        seconds_to_next_step=progress.seconds_to_next_step,
        step_seconds=charter.timing.step_seconds,
        released=progress.head.steps,
        # Upper bounds on ε, evaluations, and certainties.
        head=str(progress.head),
        epsilon_spent=charter.spent(progress.head.steps),
        epsilon_target=charter.target,
        delta=charter.delta,
        curve=tuple(
            CurvePoint(s.steps, charter.spent(s.steps), _finite(s.accuracy), _finite(s.loss))
            for s in scores
            if s.steps <= progress.head.steps
        ),
        charged=tuple(zip(charter.charged_steps, charter.charged, strict=True)),
        sure_in_all=terms.certainties.after(charter.steps),
        sure=terms.certainties.after(progress.head.steps),
    )


def operator_view(
    terms: PublicTerms, progress: ServedProgress, reads: Transaction, waiting: tuple[int, int]
) -> OperatorView:
    """Operator's view of a task.

    Args:
        terms: terms of the task.
        progress: published state of the schedule.
        reads: transaction of a snapshot.
        waiting: number of jobs, and number of body bytes, that wait for the writer.
    """
    # Counts of published steps alone, and the window on which a warning is based.
    expected = terms.expected
    counts = (count for count in reads.counts() if count[0] < progress.head.steps)
    running = progress.step < terms.charter.steps
    block, variance = terms.last_block(progress.head.steps)
    # The public view, and all that is for the operator alone.
    return OperatorView(
        public=public_view(terms, progress, reads.scores()),
        invited=reads.invited(),
        enrolled=reads.enrolled(),
        arrived=reads.arrived(progress.step).size if running else 0,
        arrived_expected=expected[progress.step] if running else 0.0,
        counts=tuple(
            StepCount(step, checked_in, served, expected[step])
            for step, checked_in, served in counts
        ),
        waiting_jobs=waiting[0],
        waiting_bytes=waiting[1],
        events=tuple(reads.events(_EVENTS)),
        block=block,
        block_variance=variance,
    )


def _finite(value: float) -> float | None:
    """The number, or None if it is infinite or NaN, which JSON cannot express."""
    return value if math.isfinite(value) else None
