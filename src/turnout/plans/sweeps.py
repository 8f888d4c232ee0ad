"""Comparisons of methods over a swept parameter, and privacy budgets in files.

`sweep` builds the question of `turnout compare` from its options; `compared` computes ε by every
method at every value of the swept parameter. `Account` is a privacy budget in a file; `charge` adds
a charge to it before a window runs, under a lock on the file.
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

_DIGITS = 4  # significant digits of swept values that are not whole numbers
_MOST_POINTS = 1000
_FLAGS = {"first": "--from", "last": "--to"}
_CHECK_IN = "check-in"
_LEAST = {"windows": 1, "rounds": 1}
_WHOLE = ("window", "windows", "clients", "rounds")


class Sweep(Section):
    """Question of a comparison: a swept parameter with its values, and all other parameters.

    Attributes:
        against: name of the swept parameter.
        first: first value of the swept parameter.
        last: last value of the swept parameter.
        delta: δ of (ε, δ).
        relation: neighbouring relation.
    """

    needed: ClassVar[tuple[str, ...]]
    """Parameters without a default, which must be given unless they are swept."""
    parameters: ClassVar[tuple[str, ...]]
    """Parameters that may be swept; the others of them are shown as fixed."""
    kept: ClassVar[tuple[str, ...]]
    """Parameters of the setting that cannot be swept."""

    # The types of these fields differ between the two subclasses.
    against: Any
    first: Any
    last: Any
    delta: Any
    relation: Any

    points: Count = Field(12, description="number of values, evenly spaced in their logarithm")
    clients: Count | None = optional_key(Shuffle, "clients")
    tolerance: OpenUnit = key_of(COMPARISON_TOLERANCE)
    listed: tuple[float, ...] = Field(
        (), description="the values, where they are not evenly spaced"
    )

    @property
    def key(self) -> str:
        """Name of the field that is swept."""
        return self.against.replace("-", "_")

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return self.key in _WHOLE

    def values(self) -> list[float]:
        """Values of the swept parameter in increasing order, without repetition."""
        if self.listed:
            return sorted(set(self.listed))
        spaced = np.geomspace(self.first, self.last, self.points)
        if self.whole:
            return sorted({round(value) for value in spaced})
        inner = [float(f"{value:.{_DIGITS}g}") for value in spaced[1:-1]]
        return sorted({self.first, *inner, self.last})

    def fixed(self) -> dict[str, float]:
        """Values of the parameters that are not swept."""
        values = {name: getattr(self, name) or _LEAST.get(name) for name in self.parameters}
        return {name: value for name, value in values.items() if name != self.key and value}

    def at(self, value: float) -> dict[str, Any]:
        """Values of all parameters, by name, at one value of the swept parameter."""
        kept = {name: getattr(self, name) for name in self.kept}
        return {**kept, **self.fixed(), self.key: value}


class CheckInSweep(Sweep):
    """Comparison of random check-ins with other participations, all with Gaussian noise."""

    needed: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window")
    parameters: ClassVar[tuple[str, ...]] = ("noise_multiplier", "window", "windows")
    kept: ClassVar[tuple[str, ...]] = ("delta", "relation", "clients", "tolerance")

    against: Literal["noise-multiplier", "window", "windows"] = Field(
        description="the swept parameter"
    )
    first: Positive = Field(description="first value of the swept parameter")
    last: Positive = Field(description="last value of the swept parameter")
    noise_multiplier: Positive | None = optional_key(GaussianNoise, "noise_multiplier")
    window: Count | None = optional_key(CheckIn, "window")
    windows: Count | None = optional_key(CheckIn, "windows")
    delta: OpenUnit = key_of(setting_of(PrivacyTarget, "delta"))
    relation: Relation = key_of(RELATION_SETTING)


class ShuffleSweep(Sweep):
    """Comparison of all bounds for shuffled messages of an ε₀-LDP randomizer."""

    needed: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "delta")
    parameters: ClassVar[tuple[str, ...]] = ("epsilon0", "clients", "rounds", "sampled", "delta")
    kept: ClassVar[tuple[str, ...]] = ("tolerance",)

    against: Literal["epsilon0", "clients", "rounds", "delta"] | None = Field(
        None, description="the swept parameter"
    )
    first: Positive | None = Field(None, description="first value of the swept parameter")
    last: Positive | None = Field(None, description="last value of the swept parameter")
    epsilon0: Positive | None = optional_key(PureRandomizer, "epsilon0")
    rounds: Count | None = optional_key(Shuffle, "rounds")
    sampled: Count | None = optional_key(SubsampledShuffle, "sampled")
    delta: OpenUnit | None = optional_key(PrivacyTarget, "delta")
    relation: Relation = key_of(replace(RELATION_SETTING, default=RELATION))

    @field_validator("relation")
    @classmethod
    def _shuffled_relation(cls, relation: Relation) -> Relation:
        """The relation, after a check that it is the relation of shuffled messages."""
        if relation is not RELATION:
            raise ParameterError("value", relation.value, f"{RELATION.value}, the relation here")
        return relation

    @property
    def key(self) -> str:
        """Name of the swept parameter; "delta", with its one value, if no parameter is swept."""
        return self.against or "delta"

    def values(self) -> list[float]:
        """Values of the swept parameter in increasing order, without repetition."""
        if self.against is None:
            assert self.delta is not None
            return [self.delta]
        return super().values()


_FAMILIES: dict[str, type[Sweep]] = {_CHECK_IN: CheckInSweep, "shuffle": ShuffleSweep}


def sweep(flags: Mapping[str, object]) -> Sweep:
    """Sweep that the options of `turnout compare` describe.

    Args:
        flags: values by name: ``scheme`` ("check-in" by default, or "shuffle") and the fields of
            `CheckInSweep` or `ShuffleSweep`; None if not given.

    Raises:
        ParameterError: a wrong option; the error has the option, its value and the values that are
            allowed.
    """
    # Choose the class of the comparison, and check that no option belongs only to the other class.
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", _CHECK_IN)
    if scheme in SHUFFLES and scheme not in _FAMILIES:
        expected = "shuffle (use --sampled if a sample of the clients sends messages)"
        raise ParameterError("--scheme", scheme, expected)
    if scheme not in _FAMILIES:
        raise ParameterError("--scheme", scheme, f"one of {', '.join(map(repr, _FAMILIES))}")
    family = _FAMILIES[str(scheme)]
    _check_family(given, str(scheme))
    # Check each value by itself, then the values together.
    try:
        question = family.model_validate(given)
    except ValidationError as error:
        raise refusal(error, family, _flag) from None
    if question.against is None:
        _check_point(question, given)
    else:
        _check_swept(question, given)
    return question


def _check_family(given: Mapping[str, object], scheme: str) -> None:
    """Raise an error for an option of the comparison that ``--scheme`` does not select."""
    for other, family in _FAMILIES.items():
        for name in family.model_fields:
            if name in given and name not in _FAMILIES[scheme].model_fields:
                raise ParameterError(_flag(name), given[name], f"only with --scheme {other}")


def _check_point(question: Sweep, given: Mapping[str, object]) -> None:
    """Raise an error for options of a sweep if no parameter is swept."""
    for name in ("first", "last", "points"):
        if name in given:
            raise ParameterError(_flag(name), given[name], "only with --against")
    _check_needed(question)
    _check_sampled(question, question.clients)


def _check_swept(question: Sweep, given: Mapping[str, object]) -> None:
    """Raise an error for a value of the swept parameter, or for a missing end or parameter."""
    if question.key in given:
        raise ParameterError(
            _flag(question.key), given[question.key], f"no value with --against {question.against}"
        )
    for name in ("first", "last"):
        if getattr(question, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value with --against {question.against}")
    _check_needed(question)
    _check_ends(question)
    _check_sampled(question, question.first if question.key == "clients" else question.clients)


def _check_needed(question: Sweep) -> None:
    """Raise an error if a parameter without a default has no value."""
    swept, fields = question.key if question.against else None, type(question).model_fields
    for name in question.needed:
        if name != swept and getattr(question, name) is None:
            raise ParameterError(_flag(name), MISSING, f"a value ({fields[name].description})")


def _check_ends(question: Sweep) -> None:
    """Raise an error for ends outside the parameter's domain or in the wrong order."""
    for name in ("first", "last"):
        value = getattr(question, name)
        if question.whole and value != int(value):
            raise ParameterError(
                _flag(name), value, f"a whole number with --against {question.against}"
            )
        if question.key == "delta":
            checks.open_unit(**{_flag(name): value})
    if not question.first < question.last:
        raise ParameterError("--to", question.last, f"more than --from = {question.first:g}")
    if not 2 <= question.points <= _MOST_POINTS:
        raise ParameterError("--points", question.points, f"from 2 to {_MOST_POINTS}")


