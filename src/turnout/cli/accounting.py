"""Commands of accounting: ``account``, ``calibrate``, ``compare`` and ``budget``.

Options become a question (`turnout.plans.questions`), which a function of `turnout.api` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.api.price import Price, price
from turnout.cli.options import (
    FILE,
    WHOLE,
    Group,
    QuestionCommand,
    SectionedCommand,
    all_of,
    json_option,
    option_of,
    picture_path,
    show,
)
from turnout.core.errors import ParameterError
from turnout.plans.questions import DELTA, NOISE, Question, flags_named, own_name
from turnout.schemes import CheckIn, GaussianNoise, PureRandomizer
from turnout.schemes.scheme import Shuffle, SubsampledShuffle
from turnout.schemes.settings import (
    COMPARISON_TOLERANCE,
    MISSING,
    RELATION_SETTING,
    PrivacyTarget,
    setting_of,
)

if TYPE_CHECKING:
    from turnout.api.calibrate import CalibratedPrice
    from turnout.api.training_run import SamplerComparison


BOUND = ("delta", "relation")
BRACKET = (*BOUND, "tolerance")
"""Settings of the target of a question: for an upper bound, and for a bracket of ε."""


def answered(question: Question) -> Price:
    """Answer to a question about a scheme: its guarantee.

    Raises:
        UnsupportedError: no sound analysis is known, or no ε holds at so small a δ.
        NumericalError: nothing can be certified.
    """
    target = question.target
    with flags_named():
        found = price(question.scheme, delta=target.delta, tolerance=target.tolerance)
    return found.named(question.randomizer_words)


def solved(question: Question, solve_for: str = NOISE) -> CalibratedPrice:
    """Value of the unknown that spends the question's ε.

    Args:
        question: asked with the same unknown.
        solve_for: one of `solvable`, or `NOISE`.

    Raises:
        ParameterError: no target.
        UnsupportedError: no sound analysis is known, or no value meets the target.
        NumericalError: nothing can be certified.
    """
    from turnout.api.calibrate import calibrate as solve

    target, name = question.target, own_name(solve_for, question.randomizer)
    with flags_named():
        found = solve(
            lambda value: question.answered(name, value).scheme,
            epsilon=question.target_epsilon,
            delta=None if name == DELTA else target.delta,
            solve_for=name,
            tolerance=target.tolerance,
        )
    return found.named(question.answered(name, found.value).randomizer_words)


_RUN = ("records", "batch_size", "sampler")
"""Flags that describe a training run only, in place of ``--scheme``."""
_RUN_SECTION = {"A training run, in place of --scheme": _RUN}


def _training_run_options(without: str) -> Callable[..., Any]:
    """Decorator that adds the options of a training run; ``without`` ends the help of the last."""
    samplers = "How batches are drawn: poisson, check-in, fixed-size or shuffle (a loader). "
    return all_of(
        click.option(
            "--records",
            type=WHOLE,
            help="Number of training records; needs --batch-size and --epochs.",
        ),
        click.option("--batch-size", type=WHOLE, help="Expected number of records in a batch."),
        click.option("--sampler", metavar="NAME", help=samplers + without),
    )


_ACCOUNT_EXAMPLES = """\b
Examples:
  turnout account --scheme check-in --window 1000 --noise-multiplier 1 \\
      --delta 1e-6 --relation add-remove --explain
  turnout account --records 60000 --batch-size 256 --epochs 60 \\
      --noise-multiplier 1.1 --delta 1e-5
  turnout account --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6
  turnout account --scheme subsampled-shuffle --sampled 1e4 --clients 1e6 \\
      --randomizer kary-response --epsilon0 1 --delta 1e-6
