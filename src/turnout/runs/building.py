"""Construction of the algorithm and the task of a plan; this module imports PyTorch.

`build_algorithm` returns the algorithm on the clients' data, `build_task` the task alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.plugins import RULES, algorithm_maker
from turnout.data import Records, deal
from turnout.learning.algorithm import Algorithm, FedSGD, RecordSGD
from turnout.learning.examples import Examples
from turnout.learning.features import FeatureMap, build_features
from turnout.learning.gradients import compute_on
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining
from turnout.learning.metrics import build_objective
from turnout.learning.models import Layered, build_model
from turnout.learning.modules import Adapters, ModuleModel, build_module
from turnout.learning.optimizers import Optimizer, build_optimizer_of
from turnout.learning.personal import PersonalTask, judged_on_own_classes
from turnout.learning.tasks import SupervisedTask
from turnout.plans.refusals import MISSING
from turnout.plans.sections import ONE_MODEL, ClientSection
from turnout.randomness import SimulationStreams
from turnout.runs.workload import ProgressPhase, UnseenPhase, Workload, features_of

JUDGED = 50
"""Largest number of test examples on which a client's personal model is evaluated."""


def build_algorithm(
    workload: Workload, module: nn.Module | None = None, phase: ProgressPhase | None = None
) -> Algorithm:
    """Algorithm of a plan on the clients' data, with the plan's optimizer.

    Args:
        workload: a plan with its data, and the engine that computes.
        module: module that replaces the plan's ``model.module``.
        phase: receives a line that states where large features are stored.

    Raises:
        ParameterError: a setting of the client's rule outside its domain, or see `build_task`.
        UnsupportedError: an engine is given, but the plan has messages of clients or personal
            models; or see `build_task`.
        StorageError: see `build_task`.
    """
    plan = workload.plan
    # An engine computes sums of clipped updates only.
    if workload.engine is not None and (plan.messages is not None or plan.client.rule != "fedsgd"):
        raise UnsupportedError(
            "an engine computes sums of clipped updates; messages of clients "
            "(privacy.trust) and personal models (client.rule) are computed in this process"
        )
    # The server's optimizer, and the task of the clients.
    moves = workload.participation.steps // plan.protocol.minibatch
    optimizer = build_optimizer_of(plan.optimizer, moves)
    task, clip_norm = build_task(workload, module, phase), plan.privacy.clip_norm
    # Federated SGD, by records if each message is one record's.
    if plan.client.rule in ("fedsgd", "fedavg"):
        of_records = plan.messages is not None and plan.messages.each == "record"
        return (RecordSGD if of_records else FedSGD)(task, optimizer, clip_norm)
    # The algorithm of a plug-in, on one model for all clients.
    if plan.client.rule not in RULES:
        return _of_plugin(plan.client, task, optimizer, clip_norm)
    # Personal models, with the settings of their rule.
    from turnout.learning.personal import AdaPeD, Ridge

    rule = {"adaped": AdaPeD, "ridge": Ridge}[plan.client.rule]
    assert isinstance(task, PersonalTask)
    local = LocalTraining(plan.client.steps, plan.client.learning_rate)
    try:
        return rule(task, optimizer, clip_norm, local, **plan.client.settings)
    # Errors name the key of the plan.
    except ParameterError as error:
        name = "privacy" if error.name == "clip_norm" else "client"
        raise ParameterError(f"{name}.{error.name}", error.value, error.expected) from None


def _of_plugin(
    section: ClientSection, task: SupervisedTask, optimizer: Optimizer, clip_norm: float
) -> Algorithm:
    """Algorithm returned by the function of a plug-in.

    Raises:
        ParameterError: arguments that the function does not accept, or an algorithm with other
            numbers of clients or parameters than the task.
    """
    make = algorithm_maker(section.rule)
    assert make is not None
    arguments = section.arguments or {}
    try:
        made = make(task, optimizer, clip_norm, **arguments)
    except TypeError as error:
        expected = f"arguments that the plug-in's function accepts, but {error}"
        raise ParameterError("client.arguments", arguments, expected) from None
    if made.dimension != task.dimension or made.population != task.population:
        expected = f"an algorithm of {task.population} clients and {task.dimension} parameters"
        raise ParameterError("client.rule", section.rule, expected)
    return made


