"""Randomness that everybody knows: drawn by clients and server alike from one public seed.

Public randomness carries no privacy. What it must do is be the same on both sides and unlike any
client's data; so the seed is published and is chosen before the data are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks

_WORDS = 4  # that one step of Philox's counter gives


@dataclass(frozen=True, slots=True)
class PublicRandomness:
    """Words that are found by (seed, label, client, position), in any order and any blocks.

    Source: Philox 4×64 (Salmon, Moraes, Dror and Shaw 2011), whose stream NumPy keeps stable.

    Attributes:
        seed: at least 0; published.
        label: what the words are for; different labels give unrelated words.
    """

    seed: int
    label: str

    def __post_init__(self) -> None:
        checks.count(0, seed=self.seed)

    def words(self, first: int, clients: int, per_client: int) -> NDArray[np.uint64]:
        """Words of ``clients`` neighbouring clients, shape (clients, per_client)."""
        steps = -(-per_client // _WORDS)
        philox = np.random.Philox(key=self._key(), counter=first * steps)
        raw = philox.random_raw(clients * steps * _WORDS)
        return raw.reshape(clients, steps * _WORDS)[:, :per_client]

    def chosen_words(
        self, clients: NDArray[np.int64], parts: NDArray[np.int64], part_words: int, all_parts: int
    ) -> NDArray[np.uint64]:
        """One part of each named client's words, shape (len(clients), part_words).

        Args:
            clients: numbers of clients.
            parts: which part of the client's words, from 0 to ``all_parts`` − 1, for each.
            part_words: words in a part, a multiple of 4.
            all_parts: parts that each client has.
        """
        steps = part_words // _WORDS
        philox, key = np.random.Philox, self._key()
        found = np.empty((len(clients), part_words), dtype=np.uint64)
        starts = (clients.astype(object) * all_parts + parts) * steps
        for row, start in enumerate(starts):
            found[row] = philox(key=key, counter=start).random_raw(part_words)
        return found

    def below(self, first: int, clients: int, limits: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers below each limit, uniform to 2⁻⁵³, shape (clients, len(limits))."""
        uniform = (self.words(first, clients, len(limits)) >> np.uint64(11)) * 2.0**-53
        return np.minimum((uniform * limits).astype(np.int64), limits - 1)

    def _key(self) -> int:
        text = f"{self.seed}|{self.label}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def normals(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Two standard normal numbers a word, by Box and Muller, shape (…, 2·words).

    Each comes from 32-bit uniforms, so none exceeds 6.7; directions made of them are uniform on
    the sphere to about 1e-7.
    """
    halves = np.ascontiguousarray(words).view(np.uint32).reshape(*words.shape[:-1], -1, 2)
    first = (halves[..., 0].astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    radius = np.sqrt(np.float32(-2.0) * np.log(np.minimum(first, np.float32(1 - 2.0**-24))))
    angle = halves[..., 1].astype(np.float32) * np.float32(2 * np.pi * 2.0**-32)
    result = np.empty((*words.shape[:-1], 2 * words.shape[-1]), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=result[..., 0::2])
    np.multiply(radius, np.sin(angle), out=result[..., 1::2])
    return result


def mixed_words(seeds: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """The first ``count`` words of each seed's own stream, shape (len(seeds), count).

    Source: SplitMix64 (Steele, Lea and Flood 2014), started at the mixed seed, so that neighbouring
    seeds share no words. For many seeds at once that share nothing; it carries no privacy.
    """
    with np.errstate(over="ignore"):
        starts = _mixed(seeds.astype(np.uint64) * _ODD + _ODD)
        return _mixed(starts[:, None] + _ODD * np.arange(1, count + 1, dtype=np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
