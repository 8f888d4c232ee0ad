"""``turnout budget``: what a budget has left, and whether one more window may run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from turnout.cli.commands import Group
from turnout.cli.options import FILE, WHOLE, QuestionCommand, scheme_options, target_options

_BUDGET_FILE = click.argument("file", type=FILE)
_LEFT_EXAMPLES = """\b
Examples:
  turnout budget left --scheme check-in --window 100 --windows 20 --noise-multiplier 1 \\
      --epsilon 2 --delta 1e-6 --relation add-remove --done 730
"""
_OPEN_EXAMPLES = """\b
Examples:
  turnout budget open spent.json --decided releases --epsilon 1 --delta 1e-6 \\
      --relation add-remove --scheme check-in --window 1000 --noise-multiplier 1
  turnout budget charge spent.json --scheme check-in --window 1000 --noise-multiplier 1
"""


@click.group(cls=Group)
def budget() -> None:
    """Says what a privacy budget has left, and refuses a window that it does not allow."""


@budget.command(cls=QuestionCommand, epilog=_LEFT_EXAMPLES)
@click.option("--epsilon", type=float, required=True, help="The ε of everything together.")
@click.option("--done", type=WHOLE, required=True, metavar="STEPS", help="Steps that were run.")
@target_options
def left(as_json: bool, done: int, **flags: Any) -> None:
    """Prints what a plan has spent after some steps, and what the rest of it may do.

    The plan is one scheme that was fixed before any data were used.
    """
    from turnout.plans.sweeps import left as left_of
    from turnout.reporting import budgets
    from turnout.reporting.console import spinner

    with spinner("pricing"):
        found, terms = left_of(flags, done)
    budgets.show_left(found, terms, as_json=as_json)


@budget.command("open", cls=QuestionCommand, epilog=_OPEN_EXAMPLES)
@_BUDGET_FILE
@click.option("--epsilon", type=float, help="The budget; without it nothing is refused.")
@click.option(
    "--decided",
    type=click.Choice(["plan", "releases"]),
    required=True,
    help="What decides on each next window. plan: nothing that was released. releases: anything "
    "may, which costs more.",
)
@click.option(
    "--most-windows",
    type=WHOLE,
    default=1000,
    help="With releases: the most windows that will be run; 1000 by default.",
)
@target_options
def open_(file: Path, as_json: bool, decided: str, most_windows: int, **flags: Any) -> None:
    """Begins an account in FILE, for windows like the one described.

    What is described need not be run: the account's bounds hold for whatever is charged, and are
    sharpest for that.
    """
    from turnout.plans.sweeps import open_account

    account = open_account(file, flags, adaptive=decided == "releases", most=most_windows)
    _show(account, flags, as_json)


@budget.command(cls=QuestionCommand)
@_BUDGET_FILE
@click.option("--label", default="", metavar="TEXT", help="What to call it in the account.")
@click.option("--times", type=click.IntRange(1), default=1, help="How often; once by default.")
@scheme_options
def charge(file: Path, as_json: bool, label: str, times: int, **flags: Any) -> None:
    """Charges a window to the account in FILE, before it runs, or refuses it.

    Where the budget does not allow it, the command ends with 2 and nothing is charged. What was
    charged runs as it was described; ending it early gives nothing back.
    """
    from turnout.plans.sweeps import charge as charged

    _show(charged(file, flags, label, times), flags, as_json)


@budget.command()
@_BUDGET_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def show(file: Path, as_json: bool) -> None:
    """Prints what was charged to the account in FILE, and the ε of all of it."""
    from turnout.plans.sweeps import read_account

    _show(read_account(file), None, as_json)


def _show(account: Any, flags: dict[str, Any] | None, as_json: bool) -> None:
    """An account, and how often the window of some flags fits into it still."""
    from turnout.plans.sweeps import fitting
    from turnout.reporting import budgets

    fits = None if flags is None else fitting(account, flags)
    budgets.show_account(account, fits, as_json=as_json)
