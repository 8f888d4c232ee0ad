"""A plan: all settings of a training run, as one TOML file.

`Plan` consists of the tables in `turnout.plans.sections` and of two further tables.
``[randomizer]`` (`RandomizerSection`) describes the messages of runs without a trusted coordinator.
``[tune]`` (`TuneSection`) describes a search for settings. `read_plan` reads a file, and
`example_plan` returns the path of one of the package's examples.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from turnout.core.errors import ParameterError, StorageError
from turnout.plans.data_sections import DataSection
from turnout.plans.plugins import PluginSection, import_modules
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.sections import (
    ClientSection,
    Count,
    ModelSection,
    OpenUnit,
    OptimizerSection,
    PlannedParticipation,
    Positive,
    PrivacySection,
    ProtocolSection,
    RunSection,
    Section,
)
from turnout.randomizers.interface import LARGEST_EPSILON
from turnout.schemes import (
    NonAdaptiveRandomizer,
    Participation,
    Relation,
    ReleaseRule,
    RepeatedMessages,
    TrustModel,
)

if TYPE_CHECKING:
    from turnout.randomizers.vectors import VectorRandomizer

LEAST_EPSILON0 = 1e-6
"""Smallest ε₀ of a message that a plan may set."""
_ANY_DIMENSION = 1 << 20  # the privacy of a message does not depend on the dimension


class RandomizerSection(Section):
    """The message that a client sends in place of its clipped update."""

    norm: Literal["l1", "l2", "linf"] = Field(
        "l2",
        description="norm in which clip_norm bounds a client's update, and its message: 'l2': a "
        "seed and a word of its code (SeededCode); 'linf': a coordinate and its bit "
        "(LInfRandomizer); 'l1': a row of the Hadamard matrix and its bit (L1Randomizer)",
    )
    epsilon0: Positive | None = Field(
        None,
        description="ε₀ of one message on its own; unset: the largest that privacy.epsilon allows",
    )
    bits: Count = Field(
        64,
        description="largest number of bits of a message; a randomizer with longer ones is refused",
    )
    directions: Count = Field(16, description="with 'l2': directions of a seed, a power of two")
    preferred: Count = Field(
        2, description="with 'l2': number of directions that a message prefers"
    )
    messages: Count = Field(
        1,
        description="messages of a client in each step, of which the i-th messages of all clients "
        "are shuffled together; epsilon0 and bits are those of one message",
    )
    each: Literal["update", "record"] = Field(
        "update",
        description="content of a message: the client's update, or the update of one of its "
        "records, drawn in each step, a different record for each message",
    )
    as_printed: bool = Field(
        False,
        description="with 'linf': the randomizer as the thesis prints it, for comparison",
    )

    @model_validator(mode="after")
    def _fits_the_norm(self) -> Self:
        """Raise an error for a key that only another norm has, or for an ε₀ out of range."""
        owners = {"directions": "l2", "preferred": "l2", "as_printed": "linf"}
        for key, norm in owners.items():
            default = type(self).model_fields[key].default
            if norm != self.norm and getattr(self, key) != default:
                expected = f"no value with norm = {self.norm!r}"
                raise ParameterError(key, getattr(self, key), expected)
        if self.epsilon0 is not None and not LEAST_EPSILON0 <= self.epsilon0 <= LARGEST_EPSILON:
            expected = f"a number from {LEAST_EPSILON0:g} to {LARGEST_EPSILON:g}"
            raise ParameterError("epsilon0", self.epsilon0, expected)
        return self

    def priced_as(self, epsilon0: float) -> NonAdaptiveRandomizer:
        """Randomizer with which the accountant bounds the privacy loss of a step.

        Args:
            epsilon0: ε₀ of each message. The guarantee does not depend on the model's dimension.
        """
        one = self._made(_ANY_DIMENSION, epsilon0, 1.0).priced_as
        assert isinstance(one, NonAdaptiveRandomizer)
        return one if self.messages == 1 else RepeatedMessages.of(one, self.messages)

    def build(self, dimension: int, epsilon0: float, radius: float) -> VectorRandomizer:
        """Randomizer of the updates of a model.

        Args:
            dimension: number of parameters of the model.
            epsilon0: ε₀ of one message.
            radius: bound on the norm of an update.

        Raises:
            ParameterError: a message has more than ``bits`` bits, or ``directions`` is above the
                number of parameters.
        """
        try:
            made = self._made(dimension, epsilon0, radius)
        except ParameterError as error:
            raise ParameterError(f"randomizer.{error.name}", error.value, error.expected) from None
        if made.message_bits > self.bits:
            expected = f"at least {made.message_bits}, the number of bits of a message"
            raise ParameterError("randomizer.bits", self.bits, expected)
        return made

    def _made(self, dimension: int, epsilon0: float, radius: float) -> VectorRandomizer:
        """Randomizer of vectors that are bounded in the plan's norm: ℓ1, ℓ2 or ℓ∞."""
        from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode

        match self.norm:
            case "l1":
                return L1Randomizer(dimension, epsilon0, radius)
            case "l2":
                shape = {"directions": self.directions, "preferred": self.preferred}
                return SeededCode(dimension, epsilon0, radius, **shape)
            case "linf":
                variant = "as-printed" if self.as_printed else "default"
                return LInfRandomizer(dimension, epsilon0, radius, variant=variant)


