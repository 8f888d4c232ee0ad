"""Workload of a plan: data, trace, clients, participation, and features of records.

`gather` builds the `Workload`. `features_of` computes features, and stores the features of large
data sets in the user's cache; `Views` computes features once for all runs of a search.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from turnout import data as datasets
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.data import ClientData, MissingFileError, Records, own_data
from turnout.data.layout import Allocate, Shelf, ShelfContents
from turnout.learning.features import FeatureMap, apply_features, first_features
from turnout.participation.traces import availability_participation
from turnout.plans import AvailabilitySection, Plan
from turnout.plans.data_sections import DataSection
from turnout.plans.refusals import MISSING
from turnout.schemes import Participation, PrivacyUnit

if TYPE_CHECKING:
    from turnout.learning.tasks import Executor

BUILT_IN_TRACE = "flash-phones"
"""Value of ``participation.trace`` that selects the phones of the FLASH trace."""
EVALUATIONS = 60
"""Approximate number of evaluations of a run if the plan does not set their interval."""


@shows_shapes("population", "participation")
@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Plan with its data loaded.

    Attributes:
        plan: plan of the run.
        data: training and test records, and the assignment of records to clients if the data
        contain one.
        population: number of clients.
        participation: participation of the clients.
        trace: availability of clients, shape ``(clients, steps)``, NaN where unknown; None if the
            plan has no trace.
        folder: folder in which code and files of the model are searched first.
        module: module that replaces the plan's module; None: the plan's module.
        engine: engine that computes clients' updates; None: threads of this process.
    """

    plan: Plan
    data: ClientData
    population: int
    participation: Participation
    trace: NDArray[np.float64] | None = None
    folder: Path = Path()
    module: Any = None
    engine: Executor | None = None


