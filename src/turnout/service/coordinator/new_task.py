"""From a plan to a task: the charter, the coordinator's key, the first model, invitations.

`new_task` prices the plan and builds a `NewTask`, `invite` makes invitations. `secret_of` and
`tls_files` read the files that settings name: secrets in a first line, and certificates.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.feature_expressions import names_code
from turnout.core.optional import require
from turnout.data import ClientData, PredictionTarget
from turnout.plans import Plan, prepare
from turnout.protocol.lattice import Lattice
from turnout.protocol.mechanisms import public_divisor
from turnout.protocol.randomized import MessageEncoding
from turnout.randomness import SimulationStreams
from turnout.schemes import Participation, TrustModel
from turnout.schemes.normal_form import Cohort, normal_form
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.computation import Computation, Labels
from turnout.service.contract.ledger import SigningKey
from turnout.service.contract.wire import SECRET_BYTES, Invitation
from turnout.service.coordinator import releases
from turnout.service.storage.database import Storage
from turnout.service.storage.writes import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from turnout.learning.features import FeatureMap
    from turnout.learning.tasks import SupervisedTask
    from turnout.plans.preparation import PreparedPlan
    from turnout.protocol.randomized import UpdateEncoding
    from turnout.runs.workload import Workload


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NewTask:
    """A new task before it is stored.

    ``parameters`` are the first model, little-endian float32: the one that a simulation of the
    plan begins with. ``artefacts`` are what the charter names by digest.
    """

    charter: Charter
    key: SigningKey
    parameters: bytes
    artefacts: tuple[bytes, ...] = ()

    def create_task(self, storage: Storage) -> None:
        """Store the task.

        Raises:
            ConflictError: the storage holds a task.
        """
        with storage.transaction() as tx:
            canonical, private = self.charter.canonical(), self.key.private
            tx.create_task(canonical, private, self.parameters, self.artefacts)


def new_task(text: str, folder: Path, timing: Timing, *, graph: bool = False) -> NewTask:
    """The task of a plan in TOML, whose paths are relative to a folder.

    Takes seconds: the plan is priced step by step. With ``graph``, and where the model is a module
    or has features of the user's own, devices get a graph, and need neither PyTorch nor the code.

    Raises:
        ParameterError: a plan that is refused, or names files that are not there; a phase that
            does not hold twice the time that devices compute for.
        UnsupportedError: averaged check-ins, no sound analysis, or a model that no graph can say.
        NumericalError: nothing can be certified.
    """
    plan = Plan.from_toml(text)
    if plan.privacy.trust is TrustModel.SHUFFLED:
        raise UnsupportedError(
            "privacy.trust = 'shuffled' needs a shuffler between devices and coordinator, which "
            "is for simulations; devices take part with 'local' or 'central'"
        )
    timing = timing.bounded(asks_one=plan.protocol.release.asks_one)
    timing.require_room(asks_one=plan.protocol.release.asks_one)
    # Devices do not have the user's own code.
    graph = graph or plan.model.name is None or names_code(plan.model.features)
    graph = graph or plan.model.loss not in {None, "cross-entropy"}
    if graph:
        require("export", what="a task whose model is a graph")
    from turnout.plans.spending import epsilon_curve
    from turnout.runs.building import build_task
    from turnout.runs.execution import evaluation_interval
    from turnout.runs.workload import gather

    workload = gather(plan, folder)
    _require_own_draws(workload.participation)
    if workload.data.target is not PredictionTarget.CLASS and not graph:
        require("export", what="a task whose labels are not classes")
        graph = True
    prepared = prepare(plan, workload.population, workload.participation)
    task = build_task(workload)
    streams = SimulationStreams(plan.run.seed)
    parameters = releases.to_bytes(task.initial_parameters(streams.generator("initial parameters")))
    curve = epsilon_curve(prepared, evaluation_interval(plan, workload.participation.steps))
    if plan.client.rule != "fedsgd":
        raise UnsupportedError(
            f"devices keep no personal models yet; serve client.rule = 'fedsgd', not "
            f"{plan.client.rule!r}"
        )
    computation = Computation.of(plan, workload.data.train.inputs.shape[1:], workload.data.outputs)
    artefacts: list[bytes] = []
    if graph:
        computation, artefacts = _as_graph(computation, task, workload)
    key = SigningKey.new()
    charter = Charter(
        plan=text,
        population=workload.population,
        scheme=prepared.scheme,
        delta=plan.privacy.delta,
        target=plan.privacy.epsilon or prepared.guarantee.epsilon.upper,
        charged_steps=tuple(int(step) for step in curve.steps),
        charged=tuple(curve.epsilon().tolist()),
        encoding=_encoding(prepared, task.dimension),
        expected_check_ins=public_divisor(
            prepared.scheme, workload.population, plan.protocol.expected_check_ins
        ),
        minibatch=plan.protocol.minibatch,
        initial_model=hashlib.sha256(parameters).digest(),
        timing=timing,
        coordinator_key=key.public,
        computation=computation,
    )
    return NewTask(charter, key, parameters, tuple(artefacts))


def _require_own_draws(law: Participation) -> None:
    """Refuses laws under which a device cannot draw its own steps."""
    if any(isinstance(span.draw, Cohort) for span in normal_form(law).spans):
        raise UnsupportedError(
            f"under {type(law).__name__} no device can draw its own steps, since sizes are fixed; "
            "self-sampling has the same number of clients on average"
        )


def _encoding(prepared: PreparedPlan, dimension: int) -> UpdateEncoding:
    """The bytes of an update: whole numbers, or messages where the plan has some.

    Raises:
        UnsupportedError: messages that devices do not send.
    """
    messages = prepared.messages(dimension)
    if messages is None:
        noise, clip_norm = prepared.noise.noise_multiplier, prepared.plan.privacy.clip_norm
        return Lattice.for_noise(noise, clip_norm, dimension)
    section = prepared.plan.messages
    if section is not None and section.each == "record":
        raise UnsupportedError(
            "randomizer.each = 'record' is for simulations; devices send their updates"
        )
    if section is not None and section.as_printed:
        raise UnsupportedError(
            "randomizer.as_printed is for comparisons in simulations; devices send the default"
        )
    return MessageEncoding(messages)


def _as_graph(
    computation: Computation, task: SupervisedTask, workload: Workload
) -> tuple[Computation, list[bytes]]:
    """The computation with the model as a graph, and what devices fetch."""
    from turnout.learning.examples import as_floats, as_tensor
    from turnout.learning.features import apply_features, build_features
    from turnout.learning.losses import LOSSES
    from turnout.service.graphs.exporting import cross_entropy
    from turnout.service.graphs.task_graphs import graph_computation

    features = build_features(workload.plan.model.features, workload.folder)
    one = apply_features(features, workload.data.train.inputs[:1])
    own = _kept(features) if features is not None and features.code else None
    example, loss = as_floats(as_tensor(one))[0], task.objective.loss
    return graph_computation(
        computation,
        task.model,
        example,
        loss=cross_entropy if loss is LOSSES["cross-entropy"] else loss.each,
        labels=_labels(workload.data),
        features=own,
    )


def _labels(data: ClientData) -> Labels | None:
    """What a record's label is; None for one class."""
    if data.target is PredictionTarget.CLASS:
        return None
    return Labels(data.target.value, data.train.labels.shape[1])