_TABLES: dict[str, type[Section]] = {
    "optimizer": OptimizerSection,
    "client": ClientSection,
    "model": ModelSection,
}
_SEARCHED = "a key of [optimizer], [client] or [model] other than metrics, or privacy.clip_norm"
_RANGE = "{ low = …, high = … }, with log = true for a logarithmic scale, or a list of choices"


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a setting in a search: numbers between two ends, or a list of choices.

    Attributes:
        low: lowest number.
        high: highest number.
        log: whether numbers are drawn uniformly on a logarithmic scale.
        whole: whether only whole numbers are drawn.
        choices: values to choose from; empty for a range of numbers.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest number of the range."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def draw(self, generator: np.random.Generator) -> Any:
        """Uniform random value of the range; drawn values are public."""
        if self.choices:
            return self.choices[int(generator.integers(len(self.choices)))]
        if self.log:
            ends = math.log(self.low), math.log(self.high)
            value = math.exp(generator.uniform(*ends))
        elif self.whole:
            return int(generator.integers(int(self.low), int(self.high) + 1))
        else:
            value = generator.uniform(self.low, self.high)
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.6g}")


def parse_ranges(ranges: Mapping[str, Any]) -> dict[str, Range]:
    """Ranges of a search, by dotted keys of a plan such as "optimizer.learning_rate".

    Raises:
        ParameterError: a search must not change a key, or the value of a key is not a range.
    """
    return {key: _range(key, value) for key, value in _flat(ranges).items()}


def _flat(ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key, also from nested tables, which TOML makes of unquoted dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in ranges.items():
        if "." not in key and isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[key] = value
    return flat


def _range(key: str, value: Any) -> Range:
    """Range that the plan gives for a key, after a check of its values."""
    whole = _is_whole(key)
    # A list of choices may hold any values.
    if isinstance(value, list | tuple):
        if not value:
            raise ParameterError(key, list(value), _RANGE)
        return Range(choices=tuple(value))
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= _RANGE_KEYS:
        raise ParameterError(key, value, _RANGE)
    # The ends must be finite numbers in order, positive on a logarithmic scale, and whole if the
    # key accepts only whole numbers.
    low, high, log = value["low"], value["high"], value.get("log", False)
    numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (low, high))
    if not numbers or not -math.inf < low < high < math.inf or (log and low <= 0):
        raise ParameterError(key, dict(value), "numbers low < high, above 0 with log = true")
    if not isinstance(log, bool):
        raise ParameterError(key, dict(value), "a table in which log is true or false")
    if whole and (low != int(low) or high != int(high)):
        raise ParameterError(key, dict(value), "whole numbers")
    return Range(float(low), float(high), log, whole)


_RANGE_KEYS = {"low", "high", "log"}


