"""Questions with several answers: comparisons over a swept parameter, and budgets in a file.

`sweep` reads the question of `turnout compare`, `compared` computes ε by every method at every
value. `Account` is a privacy budget in a file: `charge` adds a window before it runs, under a lock.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, field_validator

from turnout.accounting import BudgetTerms, Ledger, Odometer, Remaining, RenyiFilter, remaining
from turnout.core import checks
from turnout.core.errors import (
    InputFileError,
    NumericalError,
    ParameterError,
    StorageError,
    TurnoutError,
    UnsupportedError,
)
from turnout.core.files import locked, replace_file
from turnout.estimation.private.answers import any_mechanism
from turnout.plans.questions import parse_query
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.sections import Count, OpenUnit, Positive, Section, key_of, optional_key
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    GaussianNoise,
    PureRandomizer,
    Relation,
    Scheme,
)
from turnout.schemes.scheme import RELATION, SHUFFLES, Shuffle, SubsampledShuffle
from turnout.schemes.settings import (
    COMPARISON_TOLERANCE,
    RELATION_SETTING,
    PrivacyTarget,
    setting_of,
)

if TYPE_CHECKING:
    from turnout.accounting.published.comparison import Method, Quote

_DIGITS = 4  # of swept values that are not whole
_MOST_POINTS = 1000
_FLAGS = {"first": "--from", "last": "--to"}
_CHECK_IN = "check-in"
_LEAST = {"windows": 1, "rounds": 1}
_WHOLE = ("window", "windows", "clients", "rounds")


class Sweep(Section):
    """A setting, and which parameter takes which values in it; of one of two families."""

    needed: ClassVar[tuple[str, ...]]
    """Parameters that are swept or given."""
    parameters: ClassVar[tuple[str, ...]]
    """All that may be swept or are shown as fixed."""
    kept: ClassVar[tuple[str, ...]]
    """The other parameters of the setting."""

    # Each family says what they may be.
    against: Any
    first: Any
    last: Any
    delta: Any
    relation: Any

    points: Count = Field(12, description="how many values, evenly spaced in their logarithm")
    clients: Count | None = optional_key(Shuffle, "clients")
    tolerance: OpenUnit = key_of(COMPARISON_TOLERANCE)
    listed: tuple[float, ...] = Field((), description="the values, where they are not spaced so")

    @property
    def key(self) -> str:
        """The name of the swept field."""
        return self.against.replace("-", "_")

    @property
    def whole(self) -> bool:
        """Whether what is swept is a whole number."""
        return self.key in _WHOLE

    def values(self) -> list[float]:
        """The values, rising, each once."""
        if self.listed:
            return sorted(set(self.listed))
        spaced = np.geomspace(self.first, self.last, self.points)
        if self.whole:
            return sorted({round(value) for value in spaced})
        inner = [float(f"{value:.{_DIGITS}g}") for value in spaced[1:-1]]
        return sorted({self.first, *inner, self.last})

    def fixed(self) -> dict[str, float]:
        """The parameters that stay as they are, unless they say who is compared."""
        said = {name: getattr(self, name) or _LEAST.get(name) for name in self.parameters}
        return {name: value for name, value in said.items() if name != self.key and value}

    def at(self, value: float) -> dict[str, Any]:
        """The setting with one value of what is swept."""
        kept = {name: getattr(self, name) for name in self.kept}
        return {**kept, **self.fixed(), self.key: value}


class CheckInSweep(Sweep):
    """Check-ins with Gaussian noise, and every other way to come."""

    needed: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window")
    parameters: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window", "windows")
    kept: ClassVar[tuple[str, ...]] = ("delta", "relation", "clients", "tolerance")

    against: Literal["noise-multiplier", "window", "windows"] = Field(description="what is swept")
    first: Positive = Field(description="first value of what is swept")
    last: Positive = Field(description="last value of what is swept")
    noise_multiplier: Positive | None = optional_key(GaussianNoise, "noise_multiplier")
    window: Count | None = optional_key(CheckIn, "window")
    windows: Count | None = optional_key(CheckIn, "windows")
    delta: OpenUnit = key_of(setting_of(PrivacyTarget, "delta"))
    relation: Relation = key_of(RELATION_SETTING)


class ShuffleSweep(Sweep):
    """Shuffled messages of an ε₀-LDP randomizer, by every bound."""

    needed: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "delta")
    parameters: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "rounds", "sampled", "delta")
    kept: ClassVar[tuple[str, ...]] = ("tolerance",)

    against: Literal["epsilon0", "clients", "rounds", "delta"] | None = Field(
        None, description="what is swept"
    )
    first: Positive | None = Field(None, description="first value of what is swept")
    last: Positive | None = Field(None, description="last value of what is swept")
    epsilon0: Positive | None = optional_key(PureRandomizer, "epsilon0")
    rounds: Count | None = optional_key(Shuffle, "rounds")
    sampled: Count | None = optional_key(SubsampledShuffle, "sampled")
    delta: OpenUnit | None = optional_key(PrivacyTarget, "delta")
    relation: Relation = key_of(replace(RELATION_SETTING, default=RELATION))

    @field_validator("relation")
    @classmethod
    def _shuffled_relation(cls, relation: Relation) -> Relation:
        if relation is not RELATION:
            raise ParameterError("value", relation.value, f"{RELATION.value}, or nothing")
        return relation

    @property
    def key(self) -> str:
        """The name of the swept field; a single point is a sweep over one δ."""
        return self.against or "delta"

    def values(self) -> list[float]:
        """The values, rising, each once."""
        if self.against is None:
            assert self.delta is not None
            return [self.delta]
        return super().values()


_FAMILIES: dict[str, type[Sweep]] = {_CHECK_IN: CheckInSweep, "shuffle": ShuffleSweep}


def sweep(flags: Mapping[str, object]) -> Sweep:
    """The sweep that command-line flags ask for.

    Args:
        flags: ``scheme`` ("check-in" if not given, or "shuffle") and, by name, the fields of
            `CheckInSweep` or `ShuffleSweep`; None where not given.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", _CHECK_IN)
    if scheme in SHUFFLES and scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, "shuffle, with --sampled for a sample of clients")
    if scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, f"one of {', '.join(map(repr, _FAMILIES))}")
    family = _FAMILIES[str(scheme)]
    _check_family(given, str(scheme))
    try:
        asked = family.model_validate(given)
    except ValidationError as error:
        raise refusal(error, family, _flag) from None
    if asked.against is None:
        _check_point(asked, given)
    else:
        _check_swept(asked, given)
    return asked


