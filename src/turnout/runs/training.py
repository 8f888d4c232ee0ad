"""Training by a plan, from the plan's file to the report and the model file; runs can be resumed.

`train` and `resume` run a plan in a folder. `write_model` and `read_model` store the parameters
with the guarantee and the public facts (`SavedModel`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import StorageError
from turnout.core.files import PLAN, SIMULATOR, write
from turnout.data import ClientData
from turnout.participation.traces import day_profile, trace_statistics
from turnout.plans import AvailabilitySection, Plan, prepare, read_plan
from turnout.plans.sections import ModelSection
from turnout.reporting.summary import (
    Outcome,
    Summary,
    TraceFindings,
    clip_words,
    model_card,
    protection_record,
    test_words,
)
from turnout.reporting.training_report import REPORT, write_report
from turnout.reporting.words import guarantee_record
from turnout.runs.execution import BaselineRun, ReadyRun, Watcher
from turnout.runs.folders import InterruptedRunError, RunFolder, require_new
from turnout.runs.workload import BUILT_IN_TRACE, Beside, ProgressPhase, Workload
from turnout.schemes import AvailabilityCheckIn

CHECKPOINT, EVERYONE_CHECKPOINT, TRACE = "checkpoint.npz", "checkpoint-all.npz", "trace.csv"
BASELINE_CHECKPOINT, WITH_BASELINE = "checkpoint-baseline.npz", "with-baseline"


@dataclass(frozen=True, slots=True)
class Finished:
    """Summary of a finished run, and the location of its report if there is one."""

    folder: Path | None
    summary: Summary


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Runs of a plan: the private run, the run without absences, and the baseline run."""

    workload: Workload
    run: ReadyRun
    everyone: ReadyRun | None = None
    baseline: BaselineRun | None = None


def train(
    source: Path | Plan,
    folder: Path | None,
    watcher: Watcher,
    beside: Beside | None = None,
    baseline: bool = False,
) -> Finished:
    """Summary of a plan's run; the report is written if a folder is given.

    With ``baseline`` the same plan also runs without noise and clipping. Files are written only
    after the checks of the plan, the data, the privacy budget and the model.

    Raises:
        ParameterError: the plan is invalid, or the folder is not empty.
        InterruptedRunError: Ctrl-C stopped the run; the folder holds a checkpoint.
    """
    # The plan and its text, from an object or a file.
    if isinstance(source, Plan):
        plan, text, place = source, source.to_toml(), Path()
    else:
        text, place = read_plan(source), source.parent
        plan = Plan.of_user(text, place, str(source))
    # Data are gathered and the guarantee is computed before the folder is written.
    require_new(folder)
    given = beside or Beside()
    job = _job(lambda phase: given.gathered(plan, place, phase, place), watcher, baseline)
    # The folder keeps all that a resumed run needs.
    if folder is not None:
        if baseline:
            write(folder / SIMULATOR / WITH_BASELINE, "")
        section = plan.participation
        if isinstance(section, AvailabilitySection) and section.trace != BUILT_IN_TRACE:
            write(folder / TRACE, (place / section.trace).read_bytes())
        code = plan.model.module is not None or plan.plugins is not None
        named = plan.data.path is not None or code
        RunFolder(folder).begin(text, place if named else None)
    return _finished(job, folder, text, watcher)


def resume(
    folder: Path, watcher: Watcher, beside: Beside | None = None, baseline: bool = False
) -> Finished:
    """Summary of an interrupted run that is continued, or of a finished run, reported again.

    Objects that were given with the plan must be given again.

    Raises:
        ParameterError: the folder holds no run.
        StorageError: the checkpoint is damaged.
        InterruptedRunError: Ctrl-C stopped the run; the folder holds a checkpoint.
    """
    text = RunFolder(folder).plan_text()
    plan = Plan.of_user(text, RunFolder(folder).place, str(folder / PLAN))
    if isinstance(plan.participation, AvailabilitySection) and (folder / TRACE).is_file():
        section = plan.participation.model_copy(update={"trace": TRACE})
        plan = plan.model_copy(update={"participation": section})
    place = RunFolder(folder).place
    given = beside or Beside()
    baseline = baseline or (folder / SIMULATOR / WITH_BASELINE).is_file()
    job = _job(lambda phase: given.gathered(plan, folder, phase, place), watcher, baseline)
    return _finished(job, folder, text, watcher)


