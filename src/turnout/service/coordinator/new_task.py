"""Creation of a task from a plan: charter, coordinator's key, first model and invitations.

`new_task` computes the ε of a plan and builds a `NewTask`; `invite` makes invitations. `secret_of`
reads a secret from the first line of a file, and `tls_files` checks the files of certificate and
key.
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
from turnout.plans.plugins import require_installed
from turnout.plans.refusals import MISSING
from turnout.protocol.lattice import Lattice
from turnout.protocol.mechanisms import public_divisor
from turnout.protocol.randomized import MessageEncoding
from turnout.randomness import SimulationStreams
from turnout.schemes import Participation, TrustModel
from turnout.schemes.normal_form import Cohort, normal_form
from turnout.service.contract.charter import Charter, Timing, plugins_of
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
    """Task that is computed from a plan and not stored yet.

    Attributes:
        charter: terms of the task.
        key: the coordinator's signing key.
        parameters: first model, little-endian float32; a simulation of the plan begins with the
            same model.
        artefacts: contents that the charter names by digest.
    """

    charter: Charter
    key: SigningKey
    parameters: bytes
    artefacts: tuple[bytes, ...] = ()

    def create_task(self, storage: Storage) -> None:
        """Store the new task in an empty storage.

        Raises:
            ConflictError: the storage already has a task.
        """
        with storage.transaction() as tx:
            canonical, private = self.charter.canonical(), self.key.private
            tx.create_task(canonical, private, self.parameters, self.artefacts)


def new_task(text: str, folder: Path, timing: Timing, *, graph: bool = False) -> NewTask:
    """New task of a plan; the computation of ε takes seconds.

    Args:
        text: TOML text of the plan.
        folder: folder to which the plan's paths are relative.
        timing: schedule of a step.
        graph: whether devices get the model as a graph and need no PyTorch. A custom module,
            feature function or loss, or labels other than classes, always become a graph.

    Raises:
        ParameterError: the plan is invalid, a file is missing, or the phase of updates is shorter
            than twice the limit on computing time.
        UnsupportedError: real devices cannot run the scheme, no valid bound on its ε is known, or
            no graph can express the model.
        NumericalError: ε cannot be certified.
        MissingExtraError: a graph is needed, and the extra ``export`` is not installed.
    """
    # Refuse what devices cannot do, before anything slow.
    plan = Plan.from_toml(text)
    if plan.privacy.trust is TrustModel.SHUFFLED:
        raise UnsupportedError(
            "privacy.trust = 'shuffled' needs a shuffler between devices and coordinator, which "
            "exists only in simulations; with real devices use 'local' or 'central'"
        )
    timing = timing.bounded(asks_one=plan.protocol.release.asks_one)
    timing.require_room(asks_one=plan.protocol.release.asks_one)
    graph = _becomes_graph(plan, graph)
    from turnout.plans.spending import epsilon_curve
    from turnout.runs.building import build_task
    from turnout.runs.workload import evaluation_interval, gather

    # Data and participation of the plan.
    workload = gather(plan, folder)
    _require_own_draws(workload.participation)
    if plan.plugins is not None:
        require_installed({"plugins": plan.plugins.model_dump()})
    if workload.data.target is not PredictionTarget.CLASS and not graph:
        require("export", what="a task whose labels are not classes")
        graph = True
    # Upper bounds on ε after so many steps, and the first model of the plan's seed.
    prepared = prepare(plan, workload.population, workload.participation)
    task = build_task(workload)
    streams = SimulationStreams(plan.run.seed)
    parameters = releases.to_bytes(task.initial_parameters(streams.generator("initial parameters")))
    curve = epsilon_curve(prepared, evaluation_interval(plan, workload.participation.steps))
    if plan.client.rule != "fedsgd":
        raise UnsupportedError(
            f"client.rule = {plan.client.rule!r}: expected 'fedsgd', since devices have no "
            "personal models and run no algorithm of a plug-in"
        )
    # What devices compute, as a named format or as a graph.
    computation = Computation.of(plan, workload.data.train.inputs.shape[1:], workload.data.outputs)
    artefacts: list[bytes] = []
    if graph:
        computation, artefacts = _as_graph(computation, task, workload)
    # The charter names all of it.
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
        plugins=plugins_of(prepared.scheme),
    )
    return NewTask(charter, key, parameters, tuple(artefacts))


def _becomes_graph(plan: Plan, graph: bool) -> bool:
    """Whether devices get the model as a graph, as asked or in place of code that they do not have.

    Raises:
        MissingExtraError: the extra ``export`` is not installed, and a graph is needed.
    """
    custom = plan.model.name is None or names_code(plan.model.features)
    custom = custom or plan.model.loss not in {None, "cross-entropy"}
    if custom:
        require("export", what="a model of your own code, which devices get as a graph,")
    if graph:
        require("export", what="a task whose model is a graph")
    return graph or custom


def _require_own_draws(participation: Participation) -> None:
    """Refuse a participation in which a device cannot draw its steps independently of others."""
    if any(isinstance(span.draw, Cohort) for span in normal_form(participation).spans):
        raise UnsupportedError(
            f"under {type(participation).__name__} no device can draw its own steps, since the "
            "number of clients in a step is fixed; use self-sampling, which has the same number on "
            "average"
        )


def _encoding(prepared: PreparedPlan, dimension: int) -> UpdateEncoding:
    """Update encoding: randomized messages if the plan has a randomizer, integers otherwise.

    Raises:
        UnsupportedError: the plan has a message for each record, or an encoding as printed in a
            paper.
    """
    # Central trust: whole numbers, whose step suits the noise.
    messages = prepared.messages(dimension)
    if messages is None:
        noise, clip_norm = prepared.noise.noise_multiplier, prepared.plan.privacy.clip_norm
        return Lattice.for_noise(noise, clip_norm, dimension)
    # Local trust: the default messages, one for each update.
    section = prepared.plan.messages
    if section is not None and section.each == "record":
        raise UnsupportedError(
            "randomizer.each = 'record' exists only in simulations; with real devices use "
            "'update', since a device sends one update for all its records"
        )
    if section is not None and section.as_printed:
        raise UnsupportedError(
            "randomizer.as_printed exists only for comparisons in simulations; leave it out, since "
            "devices send the default encoding"
        )
    return MessageEncoding(messages)


def _as_graph(
    computation: Computation, task: SupervisedTask, workload: Workload
) -> tuple[Computation, list[bytes]]:
    """Computation whose model is an ONNX graph, with the artefacts that devices fetch."""
    from turnout.learning.examples import as_floats, as_tensor
    from turnout.learning.features import apply_features, build_features
    from turnout.learning.losses import LOSSES
    from turnout.service.graphs.exporting import cross_entropy
    from turnout.service.graphs.task_graphs import graph_computation

    # Custom feature functions become a graph of their own; named ones are computed by devices.
    features = build_features(workload.plan.model.features, workload.folder)
    one = apply_features(features, workload.data.train.inputs[:1])
    own = _half_precision(features) if features is not None and features.code else None
    # One example fixes the shapes of the graph.
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
    """Label format of the plan's records; None for one class per record."""
    if data.target is PredictionTarget.CLASS:
        return None
    return Labels(data.target.value, data.train.labels.shape[1])


