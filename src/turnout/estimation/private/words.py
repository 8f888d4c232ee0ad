"""Words as whole numbers, five bits a letter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LETTERS = "\0abcdefghijklmnopqrstuvwxyz*"  # by their numbers; find gives −1, the last, elsewhere


def word_blocks(
    blocks: Iterable[NDArray[Any] | list[str]], letters: int
) -> Iterator[NDArray[np.int64]]:
    """Clients' words as whole numbers below 2^(5·letters), a block at a time.

    Args:
        blocks: of words.
        letters: how many count, at most 12; what is beyond is cut off. Case does not count.
    """
    for entries in blocks:
        yield np.array([word_code(str(entry), letters) for entry in entries], dtype=np.int64)


def word_code(word: str, letters: int) -> int:
    """A word as five bits a letter: 1 to 26 for a to z, 27 for anything else, 0 for none.

    >>> word_of(word_code("Ana-Maria", 5), 5)
    'ana*m'
    """
    code = 0
    for letter in word.strip().lower()[:letters].ljust(letters, _LETTERS[0]):
        code = code << 5 | (_LETTERS.find(letter) % len(_LETTERS))
    return code


def word_of(code: int, letters: int) -> str:
    """The word that a number stands for; ``*`` where there was no letter from a to z."""
    shifts = range(5 * (letters - 1), -1, -5)
    return "".join(_LETTERS[min(code >> s & 31, 27)] for s in shifts).replace(_LETTERS[0], "")
