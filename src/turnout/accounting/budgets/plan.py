"""The terms that all windows of a ledger share (relation, unit, trust), and its entries.

The ε that a plan has spent after some of its steps, and the steps that its budget still allows.

Everything here is for plans that do *not* look at results: phases, noise and numbers of windows
are fixed before the data is touched, or depend on nothing that was released. ε's of phases do not
add up; phases are composed exactly, as one run. For plans that do look, see `filters`.

Two things may depend on results all the same: when to stop early, and whether to repeat the *same*
window once more, as long as their number never exceeds one that the budget allows. Both only leave
out releases of the longest run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting import pricing
from turnout.accounting.calibration import UNKNOWNS, BisectionSearch, CostTarget
from turnout.accounting.decomposition import decompose, is_per_client
from turnout.accounting.divergence.blocks import Run, joined_decompositions, merged_runs
from turnout.accounting.divergence.renyi import RenyiBounds
from turnout.core import checks
from turnout.core.errors import (
    BudgetExceededError,
    NumericalError,
    ParameterError,
    UnsupportedError,
)
from turnout.schemes import GaussianNoise, PrivacyUnit, Relation, Scheme, TrustModel
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict
from turnout.schemes.normal_form import normal_form
from turnout.schemes.parameters import hold_members, parameters
from turnout.schemes.registry import is_registered


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """Relation, unit and trust of a guarantee; every window of a ledger must have the same.

    Attributes:
        relation: has no default, on purpose.
    """

    relation: Relation
    unit: PrivacyUnit = PrivacyUnit.CLIENT
    trust: TrustModel = TrustModel.CENTRAL

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @classmethod
    def of(cls, scheme: Scheme) -> BudgetTerms:
        """The terms of a scheme."""
        return cls(scheme.relation, scheme.unit, scheme.trust)

    def require(self, scheme: Scheme) -> None:
        """Refuses a scheme with other terms, by a ParameterError."""
        for name in ("relation", "unit", "trust"):
            ours, theirs = getattr(self, name), getattr(scheme, name)
            if ours is not theirs:
                raise ParameterError(name, theirs.value, f"{ours.value!r}, as in the ledger")

    def run_of(self, scheme: Scheme, steps: int | None = None) -> Run:
        """The blocks of a scheme (of its first steps) that a filter charges: one neighbour bound.

        Raises:
            ParameterError: relation, unit or trust differ.
            UnsupportedError: the relation takes two neighbour bounds here, or clients have windows
                of their own.
        """
        self.require(scheme)
        if is_per_client(scheme):
            raise UnsupportedError(
                "filters and odometers keep one account for all clients, so windows cut from a "
                "trace are refused; charge the smallest window that any client may have"
            )
        parts = decompose(scheme, steps)
        if parts.replacement_against_null is not None:
            raise UnsupportedError(
                f"{scheme.relation.value} takes two neighbour bounds here, which filters and "
                "odometers do not follow; keep the account under add-remove"
            )
        return parts.record_against_null.upper

    def to_dict(self) -> dict[str, Any]:
        """As plain words."""
        return {"relation": self.relation.value, "unit": self.unit.value, "trust": self.trust.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BudgetTerms:
        """The terms that `to_dict` wrote."""
        return cls(data["relation"], data["unit"], data["trust"])


def require_terms(terms: object) -> None:
    """Refuses anything but `BudgetTerms`: an account must say who is protected against what."""
    if not isinstance(terms, BudgetTerms):
        raise ParameterError("terms", terms, "a Terms: relation, unit and trust model")


def as_windows(scheme: Scheme, windows: int) -> Scheme:
    """A scheme with another number of windows (or of steps, where steps stand for themselves).

    Raises:
        UnsupportedError: the law is not a sequence of equal windows.
    """
    law, name = scheme.participation, _repeating(scheme)
    one = replace(law, **{name: 1})
    if normal_form(one) * getattr(law, name) != normal_form(law):
        raise UnsupportedError(f"{type(law).__name__} is not so many of its windows")
    return replace(scheme, participation=replace(law, **{name: windows}))


def window_count(scheme: Scheme) -> int:
    """Windows of a scheme; steps, where steps stand for themselves."""
    return getattr(scheme.participation, _repeating(scheme))


def _repeating(scheme: Scheme) -> str:
    """The parameter of a scheme's law that says how many windows it has."""
    law = type(scheme.participation)
    if is_registered(law):
        for parameter in parameters(law):
            if parameter.repeats:
                return parameter.name
    raise UnsupportedError(f"{law.__name__} is not a sequence of equal windows")