def build_task(
    workload: Workload, module: nn.Module | None = None, phase: ProgressPhase | None = None
) -> SupervisedTask:
    """Task of a plan: the clients' data and the model.

    Args:
        workload: a plan with its data, and the engine that computes.
        module: module that replaces the plan's ``model.module``.
        phase: receives a line that states where large features are stored.

    Raises:
        ParameterError: features, a model, a loss or a metric do not fit the data, or the GPU
            is missing.
        UnsupportedError: an engine is given together with a GPU.
        StorageError: features cannot be stored.
    """
    plan, data = workload.plan, workload.data
    # The objective, and the features of training and test examples.
    section, target = plan.model, data.target.value
    objective = build_objective(target, section.loss, section.metrics, workload.folder)
    features = build_features(section.features, workload.folder)
    seen = phase or UnseenPhase()
    train, test = (_examples(features, split, target, seen) for split in (data.train, data.test))
    # The model: the custom module, or a built-in model by name.
    if section.name is None or module is not None:
        model = _module(workload, module)
    else:
        model = _model(section.name, train.input_shape, data.outputs)
    # The clients' holdings, and how they train.
    holdings = holdings_of(workload)
    settings: dict[str, Any] = {
        "local": LocalTraining(plan.client.steps, plan.client.learning_rate),
        "objective": objective,
        "compute": compute_on(plan.run.device, plan.run.precision),
    }
    # One model for all clients.
    if plan.client.rule == "fedsgd" or plan.client.rule not in RULES:
        task = SupervisedTask(model, train, test, holdings=holdings, **settings)
        return task.computed_by(workload.engine)
    # A model for each client, tested on the classes that the client holds.
    _require_personal(workload)
    streams = SimulationStreams(plan.run.seed)
    tested = judged_on_own_classes(
        train.labels,
        holdings,
        test.labels,
        plan.client.judged or JUDGED,
        streams.generator("personal tests"),
    )
    return PersonalTask(model, train, test, holdings=holdings, tested=tested, **settings)


def _require_personal(workload: Workload) -> None:
    """Raise an error for settings that have no meaning for personal models.

    Raises:
        ParameterError: a setting has no meaning for personal models.
    """
    # Settings that have one value for personal models.
    plan = workload.plan
    rule = f"with client.rule = {plan.client.rule!r}"
    for name, given, wanted in (
        ("data.target", workload.data.target.value, "class"),
        ("privacy.unit", plan.privacy.unit.value, "client"),
        ("run.device", plan.run.device, "cpu"),
        ("run.precision", plan.run.precision, "float32"),
    ):
        if given != wanted:
            raise ParameterError(name, given, f"{wanted!r} {rule}")
    # Settings that have no value for personal models.
    for key in ("loss", "metrics"):
        given = getattr(plan.model, key)
        if given is not None:
            raise ParameterError(f"model.{key}", given, f"no value {rule}")


def _module(workload: Workload, module: nn.Module | None) -> ModuleModel:
    """Model from the given module, or from the module that the plan names."""
    section = workload.plan.model
    if module is None and section.module is None:
        expected = f"{ONE_MODEL}; or a module beside the plan: turnout.train(plan, module=…)"
        raise ParameterError("model.name", MISSING, expected)
    lora = section.lora
    return build_module(
        section.module if module is None else module,  # pyright: ignore[reportArgumentType]
        arguments=section.arguments,
        folder=workload.folder,
        seed=workload.plan.run.seed,
        pretrained=section.pretrained,
        trainable=section.trainable or (),
        adapters=None if lora is None else Adapters(lora.rank, lora.alpha, lora.layers),
    )


def _model(name: str, input_shape: tuple[int, ...], outputs: int) -> Layered:
    """Built-in model of this name, after a check that it accepts the shape of the inputs."""
    try:
        return build_model(name, input_shape, outputs)
    except ParameterError as error:
        shape = "×".join(map(str, input_shape))
        expected = f"a model for inputs of {shape} ({error.name}: {error.expected})"
        raise ParameterError("model.name", name, expected) from None


def _examples(
    features: FeatureMap | None, split: Records, target: str, phase: ProgressPhase
) -> Examples:
    """Training or test examples with their features."""
    examples = Examples(split.inputs, split.labels, target)
    try:
        return replace(examples, inputs=features_of(features, examples.inputs, phase))
    except ParameterError as error:
        text = "pixels" if features is None else features.text
        raise ParameterError("model.features", text, error.expected) from None


def holdings_of(workload: Workload) -> Holdings:
    """Assignment of records to clients, from the data or, if the data have none, from the plan."""
    if workload.data.holdings is not None:
        return workload.data.holdings
    labels, population = workload.data.train.labels, workload.population
    if population == len(labels):
        return Holdings.one_each(population)
    generator: np.random.Generator = SimulationStreams(workload.plan.run.seed).generator("dealing")
    owners = deal(labels, population, workload.plan.data.dealing, generator)
    return Holdings.from_owners(owners, population)
