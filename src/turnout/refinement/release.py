"""Public release and its keys: as objects, as bytes, and as files in a folder.

`refine` makes a `LayeredRelease` and its `Key` objects. `write_release` writes a folder with one
public file and one key file for each analyst; `read_release` and `read_key` read these files.
`pack_release` and `unpack_release` define the file format.

A key contains the SHA-256 digest of its release's public file. So `LayeredRelease.at` refuses a key
of another release, and any key of an altered release. The checksum in each file detects accidental
damage; it is not a signature. The header of a public file does not depend on the keys.

`write_release` overwrites no file. The function creates key files with permissions for their owner
alone, and writes the public file last, in one operation. A folder without a public file contains no
release.

**Format.** A line ``turnout refinement KIND 1`` · length of the header (8 bytes, little-endian) ·
header (JSON, keys sorted) · payload · SHA-256 digest of all bytes before it. Each content has
exactly one encoding, and the change of any byte is detected.
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
    """Bytes of a file with a header and a payload, in the format above.

    Args:
        kind: "release" or "key".
        header: values that JSON can represent.
        payload: packed messages or packed noise.
    """
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    body = _first_line(kind, VERSION) + len(text).to_bytes(8, "little") + text + payload
    return body + hashlib.sha256(body).digest()


def unpack_release(kind: str, data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Header and payload of a file.

    Args:
        kind: expected kind, "release" or "key".
        data: bytes of the file.
        name: name of the file for errors.

    Raises:
        StorageError: the file is of another kind, in another version of the format, or damaged.
    """
    # The first line states the kind and the version of the format.
    line = data[: data.find(b"\n") + 1] if b"\n" in data[:64] else b""
    if line != _first_line(kind, VERSION):
        raise StorageError(f"{name}: {_complaint(kind, line)}")
    # The last bytes are the checksum.
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    start = len(line) + 8
    if len(body) < start or hashlib.sha256(body).digest() != digest:
        raise StorageError(f"{name}: the file is damaged or cut short: its checksum is wrong")
    # The header has the stated length; the rest is the payload.
    end = start + int.from_bytes(body[len(line) : start], "little")
    try:
        header = json.loads(body[start:end])
    except ValueError:
        raise StorageError(f"{name}: the header of the file cannot be read") from None
    if end > len(body) or not isinstance(header, dict):
        raise StorageError(f"{name}: the header of the file cannot be read")
    return header, body[end:]


def _first_line(kind: str, version: int) -> bytes:
    return f"turnout refinement {kind} {version}\n".encode()


def _complaint(kind: str, line: bytes) -> str:
    words = line.decode(errors="replace").split()
    if words[:2] != ["turnout", "refinement"] or len(words) != 4:
        return f"the file is damaged, or not a {kind} of turnout refine"
    if words[2] != kind:
        return f"the file is a {words[2]}: expected a {kind}"
    return f"the file has format {words[3]}: this version of turnout reads format {VERSION}"


class KeyMismatchError(StorageError):
    """Error: a key belongs to another release, or to none of the release's levels."""


