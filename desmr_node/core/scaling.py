"""One scale for the whole network: columns of unit spread, a response of order one, and the way back."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.rows import RowSource

#: Designs up to this size are scaled once and kept; larger ones are scaled again on every pass.
_KEEP_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Scaling:
    """z = (x - centre) / spread, t = y / unit; an intercept, if any, is coordinate 0 of the design."""

    centre: Vector
    spread: Vector
    unit: float
    intercept: bool

    @property
    def order(self) -> int:
        """Number of coefficients in the scaled model, the intercept included."""
        return len(self.spread) + self.intercept

    @property
    def penalised(self) -> Vector:
        """1 for every coordinate with a penalty, 0 for the intercept."""
        weights = np.ones(self.order)
        if self.intercept:
            weights[0] = 0.0
        return weights

    def design(self, X: Matrix) -> Matrix:
        """The scaled design of a block of rows."""
        Z = np.empty((len(X), self.order))
        if self.intercept:
            Z[:, 0] = 1.0
        scaled = Z[:, int(self.intercept) :]
        np.subtract(X, self.centre, out=scaled)
        scaled /= self.spread
        return Z

    def to_data_units(self, b: Vector) -> tuple[Vector, float]:
        """Coefficients and intercept for the columns and the response as the user gave them."""
        coef = b[int(self.intercept) :] * self.unit / self.spread
        # Each product is of the size of a fitted value, whatever the units of the column.
        intercept = b[0] * self.unit - float(np.sum(coef * self.centre)) if self.intercept else 0.0
        return coef, float(intercept)

    def from_data_units(self, coef: Vector, intercept: float = 0.0) -> Vector:
        """Inverse of `to_data_units`."""
        slopes = coef * self.spread / self.unit
        if not self.intercept:
            return slopes
        return np.concatenate([[(intercept + float(np.sum(coef * self.centre))) / self.unit], slopes])


@dataclass(slots=True)
class ScaledRows:
    """A node's rows as the method sees them: blocks of (Z, t)."""

    source: RowSource
    scaling: Scaling
    _kept: list[tuple[Matrix, Vector]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.source.count

    def blocks(self) -> Iterator[tuple[Matrix, Vector]]:
        """Scaled blocks, in the order of the source."""
        if self._kept:
            yield from self._kept
            return
        keep = self.count * self.scaling.order * 8 <= _KEEP_BYTES
        seen = []
        for X, y in self.source.blocks():
            block = self.scaling.design(X), y / self.scaling.unit
            if keep:
                seen.append(block)
            yield block
        self._kept = seen

    def sample(self, limit: int, rng: np.random.Generator) -> tuple[Matrix, Vector]:
        """All rows, or `limit` of them drawn without replacement, in order."""
        if self.count <= limit:
            parts = list(self.blocks())
        else:
            chosen = np.sort(rng.choice(self.count, size=limit, replace=False))
            parts, start = [], 0
            for Z, t in self.blocks():
                first, last = np.searchsorted(chosen, [start, start + len(t)])
                rows = chosen[first:last] - start
                parts.append((Z[rows], t[rows]))
                start += len(t)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([Z for Z, _ in parts]), np.concatenate([t for _, t in parts])
