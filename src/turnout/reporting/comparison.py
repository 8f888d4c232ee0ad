"""Comparison of methods as text and as JSON.

`comparison_text` returns tables, a legend of the methods, and the reasons for missing values;
`comparison_record` returns JSON-ready values. Comparisons of check-ins have a row for each value
and a column for each method. Comparisons of shuffles have more methods, so each method has a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from turnout.accounting import Side
from turnout.plans.sweeps import ComparisonCurve, ShuffleSweep, SweepComparison
from turnout.reporting.words import RELATIONS, TRUST, UNITS, rounded_down, rounded_up
from turnout.schemes import PrivacyUnit

if TYPE_CHECKING:
    from turnout.accounting.published.comparison import Method, Quote

_BLANK = "–"
_NAMES = {
    "epsilon0": "ε₀ =",
    "clients": "clients",
    "rounds": "rounds",
    "sampled": "sampled",
    "delta": "δ =",
}
_NUMBER_WIDTH = 9  # letters of a column of ε, including the gap before the column


def comparison_text(comparison: SweepComparison) -> Group:
    """Tables of a comparison, with their legend and the reasons for missing values."""
    parts: list[RenderableType] = []
    if not isinstance(comparison.sweep, ShuffleSweep):
        parts.append(_by_value(comparison))
    else:
        parts += [Text(_shuffle_title(comparison.sweep)), _ByMethod(comparison)]
    lines = ["", *_notes(comparison), "", *_blanks(comparison)]
    return Group(*parts, *map(Text, lines))


class _ByMethod:
    """Tables of a comparison of shuffles, as wide as the terminal permits."""

    def __init__(self, comparison: SweepComparison) -> None:
        self._comparison = comparison

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in _by_method(self._comparison, options.max_width):
            yield ""
            yield table


def comparison_record(comparison: SweepComparison) -> dict[str, Any]:
    """JSON-ready bounds of each method at each value, and the terms of a comparison."""
    return {
        "against": comparison.sweep.against,
        "values": list(comparison.values),
        **comparison.sweep.fixed(),
        "clients": comparison.sweep.clients,
        "delta": comparison.sweep.delta,
        "unit": PrivacyUnit.CLIENT.value,
        "methods": [_curve_record(comparison, curve) for curve in comparison.curves],
        "seconds": comparison.seconds,
    }


def _curve_record(comparison: SweepComparison, curve: ComparisonCurve) -> dict[str, Any]:
    """JSON-ready values of one method: its terms, bounds on ε, and reasons for missing values."""
    method = curve.method
    return {
        "name": method.name,
        "about": method.about,
        "relation": comparison.relation(method).value,
        "directions": list(method.directions),
        "trust_model": method.trust.value,
        "status": method.status.value,
        "side": method.side.value,
        "epsilon": [None if isinstance(q, str) else q.epsilon for q in curve.quotes],
        "epsilon_lower": [None if isinstance(q, str) else q.epsilon_lower for q in curve.quotes],
        "blanks": [
            {"value": value, "reason": reason} for value, reason in curve.blanks(comparison.values)
        ],
    }


def _by_method(comparison: SweepComparison, width: int) -> Iterable[Table]:
    """One table, or several tables if the values do not fit into ``width`` characters."""
    if comparison.sweep.against is None:
        yield _of_a_point(comparison)
        return
    curves = comparison.curves
    heads = [f"{comparison.sweep.against} ="], ["status"]
    names = max(len(text) for text in heads[0] + [curve.method.name for curve in curves])
    states = max(len(text) for text in heads[1] + [_status(curve.method) for curve in curves])
    at_once = max(1, (width - names - states - 1) // _NUMBER_WIDTH)
    for start in range(0, len(comparison.values), at_once):
        yield _of_values(comparison, range(start, len(comparison.values))[:at_once])


def _plain() -> Table:
    return Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")


def _of_a_point(comparison: SweepComparison) -> Table:
    """Table of a comparison at one point: a row for each method, with its bounds on ε."""
    table = _plain()
    table.add_column("bound", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("ε at most", justify="right")
    table.add_column("lower bound", justify="right")
    for curve in comparison.curves:
        quote, lower = curve.quotes[0], curve.method.side is Side.LOWER
        numbers = ["" if lower and not isinstance(quote, str) else _up(quote), _below(quote)]
        table.add_row(curve.method.name, _status(curve.method), *numbers)
    return table


def _of_values(comparison: SweepComparison, columns: Sequence[int]) -> Table:
    """Table with a row for each method, and a column for each value with index in ``columns``."""
    table = _plain()
    table.add_column(f"{comparison.sweep.against} =", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for index in columns:
        table.add_column(_said(comparison, comparison.values[index]), justify="right")
    for curve in comparison.curves:
        round_off = _down if curve.method.side is Side.LOWER else _up
        numbers = [round_off(curve.quotes[index]) for index in columns]
        table.add_row(curve.method.name, _status(curve.method), *numbers)
    return table


def _status(method: Method[Any]) -> str:
    """Status of a method's bound, such as "certified"; "attained" for a lower bound."""
    return "attained" if method.side is Side.LOWER else method.status.value


