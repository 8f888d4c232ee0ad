"""Tables of a plan: participation, model, clients' work, privacy, protocol, optimizer, run.

`Section` is the base class of these tables. Functions of `turnout.core.checks` check the fields;
NaN is an error. `ParticipationSection` is the table ``[participation]``: its keys are the settings
of the participation that ``law`` selects (`turnout.schemes.settings`), so that a new participation
needs no section here. The only exception is `AvailabilitySection`, which has the name of a file.
`key_of` returns a field with the default and the description of a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import feature_stages
from turnout.core.plugins import RULES, algorithm_maker, algorithm_names, load
from turnout.plans.refusals import Variant
from turnout.schemes import (
    AvailabilityCheckIn,
    Participation,
    PrivacyUnit,
    Relation,
    ReleaseRule,
    TrustModel,
)
from turnout.schemes.parameters import Domain, Parameter
from turnout.schemes.registry import participation_names
from turnout.schemes.settings import (
    RELATION_SETTING,
    PrivacyTarget,
    one_of,
    participation_of,
    planned_participations,
    setting_of,
    settings,
    values_of,
)


class Section(BaseModel):
    """Base of the tables of a plan: frozen, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )


def _below_one(value: object) -> None:
    """Raise an error unless the value is a number that is at least 0 and below 1."""
    try:
        checks.probability(value=value)
        if value != 1:
            return
    except ParameterError:
        pass
    raise ParameterError("value", value, "a number of at least 0 and below 1")


def _checked(check: Callable[..., None]) -> BeforeValidator:
    """Validator that raises the errors of ``check`` and returns the value unchanged."""

    def validate(value: Any) -> Any:
        check(value=value)
        return value

    return BeforeValidator(validate)


Positive = Annotated[float, _checked(checks.positive)]
"""A finite number above 0."""
NonNegative = Annotated[float, _checked(checks.non_negative)]
"""A finite number of at least 0."""
Probability = Annotated[float, _checked(checks.probability)]
"""A number from 0 to 1."""
OpenUnit = Annotated[float, _checked(checks.open_unit)]
"""A number strictly between 0 and 1."""
BelowOne = Annotated[float, _checked(_below_one)]
"""A number of at least 0 and below 1."""
Count = Annotated[int, _checked(checks.count)]
"""A whole number of at least 1."""
CountFromZero = Annotated[int, _checked(partial(checks.count, 0))]
"""A whole number of at least 0."""


LAW = "who takes part when"


def key_of(parameter: Parameter) -> Any:
    """Pydantic field with the default and the description that a setting declares."""
    default = ... if parameter.required else parameter.default
    return Field(default, description=parameter.words)


def optional_key(kind: type[Any], key: str) -> Any:
    """Pydantic field of a setting that a class declares, but with None as default."""
    return key_of(replace(setting_of(kind, key), default=None, optional=True))


def _setting_field(parameter: Parameter) -> FieldInfo:
    """Pydantic field that describes a setting, with the type of its values."""
    field: FieldInfo = key_of(parameter)
    field.annotation = parameter.members or (int if parameter.domain is Domain.COUNT else float)
    return field


class ParticipationSection(Section):
    """The participation of the clients: the key ``law``, and the settings that it selects."""

    model_config = ConfigDict(extra="allow")

    law: str = Field(description=LAW)

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, given: Any) -> Any:
        """Values of ``law`` and of the participation's settings, after checks and with defaults."""
        if not isinstance(given, Mapping):
            return given
        law, kinds = given.get("law"), planned_participations()
        if isinstance(law, str) and law not in (*kinds, AVAILABILITY):
            load("participations", law)
            kinds = planned_participations()
        if not isinstance(law, str) or law not in kinds:
            raise ParameterError("law", law, one_of([*kinds, AVAILABILITY]))
        # An unknown key is an error, which lists the keys of this participation.
        own = settings(kinds[law])
        known = ["law", *(each.key for each in own)]
        for key in given:
            if key not in known:
                raise PydanticCustomError(
                    "unknown_setting", "unknown", {"key": key, "known": known}
                )
        # The values in the order of the settings, with defaults.
        values = values_of(own, given)
        return {"law": law} | {each.key: values[each.name] for each in own}

    @classmethod
    def variants(cls) -> list[Variant]:
        """Variants of the table [participation]: one for each participation, with its keys."""
        return [
            Variant(
                word,
                participation_names(kind).summary,
                {"law": FieldInfo(annotation=Literal[word], description=LAW)}  # type: ignore[valid-type]
                | {each.key: _setting_field(each) for each in settings(kind)},
            )
            for word, kind in planned_participations().items()
        ]

    def build(self, population: int) -> Participation:
        """The participation of the table for a number of clients.

        Raises:
            ParameterError: the settings are not permitted with this number of clients.
        """
        kind = planned_participations()[self.law]
        values = self.model_extra or {}
        return participation_of(
            kind, {each.name: values[each.key] for each in settings(kind)}, population
        )