def _check_sampled(question: Sweep, least_clients: float | None) -> None:
    """Raise an error for a sample that is larger than the number of clients."""
    sampled = getattr(question, "sampled", None)
    if sampled is not None and least_clients is not None and sampled > least_clients:
        expected = f"at most {least_clients:.0f}, the number of clients"
        raise ParameterError("--sampled", sampled, expected)


def _flag(key: str) -> str:
    """Command-line option of a field."""
    return _FLAGS.get(key, "--" + key.replace("_", "-"))


@dataclass(frozen=True, slots=True)
class ComparisonCurve:
    """Bounds of one method at all values of the sweep; a text is the reason for a missing bound."""

    method: Method[Any]
    quotes: Sequence[Quote | str]

    def blanks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """Values at which the method has no bound, each with the reason."""
        pairs = zip(values, self.quotes, strict=True)
        return [(value, quote) for value, quote in pairs if isinstance(quote, str)]

    @property
    def empty(self) -> bool:
        """Whether the method has no bound at any value."""
        return all(isinstance(quote, str) for quote in self.quotes)


@dataclass(frozen=True, eq=False, repr=False)
class SweepComparison:
    """Bounds on ε at every value of the swept parameter, with a curve for each method."""

    sweep: Sweep
    values: Sequence[float]
    curves: Sequence[ComparisonCurve]
    seconds: float

    def relation(self, method: Method[Any]) -> Relation:
        """Neighbouring relation of a method's bounds."""
        return method.relation or self.sweep.relation


