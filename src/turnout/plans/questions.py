"""Questions to accounting without a plan around them: the price of a scheme, or a free parameter.

`parse_query` turns the flags of a command into a `Question`; `solvable` lists the parameters that
can be solved for. Randomizers have a section each, and so have the schemes of shuffled messages,
which no plan has: training sends updates to a coordinator.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationError, create_model, model_validator

from turnout.core import checks
from turnout.core.errors import ParameterError, StorageError
from turnout.plans.refusals import MISSING, refusal
from turnout.plans.sections import (
    LAW,
    SECTIONS,
    Count,
    LawSection,
    OpenUnit,
    Positive,
    Probability,
    Section,
    Sections,
    section_keys,
    section_of,
)
from turnout.randomizers.interface import all_mechanisms
from turnout.schemes import (
    CheckIn,
    Randomizer,
    Relation,
    ReleaseRule,
    Scheme,
    SpeakingOrder,
    TableRandomizer,
)
from turnout.schemes.parameters import Domain, parameters
from turnout.schemes.registry import (
    all_participations,
    asked_randomizers,
    participation_names,
    shuffled_randomizers,
)
from turnout.schemes.scheme import RELATION, shuffled

if TYPE_CHECKING:
    from turnout.accounting.calibration import Unknown

KIND = "what protects one contribution"
_COLUMNS = ("present", "absent")


class RandomizerQuestion(Section):
    """The parameters of a randomizer that a question names."""

    kind: ClassVar[type[Any]]
    noise: ClassVar[str | None]
    randomizer: str

    def spec(self) -> Randomizer:
        """The randomizer that accounting prices."""
        made = self.kind(**{each.name: getattr(self, each.key) for each in parameters(self.kind)})
        return getattr(made, "priced_as", made)


def _section_of(word: str, kind: type[Any]) -> type[RandomizerQuestion]:
    """The section of a randomizer's class, made of what it says of its parameters."""
    keys = {"randomizer": (Literal[word], Field(description=KIND)), **section_keys(kind)}
    section = create_model(f"{kind.__name__}Section", __base__=RandomizerQuestion, **keys)
    section.kind, section.__doc__ = kind, kind.__doc__
    levels = [each.key for each in parameters(kind) if each.domain is Domain.POSITIVE]
    section.noise = levels[0].replace("_", "-") if levels else None
    return section


class TableSection(RandomizerQuestion):
    """A mechanism with finitely many outcomes, by a table of their probabilities."""

    noise: ClassVar[str | None] = None
    randomizer: Literal["table"] = Field(description=KIND)  # type: ignore[assignment]
    pair_file: str = Field(
        description="CSV file of the outcomes' probabilities with and without the client: columns "
        "present and absent"
    )

    def spec(self) -> Randomizer:
        """The randomizer; reads the file once."""
        return read_pair(Path(self.pair_file))


all_mechanisms()  # whose files register what questions may ask
RANDOMIZERS = Sections[RandomizerQuestion](
    {word: partial(_section_of, word, kind) for word, kind in asked_randomizers().items()}
    | {"table": lambda: TableSection}
)
"""The sections of all randomizers that are known when plans are loaded, by their words."""


@lru_cache(maxsize=4)
def read_pair(path: Path) -> TableRandomizer:
    """The randomizer of a CSV file with the columns ``present`` and ``absent``.

    Raises:
        ParameterError: there is no such file, or it is not two distributions.
        StorageError: the file cannot be read.
    """
    from turnout.accounting import pair_of_table

    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ParameterError("pair_file", str(path), "a CSV file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"pair file {path} cannot be read: {error}") from None
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    named = list(rows.fieldnames or ())
    if any(named.count(name) != 1 for name in _COLUMNS):
        expected = "a first line that names present and absent, each once"
        raise ParameterError("pair_file", str(path), expected)
    columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
    for row in rows:
        if None in row:
            expected = f"{len(named)} cells in line {rows.line_num}, as in the first line"
            raise ParameterError("pair_file", str(path), expected)
        for name, values in columns.items():
            values.append(_number(path, rows.line_num, name, row[name]))
    try:
        pair_of_table(columns["present"], columns["absent"])
    except ParameterError as error:
        expected = f"column {error.name}: {error.expected}"
        raise ParameterError("pair_file", str(path), expected) from None
    return TableRandomizer(columns["present"], columns["absent"])


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        expected = f"a number in line {line}, column {name}, not {text or ''!r}"
        raise ParameterError("pair_file", str(path), expected) from None


CLIENTS = "clients there are, all of whom follow the protocol"
ROUNDS = "rounds, each of which is shuffled afresh"
ORDER = "who may know which client sends which message"
MISSING_LEVEL = (
    "the ε₀ of one message, or --noise-multiplier for Gaussian noise of each client's own"
)


class ShuffleSection(Section):
    """Every client sends one message a round through a shuffler."""

    law: Literal["shuffle"] = Field(description=LAW)
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)


