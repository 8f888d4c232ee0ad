"""A privacy budget in a file: charged before each window runs, and never by two at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from turnout.accounting import Ledger, Odometer, Remaining, RenyiFilter, Terms, remaining
from turnout.core import checks
from turnout.core.errors import ParameterError, StorageError, TurnoutError, UnsupportedError
from turnout.core.files import locked, replace_file
from turnout.plans.questions import parse_query
from turnout.plans.refusals import MISSING
from turnout.schemes import Scheme

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
        terms = Terms.of(expected)
        if not adaptive:
            return cls(Ledger(terms), delta, epsilon)
        if epsilon is None:
            return cls(Odometer.of(expected, 1, delta, most_windows=most_windows), delta, None)
        book = RenyiFilter.of(terms, epsilon, delta, expected=expected, most_windows=most_windows)
        return cls(book, delta, epsilon)

    @property
    def terms(self) -> Terms:
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
        """
        checks.count(times=times)
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


def fitting(account: Account, flags: Mapping[str, object]) -> int | None:
    """Times that a window, as flags describe it, could be charged to an account."""
    return account.fits(_asked(account, flags))


def left(flags: Mapping[str, object], done: int) -> tuple[Remaining, Terms]:
    """The state of a plan after ``done`` steps, and the terms that its bounds are about."""
    question = parse_query(flags)
    target = question.target
    if target.epsilon is None:
        raise ParameterError("--epsilon", MISSING, "a finite number above 0")
    found = remaining(question.scheme, done, target.epsilon, target.delta)
    return found, Terms.of(question.scheme)


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


def _asked(account: Account, flags: Mapping[str, object]) -> Scheme:
    """The window that flags describe, under the account's relation."""
    target = {"delta": account.delta, "relation": account.terms.relation.value}
    return parse_query({**flags, **target}).scheme


def _write(path: Path, account: Account) -> None:
    text = json.dumps(account.to_dict(), indent=1)
    replace_file(path, lambda file: file.write(text.encode()), "account", 0o666)
