"""A plan: everything that a training run is, as one TOML file."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, Union

from pydantic import Field, ValidationError, model_validator

from turnout.core.errors import ParameterError, StorageError
from turnout.plans.data import DataSection
from turnout.plans.fields import Section
from turnout.plans.laws import SECTIONS, AvailabilitySection, LawSection
from turnout.plans.messages import RandomizerSection
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.sections import (
    ClientSection,
    ModelSection,
    OptimizerSection,
    PrivacySection,
    ProtocolSection,
    RunSection,
)
from turnout.plans.tuning import TuneSection
from turnout.schemes import ParticipationLaw, Relation, ReleaseRule, TrustModel

if TYPE_CHECKING:
    ParticipationSection = LawSection | AvailabilitySection
else:
    ParticipationSection = Annotated[
        Union[tuple(SECTIONS.values())],  # noqa: UP007
        Field(discriminator="law"),
    ]


class TomlPlan(Section):
    """Tables of a TOML file."""

    @classmethod
    def from_mapping(cls, tables: dict[str, Any]) -> Self:
        """The plan in nested dictionaries."""
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise refusal(error, cls) from None

    @classmethod
    def from_toml(cls, text: str, name: str = "plan") -> Self:
        """The plan in a TOML text.

        Raises:
            ParameterError: no TOML, or a key, named with its value and what is allowed.
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ParameterError("plan", name, f"a TOML file, but {_lowered(error)}") from None
        return cls.from_mapping(tables)

    def to_toml(self) -> str:
        """The plan as a TOML text, defaults written out; `from_toml` gives it back."""
        return self.tables_to_toml(self.model_dump(mode="json", exclude_none=True))

    @staticmethod
    def tables_to_toml(tables: dict[str, Any]) -> str:
        """Tables of plain values, the innermost inline, as a TOML text."""
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
            for name, table in tables.items()
        )


class Plan(TomlPlan):
    """Data, model, participation law, privacy, protocol, optimizer, run, and what is searched.

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
    >>> plan.law(1437)
    CheckIn(window=10, windows=1, probability=1.0)
    """

    data: DataSection = Field(default_factory=lambda: DataSection.model_validate({}))
    model: ModelSection = Field(default_factory=lambda: ModelSection.model_validate({}))
    participation: ParticipationSection
    privacy: PrivacySection
    randomizer: RandomizerSection | None = None
    protocol: ProtocolSection = Field(default_factory=lambda: ProtocolSection.model_validate({}))
    client: ClientSection = Field(default_factory=lambda: ClientSection.model_validate({}))
    optimizer: OptimizerSection
    run: RunSection = Field(default_factory=lambda: RunSection.model_validate({}))
    tune: TuneSection | None = Field(None, exclude=True)  # a run's plan says what was chosen

    @model_validator(mode="after")
    def _messages_fit(self) -> Self:
        privacy, section = self.privacy, self.randomizer
        if privacy.trust is TrustModel.CENTRAL:
            if section is not None:
                expected = "none with privacy.trust = 'central', whose clients send their updates"
                raise ParameterError("randomizer", "[randomizer]", expected)
            return self
        trust = f"with privacy.trust = {privacy.trust.value!r}"
        if privacy.noise_multiplier is not None:
            expected = f"none {trust}: clients randomize their updates, see [randomizer]"
            raise ParameterError("privacy.noise_multiplier", privacy.noise_multiplier, expected)
        if privacy.relation is not Relation.REPLACE_ONE:
            expected = f"'replace-one' {trust}: everybody sees how many messages there are"
            raise ParameterError("privacy.relation", privacy.relation.value, expected)
        if self.protocol.release is not ReleaseRule.AGGREGATED:
            expected = f"'aggregated' {trust}"
            raise ParameterError("protocol.release", self.protocol.release.value, expected)
        if self.tune is not None:
            raise ParameterError("tune", "[tune]", f"none {trust}, which a search has no price for")
        if privacy.epsilon is None and (section is None or section.epsilon0 is None):
            expected = "a target (or randomizer.epsilon0), a number above 0"
            raise ParameterError("privacy.epsilon", MISSING, expected)
        return self

    @property
    def messages(self) -> RandomizerSection | None:
        """The table of clients' messages, its defaults where it is left out; None if central."""
        if self.privacy.trust is TrustModel.CENTRAL:
            return None
        return self.randomizer or RandomizerSection.model_validate({})

    def law(self, population: int) -> ParticipationLaw:
        """The participation law, for a number of clients.

        Raises:
            ParameterError: a law that does not fit the population, or that needs a trace file.
        """
        try:
            return self.participation.spec(population)
        except ParameterError as error:
            if "." in error.name:
                raise
            raise ParameterError(
                f"participation.{error.name}", error.value, error.expected
            ) from None


def read_plan(path: Path) -> str:
    """The text of a plan file.

    Raises:
        ParameterError: there is no such file.
        StorageError: the file cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise ParameterError("plan", str(path), "a TOML file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"plan {path} cannot be read: {_lowered(error)}") from None


def example_plan(name: str) -> Path:
    """The file of an example plan.

    Raises:
        ParameterError: there is none of that name.
    """
    folder = Path(str(resources.files("turnout.plans") / "examples"))
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise ParameterError("example", name, f"one of {', '.join(known)}")
    return folder / f"{name}.toml"


def _toml(value: Any) -> str:
    """A value as TOML writes it; a mapping becomes an inline table."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    pairs = (f"{json.dumps(key, ensure_ascii=False)} = {_toml(one)}" for key, one in value.items())
    return f"{{ {', '.join(pairs)} }}"


def _lowered(error: Exception) -> str:
    """An error's text as the end of a sentence."""
    text = " ".join(str(error).split())
    return text[:1].lower() + text[1:]
