"""Charts of the dashboard, as tables of numbers that a script in the browser draws.

`epsilon_chart`, `quality_charts` and `check_in_chart` make a `Chart` from a view; `pages` renders
the charts. `band` is the range in which the number of check-ins of a step lies with high
probability.

Notation
    n  population
    μ  expected number of check-ins of a step
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from turnout.service.web.views import CurvePoint, OperatorView, PublicView

LONGEST = 400
"""Largest number of rows of a table."""

_Row = TypeVar("_Row")

DEVIATIONS = 3.0
"""Half the width of a band, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Band:
    """A range of counts: the mean ± ``DEVIATIONS`` standard deviations, at least 0."""

    mean: float
    low: float
    high: float

    def holds(self, count: int) -> bool:
        """Whether a count lies in the band, ends included."""
        return self.low <= count <= self.high


def band(expected: float, population: int) -> Band:
    """Band around the expected number of check-ins of a step, at least as wide as the exact band.

    Clients participate independently, with probability p each, so the variance of the number is
    Σp(1 − p). The band uses the upper bound μ − μ²/n (Cauchy-Schwarz), which is exact if all
    clients have the same p. A band with the exact variance would be narrower if some clients cannot
    participate (sliding windows, availability).

    Args:
        expected: expected number of check-ins μ.
        population: number of clients n.

    Raises:
        ParameterError: the expected count is below 0 or above the population.

    >>> band(50.0, 100)
    Band(mean=50.0, low=35.0, high=65.0)
    """
    checks.count(population=population)
    checks.non_negative(expected=expected)
    share = expected / population
    if share > 1 + 1e-9:  # a sum of probabilities may round up
        raise ParameterError("expected", expected, f"at most the population, {population}")
    reach = DEVIATIONS * math.sqrt(expected * max(0.0, 1 - share))
    return Band(expected, max(0.0, expected - reach), expected + reach)


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """A column of a chart's table; ``kind`` is a series style of dashboard.js."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a chart's table: its text, and the number to draw ("" for none)."""

    text: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and its table.

    Attributes:
        name: identifier of letters and hyphens, unique on the page.
        title: what the chart shows.
        text: how to read the chart.
        x: name of the x-axis.
        y: name of the y-axis.
        steps: right end of the x-axis.
        columns: columns of the table.
        rows: cells of the table.
        percent: whether y is a fraction, shown in percent.
        wide: whether the chart uses the page's full width.
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
    """Chart of the spent ε, the planned ε and the limit, by number of released models."""
    # ε after each number of steps: planned by the charter, and spent up to the newest release.
    planned = {0: 0.0} | dict(view.charged)
    spent = {step: epsilon for step, epsilon in planned.items() if step <= view.released}
    spent |= {point.steps: point.epsilon for point in view.curve}
    spent[view.released] = view.epsilon_spent
    at = thinned(sorted({*planned, *spent, 0, view.steps}))
    # One row for each number of models; a value that is unknown there stays empty.
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
        "Privacy spent by released models",
        "The line rises with each released model and never crosses the dotted one.",
        "models released",
        "ε",
        view.steps,
        columns,
        tuple(rows),
    )


def quality_charts(view: PublicView) -> tuple[Chart, Chart]:
    """Charts of the published models' accuracy and loss."""
    # Both charts have the same points, the evaluated models; NaN is shown as text.
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
    """Chart of the check-ins in each published step, with the expected number and its `band`."""
    # The newest steps, with the band around each step's expectation.
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
    # The table has one column more than the chart draws: the updates that were used.
    columns = (
        ChartColumn("Step", "x"),
        ChartColumn("Check-ins", "dots"),
        ChartColumn("Updates used", "hidden"),
        ChartColumn("Expected", "middle"),
        ChartColumn("Band from", "edge"),
        ChartColumn("Band to", "edge"),
    )
    # The text states how many earlier steps the chart leaves out.
    last = f" The last {LONGEST:,} steps; {left_out:,} earlier ones are not shown." * (left_out > 0)
    return Chart(
        "chart-check-ins",
        "Check-ins per step, with their expectation",
        "Points: devices that checked in. Band: expectation ± three standard deviations, if all "
        "of the plan's clients participate; by chance about one step in 370 lies outside."
        f"{last}",
        "step, from 0",
        "devices",
        view.public.steps,
        columns,
        tuple(rows),
        wide=True,
    )


def thinned(rows: Sequence[_Row], at_most: int = LONGEST) -> list[_Row]:
    """At most ``at_most`` of the rows, evenly spaced, with the first row and the last row."""
    if len(rows) <= at_most:
        return list(rows)
    return [rows[i * (len(rows) - 1) // (at_most - 1)] for i in range(at_most)]


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", str(value))


def _epsilon(value: float | None) -> Cell:
    """A cell with ε rounded up."""
    return Cell("–") if value is None else Cell(rounded_up(value), repr(value))


def _decimal(value: float | None, digits: int) -> Cell:
    return Cell("not a number") if value is None else Cell(f"{value:,.{digits}f}", repr(value))


def _share(point: CurvePoint) -> Cell:
    share = point.accuracy
    return Cell("not a number") if share is None else Cell(f"{share:.2%}", repr(share))
