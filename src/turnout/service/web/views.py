"""Views of a task: the public one, and the operator's.

How many devices took part at which step is for the operator alone, and stays so after the task: the
promised (ε, δ) covers models, not counts. `Certainties` computes upper bounds on how sure an
observer becomes about one client; a bound takes from part of a second to many, so a thread of its
own computes them, and until then the page says that they are not known yet.
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
"""Before anything is released nobody with even odds is surer than that."""

Sides = tuple[float, float]


class Certainties:
    """Upper bounds on the posterior of presence and of absence, at the prior ½ and but for δ."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._known: dict[int, Sides] = {}
        self._wanted: list[int] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def after(self, steps: int) -> Sides | None:
        """Bounds once ``steps`` steps are released; None where none is known yet.

        Who sees a part of the releases sees no more than who sees more of them, so that the
        bounds of a later step hold as well.
        """
        if steps == 0:
            return EVEN
        at = self._charged(steps)
        with self._lock:
            if at not in self._known and at not in self._wanted:
                self._wanted.append(at)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, daemon=True)
                    self._thread.start()
            later = [self._known[step] for step in self._known if step >= at]
        if not later:
            return None
        return min(side[0] for side in later), min(side[1] for side in later)

    def settle(self) -> None:
        """Wait until all that was asked for is worked out."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _charged(self, steps: int) -> int:
        """The next step at which ε is charged; the last one where no part of a run is priced."""
        charter = self._charter
        if isinstance(charter.scheme.participation, AvailabilityCheckIn):
            return charter.steps
        return charter.charged_steps[bisect_left(charter.charged_steps, steps)]

    def _work(self) -> None:
        """Everything that is wanted, one after the other."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                at = self._wanted[0]
            sides = self._worked_out(at)
            with self._lock:
                self._known[at] = sides
                self._wanted.remove(at)

    def _worked_out(self, steps: int) -> Sides:
        """Bounds after a charged step; certainty where nothing can be certified."""
        from turnout.accounting.meaning.membership import scheme_certainty
        from turnout.plans.preparation import costliest_clients

        charter = self._charter
        part = None if steps == charter.steps else steps
        try:
            scheme = costliest_clients(charter.scheme)
            return scheme_certainty(scheme, charter.delta, steps=part).sides
        except TurnoutError:
            return 1.0, 1.0


_EVENTS = 200
_BLOCK = 20
"""Steps that count as a block where the law has no windows."""


@dataclass(frozen=True, slots=True)
class ServedProgress:
    """The state of the schedule, as it was told to everybody.

    Attributes:
        step: the step in progress; the number of steps when all are over.
        seconds_left: to the end of the phase.
        seconds_to_next_step: to the next publication; 0 when all is over.
    """

    head: Head
    step: int
    phase: StepPhase
    seconds_left: float
    seconds_to_next_step: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A published model that was evaluated on public data; what is not a number is None here."""

    steps: int
    epsilon: float
    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class PublicView:
    """The public view: terms, schedule, ε and the model's accuracy.

    Attributes:
        step, steps, phase, seconds_left, seconds_to_next_step: as in `ServedProgress`.
        head: of the ledger, as text.
        epsilon_spent: by what is published, a proved upper bound.
        epsilon_target: what must not be exceeded.
        curve: evaluated models, by steps.
        charged: (steps, ε) of the whole plan, public since the charter is.
        sure: upper bounds, exceeded with a chance of at most δ each, on how sure anybody with
            even odds becomes that one client took part, and that it did not, by what is
            released; None while they are worked out.
        sure_in_all: the same by all models of the plan.
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
    """One published step's counts."""

    step: int
    checked_in: int
    served: int
    expected: float


@dataclass(frozen=True, slots=True)
class OperatorView:
    """The rest of the operator's view.

    Attributes:
        invited, enrolled: ids handed out, and those whose invitation was used.
        arrived: devices that came in the step in progress so far.
        arrived_expected: expected of the whole population at that step; 0 after the last.
        waiting_jobs, waiting_bytes: what the writer has not committed yet.
        events: the log's last lines, oldest first.
        block: published steps of the law's last window, up to the last published one.
        block_variance: bound on the variance of all check-ins in them.
        evaluation: whether models are evaluated, and why not.
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
    """A charter with what is worked out from it once."""

    charter: Charter
    plan: Plan
    expected: tuple[float, ...]
    certainties: Certainties

    @classmethod
    def of(cls, charter: Charter) -> Self:
        """The terms of a charter."""
        expected = expected_check_ins(charter.scheme.participation, charter.population)
        plan = Plan.from_toml(charter.plan)
        counts = tuple(float(n) for n in expected)
        return cls(charter, plan, counts, Certainties(charter))

    def last_block(self, released: int) -> tuple[int, float]:
        """Steps of the last window that are published, and a bound on their check-ins' variance."""
        length = getattr(self.charter.scheme.participation, "window", _BLOCK)
        expected = self.expected[max(0, released - 1) // length * length : released]
        # Clients come independently, each step's variance is Σp(1 − p) ≤ μ − μ²/n, and turns of
        # one client exclude each other within a window: the sum varies no more than its parts.
        population = self.charter.population
        return len(expected), sum(max(0.0, mean - mean**2 / population) for mean in expected)


def public_view(
    terms: PublicTerms, progress: ServedProgress, scores: Iterable[Scored]
) -> PublicView:
    """The public view."""
    charter, plan = terms.charter, terms.plan
    return PublicView(
        task=charter.task,
        title=f"{plan.model.title} on {plan.data.title}",
        plan=charter.plan,
        population=charter.population,
        release=charter.scheme.release.value,
        relation=charter.scheme.relation.value,
        unit=charter.scheme.unit.value,
        trust_model=charter.scheme.trust.value,
        step=progress.step,
        steps=charter.steps,
        phase=progress.phase.value,
        seconds_left=progress.seconds_left,
        seconds_to_next_step=progress.seconds_to_next_step,
        step_seconds=charter.timing.step_seconds,
        released=progress.head.steps,
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
    """The operator's view."""
    expected = terms.expected
    counts = (count for count in reads.counts() if count[0] < progress.head.steps)
    running = progress.step < terms.charter.steps
    block, variance = terms.last_block(progress.head.steps)
    return OperatorView(
        public=public_view(terms, progress, reads.scores()),
        invited=reads.invited(),
        enrolled=reads.enrolled(),
        arrived=reads.arrived(progress.step).size if running else 0,
        arrived_expected=expected[progress.step] if running else 0.0,
        counts=tuple(
            StepCount(step, came, served, expected[step]) for step, came, served in counts
        ),
        waiting_jobs=waiting[0],
        waiting_bytes=waiting[1],
        events=tuple(reads.events(_EVENTS)),
        block=block,
        block_variance=variance,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
