"""What protects one contribution, as a question names it: one section for each randomizer."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from turnout.core.errors import ParameterError, StorageError
from turnout.plans.fields import Categories, Count, OpenUnit, Positive, Section
from turnout.spec import (
    ApproximateRandomizer,
    BitResponse,
    DiscreteGaussianNoise,
    FixedRandomizer,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    LaplaceNoise,
    PureRandomizer,
    Randomizer,
    RoundedGaussianNoise,
    TableRandomizer,
)

KIND = "what protects one contribution"
EPSILON0 = "largest ln of the ratio by which two inputs change its output's law"
DEVIATION = "standard deviation of the noise, in units of the lattice"
SENSITIVITY = "largest contribution, in units of the lattice"
_COLUMNS = ("present", "absent")


class GaussianSection(Section):
    """Gaussian noise on an update whose ℓ2 norm is clipped."""

    noise: ClassVar[str] = "noise-multiplier"
    randomizer: Literal["gaussian"] = Field("gaussian", description=KIND)
    noise_multiplier: Positive = Field(
        description="standard deviation of the noise divided by the clip norm"
    )

    def spec(self) -> Randomizer:
        """The randomizer."""
        return GaussianNoise(self.noise_multiplier)


class LaplaceSection(Section):
    """Laplace noise on one clipped number."""

    noise: ClassVar[str] = "scale"
    randomizer: Literal["laplace"] = Field(description=KIND)
    scale: Positive = Field(description="scale of the noise divided by the clip bound")

    def spec(self) -> Randomizer:
        """The randomizer."""
        return LaplaceNoise(self.scale)


class PureSection(Section):
    """Any ε₀-DP randomizer."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["pure"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return PureRandomizer(self.epsilon0)


class ApproximateSection(Section):
    """Any (ε₀, δ₀)-DP randomizer."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["approximate"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)
    delta0: OpenUnit = Field(description="the δ₀ of the randomizer's own (ε₀, δ₀)")

    def spec(self) -> Randomizer:
        """The randomizer."""
        return ApproximateRandomizer(self.epsilon0, self.delta0)


class FixedSection(Section):
    """One ε₀-DP randomizer that all clients of a round use."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["fixed"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return FixedRandomizer(self.epsilon0)


class KaryResponseSection(Section):
    """The true category or, by chance, any other."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["kary-response"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)
    categories: Categories = Field(2, description="categories, of which a client has one")

    def spec(self) -> Randomizer:
        """The randomizer."""
        return KaryResponse(self.epsilon0, self.categories)


class HadamardResponseSection(Section):
    """A message of her value's half of all messages, or of the other half."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["hadamard-response"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return HadamardResponse(self.epsilon0)


class BitResponseSection(Section):
    """The number of a random coordinate and its bit, true or not."""

    noise: ClassVar[str] = "epsilon0"
    randomizer: Literal["bit-response"] = Field(description=KIND)
    epsilon0: Positive = Field(description=EPSILON0)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return BitResponse(self.epsilon0)


class DiscreteGaussianSection(Section):
    """Discrete Gaussian noise on one integer."""

    noise: ClassVar[str] = "standard-deviation"
    randomizer: Literal["discrete-gaussian"] = Field(description=KIND)
    standard_deviation: Positive = Field(description=DEVIATION)
    sensitivity: Count = Field(1, description=SENSITIVITY)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return DiscreteGaussianNoise(self.standard_deviation, self.sensitivity)


class RoundedGaussianSection(Section):
    """Gaussian noise rounded to integers, on one integer."""

    noise: ClassVar[str] = "standard-deviation"
    randomizer: Literal["rounded-gaussian"] = Field(description=KIND)
    standard_deviation: Positive = Field(description=DEVIATION)
    sensitivity: Count = Field(1, description=SENSITIVITY)

    def spec(self) -> Randomizer:
        """The randomizer."""
        return RoundedGaussianNoise(self.standard_deviation, self.sensitivity)


class TableSection(Section):
    """A mechanism with finitely many outcomes, by a table of their probabilities."""

    noise: ClassVar[str | None] = None
    randomizer: Literal["table"] = Field(description=KIND)
    pair_file: str = Field(
        description="CSV file of the outcomes' probabilities with and without her: columns "
        "present and absent"
    )

    def spec(self) -> Randomizer:
        """The randomizer; reads the file once."""
        return read_pair(Path(self.pair_file))


RandomizerSection = Annotated[
    GaussianSection
    | LaplaceSection
    | PureSection
    | ApproximateSection
    | FixedSection
    | KaryResponseSection
    | HadamardResponseSection
    | BitResponseSection
    | DiscreteGaussianSection
    | RoundedGaussianSection
    | TableSection,
    Field(discriminator="randomizer"),
]


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
