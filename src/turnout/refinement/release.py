"""A public release and the keys that belong to it: as objects, as bytes, in a folder.

`refine` makes a `LayeredRelease` and its `Key` objects; `write_release`, `read_release` and
`read_key` are the folder of a public file and one key file an analyst; `pack_release` and
`unpack_release` are the file format.

A key names its release by the SHA-256 of the whole public file, so a key of another release, or an
altered release, is refused. The checksum finds accidents; it is no signature, and a public file
holds nothing that depends on the keys. No file is overwritten, only the owner can read a key file,
from its creation on, and the public file is written last, in one operation: a folder without it
holds no release.

**Format.** A line ``turnout refinement KIND 1`` · length of the header (8 bytes, little-endian) ·
header (JSON, keys sorted) · payload · SHA-256 of everything before it. One content has one such
form, and no byte of it can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core.errors import ParameterError, StorageError, TurnoutError
from turnout.randomizers.packing import pack_codes, unpack_codes
from turnout.randomness import Source
from turnout.refinement.designs import Direct, OneBit
from turnout.refinement.multilevel import LevelEstimate, MultiLevel, checked_values, estimate

VERSION = 1
_DIGEST_BYTES = 32


def pack_release(kind: str, header: dict[str, Any], payload: bytes) -> bytes:
    """Bytes of a file with a header and a payload."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    body = _first_line(kind, VERSION) + len(text).to_bytes(8, "little") + text + payload
    return body + hashlib.sha256(body).digest()


def unpack_release(kind: str, data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Header and payload of a file.

    Raises:
        StorageError: it is another kind of file, from a newer version, or damaged.
    """
    line = data[: data.find(b"\n") + 1] if b"\n" in data[:64] else b""
    if line != _first_line(kind, VERSION):
        raise StorageError(f"{name}: {_complaint(kind, line)}")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    start = len(line) + 8
    if len(body) < start or hashlib.sha256(body).digest() != digest:
        raise StorageError(f"{name}: damaged or cut short (its checksum does not fit)")
    end = start + int.from_bytes(body[len(line) : start], "little")
    try:
        header = json.loads(body[start:end])
    except ValueError:
        raise StorageError(f"{name}: its header cannot be read") from None
    if end > len(body) or not isinstance(header, dict):
        raise StorageError(f"{name}: its header cannot be read")
    return header, body[end:]


def _first_line(kind: str, version: int) -> bytes:
    return f"turnout refinement {kind} {version}\n".encode()


def _complaint(kind: str, line: bytes) -> str:
    words = line.decode(errors="replace").split()
    if words[:2] != ["turnout", "refinement"] or len(words) != 4:
        return f"not a {kind} of turnout refine, or damaged"
    if words[2] != kind:
        return f"a {words[2]}, where a {kind} is needed"
    return f"format {words[3]}, but this version reads format {VERSION}"


class KeyMismatchError(StorageError):
    """Error: a key belongs to another release."""


@dataclass(frozen=True, eq=False)
class LayeredRelease:
    """Public part of a release.

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
        """Bytes of the public file."""
        header = {
            "bits": self.levels.bits,
            "clients": len(self.messages),
            "design": _design_header(self.levels.design),
            "epsilons": [_written(epsilon) for epsilon in self.levels.epsilons],
            "labels": list(self.labels),
            "weights": [[step.heavy, step.light] for step in self.levels.cascade.steps],
        }
        return pack_release(
            "release", header, pack_codes(self.messages.astype(np.int64), self.levels.message_bits)
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of `data`, which the keys of the release contain."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "release") -> LayeredRelease:
        """Release from the bytes of a public file.

        Raises:
            StorageError: damaged, of another kind, or not what this version computes.
        """
        header, payload = unpack_release("release", data, name)
        # The mechanism from the header, whose weights are computed again.
        try:
            levels = MultiLevel(
                _design_from(header["design"]),
                tuple(_read(epsilon) for epsilon in header["epsilons"]),
                header["bits"],
            )
            weights = [[step.heavy, step.light] for step in levels.cascade.steps]
            clients, labels = int(header["clients"]), tuple(map(str, header["labels"]))
            # Weights that differ from the file's belong to another release.
            if weights != header["weights"]:
                raise ParameterError("weights", header["weights"], "those of its levels")
            return cls(levels, _symbols(levels, payload, clients, name), labels)
        # A wrong header is an error of the file.
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, TurnoutError) as error:
            raise StorageError(f"{name}: its header is invalid ({error})") from None

    def at(self, key: Key | None = None) -> LevelEstimate:
        """Frequencies at the level of ``key``, or at the public level without a key.

        Raises:
            KeyMismatchError: the key belongs to another release.
        """
        last = len(self.levels.epsilons) - 1
        if key is None:
            return estimate(self.levels, self.levels.totals(self.messages), last)
        seen = self.levels.at_level(self.messages, self._noise(key))
        return estimate(self.levels, self.levels.totals(seen), key.level)

    def recovered(self, key: Key) -> NDArray[np.int64]:
        """Value of every client, by the key of the level without noise.

        Raises:
            KeyMismatchError: the key belongs to another release.
            ParameterError: it is the key of another level.
        """
        noise = self._noise(key)
        if not math.isinf(self.levels.epsilons[key.level]):
            raise ParameterError("key", key.epsilon, "the key of the level epsilon = inf")
        return self.levels.at_level(self.messages, noise).astype(np.int64)

    def _noise(self, key: Key) -> NDArray[np.unsignedinteger]:
        """Noise that the key removes, after a check that the key belongs to this release."""
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
            raise KeyMismatchError("the key belongs to this release but to none of its levels")
        return _symbols(self.levels, key.noise, key.clients, "key")


@dataclass(frozen=True, eq=False)
class Key:
    """Secret key of one analyst.

    Attributes:
        release: `LayeredRelease.digest` of the release that it opens.
        noise: the noise to take off, packed.
    """

    release: str
    level: int
    epsilon: float
    clients: int
    width: int
    noise: bytes

    def __repr__(self) -> str:
        """Text without the secret."""
        return f"Key(release={self.release[:12]!r}, epsilon={self.epsilon:g})"

    @cached_property
    def data(self) -> bytes:
        """Bytes of the key file."""
        header = {
            "clients": self.clients,
            "epsilon": _written(self.epsilon),
            "level": self.level,
            "release": self.release,
            "width": self.width,
        }
        return pack_release("key", header, self.noise)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "key") -> Key:
        """Key from the bytes of a key file.

        Raises:
            StorageError: damaged or of another kind.
        """
        header, payload = unpack_release("key", data, name)
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
            raise StorageError(f"{name}: its header is invalid ({error})") from None


