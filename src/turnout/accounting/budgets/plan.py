"""Budgets of plans that are fixed in advance: terms, ledger, and budget left after some steps.

`BudgetTerms` are the relation, unit and trust model that all windows of a ledger, filter or
odometer share; `Entry` records equal windows in a filter or odometer. `Ledger` composes several
`BudgetPhase`s; `remaining` returns a `Remaining`: the state of a plan after some steps. `odometer`
uses the same terms and entries; `reporting` shows the remaining budget. This module builds on
`pricing`, `calibration` and `divergence.renyi`.

A `Ledger` is for plans that do *not* depend on results: phases, noise and numbers of windows are
fixed before the data is accessed, or depend on no release. The ε of a ledger is not the sum of the
ε of its phases; all phases are composed as one run. For plans that depend on results, see
`odometer`.

Two decisions may depend on results nevertheless: when to stop early, and whether to repeat the
*same* window once more, as long as the number of windows never exceeds the number that the budget
allows. Both decisions only determine which releases of the longest possible run are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting import pricing
from turnout.accounting.bisection import UNKNOWNS, BisectionSearch, CostTarget
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
    """Relation, unit and trust model of a guarantee, which all windows of a ledger must share.

    Attributes:
        relation: neighbouring relation; has no default.
        unit: unit of privacy, all data of a client or one example.
        trust: parties that a client must trust for ε to hold.

    Raises:
        ParameterError: a value is not a member of its enumeration.
    """

    relation: Relation
    unit: PrivacyUnit = PrivacyUnit.CLIENT
    trust: TrustModel = TrustModel.CENTRAL

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @classmethod
    def of(cls, scheme: Scheme) -> BudgetTerms:
        """Relation, unit and trust model of a scheme."""
        return cls(scheme.relation, scheme.unit, scheme.trust)

    def require(self, scheme: Scheme) -> None:
        """Raise a ParameterError for a scheme with another relation, unit or trust model.

        Raises:
            ParameterError: relation, unit or trust model differ.
        """
        for name in ("relation", "unit", "trust"):
            ours, theirs = getattr(self, name), getattr(scheme, name)
            if ours is not theirs:
                raise ParameterError(name, theirs.value, f"{ours.value!r}, as in the ledger")

    def run_of(self, scheme: Scheme, steps: int | None = None) -> Run:
        """Blocks of a scheme, or of its first steps, in the form that a privacy filter can record.

        Raises:
            ParameterError: relation, unit or trust differ.
            UnsupportedError: the relation needs two neighbour bounds, or windows differ by client.
        """
        self.require(scheme)
        if is_per_client(scheme):
            raise UnsupportedError(
                "filters and odometers keep one bound for all clients, so windows must not differ "
                "by client; charge the smallest window that any client may have"
            )
        parts = decompose(scheme, steps)
        if parts.replacement_against_null is not None:
            raise UnsupportedError(
                f"relation = {scheme.relation.value!r} needs two neighbour bounds here, which "
                "filters and odometers do not support; use add-remove"
            )
        return parts.record_against_null.upper

    def to_dict(self) -> dict[str, Any]:
        """Relation, unit and trust model as strings, for JSON."""
        return {"relation": self.relation.value, "unit": self.unit.value, "trust": self.trust.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BudgetTerms:
        """Relation, unit and trust model restored from the output of `to_dict`."""
        return cls(data["relation"], data["unit"], data["trust"])


def require_terms(terms: object) -> None:
    """Raise a ParameterError unless ``terms`` are `BudgetTerms`."""
    if not isinstance(terms, BudgetTerms):
        raise ParameterError("terms", terms, "BudgetTerms with relation, unit and trust")


def as_windows(scheme: Scheme, windows: int) -> Scheme:
    """Scheme with another number of windows; with that many steps if each step has its own draw.

    Args:
        scheme: scheme whose participation is a sequence of equal windows.
        windows: number of windows (or steps) of the result, at least 1.

    Raises:
        UnsupportedError: the participation is not a sequence of equal windows.
    """
    participation, name = scheme.participation, _repeating(scheme)
    one = replace(participation, **{name: 1})
    if normal_form(one) * getattr(participation, name) != normal_form(participation):
        raise _unequal_windows(type(participation))
    return replace(scheme, participation=replace(participation, **{name: windows}))


def window_count(scheme: Scheme) -> int:
    """Number of windows of a scheme; the number of steps if each step has its own draw.

    Raises:
        UnsupportedError: the participation is not a sequence of equal windows.
    """
    return getattr(scheme.participation, _repeating(scheme))


def _repeating(scheme: Scheme) -> str:
    """Name of the participation parameter that sets the number of windows."""
    kind = type(scheme.participation)
    if is_registered(kind):
        for parameter in parameters(kind):
            if parameter.repeats:
                return parameter.name
    raise _unequal_windows(kind)


def _unequal_windows(kind: type) -> UnsupportedError:
    """Error for a participation whose windows cannot be counted."""
    return UnsupportedError(
        f"{kind.__name__} is not a sequence of equal windows, so its windows cannot be counted"
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """Record of ``count`` equal windows in a filter or odometer.

    Attributes:
        charge: upper bounds on the Rényi divergences of one window.
        count: number of such windows, at least 1.
        label: name of the entry in reports.

    Raises:
        ParameterError: the count is not a whole number of at least 1.
    """

    charge: RenyiBounds
    count: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        checks.count(count=self.count)

    def to_dict(self) -> dict[str, Any]:
        """Content of the entry as dictionaries, lists, numbers and strings, for JSON."""
        return {"charge": self.charge.to_dict(), "count": self.count, "label": self.label}


Entries = tuple[Entry, ...]


def with_entry(entries: Entries, fresh: Entry) -> Entries:
    """Entries with a new one, merged into the last entry if divergences and label are equal."""
    if entries and (entries[-1].charge, entries[-1].label) == (fresh.charge, fresh.label):
        return (*entries[:-1], replace(fresh, count=entries[-1].count + fresh.count))
    return (*entries, fresh)


def entries_from(data: Mapping[str, Any]) -> Entries:
    """Entries restored from the dictionary that `Odometer.to_dict` returned."""
    return tuple(
        Entry(RenyiBounds.from_dict(item["charge"]), item["count"], str(item["label"]))
        for item in data["entries"]
    )


def require_kind(data: Mapping[str, Any], kind: str) -> None:
    """Raise a ParameterError unless a stored record is of the given kind."""
    if data.get("kind") != kind:
        raise ParameterError("kind", data.get("kind"), repr(kind))


_TOLERANCE = 1e-4  # relative, of a noise multiplier
MOST_WINDOWS = 10**6
"""Largest number of further runs that a search considers."""


@dataclass(frozen=True, slots=True)
class BudgetPhase:
    """Phase of a plan: the first ``steps`` steps of a scheme.

    Raises:
        ParameterError: the scheme has fewer steps.
    """

    scheme: Scheme
    steps: int
    label: str = ""

    def __post_init__(self) -> None:
        checks.count(0, steps=self.steps)
        checks.at_most("the scheme's steps", self.scheme.participation.steps, steps=self.steps)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Plan of phases, done or still to do, that run one after the other on the same clients.

    Guarantee: `epsilon` bounds all releases of all phases together, for a client that takes part in
    all phases.

    >>> from turnout.schemes import CheckIn, Relation
    >>> noisy = Scheme(GaussianNoise(2.0), CheckIn(100, 5), Relation.ADD_REMOVE)
    >>> done = Ledger(BudgetTerms.of(noisy)).add(noisy, steps=250)
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
        """Ledger with one more phase: the first ``steps`` steps of a scheme, or the whole scheme.

        Args:
            scheme: scheme of the phase.
            steps: number of first steps of the scheme; all steps if None.
            label: name of the phase in reports.

        Raises:
            ParameterError: relation, unit or trust differ from those of the ledger, or the scheme
                has fewer steps.
        """
        steps = scheme.participation.steps if steps is None else steps
        return replace(self, phases=(*self.phases, BudgetPhase(scheme, steps, label)))

    def epsilon(self, delta: float) -> float:
        """Upper bound on ε of all phases in the ledger together.

        Args:
            delta: δ, strictly between 0 and 1.

        Raises:
            ParameterError: δ is out of range.
            UnsupportedError: no sound analysis is known for a phase, or for several phases
                together.
            NumericalError: no bound can be certified at such a δ.
        """
        checks.open_unit(delta=delta)
        phases = [phase for phase in self.phases if phase.steps > 0]
        if len(phases) == 1:
            return pricing.epsilon_upper(phases[0].scheme, delta, phases[0].steps)
        if any(is_per_client(phase.scheme) for phase in phases):
            raise UnsupportedError(
                "windows of an availability trace cannot be composed with other phases; "
                "keep such windows in a ledger with one phase"
            )
        parts = joined_decompositions([decompose(phase.scheme, phase.steps) for phase in phases])
        return pricing.decomposition_upper(parts, delta)

    def run(self) -> Run:
        """Blocks of all phases as one run, for a privacy filter that continues the ledger.

        Raises:
            UnsupportedError: the relation needs two neighbour bounds, or windows differ by client.
        """
        done = [phase for phase in self.phases if phase.steps > 0]
        return merged_runs(*(self.terms.run_of(phase.scheme, phase.steps) for phase in done))

    def require(self, epsilon: float, delta: float) -> None:
        """Raise a BudgetExceededError if the upper bound on ε exceeds a budget.

        Args:
            epsilon: budget of ε, at least 0.
            delta: δ, strictly between 0 and 1.

        Raises:
            ParameterError: ε or δ is out of range.
            BudgetExceededError: the upper bound on ε exceeds the budget.
        """
        checks.non_negative(epsilon=epsilon)
        found = self.epsilon(delta)
        if found > epsilon:
            raise BudgetExceededError(found, epsilon)

    def fits(self, window: Scheme, epsilon: float, delta: float, most: int = MOST_WINDOWS) -> int:
        """Number of further runs of a scheme for which the total ε stays within a budget.

        Args:
            window: scheme of one further run.
            epsilon: budget for ε of all phases together, positive.
            delta: δ, strictly between 0 and 1.
            most: largest number of runs to try.

        Returns:
            The number of further runs with which the total ε is proved to be at most ``epsilon``.
            One more run has no such proof, unless the number is ``most``. The number is 0 if the
            budget is already used up.

        Raises:
            ParameterError: an argument is out of range, or relation, unit or trust differ.
            UnsupportedError: the participation is not a sequence of equal windows.
        """
        checks.positive(epsilon=epsilon)
        self.terms.require(window)

        def proved(count: int) -> bool:
            # As few phases as the participation allows.
            after = self.add(as_windows(window, window_count(window) * count))
            try:
                return after.epsilon(delta) <= epsilon
            except NumericalError:
                return False

        return largest(proved, most)

    def noise(self, scheme_for: Callable[[float], Scheme], epsilon: float, delta: float) -> float:
        """Smallest noise multiplier found for a further phase such that all phases meet a budget.

        Args:
            scheme_for: function that returns the further phase for a noise multiplier.
            epsilon: budget for ε of all phases together, positive.
            delta: δ, strictly between 0 and 1.

        Returns:
            A noise multiplier of six digits that is proved to keep the total ε within the budget.

        Raises:
            ParameterError: ε or δ is out of range.
            BudgetExceededError: the phases in the ledger already exceed the budget.
            UnsupportedError: no noise multiplier up to 10⁶ is enough.
        """
        self.require(epsilon, delta)
        unknown = UNKNOWNS["noise-multiplier"]
        target = CostTarget(
            lambda s: self.add(scheme_for(s)).epsilon(delta), epsilon, lambda _: delta
        )
        search = BisectionSearch.to_the_end(target, unknown, _TOLERANCE)
        if search.met is None:
            raise UnsupportedError(
                f"no noise multiplier up to {unknown.text(unknown.most)} keeps all phases, "
                f"the further one included, within epsilon = {epsilon:g}"
            )
        return search.met.value

    def to_dict(self) -> dict[str, Any]:
        """Content of the ledger as dictionaries, lists, numbers and strings, for JSON."""
        phases = [
            {"scheme": scheme_to_dict(phase.scheme), "steps": phase.steps, "label": phase.label}
            for phase in self.phases
        ]
        return {"kind": "ledger", "terms": self.terms.to_dict(), "phases": phases}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ledger:
        """Ledger restored from the output of `to_dict`.

        Raises:
            ParameterError: the data is not that of a ledger, or a value is out of range.
        """
        require_kind(data, "ledger")
        phases = (
            BudgetPhase(scheme_from_dict(item["scheme"]), item["steps"], item["label"])
            for item in data["phases"]
        )
        return cls(BudgetTerms.from_dict(data["terms"]), tuple(phases))


@dataclass(frozen=True, slots=True)
class Remaining:
    """State of a plan after some of its steps: ε spent, and windows left.

    Attributes:
        steps: number of steps done.
        delta: δ at which all bounds hold.
        spent: upper bound on ε of the steps done.
        whole: upper bound on ε of the whole plan.
        budget: largest ε that the plan may spend.
        windows: number of further windows of the same kind that the budget allows after the last
            window that has begun. The plan itself may have fewer windows.
        noise_multiplier: least noise multiplier with which all windows that have not begun keep the
            plan within the budget; None if all windows have begun.
    """

    steps: int
    delta: float
    spent: float
    whole: float
    budget: float
    windows: int
    noise_multiplier: float | None


def remaining(scheme: Scheme, steps: int, budget: float, delta: float) -> Remaining:
    """State of a plan after some steps: the ε spent, and the windows that are left.

    A window that has begun counts as complete, with its original noise multiplier, since the
    clients have drawn their slots for the whole window.

    Args:
        scheme: scheme of the whole plan.
        steps: number of steps done.
        budget: largest ε that the plan may spend, positive.
        delta: δ, strictly between 0 and 1.

    Returns:
        State with all numbers rounded to the private side: ε and the noise multiplier are rounded
        up, and the number of windows is rounded down.

    Raises:
        ParameterError: an argument is out of range.
        BudgetExceededError: windows that are done or have begun spend more than the budget.
        UnsupportedError: the plan is not a sequence of equal windows, or no noise multiplier up to
            10⁶ is enough for the rest.
    """
    # The plan so far (windows that have begun count as complete), and the whole plan.
    checks.positive(budget=budget)
    total, empty = window_count(scheme), Ledger(BudgetTerms.of(scheme))
    now = empty.add(scheme, steps)
    begun = -(-steps // window_steps(scheme))
    done = empty.add(as_windows(scheme, begun)) if begun else empty
    whole = empty.add(scheme).epsilon(delta)
    # Windows that are done or begun must fit into the budget.
    done.require(budget, delta)
    # Least noise of the windows that are still to begin.
    noise = None
    if begun < total:
        rest = as_windows(scheme, total - begun)
        noise = done.noise(lambda s: replace(rest, randomizer=GaussianNoise(s)), budget, delta)
    # A plan has spent at most the ε of the whole plan after any number of steps.
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
    """Number of steps of one window of a scheme; 1 if every step has its own draw.

    Raises:
        UnsupportedError: the participation is not a sequence of equal windows.
    """
    return as_windows(scheme, 1).participation.steps


def largest(proved: Callable[[int], bool], most: int) -> int:
    """Largest count found, up to ``most``, at which ``proved`` is true; 0 if it is false at 1.

    A proof at one count is valid for all smaller counts too, so the result is valid even if the
    computed bounds do not rise with the count.

    Raises:
        ParameterError: ``most`` is not a whole number of at least 1.
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
