"""Answers to questions about a scheme: as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout.reporting.footnotes import Footnotes
from turnout.reporting.guarantees import guarantee_record, guarantee_table
from turnout.reporting.scheme_words import law_words, randomizer_words
from turnout.schemes import Scheme

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting import Guarantee
    from turnout.accounting.calibration import Calibration
    from turnout.accounting.meaning.explanation import Explanation


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """A scheme and its guarantee.

    Attributes:
        seconds: how long the accounting took.
        randomizer: its name and parameters as the user put them; None: those of the scheme.
        calibration: the value that was solved for, which stands in its place in the scheme.
        target: the ε that it had to meet.
        explanation: what the guarantee means for one client, if that was asked for.
    """

    scheme: Scheme
    guarantee: Guarantee
    seconds: float
    randomizer: Mapping[str, Any] | None = None
    calibration: Calibration | None = None
    target: float | None = None
    explanation: Explanation | None = None


def answer_record(answer: Answer) -> dict[str, Any]:
    """The answer as JSON-ready values."""
    record: dict[str, Any] = {
        "randomizer": _randomizer(answer),
        **guarantee_record(answer.guarantee),
        **_footnotes(answer).record(),
        "scheme": law_words(answer.scheme),
        "seconds": answer.seconds,
    }
    if answer.calibration is not None:
        record = {**_calibration_record(answer.calibration), **record}
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_record

        record["explanation"] = explanation_record(answer.explanation)
    return record


def answer_table(answer: Answer) -> Table:
    """The answer as a table."""
    rows = {
        "scheme": _in_words(law_words(answer.scheme)),
        "randomizer": _in_words(_randomizer(answer)),
    }
    if (found := answer.calibration) is not None:
        name = found.unknown.name.replace("-", " ")
        rows[name] = _calibration_words(found, answer.target or 0.0)
    table = guarantee_table(answer.guarantee, "", rows)
    for name, value in _footnotes(answer).rows().items():
        table.add_row(name, value)
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_rows

        table.add_row()
        for name, value in explanation_rows(answer.explanation).items():
            table.add_row(name, value)
    return table


def _randomizer(answer: Answer) -> dict[str, Any]:
    return dict(answer.randomizer or randomizer_words(answer.scheme.randomizer))


def _footnotes(answer: Answer) -> Footnotes:
    return Footnotes.of(answer.scheme, answer.guarantee.delta)


def _in_words(part: dict[str, Any]) -> str:
    """A name and its parameters."""
    name, *fields = part.items()
    said = (f"{key.replace('_', ' ')} {_short(value)}" for key, value in fields)
    return f"{name[1]}: " + ", ".join(said)


def _short(value: object) -> str:
    """A value, without the zeros of a whole float."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _calibration_record(found: Calibration) -> dict[str, Any]:
    """The value that was found, as JSON-ready values."""
    refused = found.refused
    return {
        "solved_for": found.unknown.name,
        "value": _number(found, found.value),
        "next_refused": None if refused is None else _number(found, refused),
    }


def _calibration_words(found: Calibration, target: float) -> str:
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
