"""Words as whole numbers, five bits a letter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.estimation.private.columns import entry_blocks

_LETTERS = "\0abcdefghijklmnopqrstuvwxyz*"  # by their numbers; find gives −1, the last, elsewhere


def word_blocks(path: Path, letters: int, column: str | None = None) -> Iterator[NDArray[np.int64]]:
    """Clients' words as whole numbers below 2^(5·letters), a block at a time.

    Args:
        path: .npy of shape (n,), or .csv with a header, or .parquet.
        letters: how many count, at most 12; what is beyond is cut off. Case does not count.
        column: of a file with several.
    """
    for entries in entry_blocks(path, column):
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
