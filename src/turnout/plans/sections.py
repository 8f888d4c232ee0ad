"""The other tables of a plan: model, clients' work, privacy, protocol, optimizer, run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from turnout.core.errors import ParameterError
from turnout.plans.fields import (
    BelowOne,
    Count,
    CountFromZero,
    NonNegative,
    OpenUnit,
    Positive,
    Probability,
    Section,
)
from turnout.spec import Relation, ReleaseRule


class ModelSection(Section):
    """The model that is trained."""

    name: Literal["logistic", "tanh-cnn-13k", "tanh-cnn-26k"] = Field(description="the model")
    features: Literal["pixels", "standardized", "scattering"] = Field(
        "pixels", description="fixed public function of an image that the model sees"
    )


class ClientSection(Section):
    """A client's work in a step: one gradient, or several local steps."""

    steps: Count = Field(1, description="gradient steps over all the client's records")
    learning_rate: Positive = Field(
        1.0, description="size of each; with one step of size 1 the update is the gradient"
    )


class PrivacySection(Section):
    """The privacy target: relation, δ, and a target ε or a noise multiplier (or both, to check)."""

    relation: Relation = Field(description="the neighbouring relation; there is no default")
    delta: OpenUnit = Field(description="the δ of (ε, δ)")
    epsilon: Positive | None = Field(
        None, description="the ε that must hold; alone, the noise is calibrated to it"
    )
    noise_multiplier: Positive | None = Field(
        None,
        description="standard deviation of the noise divided by clip_norm; with epsilon too, a "
        "plan whose noise does not give that epsilon is refused",
    )
    clip_norm: Positive = Field(1.0, description="bound on the ℓ2 norm of a client's update")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.epsilon is None and self.noise_multiplier is None:
            raise ParameterError(
                "epsilon", None, "a target epsilon or a noise_multiplier (a number above 0)"
            )
        return self


class ProtocolSection(Section):
    """The release of a step, by the check-ins."""

    release: ReleaseRule = Field(
        ReleaseRule.AGGREGATED,
        description="'aggregated': the sum of all; 'one-client': Algorithm 1 of the check-in "
        "paper; 'averaged': Algorithm 2",
    )
    minibatch: Count = Field(
        1, description="steps accumulated before the model moves (release = 'one-client')"
    )

    expected_check_ins: Positive | None = Field(
        None,
        description="public constant by which an aggregated sum is divided; unset: the mean "
        "number of check-ins a step, which makes the number of clients public",
    )

    @model_validator(mode="after")
    def _minibatch_fits(self) -> Self:
        if self.minibatch > 1 and self.release is not ReleaseRule.ONE_CLIENT:
            raise ParameterError(
                "minibatch", self.minibatch, f"1 with release = {self.release.value!r}"
            )
        return self


class OptimizerSection(Section):
    """The server's optimizer."""

    name: Literal["sgd", "nesterov", "adam"] = Field("sgd", description="the rule")
    learning_rate: Positive = Field(description="factor of every move, before the schedule")
    momentum: BelowOne = Field(
        0.0, description="of 'sgd' and 'nesterov': how much of the last move is kept"
    )
    weight_decay: NonNegative = Field(0.0, description="pull towards 0, times the learning rate")
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = Field(
        "constant", description="how the learning rate goes over the run"
    )
    warmup_steps: CountFromZero = Field(0, description="steps in which the learning rate rises")
    averaging: Literal["none", "ema", "tail"] = Field(
        "none", description="which average of the models is the result"
    )
    averaging_decay: OpenUnit = Field(0.99, description="of averaging = 'ema', per step")
    averaging_tail: Probability = Field(
        0.5, description="of averaging = 'tail': the share of the steps, at the end, it averages"
    )

    @model_validator(mode="after")
    def _momentum_fits(self) -> Self:
        if self.name == "adam" and self.momentum:
            raise ParameterError("momentum", self.momentum, "0 with name = 'adam'")
        if self.name == "nesterov" and not self.momentum:
            raise ParameterError("momentum", self.momentum, "above 0 with name = 'nesterov'")
        return self


class RunSection(Section):
    """Everything that changes neither the guarantee nor the method."""

    seed: CountFromZero = Field(
        1, description="of the simulation; a deployed run has no seed, its randomness is the OS's"
    )
    evaluate_every: Count | None = Field(
        None, description="steps between evaluations; unset: about 60 evaluations in all"
    )
    checkpoint_every: Count | None = Field(
        None, description="steps between checkpoints; unset: as many as evaluations"
    )
