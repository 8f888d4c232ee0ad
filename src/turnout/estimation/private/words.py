"""Words as whole numbers, five bits a letter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.values import canonical

_LETTERS = " abcdefghijklmnopqrstuvwxyz*"  # by their numbers; the first stands for none


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
    known = canonical(word.strip().lower())[:letters]
    for letter in known:
        # A blank or a NUL inside a word is a letter like any other.
        code = code << 5 | (_LETTERS.find(letter, 1) % len(_LETTERS))
    return code << 5 * (letters - len(known))


def word_of(code: int, letters: int) -> str:
    """The word that a number stands for; ``*`` where there was no letter from a to z."""
    shifts = range(5 * (letters - 1), -1, -5)
    return "".join(_LETTERS[min(code >> s & 31, 27)] for s in shifts).replace(_LETTERS[0], "")
