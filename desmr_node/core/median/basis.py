"""The basis of a vertex: which rows are interpolated by which columns, and the inverse of that small matrix.

A vertex is a pair (A, h) of k columns and k rows with X[h, A] invertible: b is zero off A and the residuals
of the rows h are zero, so b_A = M y_h with M = inverse(X[h, A]). The problem has no constraints on b, so
every such pair is feasible and any of them may start the simplex. M, X[:, A] and X[h, :] are kept up to
date in place: an exchange costs O(k^2 + n + p).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from desmr_node.core.median.problem import Floats

# columns whose pivot in a rank-revealing factorisation is smaller than this, relatively, count as dependent
RANK_TOLERANCE = 1e-9
# an inverse with larger entries (times the entries it inverts) has lost all its digits
WORST_CONDITION = 1e13


class Basis:
    """Columns A, rows h and M = inverse(X[h, A])."""

    __slots__ = ("_M", "_XA", "_Xh", "_by_column", "_by_row", "_capacity", "columns", "rows")

    def __init__(
        self, by_row: Floats, by_column: Floats, columns: Sequence[int], rows: Sequence[int]
    ) -> None:
        self._by_row = by_row
        self._by_column = by_column
        self.columns: list[int] = [int(k) for k in columns]
        self.rows: list[int] = [int(i) for i in rows]
        self._allocate(max(16, 2 * len(self.columns)))
        self.refactor()

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def inverse(self) -> Floats:
        """M, shape (k, k): rows follow `columns`, columns follow `rows`."""
        k = len(self.columns)
        return self._M[:k, :k]

    @property
    def X_columns(self) -> Floats:
        """X[:, A], shape (n, k)."""
        return self._XA[:, : len(self.columns)]

    @property
    def X_rows(self) -> Floats:
        """X[h, :], shape (k, p)."""
        return self._Xh[: len(self.rows)]

    def refactor(self) -> None:
        """Invert afresh; dependent pairs are dropped, so this always succeeds."""
        if self.columns and not self._invert():
            B = self._by_row[np.ix_(self.rows, self.columns)]
            kept_rows, kept_columns = independent_pairs(B)
            self.rows = [self.rows[i] for i in kept_rows]
            self.columns = [self.columns[a] for a in kept_columns]
            if not self._invert():
                self.rows, self.columns = [], []
        k = len(self.columns)
        if k:
            self._XA[:, :k] = self._by_column[:, self.columns]
            self._Xh[:k] = self._by_row[self.rows]

    def _invert(self) -> bool:
        B = self._by_row[np.ix_(self.rows, self.columns)]
        try:
            M = np.linalg.inv(B)
        except np.linalg.LinAlgError:
            return False
        condition = np.abs(M).max(initial=0.0) * np.abs(B).max(initial=0.0)
        if not condition <= WORST_CONDITION:
            return False
        k = len(M)
        self._M[:k, :k] = M
        return True

    def _allocate(self, capacity: int) -> None:
        n, p = self._by_row.shape
        self._capacity = capacity
        self._XA = np.empty((n, capacity), order="F")
        self._Xh = np.empty((capacity, p))
        self._M = np.zeros((capacity, capacity))

    def grow(self, row: int, column: int, z: Floats, w: Floats, pivot: float) -> None:
        """Add a row and a column. z = M x_column[h], w = x_row[A]' M, pivot = x_row,column - x_row[A]' z."""
        k = len(self.columns)
        if k == self._capacity:
            XA, Xh, M = self._XA, self._Xh, self._M
            self._allocate(2 * k)
            self._XA[:, :k], self._Xh[:k], self._M[:k, :k] = XA, Xh, M
        M = self._M
        M[:k, :k] += np.outer(z / pivot, w)
        M[:k, k] = -z / pivot
        M[k, :k] = -w / pivot
        M[k, k] = 1.0 / pivot
        self._XA[:, k] = self._by_column[:, column]
        self._Xh[k] = self._by_row[row]
        self.columns.append(column)
        self.rows.append(row)

    def exchange_row(self, i: int, row: int, w: Floats) -> None:
        """Put another row at position i. w = x_row[A]' M."""
        M = self.inverse
        entering = M[:, i] / w[i]
        w = w.copy()
        w[i] = 0.0
        M -= np.outer(entering, w)
        M[:, i] = entering
        self.rows[i] = row
        self._Xh[i] = self._by_row[row]

    def exchange_column(self, a: int, column: int, z: Floats) -> None:
        """Put another column at position a. z = M x_column[h]."""
        M = self.inverse
        entering = M[a] / z[a]
        z = z.copy()
        z[a] = 0.0
        M -= np.outer(z, entering)
        M[a] = entering
        self.columns[a] = column
        self._XA[:, a] = self._by_column[:, column]

    def shrink(self, a: int, i: int) -> None:
        """Remove column position a and row position i; the last ones take their places."""
        M = self.inverse
        M -= np.outer(M[:, i], M[a] / M[a, i])
        last = len(self.columns) - 1
        M[a] = M[last]
        M[:, i] = M[:, last]
        self._XA[:, a] = self._XA[:, last]
        self._Xh[i] = self._Xh[last]
        self.columns[a] = self.columns[last]
        self.rows[i] = self.rows[last]
        self.columns.pop()
        self.rows.pop()


def independent_pairs(B: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a square B, as many as its rank, whose intersection is well conditioned."""
    _, R, order = qr(B, mode="economic", pivoting=True, check_finite=False)
    columns = order[: _rank(R)].astype(np.intp)
    if len(columns) == 0:
        return columns, columns
    _, _, order = qr(B[:, columns].T, mode="economic", pivoting=True, check_finite=False)
    return order[: len(columns)].astype(np.intp), columns


def basis_near(
    X: Floats, coef: Floats, active: NDArray[np.bool_], row_weight: Floats
) -> tuple[list[int], list[int]]:
    """A basis of active columns and heavy rows: the vertex next to an interior point."""
    n = len(X)
    columns = np.flatnonzero(active)
    while len(columns):
        pool = min(n, 3 * len(columns) + 10)
        if pool < len(columns):
            columns = _largest(coef, columns, pool)
        top = np.argpartition(-row_weight, pool - 1)[:pool] if pool < n else np.arange(n)
        Z = X[np.ix_(top, columns)] * np.sqrt(row_weight[top])[:, None]
        _, R, order = qr(Z.T, mode="economic", pivoting=True, check_finite=False)
        rank = _rank(R)
        if rank >= len(columns):
            return columns.tolist(), top[order[: len(columns)]].tolist()
        _, _, order = qr(Z, mode="economic", pivoting=True, check_finite=False)
        columns = np.sort(columns[order[:rank]])
    return [], []


def _largest(coef: Floats, columns: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    return columns[np.argsort(-np.abs(coef[columns]), kind="stable")[:count]]


def _rank(R: NDArray[Any]) -> int:
    diagonal = np.abs(np.diag(R))
    if not len(diagonal) or not np.isfinite(diagonal).all():
        return 0
    return int((diagonal > RANK_TOLERANCE * diagonal[0]).sum())
