"""The array types of the core, named for the reader: shapes are given in each docstring."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
