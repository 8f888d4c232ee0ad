"""The table of a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from turnout.reporting.words import rounded_up


def tuning_table(record: Mapping[str, Any]) -> RenderableType:
    """The values that were chosen and their cost, from the content of tune.json."""
    rows = {key: f"[bold]{_text(value)}[/bold]" for key, value in record["values"].items()}
    rows["score"] = (
        f"{_text(record['score'])} ({record['metric']}, {record['held_out_clients']:,} held-out "
        "clients)"
    )
    rows["data"] = record["data"]
    if "candidates" in record:
        rows["ε upper bound of the search"] = record["price"]
        return Group(_candidates(record), _grid(rows))
    lower = record["epsilon_lower"]
    rows |= {
        "noise of the score": f"standard deviation {record['score_deviation']:.2g}",
        "runs": f"{record['mean_candidates']:g} on average; how many is not for release",
        "ε upper bound": f"[bold]{rounded_up(record['epsilon'], 5)}[/bold], search included "
        f"(δ = {record['delta']:g}, {record['relation']}, {record['unit']}, "
        f"{record['trust_model']})",
        "ε lower bound": f"{lower:.5g}" if lower > 0 else "none is known",
        "ε upper bound of one run": rounded_up(record["one_run_epsilon"], 5),
        "covers": f"{record['covered']}; training again costs anew",
    }
    return _grid(rows)


def _grid(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _candidates(record: Mapping[str, Any]) -> Table:
    """All candidates of a public search, the best first."""
    ranked = sorted(record["candidates"], key=lambda one: _rank(one["score"]))
    table = Table()
    keys = list(record["values"])
    for name in (*keys, record["metric"]):
        table.add_column(name, justify="right")
    for one in ranked:
        table.add_row(*(_text(one["values"][key]) for key in keys), _text(one["score"]))
    return table


def _rank(score: float | None) -> float:
    return float("inf") if score is None else -score


def _text(value: Any) -> str:
    if value is None:
        return "diverged"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
