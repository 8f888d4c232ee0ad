"""Answers to questions about a scheme, printed and as JSON."""

from __future__ import annotations

import json
from typing import Any

from turnout import plans
from turnout.plans.answers import Answer
from turnout.reporting.calibrations import calibration_record, calibration_words
from turnout.reporting.explanation import explanation_record, explanation_rows
from turnout.reporting.footnotes import Footnotes
from turnout.reporting.guarantees import guarantee_record, guarantee_table
from turnout.spec import TrustModel


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
        record = {**calibration_record(answer.found), **record}
    if answer.explanation is not None:
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
        target = answer.question.promise.epsilon or 0.0
        rows[found.unknown.name.replace("-", " ")] = calibration_words(found, target)
    table = guarantee_table(answer.guarantee, "", rows)
    for name, value in _footnotes(answer).rows().items():
        table.add_row(name, value)
    if answer.explanation is not None:
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
        law["release"] = question.promise.release.value
    return law, {"name": noise.pop("randomizer"), **noise}
