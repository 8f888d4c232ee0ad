"""Images from a folder with one folder per client and class: train, save and predict.

    python examples/image_folder/run.py [FOLDER]

The script first writes scikit-learn's bundled digits as PNG files, six images per client.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import turnout as tn

PLAN = Path(__file__).with_name("plan.toml")
HELD = 6


def write_images(folder: Path) -> None:
    """Write grey images of 8 by 8 pixels as FOLDER/CLIENT/CLASS/*.png."""
    found = load_digits()
    levels = np.round(found.images * (255 / 16)).astype(np.uint8)
    for i, (image, digit) in enumerate(zip(levels, found.target, strict=True)):
        place = folder / f"writer-{i // HELD:03}" / str(digit)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i}.png")


def main(folder: Path) -> tn.TrainedModel:
    """Train in a folder, and return the saved model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_images(folder / "images")
    shutil.copy(PLAN, folder / "plan.toml")
    run = tn.train(folder / "plan.toml", out=folder / "run")
    print(f"test accuracy {run.accuracy:.1%} at ε ≤ {run.guarantee.epsilon.upper:.4g}")
    model = tn.load(folder / "run")
    file = next((folder / "images").rglob("*.png"))
    image = np.asarray(Image.open(file))
    print(f"{file.relative_to(folder)}: predicted {model.predict(image[None])[0]}")
    return model


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/image_folder"))
