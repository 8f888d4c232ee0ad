"""Updates of the charter's model on a client's own records.

`trainer_on`, `trainer_on_file`, `trainer_on_dealt` and `trainers_on_split` build the
`UpdateFunction` of `turnout.service.device.step_actions`, once the charter is known: a `Trainer`
(PyTorch), or `turnout.service.graphs.updates.GraphUpdates` where the charter names a graph. A
charter is refused if the plan in the charter names code or contradicts the charter's terms.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError, StorageError
from turnout.core.optional import require
from turnout.protocol.randomized import MessageEncoding
from turnout.schemes import GaussianNoise, NonAdaptiveRandomizer
from turnout.schemes.settings import MISSING
from turnout.service.contract.charter import Charter
from turnout.service.contract.computation import UPDATE_GRAPHS, Computation, checked_labels
from turnout.service.device.step_actions import TrainerOf, UpdateFunction

if TYPE_CHECKING:  # PyTorch and its users are imported when training begins.
    from turnout.learning.algorithm import FedSGD
    from turnout.plans import Plan
    from turnout.runs.workload import Workload


OwnRecords = tuple[NDArray[Any], NDArray[Any]]
"""Inputs and labels of one client, in the form of `turnout.data.Records`."""


class Trainer:
    """Update function that trains a PyTorch model on the records of one client at a time.

    The trainer uses `turnout.learning` and serves the devices of one process.

    Guarantee: an update is a deterministic function of the parameters and of the client's own
    records, bit for bit.

    Args:
        task: model and records.
        only: id of the client whose records ``task`` has under id 0; None if ``task`` has the
            records of all clients under their own ids.
        clips: whether updates are clipped in ℓ2; False under local trust, where the randomizer
            clips in its own norm.
    """

    def __init__(self, task: FedSGD, only: int | None = None, *, clips: bool = True) -> None:
        self._task, self._only, self._clips = task, only, clips

    def update(self, parameters: NDArray[np.float32], client: int) -> NDArray[np.floating]:
        """Update of the client, shape ``(d,)``; zeros for a client without records.

        Raises:
            ParameterError: the trainer has the records of another client.
        """
        if self._only is not None and client != self._only:
            raise ParameterError("client", client, f"{self._only}, the client with these records")
        position = client if self._only is None else 0
        chosen = np.array([position])
        if self._clips:
            return self._task.clipped_sum(parameters, chosen).total
        parts = list(self._task.updates(parameters, chosen, lambda _, rows: rows))
        rows = np.concatenate(parts) if parts else np.zeros((0, self._task.dimension))
        return rows[0] if len(rows) else np.zeros(self._task.dimension, np.float32)


def npz_records(path: Path) -> OwnRecords:
    """Records of one client from an .npz file.

    Args:
        path: file with the arrays ``inputs``, shape ``(records, …)``, uint8 (fractions of 255),
            float16 or float32, and ``labels``, a number or a row of numbers for each record.

    Raises:
        ParameterError: the file does not exist, or has other arrays.
        StorageError: the file cannot be read.
    """
    expected = "an .npz file with the arrays inputs and labels"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            inputs, labels = stored["inputs"], stored["labels"]
    except FileNotFoundError:
        raise ParameterError("--data", str(path), f"{expected} that exists") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
        raise ParameterError("--data", str(path), expected) from None
    return checked_records(inputs, labels)


def checked_records(inputs: NDArray[Any], labels: NDArray[Any]) -> OwnRecords:
    """Inputs and labels of one client's records as checked arrays.

    Args:
        inputs: numbers of any type, shape ``(m, …)``.
        labels: numbers of any type, shape ``(m,)`` or ``(m, count)``.

    Raises:
        ParameterError: there are no records, the labels have another shape, or an input or a label
            is not finite; the error names the record.
    """
    inputs, labels = np.asarray(inputs), np.asarray(labels)
    if labels.ndim not in {1, 2} or labels.dtype.kind not in "fiub" or labels.size == 0:
        expected = "a number or a row of numbers for each record"
        raise ParameterError("labels", (labels.dtype, labels.shape), expected)
    if inputs.ndim < 2:
        raise ParameterError("inputs", inputs.shape, "a shape (records, …)")
    if len(inputs) != len(labels):
        raise ParameterError("labels", len(labels), f"one for each of {len(inputs)} inputs")
    for name, numbers in (("inputs", inputs), ("labels", labels)):
        _require_finite(name, numbers)
    return inputs, labels


def _require_finite(name: str, numbers: NDArray[Any]) -> None:
    """Check that all numbers are finite; the error names the first record with another number."""
    if numbers.dtype.kind != "f" or np.isfinite(numbers).all():
        return
    record = int(np.argmin(np.isfinite(numbers).reshape(len(numbers), -1).all(1)))
    wrong = numbers[record][~np.isfinite(numbers[record])].ravel()[0]
    raise ParameterError(f"{name}[{record}]", float(wrong), "finite numbers")


def trainer_on(records: OwnRecords, client: int) -> TrainerOf:
    """Function that builds the update function of a client from its inputs and labels.

    If the charter names a graph, the graph computes the update; otherwise PyTorch computes it with
    the plan's model. The returned function raises `MissingExtraError` if PyTorch is needed and not
    installed.
    """

    def build(charter: Charter) -> UpdateFunction:
        # A graph needs no PyTorch.
        if charter.computation.architecture in UPDATE_GRAPHS:
            from turnout.service.graphs.updates import GraphUpdates

            return GraphUpdates(charter, *records, client)
        require("device", "train", what="a device that trains the charter's model")
        from turnout.data import ClientData, Records
        from turnout.plans import Plan
        from turnout.runs.workload import Workload

        # Otherwise the plan's model trains on the client's own records.
        plan = Plan.from_toml(charter.plan, "the charter's plan")
        inputs, labels = records
        own = Records(inputs, checked_labels(labels, None, charter.computation.classes))
        data = ClientData(plan.data.title, own, own, charter.computation.classes)
        workload = Workload(plan, data, 1, charter.scheme.participation)
        return _trainer(workload, charter, client)

    return build


def trainer_on_file(path: Path, client: int) -> TrainerOf:
    """Function that builds the update function of a client from a file of the client's records.

    An .npz file has the arrays inputs and labels (`npz_records`). For any other file the charter's
    plan names the columns.

    Raises:
        ParameterError: the file does not exist.
    """
    if path.suffix == ".npz":
        return trainer_on(npz_records(path), client)
    if not path.exists():
        raise ParameterError("--data", str(path), "a file that exists")

    def build(charter: Charter) -> UpdateFunction:
        from turnout import data as datasets
        from turnout.plans import Plan

        # The plan names the columns of the file.
        section = Plan.from_toml(charter.plan, "the charter's plan").data
        if section.path is None:
            raise ParameterError("--data", str(path), "an .npz file with arrays inputs and labels")
        held = datasets.own_records(section, path)
        return trainer_on(checked_records(held.inputs, held.labels), client)(charter)

    return build


def trainer_on_dealt(name: str | None = None) -> TrainerOf:
    """Function that builds one update function for all clients of a trial.

    The clients hold the records that a simulation deals to them.

    Args:
        name: name of a built-in data set, which must be the data set of the charter's plan; None
            accepts the plan's data set.

    Raises:
        ParameterError: (when an update function is built) the plan uses a file or another data set
            than ``name``, or the data set has fewer records than the task has clients.
    """
    built: dict[str, Trainer] = {}

    def build(charter: Charter) -> Trainer:
        from turnout.data import load_images
        from turnout.plans import Plan
        from turnout.runs.workload import Workload

        # Built once for all clients of the trial, from the data set of the charter's plan.
        if charter.task not in built:
            plan = Plan.from_toml(charter.plan, "the charter's plan")
            if name not in (None, plan.data.name):
                raise ParameterError("--data", name, f"{plan.data.name!r}, as in the task's plan")
            if plan.data.name is None:
                expected = "the file of records that the task's plan describes"
                raise ParameterError("--data", MISSING, expected)
            # Each client needs at least one record.
            data = load_images(plan.data.name)
            if charter.population > len(data.train):
                raise ParameterError(
                    "population", charter.population, f"at most the {len(data.train)} records"
                )
            workload = Workload(plan, data, charter.population, charter.scheme.participation)
            built[charter.task] = _trainer(workload, charter)
        return built[charter.task]

    return build


def trainers_on_split(path: Path) -> Callable[[int], TrainerOf]:
    """Function that maps a client's id to the function that builds the client's update function.

    The file is split by the column of clients that the charter's plan names, as in a simulation of
    the plan: client i of the task has the records of client i of the simulation.

    Args:
        path: file or folder of the records of all clients, in a format of [data] in plans.

    Raises:
        ParameterError: (when an update function is built) the plan names no column of clients, or
            the file has another number of clients than the task.
    """
    opened: dict[str, tuple[Workload, Trainer | None]] = {}

    def of_task(charter: Charter) -> tuple[Workload, Trainer | None]:
        # Opened once for all clients of the trial; a graph has an update function for each client.
        if charter.task not in opened:
            workload = _split(path, charter)
            graph = charter.computation.architecture in UPDATE_GRAPHS
            opened[charter.task] = workload, None if graph else _trainer(workload, charter)
        return opened[charter.task]

    def of_client(client: int) -> TrainerOf:
        def build(charter: Charter) -> UpdateFunction:
            workload, trainer = of_task(charter)
            if trainer is not None:
                return trainer
            # With a graph, only the records of this client are passed on.
            held = workload.data.holdings
            assert held is not None
            own = held.records[held.offsets[client] : held.offsets[client + 1]]
            train = workload.data.train
            records = checked_records(np.array(train.inputs[own]), np.array(train.labels[own]))
            return trainer_on(records, client)(charter)

        return build

    return of_client


def _split(path: Path, charter: Charter) -> Workload:
    """Workload of a charter's plan with the records of a file, split by client.

    Raises:
        ParameterError: the plan names no column of clients, or the file has another number of
            clients than the task.
    """
    from turnout.data import own_data
    from turnout.plans import Plan
    from turnout.runs.workload import Workload

    plan = Plan.from_toml(charter.plan, "the charter's plan")
    if plan.data.path is None or plan.data.client is None:
        expected = "no file, since the task's plan names no column of clients"
        raise ParameterError("--data", str(path), expected)
    data = own_data(plan.data.model_copy(update={"path": str(path.resolve())}), Path())
    held = 0 if data.holdings is None else data.holdings.population
    if held != charter.population:
        expected = f"records of {charter.population} training clients, as in the task, not {held}"
        raise ParameterError("--data", str(path), expected)
    return Workload(plan, data, charter.population, charter.scheme.participation)


def _trainer(workload: Workload, charter: Charter, only: int | None = None) -> Trainer:
    """Update function of the plan's model on these records, checked against the charter."""
    trainer = Trainer(task_of_charter(workload, charter), only, clips=not charter.randomized)
    # The first update of a process takes longest, so it is computed here and thrown away.
    trainer.update(np.zeros(charter.encoding.dimension, np.float32), only or 0)
    return trainer


