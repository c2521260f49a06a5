"""A node's private rows, read in blocks: nothing here needs all of them in memory at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.errors import DataError

BLOCK_ROWS = 16_384
#: Larger numbers cannot be squared and summed.
_LARGEST = 1e100


class RowSource(Protocol):
    """Rows that can be read again and again, in the same order, a block at a time."""

    @property
    def count(self) -> int:
        """Number of rows."""

    @property
    def columns(self) -> int:
        """Number of predictors."""

    def blocks(self) -> Iterator[tuple[Matrix, Vector]]:
        """Pairs (X, y) of float64 arrays, in order."""


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Rows of an array, or of anything sliced like one: a `numpy.memmap` is read block by block."""

    X: Any
    y: Any

    @classmethod
    def checked(cls, X: ArrayLike, y: ArrayLike, name: str) -> "ArrayRows":
        """Refuse what cannot be fitted, naming the node, the row and the column."""
        X, y = _as_array(X, f"{name}: X"), _as_array(y, f"{name}: y")
        if X.ndim != 2 or y.ndim != 1:
            raise DataError(
                f"{name}: X must be a table (rows x columns) and y a vector, "
                f"got {X.ndim} and {y.ndim} dimensions"
            )
        if len(X) != len(y):
            raise DataError(f"{name}: X has {len(X)} rows and y has {len(y)}: they must be as many")
        if len(X) == 0:
            raise DataError(f"{name} has no rows: leave it out of the network or give it data")
        if X.shape[1] == 0:
            raise DataError(f"{name}: X has no columns: give at least one predictor")
        for what, array in (("X", X), ("y", y)):
            if array.dtype.kind not in "fiub":
                raise DataError(f"{name}: {what} holds {array.dtype} values: convert them to numbers first")
        rows = cls(X, y)
        rows._require_finite(name)
        return rows

    def _require_finite(self, name: str) -> None:
        start = 0
        for X, y in self.blocks():
            # One sum tells whether anything is off; only then look for the place.
            with np.errstate(over="ignore", invalid="ignore"):
                suspicious = not np.isfinite(X.sum() + y.sum())
            if suspicious:
                bad_y = np.flatnonzero(~np.isfinite(y))
                if len(bad_y):
                    i = int(bad_y[0])
                    raise DataError(
                        f"{name}: the response in row {start + i} is {y[i]}: drop the row or fill the value"
                    )
                bad = np.argwhere(~np.isfinite(X))
                if len(bad):
                    i, k = map(int, bad[0])
                    raise DataError(
                        f"{name}: row {start + i}, column {k} is {X[i, k]}: drop the row or fill the value"
                    )
            if max(X.max(), -X.min(), y.max(), -y.min()) > _LARGEST:
                raise DataError(
                    f"{name}: a value in rows {start} to {start + len(y) - 1} exceeds {_LARGEST:g}, whose "
                    "square overflows: change the column's or the response's unit"
                )
            start += len(y)

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def columns(self) -> int:
        """Number of predictors."""
        return int(self.X.shape[1])

    def blocks(self) -> Iterator[tuple[Matrix, Vector]]:
        """Slices of `BLOCK_ROWS` rows as float64."""
        for start in range(0, self.count, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            yield np.asarray(self.X[part], dtype=np.float64), np.asarray(self.y[part], dtype=np.float64)


def _as_array(values: ArrayLike, what: str) -> NDArray[Any]:
    """An array as it is, so that a memory map stays one; anything else converted."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"{what} has masked values: drop those rows or fill the values")
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.asarray(values)
    except ValueError:
        raise DataError(f"{what} is ragged: every row must have the same number of values") from None