def _below(quote: Quote | str) -> str:
    """Lower bound as text, rounded down; empty if none is known."""
    return "" if isinstance(quote, str) or not quote.epsilon_lower else _down(quote)


def _by_value(comparison: SweepComparison) -> Table:
    """Table of ε with a row for each value and a column for each method that has any bound."""
    asked = comparison.sweep
    # One column for each method that has a bound, the first one with its lower bound.
    table = _plain()
    table.title = _title(comparison)
    table.add_column(asked.against.partition("-")[0], justify="right", no_wrap=True)
    columns: list[list[str]] = []
    for curve in comparison.curves:
        if curve.empty:
            continue
        table.add_column(_heading(curve.method), justify="right", overflow="fold")
        columns.append([_up(quote) for quote in curve.quotes])
        if curve.method is comparison.curves[0].method:
            table.add_column("lower bound", justify="right")
            columns.append([_below(quote) or _BLANK for quote in curve.quotes])
    # One row for each value.
    for value, *row in zip(comparison.values, *columns, strict=True):
        table.add_row(_said(comparison, value), *row)
    return table


def _title(comparison: SweepComparison) -> str:
    asked = comparison.sweep
    fixed = ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in asked.fixed().items())
    clients = "" if asked.clients is None else f", {asked.clients:,} clients"
    return f"ε at δ = {asked.delta:g}, {asked.relation.value}: {fixed}{clients}"


def _shuffle_title(asked: ShuffleSweep) -> str:
    fixed = asked.fixed() | ({"delta": asked.delta} if asked.delta else {})
    told = ", ".join(f"{_NAMES[name]} {_number(value)}" for name, value in fixed.items())
    return f"shuffled, {asked.relation.value}: {told}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _heading(method: Method[Any]) -> str:
    """Name of a method, with the relation of its bounds unless this is the requested relation."""
    if method.relation is not None:
        return f"{method.name}\n({method.relation.value.split('-')[0]})"
    return method.name if len(method.directions) > 1 else f"{method.name}\n(remove)"


def _notes(comparison: SweepComparison) -> Iterable[str]:
    """Lines of the legend: description and relation of each method, then the common terms."""
    asked = comparison.sweep
    for curve in comparison.curves:
        method = curve.method
        note = (
            "; the remove direction alone, no guarantee" if method.directions == ("remove",) else ""
        )
        about = f"; {method.relation.value}" if method.relation is not None else ""
        yield f"{method.name}: {method.about}{about}{note}"
    yield ""
    yield f"relation {asked.relation.value}: {RELATIONS[asked.relation]}"
    yield f"unit {PrivacyUnit.CLIENT.value}: {UNITS[PrivacyUnit.CLIENT]}"
    for trust in dict.fromkeys(curve.method.trust for curve in comparison.curves):
        names = ", ".join(c.method.name for c in comparison.curves if c.method.trust is trust)
        yield f"trust model {trust.value} ({names}): {TRUST[trust]}"


def _blanks(comparison: SweepComparison) -> Iterable[str]:
    """Reasons for missing values: one line for each method and kind of reason."""
    for curve in comparison.curves:
        kinds: dict[str, list[tuple[float, str]]] = {}
        for value, reason in curve.blanks(comparison.values):
            kinds.setdefault(re.sub(r"\d[\d.e+-]*", "", reason), []).append((value, reason))
        for blanks in kinds.values():
            values = [value for value, _ in blanks]
            ends = [_said(comparison, value) for value in (values[0], values[-1])]
            where = ends[0] if len(values) == 1 else " to ".join(ends)
            everywhere = len(values) == len(comparison.values)
            place = "everywhere" if everywhere else f"at {where}"
            yield f"{_BLANK} {curve.method.name}, {place}: {blanks[0][1]}"


def _said(comparison: SweepComparison, value: float) -> str:
    return f"{value:,}" if comparison.sweep.whole else f"{value:g}"


def _up(quote: Quote | str) -> str:
    return _BLANK if isinstance(quote, str) else rounded_up(quote.epsilon)


def _down(quote: Quote | str) -> str:
    return _BLANK if isinstance(quote, str) else rounded_down(quote.epsilon_lower or 0.0)