def _half_precision(features: FeatureMap) -> Callable[[Tensor], Tensor]:
    """Feature function with outputs rounded to half precision, as in a simulation."""
    return lambda inputs: features(inputs).half().float()


def invite(tx: Transaction, charter: Charter, count: int | None) -> list[Invitation]:
    """Invitations for the next ``count`` clients; their secrets are stored nowhere else.

    Args:
        tx: transaction that stores the digests of the secrets.
        charter: terms of the task.
        count: number of invitations, at least 1; None for all clients that are not invited yet.

    Raises:
        ParameterError: ``count`` is below 1, fewer than ``count`` clients are not invited yet, or
            all clients are invited.
    """
    from turnout.schemes.codec import participation_to_dict

    # No more invitations than clients of the plan.
    invited = tx.invited()
    room = charter.population - invited
    if count is None and room == 0:
        expected = f"fewer than {charter.population} invited clients; {invited} are invited already"
        raise ParameterError("N", MISSING, expected)
    count = room if count is None else count
    if not 0 < count <= room:
        raise ParameterError(
            "N",
            count,
            f"1 to {room}: the plan is for {charter.population} clients, and {invited} of them are "
            "invited already",
        )
    # Only digests of the secrets are stored.
    secrets = [os.urandom(SECRET_BYTES) for _ in range(count)]
    first = tx.invite([hashlib.sha256(secret).digest() for secret in secrets])
    drawn_by = participation_to_dict(charter.scheme.participation)
    return [
        Invitation(
            charter.task, charter.coordinator_key, first + i, charter.population, drawn_by, secret
        )
        for i, secret in enumerate(secrets)
    ]


def secret_of(
    path: Path, option: str, what: str, shortest: int, *, encoding: str = "utf-8-sig"
) -> str:
    """Secret from the first line of a file, without spaces around it.

    Args:
        path: the file.
        option: name of the setting in errors.
        what: kind of secret in errors, such as "password".
        shortest: smallest allowed number of characters.
        encoding: text encoding of the file.

    Raises:
        ParameterError: the file cannot be read, or the secret is too short; errors omit the secret.
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
    """Paths of the TLS certificate and key; None without TLS.

    Raises:
        ParameterError: only one path is given, or there is no file at a path.
    """
    if certificate is None and key is None:
        return None
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        if path is None or not path.is_file():
            expected = "a PEM file, since TLS needs certificate and key"
            raise ParameterError(name, None if path is None else str(path), expected)
    assert certificate is not None
    assert key is not None
    return certificate, key
