"""Commands of accounting: ``account``, ``calibrate``, ``compare`` and ``budget``.

`account` prints bounds on ε of a scheme, `calibrate` solves for a parameter at a target ε,
`compare` evaluates several methods over a swept parameter, and the commands of `budget` record in a
file how much of a privacy budget is spent. Each command parses its options into a question (a
scheme and a privacy target, `turnout.plans.questions`) or a sweep (`turnout.plans.sweeps`), which
`turnout.api` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.api.price import Price, price
from turnout.cli.options import (
    FILE,
    TEXT_PATH,
    WHOLE,
    Group,
    QuestionCommand,
    SectionedCommand,
    Word,
    all_of,
    import_option,
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
"""Settings of the privacy target: for upper bounds alone, and for upper and lower bounds on ε."""


def answered(question: Question) -> Price:
    """Bounds on ε of the scheme in a question.

    Raises:
        UnsupportedError: no sound analysis of the scheme is known, or no finite ε holds at this δ.
        NumericalError: no bound can be certified.
    """
    target = question.target
    with flags_named():
        found = price(question.scheme, delta=target.delta, tolerance=target.tolerance)
    return found.named(question.randomizer_words)


def solved(question: Question, solve_for: str = NOISE) -> CalibratedPrice:
    """Value of the unknown parameter at which the upper bound on ε meets a question's target.

    Args:
        question: question that `parse_query` built with the same unknown.
        solve_for: name of the unknown, one of `turnout.plans.solvable`; or `NOISE` for the noise of
            the randomizer.

    Raises:
        ParameterError: the question has no target ε.
        UnsupportedError: no sound analysis of the scheme is known, or no value meets the target.
        NumericalError: no value can be certified to meet the target.
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
"""Options that describe a training run, which then replaces ``--scheme``."""
_RUN_SECTION = {"Training run (instead of --scheme)": _RUN}


def _samplers() -> list[str]:
    from turnout.api.training_run import SAMPLERS

    return list(SAMPLERS)


def _training_run_options(without: str) -> Callable[..., Any]:
    """Decorator that adds the options of a training run.

    Args:
        without: last sentence of the help of ``--sampler``, about a call without this option.
    """
    samplers = (
        "Sampler of the batches: poisson, check-in, fixed-size, or shuffle (a data loader that "
        "shuffles the records in each epoch). "
    )
    return all_of(
        click.option(
            "--records",
            type=WHOLE,
            help="Number of training records; requires --batch-size and --epochs.",
        ),
        click.option("--batch-size", type=WHOLE, help="Expected number of records in a batch."),
        click.option("--sampler", type=Word(_samplers), metavar="NAME", help=samplers + without),
    )


@click.command(cls=QuestionCommand, target=BRACKET, sections=_RUN_SECTION)
@_training_run_options(
    "Without --sampler the command prints a table of ε upper bounds for all samplers. Without "
    "--relation the table is for all relations."
)
@click.option(
    "--explain",
    is_flag=True,
    help="Also print what ε means for one client, as bounds on the success of membership "
    "inference.",
)
@click.option(
    "--prior",
    type=float,
    help="With --explain: another prior probability that the client takes part, strictly between "
    "0 and 1, from which the attacker starts. The prior 0.5 is always included.",
)
@click.option(
    "--picture",
    type=TEXT_PATH,
    metavar="FILE",
    help="With --explain: draw the error rates of an attacker and the privacy curve δ(ε) into a "
    ".svg, .png or .pdf file.",
)
@import_option
@json_option
def account(
    as_json: bool, explain: bool, prior: float | None, picture: str | None, **flags: Any
) -> None:
    """Print an upper and a lower bound on the ε of a scheme, in each direction of the relation.

    A scheme consists of a participation, a randomizer and a neighbouring relation. The command
    reads no data.
    """
    # Refuse options that need --explain, before anything is imported or computed.
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
    # A training run with several samplers or relations: a table of upper bounds, which --explain
    # cannot explain.
    if run is not None and _is_table(run):
        if explain:
            expected = "only with --relation and one --sampler"
            raise ParameterError("--explain", explain, expected)
        show(_sampler_table(run), as_json=as_json)
        return
    # One scheme: bounds, the explanation, and the picture before the printed output.
    with spinner("computing ε"):
        found = answered(parse_query(flags)) if run is None else _answered_run(run)
        found = explained(found, prior=prior) if explain else found
    if path is not None:
        found.plot().write(path)
    show(found, as_json=as_json)


