"""The findings of a verification."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Outcome(Enum):
    """The verdict in a word; the value is the exit code of ``turnout ledger verify``."""

    GOOD = 0
    BAD = 1
    COST_NOT_RECOMPUTED = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not be, in one line; ``step`` is None for the charter and the head."""

    what: str
    step: int | None = None

    def __str__(self) -> str:
        return self.what if self.step is None else f"step {self.step}: {self.what}"


@dataclass(frozen=True, slots=True)
class Cost:
    """ε in the ledger after some steps, and bounds on the true one; ``upper`` may be left out."""

    steps: int
    claimed: float
    lower: float
    upper: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the ledger claims no less than what was surely spent."""
        return self.claimed >= self.lower

    @property
    def loose(self) -> bool:
        """Whether it claims more than can have been spent, which is allowed."""
        return self.upper is not None and self.claimed > self.upper


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that was found.

    Attributes:
        task: SHA-256 of the charter, hexadecimal; "" where there is no charter.
        head: ``steps:digest`` of the last record.
        epsilon, delta: what the ledger claims; None where it cannot be read.
        relation: whom it protects against what, in words.
        faults: in the order of the file.
        costs: rising in steps.
        not_recomputed: why there is no recomputed cost; "" where there is one.
        models: model files whose digests were compared; None where none were given.
    """

    task: str = ""
    steps: int = 0
    head: str = ""
    epsilon: float | None = None
    delta: float | None = None
    relation: str = ""
    faults: tuple[Fault, ...] = ()
    costs: tuple[Cost, ...] = ()
    method: str = ""
    not_recomputed: str = ""
    models: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Good, bad, or sound as far as it goes."""
        if self.faults:
            return Outcome.BAD
        return Outcome.COST_NOT_RECOMPUTED if self.not_recomputed else Outcome.GOOD

    def document(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        return {
            "verdict": self.outcome.name.lower().replace("_", "-"),
            "task": self.task,
            "steps": self.steps,
            "head": self.head,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
            "faults": [{"step": fault.step, "what": fault.what} for fault in self.faults],
            "costs": [asdict(cost) for cost in self.costs],
            "method": self.method,
            "not_recomputed": self.not_recomputed,
            "models": self.models,
            "remarks": list(self.remarks),
        }
