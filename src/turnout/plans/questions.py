"""A question to accounting without a plan around it: what is this worth, or which value?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, Field, ValidationError, create_model

from turnout.core.errors import ParameterError
from turnout.plans.fields import OpenUnit, Positive, Section
from turnout.plans.laws import SECTIONS, LawSection
from turnout.plans.randomizers import RANDOMIZERS, RandomizerSection
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.shuffles import (
    MISSING_LEVEL,
    SHUFFLED,
    CountedCheckInSection,
    Shuffled,
    counted_population,
    shuffled_flags,
    shuffled_scheme,
)
from turnout.schemes import CheckIn, Relation, ReleaseRule, Scheme
from turnout.schemes.registry import all_laws, law_names

if TYPE_CHECKING:
    from turnout.accounting.calibration import Unknown

_CHECK_IN = law_names(CheckIn).plan
_LAWS = {
    names.question: names.plan
    for names in all_laws().values()
    if names.question is not None and names.plan in SECTIONS
}
SCHEMES = _LAWS | {name: name for name in SHUFFLED}
"""A question's name of a law, by the name of its section (a plan's, where plans have it)."""
GAUSSIAN = "gaussian"
"""The randomizer of a question that names none and trusts a coordinator."""
NOISE, DELTA = "noise", "delta"
"""The unknowns besides the parameters of a law; noise by its randomizer's own name."""
_FLAGS = {"law": "--scheme", "population": "--clients", "size": "--sampled"}


class PrivacyTarget(Section):
    """A privacy target: relation, δ and perhaps ε."""

    relation: Relation = Field(description="the neighbouring relation; there is no default")
    delta: OpenUnit = Field(description="the δ of (ε, δ)")
    epsilon: Positive | None = Field(None, description="the ε to calibrate to")
    release: ReleaseRule = Field(ReleaseRule.AGGREGATED, description="what a step releases")
    tolerance: OpenUnit = Field(1e-3, description="largest (upper − lower) / upper asked for")


class Question(Section):
    """A randomizer, a participation law and a privacy target."""

    randomizer: RandomizerSection
    participation: LawSection | Shuffled
    target: PrivacyTarget

    @classmethod
    def among(cls, randomizer: type[RandomizerSection], law: type[BaseModel]) -> type[Self]:
        """The questions about one kind of randomizer under one kind of law."""
        return create_model(
            cls.__name__, __base__=cls, randomizer=(randomizer, ...), participation=(law, ...)
        )

    @property
    def scheme(self) -> Scheme:
        """The scheme that is asked about."""
        law, target = self.participation, self.target
        if isinstance(law, Shuffled):
            return shuffled_scheme(law, self.randomizer.spec())
        counted = isinstance(law, CountedCheckInSection)
        return Scheme(
            self.randomizer.spec(),
            law.asked(),
            target.relation,
            target.release,
            population=counted_population(law, target.release) if counted else None,
        )

    @property
    def target_epsilon(self) -> float:
        """The ε that must hold.

        Raises:
            ParameterError: none was given.
        """
        if self.target.epsilon is None:
            raise ParameterError("--epsilon", MISSING, "a finite number above 0")
        return self.target.epsilon

    @property
    def randomizer_words(self) -> dict[str, Any]:
        """The randomizer's name and parameters, as they were given."""
        given = self.randomizer.model_dump()
        return {"name": given.pop("randomizer"), **given}

    def answered(self, unknown: str, value: float) -> Self:
        """The question with a value for one parameter of one of its parts."""
        key = unknown.replace("-", "_")
        for part in type(self).model_fields:
            section: Section = getattr(self, part)
            if key in type(section).model_fields:
                return self.model_copy(update={part: section.model_copy(update={key: value})})
        raise ParameterError("--solve-for", unknown, "a parameter of the question")