AVAILABILITY = participation_names(AvailabilityCheckIn).plan


class AvailabilitySection(Section):
    """In each window each client draws a step in which a trace shows the client as available."""

    law: Literal["availability"] = Field(description=LAW)
    trace: str = Field(
        "flash-phones",
        description="'flash-phones', or a CSV file of intervals (device,slot_start,slot_end,"
        "available), its path relative to the plan's folder",
    )
    window: Count = key_of(setting_of(AvailabilityCheckIn, "window"))
    probability: Probability = key_of(setting_of(AvailabilityCheckIn, "probability"))
    steps: Count | None = Field(None, description="use only the first steps of the trace")
    steps_per_day: Count = Field(48, description="steps a day, for the daily profile")
    first_slot: CountFromZero = Field(0, description="time of day of step 0, in steps")

    def build(self, population: int) -> Participation:
        """Raise an error, since this participation cannot be built without the trace file.

        Raises:
            ParameterError: always.
        """
        expected = "a participation without a trace file"
        raise ParameterError("participation.law", self.law, expected)


def _has_trace(given: Any) -> str:
    """Tag of the class that validates a table ``[participation]``: "trace" or "settings"."""
    law = given.get("law") if isinstance(given, Mapping) else getattr(given, "law", None)
    return "trace" if law == AVAILABILITY else "settings"


PlannedParticipation = Annotated[
    Annotated[ParticipationSection, Tag("settings")] | Annotated[AvailabilitySection, Tag("trace")],
    Discriminator(_has_trace),
]
"""Table ``[participation]`` of a plan, with a trace file or with settings only."""


ONE_MODEL = "either the name of a model or your own module (file:Class)"
"""Expected value in errors about the model of a plan."""


class LoraSection(Section):
    """Low-rank adapters on linear layers; all other parameters are fixed."""

    rank: Count = Field(4, description="rank of the matrix that is added to a layer's weights")
    alpha: Positive = Field(8.0, description="the added matrix is scaled by alpha / rank")
    layers: tuple[str, ...] = Field(
        ("*",), description="patterns of the names of linear layers, such as '*.attn'"
    )


class ModelSection(Section):
    """Model that is trained: one of turnout's by name, or the user's own module."""

    name: Literal["logistic", "tanh-cnn-13k", "tanh-cnn-26k"] | None = Field(
        None, description="name of a model that turnout has"
    )
    module: str | None = Field(
        None,
        description="in place of `name`: 'file:Class' of a torch.nn.Module, or of a function that "
        "makes one; the file is searched in the plan's folder, then on the Python path, and its "
        "code is run",
    )
    arguments: dict[str, Any] | None = Field(
        None, description="with `module`: keyword arguments of the class or function"
    )
    pretrained: str | None = Field(
        None,
        description="with `module`: a .safetensors file with its parameters, relative to the plan; "
        "the parameters must be public",
    )
    trainable: tuple[str, ...] | None = Field(
        None,
        description="with `module`: patterns of the parameters that are trained, such as 'head.*'; "
        "all other parameters are fixed",
    )
    lora: LoraSection | None = Field(
        None,
        description="with `module`: train adapters of low rank on its linear layers, such as "
        "{ rank = 4, alpha = 8, layers = ['*.attn'] }",
    )
    loss: str | None = Field(
        None,
        description="'cross-entropy', 'squared', 'binary cross-entropy', 'token cross-entropy' or "
        "'file:function'; unset: the usual one for the data's kind of label",
    )
    metrics: tuple[str, ...] | None = Field(
        None,
        description="metrics on the test set: 'accuracy', 'top-5' and the like, 'rmse', 'mae', "
        "'auc', 'perplexity' or 'file:function', the first one in titles; unset: the usual ones",
    )
    features: str = Field(
        "pixels",
        description="fixed public function of an input whose result the model sees: 'pixels', "
        "'standardized', 'deskewed', 'scattering', 'hog', 'hog-cells' or 'file:function'; + joins "
        "the results of two functions, | applies one function after another",
    )

    @field_validator("features")
    @classmethod
    def _known_features(cls, value: str) -> str:
        """Feature expression after a check of its names."""
        feature_stages(value)
        return value

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        """Raise an error if a named model is combined with a module or with keys of a module."""
        if self.name is not None and self.module is not None:
            raise ParameterError("name", self.name, ONE_MODEL)
        for key in ("arguments", "pretrained", "trainable", "lora"):
            if self.name is not None and getattr(self, key) is not None:
                raise ParameterError(key, getattr(self, key), f"no value with name = {self.name!r}")
        return self

    @property
    def title(self) -> str:
        """Short name of the model, for titles and reports."""
        return self.name or self.module or ""


