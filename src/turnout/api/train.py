"""`train` and `load`: training from a plan, and the trained model.

A `TrainingRun` is a finished run, a `TrainedModel` the model of a run's folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.api.price import Result
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.core.values import rounded
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.accounting import Guarantee
    from turnout.data import ClientData
    from turnout.learning.models import Model
    from turnout.learning.tasks import Executor
    from turnout.plans import Plan
    from turnout.reporting.drawing import Picture
    from turnout.reporting.summary import Outcome, Summary
    from turnout.runs.training import SavedModel
    from turnout.simulation import History


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Result):
    """Finished training run of a plan.

    Two runs are equal if their plans, models and histories are equal; running times do not count.

    Attributes:
        summary: contents of the report.
        folder: folder of the report; None if no report was written.
    """

    summary: Summary
    folder: Path | None

    @property
    def _outcome(self) -> Outcome:
        return self.summary.outcome

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of the run to each client."""
        return self._outcome.prepared.guarantee

    @property
    def history(self) -> History:
        """Measurements of each step; ε does not cover the exact counts of participants in it."""
        return self._outcome.history

    @property
    def parameters(self) -> NDArray[np.floating]:
        """Parameters of the final model, shape (dimension,)."""
        return self._outcome.parameters

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the final model on the test set, by name; the main metric is first."""
        return self._outcome.metrics

    @property
    def baseline(self) -> History | None:
        """Run of the same plan without noise and clipping; None if no baseline was requested."""
        return self.summary.baseline

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the main metric over test sets of this size; None if unknown."""
        return self._outcome.interval

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model.

        Raises:
            UnsupportedError: the plan asks for other metrics.
        """
        if "accuracy" not in self.metrics:
            raise UnsupportedError(
                f"this run has no accuracy; its metrics are {', '.join(self.metrics)}"
            )
        return self.metrics["accuracy"]

    @property
    def loss(self) -> float:
        """Test loss of the final model."""
        return self._outcome.loss

    def to_dict(self) -> dict[str, Any]:
        """Content of report.json, which has no exact count of participants."""
        return self.summary.record()

    def table(self) -> RenderableType:
        """Table that the command line prints, for rich."""
        from turnout.reporting.console import run_table

        return run_table(self.summary)

    def plot(self) -> Picture:
        """Picture of accuracy and ε over the steps."""
        require("plots", what="plot")
        from turnout.reporting.pictures import pictures

        return pictures(self.summary)[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrainingRun):
            return NotImplemented
        mine, others = self.history.columns(), other.history.columns()
        return (
            self._outcome.prepared.plan == other._outcome.prepared.plan
            and np.array_equal(self.parameters, other.parameters)
            and mine.keys() == others.keys()
            and all(np.array_equal(mine[name], others[name]) for name in mine.keys() - {"seconds"})
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        guarantee, headline = self.guarantee, self._outcome.headline
        return (
            f"TrainingRun({headline.words} {headline.text(self._outcome.result)}, "
            f"{self.history.check_ins.size:,} steps; "
            f"{guarantee.trust.value}, ε = {rounded_up(guarantee.epsilon.upper)}, "
            f"δ = {guarantee.delta:g}, {guarantee.relation.value}, {guarantee.unit.value})"
        )


def train(
    plan: str | os.PathLike[str] | Plan | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    example: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    data: ClientData | None = None,
    module: Any = None,
    engine: Executor | None = None,
    baseline: bool = False,
    progress: bool = False,
) -> TrainingRun:
    """Training run of a plan, with noise that is calibrated to the plan's ε before the first step.

    Clients and their random numbers are simulated: all draws follow from the plan's seed, which is
    not secret. The guarantee is that of a deployment of the same scheme with the operating system's
    random numbers.

    Args:
        plan: the path of a TOML file, its tables as a mapping, or a `turnout.plans.Plan`; paths in
            it are relative to the file, or to the current folder.
        out: a new or empty folder for checkpoints and the report; None writes nothing.
        example: an example plan by name, such as "digits", in place of ``plan``.
        resume: folder of an interrupted run to continue, in place of ``plan`` and ``example``.
        data: the clients' data, as returned by `client_data`, if the plan has no table [data];
            pass the same data again to resume.
        module: a torch.nn.Module, or a function that makes one, if the plan's table [model] has no
            name; pass it again to resume.
        engine: engine that computes the clients' updates, such as
            `turnout.integrations.ray.RayEngine` in its ``with`` statement; None for threads of
            this process. The results are the same, bit for bit.
        baseline: whether to run the plan without noise and clipping as well. The result,
            `TrainingRun.baseline`, is not private. A resumed run keeps its choice.
        progress: whether to show progress in a terminal.

    Raises:
        ParameterError: the plan, its budget or the folder is refused.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: the guarantee cannot be certified.
        StorageError: a file cannot be written, or a checkpoint is damaged or another run's.
    """
    require("train", what="turnout.train")
    from turnout.plans import Plan, example_plan
    from turnout.reporting.console import Console
    from turnout.runs import Unwatched, training
    from turnout.runs.workload import Beside

    # Exactly one source of the run.
    given = {"plan": plan, "example": example, "resume": resume}
    if sum(one is not None for one in given.values()) != 1:
        named = ", ".join(name for name, one in given.items() if one is not None) or "none of them"
        raise ParameterError("plan", named, "exactly one of plan, example and resume")
    watcher, beside = Console() if progress else Unwatched(), Beside(data, module, engine)
    # Go on with an interrupted run.
    if resume is not None:
        if out is not None:
            raise ParameterError("out", str(out), "no value with resume")
        finished = training.resume(Path(resume), watcher, beside, baseline)
    else:
        # Start a new run: of tables, an example, a plan or a file.
        if isinstance(plan, Mapping):
            source = Plan.from_mapping(dict(plan))
        elif example is not None:
            source = example_plan(example)
        else:
            assert plan is not None
            source = plan if isinstance(plan, Plan) else Path(plan)
        folder = None if out is None else Path(out)
        finished = training.train(source, folder, watcher, beside, baseline)
    return TrainingRun(finished.summary, finished.folder)


_AT_ONCE = 1024


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """Trained model with its guarantee.

    Attributes:
        saved: contents of the model's file: parameters by name, and facts about the run.
        module: a torch.nn.Module, or a function that makes one; None for the model that the plan
            names.
        place: folder to which paths in the plan are relative and which has the plan's code.
    """

    saved: SavedModel
    module: Any = None
    place: Path = Path()

    @property
    def parameters(self) -> NDArray[np.float32]:
        """Released parameters of the model, shape (dimension,)."""
        return self.saved.parameters[self.saved.facts["handed_out"]]

    @property
    def guarantee(self) -> dict[str, Any]:
        """Bounds on ε, δ, relation, unit, trust model and method, by name."""
        return dict(self.saved.facts["guarantee"])

    @property
    def card(self) -> str:
        """Model card in Markdown."""
        from turnout.reporting.summary import model_card

        return model_card(self.saved.facts)

    def scores(self, inputs: object) -> NDArray[np.float32]:
        """Outputs of the model, float32: of classes or tags before softmax or sigmoid, or numbers.

        Args:
            inputs: inputs before features, as in the training data, shape (n, …).

        Returns:
            Array of shape (n, outputs), or (n, tokens, outputs).

        Raises:
            ParameterError: another shape, numbers that are not finite, or floats beyond [0, 1]
                where the model learned from bytes.
        """
        import torch

        from turnout.learning.examples import as_floats, as_tensor
        from turnout.learning.features import apply_features, build_features

        features = build_features(self.saved.facts["features"], self.place)
        seen = apply_features(features, self._checked(inputs))
        model = self._model(seen.shape[1:])
        if model.dimension != self.parameters.size:
            expected = f"a module of {self.parameters.size} trained parameters, as the run's"
            raise ParameterError("module", model.dimension, expected)
        at = torch.from_numpy(self.parameters.copy())
        with torch.no_grad():
            parts = as_tensor(seen).split(_AT_ONCE)
            return torch.cat([model.logits(at, as_floats(part)) for part in parts]).numpy()

    def predict(self, inputs: object) -> NDArray[Any]:
        """Predicted class of each input or token (int64), predicted tags (0 or 1), or numbers.

        Args and errors as those of `scores`; shape (n,), (n, tokens), (n, tags) or (n, numbers).
        """
        scores, target = self.scores(inputs), self.saved.facts["target"]
        if target == "numbers":
            return scores
        return (scores > 0).astype(np.uint8) if target == "tags" else scores.argmax(axis=-1)

    def _model(self, shape: tuple[int, ...]) -> Model:
        """Model for inputs of the given shape; a module's own code is executed."""
        from turnout.learning.models import build_model

        facts = self.saved.facts
        # A model of turnout, by name.
        if facts["module"] is None:
            return build_model(facts["model"], shape, facts["outputs"])
        from turnout.learning.modules import Adapters, build_module

        # The user's module: its code runs, with the adapters of the training.
        known = dict(facts["module"])
        lora, given = known.pop("lora"), known.pop("module")
        adapters = lora and Adapters(lora["rank"], lora["alpha"], tuple(lora["layers"]))
        return build_module(
            given if self.module is None else self.module,
            folder=self.place,
            seed=facts["seed"],
            trainable=tuple(known.pop("trainable") or ()),
            adapters=adapters,
            **known,
        )

    def _checked(self, inputs: object) -> NDArray[Any]:
        """Inputs, checked to have the shape and type of the training inputs."""
        shape = tuple(self.saved.facts["input_shape"])
        # An array of the shape of the training inputs.
        try:
            array = np.asarray(inputs)
        except ValueError:
            raise ParameterError(
                "inputs", "rows of unequal length", "rows of equal length"
            ) from None
        if array.shape[1:] != shape or array.ndim != 1 + len(shape) or len(array) == 0:
            raise ParameterError(
                "inputs", array.shape, f"a shape (n, {', '.join(map(str, shape))})"
            )
        # Finite numbers.
        if array.dtype.kind not in "buif":
            raise ParameterError("inputs", str(array.dtype), "an array of numbers")
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise ParameterError("inputs", f"row {row}", "finite numbers")
        # Tokens are whole numbers; other inputs are scaled as in training.
        if self.saved.facts["input_dtype"] == "int64":
            if array.dtype.kind == "f":
                raise ParameterError("inputs", str(array.dtype), "whole numbers, which are tokens")
            return array.astype(np.int64)
        return scaled_as_learned(array, self.saved.facts["input_dtype"] == "uint8")

    def __repr__(self) -> str:
        facts, guarantee = self.saved.facts, self.guarantee
        return (
            f"TrainedModel({facts['model']} on {facts['data']}: "
            f"ε = {rounded_up(guarantee['epsilon'])}, δ = {guarantee['delta']:g}, "
            f"{guarantee['relation']}, {guarantee['unit']}, {guarantee['trust_model']})"
        )