def _check_family(given: Mapping[str, object], scheme: str) -> None:
    """Refuses flags of the other family."""
    for other, family in _FAMILIES.items():
        for name in family.model_fields:
            if name in given and name not in _FAMILIES[scheme].model_fields:
                raise ParameterError(_flag(name), given[name], f"only with --scheme {other}")


def _check_point(asked: Sweep, given: Mapping[str, object]) -> None:
    """Refuses flags of a sweep where nothing is swept."""
    for name in ("first", "last", "points"):
        if name in given:
            raise ParameterError(_flag(name), given[name], "only with --against")
    _check_needed(asked)
    _check_sampled(asked, asked.clients)


def _check_swept(asked: Sweep, given: Mapping[str, object]) -> None:
    """The swept parameter has ends and no value besides; every other one has a value."""
    if asked.key in given:
        raise ParameterError(
            _flag(asked.key), given[asked.key], f"no value with --against {asked.against}"
        )
    for name in ("first", "last"):
        if getattr(asked, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value with --against {asked.against}")
    _check_needed(asked)
    _check_ends(asked)
    _check_sampled(asked, asked.first if asked.key == "clients" else asked.clients)


def _check_needed(asked: Sweep) -> None:
    swept, fields = asked.key if asked.against else None, type(asked).model_fields
    for name in asked.needed:
        if name != swept and getattr(asked, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value ({fields[name].description})")


def _check_ends(asked: Sweep) -> None:
    """Both ends fit what is swept, and lie in this order."""
    for name in ("first", "last"):
        value = getattr(asked, name)
        if asked.whole and value != int(value):
            raise ParameterError(_flag(name), value, f"a whole number, as is --{asked.against}")
        if asked.key == "delta":
            checks.open_unit(**{_flag(name): value})
    if not asked.first < asked.last:
        raise ParameterError("--to", asked.last, f"more than --from = {asked.first:g}")
    if not 2 <= asked.points <= _MOST_POINTS:
        raise ParameterError("--points", asked.points, f"from 2 to {_MOST_POINTS}")


def _check_sampled(asked: Sweep, least_clients: float | None) -> None:
    """No more are sampled than there are."""
    sampled = getattr(asked, "sampled", None)
    if sampled is not None and least_clients is not None and sampled > least_clients:
        expected = f"at most {least_clients:.0f}, the number of clients"
        raise ParameterError("--sampled", sampled, expected)


def _flag(key: str) -> str:
    """A field's name as a command-line flag."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))


@dataclass(frozen=True, slots=True)
class ComparisonCurve:
    """One method's quotes over the sweep; a text says why there is none."""

    method: Method[Any]
    quotes: Sequence[Quote | str]

    def blanks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """The methods without a number, with their reasons."""
        pairs = zip(values, self.quotes, strict=True)
        return [(value, quote) for value, quote in pairs if isinstance(quote, str)]

    @property
    def empty(self) -> bool:
        """Whether there is no number anywhere."""
        return all(isinstance(quote, str) for quote in self.quotes)


@dataclass(frozen=True, eq=False, repr=False)
class SweepComparison:
    """ε at every value of what is swept, a curve for each method."""

    asked: Sweep
    values: Sequence[float]
    curves: Sequence[ComparisonCurve]
    seconds: float

    def relation(self, method: Method[Any]) -> Relation:
        """The relation that a method's numbers are about."""
        return method.relation or self.asked.relation


def compared(
    asked: Sweep, watch: Callable[[int, int], None] = lambda done, of: None
) -> SweepComparison:
    """Every method at every value of a sweep.

    ``watch`` is told how many of how many points are done.
    """
    values, started = asked.values(), time.perf_counter()
    methods, settings = _family(asked, values)
    quotes: list[list[Quote | str]] = [[] for _ in methods]
    for done, setting in enumerate(settings):
        for index, method in enumerate(methods):
            watch(done * len(methods) + index, len(settings) * len(methods))
            quotes[index].append(_quoted(method, setting))
    curves = [ComparisonCurve(method, row) for method, row in zip(methods, quotes, strict=True)]
    return SweepComparison(asked, values, curves, time.perf_counter() - started)


def _family(asked: Sweep, values: Sequence[float]) -> tuple[Sequence[Method[Any]], list[Any]]:
    """The methods that are compared, and the settings of the sweep."""
    from turnout.accounting.published import comparison

    points = [asked.at(value) for value in values]
    if isinstance(asked, ShuffleSweep):
        return comparison.SHUFFLE_METHODS, [comparison.ShuffleSetting(**at) for at in points]
    return comparison.METHODS, [comparison.Setting(**at) for at in points]


def _quoted(method: Method[Any], setting: Any) -> Quote | str:
    """ε, or why there is none."""
    try:
        quote = method.quote(setting)
    except ParameterError as refusal:
        if refusal.name == "local_epsilon":  # what a theorem calls --epsilon0
            return f"ε₀ = {refusal.value:g}: expected {refusal.expected}"
        return str(refusal)
    except (UnsupportedError, NumericalError) as refusal:
        return str(refusal)
    return quote if math.isfinite(quote.epsilon) else "no finite ε follows from it"


_BOOKS = {"ledger": Ledger, "renyi-filter": RenyiFilter, "odometer": Odometer}
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Account:
    """A budget and what was charged to it; docs/design/ledger.md says which book holds when.

    Where ``epsilon`` is None nothing is refused.
    """

    book: Ledger | RenyiFilter | Odometer
    delta: float
    epsilon: float | None

    def __post_init__(self) -> None:
        checks.open_unit(delta=self.delta)
        if self.epsilon is not None:
            checks.positive(budget=self.epsilon)
        own = (self.delta, self.epsilon)
        if isinstance(self.book, RenyiFilter) and (self.book.delta, self.book.epsilon) != own:
            raise ParameterError("budget", own, "δ and ε of the filter itself")
        if isinstance(self.book, Odometer) and self.epsilon is not None:
            raise ParameterError("budget", self.epsilon, "none beside an odometer")

    @classmethod
    def of(
        cls,
        expected: Scheme,
        delta: float,
        epsilon: float | None,
        *,
        adaptive: bool,
        most_windows: int = 1000,
    ) -> Self:
        """An account to which nothing was charged.

        Args:
            expected: all that is likely to be run, or a part of it; whatever is run, the bounds
                hold. Its relation, unit and trust are the account's.
            delta: δ.
            epsilon: the budget, if there is one.
            adaptive: whether releases may decide on the next window.
            most_windows: of an adaptive run.

        Raises:
            ParameterError: so small an ε allows nothing at this δ.
            UnsupportedError: the window has no Rényi divergence (adaptive runs).
        """
        terms = BudgetTerms.of(expected)
        if not adaptive:
            return cls(Ledger(terms), delta, epsilon)
        if epsilon is None:
            return cls(Odometer.of(expected, 1, delta, most_windows=most_windows), delta, None)
        book = RenyiFilter.of(terms, epsilon, delta, expected=expected, most_windows=most_windows)
        return cls(book, delta, epsilon)

    @property
    def terms(self) -> BudgetTerms:
        """Relation, unit and trust of everything in the account."""
        return self.book.terms

    @property
    def spent(self) -> float:
        """Upper bound on ε of everything that was charged."""
        if isinstance(self.book, Ledger):
            return self.book.epsilon(self.delta)
        book = self.book.odometer if isinstance(self.book, RenyiFilter) else self.book
        return book.bound(self.delta)

    @property
    def entries(self) -> list[tuple[str, int]]:
        """Labels in the order of their charges, each with how often it was charged in a row."""
        if isinstance(self.book, Ledger):
            return [(phase.label, 1) for phase in self.book.phases]
        book = self.book.odometer if isinstance(self.book, RenyiFilter) else self.book
        return [(entry.label, entry.count) for entry in book.entries]

    def charged(self, scheme: Scheme, label: str, times: int = 1) -> Self:
        """The account after ``times`` repetitions of a scheme, all of which may then run.

        Raises:
            BudgetExceededError: they must not all run; the account stays as it is.
            ParameterError: relation, unit or trust are not the account's.
        UnsupportedError: a charge with a δ of its own, where releases decide.
        """
        checks.count(times=times)
        if not isinstance(self.book, Ledger) and isinstance(
            scheme.randomizer, ApproximateRandomizer
        ):
            raise UnsupportedError(
                "where releases decide, no analysis is known of a charge with a δ of its own; "
                "open the account with --decided plan"
            )
        if isinstance(self.book, Odometer):
            return replace(self, book=self.book.record(scheme, label, times))
        if isinstance(self.book, RenyiFilter):
            return replace(self, book=self.book.spend(scheme, label, times))
        after = self.book
        for _ in range(times):
            after = after.add(scheme, label=label)
        if self.epsilon is not None:
            after.require(self.epsilon, self.delta)
        return replace(self, book=after)

    def fits(self, scheme: Scheme) -> int | None:
        """Times that a scheme could be charged from here; None without a budget, or unknown."""
        if isinstance(self.book, RenyiFilter):
            return self.book.fits(scheme)
        if isinstance(self.book, Odometer) or self.epsilon is None:
            return None
        try:
            return self.book.fits(scheme, self.epsilon, self.delta)
        except UnsupportedError:  # not a sequence of equal windows
            return None

    def to_dict(self) -> dict[str, Any]:
        """The account as plain dictionaries, lists, numbers and words."""
        book = self.book.to_dict()
        return {"turnout budget": _VERSION, "delta": self.delta, "budget": self.epsilon, **book}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The account that `to_dict` gave."""
        if data["turnout budget"] != _VERSION:
            raise ParameterError("turnout budget", data["turnout budget"], f"format {_VERSION}")
        book = _BOOKS[data["kind"]].from_dict(dict(data))
        return cls(book, data["delta"], data["budget"])


def open_account(path: Path, flags: Mapping[str, object], *, adaptive: bool, most: int) -> Account:
    """A new account in a file that must not exist; the flags' ``epsilon`` is its budget.

    Raises:
        StorageError: the file exists or cannot be written.
    """
    question = parse_query(flags)
    target = question.target
    account = Account.of(
        question.scheme, target.delta, target.epsilon, adaptive=adaptive, most_windows=most
    )
    with locked(path):
        if path.exists():
            raise StorageError(f"{path} exists; an account is never begun anew")
        _write(path, account)
    return account


def charge(path: Path, flags: Mapping[str, object], label: str, times: int) -> Account:
    """The account in a file, after a window was charged to it ``times`` times.

    Guarantees:
        when this returns, the charge is on the disk; where it raises, nothing was charged.

    Raises:
        BudgetExceededError: the budget does not allow all of it.
    """
    with locked(path):
        account = read_account(path)
        scheme = _asked(account, flags)
        label = label or ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in flags.items()
            if value is not None
        )
        account = account.charged(scheme, label, times)
        _write(path, account)
    return account


def charge_answer(path: Path, answer: Path, label: str) -> Account:
    """The account in a file, after what an estimate's JSON says was charged to it.

    Guarantees:
        when this returns, the charge is on the disk; where it raises, nothing was charged.

    Raises:
        BudgetExceededError: the budget does not allow it.
        InputFileError: no answer of an estimate.
        ParameterError: its relation is not the account's.
    """
    scheme = _answered(answer)
    with locked(path):
        account = read_account(path).charged(scheme, label or answer.name)
        _write(path, account)
    return account


def fitting(account: Account, flags: Mapping[str, object]) -> int | None:
    """Times that a window, as flags describe it, could be charged to an account."""
    return account.fits(_asked(account, flags))


def left(flags: Mapping[str, object], done: int) -> tuple[Remaining, BudgetTerms]:
    """The state of a plan after ``done`` steps, and the terms that its bounds are about."""
    question = parse_query(flags)
    target = question.target
    if target.epsilon is None:
        raise ParameterError("--epsilon", MISSING, "a finite number above 0")
    found = remaining(question.scheme, done, target.epsilon, target.delta)
    return found, BudgetTerms.of(question.scheme)


def read_account(path: Path) -> Account:
    """The account in a file.

    Raises:
        StorageError: there is none, or it is damaged.
    """
    try:
        return Account.from_dict(json.loads(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, TurnoutError) as error:
        raise StorageError(f"{path}: no account of turnout budget, or damaged ({error})") from None


def _answered(answer: Path) -> Scheme:
    """The scheme that costs what an estimate's JSON says."""
    try:
        record = json.loads(answer.read_text("utf-8-sig"))
        return any_mechanism(record["epsilon"], record["delta"], record["relation"])
    except OSError as error:
        raise InputFileError(f"{answer}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        expected = "what turnout estimate --json prints"
        raise InputFileError(f"{answer}: expected {expected} ({error!r})") from None


def _asked(account: Account, flags: Mapping[str, object]) -> Scheme:
    """The window that flags describe, under the account's relation."""
    target = {"delta": account.delta, "relation": account.terms.relation.value}
    return parse_query({**flags, **target}).scheme


def _write(path: Path, account: Account) -> None:
    text = json.dumps(account.to_dict(), indent=1)
    replace_file(path, lambda file: file.write(text.encode()), "account", 0o666)
