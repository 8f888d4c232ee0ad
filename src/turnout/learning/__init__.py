"""What is learned: tasks, clients' clipped updates, and how a release moves the model.

`ClassificationTask` computes sums of clipped updates; an optimiser from `build_optimizer`
(wrapped in `Averaged` where iterates are averaged) turns each release into the next model.
Importing this package imports PyTorch.
"""

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
