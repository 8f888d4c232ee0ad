"""Running a plan from its file to its report, or going on where a run was stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.errors import ParameterError, StorageError
from turnout.datasets import ClientData
from turnout.participation.traces import day_profile, trace_statistics
from turnout.plans import AvailabilitySection, Plan, prepare, read_plan
from turnout.reporting.folder import PLAN, REPORT, SIMULATOR, write, write_report
from turnout.reporting.summary import Outcome, Summary, TraceFindings
from turnout.spec import AvailabilityCheckIn
from turnout.training.execution import BaselineRun, ReadyRun, Watcher
from turnout.training.folders import RunFolder, require_new
from turnout.training.saved import write_model
from turnout.training.workload import BUILT_IN_TRACE, Phase, Workload, gather

if TYPE_CHECKING:
    from turnout.learning.tasks import Engine

CHECKPOINT, EVERYONE_CHECKPOINT, TRACE = "checkpoint.npz", "checkpoint-all.npz", "trace.csv"
BASELINE_CHECKPOINT, WITH_BASELINE = "checkpoint-baseline.npz", "with-baseline"


@dataclass(frozen=True, slots=True)
class Finished:
    """The location of the report of a finished run, if it has one, and its summary."""

    folder: Path | None
    summary: Summary


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """All that there is to do for a plan: its run, that without absences, that without privacy."""

    workload: Workload
    run: ReadyRun
    everyone: ReadyRun | None = None
    baseline: BaselineRun | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Data and a module beside a plan, whose [data] and [model] then name none; and an engine."""

    data: ClientData | None = None
    module: Any = None
    engine: Engine | None = None

    def gathered(self, plan: Plan, folder: Path, phase: Phase, place: Path) -> Workload:
        """The workload of a plan, whose paths are relative to a place."""
        if self.module is not None:
            plan = self._named(plan)
        workload = gather(plan, folder, self.data, phase, place)
        return replace(workload, module=self.module, engine=self.engine)

    def _named(self, plan: Plan) -> Plan:
        """The plan with the module's name, so that reports say it."""
        if plan.model.title:
            expected = "none where a module is given beside it"
            raise ParameterError("model.name", plan.model.title, expected)
        kind = self.module if isinstance(self.module, type) else type(self.module)
        name = f"{kind.__module__}:{kind.__qualname__}"
        return plan.model_copy(update={"model": plan.model.model_copy(update={"module": name})})


def train(
    source: Path | Plan,
    folder: Path | None,
    watcher: Watcher,
    beside: Beside | None = None,
    baseline: bool = False,
) -> Finished:
    """Runs a plan, from its file or as an object, and writes its report if there is a folder.

    With ``baseline`` the same plan is run without noise and clipping too. Nothing is written before
    the plan is read, its data are at hand, its budget holds and its model fits.

    Raises:
        ParameterError: the plan is refused, or the folder already holds something.
        InterruptedRunError: Ctrl-C; the folder holds a checkpoint.
    """
    if isinstance(source, Plan):
        plan, text, place = source, source.to_toml(), Path()
    else:
        text, place = read_plan(source), source.parent
        plan = Plan.from_toml(text, str(source))
    require_new(folder)
    given = beside or Beside()
    job = _job(lambda phase: given.gathered(plan, place, phase, place), watcher, baseline)
    if folder is not None:
        if baseline:
            write(folder / SIMULATOR / WITH_BASELINE, "")
        section = plan.participation
        if isinstance(section, AvailabilitySection) and section.trace != BUILT_IN_TRACE:
            write(folder / TRACE, (place / section.trace).read_bytes())
        named = plan.data.path is not None or plan.model.module is not None
        RunFolder(folder).begin(text, place if named else None)
    return _finished(job, folder, text, watcher)


