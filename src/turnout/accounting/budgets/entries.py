"""Entries that charge an account, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.accounting.divergence.renyi import RenyiBounds
from turnout.core import checks
from turnout.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Entry:
    """The same charge ``count`` times in a row.

    Attributes:
        charge: of one window.
        count: how many.
        label: what a person calls them.
    """

    charge: RenyiBounds
    count: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        checks.count(count=self.count)

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries, lists, numbers and words."""
        return {"charge": self.charge.to_dict(), "count": self.count, "label": self.label}


Entries = tuple[Entry, ...]


def with_entry(entries: Entries, charge: RenyiBounds, label: str) -> Entries:
    """The entries and one more charge, counted with the last one if that is the same."""
    if entries and (entries[-1].charge, entries[-1].label) == (charge, label):
        return (*entries[:-1], replace(entries[-1], count=entries[-1].count + 1))
    return (*entries, Entry(charge, 1, label))


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
