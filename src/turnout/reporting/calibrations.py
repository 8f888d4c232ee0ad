"""What a calibration found, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.accounting.calibration import Calibration


def calibration_record(found: Calibration) -> dict[str, Any]:
    """The value that was found, as JSON-ready values."""
    refused = found.refused
    return {
        "solved_for": found.unknown.name,
        "value": _number(found, found.value),
        "next_refused": None if refused is None else _number(found, refused),
    }


def calibration_words(found: Calibration, target: float) -> str:
    """The value that meets a target ε, and why it is no better."""
    unknown, refused = found.unknown, found.refused
    extreme = "smallest" if unknown.falling else "largest"
    value = unknown.said(found.value)
    if found.value == unknown.costly_limit:
        return f"{value}, the {extreme} there is to try, meets ε ≤ {target:g}"
    if refused is None:
        beyond = "smaller" if unknown.falling else "larger"
        return f"{value}, certified to meet ε ≤ {target:g} (something {beyond} may, too)"
    text = f"{value}, the {extreme} certified to meet ε ≤ {target:g}"
    apart = unknown.whole and abs(refused - found.value) > 1
    rest = "is not; nothing between was tried" if apart else "is not"
    return f"{text} ({unknown.said(refused)} {rest})"


def _number(found: Calibration, value: float) -> float:
    """The value, an int where it is whole."""
    return int(value) if found.unknown.whole else value
