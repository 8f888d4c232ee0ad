"""A public release and the keys that belong to it, as objects and as bytes.

A key names the release that it opens by the SHA-256 of the whole public file, so a key of
another release, or a release that was altered, is refused and never used. The checksum finds
accidents; it is no signature, and a public file holds nothing that depends on the keys.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core.errors import ParameterError, StorageError, TurnoutError
from turnout.randomizers.packing import pack_codes, unpack_codes
from turnout.randomness import Source
from turnout.refinement.container import packed, unpacked
from turnout.refinement.designs import Direct, OneBit
from turnout.refinement.estimates import LevelEstimate, estimate
from turnout.refinement.multilevel import MultiLevel, checked_values


class KeyMismatchError(StorageError):
    """A key that does not open this release."""


@dataclass(frozen=True, eq=False)
class Release:
    """The public part of a release.

    Attributes:
        levels: the mechanism; all of it is public.
        messages: one a client, shape (n,).
        labels: what values are called, shape (size,); empty where they are numbers.
    """

    levels: MultiLevel
    messages: NDArray[np.unsignedinteger]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels and not len(self.labels) == len(set(self.labels)) == self.levels.size:
            raise ParameterError(
                "labels", len(self.labels), f"{self.levels.size} different labels, one a value"
            )

    @cached_property
    def data(self) -> bytes:
        """The public file."""
        header = {
            "bits": self.levels.bits,
            "clients": len(self.messages),
            "design": _design_header(self.levels.design),
            "epsilons": [_written(epsilon) for epsilon in self.levels.epsilons],
            "labels": list(self.labels),
            "weights": [[step.heavy, step.light] for step in self.levels.cascade.steps],
        }
        return packed(
            "release", header, pack_codes(self.messages.astype(np.int64), self.levels.message_bits)
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `data`: what keys name."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "release") -> Release:
        """The release that a public file holds.

        Raises:
            StorageError: damaged, of another kind, or not what this version computes.
        """
        header, payload = unpacked("release", data, name)
        try:
            levels = MultiLevel(
                _design_from(header["design"]),
                tuple(_read(epsilon) for epsilon in header["epsilons"]),
                header["bits"],
            )
            weights = [[step.heavy, step.light] for step in levels.cascade.steps]
            clients, labels = int(header["clients"]), tuple(map(str, header["labels"]))
            if weights != header["weights"]:
                raise ParameterError("weights", header["weights"], "those of its levels")
            return cls(levels, _symbols(levels, payload, clients, name), labels)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, TurnoutError) as error:
            raise StorageError(f"{name}: its header makes no sense ({error})") from None

    def at(self, key: Key | None = None) -> LevelEstimate:
        """Frequencies as the holder of ``key``, or of none, sees them.

        Raises:
            KeyMismatchError: the key belongs to another release.
        """
        last = len(self.levels.epsilons) - 1
        if key is None:
            return estimate(self.levels, self.levels.totals(self.messages), last)
        seen = self.levels.at_level(self.messages, self._noise(key))
        return estimate(self.levels, self.levels.totals(seen), key.level)

    def recovered(self, key: Key) -> NDArray[np.int64]:
        """Every client's value, for the key of the level without noise.

        Raises:
            KeyMismatchError: the key belongs to another release.
            ParameterError: it is the key of another level.
        """
        noise = self._noise(key)
        if not math.isinf(self.levels.epsilons[key.level]):
            raise ParameterError("key", key.epsilon, "the key of the level epsilon = inf")
        return self.levels.at_level(self.messages, noise).astype(np.int64)

    def _noise(self, key: Key) -> NDArray[np.unsignedinteger]:
        """The noise that the key undoes, once it is certain that it is this release's."""
        if key.release != self.digest:
            raise KeyMismatchError(
                f"the key for epsilon = {key.epsilon:g} belongs to release {key.release[:12]}, "
                f"not to this one, {self.digest[:12]}"
            )
        fits = (
            0 <= key.level < len(self.levels.epsilons) - 1
            and self.levels.epsilons[key.level] == key.epsilon
            and key.width == self.levels.message_bits
            and key.clients == len(self.messages)
        )
        if not fits:
            raise KeyMismatchError("the key names this release but none of its levels")
        return _symbols(self.levels, key.noise, key.clients, "key")


@dataclass(frozen=True, eq=False)
class Key:
    """The secret of one analyst.

    Attributes:
        release: `Release.digest` of the release that it opens.
        noise: the noise to take off, packed.
    """

    release: str
    level: int
    epsilon: float
    clients: int
    width: int
    noise: bytes

    def __repr__(self) -> str:
        """Everything but the secret."""
        return f"Key(release={self.release[:12]!r}, epsilon={self.epsilon:g})"

    @cached_property
    def data(self) -> bytes:
        """The key file."""
        header = {
            "clients": self.clients,
            "epsilon": _written(self.epsilon),
            "level": self.level,
            "release": self.release,
            "width": self.width,
        }
        return packed("key", header, self.noise)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "key") -> Key:
        """The key that a file holds.

        Raises:
            StorageError: damaged or of another kind.
        """
        header, payload = unpacked("key", data, name)
        try:
            return cls(
                str(header["release"]),
                int(header["level"]),
                _read(header["epsilon"]),
                int(header["clients"]),
                int(header["width"]),
                payload,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{name}: its header makes no sense ({error})") from None


def refine(
    levels: MultiLevel,
    values: ArrayLike,
    *,
    labels: Sequence[str] = (),
    source: Source | None = None,
) -> tuple[Release, list[Key]]:
    """The public release of all clients, and one key for each level but the public one.

    Args:
        levels: the mechanism.
        values: whole numbers below ``levels.size``, one a client; at least one.
        labels: what values are called.
        source: the operating system's by default.

    Returns:
        the release, and its keys, largest ε first.
    """
    held = checked_values(values, levels.size)
    if not held.size:
        raise ParameterError("values", 0, "at least one client")
    messages, noise = levels.encode(held, source)
    release = Release(levels, messages, tuple(labels))
    width = levels.message_bits
    keys = [
        Key(
            release.digest,
            level,
            epsilon,
            len(messages),
            width,
            pack_codes(row.astype(np.int64), width),
        )
        for level, (epsilon, row) in enumerate(zip(levels.epsilons, noise, strict=False))
    ]
    return release, keys


def _symbols(
    levels: MultiLevel, data: bytes, clients: int, name: str
) -> NDArray[np.unsignedinteger]:
    """One element of the group a client."""
    try:
        codes = unpack_codes(data, clients, levels.message_bits, levels.design.group.order)
    except ParameterError as error:
        raise StorageError(f"{name}: it does not hold {clients} clients ({error})") from None
    return codes.astype(levels.symbol_type)


def _design_header(design: OneBit | Direct) -> dict[str, Any]:
    if isinstance(design, OneBit):
        return {
            "family": "one-bit",
            "seed": design.seed.hex(),
            "size": design.size,
            "variant": design.variant,
        }
    return {
        "draw": design.draw,
        "family": design.family,
        "heavy_count": design.heavy_count,
        "dimension": design.dimension,
        "place_bits": design.place_bits,
        "prime": design.prime,
        "size": design.size,
    }


def _design_from(header: dict[str, Any]) -> OneBit | Direct:
    fields = dict(header)
    if fields["family"] != "one-bit":
        return Direct(**fields)
    del fields["family"]
    return OneBit(**{**fields, "seed": bytes.fromhex(fields["seed"])})


def _written(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


def _read(epsilon: float | str) -> float:
    return float(epsilon)
