"""How wide the certified brackets on ε are, and how long they take.

One window of check-ins with Gaussian noise, add/remove, both directions from above and below.
Each row is compared with two limits: a relative width of 1e-3 and 0.2 seconds.

    python benchmarks/accounting.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from turnout.accounting import price
from turnout.spec import CheckIn, GaussianNoise, Relation, Scheme

WIDTH_LIMIT, SECONDS_LIMIT = 1e-3, 0.2
# noise multiplier, window, δ
CELLS = [
    (1.0, 10, 1e-6),
    (1.0, 64, 1e-6),
    (0.8, 60, 1e-5),
    (0.6, 100, 1e-5),
    (0.3, 100, 1e-5),
    (1.0, 1_000, 1e-6),
    (2.0, 10_000, 1e-8),
    (1.0, 100_000, 1e-6),
    (0.5, 1_000_000, 1e-6),
    (1.0, 1_000_000, 1e-6),
    (1.0, 1_000_000, 1e-10),
    (5.0, 1_000_000, 1e-8),
]
COLUMNS = ("sigma", "window", "delta", "remove", "add", "width", "of limit", "seconds", "of limit")


def measured(sigma: float, window: int, delta: float) -> dict[str, float]:
    """One cell, priced once from cold caches."""
    scheme = Scheme(GaussianNoise(sigma), CheckIn(window), Relation.ADD_REMOVE)
    started = time.perf_counter()
    guarantee = price(scheme, delta)
    seconds = time.perf_counter() - started
    width = max(bounds.relative_width for bounds in guarantee.directions.values())
    return {
        "noise_multiplier": sigma,
        "window": window,
        "delta": delta,
        "remove": guarantee.directions["remove"].upper,
        "add": guarantee.directions["add"].upper,
        "relative_width": width,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows there")
    out = parser.parse_args().json
    measured(1.1, 10, 1e-5)  # imports and FFT plans are not what is measured
    rows = [measured(*cell) for cell in CELLS]
    print("".join(f"{name:>11}" for name in COLUMNS))
    for row in rows:
        print(
            f"{row['noise_multiplier']:11g}{row['window']:11d}{row['delta']:11g}"
            f"{row['remove']:11.5g}{row['add']:11.5g}"
            f"{row['relative_width']:11.1e}{row['relative_width'] / WIDTH_LIMIT:11.2f}"
            f"{row['seconds']:11.3f}{row['seconds'] / SECONDS_LIMIT:11.2f}"
        )
    if out:
        out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
