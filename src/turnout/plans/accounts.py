"""Privacy budgets in files.

`Account` is a privacy budget with a record of what was spent of it (its charges). `open_account`
writes a new account to a file; `charge` adds the charge of a window to the file, under a lock,
before the window runs; `fitting` returns the number of further windows that fit the budget, and
`left` the budget that remains after some steps of a run. The subcommands of `turnout budget` call
these functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from turnout.accounting import BudgetTerms, Ledger, Odometer, Remaining, RenyiFilter, remaining
from turnout.core import checks
from turnout.core.errors import (
    InputFileError,
    ParameterError,
    StorageError,
    TurnoutError,
    UnsupportedError,
)
from turnout.core.files import locked, replace_file
from turnout.estimation.private.answers import any_mechanism
from turnout.plans.questions import parse_query
from turnout.plans.refusals import MISSING
from turnout.schemes import (
    ApproximateRandomizer,
    Scheme,
)

if TYPE_CHECKING:
    pass

_BOOKS = {"ledger": Ledger, "renyi-filter": RenyiFilter, "odometer": Odometer}
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Account:
    """A privacy budget with its charges: the releases whose total ε and δ the budget must cover.

    Attributes:
        book: record of the charges: `Ledger`, `RenyiFilter` or `Odometer`. docs/design/ledger.md
            explains in which situation each of them is valid.
        delta: δ of the budget.
        epsilon: ε of the budget; None if there is no limit.

    Raises:
        ParameterError: the budget differs from the budget of the Rényi filter, or
            ``epsilon`` is given with an odometer.
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
                account has the relation, unit and trust of this scheme. Bounds hold for all
                charges, and are tightest for charges of this scheme.
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
        """Neighbouring relation, privacy unit and trust model that all charges have in common."""
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
        """Account after ``times`` charges of a scheme, one for each run of the scheme.

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
        """Number of further runs of a scheme that fit the budget; None if unlimited or unknown."""
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
            raise StorageError(f"{path} exists already; choose another file for the new account")
        _write(path, account)
    return account


def charge(path: Path, flags: Mapping[str, object], label: str, times: int) -> Account:
    """Charge a window ``times`` times to the account in a file, and return the account.

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
    """Charge the ε and δ of an estimate to the account in a file, and return the account.

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
    """Number of further windows that fit the budget of an account; None if unlimited or unknown."""
    return account.fits(_window_scheme(account, flags))


def left(flags: Mapping[str, object], done: int) -> tuple[Remaining, BudgetTerms]:
    """Budget that a run has left after ``done`` steps, and the relation, unit and trust of the run.

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
            f"{path} is not an account that turnout budget wrote, or is damaged ({error})"
        ) from None


def _answered(answer: Path) -> Scheme:
    """Scheme of one release with the ε, δ and relation in the JSON output of an estimate."""
    try:
        record = json.loads(answer.read_text("utf-8-sig"))
        return any_mechanism(record["epsilon"], record["delta"], record["relation"])
    except OSError as error:
        raise InputFileError(f"{answer}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        expected = "the output of turnout estimate --json"
        raise InputFileError(f"{answer}: expected {expected} ({error!r})") from None


def _window_scheme(account: Account, flags: Mapping[str, object]) -> Scheme:
    """Scheme of a window from the window's settings and from the account's relation and δ."""
    target = {"delta": account.delta, "relation": account.terms.relation.value}
    return parse_query({**flags, **target}).scheme


def _write(path: Path, account: Account) -> None:
    """Write an account to its file in one operation, so that no reader sees a part of it."""
    text = json.dumps(account.to_dict(), indent=1)
    replace_file(path, lambda file: file.write(text.encode()), "account", 0o666)