def _training_run(flags: dict[str, Any], *needed: str) -> dict[str, Any] | None:
    """Settings of a training run and of its privacy target; None without ``--records``.

    Args:
        flags: values of all options by name; the options of a training run are removed from it.
        needed: names of further options that must be given.

    Raises:
        ParameterError: an option is missing, or another option does not describe a training run.
    """
    # Separate the options of a training run from the others.
    run = {name: flags.pop(name) for name in _RUN}
    given = {name: value for name, value in flags.items() if value is not None}
    with flags_named():
        # Without --records, no option of a training run may be given.
        if run["records"] is None:
            for name, value in run.items():
                if value is not None:
                    raise ParameterError(name, value, "only with --records")
            return None
        # With --records, only options of a training run and of its target may be given, and those
        # without a default must be.
        for name, value in given.items():
            if name not in ("epochs", *needed, "relation", "tolerance"):
                raise ParameterError(
                    name, value, "no value, since --records describes a training run"
                )
        for name in ("batch_size", "epochs", *needed):
            if (run | given).get(name) is None:
                raise ParameterError(name, MISSING, "a value, which --records requires")
    return run | given


def _is_table(run: dict[str, Any]) -> bool:
    """Whether the options request several samplers or relations, which a table compares."""
    return run["sampler"] is None or "relation" not in run


def _sampler_table(run: dict[str, Any]) -> SamplerComparison:
    """Upper bounds on ε, or the least noise, of a training run by sampler and relation."""
    from turnout.api.training_run import compare_samplers
    from turnout.reporting.progress import progress_bar

    with flags_named(), progress_bar("calibrating" if "epsilon" in run else "computing ε") as watch:
        return compare_samplers(**run, watch=watch)


def _answered_run(run: dict[str, Any]) -> Price:
    """Bounds on ε of a training run with one sampler and one relation."""
    from turnout.api.training_run import training_run

    target = {name: run.pop(name) for name in ("delta", "tolerance") if name in run}
    with flags_named():
        return price(training_run(**run), **target)


_UNKNOWNS = (
    "noise noise-multiplier scale epsilon0 standard-deviation window windows probability rate "
    "steps picks epochs rounds sampled clients delta"
)


@click.command(cls=QuestionCommand, target=BRACKET, sections=_RUN_SECTION)
@click.option("--epsilon", type=float, help="Target ε; the ε upper bound does not exceed it.")
@click.option(
    "--solve-for",
    type=Word(_UNKNOWNS.split),
    metavar="NAME",
    default="noise",
    help="Name of the option whose value the command finds; leave this option itself out. One of "
    "noise-multiplier, scale, epsilon0, standard-deviation, window, windows, probability, rate, "
    "steps, picks, epochs, rounds, sampled, clients or delta. The default is the noise option of "
    "the randomizer, which is one of the first four.",
)
@_training_run_options(
    "Without --sampler the command prints a table of noise multipliers for all samplers. Without "
    "--relation the table is for all relations."
)
@import_option
@json_option
def calibrate(as_json: bool, solve_for: str, **flags: Any) -> None:
    """Find the least noise, or the value of another parameter, that meets a target ε.

    The ε upper bound at the printed value is at most the target. For noise, the window, the number
    of clients and δ the command prints the smallest such value. For every other parameter it prints
    the largest such value.
    """
    from turnout.plans.questions import parse_query
    from turnout.reporting.progress import spinner

    run = _training_run(flags, "epsilon", "delta")
    if run is not None and solve_for not in (NOISE, "noise-multiplier"):
        raise ParameterError("--solve-for", solve_for, f"{NOISE!r} with --records")
    if run is not None and _is_table(run):
        show(_sampler_table(run), as_json=as_json)
        return
    with spinner("calibrating"):
        found = (
            solved(parse_query(flags, solve_for), solve_for) if run is None else _solved_run(run)
        )
    show(found, as_json=as_json)