def refine(
    levels: MultiLevel,
    values: ArrayLike,
    *,
    labels: Sequence[str] = (),
    source: Source | None = None,
) -> tuple[LayeredRelease, list[Key]]:
    """Public release of all clients' values, and one key for each level but the public one.

    Args:
        levels: the mechanism.
        values: whole numbers below ``levels.size``, one a client; at least one.
        labels: what values are called.
        source: the operating system's by default.

    Returns:
        the release, and its keys, largest ε first.
    """
    # The clients' values.
    held = checked_values(values, levels.size)
    if not held.size:
        raise ParameterError("values", 0, "at least one client")
    # Public messages, and the noise that each key removes.
    messages, noise = levels.encode(held, source)
    release = LayeredRelease(levels, messages, tuple(labels))
    # One key for each level but the public one, bound to the release by its digest.
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
    """One uniform element of the group for each client."""
    try:
        codes = unpack_codes(data, clients, levels.message_bits, levels.design.group.order)
    except ParameterError as error:
        raise StorageError(
            f"{name}: its content is not that of {clients} clients ({error})"
        ) from None
    return codes.astype(levels.symbol_type)


def _design_header(design: OneBit | Direct) -> dict[str, Any]:
    # All parameters that determine the design.
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


PUBLIC = "public"
_PUBLIC_MODE, _KEY_MODE = 0o644, 0o600


def key_name(epsilon: float) -> str:
    """Name of the key file of a level: ``key-1`` for ε = 1."""
    return f"key-{epsilon!r}".removesuffix(".0")


def write_release(folder: Path, release: LayeredRelease, keys: Sequence[Key]) -> list[Path]:
    """Write all files and return their paths, the public file first.

    Raises:
        StorageError: one of the files exists, or the folder cannot be written to.
    """
    paths = [folder / PUBLIC, *(folder / key_name(key.epsilon) for key in keys)]
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} exists; a release is never overwritten")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, key in zip(paths[1:], keys, strict=True):
            _write(path, key.data, _KEY_MODE)
            written.append(path)
        partial = folder / f"{PUBLIC}.partial"
        _write(partial, release.data, _PUBLIC_MODE)
        written.append(partial)
        # Unlike a rename, a link fails where the name is taken.
        os.link(partial, paths[0])
        partial.unlink()
    except OSError as error:
        # A key without its public file opens nothing, but it is a secret: leave none behind.
        for path in written:
            path.unlink(missing_ok=True)
        raise StorageError(f"{error.filename or folder}: {error.strerror}") from None
    return paths


def read_release(path: Path) -> LayeredRelease:
    """Release from a public file, or from the folder that holds it."""
    return LayeredRelease.from_bytes(_content(path / PUBLIC if path.is_dir() else path), str(path))


def read_key(path: Path) -> Key:
    """Key from a file."""
    return Key.from_bytes(_content(path), str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a new file completely, or leave nothing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
