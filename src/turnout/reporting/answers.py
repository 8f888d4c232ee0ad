"""Answers to questions about a scheme: without a plan, without training."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout import plans
from turnout.reporting.calibrations import calibration_record, calibration_words
from turnout.reporting.explanation import Explanation, explain
from turnout.reporting.footnotes import Footnotes
from turnout.reporting.guarantees import guarantee_record, guarantee_table
from turnout.spec import TrustModel

if TYPE_CHECKING:
    from turnout.accounting import Guarantee
    from turnout.accounting.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Answer:
    """What accounting said."""

    scheme: dict[str, Any]
    randomizer: dict[str, Any]
    found: Calibration | None
    guarantee: Guarantee
    seconds: float
    footnotes: Footnotes
    explanation: Explanation | None = None
    target: float = 0.0
    """ε that what was calibrated had to meet."""

    def record(self) -> dict[str, Any]:
        """The answer as JSON-ready values."""
        record: dict[str, Any] = {
            "randomizer": self.randomizer,
            **guarantee_record(self.guarantee),
            **self.footnotes.record(),
            "scheme": self.scheme,
            "seconds": self.seconds,
        }
        if self.found is not None:
            record = {**calibration_record(self.found), **record}
        if self.explanation is not None:
            record["explanation"] = self.explanation.record()
        return record


def account(
    flags: Mapping[str, object], *, explained: bool = False, prior: float | None = None
) -> Answer:
    """What a randomizer is worth; raises as `turnout.plans.account` and `explain` do."""
    import turnout.accounting  # noqa: F401 (loading it is not what is timed)

    question = plans.ask(flags)
    started = time.perf_counter()
    guarantee = plans.account(question)
    seconds = time.perf_counter() - started
    explanation = explain(question.scheme, guarantee, prior) if explained else None
    return _answer(question, None, guarantee, seconds, explanation=explanation)


def calibrate(flags: Mapping[str, object], solve_for: str) -> Answer:
    """The value that a target allows; raises as `turnout.plans.calibrate` does."""
    from turnout.accounting import price

    question = plans.ask(flags, solve_for)
    target = question.promise.epsilon or 0.0
    started = time.perf_counter()
    question, calibration = plans.calibrate(question, solve_for)
    promise = question.promise
    guarantee = calibration.guarantee or price(question.scheme, promise.delta, promise.tolerance)
    seconds = time.perf_counter() - started
    return _answer(question, calibration, guarantee, seconds, target=target)


def show(answer: Answer, *, as_json: bool) -> None:
    """Prints an answer on stdout."""
    if as_json:
        print(json.dumps(answer.record(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    rows = {"scheme": _in_words(answer.scheme), "randomizer": _in_words(answer.randomizer)}
    if answer.found is not None:
        rows[answer.found.unknown.name.replace("-", " ")] = calibration_words(
            answer.found, answer.target
        )
    table = guarantee_table(answer.guarantee, "", rows)
    for name, value in answer.footnotes.rows().items():
        table.add_row(name, value)
    if answer.explanation is not None:
        table.add_row()
        for name, value in answer.explanation.rows().items():
            table.add_row(name, value)
    Console().print(table)


def _in_words(part: dict[str, Any]) -> str:
    """A name and its parameters."""
    name, *fields = part.items()
    said = (f"{key.replace('_', ' ')} {_short(value)}" for key, value in fields)
    return f"{name[1]}: " + ", ".join(said)


def _short(value: object) -> str:
    """A value, without the zeros of a whole float."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _answer(
    question: plans.Question,
    found: Calibration | None,
    guarantee: Guarantee,
    seconds: float,
    *,
    explanation: Explanation | None = None,
    target: float = 0.0,
) -> Answer:
    """The answer to a question, with what it says besides."""
    return Answer(
        *_echo(question),
        found,
        guarantee,
        seconds,
        Footnotes.of(question.scheme, guarantee.delta),
        explanation,
        target,
    )


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