def _kept(features: FeatureMap) -> Callable[[Tensor], Tensor]:
    """Features rounded as a simulation keeps them."""
    return lambda inputs: features(inputs).half().float()


def invite(tx: Transaction, charter: Charter, count: int) -> list[Invitation]:
    """Hand out the next ids. The secrets are in what is returned and nowhere else.

    Raises:
        ParameterError: more than the charter's population.
    """
    from turnout.schemes.codec import participation_to_dict

    room = charter.population - tx.invited()
    if not 0 < count <= room:
        raise ParameterError(
            "N", count, f"1 to {room}: the plan is for {charter.population} clients"
        )
    secrets = [os.urandom(SECRET_BYTES) for _ in range(count)]
    first = tx.invite([hashlib.sha256(secret).digest() for secret in secrets])
    law = participation_to_dict(charter.scheme.participation)
    return [
        Invitation(
            charter.task, charter.coordinator_key, first + i, charter.population, law, secret
        )
        for i, secret in enumerate(secrets)
    ]


def secret_of(
    path: Path, option: str, what: str, shortest: int, *, encoding: str = "utf-8-sig"
) -> str:
    """The secret in a file's first line.

    Raises:
        ParameterError: no such file, or too short a secret; it is not shown.
    """
    try:
        text = path.read_text(encoding).partition("\n")[0].strip()
    except (OSError, ValueError):
        readable = "a readable file" + (", in ASCII" if encoding == "ascii" else "")
        raise ParameterError(option, str(path), readable) from None
    if len(text) < shortest:
        expected = f"a file with a {what} of at least {shortest} characters"
        raise ParameterError(option, str(path), expected)
    return text


def tls_files(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Certificate and key; None without TLS."""
    if certificate is None and key is None:
        return None
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        if path is None or not path.is_file():
            raise ParameterError(name, None if path is None else str(path), "a file (PEM)")
    assert certificate is not None
    assert key is not None
    return certificate, key