def task_of_charter(workload: Workload, charter: Charter) -> FedSGD:
    """Charter's learning task on the CPU, since a forked process cannot use a GPU.

    Raises:
        ParameterError: the plan names code, contradicts the charter, or does not fit the records.
    """
    from turnout.learning.algorithm import FedSGD
    from turnout.runs.building import build_algorithm

    # The plan is text from the coordinator, so it is checked before anything is built from it.
    plan = workload.plan
    _require_no_code(plan)
    if plan.client.rule != "fedsgd":
        expected = "'fedsgd': devices keep no personal models, and run no algorithm of a plug-in"
        raise ParameterError("client.rule", plan.client.rule, expected)
    _require_agreement(plan, charter)
    # The task of the plan, on the CPU.
    run = plan.run.model_copy(update={"device": "cpu"})
    workload = replace(workload, plan=plan.model_copy(update={"run": run}))
    task, encoding = build_algorithm(workload), charter.encoding
    assert isinstance(task, FedSGD)
    # The model over these records must have the charter's sizes and clip norm.
    shape, held = workload.data.train.inputs.shape[1:], charter.computation.input_shape
    if task.dimension != encoding.dimension:
        expected = f"records for a model of {encoding.dimension} parameters, not {task.dimension}"
        raise ParameterError("inputs", shape, expected)
    if shape != held:
        raise ParameterError("inputs", shape, f"the charter's shape of a record, {held}")
    if task.clip_norm != encoding.clip_norm:
        raise ParameterError("clip_norm", task.clip_norm, f"the charter's, {encoding.clip_norm}")
    return task


