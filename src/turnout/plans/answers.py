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
    """What accounting said of a question; what was ``found`` stands in its place in it."""

    question: Question
    guarantee: Guarantee
    seconds: float
    found: Calibration | None = None
    explanation: Explanation | None = None


def answer(
    flags: Mapping[str, object], *, explained: bool = False, prior: float | None = None
) -> Answer:
    """The price of what flags describe; raises as `priced` and `explain` do."""
    question = parse_query(flags)
    started = time.perf_counter()
    guarantee = priced(question)
    seconds = time.perf_counter() - started
    explanation = None
    if explained:
        from turnout.accounting.meaning.explanation import explain

        explanation = explain(question.scheme, guarantee, prior)
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