"""


@click.command(cls=QuestionCommand, target=BRACKET, sections=_RUN_SECTION, epilog=_ACCOUNT_EXAMPLES)
@_training_run_options("Without --sampler or --relation, a table of all is printed.")
@click.option("--explain", is_flag=True, help="Say what the ε means for a person.")
@click.option(
    "--prior", type=float, help="With --explain: an attacker's prior that the client took part."
)
@click.option(
    "--picture",
    metavar="FILE",
    help="With --explain: draw error rates and δ(ε) into a .svg, .png or .pdf file.",
)
@json_option
def account(
    as_json: bool, explain: bool, prior: float | None, picture: str | None, **flags: Any
) -> None:
    """Print an upper and a lower bound on ε, in both directions, without training."""
    for name, value in {"--prior": prior, "--picture": picture}.items():
        if value is not None and not explain:
            raise ParameterError(name, value, "only with --explain")
    if prior is not None and not 0.0 < prior < 1.0:
        raise ParameterError("--prior", prior, "a number strictly between 0 and 1")
    from turnout.api.explain import explain as explained
    from turnout.plans.questions import parse_query
    from turnout.reporting.progress import spinner

    path = picture_path(picture)
    run = _training_run(flags, "noise_multiplier", "delta")
    # Several samplers or relations have a table of upper bounds, which no explanation fits.
    if run is not None and _is_table(run):
        if explain:
            expected = "only with --relation and one --sampler, other than shuffle"
            raise ParameterError("--explain", explain, expected)
        show(_sampler_table(run), as_json=as_json)
        return
    with spinner("computing ε"):
        found = answered(parse_query(flags)) if run is None else _answered_run(run)
        found = explained(found, prior=prior) if explain else found
    if path is not None:
        found.plot().write(path)
    show(found, as_json=as_json)


def _training_run(flags: dict[str, Any], *needed: str) -> dict[str, Any] | None:
    """Settings of a training run and its target from the flags; None without ``--records``.

    The flags lose those that only describe a training run. ``needed`` are names of flags that must
    be given beside those.

    Raises:
        ParameterError: a flag that is missing, or one that does not describe a training run.
    """
    run = {name: flags.pop(name) for name in _RUN}
    given = {name: value for name, value in flags.items() if value is not None}
    with flags_named():
        # Without --records no flag of a training run may be given.
        if run["records"] is None:
            for name, value in run.items():
                if value is not None:
                    raise ParameterError(name, value, "only with --records")
            return None
        # With it, all flags must describe the training run.
        for name, value in given.items():
            if name not in ("epochs", *needed, "relation", "tolerance"):
                raise ParameterError(name, value, "no value with --records")
        for name in ("batch_size", "epochs", *needed):
            if (run | given).get(name) is None:
                raise ParameterError(name, MISSING, "a value, with --records")
    return run | given


def _is_table(run: dict[str, Any]) -> bool:
    """Whether the answer is a table: several values of ε, or upper bounds for a loader."""
    return run["sampler"] in (None, "shuffle") or "relation" not in run


def _sampler_table(run: dict[str, Any]) -> SamplerComparison:
    """Values of ε of a training run by sampler and relation."""
    from turnout.api.training_run import compare_samplers
    from turnout.reporting.progress import progress_bar

    with flags_named(), progress_bar("computing ε") as watch:
        return compare_samplers(**run, watch=watch)


def _answered_run(run: dict[str, Any]) -> Price:
    """Guarantee of a training run with one sampler and relation."""
    from turnout.api.training_run import training_run

    target = {name: run.pop(name) for name in ("delta", "tolerance") if name in run}
    with flags_named():
        return price(training_run(**run), **target)


_CALIBRATE_EXAMPLES = """\b
Examples:
  turnout calibrate --scheme check-in --window 1000 --epsilon 1 \\
      --delta 1e-6 --relation add-remove
  turnout calibrate --records 60000 --batch-size 256 --epochs 60 \\
      --sampler poisson --epsilon 3 --delta 1e-5 --relation add-remove
  turnout calibrate --scheme shuffle --clients 1e5 --rounds 1000 --epsilon 1 \\
      --delta 1e-6
  turnout calibrate --solve-for clients --scheme shuffle --epsilon0 2 \\
      --epsilon 0.1 --delta 1e-6
