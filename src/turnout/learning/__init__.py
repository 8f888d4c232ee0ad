"""What is learned: tasks, clients' clipped updates, and how a release moves the model.

`ClassificationTask` computes sums of clipped updates; an optimiser from `build_optimizer`
(wrapped in `Averaged` where iterates are averaged) turns each release into the next model.
A name is imported at its first use: an optimiser needs numpy alone, a task PyTorch, which takes
seconds to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.learning.averaging import (
        Averaged,
        Averaging,
        ExponentialAverage,
        LastIterate,
        TailAverage,
        build_averaging,
    )
    from turnout.learning.examples import Examples, Holdings
    from turnout.learning.features import FEATURES, apply_features, featured
    from turnout.learning.local_updates import LayeredUpdates, LocalTraining, VmappedUpdates
    from turnout.learning.models import MODELS, Layered, Model, build_model
    from turnout.learning.optimizers import SGD, Adam, Optimizer, build_optimizer
    from turnout.learning.schedules import (
        SCHEDULES,
        Constant,
        Cosine,
        InverseSquareRoot,
        Linear,
        Schedule,
        WarmUp,
        build_schedule,
    )
    from turnout.learning.tasks import ClassificationTask, Evaluation, Task

__all__ = [
    "FEATURES",
    "MODELS",
    "SCHEDULES",
    "SGD",
    "Adam",
    "Averaged",
    "Averaging",
    "ClassificationTask",
    "Constant",
    "Cosine",
    "Evaluation",
    "Examples",
    "ExponentialAverage",
    "Holdings",
    "InverseSquareRoot",
    "LastIterate",
    "Layered",
    "LayeredUpdates",
    "Linear",
    "LocalTraining",
    "Model",
    "Optimizer",
    "Schedule",
    "TailAverage",
    "Task",
    "VmappedUpdates",
    "WarmUp",
    "apply_features",
    "build_averaging",
    "build_model",
    "build_optimizer",
    "build_schedule",
    "featured",
]

_PLACES = {
    "averaging": (
        "Averaged",
        "Averaging",
        "ExponentialAverage",
        "LastIterate",
        "TailAverage",
        "build_averaging",
    ),
    "examples": ("Examples", "Holdings"),
    "features": ("FEATURES", "apply_features", "featured"),
    "local_updates": ("LayeredUpdates", "LocalTraining", "VmappedUpdates"),
    "models": ("MODELS", "Layered", "Model", "build_model"),
    "optimizers": ("SGD", "Adam", "Optimizer", "build_optimizer"),
    "schedules": (
        "SCHEDULES",
        "Constant",
        "Cosine",
        "InverseSquareRoot",
        "Linear",
        "Schedule",
        "WarmUp",
        "build_schedule",
    ),
    "tasks": ("ClassificationTask", "Evaluation", "Task"),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name of this package, from the module that has it."""
    module = _PLACE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