def _is_whole(key: str) -> bool:
    """Whether a key accepts only whole numbers.

    Raises:
        ParameterError: a search must not change this key, which affects ε or the metric.
    """
    table, _, name = key.partition(".")
    fields = _TABLES[table].model_fields if table in _TABLES else {}
    if key == "privacy.clip_norm":
        return False
    if name not in fields or key == "model.metrics":
        raise ParameterError("tune.ranges", key, _SEARCHED)
    return fields[name].annotation is int


def _checked(value: Any) -> Any:
    """The given table of ranges, after a check of each range."""
    if not isinstance(value, Mapping) or not value:
        raise ParameterError("value", value, f"a table in which each key has {_RANGE}")
    parse_ranges(value)
    return dict(value)


class TuneSection(Section):
    """A random search for settings, on public data or on private clients at a cost in ε."""

    ranges: Annotated[dict[str, Any], BeforeValidator(_checked)] = Field(
        description="keys of [optimizer], [client], [model] or privacy.clip_norm, each with "
        f"{_RANGE}"
    )
    candidates: Count = Field(
        10, description="number of runs; on private clients the mean of a random number of runs"
    )
    held_out: OpenUnit = Field(
        0.1, description="share of the training clients on which runs are compared"
    )
    data: DataSection | None = Field(
        None,
        description="a public data set, as in [data], on which the search costs no ε; unset: the "
        "plan's own clients, at a cost in ε",
    )
    stopping: Literal["geometric", "logarithmic", "poisson"] = Field(
        "geometric", description="distribution of the number of runs on private clients"
    )


class TomlPlan(Section):
    """Base class of plans, which consist of the tables of a TOML file."""

    @classmethod
    def from_mapping(cls, tables: dict[str, Any]) -> Self:
        """Plan built from nested dictionaries.

        Raises:
            ParameterError: a wrong key or value; the error has the key, its value and the values
                that are allowed.
        """
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise refusal(error, cls) from None

    @classmethod
    def from_toml(cls, text: str, name: str = "plan") -> Self:
        """Plan built from a TOML text.

        Args:
            text: content of the file.
            name: name of the plan in errors.

        Raises:
            ParameterError: the text is not TOML, or a key or value is wrong.
        """
        return cls.from_mapping(cls.tables_from_toml(text, name))

    @classmethod
    def of_user(cls, text: str, folder: Path, name: str = "plan") -> Self:
        """Plan built from a user's TOML text; modules in its table [plugins] are imported first.

        The method runs the code of these modules, so it must read only plans that the user wrote.
        Plans in charters and databases are read by `from_toml`.

        Args:
            text: content of the file.
            folder: folder of the plan, in which modules are searched first.
            name: name of the plan in errors.

        Raises:
            ParameterError: a module cannot be imported; see also `from_toml`.
        """
        tables = cls.tables_from_toml(text, name)
        import_modules(tables, folder)
        return cls.from_mapping(tables)

    @staticmethod
    def tables_from_toml(text: str, name: str = "plan") -> dict[str, Any]:
        """Tables of a TOML text as dictionaries; keys and values are not checked.

        Raises:
            ParameterError: the text is not TOML.
        """
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ParameterError("plan", name, f"a TOML file, but {_lowered(error)}") from None

    def to_toml(self) -> str:
        """Plan as a TOML text with all defaults; `from_toml` reads it back."""
        return self.tables_to_toml(self.model_dump(mode="json", exclude_none=True))

    @staticmethod
    def tables_to_toml(tables: dict[str, Any]) -> str:
        """Tables as a TOML text, in which nested tables are inline."""
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
            for name, table in tables.items()
        )


