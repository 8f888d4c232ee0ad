"""Commands of plans and models: ``train``, ``tune``, ``bandit``, ``predict`` and ``audit``.

`train` runs a plan, `tune` searches for settings of a plan, `bandit` simulates a bandit, `predict`
applies a trained model, and `audit` measures a lower bound on the ε of a plan. Each command calls
the function of `turnout.api` with its name, and prints the result or the path of the report.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import (
    BUILT_IN,
    EXAMPLE_PLAN,
    PATH,
    WHOLE,
    Command,
    import_option,
    next_step,
    show,
)
from turnout.core.errors import InputFileError, ParameterError
from turnout.core.optional import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from turnout.api.audit import Audit
    from turnout.learning.tasks import Executor


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--example",
    type=EXAMPLE_PLAN,
    metavar="NAME",
    help="Example plan to use instead of PLAN: digits, fashion, mnist, mnist-shuffled, "
    "mnist-sampled, mnist-self-sampling, phones or trial. The default of --out is then runs/NAME.",
)
@click.option("--print-plan", is_flag=True, help="Print the plan and exit.")
@click.option(
    "--out",
    metavar="DIR",
    type=PATH,
    help="New or empty folder for the checkpoints, the model and the report.",
)
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Continue the interrupted run in DIR.",
)
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Engine that computes the clients' updates. local: threads of this process. ray: workers "
    "of a Ray cluster. Both engines return bit-for-bit the same results.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="With --engine ray: address of the cluster, such as auto or ray://host:10001. By default "
    "a cluster is started on this machine.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --engine ray: number of processors that compute, at least 1. By default all "
    "processors of the cluster compute.",
)
@click.option(
    "--baseline",
    is_flag=True,
    help="Also run the plan without noise and clipping, to compare the accuracies. This baseline "
    "has no privacy guarantee.",
)
@import_option
def train(
    plan: Path | None,
    example: str | None,
    *,
    print_plan: bool,
    out: Path | None,
    resume: Path | None,
    engine: str,
    address: str | None,
    workers: int | None,
    baseline: bool,
) -> int:
    """Train the model of PLAN (a TOML file), and write a report into DIR.

    Before the first step, the command calibrates the noise to the target ε of PLAN. If no noise
    meets this ε, the command refuses PLAN.
    """
    # Exactly one source of the run, and options that fit it.
    if out is None and example is not None:
        out = Path("runs", example)
    one = sum(given is not None for given in (plan, example, resume)) == 1
    if not one or not (out or resume or print_plan):
        raise click.UsageError("give PLAN and --out DIR, or --example NAME, or --resume DIR")
    if engine != "ray" and (address is not None or workers is not None):
        raise click.UsageError("--address and --workers are allowed only with --engine ray")
    if print_plan:
        return _print(plan, example)
    require("train", what="turnout train")
    from turnout.api import train as training
    from turnout.reporting.console import Console
    from turnout.reporting.training_report import PAGE
    from turnout.runs import InterruptedRunError

    # Run on the chosen engine; Ctrl-C leaves a checkpoint, and the exit code is that of a signal.
    try:
        with _engine(engine, address, workers) as chosen:
            run = training.train(
                plan,
                out,
                example=example,
                resume=resume,
                engine=chosen,
                baseline=baseline,
                progress=True,
            )
    except InterruptedRunError as stop:
        click.echo(f"turnout: {stop}", err=True)
        return 130
    # Print the results and the path of the report.
    assert run.folder is not None
    Console().report(run.summary, run.folder)
    next_step(f"open {run.folder / PAGE}, and predict with: turnout predict {run.folder} DATA")
    return 0


def _engine(
    name: str, address: str | None, workers: int | None
) -> AbstractContextManager[Executor | None]:
    """Context in which the named engine runs; yields None for the local engine."""
    if name == "local":
        return nullcontext()
    require("ray", what="turnout train")
    from turnout.integrations.ray import RayEngine

    return RayEngine(address, workers)


def _print(plan: Path | None, example: str | None) -> int:
    """Print a plan, or an example plan, as TOML."""
    from turnout.plans import example_plan, read_plan

    file = plan if example is None else example_plan(example)
    if file is None:
        raise click.UsageError("--print-plan: give PLAN or --example NAME")
    click.echo(read_plan(file), nl=False)
    return 0


def _require_start_or_resume(plan: Path | None, out: Path | None, resume: Path | None) -> None:
    """Require either a plan and a folder for its run, or the folder of a run to resume."""
    if (plan is None) == (resume is None) or (plan is None) != (out is None):
        raise click.UsageError("give PLAN and --out DIR, or --resume DIR")


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--out", metavar="DIR", type=PATH, help="New or empty folder for the search and its results."
)
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Continue the interrupted search in DIR.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@import_option
def tune(plan: Path | None, out: Path | None, resume: Path | None, as_json: bool) -> int:
    """Search for settings of PLAN, a TOML file with a table [tune].

    Runs are compared on held-out training clients, never on the test set. If [tune.data] names a
    public data set, the search adds nothing to ε. A search on the clients of the plan spends at
    most privacy.epsilon. DIR then contains the model of the best run, and nothing of any other run.
    """
    _require_start_or_resume(plan, out, resume)
    require("train", what="turnout tune")
    from turnout.api import tune as tuning
    from turnout.runs import InterruptedRunError

    # Run the search; Ctrl-C leaves the runs that are finished.
    folder = out or resume
    try:
        found = tuning.tune(plan, out, resume=resume, progress=True)
    except InterruptedRunError:
        click.echo(f"turnout: stopped; go on with: turnout tune --resume {folder}", err=True)
        return 130
    # Print the best values, and where the plan with these values is.
    show(found, as_json=as_json)
    if not as_json:
        click.echo(f"  plan with these values: {folder}/plan.toml")
        if found.plan.data.path is not None:
            click.echo(
                "to train with it, copy it to the folder of PLAN: its paths are relative to that "
                "folder"
            )
    return 0


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--out", metavar="DIR", type=PATH, help="New or empty folder for the runs and the report."
)
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Continue the interrupted runs in DIR.",
)
def bandit(plan: Path | None, out: Path | None, resume: Path | None) -> int:
    """Simulate the bandit of PLAN (a TOML file), and write a report into DIR.

    The report contains the regret over all runs, and an upper and a lower bound on ε. The privacy
    unit is the reward of one client.
    """
    _require_start_or_resume(plan, out, resume)
    require("train", what="turnout bandit")
    from turnout.api import bandit as bandits
    from turnout.reporting.training_report import PAGE
    from turnout.runs import InterruptedRunError

    try:
        found = bandits.bandit(plan, out, resume=resume, progress=True)
    except InterruptedRunError as stop:
        click.echo(f"turnout: {stop}", err=True)
        return 130
    show(found, as_json=False)
    assert found.folder is not None
    click.echo(f"  report: {found.folder / PAGE}")
    return 0


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("data")
@click.option(
    "--out",
    metavar="FILE",
    type=PATH,
    help="File for the predictions, .csv or .npy. By default the command prints a CSV table.",
)
def predict(folder: Path, data: str, out: Path | None) -> int:
    """Predict with the trained model of the run in DIR.

    DATA is a .npy file of inputs, a .npz file with an array "inputs", or a file with the columns
    that the plan in DIR names. DATA can also be digits, mnist or fashion-mnist for the test set of
    this name. The CSV table contains the predicted class and the scores of each record. The .npy
    file contains only the scores.
    """
    # Refuse an unknown format before PyTorch is imported.
    if out is not None and out.suffix not in (".csv", ".npy"):
        raise ParameterError("out", str(out), "a .csv or .npy file")
    require("train", what="turnout predict")
    from turnout.api.train import load
    from turnout.core.files import write

    # Compute the scores of all records, then write them.
    model = load(folder)
    scores = model.scores(_inputs(data, folder))
    if out is None:
        click.echo(_csv(scores, model.saved.facts["classes"]), nl=False)
    else:
        csv = out.suffix == ".csv"
        write(out, _csv(scores, model.saved.facts["classes"]) if csv else _npy(scores))
    return 0


def _inputs(data: str, folder: Path) -> NDArray[Any]:
    """Inputs of a file or of a built-in test set, shape (records, …); nothing is unpickled.

    Raises:
        InputFileError: the file cannot be read, or has no array of inputs.
        ParameterError: the plan of the run names no columns to read.
    """
    # Built-in test sets, by name.
    import numpy as np

    from turnout import data as datasets

    if data in BUILT_IN:
        try:
            return datasets.load_images(data).test.inputs
        except datasets.MissingFileError as error:
            raise InputFileError(str(error)) from None
    # Other formats need the columns that the plan names.
    if Path(data).suffix not in (".npy", ".npz"):
        return _read_as_planned(data, folder)
    try:
        found = np.load(data, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else found["inputs"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputFileError(f"{data}: expected an array of inputs ({error})") from None


def _read_as_planned(data: str, folder: Path) -> NDArray[Any]:
    """Inputs of a file with the columns that the plan of a run names."""
    from turnout import data as datasets
    from turnout.core.files import PLAN
    from turnout.plans import Plan, read_plan
    from turnout.plans.data_sections import DataSection

    # The other tables are not read: they may name plug-ins, and a run may be somebody else's.
    tables = Plan.tables_from_toml(read_plan(folder / PLAN), str(folder / PLAN))
    section = DataSection.model_validate(tables.get("data", {}))
    if section.path is None:
        raise ParameterError("data", data, f"a .npy or .npz file, or {', '.join(BUILT_IN)}")
    return datasets.own_records(section, Path(data)).inputs


def _csv(scores: NDArray[Any], names: list[str]) -> str:
    """CSV text with one row for each record: its class, and the scores of all classes."""
    import csv

    names = names or [str(k) for k in range(scores.shape[1])]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["class", *(f"score {name}" for name in names)])
    writer.writerows([names[row.argmax()], *row.tolist()] for row in scores)
    return file.getvalue()


def _npy(scores: NDArray[Any]) -> bytes:
    """Content of a .npy file with the scores."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, scores)
    return file.getvalue()


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option(
    "--example",
    type=EXAMPLE_PLAN,
    metavar="NAME",
    help="Example plan to use instead of PLAN, such as digits.",
)
@click.option(
    "--trials",
    type=WHOLE,
    metavar="N",
    default=None,
    show_default="100000; 10000 with --served",
    help="Number of runs with the client, at least 100. The number of runs without the client is "
    "the same.",
)
@click.option(
    "--confidence",
    type=float,
    metavar="P",
    default=0.999,
    show_default=True,
    help="Confidence level of the audit: the probability that no lower bound exceeds the true ε "
    "is at least P.",
)
@click.option(
    "--deployed",
    is_flag=True,
    help="Audit the integer updates and noise of turnout serve, instead of the floating-point "
    "numbers of a simulation.",
)
@click.option(
    "--served",
    is_flag=True,
    help="Audit a task as turnout serve runs it, with its database and restarts, instead of the "
    "mechanism alone.",
)
@click.option(
    "--one-run",
    is_flag=True,
    help="Audit one training run with many canaries, instead of many runs of the mechanism alone.",
)
@click.option(
    "--canaries",
    type=WHOLE,
    metavar="M",
    default=None,
    show_default="10000",
    help="With --one-run: number of canaries. A canary is a client whose update has a coordinate "
    "that no other client changes.",
)
@click.option(
    "--seed",
    type=WHOLE,
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of all random streams of the audit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--out",
    metavar="DIR",
    type=PATH,
    help="Folder for the file audit.json and the picture audit.svg; --one-run has no picture.",
)
@import_option
def audit(
    plan: Path | None,
    example: str | None,
    *,
    trials: int | None,
    confidence: float,
    deployed: bool,
    served: bool,
    one_run: bool,
    canaries: int | None,
    seed: int,
    as_json: bool,
    out: Path | None,
) -> int:
    """Measure a lower bound on the ε of PLAN (a TOML file) by a distinguishing game.

    The audit runs the sampler and the mechanism of training with and without one client, and this
    client sends the worst possible update. The exit code is 0 if the measured lower bound is at
    most the ε upper bound. The exit code is 1 if the lower bound exceeds the upper bound, so
    the running code does not have the stated guarantee.
    """
    if (plan is None) == (example is None):
        raise click.UsageError("give PLAN, or --example NAME")
    from turnout.api import audit as audits
    from turnout.reporting.progress import progress_bar

    # Run the audit; a progress bar counts the trials, or the steps of the one run.
    with progress_bar("steps" if one_run else "trials") as tell:
        found = audits.audit(
            plan,
            example=example,
            trials=trials,
            confidence=confidence,
            deployed=deployed,
            served=served,
            one_run=one_run,
            canaries=canaries,
            seed=seed,
            tell=tell,
        )
    # Print the bounds and write the files; the exit code is 1 if the upper bound is violated.
    show(found, as_json=as_json)
    if out is not None:
        _write(found, out, one_run)
    return 0 if found.consistent else 1


def _write(found: Audit, out: Path, one_run: bool) -> None:
    """Write audit.json, and audit.svg unless the audit used one run, which has no picture."""
    from turnout.core.files import write
    from turnout.reporting.training_report import as_json

    write(out / "audit.json", as_json(found.to_dict()))
    if not one_run:
        found.plot().write(out / "audit.svg")
