"""Tables 3.1 and 7.1 of Girgis 2023 with numbers, for docs/table-3-1.md and docs/table-7-1.md.

The script rewrites the blocks between ``<!-- name -->`` and ``<!-- end -->`` on each page, and a
test compares the pages with the values computed here.

    python benchmarks/figures/tables.py
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from refinement import SIZE, hadamard_bits, recoverable_bits, recovered_error, unary

from turnout.accounting import calibrate_noise
from turnout.estimation.private.shuffled_means import predicted_error, shuffled_l2
from turnout.randomizers import HadamardRandomizer, KaryRandomizedResponse, OneBitHadamard
from turnout.randomizers.vectors import PrivUnit
from turnout.refinement import enough_randomness
from turnout.schemes import EveryStep, GaussianNoise, Relation, Scheme

DOCS = Path(__file__).parents[2] / "docs"
CLIENTS, EPSILON, DELTA = 1000, 1.0, 1e-5
DIMENSIONS = (100, 3000, 3_000_000)
"""One dimension for each regime: below nε², between nε² and n²ε², and above."""

Rows = Sequence[Sequence[str]]


def orders() -> Rows:
    """Bits per client in Table 3.1: its orders without constants."""
    budget = CLIENTS * EPSILON**2
    rows = [["d", "this scheme", "Cheu et al.", "Chang et al.", "SecAgg"]]
    for d in DIMENSIONS:
        ratio = math.log2(max(2.0, budget / d, d / budget))
        bits = (
            min(d, budget) * ratio,
            d * math.sqrt(CLIENTS),
            d * math.log2(CLIENTS),
            d * math.log2(CLIENTS) if d < CLIENTS * budget else CLIENTS * budget * math.log2(d),
        )
        rows.append([f"{d:,}", *(digits(b) for b in bits)])
    return rows


def computed() -> Rows:
    """Bits and errors of implemented schemes at (1, 1e-5), relative to the Gaussian mechanism."""
    noise = calibrate_noise(
        lambda sigma: Scheme(GaussianNoise(sigma), EveryStep(1), Relation.ADD_REMOVE),
        EPSILON,
        DELTA,
    )
    rows = [["d", "scheme", "messages", "bits a client", "error over the Gaussian's"]]
    for d in DIMENSIONS:
        # Replacing a unit vector moves the sum by up to 2.
        gaussian = d * (2 * noise / CLIENTS) ** 2
        samples = min(d, CLIENTS)
        for name, redundancy in (("thesis, corrected", 1.0), ("turnout, Kashin", 4.0)):
            found = shuffled_l2(d, CLIENTS, EPSILON, DELTA, samples=samples, redundancy=redundancy)
            sent = f"{found.messages:,}", f"{found.randomizer.message_bits:,}"
            # As the plans predict: including the error of clipping, which does not fall with n.
            error = predicted_error(found.randomizer, CLIENTS)
            rows.append([f"{d:,}", name, *sent, digits(error / gaussian)])
        if d < 10**6:
            private = PrivUnit(d, EPSILON)
            error = digits(private.worst_squared_error / CLIENTS / gaussian)
            rows.append(
                [f"{d:,}", "no shuffler, PrivUnit", "1", f"{private.message_bits:,}", error]
            )
    return rows


def mechanisms() -> Rows:
    """Table 7.1 at ε = 1: printed formulas, and randomness and errors of the mechanisms."""
    printed = {
        "RAPPOR": ("k·H₂(e^ε/(e^ε + 1))", SIZE * enough_randomness(1.0)),
        "RR": ("log₂(k − 1 + e^ε) − εe^ε·log₂e/(k − 1 + e^ε)", printed_kary(1.0)),
        "HR": ("log₂(2k(3e^ε − 1)/e^ε) − εe^ε·log₂e/(3e^ε − 1), at most", printed_hadamard(1.0)),
        "BH": ("H₂(e^ε/(e^ε + 1))", enough_randomness(1.0)),
    }
    rows = [["", "printed", "its bits", "bits", "n·E‖p̂ − p‖²"]]
    for name, (bits, error) in MECHANISMS.items():
        formula, value = printed.get(name, ("", math.nan))
        shown = "" if math.isnan(value) else digits(value)
        rows.append([name, formula, shown, digits(bits(1.0)), digits(error(1.0))])
    return rows


def levels() -> Rows:
    """Bits and n·E‖p̂ − p‖² of the mechanisms of Table 7.1 at other ε."""
    grid = (0.25, 0.5, 2.0, 4.0)
    rows = [["", *(f"ε = {e:g}" for e in grid)]]
    for name, (bits, error) in MECHANISMS.items():
        rows.append([name, *(f"{digits(bits(e))}; {digits(error(e))}" for e in grid)])
    return rows


def printed_kary(epsilon: float) -> float:
    """Entropy of k-ary response in bits, as printed in Table 7.1."""
    total = SIZE - 1 + math.exp(epsilon)
    return math.log2(total) - epsilon * math.exp(epsilon) / total * math.log2(math.e)


def printed_hadamard(epsilon: float) -> float:
    """Upper bound on the entropy of Hadamard response in bits, as printed in Table 7.1."""
    three = 3 * math.exp(epsilon) - 1
    spent = epsilon * math.exp(epsilon) / three * math.log2(math.e)
    return math.log2(2 * SIZE * three / math.exp(epsilon)) - spent


Curve = Callable[[float], float]
MECHANISMS: dict[str, tuple[Curve, Curve]] = {
    "RAPPOR": (lambda e: SIZE * enough_randomness(e / 2), lambda e: unary(e).mse_bound(1)),
    "RR": (
        lambda e: recoverable_bits(e, "k-ary"),
        lambda e: KaryRandomizedResponse(e, SIZE).mse_bound(1),
    ),
    "HR": (hadamard_bits, lambda e: HadamardRandomizer(e, SIZE).mse_bound(1)),
    "BH": (enough_randomness, lambda e: OneBitHadamard(e, SIZE).mse_bound(1)),
    "HR, recoverable (ours)": (
        lambda e: recoverable_bits(e, "hadamard"),
        lambda e: recovered_error(e, "hadamard"),
    ),
    "projective, recoverable (ours)": (
        lambda e: recoverable_bits(e, "projective"),
        lambda e: recovered_error(e, "projective"),
    ),
    "least recoverable key": (
        lambda e: recoverable_bits(e, "minimal"),
        lambda e: recovered_error(e, "minimal"),
    ),
}
BLOCKS: dict[str, dict[str, Callable[[], Rows]]] = {
    "table-3-1.md": {"orders": orders, "computed": computed},
    "table-7-1.md": {"mechanisms": mechanisms, "levels": levels},
}


def digits(value: float) -> str:
    """Number with three digits, and commas between thousands."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def markdown(rows: Rows) -> str:
    """Rows as a Markdown table, whose first row is the header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def block(name: str) -> re.Pattern[str]:
    """Regular expression of a block in its page; the second group is its text."""
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def main() -> None:
    for page, blocks in BLOCKS.items():
        text = (DOCS / page).read_text()
        for name, rows in blocks.items():
            new = markdown(rows())
            print(f"{page}, {name}\n{new}\n")
            text = block(name).sub(lambda found, new=new: found[1] + new + found[3], text)
        (DOCS / page).write_text(text)


if __name__ == "__main__":
    main()
