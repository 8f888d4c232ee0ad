"""Answers to questions about a scheme: without a plan, without training."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout import plans
from turnout.reporting.calibrations import Found
from turnout.reporting.explanation import Explanation, explain
from turnout.reporting.guarantees import guarantee_record, guarantee_table

if TYPE_CHECKING:
    from turnout.accounting import Guarantee


@dataclass(frozen=True, slots=True)
class Answer:
    """What accounting said.

    Attributes:
        scheme: the question's law as the user put it.
        noise_multiplier: given or calibrated.
        found: what was calibrated, if anything was.
        guarantee: what that noise is worth.
        seconds: how long the answer took.
        explanation: what the guarantee means for a person, where that was asked.
    """

    scheme: dict[str, Any]
    noise_multiplier: float
    found: Found | None
    guarantee: Guarantee
    seconds: float
    explanation: Explanation | None = None

    def record(self) -> dict[str, Any]:
        """The answer as JSON-ready values."""
        record: dict[str, Any] = {
            "noise_multiplier": self.noise_multiplier,
            **guarantee_record(self.guarantee),
            "scheme": self.scheme,
            "seconds": self.seconds,
        }
        if self.found is not None:
            record = {**self.found.record(), **record}
        if self.explanation is not None:
            record["explanation"] = self.explanation.record()
        return record


def account(
    flags: Mapping[str, object], *, explained: bool = False, prior: float | None = None
) -> Answer:
    """What a noise multiplier is worth; raises as `turnout.plans.account` and `explain` do."""
    import turnout.accounting  # noqa: F401 (loading it is not what is timed)

    question = plans.ask(flags)
    started = time.perf_counter()
    guarantee = plans.account(question)
    seconds = time.perf_counter() - started
    noise_multiplier = question.promise.noise_multiplier or 0.0
    scheme = question.scheme_for(noise_multiplier)
    explanation = explain(scheme, guarantee, prior) if explained else None
    return Answer(_echo(question), noise_multiplier, None, guarantee, seconds, explanation)


def calibrate(flags: Mapping[str, object], solve_for: str) -> Answer:
    """The value that a target allows; raises as `turnout.plans.calibrate` does."""
    from turnout.accounting import price

    question = plans.ask(flags, solve_for)
    target = question.promise.epsilon or 0.0
    started = time.perf_counter()
    question, calibration = plans.calibrate(question, solve_for)
    promise = question.promise
    noise_multiplier = promise.noise_multiplier or 0.0
    guarantee = calibration.guarantee or price(
        question.scheme_for(noise_multiplier), promise.delta, promise.tolerance
    )
    seconds = time.perf_counter() - started
    found = Found(calibration, target)
    return Answer(_echo(question), noise_multiplier, found, guarantee, seconds)


def show(answer: Answer, *, as_json: bool) -> None:
    """Prints an answer on stdout."""
    if as_json:
        print(json.dumps(answer.record(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    name, *fields = answer.scheme.items()
    law = f"{name[1]}: " + ", ".join(f"{key} {value}" for key, value in fields)
    rows = {"scheme": law, "noise multiplier": f"{answer.noise_multiplier:.6g}"}
    if answer.found is not None:
        rows[answer.found.unknown.name.replace("-", " ")] = answer.found.words()
    table = guarantee_table(answer.guarantee, "", rows)
    if answer.explanation is not None:
        table.add_row()
        for name, value in answer.explanation.rows().items():
            table.add_row(name, value)
    Console().print(table)


def _echo(question: plans.Question) -> dict[str, Any]:
    """The question's law under the user's own words."""
    names = {law: name for name, law in plans.SCHEMES.items()}
    fields = question.participation.model_dump()
    law = {"name": names[fields.pop("law")], **fields}
    return {**law, "release": question.promise.release.value}