_RULE_KEYS = {
    "fedsgd": (),
    "fedavg": ("judged",),
    "adaped": ("judged", "finish", "shared_rate", "psi", "psi_rate", "psi_weight"),
    "ridge": ("judged", "finish", "strength"),
}
"""Keys of [client] that not every rule has, listed for each rule that has them."""


class ClientSection(Section):
    """Work of a client in a step: local training of the shared model or of a personal model.

    All rules except 'fedsgd' evaluate each client on test examples of the classes that it holds
    (simulation only).
    """

    rule: Literal["fedsgd", "fedavg", "adaped", "ridge"] | str = Field(
        "fedsgd",
        description="'fedsgd': one model for all; 'fedavg': the same, each client evaluated by "
        "itself; personal models that stay on the client: 'adaped' by distillation (DP-AdaPeD), "
        "'ridge' by an ℓ2 distance; or the algorithm of a plug-in, in simulations",
    )
    arguments: dict[str, Any] | None = Field(
        None, description="with a plug-in's algorithm: keyword arguments of the plug-in's function"
    )
    steps: Count = Field(
        1, description="gradient steps over all the client's records between two messages (τ)"
    )
    learning_rate: Positive = Field(
        1.0, description="size of a local step; with one step of size 1 the update is the gradient"
    )
    judged: Count | None = Field(
        None,
        description="largest number of test examples a client, for personal accuracy; unset: 50",
    )
    finish: CountFromZero | None = Field(
        None,
        description="with 'adaped' and 'ridge': local steps before a personal model is used, after "
        "which no message is sent; unset: 0",
    )
    shared_rate: Positive | None = Field(
        None,
        description="with 'adaped': step size of the copy of the shared model; unset: 0.1",
    )
    psi: Positive | None = Field(
        None,
        description="with 'adaped': first distance of personal models from the shared model, from "
        "0.05 to 1000; unset: 1",
    )
    psi_rate: NonNegative | None = Field(
        None, description="with 'adaped': learning rate of psi; unset: 0.05"
    )
    psi_weight: Positive | None = Field(
        None,
        description="with 'adaped': weight of a move of psi in a message's norm; unset: 1",
    )
    strength: Positive | None = Field(
        None, description="with 'ridge': λ of λ/2 · squared distance; unset: 0.1"
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        """Raise an error for an unknown rule, or for a key that belongs to another rule."""
        if self.rule not in RULES and algorithm_maker(self.rule) is None:
            raise ParameterError("rule", self.rule, one_of([*RULES, *algorithm_names()]))
        if self.rule in RULES and self.arguments is not None:
            raise ParameterError("arguments", self.arguments, f"no value with rule = {self.rule!r}")
        known = {key for keys in _RULE_KEYS.values() for key in keys}
        for key in sorted(known - set(_RULE_KEYS.get(self.rule, ()))):
            if getattr(self, key) is not None:
                raise ParameterError(key, getattr(self, key), f"no value with rule = {self.rule!r}")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """Values that the plan gives to keys of the rule, by key, without ``judged``."""
        keys = (key for key in _RULE_KEYS.get(self.rule, ()) if key != "judged")
        given = {key: getattr(self, key) for key in keys}
        return {key: value for key, value in given.items() if value is not None}


class PrivacySection(Section):
    """Privacy of the run: relation, δ, and a target ε, a noise multiplier, or both."""

    relation: Relation = key_of(RELATION_SETTING)
    delta: OpenUnit = key_of(setting_of(PrivacyTarget, "delta"))
    epsilon: Positive | None = Field(
        None, description="the target ε; without noise_multiplier, noise is calibrated to it"
    )
    noise_multiplier: Positive | None = Field(
        None,
        description="standard deviation of the noise divided by clip_norm; if epsilon is also "
        "given, the noise must be large enough for this epsilon",
    )
    unit: PrivacyUnit = Field(
        PrivacyUnit.CLIENT,
        description="'client': each client draws its steps for all its records and clips their "
        "joint update; 'example': each record draws its own steps and is clipped by itself "
        "(simulation only)",
    )
    clip_norm: Positive = Field(
        1.0,
        description="bound on the norm of the update of a client, or of a record: ℓ2, or that of "
        "[randomizer]",
    )
    trust: TrustModel = Field(
        TrustModel.CENTRAL,
        description="'central': the coordinator sums updates and adds noise; 'shuffled': clients "
        "randomize their updates, and a shuffler hides who sent what; 'local': clients randomize "
        "their updates, and it is public who sent what",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        """Raise an error for central trust without ε and without a noise multiplier."""
        if self.trust is not TrustModel.CENTRAL:
            return self
        if self.epsilon is None and self.noise_multiplier is None:
            raise ParameterError(
                "epsilon", None, "a target epsilon or a noise_multiplier (a number above 0)"
            )
        return self


class ProtocolSection(Section):
    """Release rule of a step."""

    release: ReleaseRule = Field(
        ReleaseRule.AGGREGATED,
        description="'aggregated': the sum of all updates; 'one-client': Algorithm 1 of the "
        "check-in paper; 'averaged': Algorithm 2",
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
        """Raise an error for a minibatch above 1 with a release rule that does not permit it."""
        if self.minibatch > 1 and self.release is not ReleaseRule.ONE_CLIENT:
            raise ParameterError(
                "minibatch", self.minibatch, f"1 with release = {self.release.value!r}"
            )
        return self


class OptimizerSection(Section):
    """Optimizer of the server."""

    name: Literal["sgd", "nesterov", "adam"] = Field("sgd", description="the rule")
    learning_rate: Positive = Field(
        description="factor of every step of the model, before the schedule"
    )
    momentum: BelowOne = Field(
        0.0,
        description="with 'sgd' and 'nesterov': share of the last step of the model that is kept",
    )
    weight_decay: NonNegative = Field(
        0.0, description="pull towards 0, multiplied by the learning rate"
    )
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = Field(
        "constant", description="course of the learning rate over the run"
    )
    radius: Positive | None = Field(
        None,
        description="radius of a ball around 0 onto which each model is projected; unset: none",
    )
    warmup_steps: CountFromZero = Field(
        0, description="steps at the beginning in which the learning rate rises"
    )
    averaging: Literal["none", "ema", "tail"] = Field(
        "none", description="average of the models that is the result"
    )
    averaging_decay: OpenUnit = Field(0.99, description="with averaging = 'ema': decay per step")
    averaging_tail: Probability = Field(
        0.5,
        description="with averaging = 'tail': share of the steps, at the end, that are averaged",
    )

    @model_validator(mode="after")
    def _momentum_fits(self) -> Self:
        """Raise an error for a momentum that the optimizer does not permit."""
        if self.name == "adam" and self.momentum:
            raise ParameterError("momentum", self.momentum, "0 with name = 'adam'")
        if self.name == "nesterov" and not self.momentum:
            raise ParameterError("momentum", self.momentum, "above 0 with name = 'nesterov'")
        return self


class RunSection(Section):
    """Settings that change neither the guarantee nor the method."""

    seed: CountFromZero = Field(
        1,
        description="seed of the simulation; a deployed run has none, it draws from the operating "
        "system",
    )
    device: Literal["cpu", "cuda", "auto"] = Field(
        "cpu",
        description="device that computes clients' updates in a simulation; 'auto': a GPU if there "
        "is one. On a CPU a run gives the same bits on every machine, on a GPU it does not",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="numbers of forward and backward passes; updates are clipped in float32",
    )
    evaluate_every: Count | None = Field(
        None, description="steps between evaluations; unset: about 60 evaluations in all"
    )
    checkpoint_every: Count | None = Field(
        None, description="steps between checkpoints; unset: as many as evaluations"
    )
