"""Sample records of 500 patients in records.csv; write your own loader in place of this file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

PATIENTS, VISITS = 500, 3


def main() -> None:
    """Write records.csv beside this file."""
    draws = np.random.default_rng(1)
    with Path(__file__).with_name("records.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "age", "pulse", "ill"])
        for patient in np.repeat(np.arange(PATIENTS), VISITS):
            age, pulse = draws.integers(20, 90), draws.integers(50, 150)
            ill = age + pulse + draws.normal(0, 15) > 155
            rows.writerow([f"p{patient:03}", age, pulse, int(ill)])


if __name__ == "__main__":
    main()