class Plan(TomlPlan):
    """Plan of a training run: data, model, participation, privacy, protocol, optimizer, search.

    >>> plan = Plan.from_toml('''
    ... [data]
    ... name = "digits"
    ... [model]
    ... name = "logistic"
    ... [participation]
    ... law = "check-in"
    ... window = 10
    ... [privacy]
    ... relation = "add-remove"
    ... delta = 1e-4
    ... epsilon = 3.0
    ... [optimizer]
    ... learning_rate = 0.5
    ... ''')
    >>> plan.participation_for(1437)
    CheckIn(window=10, windows=1, probability=1.0)
    """

    data: DataSection = Field(default_factory=lambda: DataSection.model_validate({}))
    model: ModelSection = Field(default_factory=lambda: ModelSection.model_validate({}))
    participation: PlannedParticipation
    privacy: PrivacySection
    randomizer: RandomizerSection | None = None
    protocol: ProtocolSection = Field(default_factory=lambda: ProtocolSection.model_validate({}))
    client: ClientSection = Field(default_factory=lambda: ClientSection.model_validate({}))
    optimizer: OptimizerSection
    run: RunSection = Field(default_factory=lambda: RunSection.model_validate({}))
    tune: TuneSection | None = Field(None, exclude=True)  # a run's plan has the chosen values
    plugins: PluginSection | None = None

    @model_validator(mode="after")
    def _messages_fit(self) -> Self:
        """Raise an error for keys that the trust model does not permit."""
        # With central trust the coordinator adds the noise, so clients have no randomizer.
        privacy, section = self.privacy, self.randomizer
        if privacy.trust is TrustModel.CENTRAL:
            if section is not None:
                expected = (
                    "no table with privacy.trust = 'central', where clients send their updates"
                )
                raise ParameterError("randomizer", "[randomizer]", expected)
            return self
        # With other trust models clients randomize their updates, and the number of messages is
        # public.
        trust = f"with privacy.trust = {privacy.trust.value!r}"
        if privacy.noise_multiplier is not None:
            expected = f"no value {trust}: clients randomize their updates, see [randomizer]"
            raise ParameterError("privacy.noise_multiplier", privacy.noise_multiplier, expected)
        if privacy.relation is not Relation.REPLACE_ONE:
            expected = f"'replace-one' {trust}: the number of messages is public"
            raise ParameterError("privacy.relation", privacy.relation.value, expected)
        if self.protocol.release is not ReleaseRule.AGGREGATED:
            expected = f"'aggregated' {trust}"
            raise ParameterError("protocol.release", self.protocol.release.value, expected)
        if self.tune is not None:
            raise ParameterError(
                "tune", "[tune]", f"no table {trust}: no privacy analysis of a search is known"
            )
        if privacy.epsilon is None and (section is None or section.epsilon0 is None):
            expected = "a number above 0, or a value of randomizer.epsilon0 instead"
            raise ParameterError("privacy.epsilon", MISSING, expected)
        return self

    @property
    def messages(self) -> RandomizerSection | None:
        """Table [randomizer], with defaults if the plan lacks it; None with central trust."""
        if self.privacy.trust is TrustModel.CENTRAL:
            return None
        return self.randomizer or RandomizerSection.model_validate({})

    def participation_for(self, population: int) -> Participation:
        """Participation of the plan for a number of clients.

        Raises:
            ParameterError: the settings are not permitted with this number of clients, or the
                participation needs a trace file.
        """
        try:
            return self.participation.build(population)
        except ParameterError as error:
            if "." in error.name:
                raise
            raise ParameterError(
                f"participation.{error.name}", error.value, error.expected
            ) from None


def read_plan(path: Path) -> str:
    """Text of a plan file.

    Raises:
        ParameterError: the file does not exist.
        StorageError: the file cannot be read.
    """
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ParameterError("plan", str(path), "a TOML file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"plan {path} cannot be read: {_lowered(error)}") from None


def example_plan(name: str) -> Path:
    """Path of an example plan.

    Raises:
        ParameterError: no example has this name.
    """
    folder = Path(str(resources.files("turnout.plans") / "examples"))
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise ParameterError("example", name, f"one of {', '.join(known)}")
    return folder / f"{name}.toml"


def _toml(value: Any) -> str:
    """Value in TOML notation; a mapping becomes an inline table."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    pairs = (f"{json.dumps(key, ensure_ascii=False)} = {_toml(one)}" for key, one in value.items())
    return f"{{ {', '.join(pairs)} }}"


def _lowered(error: Exception) -> str:
    """Text of an error with a small initial letter, for the end of a sentence."""
    text = " ".join(str(error).split())
    return text[:1].lower() + text[1:]