@dataclass(frozen=True, slots=True)
class Entry:
    """The same charge of one window, ``count`` times in a row."""

    charge: RenyiBounds
    count: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        checks.count(count=self.count)

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        return {"charge": self.charge.to_dict(), "count": self.count, "label": self.label}


Entries = tuple[Entry, ...]


def with_entry(entries: Entries, fresh: Entry) -> Entries:
    """The entries and one more, counted with the last one if that is of the same charge."""
    if entries and (entries[-1].charge, entries[-1].label) == (fresh.charge, fresh.label):
        return (*entries[:-1], replace(fresh, count=entries[-1].count + fresh.count))
    return (*entries, fresh)


def entries_from(data: Mapping[str, Any]) -> Entries:
    """The entries of a written account."""
    return tuple(
        Entry(RenyiBounds.from_dict(item["charge"]), item["count"], str(item["label"]))
        for item in data["entries"]
    )


def require_kind(data: Mapping[str, Any], kind: str) -> None:
    """Refuses what was written by something else."""
    if data.get("kind") != kind:
        raise ParameterError("kind", data.get("kind"), repr(kind))


_TOLERANCE = 1e-4  # relative, of a noise multiplier
MOST_WINDOWS = 10**6
"""The largest count of allowed runs that is searched."""


@dataclass(frozen=True, slots=True)
class BudgetPhase:
    """The first ``steps`` steps of a scheme, run in one go."""

    scheme: Scheme
    steps: int
    label: str = ""

    def __post_init__(self) -> None:
        checks.count(0, steps=self.steps)
        checks.at_most("the scheme's steps", self.scheme.participation.steps, steps=self.steps)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Phases that were run or are planned, one after the other, about the same clients.

    Guarantee: `epsilon` bounds everything that all phases release together, for a client who is
    in all of them.

    >>> from turnout.schemes import CheckIn, Relation
    >>> noisy = Scheme(GaussianNoise(2.0), CheckIn(100, 5), Relation.ADD_REMOVE)
    >>> done = Ledger(Terms.of(noisy)).add(noisy, steps=250)
    >>> done.epsilon(1e-6) <= done.add(noisy).epsilon(1e-6)
    True
    >>> Ledger.from_dict(done.to_dict()) == done
    True
    """

    terms: BudgetTerms
    phases: tuple[BudgetPhase, ...] = ()

    def __post_init__(self) -> None:
        require_terms(self.terms)
        for phase in self.phases:
            self.terms.require(phase.scheme)

    def add(self, scheme: Scheme, steps: int | None = None, label: str = "") -> Ledger:
        """This ledger with one more phase: the first ``steps`` steps of a scheme, or all.

        Raises:
            ParameterError: relation, unit or trust differ, or the scheme has fewer steps.
        """
        steps = scheme.participation.steps if steps is None else steps
        return replace(self, phases=(*self.phases, BudgetPhase(scheme, steps, label)))

    def epsilon(self, delta: float) -> float:
        """ε of everything in the ledger, never below the true one.

        Raises:
            UnsupportedError: no sound analysis is known for a phase, or for several together.
            NumericalError: so small a δ cannot be certified.
        """
        checks.open_unit(delta=delta)
        phases = [phase for phase in self.phases if phase.steps > 0]
        if len(phases) == 1:
            return pricing.epsilon_upper(phases[0].scheme, delta, phases[0].steps)
        if any(is_per_client(phase.scheme) for phase in phases):
            raise UnsupportedError("windows cut from a trace are priced in a phase of their own")
        parts = joined_decompositions([decompose(phase.scheme, phase.steps) for phase in phases])
        return pricing.decomposition_upper(parts, delta)

    def run(self) -> Run:
        """The blocks of all phases, for what comes after them in a filter.

        Raises:
            UnsupportedError: the relation takes two neighbour bounds, or clients have windows of
                their own.
        """
        done = [phase for phase in self.phases if phase.steps > 0]
        return merged_runs(*(self.terms.run_of(phase.scheme, phase.steps) for phase in done))

    def require(self, epsilon: float, delta: float) -> None:
        """Refuses, by a BudgetExceededError, a ledger whose ε is not proved to be in a budget."""
        checks.non_negative(epsilon=epsilon)
        found = self.epsilon(delta)
        if found > epsilon:
            raise BudgetExceededError(found, epsilon)

    def fits(self, window: Scheme, epsilon: float, delta: float, most: int = MOST_WINDOWS) -> int:
        """Number of times that one more scheme may run while ε of everything is in a budget.

        Returns:
            A number whose ε is proved to be at most ``epsilon``, and the next one's is not (or
            it is ``most``). 0 also where the budget is spent already.
        """
        checks.positive(epsilon=epsilon)
        self.terms.require(window)

        def proved(count: int) -> bool:
            # As few phases as the law allows.
            after = self.add(as_windows(window, window_count(window) * count))
            try:
                return after.epsilon(delta) <= epsilon
            except NumericalError:
                return False

        return largest(proved, most)

    def noise(self, scheme_for: Callable[[float], Scheme], epsilon: float, delta: float) -> float:
        """The smallest noise multiplier with which a further phase stays in a budget.

        Args:
            scheme_for: the further phase as a function of its noise multiplier.
            epsilon: the budget of everything together.
            delta: δ.

        Returns:
            A multiplier of six digits, which is proved to be enough.

        Raises:
            BudgetExceededError: what is in the ledger has spent the budget.
            UnsupportedError: no noise up to 10⁶ is enough.
        """
        self.require(epsilon, delta)
        unknown = UNKNOWNS["noise-multiplier"]
        target = CostTarget(
            lambda s: self.add(scheme_for(s)).epsilon(delta), epsilon, lambda _: delta
        )
        search = BisectionSearch.to_the_end(target, unknown, _TOLERANCE)
        if search.met is None:
            raise UnsupportedError(
                f"no noise multiplier up to {unknown.said(unknown.most)} keeps a further phase "
                f"within epsilon = {epsilon:g} in all"
            )
        return search.met.value

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        phases = [
            {"scheme": scheme_to_dict(phase.scheme), "steps": phase.steps, "label": phase.label}
            for phase in self.phases
        ]
        return {"kind": "ledger", "terms": self.terms.to_dict(), "phases": phases}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote."""
        require_kind(data, "ledger")
        phases = (
            BudgetPhase(scheme_from_dict(item["scheme"]), item["steps"], item["label"])
            for item in data["phases"]
        )
        return cls(BudgetTerms.from_dict(data["terms"]), tuple(phases))