"""


@click.command(
    cls=QuestionCommand, target=BRACKET, sections=_RUN_SECTION, epilog=_CALIBRATE_EXAMPLES
)
@click.option("--epsilon", type=float, help="The ε that must hold.")
@click.option(
    "--solve-for",
    metavar="NAME",
    default="noise",
    help="The one option that is not given: noise-multiplier, scale, epsilon0 or "
    "standard-deviation, as the randomizer has it (default), window, windows, probability, rate, "
    "steps, picks, epochs, rounds, sampled, clients or delta.",
)
@_training_run_options("With --relation, both are required.")
@json_option
def calibrate(as_json: bool, solve_for: str, **flags: Any) -> None:
    """Print the least noise, or the value of another parameter, that meets a target ε.

    What comes out is the smallest noise, window, number of clients or δ, or the largest of anything
    else, whose ε upper bound is at most the target.
    """
    from turnout.plans.questions import parse_query
    from turnout.reporting.progress import spinner

    run = _training_run(flags, "sampler", "relation", "epsilon", "delta")
    if run is not None and solve_for != NOISE:
        raise ParameterError("--solve-for", solve_for, f"{NOISE!r} with --records")
    with spinner("calibrating"):
        found = (
            solved(parse_query(flags, solve_for), solve_for) if run is None else _solved_run(run)
        )
    show(found, as_json=as_json)


def _solved_run(run: dict[str, Any]) -> CalibratedPrice:
    """Least noise multiplier of a training run that meets the target ε."""
    from turnout.api.calibrate import calibrate as solve
    from turnout.api.training_run import training_run

    target = {name: run.pop(name) for name in ("epsilon", "delta", "tolerance") if name in run}
    with flags_named():
        return solve(
            lambda value: training_run(**run, noise_multiplier=value),
            solve_for="noise-multiplier",
            **target,
        )


_SECTIONS = {
    "What is compared, and swept": ("scheme", "against", "first", "last", "points"),
    "Check-ins": ("noise_multiplier", "window", "windows"),
    "Shuffled messages": ("epsilon0", "rounds", "sampled"),
    "Both": ("clients", "delta", "relation", "tolerance"),
}
_COMPARE_EXAMPLES = """\b
Examples:
  turnout compare --against noise-multiplier --from 0.5 --to 4 --points 8 \\
      --window 1000 --clients 1e5 --delta 1e-6 --relation add-remove
  turnout compare --scheme shuffle --epsilon0 1 --clients 1e5 --delta 1e-6
  turnout compare --scheme shuffle --against rounds --from 1 --to 1000 \\
      --epsilon0 1 --clients 1e5 --delta 1e-6 --picture rounds.svg
