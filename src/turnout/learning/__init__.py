"""Federated learning: algorithms, tasks, clients' clipped updates, and server steps on a release.

`FedSGD` is the algorithm of plans: a `ClassificationTask` computes sums of clipped updates, and an
optimiser from `build_optimizer` (wrapped in `Averaged` where iterates are averaged) turns each
release into the next model. A name is imported at its first use: an optimiser needs numpy alone, a
task PyTorch, which takes seconds to load.
"""

from typing import TYPE_CHECKING

from turnout.core.lazy import loaded_on_demand

if TYPE_CHECKING:
    from turnout.learning.algorithm import (
        Algorithm,
        Batched,
        ClientState,
        ClientStates,
        ClientStore,
        ServerState,
    )
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
    from turnout.learning.fedsgd import FedSGD, Task
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
    from turnout.learning.tasks import ClassificationTask

__getattr__ = loaded_on_demand(
    __name__,
    {
        "algorithm": "Algorithm Batched ClientState ClientStates ClientStore ServerState",
        "averaging": "Averaged Averaging ExponentialAverage LastIterate TailAverage "
        "build_averaging",
        "examples": "Examples Holdings",
        "features": "FEATURES apply_features featured",
        "fedsgd": "FedSGD Task",
        "local_updates": "LayeredUpdates LocalTraining VmappedUpdates",
        "models": "MODELS Layered Model build_model",
        "optimizers": "SGD Adam Optimizer build_optimizer",
        "schedules": "SCHEDULES Constant Cosine InverseSquareRoot Linear Schedule WarmUp "
        "build_schedule",
        "tasks": "ClassificationTask",
    },
)

__all__ = [
    "FEATURES",
    "MODELS",
    "SCHEDULES",
    "SGD",
    "Adam",
    "Algorithm",
    "Averaged",
    "Averaging",
    "Batched",
    "ClassificationTask",
    "ClientState",
    "ClientStates",
    "ClientStore",
    "Constant",
    "Cosine",
    "Examples",
    "ExponentialAverage",
    "FedSGD",
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
    "ServerState",
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