@dataclass(frozen=True, slots=True)
class Remaining:
    """The state of a plan after some of its steps.

    Attributes:
        spent: ε of the steps done, proved.
        whole: ε of the plan if it is carried out, proved.
        budget: what ε may become.
        windows: further windows of the same kind that the budget allows after the last window
            that was begun, whatever the plan says.
        noise_multiplier: the least noise with which the windows that are still to begin stay in
            the budget; None where none are.
    """

    steps: int
    delta: float
    spent: float
    whole: float
    budget: float
    windows: int
    noise_multiplier: float | None


def remaining(scheme: Scheme, steps: int, budget: float, delta: float) -> Remaining:
    """The ε spent after some steps of a plan, and the steps that are left.

    A window that was begun is counted as done to its end, with the noise it began with: slots were
    drawn for all of it.

    Returns:
        Bounds on the private side: ε's rounded up, counts down, noise up.

    Raises:
        BudgetExceededError: what was done, or begun, has spent more than the budget.
        UnsupportedError: the plan is not a sequence of equal windows.
    """
    checks.positive(budget=budget)
    total, empty = window_count(scheme), Ledger(BudgetTerms.of(scheme))
    now = empty.add(scheme, steps)
    begun = -(-steps // window_steps(scheme))
    done = empty.add(as_windows(scheme, begun)) if begun else empty
    whole = empty.add(scheme).epsilon(delta)
    done.require(budget, delta)
    noise = None
    if begun < total:
        rest = as_windows(scheme, total - begun)
        noise = done.noise(lambda s: replace(rest, randomizer=GaussianNoise(s)), budget, delta)
    return Remaining(
        steps=steps,
        delta=delta,
        spent=min(now.epsilon(delta), whole) if steps < scheme.participation.steps else whole,
        whole=whole,
        budget=budget,
        windows=done.fits(as_windows(scheme, 1), budget, delta),
        noise_multiplier=noise,
    )


def window_steps(scheme: Scheme) -> int:
    """Steps of one window of a scheme; 1 where every step stands for itself."""
    return as_windows(scheme, 1).participation.steps


def largest(proved: Callable[[int], bool], most: int) -> int:
    """The largest count up to ``most`` that is proved, by doubling and halving; 0 if 1 is not.

    A larger proof is one for less too, so the answer holds although bounds may not rise evenly.
    """
    checks.count(most=most)
    low, high = 0, 1
    while high <= most and proved(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low
