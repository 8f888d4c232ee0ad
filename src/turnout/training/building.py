"""The algorithm that a plan describes; importing this imports PyTorch."""

from __future__ import annotations

import numpy as np

from turnout.core.errors import ParameterError
from turnout.datasets import Records, deal
from turnout.learning.examples import Examples
from turnout.learning.features import featured
from turnout.learning.fedsgd import FedSGD
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining
from turnout.learning.models import Layered, build_model
from turnout.learning.tasks import ClassificationTask
from turnout.plans import Plan
from turnout.randomness import SimulationStreams
from turnout.training.optimizers import build_optimizer_of
from turnout.training.workload import Workload


def build_algorithm(workload: Workload) -> FedSGD:
    """Federated SGD on the clients' data, with the plan's optimiser."""
    plan = workload.plan
    moves = workload.law.steps // plan.protocol.minibatch
    optimizer = build_optimizer_of(plan.optimizer, moves)
    return FedSGD(build_task(workload), optimizer, plan.privacy.clip_norm)


def build_task(workload: Workload) -> ClassificationTask:
    """The clients' data and the model."""
    plan, data = workload.plan, workload.data
    train, test = _examples(plan, data.train), _examples(plan, data.test)
    model = _model(plan.model.name, train.input_shape, data.outputs)
    return ClassificationTask(
        model,
        train,
        test,
        holdings=_holdings(workload),
        local=LocalTraining(plan.client.steps, plan.client.learning_rate),
    )


def _model(name: str, input_shape: tuple[int, ...], classes: int) -> Layered:
    """The model of that name, if it can take such inputs."""
    try:
        return build_model(name, input_shape, classes)
    except ParameterError as error:
        shape = "×".join(map(str, input_shape))
        expected = f"a model for inputs of {shape} ({error.name}: {error.expected})"
        raise ParameterError("model.name", name, expected) from None


def _examples(plan: Plan, split: Records) -> Examples:
    """One side of the split as the model sees it."""
    features = plan.model.features
    try:
        return featured(features, Examples(split.inputs, split.labels))
    except ParameterError as error:
        raise ParameterError("model.features", features, error.expected) from None


def _holdings(workload: Workload) -> Holdings:
    """The owner of each record, by the data or dealt; of one each, client i holds record i."""
    if workload.data.holdings is not None:
        return workload.data.holdings
    labels, population = workload.data.train.labels, workload.population
    if population == len(labels):
        return Holdings.one_each(population)
    generator: np.random.Generator = SimulationStreams(workload.plan.run.seed).generator("dealing")
    owners = deal(labels, population, workload.plan.data.dealing, generator)
    return Holdings.from_owners(owners, population)