def _require_no_code(plan: Plan) -> None:
    """Refuse a charter whose plan names code: a coordinator must not run code on a device."""
    model = plan.model
    for key, names in (
        ("module", (model.module,)),
        ("loss", (model.loss,)),
        ("metrics", model.metrics or ()),
        ("features", (model.features,)),
    ):
        for name in names:
            if name is not None and (key == "module" or ":" in name):
                expected = "no code, which a coordinator must not run on a device: send a graph"
                raise ParameterError(f"model.{key}", name, expected)


def _require_agreement(plan: Plan, charter: Charter) -> None:
    """Require that the charter's plan, which people read, agrees with the charter's terms."""
    from turnout.plans import AvailabilitySection

    # Pairs of a setting in the plan and in the charter: first privacy and protocol.
    privacy, scheme = plan.privacy, charter.scheme
    pairs: list[tuple[str, object, object]] = [
        ("privacy.relation", privacy.relation.value, scheme.relation.value),
        ("privacy.unit", privacy.unit.value, scheme.unit.value),
        ("privacy.trust", privacy.trust.value, scheme.trust.value),
        ("privacy.delta", privacy.delta, charter.delta),
        ("protocol.release", plan.protocol.release.value, scheme.release.value),
        ("protocol.minibatch", plan.protocol.minibatch, charter.minibatch),
    ]
    # Then the computation, and settings that the plan may leave open.
    held = charter.computation
    planned = Computation.of(plan, held.input_shape, held.classes)
    pairs += [
        *_names_in_both(planned, held),
        ("client.steps", planned.steps, held.steps),
        ("client.learning_rate", planned.learning_rate, held.learning_rate),
    ]
    if privacy.epsilon is not None:
        pairs.append(("privacy.epsilon", privacy.epsilon, charter.target))
    if privacy.noise_multiplier is not None:
        noise = GaussianNoise(privacy.noise_multiplier)
        pairs.append(("privacy.noise_multiplier", noise, scheme.randomizer))
    pairs += _message_in_both(plan, charter)
    if not isinstance(plan.participation, AvailabilitySection):  # it is drawn from a trace
        participation = plan.participation_for(charter.population)
        pairs.append(("participation", participation, scheme.participation))
    # The first pair that differs is the error.
    for name, in_plan, in_charter in pairs:
        if in_plan != in_charter:
            raise ParameterError(name, in_plan, f"the charter's, {in_charter!r}")


def _message_in_both(plan: Plan, charter: Charter) -> list[tuple[str, object, object]]:
    """Randomizers to compare: name, value in the plan at the charter's ε₀, value in the charter.

    The list is empty for tasks without randomized messages.
    """
    held, section = charter.scheme.randomizer, plan.messages
    if section is None or not isinstance(held, NonAdaptiveRandomizer):
        return []
    encoding = charter.encoding
    made = section.build(encoding.dimension, held.epsilon0, encoding.clip_norm)
    pairs: list[tuple[str, object, object]] = [("randomizer", MessageEncoding(made), encoding)]
    if section.epsilon0 is not None:
        pairs.append(("randomizer.epsilon0", section.priced_as(section.epsilon0), held))
    return pairs


def _names_in_both(planned: Computation, held: Computation) -> list[tuple[str, object, object]]:
    """Formats to compare, except graphs: name, format in the plan, format in the charter."""
    pairs = (
        ("model.name", planned.architecture, held.architecture, held.update),
        ("model.features", planned.features, held.features, held.feature_map),
    )
    return [(name, one, other) for name, one, other, graph in pairs if graph is None]
