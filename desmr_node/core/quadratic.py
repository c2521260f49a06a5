"""Quadratic forms that are never larger than they must be: the Gram matrix of a node, formed or not.

The inner loop needs three things of Q: its product with a block of vectors, its principal submatrices, and
a bound on its largest eigenvalue. A node with fewer rows than columns keeps the rows and never forms p x p.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import eigvalsh

from desmr_node.core.arrays import Indices, Matrix, Vector

#: Where coefficients are sparse most rows of B are zero. From this order on it pays to look, if no more than
#: one row in `_FEW` is not; rows of Q are then gathered in pieces, so that no part of p x p is held twice.
_LARGE = 200
_FEW = 3
_PIECE = 32


class Quadratic(Protocol):
    """A symmetric positive semidefinite matrix of order `order`."""

    @property
    def order(self) -> int:
        """Number of rows, and of columns."""

    def apply(self, B: Matrix) -> Matrix:
        """Q B, for B of shape (order, L)."""

    def block(self, rows: Indices) -> Matrix:
        """Q[rows][:, rows]: a fresh array the caller may overwrite."""

    def diagonal(self) -> Vector:
        """The diagonal of Q."""

    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue, or a little more."""


def _largest(Q: Matrix) -> float:
    n = len(Q)
    return float(eigvalsh(Q, subset_by_index=[n - 1, n - 1])[0])


@dataclass(frozen=True, slots=True)
class Dense:
    """Q held as a matrix."""

    matrix: Matrix

    @property
    def order(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    def apply(self, B: Matrix) -> Matrix:
        """Q B, at the cost of the rows of B that are not zero."""
        order = len(self.matrix)
        if order >= _LARGE:
            rows = np.flatnonzero(B.any(axis=1))
            if _FEW * len(rows) <= order:
                product = np.zeros(B.shape)
                for first in range(0, len(rows), _PIECE):
                    piece = rows[first : first + _PIECE]
                    product += self.matrix.take(piece, axis=0).T.dot(B.take(piece, axis=0))
                return product
        full: Matrix = self.matrix.dot(B)  # as `@`, with half its overhead
        return full

    def block(self, rows: Indices) -> Matrix:
        """Q[rows][:, rows]."""
        if len(self.matrix) < _LARGE:  # k x p in between, and three times as fast
            return self.matrix.take(rows, axis=0).take(rows, axis=1)
        block: Matrix = self.matrix[rows[:, None], rows]
        return block

    def diagonal(self) -> Vector:
        """The diagonal."""
        return np.diagonal(self.matrix).copy()

    def largest_eigenvalue(self) -> float:
        """Exact."""
        return _largest(self.matrix)


@dataclass(frozen=True, slots=True)
class Rows:
    """Q = R'R for a factor R with fewer rows than columns: O(np) memory, and O(np) per product."""

    factor: Matrix

    @property
    def order(self) -> int:
        """Number of columns of the factor."""
        return int(self.factor.shape[1])

    def apply(self, B: Matrix) -> Matrix:
        """R'(R B)."""
        return self.factor.T @ (self.factor @ B)

    def block(self, rows: Indices) -> Matrix:
        """R[:, rows]'R[:, rows]."""
        R: Matrix = self.factor[:, rows]
        return R.T @ R

    def diagonal(self) -> Vector:
        """Squared column norms."""
        norms: Vector = np.square(self.factor).sum(axis=0)
        return norms

    def largest_eigenvalue(self) -> float:
        """From R R', the smaller of the two Gram matrices."""
        return _largest(self.factor @ self.factor.T)


@dataclass(frozen=True, slots=True)
class Scaled:
    """weight * I, of a given order."""

    weight: float
    order: int

    def apply(self, B: Matrix) -> Matrix:
        """weight B."""
        return self.weight * B

    def block(self, rows: Indices) -> Matrix:
        """weight I."""
        return self.weight * np.eye(len(rows))

    def diagonal(self) -> Vector:
        """weight, `order` times."""
        return np.full(self.order, self.weight)

    def largest_eigenvalue(self) -> float:
        """weight."""
        return self.weight


@dataclass(frozen=True, slots=True)
class Sum:
    """first + weight * second, without adding them up."""

    first: Quadratic
    second: Quadratic
    weight: float

    @property
    def order(self) -> int:
        """Order of both."""
        return self.first.order

    def apply(self, B: Matrix) -> Matrix:
        """Both products, added."""
        product = self.second.apply(B)
        product *= self.weight
        product += self.first.apply(B)
        return product

    def block(self, rows: Indices) -> Matrix:
        """Both blocks, added."""
        return self.first.block(rows) + self.weight * self.second.block(rows)

    def diagonal(self) -> Vector:
        """Both diagonals, added."""
        return self.first.diagonal() + self.weight * self.second.diagonal()

    def largest_eigenvalue(self) -> float:
        """Weyl's bound: the two largest eigenvalues, added."""
        return self.first.largest_eigenvalue() + self.weight * self.second.largest_eigenvalue()


def add(first: Quadratic, second: Quadratic, weight: float) -> Quadratic:
    """first + weight * second: one matrix where both are matrices or the identity, else a `Sum`."""
    if isinstance(first, Dense) and isinstance(second, Dense):
        return Dense(first.matrix + weight * second.matrix)
    if isinstance(first, Dense) and isinstance(second, Scaled):
        matrix = first.matrix.copy()
        matrix[np.diag_indices(second.order)] += weight * second.weight
        return Dense(matrix)
    return Sum(first, second, weight)