def compared(
    question: Sweep, watch: Callable[[int, int], None] = lambda done, of: None
) -> SweepComparison:
    """Bounds of every method at every value of a sweep.

    Args:
        question: swept parameter, its values and the other parameters.
        watch: function that is called with the numbers of bounds computed so far and in all.
    """
    values, started = question.values(), time.perf_counter()
    methods, settings = _family(question, values)
    quotes: list[list[Quote | str]] = [[] for _ in methods]
    for done, setting in enumerate(settings):
        for index, method in enumerate(methods):
            watch(done * len(methods) + index, len(settings) * len(methods))
            quotes[index].append(_quoted(method, setting))
    curves = [ComparisonCurve(method, row) for method, row in zip(methods, quotes, strict=True)]
    return SweepComparison(question, values, curves, time.perf_counter() - started)


def _family(question: Sweep, values: Sequence[float]) -> tuple[Sequence[Method[Any]], list[Any]]:
    """Methods that are compared, and a setting for each value of the sweep."""
    from turnout.accounting.published import comparison

    points = [question.at(value) for value in values]
    if isinstance(question, ShuffleSweep):
        return comparison.SHUFFLE_METHODS, [comparison.ShuffleSetting(**at) for at in points]
    return comparison.METHODS, [comparison.Setting(**at) for at in points]


def _quoted(method: Method[Any], setting: Any) -> Quote | str:
    """Bound on ε of a method, or the reason why there is none."""
    try:
        quote = method.quote(setting)
    except ParameterError as refusal:
        if refusal.name == "local_epsilon":  # a theorem's name of the option --epsilon0
            return f"ε₀ = {refusal.value:g}: expected {refusal.expected}"
        return str(refusal)
    except (UnsupportedError, NumericalError) as refusal:
        return str(refusal)
    return quote if math.isfinite(quote.epsilon) else "the method has no finite ε here"