class SubsampledShuffleSection(Section):
    """Each round the shuffler asks ``sampled`` of all clients, a uniform subset."""

    law: Literal["subsampled-shuffle"] = Field(description=LAW)
    sampled: Count = Field(description="clients who send a message in a round")
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)

    @model_validator(mode="after")
    def _sampled_of_clients(self) -> Self:
        checks.at_most("clients", self.clients, sampled=self.sampled)
        return self


class SelfSamplingShuffleSection(Section):
    """Each round each client sends a message with probability ``rate``, drawn on the client."""

    law: Literal["self-sampling-shuffle"] = Field(description=LAW)
    rate: Probability = Field(description="chance of a client in a round")
    clients: Count = Field(description=CLIENTS)
    rounds: Count = Field(1, description=ROUNDS)
    order: SpeakingOrder | None = Field(None, description=ORDER)


class CountedCheckInSection(section_of(CheckIn)):
    """Check-ins of a known number of clients, whose noisy updates hide each other if averaged."""

    clients: Count | None = Field(None, description=CLIENTS)


Shuffled = ShuffleSection | SubsampledShuffleSection | SelfSamplingShuffleSection
"""The laws under which a shuffler hides who sent what."""
SHUFFLED: Mapping[str, type[Shuffled]] = {
    "shuffle": ShuffleSection,
    "subsampled-shuffle": SubsampledShuffleSection,
    "self-sampling-shuffle": SelfSamplingShuffleSection,
}
"""Their sections, by the words of schemes whose messages go through a shuffler."""


def shuffled_scheme(law: Shuffled, randomizer: Randomizer) -> Scheme:
    """The scheme of shuffled messages, in a hidden order if nothing is said and it matters."""
    return shuffled(randomizer, **law.model_dump(exclude={"law"}))


def shuffled_flags(scheme: str, given: dict[str, object], unknown: str | None) -> dict[str, object]:
    """The given flags of a question about shuffled messages, with what need not be said.

    Raises:
        ParameterError: a relation, release or randomizer that shuffled messages do not have.
    """
    relation, release = given.get("relation", RELATION.value), given.get("release")
    if relation != RELATION.value:
        expected = (
            f"{RELATION.value}, the default with --scheme {scheme}: everybody sees how many "
            "messages there are, so whether a client took part is not hidden"
        )
        raise ParameterError("--relation", relation, expected)
    if release is not None:
        expected = f"nothing beside --scheme {scheme}: a shuffler shows all messages"
        raise ParameterError("--release", release, expected)
    kind = given.get("randomizer") or _inferred(given, unknown)
    known = shuffled_randomizers()
    if kind not in known:
        expected = f"one of {', '.join(map(repr, known))} beside --scheme {scheme}"
        raise ParameterError("--randomizer", kind, expected)
    return {**given, "relation": relation, "randomizer": kind}


def counted_population(law: CountedCheckInSection, release: ReleaseRule) -> int | None:
    """The number of clients that hide each other at a check-in.

    Raises:
        ParameterError: a number of clients where it counts for nothing.
    """
    if law.clients is not None and release is not ReleaseRule.AVERAGED:
        raise ParameterError("--clients", law.clients, "--release averaged beside it")
    return law.clients


def _inferred(given: dict[str, object], unknown: str | None) -> str:
    """The randomizer that is meant by the one level that is given, or asked for."""
    noise = given.get("noise_multiplier")
    if noise is not None and ("epsilon0" in given or unknown == "epsilon0"):
        raise ParameterError("--noise-multiplier", noise, "either it or --epsilon0")
    if "delta0" in given:
        return "approximate"
    if noise is not None or unknown == "noise-multiplier":
        return "gaussian"
    return "pure"


_CHECK_IN = participation_names(CheckIn).plan
_LAWS = {
    names.question: names.plan
    for names in all_participations().values()
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

    randomizer: RandomizerQuestion
    participation: LawSection | Shuffled
    target: PrivacyTarget

    @classmethod
    def among(cls, randomizer: type[RandomizerQuestion], law: type[BaseModel]) -> type[Self]:
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