@dataclass(frozen=True, eq=False)
class LayeredRelease:
    """Public part of a release: the mechanism and one message of each client.

    Attributes:
        levels: the mechanism; all its parameters are public.
        messages: the clients' public messages, shape (n,).
        labels: names of the values, shape (size,); empty if values are only numbers.

    Raises:
        ParameterError: two equal labels, or a wrong number of labels.
    """

    levels: MultiLevel
    messages: NDArray[np.unsignedinteger]
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels and not len(self.labels) == len(set(self.labels)) == self.levels.size:
            raise ParameterError(
                "labels", len(self.labels), f"{self.levels.size} different labels, one per value"
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
        """SHA-256 digest of `data`, in hexadecimal; each key of the release contains it."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "release") -> LayeredRelease:
        """Release from the bytes of a public file.

        Raises:
            StorageError: the file is damaged or of another kind, or this version of turnout
                computes other weights for the levels in the file.
        """
        header, payload = unpack_release("release", data, name)
        # Build the mechanism from the header; this computes the weights again.
        try:
            levels = MultiLevel(
                _design_from(header["design"]),
                tuple(_read(epsilon) for epsilon in header["epsilons"]),
                header["bits"],
            )
            weights = [[step.heavy, step.light] for step in levels.cascade.steps]
            clients, labels = int(header["clients"]), tuple(map(str, header["labels"]))
            # Refuse a file whose messages were drawn with other weights: estimates would be wrong.
            if weights != header["weights"]:
                raise ParameterError("weights", header["weights"], f"{weights} for these epsilons")
            return cls(levels, _symbols(levels, payload, clients, name), labels)
        # Report an invalid header as an error of the file.
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, TurnoutError) as error:
            raise StorageError(f"{name}: the header of the file is invalid ({error})") from None

    def at(self, key: Key | None = None) -> LevelEstimate:
        """Estimated frequencies at the level of ``key``, or at the public level without a key.

        Raises:
            KeyMismatchError: the key belongs to another release, or to none of the levels.
            StorageError: the noise in the key is damaged.
        """
        last = len(self.levels.epsilons) - 1
        if key is None:
            return estimate(self.levels, self.levels.totals(self.messages), last)
        seen = self.levels.at_level(self.messages, self._noise(key))
        return estimate(self.levels, self.levels.totals(seen), key.level)

    def recovered(self, key: Key) -> NDArray[np.int64]:
        """Value of every client, shape (n,), recovered with the key of the level ε = inf.

        Raises:
            KeyMismatchError: the key belongs to another release, or to none of the levels.
            ParameterError: the key belongs to a level of finite ε.
            StorageError: the noise in the key is damaged.
        """
        noise = self._noise(key)
        if not math.isinf(self.levels.epsilons[key.level]):
            raise ParameterError("key", key.epsilon, "the key of the level epsilon = inf")
        return self.levels.at_level(self.messages, noise).astype(np.int64)

    def _noise(self, key: Key) -> NDArray[np.unsignedinteger]:
        """Noise that the key removes, shape (n,), after a check that the key fits this release."""
        if key.release != self.digest:
            raise KeyMismatchError(
                f"the key for epsilon = {key.epsilon:g} belongs to release {key.release[:12]}, "
                f"not to this one, {self.digest[:12]}"
            )
        # Check that the key's fields agree with one of the levels.
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
        release: `LayeredRelease.digest` of the release to which the key belongs.
        level: index of the level in the release's ``levels.epsilons``.
        epsilon: ε of the level.
        clients: number of clients n.
        width: number of bits of the noise for one client.
        noise: noise of each client that the key removes, packed to ``width`` bits per client.
    """

    release: str
    level: int
    epsilon: float
    clients: int
    width: int
    noise: bytes

    def __repr__(self) -> str:
        """Text that does not contain the noise, which is secret."""
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
            StorageError: the file is damaged or of another kind.
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
            raise StorageError(f"{name}: the header of the file is invalid ({error})") from None


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
        values: the clients' values, whole numbers from 0 to ``levels.size`` − 1, shape (n,); n is
            at least 1.
        labels: names of the values, shape (size,); empty if values are only numbers.
        source: source of the noise; None: the operating system's.

    Returns:
        The release, and its keys in the order of decreasing ε of their levels.

    Raises:
        ParameterError: no value, a value outside the range, or invalid labels.
    """
    # Check the clients' values.
    held = checked_values(values, levels.size)
    if not held.size:
        raise ParameterError("values", "0 values", "at least one client")
    # Draw the public messages, and the noise that each key removes.
    messages, noise = levels.encode(held, source)
    release = LayeredRelease(levels, messages, tuple(labels))
    # Make one key for each level but the public one; it contains the digest of the release.
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
    """Elements of the group, one for each client, unpacked from ``data``; shape (n,).

    Raises:
        StorageError: ``data`` does not contain one element of the group for each client.
    """
    try:
        codes = unpack_codes(data, clients, levels.message_bits, levels.design.group.order)
    except ParameterError as error:
        raise StorageError(
            f"{name}: the payload does not fit {clients} clients ({error})"
        ) from None
    return codes.astype(levels.symbol_type)


def _design_header(design: OneBit | Direct) -> dict[str, Any]:
    """All parameters that determine the design, as JSON-ready values."""
    # Each kind of design has its own parameters.
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
    """Name of the key file of a level, for example ``key-1`` for ε = 1."""
    return f"key-{epsilon!r}".removesuffix(".0")


def write_release(folder: Path, release: LayeredRelease, keys: Sequence[Key]) -> list[Path]:
    """Write all files of a release and return their paths, the public file first.

    After an error, none of the files that this call wrote remains.

    Raises:
        StorageError: one of the files exists, or the folder cannot be written to.
    """
    # Refuse to overwrite a file.
    paths = [folder / PUBLIC, *(folder / key_name(key.epsilon) for key in keys)]
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} exists; a release is never overwritten")
    # Write the keys first, then the public file, which makes the release complete.
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, key in zip(paths[1:], keys, strict=True):
            _write(path, key.data, _KEY_MODE)
            written.append(path)
        partial = folder / f"{PUBLIC}.partial"
        _write(partial, release.data, _PUBLIC_MODE)
        written.append(partial)
        # Unlike renaming, linking fails if a file of that name exists.
        os.link(partial, paths[0])
        partial.unlink()
    except OSError as error:
        # Delete what was written: keys without a public file are useless, but secret.
        for path in written:
            path.unlink(missing_ok=True)
        raise StorageError(f"{error.filename or folder}: {error.strerror}") from None
    return paths


def read_release(path: Path) -> LayeredRelease:
    """Release from a public file, or from the folder that contains one.

    Raises:
        StorageError: the file is missing, damaged or of another kind.
    """
    return LayeredRelease.from_bytes(_content(path / PUBLIC if path.is_dir() else path), str(path))


def read_key(path: Path) -> Key:
    """Key from a key file.

    Raises:
        StorageError: the file is missing, damaged or of another kind.
    """
    return Key.from_bytes(_content(path), str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a new file completely; after an error, delete it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
