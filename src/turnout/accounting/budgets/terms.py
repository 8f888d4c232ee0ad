"""The terms that all windows of a ledger share (relation, unit, trust), and its entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting.decomposition import decompose, is_per_client
from turnout.accounting.divergence.blocks import Run
from turnout.accounting.divergence.renyi import RenyiBounds
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import PrivacyUnit, Relation, Scheme, TrustModel
from turnout.schemes.normal_form import normal_form
from turnout.schemes.parameters import hold_members, parameters
from turnout.schemes.registry import is_registered


@dataclass(frozen=True, slots=True)
class Terms:
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
    def of(cls, scheme: Scheme) -> Terms:
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
    def from_dict(cls, data: dict[str, Any]) -> Terms:
        """The terms that `to_dict` wrote."""
        return cls(data["relation"], data["unit"], data["trust"])


def require_terms(terms: object) -> None:
    """Refuses anything but `Terms`: an account must say who is protected against what."""
    if not isinstance(terms, Terms):
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
