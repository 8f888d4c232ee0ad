"""Commands of runs: ``train``, ``tune``, ``bandit``, ``predict`` and ``audit``.

Each runs a plan through `turnout.runs` or `turnout.api` and prints where its report is.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.options import PATH, WHOLE, Command, show
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
    metavar="NAME",
    help="An example in place of PLAN: digits, fashion, mnist, mnist-shuffled, mnist-sampled, "
    "mnist-self-sampling, phones or trial; into runs/NAME by default.",
)
@click.option("--print-plan", is_flag=True, help="Print the plan, and do nothing else.")
@click.option("--out", metavar="DIR", type=PATH, help="Where the run goes.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the run in DIR, which was stopped or killed.",
)
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="What computes clients' updates: threads of this process, or workers of a Ray cluster, to "
    "the same bits.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Of --engine ray: the cluster, such as auto or ray://host:10001; by default one that is "
    "started on this machine.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of --engine ray: processors that compute; by default all.",
)
@click.option(
    "--baseline",
    is_flag=True,
    help="Run the plan without noise and clipping too, to see what privacy costs; that result "
    "protects nobody.",
)
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
    """Trains the model of PLAN (a TOML file) and writes a report into DIR.

    The privacy budget is checked, and the noise calibrated to it, before anything runs.
    """
    if out is None and example is not None:
        out = Path("runs", example)
    one = sum(given is not None for given in (plan, example, resume)) == 1
    if not one or not (out or resume or print_plan):
        raise click.UsageError("give PLAN and --out DIR, or --example NAME, or --resume DIR")
    if engine != "ray" and (address is not None or workers is not None):
        raise click.UsageError("--address and --workers are of --engine ray")
    if print_plan:
        return _print(plan, example)
    require("train", what="turnout train")
    from turnout.api import train as training
    from turnout.reporting.console import Console
    from turnout.runs import InterruptedRunError

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
    assert run.folder is not None
    Console().report(run.summary, run.folder)
    return 0


def _engine(
    name: str, address: str | None, workers: int | None
) -> AbstractContextManager[Executor | None]:
    """Context with the running engine of a name."""
    if name == "local":
        return nullcontext()
    require("ray", what="turnout train")
    from turnout.integrations.ray import RayEngine

    return RayEngine(address, workers)


def _print(plan: Path | None, example: str | None) -> int:
    """Print a plan as TOML."""
    from turnout.plans import example_plan, read_plan

    file = plan if example is None else example_plan(example)
    if file is None:
        raise click.UsageError("--print-plan prints PLAN or --example NAME")
    click.echo(read_plan(file), nl=False)
    return 0


def _require_start_or_resume(plan: Path | None, out: Path | None, resume: Path | None) -> None:
    """Require either a plan with its folder, or the folder of a run to resume."""
    if (plan is None) == (resume is None) or (plan is None) != (out is None):
        raise click.UsageError("give PLAN and --out DIR, or --resume DIR")


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--out", metavar="DIR", type=PATH, help="Where the search goes.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the search in DIR, which was stopped or killed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def tune(plan: Path | None, out: Path | None, resume: Path | None, as_json: bool) -> int:
    """Searches for settings of PLAN (a TOML file with a table [tune]).

    Runs are compared on held-out training clients, never on the test set. With [tune.data], a
    public data set, the search is free. On the plan's own clients it has a price, which is within
    privacy.epsilon: DIR then holds the best run's model, and nothing of any other run.
    """
    _require_start_or_resume(plan, out, resume)
    require("train", what="turnout tune")
    from turnout.api import tune as tuning
    from turnout.runs import InterruptedRunError

    folder = out or resume
    try:
        found = tuning.tune(plan, out, resume=resume, progress=True)
    except InterruptedRunError:
        click.echo(f"turnout: stopped; go on with: turnout tune --resume {folder}", err=True)
        return 130
    show(found, as_json=as_json)
    if not as_json:
        click.echo(f"  plan with these values: {folder}/plan.toml")
        if found.plan.data.path is not None:
            click.echo("  its paths are relative to where PLAN is: copy it there to train with it")
    return 0


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--out", metavar="DIR", type=PATH, help="Where the runs go.")
@click.option(
    "--resume",
    metavar="DIR",
    type=PATH,
    help="Go on with the runs in DIR, which were stopped or killed.",
)
def bandit(plan: Path | None, out: Path | None, resume: Path | None) -> int:
    """Simulates the bandit of PLAN (a TOML file) and writes a report into DIR.

    The report has the regret over all runs, and ε of one client's reward from both sides.
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