def _job(gathered: Callable[[ProgressPhase], Workload], watcher: Watcher, baseline: bool) -> _Job:
    """Runs of a plan that have passed all checks."""
    with watcher.phase("reading the data") as phase:
        workload = gathered(phase)
    plan = workload.plan
    with watcher.phase("checking the privacy budget"):
        prepared = prepare(plan, workload.population, workload.participation)
    with watcher.phase("building the model and the clients") as phase:
        run = ReadyRun.of(workload, prepared, phase)
        bare = BaselineRun.of(workload, prepared, phase) if baseline else None
    if workload.trace is None:
        return _Job(workload, run, None, bare)
    with watcher.phase("the same without absences") as phase:
        without = prepare(plan, workload.population, _without_absences(workload))
        return _Job(workload, run, ReadyRun.of(workload, without, phase), bare)


def _without_absences(workload: Workload) -> AvailabilityCheckIn:
    """Participation in which every device is always available."""
    section = workload.plan.participation
    assert isinstance(section, AvailabilitySection)
    assert workload.trace is not None
    present = np.ones(workload.trace.shape, dtype=np.bool_)
    return AvailabilityCheckIn(present, section.window, section.probability)


def _finished(job: _Job, folder: Path | None, text: str, watcher: Watcher) -> Finished:
    """Summary of all runs of a plan, with the report written if there is a folder."""
    outcome = job.run.carried_out(checkpoint_place(folder, CHECKPOINT), "training", folder, watcher)
    trace = None
    if job.everyone is not None:
        place = checkpoint_place(folder, EVERYONE_CHECKPOINT)
        without = job.everyone.carried_out(place, "without absences", folder, watcher)
        trace = _findings(job.workload, outcome, without)
    bare = None
    if job.baseline is not None:
        place = checkpoint_place(folder, BASELINE_CHECKPOINT)
        bare = job.baseline.carried_out(place, folder, watcher)
    summary = Summary(outcome, trace, bare)
    if folder is not None:
        _report(folder, summary, text, job.workload.data, watcher)
    return Finished(folder, summary)


def _report(folder: Path, summary: Summary, text: str, data: ClientData, watcher: Watcher) -> None:
    """Write the model and the report; after Ctrl-C the run can be resumed."""
    outcome = summary.outcome
    try:
        with watcher.phase("pricing ε along the run") as phase:
            outcome.spent.epsilon(lambda done: phase.rows("points", done))
        with watcher.phase("writing the report"):
            (folder / REPORT).unlink(missing_ok=True)
            write_model(folder, outcome, data)
            write_report(folder, summary, text)
    except KeyboardInterrupt:
        steps = outcome.history.check_ins.size
        raise InterruptedRunError(folder, steps, steps) from None


def checkpoint_place(folder: Path | None, name: str) -> Path | None:
    """Path of a checkpoint, in the folder that only the simulator may see; None without a folder.

    Raises:
        StorageError: the folder cannot be created.
    """
    return None if folder is None else RunFolder(folder).checkpoint(name)


def _findings(workload: Workload, outcome: Outcome, without: Outcome) -> TraceFindings:
    """Statistics of the trace and of check-ins by time of day, and the run without absences."""
    section = workload.plan.participation
    assert isinstance(section, AvailabilitySection)
    assert workload.trace is not None
    day = (section.steps_per_day, section.first_slot)
    return TraceFindings(
        trace_statistics(workload.trace, *day),
        day_profile(outcome.history.check_ins, *day),
        without,
    )


MODEL, CARD = "model.safetensors", "MODEL_CARD.md"
FORMAT = "turnout model 1"
LAST, AVERAGED = "last", "averaged"
_FACTS = "turnout"
_NEEDED = {
    *("sha256", "handed_out", "guarantee", "model", "module", "features", "target", "outputs"),
    *("input_shape", "input_dtype", "classes", "data"),
}


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """Contents of a model file.

    Attributes:
        parameters: float32 arrays (dimension,) by name: the last iterate and, if it exists, the
            average.
        facts: facts about the run from `facts_of`, and the digest of the parameters.
    """

    parameters: Mapping[str, NDArray[np.float32]]
    facts: Mapping[str, Any]


