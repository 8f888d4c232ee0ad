"""Settings of schemes by name: the keys of plans and the options of commands derive from them.

Each participation, randomizer, shuffle and privacy target declares its parameters once, as fields
of its dataclass (`turnout.schemes.parameters`). `settings` lists them, and `values_of` checks given
values against them and adds defaults. `participation_of` builds a participation from such values,
`scheme_of` a whole scheme. A setting that belongs to another participation or randomizer is an
error; the error lists the participations or randomizers with this setting. In errors a function of
type `Naming` replaces the name of a setting by the user's name, such as ``--window`` for
``window``.

The settings are used by `plans.sections` for the table ``[participation]``, by `plans.questions`,
by `cli.options` for options of commands and by `api.calibrate` for the parameters to solve for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.plugins import load
from turnout.schemes.parameters import Checked, Domain, Parameter, open_unit, parameters, positive
from turnout.schemes.randomizers import Randomizer
from turnout.schemes.registry import (
    Participation,
    all_participations,
    participation_names,
    question_randomizers,
    shuffled_randomizers,
)
from turnout.schemes.scheme import RELATION, SHUFFLES, Relation, ReleaseRule, Scheme

Naming = Callable[[str], str]
"""Function that returns the user's name of a setting, such as ``--window`` for ``window``."""


class _Missing:
    """Marker of a value that was not given."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()
"""Value in a `ParameterError` about a setting that was not given."""

DEFAULT_RANDOMIZER = "gaussian"
"""Randomizer of a scheme without a shuffler if the user selects no randomizer."""


@dataclass(frozen=True, slots=True)
class PrivacyTarget(Checked):
    """Target of a question about a scheme: δ, an optional ε, and the width of the bounds.

    Attributes:
        delta: δ, strictly between 0 and 1.
        epsilon: target ε, above 0; None if there is no target.
        tolerance: largest relative width of the bounds on ε, strictly between 0 and 1.
    """

    delta: float = open_unit("parameter δ of the (ε, δ)-DP guarantee")
    epsilon: float | None = positive("target ε, to which a parameter is calibrated", optional=True)
    tolerance: float = open_unit(
        "largest relative width (upper − lower) / upper of the bounds on ε", 1e-3
    )


RELATION_SETTING = Parameter(
    "relation",
    Domain.CHOICE,
    "the neighbouring relation, which has no default",
    key="relation",
    members=Relation,
)
RELEASE_SETTING = Parameter(
    "release",
    Domain.CHOICE,
    "rule by which each step is released",
    ReleaseRule.AGGREGATED,
    key="release",
    members=ReleaseRule,
)
CLIENTS_SETTING = Parameter(
    "population",
    Domain.COUNT,
    "number of clients that follow the protocol, for averaged releases only",
    key="clients",
    optional=True,
)
"""Setting for the number of clients, of schemes whose releases average noisy updates."""


def settings(kind: type[Any]) -> tuple[Parameter, ...]:
    """Settings of a participation, a randomizer, a shuffle or a target, in the order of fields."""
    return tuple(each for each in parameters(kind) if each.public)


def setting_of(kind: type[Any], key: str) -> Parameter:
    """Setting of the class ``kind`` with the given key, which must exist."""
    return next(each for each in settings(kind) if each.key == key)


COMPARISON_TOLERANCE = replace(setting_of(PrivacyTarget, "tolerance"), default=1e-2)
"""Tolerance of bounds in comparisons; the default is larger, since many bounds are computed."""


def noise_setting(kind: type[Any]) -> Parameter | None:
    """Noise setting of a randomizer: its first setting with positive values, or None."""
    return next((each for each in settings(kind) if each.domain is Domain.POSITIVE), None)


def planned_participations() -> Mapping[str, type[Any]]:
    """Participations that a plan can build from settings, by the values of the key ``law``."""
    return {names.plan: kind for kind, names in all_participations().items() if _is_planned(kind)}


def scheme_kinds() -> Mapping[str, type[Any]]:
    """Participations and shuffles by the values of the option ``--scheme`` that select them."""
    participations = {
        names.question: kind
        for kind, names in all_participations().items()
        if names.question is not None and _is_planned(kind)
    }
    return participations | dict(SHUFFLES)


def scheme_settings(word: str) -> tuple[Parameter, ...]:
    """Settings of the scheme that the value ``word`` of ``--scheme`` selects.

    The settings of the randomizer are not included.
    """
    kind = scheme_kinds()[word]
    counted = word not in SHUFFLES and participation_names(kind).averaged_clients
    clients = (CLIENTS_SETTING,) if counted else ()
    release = () if word in SHUFFLES else (RELEASE_SETTING,)
    return (*settings(kind), *clients, RELATION_SETTING, *release)


def _is_planned(kind: type[Any]) -> bool:
    """Whether a plan can build the participation from settings and the number of clients."""
    own = {each.name for each in parameters(kind)}
    return hasattr(kind, "for_plan") or all(each.name in own for each in fields(kind))


def values_of(own: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the settings by field name: given values after a check, and otherwise defaults.

    Args:
        own: settings. Keys of ``given`` that belong to no such setting are ignored.
        given: values by key.

    Raises:
        ParameterError: a value is missing, outside its domain, or above another value that limits
            it. The error names the key.
    """
    values: dict[str, Any] = {}
    own = tuple(own)
    # Check each value by itself, then the limits that one value sets for another.
    for each in own:
        value = given.get(each.key, each.default)
        if value is None and each.required:
            raise ParameterError(each.key, MISSING, expected_of(each))
        values[each.name] = each.checked(value)
    for each in own:
        if each.at_most in values:
            limit = values[each.at_most]
            checks.at_most(each.at_most, limit, **{each.key: values[each.name]})
    return values