def _solved_run(run: dict[str, Any]) -> CalibratedPrice:
    """Least noise multiplier of a training run that meets the target ε."""
    from turnout.api.training_run import least_noise

    target = {name: run.pop(name) for name in ("epsilon", "delta", "tolerance") if name in run}
    with flags_named():
        return least_noise(run, **target)


_SECTIONS = {
    "Scheme and swept parameter": ("scheme", "against", "first", "last", "points"),
    "With --scheme check-in": ("noise_multiplier", "window", "windows"),
    "With --scheme shuffle": ("epsilon0", "rounds", "sampled"),
    "With both schemes": ("clients", "delta", "relation", "tolerance", "beside", "imported"),
}

_SWEPT = "noise-multiplier window windows epsilon0 clients rounds delta"


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.option(
    "--scheme",
    type=Word(lambda: ("check-in", "shuffle")),
    metavar="NAME",
    help="Scheme to compare: check-in (default) or shuffle.",
)
@click.option(
    "--against",
    type=Word(_SWEPT.split),
    metavar="NAME",
    help="Swept parameter. With --scheme check-in it is required: noise-multiplier, window or "
    "windows. With --scheme shuffle it is one of epsilon0, clients, rounds and delta; without "
    "--against, the methods are compared at one point.",
)
@click.option("--from", "first", type=float, help="First value of the swept parameter.")
@click.option("--to", "last", type=float, help="Last value of the swept parameter.")
@click.option(
    "--points",
    type=WHOLE,
    help="Number of values of the swept parameter, from 2 to 1000; default 12. The values are "
    "evenly spaced on a logarithmic scale.",
)
@option_of(setting_of(GaussianNoise, "noise_multiplier"))
@option_of(setting_of(CheckIn, "window"))
@option_of(setting_of(CheckIn, "windows"))
@option_of(setting_of(Shuffle, "clients"), "; required with --scheme shuffle")
@option_of(setting_of(PureRandomizer, "epsilon0"))
@option_of(setting_of(Shuffle, "rounds"))
@option_of(setting_of(SubsampledShuffle, "sampled"), "; by default all clients send")
@option_of(setting_of(PrivacyTarget, "delta"), "; required unless --against is delta")
@option_of(
    RELATION_SETTING,
    "; --scheme shuffle allows only replace-one, so --relation is then optional",
)
@option_of(COMPARISON_TOLERANCE, "; a smaller tolerance takes longer to compute")
@click.option(
    "--beside",
    metavar="WORDS",
    multiple=True,
    help="Another participation (with --scheme check-in) or randomizer (with --scheme shuffle) to "
    "compare; a plug-in is allowed. Give its name and the settings that the comparison lacks, "
    "such as 'k-subset picks=2'. The option may be repeated.",
)
@import_option
@click.option(
    "--picture",
    type=TEXT_PATH,
    metavar="FILE",
    help="Draw the sweep into a .svg, .png or .pdf file.",
)
@json_option
def compare(as_json: bool, picture: str | None, **flags: Any) -> None:
    """Print ε as a function of one parameter, computed by several methods.

    With --scheme check-in the methods are random check-in, Poisson sampling, shuffling, no
    amplification, and the published bounds for random check-ins. With --scheme shuffle the methods
    are all implemented bounds for shuffled messages of an ε₀-LDP randomizer. If a method has no
    bound at a value of the parameter, the table has a dash there, and the command prints the reason
    below the table.
    """
    if picture is not None and flags["against"] is None:
        raise ParameterError("--picture", picture, "only with --against")
    from turnout.api.compare import Comparison
    from turnout.plans.sweeps import sweep
    from turnout.reporting.progress import progress_bar

    path = picture_path(picture)
    with flags_named(), progress_bar("comparing") as watch:
        found = Comparison.of(sweep(flags), watch)
    # The picture is first, since a closed pipe may end the printing. If it cannot be written, the
    # numbers are still printed.
    try:
        if path is not None:
            found.plot().write(path)
    finally:
        show(found, as_json=as_json)


_BUDGET_FILE = click.argument("file", type=FILE)


@click.group(cls=Group)
def budget() -> None:
    """Record the spending of a privacy budget, and refuse a window that would exceed the budget."""