_BOOKS = {"ledger": Ledger, "renyi-filter": RenyiFilter, "odometer": Odometer}
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Account:
    """A privacy budget and the charges to it.

    Attributes:
        book: record of the charges: `Ledger`, `RenyiFilter` or `Odometer`. docs/design/ledger.md
            explains in which situation each of them is valid.
        delta: δ of the budget.
        epsilon: ε of the budget; None if there is no limit.

    Raises:
        ParameterError: the budget differs from that of the filter, or an odometer has a budget.
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
            expected = f"{(self.book.delta, self.book.epsilon)}, δ and ε of the Rényi filter"
            raise ParameterError("budget", own, expected)
        if isinstance(self.book, Odometer) and self.epsilon is not None:
            expected = "no value, since an odometer has no limit"
            raise ParameterError("budget", self.epsilon, expected)

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
        """New account without charges.

        Args:
            expected: scheme that will probably run, or a part of it, such as one window. The
                account has its relation, unit and trust. Bounds hold for all charges, and are
                sharpest for charges of this scheme.
            delta: δ of the budget, strictly between 0 and 1.
            epsilon: ε of the budget, above 0; None for no limit.
            adaptive: whether the choice of the next window may depend on earlier releases.
            most_windows: largest number of windows of an adaptive run.

        Raises:
            ParameterError: the budget is too small for any charge at this δ.
            UnsupportedError: the run is adaptive, and no Rényi divergence of a window is known.
        """
        # A ledger for fixed plans; for adaptive runs an odometer, or with a limit a Rényi filter.
        terms = BudgetTerms.of(expected)
        if not adaptive:
            return cls(Ledger(terms), delta, epsilon)
        if epsilon is None:
            return cls(Odometer.of(expected, 1, delta, most_windows=most_windows), delta, None)
        book = RenyiFilter.of(terms, epsilon, delta, expected=expected, most_windows=most_windows)
        return cls(book, delta, epsilon)

    @property
    def terms(self) -> BudgetTerms:
        """Relation, unit and trust of all charges."""
        return self.book.terms

    @property
    def spent(self) -> float:
        """Upper bound on the ε of all charges together."""
        if isinstance(self.book, Ledger):
            return self.book.epsilon(self.delta)
        book = self.book.odometer if isinstance(self.book, RenyiFilter) else self.book
        return book.bound(self.delta)

    @property
    def entries(self) -> list[tuple[str, int]]:
        """Labels of the charges in order, each with the number of consecutive equal charges."""
        if isinstance(self.book, Ledger):
            return [(phase.label, 1) for phase in self.book.phases]
        book = self.book.odometer if isinstance(self.book, RenyiFilter) else self.book
        return [(entry.label, entry.count) for entry in book.entries]

    def charged(self, scheme: Scheme, label: str, times: int = 1) -> Self:
        """Account after a number of charges of a scheme, for as many runs of the scheme.

        Args:
            scheme: scheme of one charge.
            label: name of the charges in the account.
            times: number of charges, at least 1.

        Raises:
            BudgetExceededError: the budget does not allow all the charges; none is made.
            ParameterError: relation, unit or trust differ from those of the account.
            UnsupportedError: an (ε₀, δ₀)-DP randomizer in an adaptive run.
        """
        # For adaptive runs no bound is known for randomizers with a δ₀.
        checks.count(times=times)
        if not isinstance(self.book, Ledger) and isinstance(
            scheme.randomizer, ApproximateRandomizer
        ):
            raise UnsupportedError(
                "no analysis is known for a randomizer with a δ₀ in an adaptive run; open the "
                "account with --decided plan"
            )
        # Odometer and filter record the charges themselves; for a ledger, check the budget here.
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
        """Number of further charges of a scheme within the budget; None if unlimited or unknown."""
        if isinstance(self.book, RenyiFilter):
            return self.book.fits(scheme)
        if isinstance(self.book, Odometer) or self.epsilon is None:
            return None
        try:
            return self.book.fits(scheme, self.epsilon, self.delta)
        except UnsupportedError:  # the ledger's charges are not equal windows
            return None

    def to_dict(self) -> dict[str, Any]:
        """Account as nested dictionaries and lists of numbers and texts."""
        book = self.book.to_dict()
        return {"turnout budget": _VERSION, "delta": self.delta, "budget": self.epsilon, **book}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Account built from a dictionary that `to_dict` returned.

        Raises:
            ParameterError: an unknown version of the format.
        """
        if data["turnout budget"] != _VERSION:
            raise ParameterError("turnout budget", data["turnout budget"], f"version {_VERSION}")
        book = _BOOKS[data["kind"]].from_dict(dict(data))
        return cls(book, data["delta"], data["budget"])


