"""Questions to accounting: a scheme and a privacy target, from settings given by name.

`parse_query` builds a `Question` from the options of a command, whose names and domains
`turnout.schemes.settings` defines. `solvable` lists the settings that can be solved for.
`TableFile` is a randomizer that is given by a file of probabilities.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnout.core.errors import ParameterError, StorageError
from turnout.core.plugins import plugin_of
from turnout.randomizers.interface import all_mechanisms
from turnout.schemes import ReleaseRule, Scheme, TableRandomizer
from turnout.schemes.parameters import Checked, text
from turnout.schemes.registry import question_randomizer, question_randomizers
from turnout.schemes.scheme import SHUFFLES
from turnout.schemes.settings import (
    DEFAULT_RANDOMIZER,
    MISSING,
    PrivacyTarget,
    kinds_of,
    noise_setting,
    one_of,
    renamed,
    scheme_kinds,
    scheme_of,
    scheme_settings,
    settings,
    values_of,
)

NOISE, DELTA = "noise", "delta"
"""Unknowns that are not settings: δ, and "noise", which means the randomizer's noise setting."""
_FLAGS = {"law": "--scheme", "population": "--clients", "size": "--sampled"}
_COLUMNS = ("present", "absent")

all_mechanisms()  # imports the randomizers, which register their names for questions


@question_randomizer("table")
@dataclass(frozen=True, slots=True)
class TableFile(Checked):
    """File with the probabilities of a mechanism with finitely many outcomes."""

    pair_file: str = text(
        "CSV file with the columns present and absent: the probability of each outcome with the "
        "client, and without the client"
    )

    @property
    def priced_as(self) -> TableRandomizer:
        """Randomizer for accounting, with the probabilities in the file."""
        return read_pair(Path(self.pair_file))


SCHEMES = tuple(scheme_kinds())
"""Values of the option ``--scheme``: participations and shuffles."""


@lru_cache(maxsize=4)
def read_pair(path: Path) -> TableRandomizer:
    """Randomizer with the output distributions ``present`` and ``absent``, columns of a CSV file.

    Raises:
        ParameterError: the file does not exist, or its columns are not two distributions.
        StorageError: the file cannot be read.
    """
    from turnout.accounting import pair_of_table

    try:
        content = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise ParameterError("pair_file", str(path), "a CSV file that exists") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"pair file {path} cannot be read: {error}") from None
    # The first line names the columns, in any order; other columns are ignored.
    rows = csv.DictReader(content.splitlines(), skipinitialspace=True)
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
    # Check that the columns are two distributions; the error names the file.
    try:
        pair_of_table(columns["present"], columns["absent"])
    except ParameterError as error:
        expected = f"column {error.name}: {error.expected}"
        raise ParameterError("pair_file", str(path), expected) from None
    return TableRandomizer(columns["present"], columns["absent"])


def _number(path: Path, line: int, name: str, cell: str | None) -> float:
    """Number in a cell of the file."""
    try:
        return float(cell or "")
    except ValueError:
        expected = f"a number in line {line}, column {name}, not {cell or ''!r}"
        raise ParameterError("pair_file", str(path), expected) from None


@dataclass(frozen=True, slots=True)
class Question:
    """A scheme and a privacy target, with the settings from which they were built.

    Attributes:
        scheme: scheme that the question is about.
        target: δ, an optional ε, and the width of the bounds.
        randomizer: value of ``--randomizer`` that selects the scheme's randomizer.
        given: given settings by key, including ``scheme``.
    """

    scheme: Scheme
    target: PrivacyTarget
    randomizer: str
    given: Mapping[str, Any]

    @property
    def target_epsilon(self) -> float:
        """The target ε of the question.

        Raises:
            ParameterError: no target was given.
        """
        if self.target.epsilon is None:
            raise ParameterError("--epsilon", MISSING, "a finite number above 0")
        return self.target.epsilon

    @property
    def randomizer_words(self) -> dict[str, Any]:
        """The randomizer's name, and the values of its settings by key."""
        kind = question_randomizers()[self.randomizer]
        own = settings(kind)
        values = values_of(own, self.given)
        words = {"name": self.randomizer, **{each.key: values[each.name] for each in own}}
        # The ε of a plug-in's randomizer depends on the code of the plug-in, so name its version.
        plugin = plugin_of(kind)
        return words if plugin is None else words | {"plugin": str(plugin)}

    def answered(self, unknown: str, value: float) -> Question:
        """This question, but with the given value of the setting ``unknown``."""
        return parse_query({**self.given, unknown.replace("-", "_"): value})