"""


@click.command(cls=SectionedCommand, sections=_SECTIONS, epilog=_COMPARE_EXAMPLES)
@click.option("--scheme", metavar="NAME", help="What is compared: check-in (default) or shuffle.")
@click.option(
    "--against",
    metavar="NAME",
    help="What is swept: noise-multiplier, window or windows (check-in); epsilon0, clients, rounds "
    "or delta (shuffle, where one point needs none).",
)
@click.option("--from", "first", type=float, help="Its first value.")
@click.option("--to", "last", type=float, help="Its last value.")
@click.option(
    "--points",
    type=WHOLE,
    help="How many values, evenly spaced in their logarithm; 12 if not given.",
)
@option_of(setting_of(GaussianNoise, "noise_multiplier"))
@option_of(setting_of(CheckIn, "window"))
@option_of(setting_of(CheckIn, "windows"))
@option_of(setting_of(Shuffle, "clients"), "; their messages are shuffled")
@option_of(setting_of(PureRandomizer, "epsilon0"))
@option_of(setting_of(Shuffle, "rounds"))
@option_of(setting_of(SubsampledShuffle, "sampled"), "; all if it is not given")
@option_of(setting_of(PrivacyTarget, "delta"), "; required unless swept")
@option_of(RELATION_SETTING, "; with --scheme shuffle: replace-one")
@option_of(COMPARISON_TOLERANCE, "; a smaller one takes longer")
@click.option("--picture", metavar="FILE", help="Draw it into a .svg, .png or .pdf file.")
@json_option
def compare(as_json: bool, picture: str | None, **flags: Any) -> None:
    """Prints ε against one parameter by every method: of check-ins, or of shuffled messages.

    Random check-in beside Poisson sampling, shuffling, no amplification, and the papers' own
    bounds for check-ins; or, with --scheme shuffle, every bound for shuffled messages of an
    ε₀-LDP randomizer. Where a method says nothing there is a blank and a reason.
    """
    if picture is not None and flags["against"] is None:
        raise ParameterError("--picture", picture, "only with --against")
    from turnout.api.compare import Comparison
    from turnout.plans.sweeps import sweep
    from turnout.reporting.progress import progress_bar

    path = picture_path(picture)
    with progress_bar("comparing") as watch:
        found = Comparison.of(sweep(flags), watch)
    try:
        if path is not None:  # before printing, which a closed pipe may end
            found.plot().write(path)
    finally:
        show(found, as_json=as_json)


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


@budget.command(cls=QuestionCommand, target=BOUND, epilog=_LEFT_EXAMPLES)
@click.option("--epsilon", type=float, required=True, help="The ε of everything together.")
@click.option("--done", type=WHOLE, required=True, metavar="STEPS", help="Steps that were run.")
@json_option
def left(as_json: bool, done: int, **flags: Any) -> None:
    """Prints what a plan has spent after some steps, and what the rest of it may do.

    The plan is one scheme that was fixed before any data were used.
    """
    from turnout.plans.sweeps import left as left_of
    from turnout.reporting import budgets
    from turnout.reporting.progress import spinner

    with spinner("pricing"):
        found, terms = left_of(flags, done)
    budgets.show_left(found, terms, as_json=as_json)


@budget.command("open", cls=QuestionCommand, target=BOUND, epilog=_OPEN_EXAMPLES)
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
@json_option
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
@click.option(
    "--answer",
    type=FILE,
    metavar="FILE",
    help="In place of a window: what turnout estimate --json printed, at what it says it cost.",
)
@json_option
def charge(
    file: Path, as_json: bool, label: str, times: int, answer: Path | None, **flags: Any
) -> None:
    """Charges a window to the account in FILE, before it runs, or refuses it.

    Where the budget does not allow it, the command ends with 2 and nothing is charged. What was
    charged runs as it was described; ending it early gives nothing back.
    """
    from turnout.plans.sweeps import charge as charged
    from turnout.plans.sweeps import charge_answer

    if answer is not None:
        if times != 1 or any(value is not None for value in flags.values()):
            raise click.UsageError(
                "--answer has its own cost and is charged once: leave out --times and the window"
            )
        _show(charge_answer(file, answer, label), None, as_json)
        return
    _show(charged(file, flags, label, times), flags, as_json)


@budget.command("show")
@_BUDGET_FILE
@json_option
def show_budget(file: Path, as_json: bool) -> None:
    """Prints what was charged to the account in FILE, and the ε of all of it."""
    from turnout.plans.sweeps import read_account

    _show(read_account(file), None, as_json)


def _show(account: Any, flags: dict[str, Any] | None, as_json: bool) -> None:
    """Print an account, and how many windows of the given options fit into it."""
    from turnout.plans.sweeps import fitting
    from turnout.reporting import budgets

    fits = None if flags is None else fitting(account, flags)
    budgets.show_account(account, fits, as_json=as_json)