_BUILT_IN = ("digits", "mnist", "fashion-mnist")


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("data")
@click.option("--out", metavar="FILE", type=PATH, help="A .csv or .npy file in place of stdout.")
def predict(folder: Path, data: str, out: Path | None) -> int:
    """Predicts with the model of the run in DIR.

    DATA is a .npy file of inputs, a .npz file with an array "inputs", or digits, mnist or
    fashion-mnist for their test sets; or a file that the plan in DIR can read, with the same
    columns. A CSV has the class and the scores of each record; a .npy
    file has the scores.
    """
    if out is not None and out.suffix not in (".csv", ".npy"):
        raise ParameterError("out", str(out), "a .csv or .npy file")
    require("train", what="turnout predict")
    from turnout.api.train import load
    from turnout.core.files import write

    model = load(folder)
    scores = model.scores(_inputs(data, folder))
    if out is None:
        click.echo(_csv(scores, model.saved.facts["classes"]), nl=False)
    else:
        csv = out.suffix == ".csv"
        write(out, _csv(scores, model.saved.facts["classes"]) if csv else _npy(scores))
    return 0


def _inputs(data: str, folder: Path) -> NDArray[Any]:
    """Inputs from a file, or of a built-in test set; nothing is unpickled."""
    import numpy as np

    from turnout import data as datasets

    if data in _BUILT_IN:
        try:
            return datasets.load_images(data).test.inputs
        except datasets.MissingFileError as error:
            raise InputFileError(str(error)) from None
    if Path(data).suffix not in (".npy", ".npz"):
        return _read_as_planned(data, folder)
    try:
        found = np.load(data, allow_pickle=False)
        return found if isinstance(found, np.ndarray) else found["inputs"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise InputFileError(f"{data}: no array of inputs: {error}") from None


def _read_as_planned(data: str, folder: Path) -> NDArray[Any]:
    """Inputs from a file with the columns of the run's plan."""
    from turnout import data as datasets
    from turnout.core.files import PLAN
    from turnout.plans import Plan, read_plan

    section = Plan.from_toml(read_plan(folder / PLAN)).data
    if section.path is None:
        raise ParameterError("data", data, f"a .npy or .npz file, or {', '.join(_BUILT_IN)}")
    return datasets.own_records(section, Path(data)).inputs


def _csv(scores: NDArray[Any], names: list[str]) -> str:
    """CSV with one row for each record: its class and the score of each class."""
    import csv

    names = names or [str(k) for k in range(scores.shape[1])]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["class", *(f"score {name}" for name in names)])
    writer.writerows([names[row.argmax()], *row.tolist()] for row in scores)
    return file.getvalue()


def _npy(scores: NDArray[Any]) -> bytes:
    """Scores as a .npy file."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, scores)
    return file.getvalue()


@click.command(cls=Command)
@click.argument("plan", required=False, type=PATH)
@click.option("--example", metavar="NAME", help="An example in place of PLAN, such as digits.")
@click.option(
    "--trials",
    type=WHOLE,
    metavar="N",
    default=None,
    show_default="100000; 10000 with --served",
    help="Runs with the client, and as many without it.",
)
@click.option(
    "--confidence",
    type=float,
    metavar="P",
    default=0.999,
    show_default=True,
    help="The chance that no lower bound exceeds the true ε, at least.",
)
@click.option(
    "--deployed",
    is_flag=True,
    help="The whole-number updates and noise of turnout serve, in place of a simulation's floats.",
)
@click.option(
    "--served",
    is_flag=True,
    help="A task as turnout serve runs it, with its database and restarts.",
)
@click.option(
    "--one-run",
    is_flag=True,
    help="One training run with many canaries, in place of many runs of the mechanism alone.",
)
@click.option(
    "--canaries",
    type=WHOLE,
    metavar="M",
    default=None,
    show_default="10000",
    help="Of --one-run: clients whose updates nobody else touches.",
)
@click.option("--seed", type=WHOLE, metavar="N", default=0, show_default=True, help="Of all draws.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--out", metavar="DIR", type=PATH, help="Where audit.json and a picture go.")
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
    """Plays the distinguishing game against what PLAN (a TOML file) really runs.

    Sampler and mechanism are those of training; the client whose privacy is at stake sends the
    worst update that there is. Ends with 0 where the lower bound found is within the proved upper
    bound, and with 1 where it is above: then what runs is not what was priced.
    """
    if (plan is None) == (example is None):
        raise click.UsageError("give PLAN, or --example NAME")
    from turnout.api import audit as audits
    from turnout.reporting.progress import progress_bar

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
    show(found, as_json=as_json)
    if out is not None:
        _write(found, out, one_run)
    return 0 if found.consistent else 1


def _write(found: Audit, out: Path, one_run: bool) -> None:
    """Write audit.json, and a picture if there is one."""
    from turnout.core.files import write
    from turnout.reporting.training_report import as_json

    write(out / "audit.json", as_json(found.to_dict()))
    if not one_run:
        found.plot().write(out / "audit.svg")
