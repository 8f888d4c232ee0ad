"""A model that a run left, to predict with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.core.values import rounded
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from turnout.learning.models import Model
    from turnout.runs.training import SavedModel

_AT_ONCE = 1024


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model with the facts of its guarantee.

    Attributes:
        saved: its file's contents: parameters by name, and facts.
        module: a torch.nn.Module of the user's own, or what makes one; None for the one that the
            plan names.
        place: the folder to which paths in the plan are relative, and in which its code is.
    """

    saved: SavedModel
    module: Any = None
    place: Path = Path()

    @property
    def parameters(self) -> NDArray[np.float32]:
        """The parameters that the run handed out, shape (dimension,)."""
        return self.saved.parameters[self.saved.facts["handed_out"]]

    @property
    def guarantee(self) -> dict[str, Any]:
        """ε from both sides, δ, relation, unit, trust model and method, by name."""
        return dict(self.saved.facts["guarantee"])

    @property
    def card(self) -> str:
        """The model card, as Markdown."""
        from turnout.reporting.summary import model_card

        return model_card(self.saved.facts)

    def scores(self, inputs: object) -> NDArray[np.float32]:
        """Outputs of the model, float32: of classes or tags before softmax or sigmoid, or numbers.

        Args:
            inputs: shape (n, …), as the training data had them before features.

        Returns:
            Shape (n, outputs), or (n, tokens, outputs).

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
        """The likeliest class of each input or token, int64; tags as 0 or 1; or the numbers.

        Args and errors as those of `scores`; shape (n,), (n, tokens), (n, tags) or (n, numbers).
        """
        scores, target = self.scores(inputs), self.saved.facts["target"]
        if target == "numbers":
            return scores
        return (scores > 0).astype(np.uint8) if target == "tags" else scores.argmax(axis=-1)

    def _model(self, shape: tuple[int, ...]) -> Model:
        """The model for inputs of that shape; of a module, its code is run."""
        from turnout.learning.models import build_model

        facts = self.saved.facts
        if facts["module"] is None:
            return build_model(facts["model"], shape, facts["outputs"])
        from turnout.learning.modules import Adapters, build_module

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
        """Inputs of the shape and kind that the model learned from."""
        shape = tuple(self.saved.facts["input_shape"])
        try:
            array = np.asarray(inputs)
        except ValueError:
            raise ParameterError("inputs", "rows of unequal length", "one array") from None
        if array.shape[1:] != shape or array.ndim != 1 + len(shape) or len(array) == 0:
            raise ParameterError(
                "inputs", array.shape, f"a shape (n, {', '.join(map(str, shape))})"
            )
        if array.dtype.kind not in "buif":
            raise ParameterError("inputs", str(array.dtype), "an array of numbers")
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise ParameterError("inputs", f"row {row}", "finite numbers")
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
    """Bytes, or floats on the scale that the model learned from; a wrong scale is refused."""
    if not learned_from_bytes:
        if rounded(array).any():
            raise ParameterError("inputs", "something else", "whole numbers that float32 holds")
        return array.astype(np.float32)
    whole = array.dtype.kind in "bui"
    limit = 255 if whole else 1
    if array.min() < 0 or array.max() > limit:
        found = f"{array.min():g} to {array.max():g}"
        raise ParameterError("inputs", found, "whole numbers from 0 to 255, or floats from 0 to 1")
    return array.astype(np.uint8 if whole else np.float32)


def load(folder: str | os.PathLike[str], *, module: Any = None) -> TrainedModel:
    """The model that a run left in its folder; nothing of its file is executed or unpickled.

    Args:
        folder: of the run.
        module: a torch.nn.Module, or what makes one, for a run that was given one; by default the
            code that the plan names is imported once scores are asked for.

    Raises:
        ParameterError: a module, where the run's model has a name.
        StorageError: there is no model, or it is damaged or another program's.
    """
    require("train", what="turnout.load")
    from turnout.runs.folders import RunFolder
    from turnout.runs.training import read_model

    saved = read_model(Path(folder))
    if module is not None and saved.facts["module"] is None:
        raise ParameterError("module", module, f"none: the run's model is {saved.facts['model']}")
    return TrainedModel(saved, module, RunFolder(Path(folder)).place)
