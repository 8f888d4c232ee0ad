"""Answers to questions about a scheme: without a plan, without training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnout.plans.questions import Question, parse_query, priced, solved

if TYPE_CHECKING:
    from turnout.accounting import Guarantee
    from turnout.accounting.calibration import Calibration
    from turnout.accounting.meaning.explanation import Explanation


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of accounting to a question, in which a calibrated value is filled in."""

    question: Question
    guarantee: Guarantee
    seconds: float
    calibration: Calibration | None = None
    explanation: Explanation | None = None


def answer(
    flags: Mapping[str, object], *, explained: bool = False, prior: float | None = None
) -> Answer:
    """The price of what flags describe; raises as `priced` and `explain` do."""
    from turnout.accounting.meaning.explanation import explain  # loading it is not what is timed

    question = parse_query(flags)
    started = time.perf_counter()
    guarantee = priced(question)
    seconds = time.perf_counter() - started
    explanation = explain(question.scheme, guarantee, prior) if explained else None
    return Answer(question, guarantee, seconds, explanation=explanation)


def solve(flags: Mapping[str, object], solve_for: str) -> Answer:
    """The value that a target allows, and its price; raises as `solved` does."""
    from turnout.accounting import price

    question = parse_query(flags, solve_for)
    started = time.perf_counter()
    question, found = solved(question, solve_for)
    target = question.target
    guarantee = found.guarantee or price(question.scheme, target.delta, target.tolerance)
    return Answer(question, guarantee, time.perf_counter() - started, found)
