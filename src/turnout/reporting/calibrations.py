"""What a calibration found, in words and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.accounting.calibration import Calibration, Unknown


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to "which value"."""

    calibration: Calibration
    target: float

    @property
    def unknown(self) -> Unknown:
        """What was asked for."""
        return self.calibration.unknown

    @property
    def value(self) -> float:
        """The value, an int where it is whole."""
        return self._number(self.calibration.value)

    def record(self) -> dict[str, Any]:
        """As JSON-ready values."""
        refused = self.calibration.refused
        return {
            "solved_for": self.unknown.name,
            "value": self.value,
            "next_refused": None if refused is None else self._number(refused),
        }

    def words(self) -> str:
        """The value, and why it is no better."""
        extreme = "smallest" if self.unknown.falling else "largest"
        found, refused = self.calibration, self.calibration.refused
        value = self.unknown.said(found.value)
        if found.value == self.unknown.costly_limit:
            return f"{value}, the {extreme} there is to try, meets ε ≤ {self.target:g}"
        if refused is None:
            beyond = "smaller" if self.unknown.falling else "larger"
            return f"{value}, certified to meet ε ≤ {self.target:g} (something {beyond} may, too)"
        text = f"{value}, the {extreme} certified to meet ε ≤ {self.target:g}"
        apart = self.unknown.whole and abs(refused - found.value) > 1
        rest = "is not; nothing between was tried" if apart else "is not"
        return f"{text} ({self.unknown.said(refused)} {rest})"

    def _number(self, value: float) -> float:
        return int(value) if self.unknown.whole else value
