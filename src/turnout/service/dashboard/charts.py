"""Charts as tables: the browser's script draws exactly what stands in their cells.

Notation of the band in which the number of devices at a step may stray
    n  population
    μ  devices expected at a step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.reporting.words import rounded_up
from turnout.service.web.views import CurvePoint, OperatorView, PublicView

LONGEST = 400
"""Rows of a table at most."""

_Row = TypeVar("_Row")

DEVIATIONS = 3.0
"""Half the width of a band, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Band:
    """The mean, and ``DEVIATIONS`` standard deviations to either side; never below 0."""

    mean: float
    low: float
    high: float

    def holds(self, count: int) -> bool:
        """Whether a count lies in the band, ends included."""
        return self.low <= count <= self.high


def band(expected: float, population: int) -> Band:
    """The band around an expectation; never narrower than the law's own.

    Clients come independently of each other, so the variance is Σp(1 − p), at most μ − μ²/n by
    Cauchy-Schwarz, with equality where all have the same chance. Laws in which some cannot come
    (sliding windows, availability) have a narrower band.

    >>> band(50.0, 100)
    Band(mean=50.0, low=35.0, high=65.0)
    """
    checks.count(population=population)
    checks.non_negative(expected=expected)
    share = expected / population
    if share > 1 + 1e-9:  # a sum of chances may round up
        raise ParameterError("expected", expected, f"at most the population, {population}")
    reach = DEVIATIONS * math.sqrt(expected * max(0.0, 1 - share))
    return Band(expected, max(0.0, expected - reach), expected + reach)


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """One column, and how it is drawn: a kind that dashboard.js knows."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a chart: its text, and the number that is drawn ("" where there is none)."""

    text: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart and the table behind it.

    Attributes:
        name: unique on its page; letters and hyphens.
        title, text: what is shown, and how to read it.
        percent: whether y is a share of 1.
        wide: whether it takes the page's full width.
    """

    name: str
    title: str
    text: str
    x: str
    y: str
    steps: int
    columns: tuple[ChartColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    percent: bool = False
    wide: bool = False


def epsilon_chart(view: PublicView) -> Chart:
    """ε over releases: spent, what the plan will spend, and the line that it must not cross."""
    planned = {0: 0.0} | dict(view.charged)
    spent = {step: epsilon for step, epsilon in planned.items() if step <= view.released}
    spent |= {point.steps: point.epsilon for point in view.curve}
    spent[view.released] = view.epsilon_spent
    at = thinned(sorted({*planned, *spent, 0, view.steps}))
    rows = (
        (
            _count(step),
            _epsilon(spent.get(step)),
            _epsilon(planned.get(step)),
            _epsilon(view.epsilon_target),
        )
        for step in at
    )
    columns = (
        ChartColumn("Models released", "x"),
        ChartColumn("ε spent", "spent"),
        ChartColumn("ε by the plan", "plan"),
        ChartColumn("ε allowed", "limit"),
    )
    return Chart(
        "chart-epsilon",
        "What privacy has cost",
        "The line climbs with each released model and may not cross the dotted one.",
        "models released",
        "ε",
        view.steps,
        columns,
        tuple(rows),
    )


def quality_charts(view: PublicView) -> tuple[Chart, Chart]:
    """Accuracy and loss of the published models."""
    points = thinned(view.curve)
    accuracy = Chart(
        "chart-accuracy",
        "How often the model is right",
        "On held-out data that is public; higher is better.",
        "models released",
        "accuracy",
        view.steps,
        (ChartColumn("Models released", "x"), ChartColumn("Accuracy", "line")),
        tuple((_count(p.steps), _share(p)) for p in points),
        percent=True,
    )
    loss = Chart(
        "chart-loss",
        "How wrong the model is",
        "Mean loss on the same data; lower is better.",
        "models released",
        "loss",
        view.steps,
        (ChartColumn("Models released", "x"), ChartColumn("Loss", "line")),
        tuple((_count(p.steps), _decimal(p.loss, 4)) for p in points),
    )
    return accuracy, loss


def check_in_chart(view: OperatorView) -> Chart:
    """Devices that came at each published step, in the band that the law lets expect."""
    shown = view.counts[-LONGEST:]
    left_out = len(view.counts) - len(shown)
    rows = []
    for count in shown:
        expected = band(count.expected, view.public.population)
        rows.append(
            (
                _count(count.step),
                _count(count.checked_in),
                _count(count.served),
                _decimal(expected.mean, 1),
                _decimal(expected.low, 1),
                _decimal(expected.high, 1),
            )
        )
    columns = (
        ChartColumn("Step", "x"),
        ChartColumn("Came", "dots"),
        ChartColumn("Updates used", "hidden"),
        ChartColumn("Expected", "middle"),
        ChartColumn("Band from", "edge"),
        ChartColumn("Band to", "edge"),
    )
    last = f" The last {LONGEST:,} steps; {left_out:,} earlier ones are left out." * (left_out > 0)
    return Chart(
        "chart-check-ins",
        "Check-ins a step, against expectation",
        "Points: devices that came. Band: expectation and three standard deviations to either "
        "side, if all of the plan's clients take part; by chance about one step in 370 lies "
        f"outside.{last}",
        "step, from 0",
        "devices",
        view.public.steps,
        columns,
        tuple(rows),
        wide=True,
    )


def thinned(rows: Sequence[_Row], at_most: int = LONGEST) -> list[_Row]:
    """Evenly chosen rows, first and last among them."""
    if len(rows) <= at_most:
        return list(rows)
    return [rows[i * (len(rows) - 1) // (at_most - 1)] for i in range(at_most)]


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", str(value))


def _epsilon(value: float | None) -> Cell:
    """ε, which is never shown below its value."""
    return Cell("–") if value is None else Cell(rounded_up(value), repr(value))


def _decimal(value: float | None, digits: int) -> Cell:
    return Cell("not a number") if value is None else Cell(f"{value:,.{digits}f}", repr(value))


def _share(point: CurvePoint) -> Cell:
    share = point.accuracy
    return Cell("not a number") if share is None else Cell(f"{share:.2%}", repr(share))
