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

    Two runs are equal if plans, models and histories are equal; running times may differ.

    Attributes:
        summary: content of the report: plan, guarantee, history and final model.
        folder: folder with the report; None if no report was written.
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
        """Measurements of each step; ε does not cover their exact counts of participants."""
        return self._outcome.history

    @property
    def parameters(self) -> NDArray[np.floating]:
        """Parameters of the final model, shape (dimension,)."""
        return self._outcome.parameters

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the final model on the test set, the main metric first, including the loss."""
        return self._outcome.metrics

    @property
    def baseline(self) -> History | None:
        """Run of the same plan without noise and clipping; None if no baseline was requested."""
        return self.summary.baseline

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the main metric over random test sets; None if unknown."""
        return self._outcome.interval

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model.

        Raises:
            UnsupportedError: accuracy is not among the metrics of the plan.
        """
        if "accuracy" not in self.metrics:
            raise UnsupportedError(
                f"this run has no accuracy; read metrics, which has {', '.join(self.metrics)}"
            )
        return self.metrics["accuracy"]

    @property
    def loss(self) -> float:
        """Loss of the final model on the test set."""
        return self._outcome.loss

    def to_dict(self) -> dict[str, Any]:
        """Content of report.json, which has no exact count of participants."""
        return self.summary.record()

    def table(self) -> RenderableType:
        """Table of the run as a ``rich`` renderable, as ``turnout train`` prints it."""
        from turnout.reporting.console import run_table

        return run_table(self.summary)

    def plot(self) -> Picture:
        """Picture of accuracy and ε over the steps.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
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
    """Training run of a plan, with noise calibrated to the plan's privacy budget.

    Clients and their randomness are simulated: all draws follow from the plan's seed, so the run
    itself has no privacy. The guarantee is that of a deployment of the same scheme with the
    randomness of the operating system.

    Args:
        plan: path of a TOML file, a mapping of its tables, or a `turnout.plans.Plan`. Paths in the
            plan are relative to the folder of the file, or to the current folder without a file.
        out: new or empty folder for checkpoints and the report; None writes no file.
        example: name of an example plan, such as "digits"; given instead of ``plan``.
        resume: folder of a run that was interrupted; given instead of ``plan`` and ``example``.
        data: the clients' data from `client_data`, if the plan's [data] names no data. It must be
            given again when the run is resumed.
        module: torch.nn.Module or a function that returns one, if the plan's [model] names no
            model. It must be given again when the run is resumed.
        engine: object that computes the clients' updates, such as an open
            `turnout.integrations.ray.RayEngine`; None computes them in threads of this process.
            Every engine gives the same bits.
        baseline: whether to run the plan a second time without noise and clipping. The result,
            `TrainingRun.baseline`, has no privacy. A resumed run keeps its baseline.
        progress: whether to show the progress on the terminal.

    Returns:
        The finished run. The upper bound on ε of its guarantee is never below the true ε.

    Raises:
        ParameterError: the plan, its budget or the folder is invalid.
        UnsupportedError: no sound analysis is known for this combination.
        NumericalError: the guarantee cannot be certified.
        StorageError: a file cannot be written, or a checkpoint is damaged or belongs to another
            run.
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
            from turnout.plans.plugins import import_modules

            import_modules(plan, Path())
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
        saved: contents of the model's file: parameters by name, and facts about the training.
        module: the user's torch.nn.Module, or a function that returns one; None for the model that
            the plan names.
        place: folder to which paths in the plan are relative, and which holds the plan's code.
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
        """Guarantee by field name: bounds on ε, then δ, relation, unit, trust model and method."""
        return dict(self.saved.facts["guarantee"])

    @property
    def card(self) -> str:
        """Model card in Markdown."""
        from turnout.reporting.summary import model_card

        return model_card(self.saved.facts)

    def scores(self, inputs: object) -> NDArray[np.float32]:
        """Outputs of the model, float32: logits of classes or tags, or predicted numbers.

        Args:
            inputs: array of shape (n, …) in the form of the training data before feature
                extraction.

        Returns:
            Array of shape (n, outputs), or (n, tokens, outputs) for a model of tokens.

        Raises:
            ParameterError: the shape or type is not that of the training data, a number is not
                finite, or a float is outside [0, 1] although the model was trained on bytes.
        """
        # Features of the inputs, and the model for their shape.
        import torch

        from turnout.learning.examples import as_floats, as_tensor
        from turnout.learning.features import apply_features, build_features

        features = build_features(self.saved.facts["features"], self.place)
        seen = apply_features(features, self._checked(inputs))
        model = self._model(seen.shape[1:])
        if model.dimension != self.parameters.size:
            expected = f"a module with {self.parameters.size} parameters, as in the run"
            raise ParameterError("module", model.dimension, expected)
        # Outputs in batches of bounded size, without gradients.
        at = torch.from_numpy(self.parameters.copy())
        with torch.no_grad():
            parts = as_tensor(seen).split(_AT_ONCE)
            return torch.cat([model.logits(at, as_floats(part)) for part in parts]).numpy()

    def predict(self, inputs: object) -> NDArray[Any]:
        """Predictions: classes of inputs or tokens (int64), tags (0 or 1), or numbers.

        The argument and the errors are those of `scores`. The shape is (n,) for classes, (n,
        tokens) for tokens, (n, tags) for tags, and (n, numbers) for numbers.
        """
        scores, target = self.scores(inputs), self.saved.facts["target"]
        if target == "numbers":
            return scores
        return (scores > 0).astype(np.uint8) if target == "tags" else scores.argmax(axis=-1)

    def _model(self, shape: tuple[int, ...]) -> Model:
        """Model for inputs of the given shape; the code of a module is executed."""
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
        """Inputs as an array, after a check of their shape and type against the training inputs."""
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
                raise ParameterError("inputs", str(array.dtype), "tokens as whole numbers")
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
    """Inputs as bytes or as float32, on the scale of the training inputs.

    Args:
        array: finite numbers of any shape.
        learned_from_bytes: whether the model was trained on bytes from 0 to 255.

    Raises:
        ParameterError: the inputs have another scale, or a number that float32 would round.
    """
    if not learned_from_bytes:
        if rounded(array).any():
            raise ParameterError(
                "inputs", "a whole number that float32 rounds", "numbers that float32 can represent"
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
        module: torch.nn.Module or a function that returns one, if `train` was given a module. If
            None, a module that the plan names is imported at the first call of `scores`.

    Returns:
        The trained model with its parameters, shape (dimension,), and its guarantee.

    Raises:
        ParameterError: ``module`` is given, but the run trained one of turnout's own models.
        StorageError: the folder has no model, or the file is damaged or was written by another
            program.
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