def parse_query(flags: Mapping[str, object], unknown: str | None = None) -> Question:
    """Question (scheme and privacy target) that the options of a command describe.

    Args:
        flags: values by name without dashes, None if not given; ``scheme`` is one of `SCHEMES`.
        unknown: name of the setting to solve for, from `solvable`, or `NOISE`; ``flags`` must not
            have a value of it. In the returned question the setting has its most private value.

    Raises:
        ParameterError: a wrong option; the error has the option, its value and the values that are
            allowed.
    """
    # Determine the randomizer, and set the unknown to its most private value.
    given = {name: value for name, value in flags.items() if value is not None}
    target = _keys_of_target()
    with flags_named():
        _, randomizer = kinds_of(given, _flag, _key(unknown) if unknown else None)
        if unknown is not None:
            given |= _stand_in(unknown, randomizer, given)
    # Build the scheme, then the target.
    scheme = scheme_of({key: given[key] for key in given if key not in target}, _flag)
    with flags_named():
        goal = PrivacyTarget(**values_of(settings(PrivacyTarget), given))
    return Question(scheme, goal, randomizer, given)


def flags_named() -> AbstractContextManager[None]:
    """Context in which errors have the names of options instead of keys of settings."""
    return renamed(_flag)


def _flag(key: str) -> str:
    """Command-line option of a setting, or of the last part of a dotted key."""
    name = key.rpartition(".")[2]
    if name.startswith("--"):
        return name
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def _key(unknown: str) -> str:
    """Key of a setting, from the name of its option."""
    return unknown.replace("-", "_")


def _keys_of_target() -> set[str]:
    """Keys of the settings of a privacy target."""
    return {each.key for each in settings(PrivacyTarget)}


def solvable(scheme: str, randomizer: str = DEFAULT_RANDOMIZER) -> list[str]:
    """Names of the options whose value can be solved for, including δ, without leading dashes."""
    from turnout.accounting.calibration import UNKNOWNS

    kind = question_randomizers()[randomizer]
    keys = {each.key for each in (*settings(kind), *scheme_settings(scheme))}
    return [*(name for name in UNKNOWNS if _key(name) in keys), DELTA]


def own_name(unknown: str, randomizer: str) -> str:
    """Option to solve for, without dashes; `NOISE` becomes the noise option of the randomizer."""
    noise = noise_setting(question_randomizers()[randomizer])
    return noise.key.replace("_", "-") if unknown == NOISE and noise is not None else unknown


def _stand_in(unknown: str, randomizer: str, given: Mapping[str, Any]) -> dict[str, float]:
    """Key and most private value of the unknown setting; an error if its value is given."""
    from turnout.accounting.calibration import DELTA as DELTA_UNKNOWN
    from turnout.accounting.calibration import UNKNOWNS

    unknown, scheme = own_name(unknown, randomizer), str(given["scheme"])
    allowed, key = solvable(scheme, randomizer), _key(unknown)
    if unknown not in allowed:
        raise ParameterError("--solve-for", unknown, one_of(allowed))
    # Without a shuffler, ε depends on the number of clients only for averages of noisy updates.
    averaged = given.get("release") == ReleaseRule.AVERAGED
    if unknown == "clients" and scheme not in SHUFFLES and not averaged:
        raise ParameterError("--solve-for", unknown, "only with --release averaged")
    if key in given:
        raise ParameterError(key, given[key], f"no value with --solve-for {unknown}")
    return {key: (DELTA_UNKNOWN if unknown == DELTA else UNKNOWNS[unknown]).private_limit}
