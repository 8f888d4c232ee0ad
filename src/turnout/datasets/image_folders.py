"""Folders of images: one folder a client, in it one a class, in it the images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.core.optional import require
from turnout.datasets.pixels import pixels
from turnout.datasets.tables import BATCH_NUMBERS, Batch, Column, Kind, text_column

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_LEVELS = {2: ("class",), 3: ("client", "class")}


class ImageFolderTable:
    """A row for each image: ``image``, bytes of shape (height, width) or (height, width, 3); its
    ``class``; and its ``client`` where classes are folders of clients.

    Raises:
        ParameterError: images at different depths, or a folder without any.
    """

    typed = True

    def __init__(self, folder: Path) -> None:
        require("data", what="a folder of images")
        self._folder = folder
        found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        self._files = sorted(path.relative_to(folder) for path in found)
        depths = {len(path.parts) for path in self._files}
        if len(depths) != 1 or not depths <= set(_LEVELS):
            expected = "images in FOLDER/CLIENT/CLASS/, or all in FOLDER/CLASS/"
            raise ParameterError("data", str(folder), expected)
        self._levels = _LEVELS[depths.pop()]
        used = {path.parts[0] for path in self._files}
        for one in sorted(folder.iterdir()):
            if one.is_dir() and one.name not in used and not one.name.startswith("."):
                level = self._levels[0]
                raise ParameterError(
                    level, one.name, f"at least one image in the folder of a {level}"
                )

    @property
    def names(self) -> Sequence[str]:
        """The image, its class, and its client if it has one."""
        return [*self._levels, "image"]

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[Batch]:
        """All images in the order of their paths.

        Raises:
            InputFileError: a file that is no image, or half of one.
            ParameterError: images of different shapes.
        """
        shape: tuple[int, ...] | None = None
        start, step = 0, 2**8
        while start < len(self._files):
            part = self._files[start : start + step]
            columns = {
                level: text_column([path.parts[place] for path in part])
                for place, level in enumerate(self._levels)
                if level in kinds
            }
            if "image" in kinds:
                images = [pixels(self._folder / path, str(self._folder / path)) for path in part]
                shape = images[0].shape if shape is None else shape
                _refuse_shapes(part, images, shape)
                columns["image"] = Column(np.stack(images))
                step = max(1, BATCH_NUMBERS // max(1, images[0].size))
            yield Batch(np.arange(start, start + len(part)), columns)
            start += len(part)


def _refuse_shapes(
    files: Sequence[Path], images: Sequence[NDArray[np.uint8]], shape: tuple[int, ...]
) -> None:
    for file, image in zip(files, images, strict=True):
        if image.shape != shape:
            expected = f"images of one shape, {shape} before it, not {image.shape}"
            raise ParameterError("inputs", str(file), expected)
