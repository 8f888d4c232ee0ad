"""Answers to questions about a scheme, printed and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from turnout import plans
from turnout.plans.answers import Answer
from turnout.reporting.footnotes import Footnotes
from turnout.reporting.guarantees import guarantee_record, guarantee_table
from turnout.spec import TrustModel

if TYPE_CHECKING:
    from turnout.accounting.calibration import Calibration


def answer_record(answer: Answer) -> dict[str, Any]:
    """The answer as JSON-ready values."""
    scheme, randomizer = _echo(answer.question)
    record: dict[str, Any] = {
        "randomizer": randomizer,
        **guarantee_record(answer.guarantee),
        **_footnotes(answer).record(),
        "scheme": scheme,
        "seconds": answer.seconds,
    }
    if answer.found is not None:
        record = {**_calibration_record(answer.found), **record}
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_record

        record["explanation"] = explanation_record(answer.explanation)
    return record


def show(answer: Answer, *, as_json: bool) -> None:
    """Prints an answer on stdout."""
    if as_json:
        print(json.dumps(answer_record(answer), indent=2, allow_nan=False))
        return
    from rich.console import Console

    scheme, randomizer = _echo(answer.question)
    rows = {"scheme": _in_words(scheme), "randomizer": _in_words(randomizer)}
    if (found := answer.found) is not None:
        target = answer.question.target.epsilon or 0.0
        rows[found.unknown.name.replace("-", " ")] = _calibration_words(found, target)
    table = guarantee_table(answer.guarantee, "", rows)
    for name, value in _footnotes(answer).rows().items():
        table.add_row(name, value)
    if answer.explanation is not None:
        from turnout.reporting.explanation import explanation_rows

        table.add_row()
        for name, value in explanation_rows(answer.explanation).items():
            table.add_row(name, value)
    Console().print(table)


def _footnotes(answer: Answer) -> Footnotes:
    return Footnotes.of(answer.question.scheme, answer.guarantee.delta)


def _in_words(part: dict[str, Any]) -> str:
    """A name and its parameters."""
    name, *fields = part.items()
    said = (f"{key.replace('_', ' ')} {_short(value)}" for key, value in fields)
    return f"{name[1]}: " + ", ".join(said)


def _short(value: object) -> str:
    """A value, without the zeros of a whole float."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _echo(question: plans.Question) -> tuple[dict[str, Any], dict[str, Any]]:
    """The question's law and randomizer under the user's own words."""
    names = {law: name for name, law in plans.SCHEMES.items()}
    fields = question.participation.model_dump(exclude_none=True)
    noise, shuffled = question.randomizer.model_dump(), question.scheme.trust is TrustModel.SHUFFLED
    law = {"name": names[fields.pop("law")], **fields}
    if question.scheme.order is not None:
        law["order"] = question.scheme.order.value
    if not shuffled:
        law["release"] = question.target.release.value
    return law, {"name": noise.pop("randomizer"), **noise}


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
