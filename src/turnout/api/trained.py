"""A model that a run left, to predict with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.extras import require

if TYPE_CHECKING:
    from turnout.training.saved import SavedModel

_AT_ONCE = 1024


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model with the facts of its guarantee.

    Attributes:
        saved: its file's contents: parameters by name, and facts.
    """

    saved: SavedModel

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
        from turnout.reporting.card import model_card

        return model_card(self.saved.facts)

    def scores(self, inputs: object) -> NDArray[np.float32]:
        """Scores of the classes before softmax, float32, shape (n, outputs).

        Args:
            inputs: shape (n, …), as the training data had them before features.

        Raises:
            ParameterError: another shape, numbers that are not finite, or floats beyond [0, 1]
                where the model learned from bytes.
        """
        import torch

        from turnout.learning.examples import as_floats, as_tensor
        from turnout.learning.features import apply_features
        from turnout.learning.models import build_model

        facts = self.saved.facts
        seen = apply_features(facts["features"], self._checked(inputs))
        model = build_model(facts["model"], seen.shape[1:], facts["outputs"])
        at = torch.from_numpy(self.parameters.copy())
        with torch.no_grad():
            parts = as_tensor(seen).split(_AT_ONCE)
            return torch.cat([model.logits(at, as_floats(part)) for part in parts]).numpy()

    def predict(self, inputs: object) -> NDArray[np.int64]:
        """The class with the highest score of each input, int64, shape (n,); raises as `scores`."""
        return self.scores(inputs).argmax(axis=1)

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
        if array.dtype.kind not in "uif":
            raise ParameterError("inputs", str(array.dtype), "an array of numbers")
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise ParameterError("inputs", f"row {row}", "finite numbers")
        return _as_learned(array, self.saved.facts["input_dtype"] == "uint8")

    def __repr__(self) -> str:
        facts, guarantee = self.saved.facts, self.guarantee
        return (
            f"TrainedModel({facts['model']} on {facts['data']}: ε ≤ {guarantee['epsilon']:.5g}, "
            f"δ = {guarantee['delta']:g}, {guarantee['relation']}, {guarantee['unit']}, "
            f"{guarantee['trust_model']})"
        )


def _as_learned(array: NDArray[Any], learned_from_bytes: bool) -> NDArray[Any]:
    """Bytes, or floats on the scale that the model learned from; a wrong scale is refused."""
    if not learned_from_bytes:
        return array.astype(np.float32)
    whole = array.dtype.kind in "ui"
    limit = 255 if whole else 1
    if array.min() < 0 or array.max() > limit:
        found = f"{array.min():g} to {array.max():g}"
        raise ParameterError("inputs", found, "whole numbers from 0 to 255, or floats from 0 to 1")
    return array.astype(np.uint8 if whole else np.float32)


def load(folder: str | os.PathLike[str]) -> TrainedModel:
    """The model that a run left in its folder; nothing of its file is executed or unpickled.

    Raises:
        StorageError: there is none, or it is damaged or another program's.
        MissingExtraError: a package of the extra "train" is missing.
    """
    require("train", what="turnout.load")
    from turnout.training.saved import read_model

    return TrainedModel(read_model(Path(folder)))
