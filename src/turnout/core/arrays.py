"""Array types for the annotations of all packages.

`FloatArray` holds float64, `IntArray` int64 (indices too), `BoolArray` truth values, `ComplexArray`
complex128, `ExtendedArray` extended precision (long double). At run time all are `numpy.ndarray`,
because the import of `numpy.typing` takes longer than many commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool]
    ComplexArray = NDArray[np.complex128]
    ExtendedArray = NDArray[np.longdouble]
else:
    FloatArray = IntArray = BoolArray = ComplexArray = ExtendedArray = np.ndarray