def resume(
    folder: Path, watcher: Watcher, beside: Beside | None = None, baseline: bool = False
) -> Finished:
    """Goes on with a run that was stopped or killed; a finished one is reported again.

    What was given beside the plan is given again.

    Raises:
        ParameterError: the folder holds no run.
        StorageError: its checkpoint is damaged.
        InterruptedRunError: Ctrl-C; the folder holds a checkpoint.
    """
    text = RunFolder(folder).plan_text()
    plan = Plan.from_toml(text, str(folder / PLAN))
    if isinstance(plan.participation, AvailabilitySection) and (folder / TRACE).is_file():
        section = plan.participation.model_copy(update={"trace": TRACE})
        plan = plan.model_copy(update={"participation": section})
    place = RunFolder(folder).place
    given = beside or Beside()
    baseline = baseline or (folder / SIMULATOR / WITH_BASELINE).is_file()
    job = _job(lambda phase: given.gathered(plan, folder, phase, place), watcher, baseline)
    return _finished(job, folder, text, watcher)


def _job(gathered: Callable[[Phase], Workload], watcher: Watcher, baseline: bool) -> _Job:
    """Everything that can be refused is refused here."""
    with watcher.phase("reading the data") as phase:
        workload = gathered(phase)
    plan = workload.plan
    with watcher.phase("checking the privacy budget"):
        prepared = prepare(plan, workload.population, workload.law)
    with watcher.phase("building the model and the clients") as phase:
        run = ReadyRun.of(workload, prepared, phase)
        bare = BaselineRun.of(workload, prepared, phase) if baseline else None
    if workload.trace is None:
        return _Job(workload, run, None, bare)
    with watcher.phase("the same without absences") as phase:
        without = prepare(plan, workload.population, _without_absences(workload))
        return _Job(workload, run, ReadyRun.of(workload, without, phase), bare)


def _without_absences(workload: Workload) -> AvailabilityCheckIn:
    """The law in which every phone is always available."""
    section = workload.plan.participation
    assert isinstance(section, AvailabilitySection)
    assert workload.trace is not None
    present = np.ones(workload.trace.shape, dtype=np.bool_)
    return AvailabilityCheckIn(present, section.window, section.probability)


def _finished(job: _Job, folder: Path | None, text: str, watcher: Watcher) -> Finished:
    """Training, comparison and report."""
    outcome = job.run.carried_out(_checkpoint(folder, CHECKPOINT), "training", folder, watcher)
    trace = None
    if job.everyone is not None:
        place = _checkpoint(folder, EVERYONE_CHECKPOINT)
        without = job.everyone.carried_out(place, "without absences", folder, watcher)
        trace = _findings(job.workload, outcome, without)
    bare = None
    if job.baseline is not None:
        place = _checkpoint(folder, BASELINE_CHECKPOINT)
        bare = job.baseline.carried_out(place, folder, watcher)
    summary = Summary(outcome, trace, bare)
    if folder is not None:
        with watcher.phase("writing the report"):
            (folder / REPORT).unlink(missing_ok=True)
            write_model(folder, outcome, job.workload.data)
            write_report(folder, summary, text)
    return Finished(folder, summary)


def _checkpoint(folder: Path | None, name: str) -> Path | None:
    """A checkpoint's place in the simulator's view: it holds the counts of every step.

    None without a folder.

    Raises:
        StorageError: the run is an earlier version's, or the folder cannot be made.
    """
    if folder is None:
        return None
    once = folder / name
    if once.exists():
        raise StorageError(
            f"{once}: an earlier version of turnout wrote this run, with exact counts of who came "
            "beside its report; it must start anew in another folder"
        )
    return RunFolder(folder).checkpoint(name)


def _findings(workload: Workload, outcome: Outcome, without: Outcome) -> TraceFindings:
    """The trace's statistics, and the cost of its absences."""
    section = workload.plan.participation
    assert isinstance(section, AvailabilitySection)
    assert workload.trace is not None
    day = (section.steps_per_day, section.first_slot)
    return TraceFindings(
        trace_statistics(workload.trace, *day),
        day_profile(outcome.history.check_ins, *day),
        without,
    )