def scaled_as_learned(array: NDArray[Any], learned_from_bytes: bool) -> NDArray[Any]:
    """Bytes, or floats on the scale of the training inputs; another scale is refused."""
    if not learned_from_bytes:
        if rounded(array).any():
            raise ParameterError(
                "inputs", "something else", "whole numbers that float32 can represent"
            )
        return array.astype(np.float32)
    whole = array.dtype.kind in "bui"
    limit = 255 if whole else 1
    if array.min() < 0 or array.max() > limit:
        found = f"{array.min():g} to {array.max():g}"
        raise ParameterError("inputs", found, "whole numbers from 0 to 255, or floats from 0 to 1")
    return array.astype(np.uint8 if whole else np.float32)


def load(folder: str | os.PathLike[str], *, module: Any = None) -> TrainedModel:
    """Trained model from the folder of a run; nothing in its files is executed or unpickled.

    Args:
        folder: folder of the run.
        module: a torch.nn.Module, or a function that makes one, if the run was given one;
            otherwise the code that the plan names is imported when scores are first computed.

    Raises:
        ParameterError: a module is given although the run's model has a name.
        StorageError: the folder has no model, or the model is damaged or of another program.
    """
    require("train", what="turnout.load")
    from turnout.runs.folders import RunFolder
    from turnout.runs.training import read_model

    saved = read_model(Path(folder))
    if module is not None and saved.facts["module"] is None:
        raise ParameterError(
            "module", module, f"no value, since the run's model is {saved.facts['model']}"
        )
    return TrainedModel(saved, module, RunFolder(Path(folder)).place)
