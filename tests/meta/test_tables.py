"""docs/table-3-1.md and docs/table-7-1.md equal computed values, which are correct."""

from __future__ import annotations

import importlib
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module")
def tables():
    folder = str(DOCS.parent / "benchmarks" / "figures")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("tables")
    finally:
        sys.path.remove(folder)


def close(given: float, expected: float) -> bool:
    """Whether two three-digit numbers agree up to rounding of the third digit."""
    unit = 10.0 ** (math.floor(math.log10(expected)) - 2) if expected else 0.0
    return abs(given - expected) <= 1.01 * unit


def differs(shown: str, computed: str) -> str | None:
    """First line in which words or numbers of two texts differ."""
    lines = shown.splitlines(), computed.splitlines()
    for one, other in zip(*lines, strict=False):
        numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(x)] for x in (one, other)]
        alike = all(close(*pair) for pair in zip(*numbers, strict=False))
        if NUMBER.sub("", one) != NUMBER.sub("", other) or not alike:
            return one
    return None if len(lines[0]) == len(lines[1]) else "another number of lines"


def test_a_wrong_digit_in_a_documented_table_is_detected():
    table = "| a | 1,230 |\n| b | 5.67 |"
    assert differs(table, table) is None
    assert differs(table.replace("5.67", "5.68"), table) is None  # rounding on another machine
    for wrong in ("1,250", "12,300", "-1,230", "1,23x"):
        assert differs(table.replace("1,230", wrong), table) is not None
    assert differs(table.replace("5.67", "5.69"), table) is not None
    assert differs(table + "\n| c | 1 |", table) == "another number of lines"


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("table-3-1.md", "orders"),
        ("table-3-1.md", "computed"),
        ("table-7-1.md", "mechanisms"),
        ("table-7-1.md", "levels"),
    ],
)
def test_documented_tables_equal_computed_values(tables, page, name):
    found = tables.block(name).search((DOCS / page).read_text())
    assert found is not None
    assert differs(found[2], tables.markdown(tables.BLOCKS[page][name]())) is None


def test_every_table_on_the_table_pages_is_compared_with_computed_values(tables):
    for page, blocks in tables.BLOCKS.items():
        names = re.findall(r"<!-- (.*?) -->", (DOCS / page).read_text())
        assert [name for name in names if name != "end"] == list(blocks)


def entropy(distribution):
    distribution = np.asarray(distribution, dtype=float)
    return float(-(distribution * np.log2(distribution)).sum())


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_published_entropies_equal_those_of_their_distributions(tables, epsilon):
    size, ratio = tables.SIZE, math.exp(epsilon)
    kary = np.full(size, 1 / (size - 1 + ratio))
    kary[0] *= ratio
    assert tables.printed_kary(epsilon) == pytest.approx(entropy(kary), rel=1e-12)
    assert tables.MECHANISMS["RR"][0](epsilon) == pytest.approx(entropy(kary), rel=1e-3)
    assert tables.MECHANISMS["HR"][0](epsilon) <= tables.printed_hadamard(epsilon)
    bit = [ratio / (ratio + 1), 1 / (ratio + 1)]
    assert tables.MECHANISMS["BH"][0](epsilon) == pytest.approx(entropy(bit), rel=1e-12)
    # An item changes two of RAPPOR's bits: with ε for each, ε is 2ε in total.
    half = math.exp(epsilon / 2)
    likely = half / (half + 1)
    assert 2 * math.log(likely / (1 - likely)) == pytest.approx(epsilon)
    bits = size * entropy([likely, 1 - likely])
    assert tables.MECHANISMS["RAPPOR"][0](epsilon) == pytest.approx(bits, rel=1e-12)


def test_the_computed_orders_of_table_3_1_equal_those_by_hand(tables):
    """The three regimes for n = 1000 and ε = 1."""
    rows = tables.orders()[1:]
    assert rows[0][1] == tables.digits(100 * math.log2(10))
    assert rows[1][1] == tables.digits(1000 * math.log2(3))
    assert rows[2][1] == tables.digits(1000 * math.log2(3000))
    assert rows[2][4] == tables.digits(1e6 * math.log2(3e6))
    assert [row[3] for row in rows] == [tables.digits(d * math.log2(1000)) for d in (100, 3e3, 3e6)]
