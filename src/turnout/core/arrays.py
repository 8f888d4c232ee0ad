"""Types of arrays, as annotations of every package name them.

`FloatArray` holds float64, `IntArray` int64. At run time both are `numpy.ndarray`: importing
`numpy.typing` takes longer than many a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int64]
else:
    FloatArray = IntArray = np.ndarray
