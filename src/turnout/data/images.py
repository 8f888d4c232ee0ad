"""Data sets of images: UCI digits, MNIST, Fashion-MNIST, and folders of image files.

`digits`, `mnist` and `fashion_mnist` return labelled images. `ImageFolderTable` reads a folder for
each class, optionally inside a folder for each client. `pixels` decodes an image file.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError, ParameterError, StorageError
from turnout.core.optional import require
from turnout.data.files import DataFile, contents
from turnout.data.records import ClientData, Records
from turnout.data.tables import BATCH_NUMBERS, Column, Kind, TableBatch, text_column

_GREY = ("1", "L", "I", "I;16", "F")


def pixels(source: Path | bytes, where: str) -> NDArray[np.uint8]:
    """Pixels of an image, shape (height, width) if it is grey, else (height, width, 3).

    Args:
        source: path or contents of an image file (PNG, JPEG or another format of Pillow).
        where: name of the image in errors.

    Raises:
        InputFileError: the source is not an image, or is truncated.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputFileError(
            f"{where} is not a complete image: {' '.join(str(error).split())}"
        ) from None


_MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
_FASHION_MIRRORS = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_HASHES = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION_HASHES = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_DIGITS_TEST_EVERY = 5
_DIGITS_BRIGHTEST = 16


def digits() -> ClientData:
    """UCI optical digits: 1,437 training and 360 test images of 8×8 pixels.

    Source: E. Alpaydin, C. Kaynak, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0; the split was
        made for this package (see digits.md in this folder).
    """
    place = resources.files("turnout.data").joinpath("digits.npz")
    with resources.as_file(place) as path, np.load(path) as stored:
        images, labels = stored["images"], stored["labels"]
    test = np.zeros(len(labels), dtype=np.bool_)
    test[np.argsort(labels, kind="stable")[::_DIGITS_TEST_EVERY]] = True
    inputs = images.astype(np.float32) / np.float32(_DIGITS_BRIGHTEST)
    classes = labels.astype(np.int64)
    return ClientData(
        "digits", Records(inputs[~test], classes[~test]), Records(inputs[test], classes[test])
    )


def mnist() -> ClientData:
    """MNIST data set: 60,000 training and 10,000 test images of 28×28 pixels.

    Source: Y. LeCun, C. Cortes, C. J. C. Burges.
    """
    return _idx_data("mnist", _MNIST_HASHES, _MNIST_MIRRORS)


def fashion_mnist() -> ClientData:
    """Fashion-MNIST data set: 60,000 training and 10,000 test images of 28×28 pixels.

    Source: H. Xiao, K. Rasul, R. Vollgraf, arXiv:1708.07747, MIT.
    """
    return _idx_data("fashion-mnist", _FASHION_HASHES, _FASHION_MIRRORS)


LOADERS: dict[str, Callable[[], ClientData]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
}
"""Functions that load the image data sets, by the name of the data set in plans."""


def load_images(name: str) -> ClientData:
    """Image data set with the given name.

    Raises:
        ParameterError: no data set has this name.
    """
    if name not in LOADERS:
        raise ParameterError("data.name", name, f"one of {', '.join(map(repr, LOADERS))}")
    return LOADERS[name]()


def parse_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Array of unsigned bytes parsed from the contents of an IDX file.

    Source: http://yann.lecun.com/exdb/mnist (file format).

    Raises:
        StorageError: the type is not unsigned byte, or the length does not fit the stated shape.
    """
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise StorageError(f"{name} is not an IDX file of unsigned bytes")
    axes = data[3]
    start = 4 + 4 * axes
    if axes == 0 or len(data) < start:
        raise StorageError(f"{name} is not an IDX file: its header is cut off")
    shape = struct.unpack(f">{axes}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise StorageError(
            f"{name} holds {len(data) - start} bytes, but its header states the shape {shape}"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _idx_data(name: str, hashes: tuple[str, ...], mirrors: tuple[str, ...]) -> ClientData:
    """Data set read from the four IDX files of MNIST or Fashion-MNIST."""
    arrays = []
    for part, sha256 in zip(_PARTS, hashes, strict=True):
        addresses = tuple(f"{base}{part}.gz" for base in mirrors)
        arrays.append(parse_idx(contents(DataFile(f"{name}/{part}.gz", sha256, addresses)), part))
    images, labels, test_images, test_labels = arrays
    train = Records(images, labels.astype(np.int64))
    return ClientData(name, train, Records(test_images, test_labels.astype(np.int64)))


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
_LEVELS = {2: ("class",), 3: ("client", "class")}


class ImageFolderTable:
    """Table of an image folder, with one row for each image and the columns image, class, client.

    ``image`` has bytes of shape (height, width) or (height, width, 3). ``class`` has the name of
    the folder. ``client`` exists only if the folders of classes lie in folders of clients.

    Raises:
        ParameterError: images lie at different folder depths, or a folder has no images.
    """

    typed = True

    def __init__(self, folder: Path) -> None:
        require("data", what="a folder of images")
        self._folder = folder
        # All images must lie at the same depth: with clients' folders or without.
        found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        self._files = sorted(path.relative_to(folder) for path in found)
        depths = {len(path.parts) for path in self._files}
        if len(depths) != 1 or not depths <= set(_LEVELS):
            expected = "images in FOLDER/CLIENT/CLASS/, or all in FOLDER/CLASS/"
            raise ParameterError("data", str(folder), expected)
        self._levels = _LEVELS[depths.pop()]
        # A class or client without images is an error, since it would be missing silently.
        used = {path.parts[0] for path in self._files}
        for one in sorted(folder.iterdir()):
            if one.is_dir() and one.name not in used and not one.name.startswith("."):
                level = self._levels[0]
                raise ParameterError(
                    level, one.name, f"at least one image in the folder of a {level}"
                )

    @property
    def names(self) -> Sequence[str]:
        """Column names: image and class, and client if the outer folders name clients."""
        return [*self._levels, "image"]

    def batches(self, kinds: Mapping[str, Kind]) -> Iterator[TableBatch]:
        """Batches of all images, in the order of their paths.

        Raises:
            InputFileError: a file is not an image, or is truncated.
            ParameterError: two images have different shapes.
        """
        # The first batch is small, since the size of the images is not known yet.
        shape: tuple[int, ...] | None = None
        start, step = 0, 2**8
        while start < len(self._files):
            part = self._files[start : start + step]
            # Columns of class and client: the names of the folders.
            columns = {
                level: text_column([path.parts[place] for path in part])
                for place, level in enumerate(self._levels)
                if level in kinds
            }
            # Column of pixels; the size of the images limits the next batch.
            if "image" in kinds:
                images = [pixels(self._folder / path, str(self._folder / path)) for path in part]
                shape = images[0].shape if shape is None else shape
                _refuse_shapes(part, images, shape)
                columns["image"] = Column(np.stack(images))
                step = max(1, BATCH_NUMBERS // max(1, images[0].size))
            yield TableBatch(np.arange(start, start + len(part)), columns)
            start += len(part)


def _refuse_shapes(
    files: Sequence[Path], images: Sequence[NDArray[np.uint8]], shape: tuple[int, ...]
) -> None:
    for file, image in zip(files, images, strict=True):
        if image.shape != shape:
            expected = f"images of one shape: {shape}, not {image.shape}"
            raise ParameterError("inputs", str(file), expected)
