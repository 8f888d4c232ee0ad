"""Options that ``account`` and ``calibrate`` share: a participation law and a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--scheme",
        metavar="NAME",
        help="Who takes part when: none, poisson, check-in, sliding or k-subset.",
    ),
    click.option("--window", type=int, help="Steps a window (check-in, sliding, k-subset)."),
    click.option("--windows", type=int, help="Windows of the run (check-in, k-subset)."),
    click.option("--probability", type=float, help="Chance of coming, per window (check-in)."),
    click.option("--rate", type=float, help="Chance of a client in a step (poisson)."),
    click.option("--steps", type=int, help="Steps of the run (none, poisson)."),
    click.option("--picks", type=int, help="Steps of a window a client takes part in (k-subset)."),
    click.option("--delta", type=float, help="The δ of (ε, δ); required."),
    click.option(
        "--relation",
        metavar="NAME",
        help="Neighbouring relation: add-remove, zero-out or replace-one; required.",
    ),
    click.option(
        "--release",
        metavar="NAME",
        help="What a step releases: aggregated (default), one-client or averaged.",
    ),
    click.option("--tolerance", type=float, help="Largest (upper − lower) / upper asked for."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
)


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options, in the order in which they are written."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