@budget.command(cls=QuestionCommand, target=BOUND, sections={"Budget": ("epsilon", "done")})
@click.option("--epsilon", type=float, required=True, help="ε of the budget for the whole run.")
@click.option(
    "--done", type=WHOLE, required=True, metavar="STEPS", help="Number of steps that have been run."
)
@import_option
@json_option
def left(as_json: bool, done: int, **flags: Any) -> None:
    """Print the ε that a run has spent after some steps, and how the run may continue.

    The run follows one scheme, which was fixed before any data were used. The command prints an ε
    upper bound for the steps so far and an ε upper bound for the whole run. It also prints the
    number of further windows that the budget allows, and the least noise for the windows that have
    not begun.
    """
    from turnout.plans.accounts import left as left_of
    from turnout.reporting import budgets
    from turnout.reporting.progress import spinner

    with spinner("computing ε"):
        found, terms = left_of(flags, done)
    budgets.show_left(found, terms, as_json=as_json)


@budget.command(
    "open",
    cls=QuestionCommand,
    target=BOUND,
    sections={"Budget": ("epsilon", "decided", "most_windows")},
)
@_BUDGET_FILE
@click.option(
    "--epsilon", type=float, help="ε of the budget. If it is left out, every window is allowed."
)
@click.option(
    "--decided",
    type=click.Choice(["plan", "releases"]),
    required=True,
    help="How windows are chosen. plan: all windows are chosen before the run, independently of "
    "all releases. releases: each window may depend on earlier releases, and therefore costs a "
    "larger ε.",
)
@click.option(
    "--most-windows",
    type=WHOLE,
    default=1000,
    help="With --decided releases: largest number of windows of the run; default 1000.",
)
@import_option
@json_option
def open_(file: Path, as_json: bool, decided: str, most_windows: int, **flags: Any) -> None:
    """Create the account of a privacy budget in a new file FILE.

    The options describe a typical window. The ε upper bounds of the account hold for all windows
    that are charged later, and are tightest for windows like the typical one. The command itself
    charges no window.
    """
    from turnout.plans.accounts import open_account

    account = open_account(file, flags, adaptive=decided == "releases", most=most_windows)
    _show(account, flags, as_json)


@budget.command(
    cls=QuestionCommand, sections={"Charge to the account": ("label", "times", "answer")}
)
@_BUDGET_FILE
@click.option(
    "--label",
    default="",
    metavar="TEXT",
    help="Name under which the account lists this charge. The default is the settings of the "
    "window or, with --answer, the name of the answer file.",
)
@click.option(
    "--times",
    type=click.IntRange(1),
    default=1,
    help="Number of times that the window is charged, at least 1; default 1.",
)
@click.option(
    "--answer",
    type=FILE,
    metavar="FILE",
    help="Charge an estimate instead of a window. FILE is what a command of turnout estimate "
    "printed with --json; the ε and δ are read from FILE.",
)
@import_option
@json_option
def charge(
    file: Path, as_json: bool, label: str, times: int, answer: Path | None, **flags: Any
) -> None:
    """Charge the privacy loss of a window to the account in FILE, before the window runs.

    If the budget does not allow the window, the exit code is 2 and the account does not change. A
    charged window must run as the options describe it. A window that ends early is charged in full.
    """
    from turnout.plans.accounts import charge as charged
    from turnout.plans.accounts import charge_answer

    # An estimate has its own ε and δ, so no other option may describe the charge.
    if answer is not None:
        if times != 1 or any(value is not None for value in flags.values()):
            raise click.UsageError(
                "--answer charges an estimate once, with the ε and δ in its file: leave out "
                "--times and the options of a window"
            )
        _show(charge_answer(file, answer, label), None, as_json)
        return
    _show(charged(file, flags, label, times), flags, as_json)


@budget.command("show")
@_BUDGET_FILE
@json_option
def show_budget(file: Path, as_json: bool) -> None:
    """Print the charges to the account in FILE, and an upper bound on the ε of all charges."""
    from turnout.plans.accounts import read_account

    _show(read_account(file), None, as_json)


def _show(account: Any, flags: dict[str, Any] | None, as_json: bool) -> None:
    """Print an account and, for a given window, how many more such windows fit the budget."""
    from turnout.plans.accounts import fitting
    from turnout.reporting import budgets

    fits = None if flags is None else fitting(account, flags)
    budgets.show_account(account, fits, as_json=as_json)
