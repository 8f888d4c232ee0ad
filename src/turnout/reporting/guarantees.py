"""A guarantee as JSON and as a table, never without relation, unit and trust model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnout.core.bounds import Bounds
from turnout.reporting.words import DIRECTIONS, at_least, kind_rows, of_unit, rounded_up

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting import Guarantee


def guarantee_record(guarantee: Guarantee) -> dict[str, Any]:
    """The guarantee as JSON-ready values; ``epsilon`` is the upper bound."""
    record = {
        **bounds_record(guarantee.epsilon),
        "delta": guarantee.delta,
        "relation": guarantee.relation.value,
        "unit": guarantee.unit.value,
        "trust_model": guarantee.trust.value,
        "directions": {
            name: bounds_record(bounds) for name, bounds in guarantee.directions.items()
        },
        "method": guarantee.method,
    }
    if not guarantee.meets_tolerance:
        record["bracket"] = {
            "relative_width": guarantee.epsilon.relative_width,
            "tolerance": guarantee.tolerance,
            "reason": _why_wide(guarantee),
            "cut_short": guarantee.cut_short,
        }
    return record


def bounds_record(bounds: Bounds) -> dict[str, float]:
    """Both bounds of an ε."""
    return {"epsilon": bounds.upper, "epsilon_lower": bounds.lower}


def bracket_rows(guarantee: Guarantee) -> dict[str, str]:
    """The width of the bracket of ε and its reason; nothing where it is as narrow as was asked.

    Nor where no lower bound is known, which stands beside it already, unless more work had found
    one.
    """
    said = guarantee.epsilon.lower == 0 and not guarantee.cut_short
    if guarantee.meets_tolerance or said:
        return {}
    wide = f"{100 * guarantee.epsilon.relative_width:.3g} % wide"
    asked = f"{100 * guarantee.tolerance:g} % asked"
    return {"bracket": f"{wide} ({asked}): {_why_wide(guarantee)}"}


def _why_wide(guarantee: Guarantee) -> str:
    if guarantee.cut_short:
        return "the budget of work was spent, which is counted and the same on every machine"
    if guarantee.epsilon.lower == 0:
        return "no lower bound is known"
    return "refining stopped" if guarantee.exact else "the analysis is not tight"


def guarantee_table(guarantee: Guarantee, title: str, rows: dict[str, str]) -> Table:
    """The guarantee as a table with some rows above it."""
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left", box=None, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    epsilon = guarantee.epsilon
    table.add_row("ε upper bound", f"[bold]{rounded_up(epsilon.upper, 5)}[/bold]")
    table.add_row("ε lower bound", at_least(epsilon, 5))
    for name, value in bracket_rows(guarantee).items():
        table.add_row(name, value)
    table.add_row("δ", f"{guarantee.delta:g}")
    for name, bounds in guarantee.directions.items():
        ends = f"{rounded_up(bounds.upper, 5)} (lower bound {at_least(bounds, 5)})"
        table.add_row(f"direction {name}", f"{ends}: {of_unit(DIRECTIONS[name], guarantee.unit)}")
    for name, value in kind_rows(guarantee.relation, guarantee.unit, guarantee.trust):
        table.add_row(name, value)
    table.add_row("method", guarantee.method)
    return table


def guarantee_rows(guarantee: Guarantee) -> list[tuple[str, str]]:
    """The guarantee as a page has it, row by row."""
    epsilon = guarantee.epsilon
    kinds = kind_rows(guarantee.relation, guarantee.unit, guarantee.trust)
    rows = [
        ("ε", f"at most {rounded_up(epsilon.upper, 5)}, at least {at_least(epsilon, 5)}"),
        *((name.capitalize(), value) for name, value in bracket_rows(guarantee).items()),
        ("δ", f"{guarantee.delta:g}"),
    ]
    rows += [
        (
            f"Direction “{name}”",
            f"at most {rounded_up(bounds.upper, 5)}, at least {at_least(bounds, 5)} "
            f"({of_unit(DIRECTIONS[name], guarantee.unit)})",
        )
        for name, bounds in guarantee.directions.items()
    ]
    return [
        *rows,
        *((name.capitalize(), value) for name, value in kinds),
        ("Method", guarantee.method),
    ]
