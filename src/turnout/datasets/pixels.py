"""The pixels of images, from files or from their bytes in a table."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import InputFileError

_GREY = ("1", "L", "I", "I;16", "F")


def pixels(source: Path | bytes, where: str) -> NDArray[np.uint8]:
    """The pixels of an image, shape (height, width) where it is grey, else (height, width, 3).

    Args:
        source: its file, or the contents of one (PNG, JPEG and others that Pillow reads).
        where: the image, as an error names it.

    Raises:
        InputFileError: it is no image, or half of one.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputFileError(f"{where} is no whole image: {' '.join(str(error).split())}") from None