def write_model(
    folder: Path, outcome: Outcome, data: ClientData, tuned: Mapping[str, Any] | None = None
) -> None:
    """Write the model and the model card; each file is written completely or not at all.

    The card of a tuned model describes the search, and omits metrics, which must not be released.

    Raises:
        StorageError: the folder cannot be written.
    """
    from safetensors.numpy import save

    vectors = {LAST: outcome.last}
    if outcome.prepared.plan.optimizer.averaging != "none":
        vectors[AVERAGED] = outcome.parameters
    kept = {name: np.ascontiguousarray(v, dtype=np.float32) for name, v in vectors.items()}
    facts = facts_of(outcome, data) | {"sha256": _digest(kept)}
    if tuned is not None:
        facts |= {"metrics": {}, "tuned": dict(tuned)}
    text = json.dumps(facts, allow_nan=False, ensure_ascii=False, sort_keys=True)
    write(folder / MODEL, save(kept, {_FACTS: text}))
    write(folder / CARD, model_card(facts))


def facts_of(outcome: Outcome, data: ClientData) -> dict[str, Any]:
    """Public facts of a trained model as JSON-ready values, without counts of participants."""
    # The digest identifies the plan, whose settings are not all stored.
    prepared = outcome.prepared
    plan = prepared.plan
    canonical = json.dumps(plan.model_dump(mode="json"), sort_keys=True)
    # Guarantee, training settings, inputs and outputs, model, and metrics.
    return {
        "format": FORMAT,
        "plan_sha256": hashlib.sha256(canonical.encode()).hexdigest(),
        "guarantee": guarantee_record(prepared.guarantee),
        **protection_record(prepared, outcome.parameters.size),
        "clip_norm": plan.privacy.clip_norm,
        "clip_words": clip_words(prepared),
        "steps": int(prepared.scheme.participation.steps),
        "clients": prepared.population,
        "seed": plan.run.seed,
        "data": data.name,
        "input_shape": list(data.train.inputs.shape[1:]),
        "input_dtype": str(data.train.inputs.dtype),
        "outputs": data.outputs,
        "target": data.target.value,
        "classes": list(data.names),
        "model": plan.model.title,
        "module": _module_facts(plan.model),
        "features": plan.model.features,
        "optimizer": plan.optimizer.model_dump(mode="json"),
        "handed_out": LAST if plan.optimizer.averaging == "none" else AVERAGED,
        "metrics": {name: float(column[-1]) for name, column in outcome.history.metrics.items()},
        "test": test_words(outcome),
    }


def _module_facts(model: ModelSection) -> dict[str, Any] | None:
    """Facts from which a custom module can be rebuilt; None for a built-in model."""
    if model.name is not None:
        return None
    keys = {"module", "arguments", "pretrained", "trainable", "lora"}
    return model.model_dump(mode="json", include=keys)


def read_model(folder: Path) -> SavedModel:
    """Model in a run's folder; no code of the file is executed, and nothing is unpickled.

    Raises:
        StorageError: the folder has no model, or the file is damaged or not written by turnout.
    """
    # The error for a folder without a model states how a model is written.
    path = folder / MODEL
    if not path.is_file():
        run = (folder / PLAN).is_file()
        cause = f"no {MODEL}; write it with: turnout train --resume {folder}" if run else "no run"
        raise StorageError(f"{folder}: {cause}")
    # The format and the fields of the metadata.
    tensors, metadata = _contents(path)
    try:
        facts = json.loads(metadata[_FACTS])
        known = facts["format"] == FORMAT
    except (KeyError, TypeError, ValueError):
        raise StorageError(f"{path}: not a model file of turnout") from None
    if not known:
        raise StorageError(f"{path}: format = {facts['format']!r}: expected {FORMAT!r}")
    if not set(facts) >= _NEEDED:
        raise StorageError(f"{path}: damaged: a field of the model file is missing")
    # The parameters must have the digest that the metadata states.
    if facts["sha256"] != _digest(tensors) or facts["handed_out"] not in tensors:
        raise StorageError(f"{path}: damaged: its parameters do not match their digest")
    return SavedModel(tensors, facts)


def _contents(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors by name, and metadata, of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise StorageError(f"{path}: damaged, or not a safetensors file: {error}") from None


def _digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of all tensors (name, type, shape, bytes) in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        vector = tensors[name]
        digest.update(f"{name} {vector.dtype.str} {vector.shape}\n".encode())
        digest.update(vector.tobytes())
    return digest.hexdigest()
