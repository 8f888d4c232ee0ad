"""From a plan to a task: the charter, the coordinator's key, the first model, invitations."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.errors import ParameterError
from turnout.participation import expected_check_ins
from turnout.plans import Plan, prepare
from turnout.protocol import Lattice
from turnout.randomness import SimulationStreams
from turnout.service import learner as learning
from turnout.service.charter import Charter, Timing
from turnout.service.computation import Computation
from turnout.service.signatures import SigningKey
from turnout.service.storage.interface import Storage, Transaction
from turnout.service.wire import SECRET_BYTES, Invitation

if TYPE_CHECKING:
    from turnout.plans import PreparedPlan
    from turnout.training.workload import Workload


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Founding:
    """What a new task begins with.

    Attributes:
        charter: the terms.
        key: the coordinator's own.
        parameters: the first model, little-endian float32; the same that a simulation of the
            plan begins with.
    """

    charter: Charter
    key: SigningKey
    parameters: bytes

    def found(self, storage: Storage) -> None:
        """Store the task.

        Raises:
            ConflictError: the storage holds a task.
        """
        with storage.transaction() as tx:
            tx.found(self.charter.canonical(), self.key.private, self.parameters)


def founding(text: str, folder: Path, timing: Timing) -> Founding:
    """The task of a plan. Takes seconds: the plan is priced step by step.

    Args:
        text: the plan as TOML.
        folder: what a trace's path is relative to.
        timing: how long steps last.

    Raises:
        ParameterError: a plan that is refused, or names files that are not there.
        UnsupportedError: averaged check-ins, or no sound analysis.
        NumericalError: nothing can be certified.
    """
    from turnout.training.building import build_task
    from turnout.training.execution import evaluation_interval
    from turnout.training.spending import epsilon_curve
    from turnout.training.workload import gather

    plan = Plan.from_toml(text)
    workload = gather(plan, folder)
    prepared = prepare(plan, workload.population, workload.law)
    task = build_task(workload)
    streams = SimulationStreams(plan.run.seed)
    parameters = learning.to_bytes(task.initial_parameters(streams.generator("initial parameters")))
    curve = epsilon_curve(prepared, evaluation_interval(plan, workload.law.steps))
    key = SigningKey.new()
    charter = Charter(
        plan=text,
        population=workload.population,
        scheme=prepared.scheme,
        delta=plan.privacy.delta,
        target=plan.privacy.epsilon or prepared.guarantee.epsilon.upper,
        charged_steps=tuple(int(step) for step in curve.steps),
        charged=tuple(float(epsilon) for epsilon in curve.epsilon),
        lattice=Lattice.for_noise(
            prepared.noise.noise_multiplier, plan.privacy.clip_norm, task.dimension
        ),
        expected_check_ins=_divisor(prepared, workload),
        minibatch=plan.protocol.minibatch,
        initial_model=hashlib.sha256(parameters).digest(),
        timing=timing,
        coordinator_key=key.public,
        computation=Computation.of(
            plan, workload.data.train.inputs.shape[1:], workload.data.classes
        ),
    )
    return Founding(charter, key, parameters)


def _divisor(prepared: PreparedPlan, workload: Workload) -> float | None:
    """The public constant by which aggregated sums are divided."""
    if prepared.scheme.release.asks_one:
        return None
    given = prepared.plan.protocol.expected_check_ins
    if given is not None:
        return float(given)
    return float(expected_check_ins(workload.law, workload.population).mean())


def invite(tx: Transaction, charter: Charter, count: int) -> list[Invitation]:
    """Hand out the next ids. The secrets are in what is returned and nowhere else.

    Raises:
        ParameterError: more than the charter's population.
    """
    from turnout.spec.codec import scheme_to_dict

    room = charter.population - tx.invited()
    if not 0 < count <= room:
        raise ParameterError(
            "N", count, f"1 to {room}: the plan is for {charter.population} clients"
        )
    secrets = [os.urandom(SECRET_BYTES) for _ in range(count)]
    first = tx.invite([hashlib.sha256(secret).digest() for secret in secrets])
    law = scheme_to_dict(charter.scheme)["participation"]
    return [
        Invitation(
            charter.task, charter.coordinator_key, first + i, charter.population, law, secret
        )
        for i, secret in enumerate(secrets)
    ]
