"""Randomizers of one contribution, as questions name them: one section for each."""

from __future__ import annotations

import csv
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model

from turnout.core.errors import ParameterError, StorageError
from turnout.plans.fields import Section, Sections, section_keys
from turnout.randomizers.interface import all_mechanisms
from turnout.schemes import Randomizer, TableRandomizer
from turnout.schemes.parameters import Domain, parameters
from turnout.schemes.registry import asked_randomizers

KIND = "what protects one contribution"
_COLUMNS = ("present", "absent")


class RandomizerSection(Section):
    """The parameters of a randomizer that a question names."""

    kind: ClassVar[type[Any]]
    noise: ClassVar[str | None]
    randomizer: str

    def spec(self) -> Randomizer:
        """The randomizer that accounting prices."""
        made = self.kind(**{each.name: getattr(self, each.key) for each in parameters(self.kind)})
        return getattr(made, "law", made)


def _section_of(word: str, kind: type[Any]) -> type[RandomizerSection]:
    """The section of a randomizer's class, made of what it says of its parameters."""
    keys = {"randomizer": (Literal[word], Field(description=KIND)), **section_keys(kind)}
    section = create_model(f"{kind.__name__}Section", __base__=RandomizerSection, **keys)
    section.kind, section.__doc__ = kind, kind.__doc__
    levels = [each.key for each in parameters(kind) if each.domain is Domain.POSITIVE]
    section.noise = levels[0].replace("_", "-") if levels else None
    return section


class TableSection(RandomizerSection):
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
RANDOMIZERS = Sections[RandomizerSection](
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
