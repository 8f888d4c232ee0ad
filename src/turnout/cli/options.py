"""Options that ``account`` and ``calibrate`` share: a randomizer, a law and a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--randomizer",
        metavar="NAME",
        help="What protects one contribution: gaussian (default), laplace, pure, approximate, "
        "fixed, kary-response, hadamard-response, bit-response, discrete-gaussian, "
        "rounded-gaussian or table. Of shuffled messages it is what --epsilon0, --delta0 or "
        "--noise-multiplier says.",
    ),
    click.option(
        "--noise-multiplier", type=float, help="Noise standard deviation / clip norm (gaussian)."
    ),
    click.option("--scale", type=float, help="Noise scale / clip bound (laplace)."),
    click.option(
        "--epsilon0",
        type=float,
        help="The randomizer's own ε₀ (pure, approximate, fixed and the responses).",
    ),
    click.option("--delta0", type=float, help="The randomizer's own δ₀ (approximate)."),
    click.option("--categories", type=int, help="Categories, default 2 (kary-response)."),
    click.option(
        "--standard-deviation",
        type=float,
        help="Noise standard deviation in integers (discrete-gaussian, rounded-gaussian).",
    ),
    click.option(
        "--sensitivity",
        type=int,
        help="Largest contribution in integers, default 1 (discrete-gaussian, rounded-gaussian).",
    ),
    click.option(
        "--pair-file",
        metavar="FILE",
        help="CSV file of outcome probabilities, columns present and absent (table).",
    ),
    click.option(
        "--scheme",
        metavar="NAME",
        help="Who takes part when: none, poisson, check-in, sliding, k-subset or fixed-assignment; "
        "or whose messages are shuffled: shuffle, subsampled-shuffle or self-sampled-shuffle.",
    ),
    click.option(
        "--window",
        type=int,
        help="Steps a window (check-in, sliding, k-subset) or an epoch (fixed-assignment).",
    ),
    click.option("--windows", type=int, help="Windows of the run (check-in, k-subset)."),
    click.option(
        "--probability",
        type=float,
        help="Chance of coming, per window (check-in) or in the whole run (fixed-assignment).",
    ),
    click.option(
        "--rate",
        type=float,
        help="Chance of a client in a step (poisson) or round (self-sampled-shuffle).",
    ),
    click.option("--steps", type=int, help="Steps of the run (none, poisson)."),
    click.option("--picks", type=int, help="Steps of a window a client takes part in (k-subset)."),
    click.option(
        "--epochs", type=int, help="Epochs in which she keeps one step (fixed-assignment)."
    ),
    click.option(
        "--clients",
        type=int,
        help="Clients there are, who all follow the protocol (the shuffles; check-in with "
        "--release averaged).",
    ),
    click.option("--rounds", type=int, help="Rounds, default 1 (the shuffles)."),
    click.option(
        "--sampled", type=int, help="Clients who send a message in a round (subsampled-shuffle)."
    ),
    click.option("--delta", type=float, help="The δ of (ε, δ); required."),
    click.option(
        "--relation",
        metavar="NAME",
        help="Neighbouring relation: add-remove, zero-out or replace-one; required, but for the "
        "shuffles, which have replace-one alone.",
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
