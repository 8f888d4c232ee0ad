"""Facts of the operator's page besides: counts, people, queue, log, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from turnout.participation.drawing import is_far_below
from turnout.service.dashboard.charts import Chart, band, check_in_chart
from turnout.service.storage.interface import Event
from turnout.service.web.views import OperatorView

RECENT = 20
"""Published steps that warnings look at."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log."""

    at: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """All that the operator's page shows besides the public facts."""

    figures: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...]
    chart: Chart
    log: tuple[Line, ...]


def operator_facts(view: OperatorView) -> OperatorFacts:
    """Facts of the operator's page about a view."""
    return OperatorFacts(
        figures=_figures(view),
        warnings=tuple(_warnings(view)),
        chart=check_in_chart(view),
        log=tuple(_line(event) for event in reversed(view.events)),
    )


def _figures(view: OperatorView) -> tuple[tuple[str, str, str], ...]:
    """(name, value, note) each."""
    came = sum(count.checked_in for count in view.counts)
    expected = sum(count.expected for count in view.counts)
    return (
        ("Enrolled", f"{view.enrolled:,}", f"of {view.invited:,} invited"),
        (
            "Came in this step",
            f"{view.arrived:,}",
            f"so far; {view.arrived_expected:,.1f} expected",
        ),
        ("Came in all", f"{came:,}", f"{expected:,.0f} expected in published steps"),
        ("Waiting for a commit", f"{view.waiting_jobs:,}", f"{size(view.waiting_bytes)} in memory"),
    )


def _warnings(view: OperatorView) -> list[str]:
    """Warnings, the gravest first."""
    recent, population = view.counts[-RECENT:], view.public.population
    found = []
    errors = sum(event.level == "error" for event in view.events)
    if errors:
        found.append(f"The log has {errors:,} error{'s' * (errors > 1)}.")
    block = view.counts[-view.block :] if view.block else ()
    came, awaited = (sum(c.checked_in for c in block), sum(c.expected for c in block))
    if is_far_below(came, awaited, view.block_variance):
        found.append(
            f"Turnout is far below its expectation: {came:,} of {awaited:,.0f} expected came in "
            f"the last {len(block)} steps. Devices are missing, or steps are too short for them."
        )
    strayed = [c for c in recent if not band(c.expected, population).holds(c.checked_in)]
    if strayed:
        last = strayed[-1]
        expected = band(last.expected, population)
        found.append(
            f"{len(strayed)} of the last {len(recent)} steps lie outside the band, step "
            f"{last.step} the last: {last.checked_in:,} came where {expected.low:,.1f} to "
            f"{expected.high:,.1f} are expected."
        )
    empty = [c for c in recent if c.checked_in == 0]
    if empty:
        found.append(f"Nobody came in {len(empty)} of the last {len(recent)} steps.")
    silent = [c for c in recent if c.checked_in and not c.served]
    if silent and view.public.release == "one-client":
        found.append(
            f"In {len(silent)} of the last {len(recent)} steps the device that was asked for its "
            "update did not send it."
        )
    if view.enrolled < population:
        found.append(
            f"{view.enrolled:,} of the plan's {population:,} clients are enrolled; the "
            "expectation counts on all of them."
        )
    if any(point.loss is None or point.accuracy is None for point in view.public.curve):
        found.append("An evaluation of the model is not a number.")
    return found


def _line(event: Event) -> Line:
    at = datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return Line(at, event.level, event.text)


def size(octets: int) -> str:
    """A number of bytes, readable.

    >>> size(0), size(53_000), size(2_500_000)
    ('0 kB', '53 kB', '2.5 MB')
    """
    return f"{octets / 1e6:.1f} MB" if octets >= 1_000_000 else f"{octets / 1e3:.0f} kB"
