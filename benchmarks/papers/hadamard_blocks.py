"""Hadamard response with the number of blocks stated in its paper."""

from __future__ import annotations

from fractions import Fraction

from turnout.randomizers import HadamardRandomizer
from turnout.randomizers.interface import exponential_below


def printed_response(epsilon: float, items: int) -> HadamardRandomizer:
    """Hadamard response with B = 2^(⌈log₂ min(e^ε, 2k)⌉ − 1) blocks.

    Source: Acharya, Sun, Zhang, AISTATS 2019, Section 5; thesis, after (7.49).
    """
    bound = min(exponential_below(epsilon), Fraction(2 * items))
    exponent = 0
    while 2**exponent < bound:
        exponent += 1
    return HadamardRandomizer(epsilon, items, blocks=1 << max(exponent - 1, 0))
