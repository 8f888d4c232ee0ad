"""Privacy budgets and searches for settings, as tables and as JSON.

`show_account` and `show_left` print a budget, always with relation, unit and trust model.
`tuning_table` returns the table of a search.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from turnout.accounting import BudgetTerms, Remaining
from turnout.plans.accounts import Account
from turnout.reporting.words import TRUST, kind_rows, rounded_up
from turnout.schemes import TrustModel

_HOLDS = {
    "ledger": "nothing that was released decides on what runs next",
    "renyi-filter": "whatever releases decide, as each window is charged before it runs",
    "odometer": "whatever releases decide, and whenever the run stops",
}

_TRUSTED = (
    "the party that holds the data is trusted and adds the noise: a coordinator sees single "
    "updates and who checks in when, the holder of a file sees all rows; all others see the "
    "released models and answers only"
)
"""The trusted party of an account, which may contain windows of training and estimates."""


def show_account(account: Account, fits: int | None, *, as_json: bool) -> None:
    """Print the windows that used a privacy budget, and their total ε, as a table or JSON.

    Args:
        account: the account of a privacy budget.
        fits: number of further windows that the budget permits; None: this number is not printed.
        as_json: whether to print JSON.
    """
    # JSON-ready values.
    kind = account.to_dict()["kind"]
    record = {
        "kind": kind,
        "epsilon": account.spent,
        "epsilon_lower": None,
        "budget": account.epsilon,
        "delta": account.delta,
        **_terms_record(account.terms),
        "fits": fits,
        "charged": [{"label": label, "times": times} for label, times in account.entries],
    }
    # Rows of the table.
    entries = [f"{times:,} × {label}" for label, times in account.entries]
    of = "" if account.epsilon is None else f" of {account.epsilon:g}"
    rows = {
        "ε upper bound": f"{rounded_up(account.spent, 5)}{of}; no lower bound is known",
        "δ": f"{account.delta:g}",
        "holds": _HOLDS[kind],
        "charged": "; ".join(entries) or "nothing",
    }
    if fits is not None:
        rows["still fits"] = f"{fits:,} times, as described"
    _show(record, rows, account.terms, as_json, trusted=_TRUSTED)


def show_left(found: Remaining, terms: BudgetTerms, *, as_json: bool) -> None:
    """Print ε and the remaining budget of a plan after some of its steps.

    Args:
        found: state of the plan.
        terms: relation, unit and trust model.
        as_json: whether to print JSON instead of a table.
    """
    # JSON-ready values.
    record = {
        "steps": found.steps,
        "epsilon": found.spent,
        "epsilon_lower": None,
        "epsilon_of_plan": found.whole,
        "budget": found.budget,
        "delta": found.delta,
        **_terms_record(terms),
        "further_windows": found.windows,
        "noise_multiplier": found.noise_multiplier,
    }
    # Rows of the table.
    noise = found.noise_multiplier
    rows = {
        "ε upper bound": f"{rounded_up(found.spent, 5)} after {found.steps:,} steps; no lower "
        "bound is known",
        "of the plan": f"{rounded_up(found.whole, 5)} if it is carried out",
        "budget": f"{found.budget:g}",
        "δ": f"{found.delta:g}",
        "further windows": f"{found.windows:,} like these, once the last one begun is done",
        "noise of the rest": "nothing is left to begin"
        if noise is None
        else f"noise multiplier {noise:g} at least, for all windows still to begin",
    }
    _show(record, rows, terms, as_json)


def _terms_record(terms: BudgetTerms) -> dict[str, str]:
    """JSON-ready relation, unit and trust model."""
    words = terms.to_dict()
    return {"relation": words["relation"], "unit": words["unit"], "trust_model": words["trust"]}


def _show(
    record: dict[str, Any],
    rows: dict[str, str],
    terms: BudgetTerms,
    as_json: bool,
    trusted: str = TRUST[TrustModel.CENTRAL],
) -> None:
    """Print the record as JSON, or the rows and the terms as a table.

    Args:
        record: JSON-ready values.
        rows: rows of the table, before those of the terms.
        terms: relation, unit and trust model.
        as_json: whether to print JSON.
        trusted: the trusted party in the central model.
    """
    if as_json:
        print(json.dumps(record, indent=2, allow_nan=False))
        return
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows = rows | dict(kind_rows(terms.relation, terms.unit, terms.trust))
    if terms.trust is TrustModel.CENTRAL:
        rows["trust model"] = f"{terms.trust.value}: {trusted}"
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def tuning_table(record: Mapping[str, Any]) -> RenderableType:
    """Table of the chosen values and their privacy cost, from the contents of tune.json."""
    # The chosen values and their score.
    rows = {key: f"[bold]{_text(value)}[/bold]" for key, value in record["values"].items()}
    rows["score"] = (
        f"{_text(record['score'])} ({record['metric']}, {record['held_out_clients']:,} held-out "
        "clients)"
    )
    rows["data"] = record["data"]
    # A search on public data costs no privacy, so all candidates are shown.
    if "candidates" in record:
        rows["ε upper bound of the search"] = record["price"]
        return Group(_candidates(record), _grid(rows))
    # A search on private data: only the chosen candidate is released, with its guarantee.
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
    """Table of the candidates of a search on public data, in the order of their scores."""
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
