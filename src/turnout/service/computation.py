"""The computation of a device, in formats with names: enough to compute it without the plan.

A format that is not named here is refused. A new one is a new name, and no new version of the
protocol: devices that know it take part in tasks that name it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from turnout.core import checks
from turnout.core.errors import ParameterError

if TYPE_CHECKING:
    from turnout.plans import Plan

PARAMETERS_FORMAT, CLIENT_FORMAT = "float32-le-1", "gradient-descent-1"
ARCHITECTURES = {name: f"{name}-1" for name in ("logistic", "tanh-cnn-13k", "tanh-cnn-26k")}
FEATURES = {name: f"{name}-1" for name in ("pixels", "standardized", "scattering")}
"""Formats by the names that a plan has for them."""


@dataclass(frozen=True, slots=True)
class Computation:
    """A client's update as a function of parameters and records (docs/device-protocol.md).

    Attributes:
        architecture: format of the model: what the parameters are, and in which order.
        features: format of the function from a record's input to the model's.
        classes: labels are 0 … classes − 1.
    """

    architecture: str = ARCHITECTURES["logistic"]
    features: str = FEATURES["pixels"]
    input_shape: tuple[int, ...] = (1,)
    classes: int = 2
    steps: int = 1
    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("architecture", self.architecture, ARCHITECTURES),
            ("features", self.features, FEATURES),
        ):
            if value not in known.values():
                raise ParameterError(name, value, f"one of {', '.join(known.values())}")
        if not self.input_shape:
            raise ParameterError("input_shape", self.input_shape, "at least one side")
        checks.count(**{f"input_shape[{i}]": side for i, side in enumerate(self.input_shape)})
        checks.count(2, classes=self.classes)
        checks.count(steps=self.steps)
        checks.positive(learning_rate=self.learning_rate)

    @classmethod
    def of(cls, plan: Plan, input_shape: tuple[int, ...], classes: int) -> Self:
        """The computation that a plan asks of the clients, for inputs of that shape."""
        return cls(
            ARCHITECTURES[plan.model.name],
            FEATURES[plan.model.features],
            tuple(int(side) for side in input_shape),
            int(classes),
            plan.client.steps,
            plan.client.learning_rate,
        )

    def model_document(self, first: bytes) -> dict[str, Any]:
        """The charter's ``model``; ``first`` is the digest of the first parameters."""
        return {
            "format": PARAMETERS_FORMAT,
            "digest": first.hex(),
            "architecture": {"format": self.architecture, "classes": self.classes},
            "features": {"format": self.features, "input_shape": list(self.input_shape)},
        }

    def client_document(self) -> dict[str, Any]:
        """The charter's ``client``."""
        return {
            "format": CLIENT_FORMAT,
            "steps": self.steps,
            "learning_rate": self.learning_rate,
        }

    @classmethod
    def from_documents(cls, model: dict[str, Any], client: dict[str, Any]) -> Self:
        """The computation of the two documents."""
        architecture, features = model["architecture"], model["features"]
        return cls(
            architecture["format"],
            features["format"],
            tuple(features["input_shape"]),
            architecture["classes"],
            client["steps"],
            client["learning_rate"],
        )
