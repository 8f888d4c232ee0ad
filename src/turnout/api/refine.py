"""`refine`: a public release of clients' values at a small ε, and secret keys for larger ε.

`Refinement` is the release with the available keys, either new or read from files.
`RefinedFrequencies` is the estimate at one level; `limited_frequencies` returns an estimate from
answers that use few random bits. `turnout.refinement` has the mechanisms and the files' format; the
commands of ``turnout refine`` call these functions and print their tables.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnout.api.estimate import categories_of, rows_of
from turnout.api.price import Result
from turnout.core.errors import ParameterError
from turnout.core.files import write
from turnout.core.optional import require
from turnout.estimation.private.columns import item_blocks
from turnout.randomness import OSRandomness, Source
from turnout.refinement import (
    Key,
    LayeredRelease,
    LevelEstimate,
    LimitedAnswers,
    enough_randomness,
    least_key_bits,
    multi_level,
)
from turnout.refinement import refine as released
from turnout.refinement.hadamard import public_seed
from turnout.refinement.release import key_name, read_key, read_release, write_release

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from turnout.refinement.multilevel import Mechanism
    from turnout.reporting.drawing import Picture

_TOP = 20
_COST = (
    "Each epsilon is of one client's value, replace-one, local model. Several keys\n"
    "together show what the largest shows. Give each key to its analyst, and keep none."
)


@dataclass(frozen=True, eq=False, repr=False)
class RefinedFrequencies(Result):
    """Estimated share of the clients that hold each category, at one privacy level ε.

    Attributes:
        estimate: unbiased and projected frequencies with their standard errors.
        categories: possible values, shape (k,), in the order of the estimate.
        confidence: coverage probability of each interval.
    """

    estimate: LevelEstimate
    categories: tuple[str, ...]
    confidence: float

    @property
    def epsilon(self) -> float:
        """Value of ε at this level; infinite for the key that reveals every client's value."""
        return self.estimate.epsilon

    @property
    def values(self) -> NDArray[np.float64]:
        """Estimated shares, at least 0 and with sum 1, shape (k,)."""
        return self.estimate.frequencies

    def rows(self) -> list[dict[str, str | float]]:
        """JSON-ready rows, one for each category, the most frequent category first."""
        estimate = self.estimate
        low, high = estimate.interval(self.confidence)
        order = sorted(range(len(self.categories)), key=lambda value: -estimate.raw[value])
        return [
            {
                "value": self.categories[value],
                "frequency": float(estimate.frequencies[value]),
                "low": float(low[value]),
                "high": float(high[value]),
                "raw": float(estimate.raw[value]),
                "population_standard_error": float(estimate.standard_errors[value]),
            }
            for value in order
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the estimate; ``epsilon`` is None at the level without privacy."""
        exact = math.isinf(self.epsilon)
        return {
            "epsilon": None if exact else self.epsilon,
            "guarantee": self.estimate.guarantee,
            "clients": self.estimate.clients,
            "confidence": self.confidence,
            "frequencies": self.rows(),
        }

    def table(self, top: int = _TOP) -> RenderableType:
        """``rich`` renderable with the ``top`` most frequent categories and the guarantee."""
        from rich.console import Group
        from rich.table import Table

        # Columns of the table.
        clients = f"{self.estimate.clients:,} clients"
        table = Table("value", title=clients, box=None, title_justify="left")
        interval = f"{100 * self.confidence:g} % interval"
        for column in ("frequency", interval, "± noise and sampling"):
            table.add_column(column, justify="right")
        # The most frequent values.
        rows = self.rows()
        for row in rows[:top]:
            table.add_row(
                str(row["value"]),
                f"{row['frequency']:.4f}",
                f"{row['low']:.4f} to {row['high']:.4f}",
                f"{row['population_standard_error']:.4f}",
            )
        # The number of further values, and the guarantee.
        lines = self._lines()
        if len(rows) > top:
            lines = [f"and {len(rows) - top:,} values more (--top, --out)", *lines]
        return Group(table, *map(_unwrapped, lines))

    def _lines(self) -> list[str]:
        return [self.estimate.guarantee]

    def plot(self, top: int = _TOP) -> Picture:
        """Picture of the most frequent categories with their intervals.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import level_picture

        return level_picture([self.estimate], self.categories, self.confidence, top)

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write all rows into a CSV file.

        Raises:
            StorageError: the file cannot be written.
        """
        rows, file = self.rows(), io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write(Path(path), file.getvalue().encode())

    def __repr__(self) -> str:
        estimate, size = self.estimate, len(self.categories)
        return (
            f"{type(self).__name__}({size:,} values, {estimate.clients:,} clients; "
            f"{estimate.guarantee})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Refinement(Result):
    """Public release of clients' values, and the available keys.

    Attributes:
        release: public part: mechanism, a message of each client, names of the values.
        keys: available secret keys, at most one for each level except the smallest ε.
        mechanism: name of the requested mechanism; None for the default.
        paths: files of the release and of `keys`, in this order; None if no files were written.
    """

    release: LayeredRelease
    keys: tuple[Key, ...] = ()
    mechanism: str | None = None
    paths: tuple[Path, ...] | None = None

    @classmethod
    def read(cls, public: str | os.PathLike[str], *keys: str | os.PathLike[str]) -> Refinement:
        """Release that is read from a public file (or its folder), and keys from key files.

        Raises:
            StorageError: a file cannot be read, is damaged, or is of another kind.
        """
        release, place = read_release(Path(public)), Path(public)
        held = tuple(read_key(Path(key)) for key in keys)
        return cls(release, held, paths=(place, *map(Path, keys)))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Values of ε of all levels, decreasing; the last is the ε of the public file alone."""
        return self.release.levels.epsilons

    @property
    def categories(self) -> tuple[str, ...]:
        """Possible values of a client by name, or as whole numbers if the values have no names."""
        return self.release.labels or tuple(map(str, range(self.release.levels.size)))

    def key(self, epsilon: float) -> Key:
        """Available key of the level with the given ε.

        Raises:
            ParameterError: no level has this ε, or the key of the level is not available.
        """
        self.release.levels.level_of(epsilon)
        for key in self.keys:
            if key.epsilon == epsilon:
                return key
        raise ParameterError("epsilon", epsilon, "the ε of a level with an available key")

    def at(self, epsilon: float | None = None, *, confidence: float = 0.95) -> RefinedFrequencies:
        """Estimated shares of the clients at one level.

        Args:
            epsilon: ε of the level; None chooses the largest ε with an available key, or the ε of
                the public file if there is no key.
            confidence: coverage probability of each interval, strictly between 0 and 1.

        Raises:
            ParameterError: no level has this ε, or the key of the level is not available.
            KeyMismatchError: the key belongs to another release.
        """
        key = self._largest if epsilon is None else None
        if epsilon is not None and self.release.levels.level_of(epsilon) != len(self.epsilons) - 1:
            key = self.key(epsilon)
        return RefinedFrequencies(self.release.at(key), self.categories, confidence)

    @property
    def _largest(self) -> Key | None:
        return max(self.keys, key=lambda key: key.epsilon, default=None)

    def recovered(self) -> NDArray[Any]:
        """Value of each client, shape (clients,), as a name or a number; needs the key of ε = ∞.

        Raises:
            ParameterError: the key of ε = ∞ is not available.
            KeyMismatchError: the key belongs to another release.
        """
        largest = self._largest
        values = self.release.recovered(self.key(math.inf) if largest is None else largest)
        return np.array(self.release.labels)[values] if self.release.labels else values

    def write(self, folder: str | os.PathLike[str]) -> Refinement:
        """Write the public file and a secret file for each key; return a copy with the paths.

        Raises:
            StorageError: one of the files exists, or the folder cannot be written to.
        """
        paths = write_release(Path(folder), self.release, self.keys)
        return Refinement(self.release, self.keys, self.mechanism, tuple(paths))

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, levels and available keys as JSON-ready values, without any secret."""
        levels, held = self.release.levels, {key.epsilon for key in self.keys}
        # One row for each level, without secrets.
        rows = [
            {
                "epsilon": None if math.isinf(epsilon) else epsilon,
                "key": None if epsilon == self.epsilons[-1] else key_name(epsilon),
                "at_hand": epsilon == self.epsilons[-1] or epsilon in held,
            }
            for epsilon in self.epsilons
        ]
        # The release and its guarantee.
        return {
            "release": self.release.digest,
            "clients": len(self.release.messages),
            "values": levels.size,
            "mechanism": levels.design.family,
            "message_bits": levels.message_bits,
            "levels": rows,
            "delta": 0.0,
            "relation": "replace-one",
            "unit": "client",
            "trust_model": "local",
        }

    def table(self) -> RenderableType:
        """Table of the files, each with its ε and its readers, as a ``rich`` renderable."""
        from rich.console import Group
        from rich.table import Table

        levels, clients = self.release.levels, len(self.release.messages)
        # The mechanism.
        title = (
            f"{clients:,} clients, {levels.size:,} values, {levels.design.family}, "
            f"{levels.message_bits} bits a client"
        )
        table = Table("file", "readers", title=title, box=None, title_justify="left")
        table.add_column("ε", justify="right")
        # The level that each file shows, and to whom.
        names = ["public", *(key_name(key.epsilon) for key in self.keys)]
        shown = [("everyone", self.epsilons[-1])]
        shown += [("holder of this key", key.epsilon) for key in self.keys]
        for path, (who, epsilon) in zip(self.paths or names, shown, strict=True):
            level = "inf (every value)" if math.isinf(epsilon) else f"{epsilon:g}"
            table.add_row(str(path), who, level)
        # The minimal mechanism has keys near the least possible size.
        lines: list[str] = []
        if self.mechanism == "minimal":
            least = least_key_bits(levels.size, self.epsilons[-1])
            lines.append(
                f"The largest key has {levels.cascade.key_bits(0):.3f} bits of randomness a "
                f"client; {least:.3f} is the least that gives every value back."
            )
        return Group(table, *map(_unwrapped, [*lines, *_COST.split("\n")]))

    def plot(self, top: int = 10) -> Picture:
        """Picture of the most frequent categories with 95 % intervals, at each available level.

        Raises:
            MissingExtraError: the plotting packages are not installed.
        """
        require("plots", what="plot")
        from turnout.reporting.answer_pictures import level_picture

        found = [self.at(key.epsilon).estimate for key in self.keys]
        found.append(self.at(self.epsilons[-1]).estimate)
        return level_picture(found, self.categories, 0.95, top)

    def __repr__(self) -> str:
        levels = ", ".join(f"{epsilon:g}" for epsilon in self.epsilons)
        return (
            f"Refinement({len(self.release.messages):,} clients, {self.release.levels.size:,} "
            f"values; local, ε = {levels}, replace-one, client; {len(self.keys)} keys)"
        )


def refine(
    values: Any,
    *,
    categories: int | Iterable[object],
    epsilons: Sequence[float],
    mechanism: Mechanism | None = None,
    column: str | None = None,
    missing: object = None,
    source: Source | None = None,
) -> Refinement:
    """Public release of clients' values, with a key for each level of ε except the smallest.

    Without a key the release is the output of a mechanism with the smallest ε. A key removes a part
    of the noise, so that the release becomes the output of a mechanism with exactly the key's ε;
    several keys together reveal as much as the key with the largest ε. Random numbers are drawn
    from the operating system. The caller sees all values and keys.

    Args:
        values: one value for each client, as in `estimate_frequencies`: an array, a list, a series
            or a frame, or the path of a .npy, .csv or .parquet file.
        categories: all possible values: a number k for the values 0 to k − 1, or a list of names.
            They are public and must not be computed from the data.
        epsilons: ε of each level, positive and different, in any order; the key of the level inf
            reveals every value. Each ε is pure (δ = 0) and bounds the privacy loss of one
            client's value in the local model, with relation replace-one.
        mechanism: "one-bit", "k-ary", "hadamard", "projective" or "minimal". "minimal" is for two
            levels, and its key of level inf needs the least randomness. The default is the
            mechanism with the shortest messages among those that are almost as accurate as the most
            accurate one (`turnout.refinement.multi_level`).
        column: name of the column, if a frame or a file has several.
        missing: category, a public constant, that replaces a missing value; if None, a missing
            value is an error.
        source: source of randomness for tests and simulations, whose results have no privacy; None
            draws from the operating system.

    Returns:
        The release with all its keys. At each level the exact likelihood ratio of a client's
        message is at most e^ε for the ε of the level.

    Raises:
        ParameterError: a value is missing or is not a category, or a level or a mechanism is
            outside its domain.
        InputFileError: a file cannot be read.

    Source: thesis, §7.4 and §7.5; docs/refinement.md, "What holds".

    >>> from turnout.randomness import SimulationStreams
    >>> source = SimulationStreams(1).source("doctest")
    >>> found = refine([0, 1, 1, 2] * 500, categories=3, epsilons=(0.5, 4), source=source)
    >>> found
    Refinement(2,000 clients, 3 values; local, ε = 4, 0.5, replace-one, client; 1 keys)
    >>> found.at(4).epsilon, found.at(0.5).epsilon
    (4.0, 0.5)
    """
    size, names = categories_of(categories)
    levels = multi_level(size, epsilons, mechanism, source=source)
    held = _items(values, size, names, column, missing)
    release, keys = released(levels, held, labels=names, source=source)
    return Refinement(release, tuple(keys), mechanism)


@dataclass(frozen=True, eq=False, repr=False)
class LimitedFrequencies(RefinedFrequencies):
    """Estimated share of the clients that hold each value, from answers that use few random bits.

    Attributes:
        all_clients: number of all clients, including those that send no answer.
        randomness_bits: average number of random bits that a client uses.
        enough_bits: number of random bits above which the error does not fall further.
        share_asked: fraction of the clients that are asked for an answer.
    """

    all_clients: int
    randomness_bits: float
    enough_bits: float
    share_asked: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values of the estimate and its guarantee."""
        return {
            **super().to_dict(),
            "randomness_bits": self.randomness_bits,
            "enough_randomness_bits": self.enough_bits,
            "share_asked": self.share_asked,
        }

    def _lines(self) -> list[str]:
        return [
            *super()._lines(),
            f"{self.randomness_bits:.3g} bits of randomness a client on average, of "
            f"{self.enough_bits:.3g} that help; {self.share_asked:.1%} of "
            f"{self.all_clients:,} clients were asked",
        ]


def limited_frequencies(
    values: Any,
    *,
    categories: int | Iterable[object],
    epsilon: float,
    randomness: float,
    column: str | None = None,
    missing: object = None,
    confidence: float = 0.95,
    source: Source | None = None,
) -> LimitedFrequencies:
    """Estimated share of the clients that hold each value, from answers that use few random bits.

    Each client gives one private answer to a public yes-no question, in the local model with
    relation replace-one. If an answer needs more random bits than ``randomness``, only a public
    random sample of the clients is asked, so that a client uses ``randomness`` bits on average.

    Args:
        values: one value for each client, as in `refine`.
        categories: possible values, a number or their names, as in `refine`.
        epsilon: ε of the answer of a client, above 0 and at most 30; δ is 0.
        randomness: average number of random bits that a client uses, above 0.
        column: name of the column, if a frame or a file has several.
        missing: category, a public constant, that replaces a missing value; if None, a missing
            value is an error.
        confidence: coverage probability of each interval, strictly between 0 and 1.
        source: source of randomness for tests and simulations, whose results have no privacy; None
            draws from the operating system.

    Returns:
        Unbiased estimates, and their projection on the simplex, with intervals, shape (k,). The
        exact likelihood ratio of an answer is at most e^ε, so the true ε of an answer is never
        above ``epsilon``.

    Raises:
        ParameterError: a value is missing or is not a category, or an argument is outside its
            domain.
        InputFileError: a file cannot be read.

    Source: thesis, (7.27) and Theorem 7.3.2. To save random bits the thesis makes the answer "yes"
    rare, whereas this function asks fewer clients.

    >>> from turnout.randomness import SimulationStreams
    >>> source, values = SimulationStreams(1).source("doctest"), [0, 1, 1, 2] * 500
    >>> limited_frequencies(values, categories=3, epsilon=1, randomness=2, source=source)
    LimitedFrequencies(3 values, 2,000 clients; epsilon = 1, pure, of one client's message,
    replace-one, local model)
    """
    # The possible values, and the mechanism with its public questions.
    size, names = categories_of(categories)
    drawn = OSRandomness() if source is None else source
    answers = LimitedAnswers(size, epsilon, randomness, public_seed(drawn))
    held = _items(values, size, names, column, missing)
    # Each asked client's private answer, and the estimate from all answers.
    found = answers.answered(answers.totals(answers.encode(held, drawn)))
    return LimitedFrequencies(
        found,
        names or tuple(map(str, range(size))),
        confidence,
        len(held),
        answers.entropy_bits,
        enough_randomness(epsilon),
        answers.share,
    )


def _items(
    values: Any, size: int, names: tuple[str, ...], column: str | None, missing: object
) -> NDArray[np.int64]:
    """Clients' values as whole numbers below ``size``, shape (clients,)."""
    return np.concatenate(list(item_blocks(rows_of(values), size, names, column, missing)))


def _unwrapped(line: str) -> Text:
    """Text that the console prints on one line at any width."""
    from rich.text import Text

    return Text(line, no_wrap=True, overflow="ignore")