def gather(
    plan: Plan,
    folder: Path,
    beside: ClientData | None = None,
    phase: ProgressPhase | None = None,
    data_folder: Path | None = None,
) -> Workload:
    """Workload of a plan: data, availability trace, number of clients and participation.

    Args:
        plan: plan whose [data] names a data set, or describes how to read a file.
        folder: folder to which paths in the plan are relative.
        beside: data given in addition to the plan; the plan's [data] must then name no data.
        phase: receives the progress of reading a file.
        data_folder: folder to which the paths of data and model are relative; None: ``folder``.

    Raises:
        ParameterError: a file is missing, a value cannot be read as the plan describes, or the
            number of clients does not fit the data, the trace or the participation.
        StorageError: a file is damaged.
    """
    # The data, dealt to clients as records if a record is the privacy unit.
    own_folder = data_folder or folder
    data = _data(plan.data, own_folder, beside, phase or UnseenPhase())
    if plan.privacy.unit is PrivacyUnit.EXAMPLE:
        data = _of_records(plan, data)
    if beside is not None and beside.section is not None:
        # Reports describe how the given data were read.
        dealt = plan.data.model_dump(include={"clients", "dealing"})
        plan = plan.model_copy(update={"data": beside.section.model_copy(update=dealt)})
    # The number of clients, which a trace of availability fixes.
    held = len(data.train) if data.holdings is None else data.holdings.population
    section = plan.participation
    if not isinstance(section, AvailabilitySection):
        population = _population(plan, data, held, held)
        return Workload(
            plan, data, population, plan.participation_for(population), folder=own_folder
        )
    trace = _trace(section, folder)
    population = _population(plan, data, held, len(trace))
    if population != len(trace):
        raise ParameterError("data.clients", population, f"{len(trace)}, as in the trace")
    participation = availability_participation(trace, section.window, section.probability)
    return Workload(plan, data, population, participation, trace, own_folder)


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Data, module and engine that are given in addition to a plan."""

    data: ClientData | None = None
    module: Any = None
    engine: Executor | None = None

    def gathered(self, plan: Plan, folder: Path, phase: ProgressPhase, place: Path) -> Workload:
        """Workload of a plan, in which paths of data and model are relative to ``place``."""
        if self.module is not None:
            plan = self._named(plan)
        workload = gather(plan, folder, self.data, phase, place)
        return replace(workload, module=self.module, engine=self.engine)

    def _named(self, plan: Plan) -> Plan:
        """Plan with the name of the given module, which reports show."""
        if plan.model.title:
            expected = "no name, since a module is given in addition to the plan"
            raise ParameterError("model.name", plan.model.title, expected)
        kind = self.module if isinstance(self.module, type) else type(self.module)
        name = f"{kind.__module__}:{kind.__qualname__}"
        return plan.model_copy(update={"model": plan.model.model_copy(update={"module": name})})


class ProgressPhase(Protocol):
    """Observer of the progress of a phase, such as the reading of a file."""

    def rows(self, what: str, done: int) -> None:
        """Show the current action ``what``, and the number ``done`` of processed rows."""
        ...

    def note(self, text: str) -> None:
        """Show the line ``text`` after the end of the phase."""
        ...


class UnseenPhase:
    """Observer that does nothing."""

    def rows(self, what: str, done: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


def _data(
    section: DataSection, folder: Path, beside: ClientData | None, phase: ProgressPhase
) -> ClientData:
    """Data given in addition to the plan, or data that the plan names by path or name."""
    # Data in memory replace the plan's data section.
    if beside is not None:
        for key in ("name", "path", *section.model_fields_set):
            if getattr(section, key) is not None and key not in ("clients", "dealing"):
                raise ParameterError(
                    f"data.{key}",
                    getattr(section, key),
                    "no value, since data are given in addition to the plan",
                )
        if beside.holdings is not None and section.clients is not None:
            raise ParameterError(
                "data.clients", section.clients, "no value, since the data name their clients"
            )
        return beside
    # A file or folder of the user; errors name the key of the plan.
    if section.path is not None:
        try:
            return own_data(section, folder, phase.rows, phase.note)
        except ParameterError as error:
            name = "path" if error.name == "data" else error.name
            raise ParameterError(f"data.{name}", error.value, error.expected) from None
    # A data set by name.
    if section.name is None:
        expected = (
            "the path of a file, or data.name; in Python, data as turnout.train(plan, data=…)"
        )
        raise ParameterError("data.path", MISSING, expected)
    try:
        return datasets.load_images(section.name)
    except MissingFileError as error:
        raise ParameterError("data.name", section.name, f"data on this machine; {error}") from None


def _population(plan: Plan, data: ClientData, held: int, default: int) -> int:
    """Number of clients from the plan or by default, after a check that it fits the data."""
    if data.holdings is not None:
        return held
    clients = plan.data.clients or default
    if clients > held:
        raise ParameterError("data.clients", clients, f"at most {held}, the number of records")
    return clients


def _of_records(plan: Plan, data: ClientData) -> ClientData:
    """Data in which each record is a client, so that single records are clipped and protected."""
    if plan.data.clients is not None:
        expected = "none with unit = 'example': each record takes part by itself"
        raise ParameterError("data.clients", plan.data.clients, expected)
    if isinstance(plan.participation, AvailabilitySection):
        expected = "'client' with a trace, since the trace has a row for each client"
        raise ParameterError("privacy.unit", plan.privacy.unit.value, expected)
    return replace(data, holdings=None)


def _trace(section: AvailabilitySection, folder: Path) -> NDArray[np.float64]:
    """Availability trace, shape ``(clients, steps)``, with the steps that the plan uses."""
    # The built-in trace, or the user's file.
    try:
        if section.trace == BUILT_IN_TRACE:
            trace = datasets.flash_phones()
        else:
            trace = datasets.trace_from(folder / section.trace)
    except MissingFileError as error:
        raise ParameterError(
            "participation.trace", section.trace, f"a trace on this machine; {error}"
        ) from None
    # The run, its windows and its first slot must lie within the trace.
    steps = section.steps or trace.shape[1]
    for key, value, limit, what in (
        ("steps", steps, trace.shape[1], "the steps of the trace"),
        ("window", section.window, steps, "the steps of the run"),
        ("first_slot", section.first_slot, section.steps_per_day - 1, "the last slot of a day"),
    ):
        if value > limit:
            raise ParameterError(f"participation.{key}", value, f"at most {limit}, {what}")
    return trace[:, :steps]


FUNCTIONS = 1
"""Version of the built-in feature functions; features stored by another version are not read."""

KEPT_BYTES = 2**24
"""Size in bytes below which features are computed each time, in at most a second."""

_ROOM, _NAME, _MIB = "features", "features", 2**20
_DIGESTED_AT_ONCE = 2**24


def features_of(
    features: FeatureMap | None, inputs: NDArray[Any], phase: ProgressPhase
) -> NDArray[Any]:
    """Features of inputs (n, …), as `apply_features` returns them; large arrays are memory-mapped.

    Stored features are found by digests of the inputs and of custom code, and by the versions of
    PyTorch and of the feature functions. The first rows are computed anew and compared, since code
    may depend on more than its own file.

    Raises:
        ParameterError: see `apply_features`.
        StorageError: the cache cannot be written.
    """
    if features is None:
        return inputs
    # Small features are computed anew.
    first = first_features(features, inputs)
    if first.nbytes // len(first) * len(inputs) < KEPT_BYTES:
        return apply_features(features, inputs)
    # Large ones are kept on disk, if a sample of them agrees with what is kept.
    shelf = Shelf.of(_ROOM, [*_versions(features), _digest(inputs)])
    found = shelf.kept()
    if found is not None and not np.array_equal(found.arrays[_NAME][: len(first)], first):
        shelf.clear()

    def make(allocate: Allocate) -> ShelfContents:
        return ShelfContents({_NAME: apply_features(features, inputs, allocate)}, {})

    # The user is told where data derived from private data are kept.
    kept, made = shelf.keep(make)
    if made:
        size = shelf.size_bytes() / _MIB
        phase.note(
            f"{features.text} of {len(inputs):,} inputs kept in {shelf.folder}: "
            f"{size:,.1f} MiB, a function of private data"
        )
    return kept.arrays[_NAME]


def _versions(features: FeatureMap) -> list[object]:
    """Versions and settings on which features depend, in addition to the inputs."""
    code = [[one.name, one.digest] for one in features.code]
    return [FUNCTIONS, torch.__version__, features.text, code]


def _digest(inputs: NDArray[Any]) -> str:
    """Digest of an array's numbers, type and shape; the array may be memory-mapped."""
    digest = hashlib.blake2b(f"{inputs.dtype.str} {inputs.shape}".encode(), digest_size=16)
    rows = max(1, _DIGESTED_AT_ONCE // max(1, inputs.nbytes // len(inputs)))
    for start in range(0, len(inputs), rows):
        digest.update(np.ascontiguousarray(inputs[start : start + rows]).data)
    return digest.hexdigest()


_AS_THEY_ARE = "pixels"


class Views:
    """Workloads with features, by feature expression; features are computed on first use."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seen: dict[str, ClientData] = {_AS_THEY_ARE: workload.data}

    def workload(self, plan: Plan) -> Workload:
        """Workload of a plan with its features computed.

        Raises:
            ParameterError: the features cannot be computed from the inputs.
        """
        name = plan.model.features
        if name not in self._seen:
            data = self._workload.data
            train, test = (
                _featured(self._workload, name, records) for records in (data.train, data.test)
            )
            self._seen[name] = replace(data, train=train, test=test)
        model = plan.model.model_copy(update={"features": _AS_THEY_ARE})
        plan = plan.model_copy(update={"model": model})
        return replace(self._workload, plan=plan, data=self._seen[name])


def _featured(workload: Workload, name: str, records: Records) -> Records:
    # Imported here: they load PyTorch.
    from turnout.learning.features import build_features

    try:
        features = build_features(name, workload.folder)
        return Records(features_of(features, records.inputs, UnseenPhase()), records.labels)
    except ParameterError as error:
        raise ParameterError("model.features", name, error.expected) from None


def evaluation_interval(plan: Plan, steps: int) -> int:
    """Number of steps between two evaluations of the model."""
    return plan.run.evaluate_every or max(1, steps // EVALUATIONS)
