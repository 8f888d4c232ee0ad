"""Tabular data: train a model with ε = 3 on a table of patients, and predict with it.

    python examples/tabular/run.py [FOLDER]

The script writes scikit-learn's bundled breast cancer data as patients.csv, two rows per patient,
trains the plan next to this file and loads the model again.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import turnout as tn

PLAN = Path(__file__).with_name("plan.toml")


def write_table(path: Path) -> None:
    """Write the table, with a patient for every two rows."""
    found = load_breast_cancer()
    kinds = np.where(found.target == 0, "malignant", "benign")
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", *found.feature_names, "malignant"])
        for i, (values, kind) in enumerate(zip(found.data, kinds, strict=True)):
            rows.writerow([f"p{i // 2:03}", *values, kind])


def main(folder: Path) -> tn.TrainedModel:
    """Train in a folder, and return the saved model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "patients.csv")
    shutil.copy(PLAN, folder / "plan.toml")
    run = tn.train(folder / "plan.toml", out=folder / "run")
    epsilon = run.guarantee.epsilon.upper
    print(f"test accuracy {run.accuracy:.1%}, AUC {run.metrics['auc']:.3f} at ε ≤ {epsilon:.4g}")
    model = tn.load(folder / "run")
    patient = [[25, 30, 170, 2000, 0.15, 0.6, 0.6, 0.25, 0.4]]
    scaled = np.array(patient) / [40, 50, 250, 4000, 0.25, 1, 1, 0.3, 0.6]
    print("a new patient:", ("benign", "malignant")[model.predict(scaled.astype(np.float32))[0]])
    return model


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tabular"))
