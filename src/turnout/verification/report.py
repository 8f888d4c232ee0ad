"""A verdict in a terminal: a short table, what is wrong, and one line that says it all."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnout.verification.verdict import Cost, Outcome, Verdict

_SHOWN = 10
"""Faults that are printed; the others are counted."""


def show(verdict: Verdict, console: Console | None = None) -> None:
    """Prints a verdict; the last line is the verdict itself."""
    console = console or Console()
    if verdict.task:
        console.print(_facts(verdict))
    if verdict.costs:
        console.print(_cost_table(verdict))
    for remark in verdict.remarks:
        console.print(f"note: {escape(remark)}", soft_wrap=True)
    for fault in verdict.faults[:_SHOWN]:
        console.print(f"[red]wrong:[/red] {escape(str(fault))}", soft_wrap=True, highlight=False)
    if len(verdict.faults) > _SHOWN:
        console.print(f"… and {len(verdict.faults) - _SHOWN} more")
    console.print(_last_line(verdict), soft_wrap=True, highlight=False)


def _facts(verdict: Verdict) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _rows(verdict):
        table.add_row(name, escape(value))
    return table


def _rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "task", verdict.task
    if verdict.head:
        yield "head", verdict.head
        yield "released", f"{verdict.steps} steps"
    if verdict.epsilon is not None:
        yield "claimed", f"ε = {verdict.epsilon:.6g} at δ = {verdict.delta:g}"
        yield "protects", verdict.relation
    if verdict.models is not None:
        yield "models", f"{verdict.models} files expected"
    if verdict.method:
        yield "recomputed", verdict.method


def _cost_table(verdict: Verdict) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("steps", "ε claimed", "ε lower bound", "ε upper bound", ""):
        table.add_column(name, justify="right")
    for cost in verdict.costs:
        most = "" if cost.upper is None else f"{cost.upper:.6g}"
        row = (str(cost.steps), f"{cost.claimed:.6g}", f"{cost.lower:.6g}", most, _mark(cost))
        table.add_row(*row)
    return table


def _mark(cost: Cost) -> str:
    if not cost.enough:
        return "[red]too little[/red]"
    return "loose" if cost.loose else "ok"


def _last_line(verdict: Verdict) -> str:
    match verdict.outcome:
        case Outcome.GOOD:
            return "[green]good:[/green] the chain is whole and claims no less than was spent"
        case Outcome.BAD:
            return "[red]BAD:[/red] do not rely on this ledger"
        case Outcome.COST_NOT_RECOMPUTED:
            reason = escape(verdict.not_recomputed)
            return f"[yellow]sound, but cost not recomputed:[/yellow] {reason}"
