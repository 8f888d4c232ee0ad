"""The task and the optimiser that a plan describes."""

from __future__ import annotations

import numpy as np

from turnout.core.errors import ParameterError
from turnout.datasets import Split, deal
from turnout.learning import (
    Averaged,
    ClassificationTask,
    Examples,
    Holdings,
    Layered,
    LocalTraining,
    Optimizer,
    build_averaging,
    build_model,
    build_optimizer,
    build_schedule,
    featured,
)
from turnout.plans import Plan
from turnout.plans.sections import OptimizerSection
from turnout.randomness import SimulationStreams
from turnout.training.workload import Workload


def build_task(workload: Workload) -> ClassificationTask:
    """The clients' data and the model."""
    plan, data = workload.plan, workload.data
    train, test = _examples(plan, data.train), _examples(plan, data.test)
    model = _model(plan.model.name, train.input_shape, data.classes)
    return ClassificationTask(
        model,
        train,
        test,
        plan.privacy.clip_norm,
        holdings=_holdings(workload),
        local=LocalTraining(plan.client.steps, plan.client.learning_rate),
    )


def build_optimizer_of(section: OptimizerSection, steps: int) -> Optimizer:
    """The optimiser of a run in which the model moves so many times, averaging included."""
    rate = build_schedule(section.schedule, section.learning_rate, steps, section.warmup_steps)
    optimizer = build_optimizer(
        section.name, rate, momentum=section.momentum, weight_decay=section.weight_decay
    )
    if section.averaging == "none":
        return optimizer
    averaging = build_averaging(
        section.averaging, steps, section.averaging_decay, section.averaging_tail
    )
    return Averaged(optimizer, averaging)


def _model(name: str, input_shape: tuple[int, ...], classes: int) -> Layered:
    """The model of that name, if it can take such inputs."""
    try:
        return build_model(name, input_shape, classes)
    except ParameterError as error:
        shape = "×".join(map(str, input_shape))
        expected = f"a model for inputs of {shape} ({error.name}: {error.expected})"
        raise ParameterError("model.name", name, expected) from None


def _examples(plan: Plan, split: Split) -> Examples:
    """One side of the split as the model sees it."""
    features = plan.model.features
    try:
        return featured(features, Examples(split.inputs, split.labels))
    except ParameterError as error:
        raise ParameterError("model.features", features, error.expected) from None


def _holdings(workload: Workload) -> Holdings:
    """Who holds which record; where each holds one, client i holds record i."""
    labels, population = workload.data.train.labels, workload.population
    if population == len(labels):
        return Holdings.one_each(population)
    generator: np.random.Generator = SimulationStreams(workload.plan.run.seed).generator("dealing")
    owners = deal(labels, population, workload.plan.data.dealing, generator)
    return Holdings.from_owners(owners, population)