def parse_query(flags: Mapping[str, object], unknown: str | None = None) -> Question:
    """The question that command-line flags put.

    Args:
        flags: by name without dashes, None where not given; ``scheme`` is a key of `SCHEMES`.
        unknown: a parameter that is asked for and must not be given, one of `solvable` or
            `NOISE`; the question then has its most private value in its place.

    Raises:
        ParameterError: a flag, named with its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    scheme = given.pop("scheme", None)
    if scheme not in SCHEMES:
        value = MISSING if scheme is None else scheme
        raise ParameterError("--scheme", value, f"one of {', '.join(map(repr, SCHEMES))}")
    kind = str(given.get("randomizer", GAUSSIAN))
    if scheme in SHUFFLED:
        given = shuffled_flags(str(scheme), given, unknown)
        kind = str(given["randomizer"])
    given["randomizer"] = kind
    if kind not in RANDOMIZERS:
        raise ParameterError("--randomizer", kind, f"one of {', '.join(map(repr, RANDOMIZERS))}")
    if unknown is not None:
        given |= _stand_in(unknown, str(scheme), kind, given)
    target = {name: given.pop(name) for name in PrivacyTarget.model_fields if name in given}
    own = RANDOMIZERS[kind].model_fields
    randomizer = {name: given.pop(name) for name in own if name in given}
    _check_owners(given, str(scheme))
    nothing_said = flags.get("randomizer") is None and set(randomizer) == {"randomizer"}
    if scheme in SHUFFLED and nothing_said:
        raise ParameterError("--epsilon0", MISSING, MISSING_LEVEL)
    law = {"law": SCHEMES[str(scheme)], **given}
    parts = {"randomizer": randomizer, "participation": law, "target": target}
    questions = Question.among(RANDOMIZERS[kind], _law(str(scheme)))
    with flags_named():
        try:
            question = questions.model_validate(parts)
        except ValidationError as error:
            raise refusal(error, questions, _flag) from None
        _ = question.scheme
    return question


def _check_owners(given: Mapping[str, object], scheme: str) -> None:
    """Refuses parameters of other randomizers and of other schemes alone."""
    others = {name: value for name, value in given.items() if name not in _law(scheme).model_fields}
    for option, known in (
        ("--randomizer", RANDOMIZERS),
        ("--scheme", {word: _law(word) for word in SCHEMES} if others else {}),
    ):
        for name, value in others.items():
            owners = [word for word, section in known.items() if name in section.model_fields]
            if owners:
                raise ParameterError(_flag(name), value, f"{option} {_any_of(owners)} beside it")


@contextmanager
def flags_named() -> Iterator[None]:
    """Gives parameters that are refused the names of their flags."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(_flag(error.name), error.value, error.expected) from None


def _flag(key: str) -> str:
    """A dotted key as a command-line flag."""
    name = key.rpartition(".")[2]
    if name.startswith("--"):
        return name
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def _any_of(words: list[str]) -> str:
    """Alternatives as text."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def solvable(scheme: str, randomizer: str = GAUSSIAN) -> list[str]:
    """The unknowns that can be solved for, by the names of flags without their dashes."""
    from turnout.accounting.calibration import UNKNOWNS

    fields = _law(scheme).model_fields
    own = [name for name in UNKNOWNS if name.replace("-", "_") in fields]
    noise = RANDOMIZERS[randomizer].noise
    return [*([noise] if noise else []), *own, DELTA]


def _law(scheme: str) -> type[BaseModel]:
    """The section of a scheme."""
    law = SCHEMES[scheme]
    if law in SHUFFLED:
        return SHUFFLED[law]
    return CountedCheckInSection if law == _CHECK_IN else SECTIONS[law]


def own_name(unknown: str, randomizer: str) -> str:
    """The name of an unknown, which for `NOISE` is the randomizer's."""
    return RANDOMIZERS[randomizer].noise or unknown if unknown == NOISE else unknown


def _stand_in(
    unknown: str, scheme: str, randomizer: str, given: Mapping[str, object]
) -> dict[str, float]:
    """The most private value of what is asked for, under the name of its flag."""
    unknown = own_name(unknown, randomizer)
    allowed, key = solvable(scheme, randomizer), unknown.replace("-", "_")
    if unknown not in allowed:
        raise ParameterError("--solve-for", unknown, f"one of {', '.join(map(repr, allowed))}")
    averaged = given.get("release") == ReleaseRule.AVERAGED
    if unknown == "clients" and scheme not in SHUFFLED and not averaged:
        raise ParameterError("--solve-for", unknown, "--release averaged beside it")
    if key in given:
        raise ParameterError(_flag(key), given[key], f"nothing beside --solve-for {unknown}")
    return {key: _unknown(unknown).private_limit}


def _unknown(name: str) -> Unknown:
    """Accounting's description of one of `solvable`."""
    from turnout.accounting.calibration import DELTA as DELTA_UNKNOWN
    from turnout.accounting.calibration import UNKNOWNS

    return DELTA_UNKNOWN if name == DELTA else UNKNOWNS[name]