def expected_of(parameter: Parameter) -> str:
    """Description of a parameter's values for an error about a missing value."""
    if parameter.members is None:
        return f"a value ({parameter.words})"
    return f"{parameter.words}: {one_of(list(parameter.members))}"


def one_of(words: Collection[str]) -> str:
    """Text that lists the permitted words."""
    return f"one of {', '.join(repr(str(word)) for word in words)}"


def participation_of(
    kind: type[Any], values: Mapping[str, Any], population: int | None
) -> Participation:
    """Participation of a class with the given values of its settings.

    Args:
        kind: class of the participation.
        values: values of its settings by field name.
        population: number of clients; None in a question, where it is not known.

    Raises:
        ParameterError: the values are not permitted with this number of clients.
    """
    if population is None and hasattr(kind, "for_question"):
        return kind.for_question(**values)
    clients = 1 if population is None else population
    if hasattr(kind, "for_plan"):
        return kind.for_plan(clients, **values)
    counted = {each.name for each in fields(kind)} & {"population"}
    return kind(**values, **dict.fromkeys(counted, clients))


def kinds_of(
    given: Mapping[str, Any], names: Naming = str, unknown: str | None = None
) -> tuple[str, str]:
    """Values of ``--scheme`` and ``--randomizer`` that the given settings describe.

    Args:
        given: values by key, including ``scheme``. Without ``randomizer`` the randomizer is
            Gaussian; with a shuffle the randomizer follows from the given setting: ε₀, δ₀ or noise.
        names: function that returns the user's name of a setting, for errors.
        unknown: key of a setting that is to be solved for; it counts as given.

    Raises:
        ParameterError: an unknown scheme or randomizer.
    """
    # First the scheme. A randomizer in a shuffle must have an analysis of shuffled messages.
    scheme, randomizer = given.get("scheme"), given.get("randomizer")
    known = scheme_kinds()
    if scheme not in known and load("participations", scheme):
        known = scheme_kinds()
    if scheme not in known:
        raise ParameterError("scheme", MISSING if scheme is None else scheme, one_of(known))
    if randomizer is not None and randomizer not in question_randomizers():
        load("randomizers", randomizer)
    if scheme in SHUFFLES:
        randomizer = randomizer or _randomizer_of_level({*given, unknown}, given, names)
        allowed = shuffled_randomizers()
        if randomizer not in allowed:
            expected = f"{one_of(allowed)} with {names('scheme')} {scheme}"
            raise ParameterError("randomizer", randomizer, expected)
    # Without a shuffle every randomizer is permitted.
    randomizer = randomizer or DEFAULT_RANDOMIZER
    if randomizer not in question_randomizers():
        raise ParameterError("randomizer", randomizer, one_of(question_randomizers()))
    return str(scheme), str(randomizer)


def _randomizer_of_level(
    keys: Collection[str | None], given: Mapping[str, Any], names: Naming
) -> str:
    """Name of the randomizer of shuffled messages, from the setting that is given: ε₀, δ₀ or σ."""
    noisy = "noise_multiplier" in keys
    if "noise_multiplier" in given and "epsilon0" in keys:
        expected = f"no value, since {names('epsilon0')} is given"
        raise ParameterError("noise_multiplier", given["noise_multiplier"], expected)
    if "delta0" in keys:
        return "approximate"
    return "gaussian" if noisy else "pure"