def open_account(path: Path, flags: Mapping[str, object], *, adaptive: bool, most: int) -> Account:
    """New account, written to a file that must not exist yet.

    Args:
        path: file of the account.
        flags: settings of a scheme that will probably run, as in `parse_query`; ``epsilon`` and
            ``delta`` are the budget.
        adaptive: whether the choice of the next window may depend on earlier releases.
        most: largest number of windows of an adaptive run.

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
            raise StorageError(f"{path} exists and would be overwritten; choose another file")
        _write(path, account)
    return account


def charge(path: Path, flags: Mapping[str, object], label: str, times: int) -> Account:
    """Account in a file after ``times`` charges of a window.

    Guarantees:
        When the function returns, the charges are on the disk; if it raises, none was made.

    Args:
        path: file of the account.
        flags: settings of the window, as in `parse_query`.
        label: name of the charges; if empty, the settings.
        times: number of charges, at least 1.

    Raises:
        BudgetExceededError: the budget does not allow all the charges.
        StorageError: the file cannot be read or written, or is damaged.
    """
    with locked(path):
        account = read_account(path)
        scheme = _window_scheme(account, flags)
        label = label or ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in flags.items()
            if value is not None
        )
        account = account.charged(scheme, label, times)
        _write(path, account)
    return account


def charge_answer(path: Path, answer: Path, label: str) -> Account:
    """Account in a file after a charge of the ε and δ of an estimate.

    Guarantees:
        When the function returns, the charge is on the disk; if it raises, none was made.

    Args:
        path: file of the account.
        answer: file with the output of ``turnout estimate --json``.
        label: name of the charge; if empty, the name of ``answer``.

    Raises:
        BudgetExceededError: the budget does not allow the charge.
        InputFileError: ``answer`` is not the JSON of an estimate.
        ParameterError: the relation of the estimate differs from that of the account.
    """
    scheme = _answered(answer)
    with locked(path):
        account = read_account(path).charged(scheme, label or answer.name)
        _write(path, account)
    return account


def fitting(account: Account, flags: Mapping[str, object]) -> int | None:
    """Number of further charges of a window that fit the budget; None if unlimited or unknown."""
    return account.fits(_window_scheme(account, flags))


def left(flags: Mapping[str, object], done: int) -> tuple[Remaining, BudgetTerms]:
    """Budget that a scheme has left after ``done`` steps, and its relation, unit and trust.

    Raises:
        ParameterError: a setting is missing, such as ``epsilon``, or outside its domain.
    """
    question = parse_query(flags)
    target = question.target
    if target.epsilon is None:
        raise ParameterError("--epsilon", MISSING, "a finite number above 0")
    found = remaining(question.scheme, done, target.epsilon, target.delta)
    return found, BudgetTerms.of(question.scheme)


def read_account(path: Path) -> Account:
    """Account that a file contains.

    Raises:
        StorageError: the file cannot be read, or does not contain an account.
    """
    try:
        return Account.from_dict(json.loads(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, TurnoutError) as error:
        raise StorageError(
            f"{path} is not an account of turnout budget, or is damaged ({error})"
        ) from None


def _answered(answer: Path) -> Scheme:
    """Scheme of a mechanism with the ε and δ in the JSON of an estimate."""
    try:
        record = json.loads(answer.read_text("utf-8-sig"))
        return any_mechanism(record["epsilon"], record["delta"], record["relation"])
    except OSError as error:
        raise InputFileError(f"{answer}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        expected = "the output of turnout estimate --json"
        raise InputFileError(f"{answer}: expected {expected} ({error!r})") from None


def _window_scheme(account: Account, flags: Mapping[str, object]) -> Scheme:
    """Scheme of a window from its settings, with the relation and δ of the account."""
    target = {"delta": account.delta, "relation": account.terms.relation.value}
    return parse_query({**flags, **target}).scheme


def _write(path: Path, account: Account) -> None:
    """Write an account to its file in one operation, so that no reader sees a part of it."""
    text = json.dumps(account.to_dict(), indent=1)
    replace_file(path, lambda file: file.write(text.encode()), "account", 0o666)