def scheme_of(given: Mapping[str, Any], names: Naming = str) -> Scheme:
    """Scheme with the given settings, and with defaults for all other settings.

    Args:
        given: values by key: ``scheme``, optionally ``randomizer``, and settings of both.
        names: function that returns the user's name of a setting, for errors.

    Raises:
        ParameterError: a value is missing or outside its domain, or a setting belongs to another
            scheme or randomizer. The error has the user's name of the setting.
    """
    with renamed(names):
        # Check that every given setting belongs to the scheme or to its randomizer.
        scheme, randomizer = kinds_of(given, names)
        if scheme in SHUFFLES:
            _check_shuffled(given, scheme, names)
        _check_owners(given, scheme, randomizer, names)
        if scheme in SHUFFLES:
            _check_level(given, randomizer, names)
        # Build the randomizer, then the participation or shuffle.
        protected = randomizer_of(randomizer, given)
        kind = scheme_kinds()[scheme]
        values = values_of(settings(kind), given)
        if scheme in SHUFFLES:
            return kind(**values).scheme(protected)
        # The number of clients is used only for releases that average noisy updates.
        terms = values_of((CLIENTS_SETTING, RELATION_SETTING, RELEASE_SETTING), given)
        if terms["population"] is not None and terms["release"] is not ReleaseRule.AVERAGED:
            averaged = f"{names('release')} {ReleaseRule.AVERAGED.value}"
            raise ParameterError("clients", terms["population"], f"only with {averaged}")
        return Scheme(protected, participation_of(kind, values, None), **terms)


def randomizer_of(word: str, given: Mapping[str, Any]) -> Randomizer:
    """Randomizer for accounting that the value ``word`` of ``--randomizer`` selects.

    Args:
        word: registered name of the randomizer.
        given: values of its settings by key.

    Raises:
        ParameterError: a value is missing or outside its domain.
    """
    kind = question_randomizers()[word]
    made = kind(**values_of(settings(kind), given))
    return getattr(made, "priced_as", made)


def _check_owners(given: Mapping[str, Any], scheme: str, randomizer: str, names: Naming) -> None:
    """Raise an error for a setting of another scheme or randomizer, or for an unknown key."""
    # Keys of the settings of all randomizers and schemes.
    randomizers = {word: _keys(settings(kind)) for word, kind in question_randomizers().items()}
    schemes = {word: _keys(scheme_settings(word)) for word in scheme_kinds()}
    own = schemes[scheme] | randomizers[randomizer] | {"scheme", "randomizer"}
    # The error lists the randomizers or schemes that have the setting.
    for key, value in given.items():
        if key in own:
            continue
        for option, kinds in (("randomizer", randomizers), ("scheme", schemes)):
            if owners := [word for word, keys in kinds.items() if key in keys]:
                expected = f"only with {names(option)} {_any_of(owners)}"
                raise ParameterError(key, value, expected)
        raise ParameterError(key, value, f"one of {', '.join(map(names, sorted(own)))}")


def _keys(own: Iterable[Parameter]) -> set[str]:
    """Set of the keys of the settings."""
    return {each.key for each in own}


def _any_of(words: list[str]) -> str:
    """Text that joins the words with commas and "or"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _check_shuffled(given: Mapping[str, Any], scheme: str, names: Naming) -> None:
    """Raise an error if a shuffle has a release rule or a relation other than replace-one."""
    relation, shuffle = given.get("relation", RELATION.value), f"{names('scheme')} {scheme}"
    if relation != RELATION.value:
        expected = (
            f"{RELATION.value}, the default with {shuffle}: the number of messages is public, so "
            "whether a client took part is not hidden"
        )
        raise ParameterError("relation", relation, expected)
    if "release" in given:
        expected = f"no value with {shuffle}: a shuffler shows all messages"
        raise ParameterError("release", given["release"], expected)


def _check_level(given: Mapping[str, Any], randomizer: str, names: Naming) -> None:
    """Raise an error if a question about a shuffle has no randomizer, no ε₀ and no noise."""
    levels = _keys(settings(question_randomizers()[randomizer]))
    if "randomizer" not in given and not levels & set(given):
        noise = names("noise_multiplier")
        expected = f"the ε₀ of one message, or {noise} if each client adds Gaussian noise"
        raise ParameterError("epsilon0", MISSING, expected)


@contextmanager
def renamed(names: Naming) -> Iterator[None]:
    """Context in which errors have the user's names of settings instead of their keys.

    Raises:
        ParameterError: error of the block, with the user's name of the setting.
    """
    try:
        yield
    except ParameterError as error:
        raise ParameterError(names(error.name), error.value, error.expected) from None
