"""Long-step simplex from vertex to vertex of the penalised check loss.

At a vertex (A, h) (see `basis`) the dual variables are d_i = q or q - 1 by the sign of the residual off h,
and on h they solve X_A'd = mu_A sign(b_A). The vertex is optimal if those on h lie in [q - 1, q] and the
other columns satisfy |g_k| <= mu_k, g = X'd + tilt. Otherwise a row leaves h or a column enters A, and the
coefficients move along the edge this frees. The loss along an edge is convex and piecewise linear: the step
runs through all kinks as long as it descends, and the row or column at the last kink completes the new
basis.

Written out: c = (X'd off h) + tilt, dh = d on h, s = signs of b_A, z = M x_k[h] for an entering column k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desmr_node.core.median.basis import Basis
from desmr_node.core.median.problem import Floats, TiltedProblem

DUAL_TOLERANCE = 1e-11
PIVOT_TOLERANCE = 1e-9  # kinks with a smaller slope, relatively, would make a singular basis
PIVOTS_PER_INVERSE = 60
PATIENCE = 30  # pivots without a step before the response is perturbed
PERTURBATION = 1e-9
PERTURBATIONS = 3
FIRST_KINKS = 128  # sorted at once; nearly every step ends within them
PRICED_COLUMNS = 20


@dataclass(frozen=True, slots=True)
class _Edge:
    """A descending edge: a column at index `column` enters, or the row at position `position` of h leaves."""

    column: int | None
    position: int
    sign: float
    slope: float


@dataclass(frozen=True, slots=True)
class _Step:
    """Where an edge ends: its length, the rows and positions of A whose signs turn, and what blocks."""

    length: float
    turned_rows: NDArray[np.intp]
    turned_columns: NDArray[np.intp]
    blocking_row: int | None
    blocking_column: int


class Vertex:
    """A vertex of a tilted problem that can be driven to the optimum, for one penalty after another."""

    def __init__(self, problem: TiltedProblem, columns: Sequence[int] = (), rows: Sequence[int] = ()) -> None:
        self._by_row = np.ascontiguousarray(problem.X)
        self._by_column = np.asfortranarray(problem.X)
        self._y = problem.y
        self._tilt = problem.tilt
        self._q = problem.quantile
        self._mu = problem.mu
        self.pivots = 0
        self.optimal = False
        self._scale = _typical(problem.y)
        self._since_inverse = 0
        self._barred_rows: set[int] = set()
        self._barred_columns: set[int] = set()
        self._dh: Floats = np.zeros(0)
        self._g: Floats = np.zeros(0)
        self._restart(columns, rows)

    @property
    def coef(self) -> Floats:
        """The coefficients, zero off A; what differs from zero by rounding only is zero."""
        b = np.zeros(self._by_row.shape[1])
        b[self.basis.columns] = np.where(np.abs(self._b) > self._rounding_of_b(), self._b, 0.0)
        return b

    @property
    def dual(self) -> Floats:
        """One dual variable per row."""
        d = self._d.copy()
        d[self.basis.rows] = self._dh
        return d

    def solve(self, mu: Floats, limit: int) -> bool:
        """Pivot until optimal for the penalties `mu`, at most `limit` times; returns `optimal`."""
        with np.errstate(all="ignore"):
            self._mu = mu
            self.optimal = self._descend(self.pivots + limit)
        return self.optimal

    # -- the loop --------------------------------------------------------------------------------------------

    def _descend(self, last_pivot: int) -> bool:
        true_y = self._y
        stalled = perturbed = 0
        while True:
            edge = self._best_edge()
            if edge is None:
                if self._y is not true_y:
                    self._y = true_y
                elif self._since_inverse == 0:
                    return True
                # decide on fresh numbers; the signs of rows at rounding distance are kept
                self._refresh()
                stalled = 0
                continue
            if self.pivots >= last_pivot:
                if self._y is not true_y:
                    self._y = true_y
                    self._refresh()
                return False
            if stalled > PATIENCE and self._y is true_y and perturbed < PERTURBATIONS:
                perturbed += 1
                self._y = true_y + self._perturbation(perturbed)
                self._restart(self.basis.columns, self.basis.rows)
                stalled = 0
                continue
            length = self._follow(edge)
            if length is None:
                # a slope with no kink behind it is rounding: the loss is bounded below
                if edge.column is None:
                    self._barred_rows.add(self.basis.rows[edge.position])
                else:
                    self._barred_columns.add(edge.column)
                continue
            self._unbar()
            stalled = stalled + 1 if length <= 1e-13 * self._scale else 0
            if self._since_inverse >= PIVOTS_PER_INVERSE:
                self._refresh()

    def _perturbation(self, seed: int) -> Floats:
        # ties are broken the same way every time: the generator decides nothing but the order of pivots
        noise = np.random.default_rng(seed).uniform(-1.0, 1.0, len(self._y))
        return np.asarray(PERTURBATION * self._scale * noise)

    def _restart(self, columns: Sequence[int], rows: Sequence[int]) -> None:
        """Take a basis and read all signs from it."""
        self.basis = Basis(self._by_row, self._by_column, columns, rows)
        self._interpolate()
        self._d = np.where(self._r > 0.0, self._q, self._q - 1.0)
        self._s = np.where(self._b >= 0.0, 1.0, -1.0)
        self._collect()

    def _refresh(self) -> None:
        """Invert afresh and recompute all; a sign changes only where its number is beyond rounding."""
        before = dict(zip(self.basis.columns, self._s, strict=True))
        left = set(self.basis.rows)
        self.basis.refactor()
        self._interpolate()
        for i in left.difference(self.basis.rows):
            self._d[i] = self._q if self._r[i] > 0.0 else self._q - 1.0
        rounding = 1e-12 * (1.0 + np.abs(self._y) + np.abs(self._b).max(initial=0.0))
        self._d[self._r > rounding] = self._q
        self._d[self._r < -rounding] = self._q - 1.0
        kept = np.array([before[k] for k in self.basis.columns])
        self._s = np.where(np.abs(self._b) > self._rounding_of_b(), np.sign(self._b), kept)
        self._collect()

    def _interpolate(self) -> None:
        h = self.basis.rows
        M, B = self.basis.inverse, self.basis.X_rows[:, self.basis.columns]
        self._b = M @ self._y[h]
        self._b += M @ (self._y[h] - B @ self._b)  # one refinement: interpolation to the last digits
        self._r = self._y - self.basis.X_columns @ self._b
        self._r[h] = 0.0

    def _rounding_of_b(self) -> Floats:
        return np.asarray(1e-14 * (np.abs(self.basis.inverse) @ np.abs(self._y[self.basis.rows])))

    def _collect(self) -> None:
        self._d[self.basis.rows] = 0.0
        self._c = self._by_column.T @ self._d + self._tilt
        self._since_inverse = 0
        self._unbar()

    def _unbar(self) -> None:
        self._barred_rows.clear()
        self._barred_columns.clear()

    # -- which edge ------------------------------------------------------------------------------------------

    def _best_edge(self) -> _Edge | None:
        """The steepest edge found, rates divided by the length of the move in coefficient space."""
        q, M, A = self._q, self.basis.inverse, self.basis.columns
        row_rate = column_rate = 0.0
        position = column = -1
        if A:
            self._dh = M.T @ (self._mu[A] * self._s - self._c[A])
            self._g = self._c + self._dh @ self.basis.X_rows
            row_slope = np.maximum(self._dh - q, (q - 1.0) - self._dh)
            row_slope[row_slope <= DUAL_TOLERANCE] = 0.0
            for barred in self._barred_rows:
                row_slope[self.basis.rows.index(barred)] = 0.0
            rates = row_slope / np.sqrt(np.einsum("ij,ij->j", M, M))
            position = int(np.argmax(rates))
            row_rate = float(rates[position])
        else:
            self._dh, self._g = np.zeros(0), self._c
        slope = np.abs(self._g) - self._mu
        slope[A] = 0.0
        slope[list(self._barred_columns)] = 0.0
        candidates = np.flatnonzero(slope > DUAL_TOLERANCE * (1.0 + self._mu))
        if len(candidates):
            if len(candidates) > PRICED_COLUMNS:
                candidates = candidates[np.argpartition(-slope[candidates], PRICED_COLUMNS)[:PRICED_COLUMNS]]
            Z = M @ self.basis.X_rows[:, candidates]
            rates = slope[candidates] / np.sqrt(1.0 + np.einsum("ij,ij->j", Z, Z))
            best = int(np.argmax(rates))
            column, column_rate = int(candidates[best]), float(rates[best])
        if column_rate <= 0.0 and row_rate <= 0.0:
            return None
        if column_rate >= row_rate:
            return _Edge(column, -1, 1.0 if self._g[column] > 0.0 else -1.0, float(slope[column]))
        return _Edge(None, position, 1.0 if self._dh[position] > q else -1.0, float(row_slope[position]))

    # -- along it --------------------------------------------------------------------------------------------

    def _follow(self, edge: _Edge) -> float | None:
        """Move to the end of the edge and exchange the basis; None, and no move, if no kink lies ahead."""
        basis, M = self.basis, self.basis.inverse
        if edge.column is not None:
            x = self._by_column[:, edge.column]
            z = M @ x[basis.rows]
            db = -edge.sign * z
            dr = basis.X_columns @ -db - edge.sign * x
        else:
            z = np.zeros(0)
            db = -edge.sign * M[:, edge.position]
            dr = basis.X_columns @ -db
        dr[basis.rows] = 0.0
        step = self._longest_descent(edge, db, dr)
        if step is None:
            return None
        self._r += step.length * dr
        self._b += step.length * db
        rows = step.turned_rows
        if len(rows):
            change = np.where(self._d[rows] > 0.0, -1.0, 1.0)  # from q to q - 1, or back
            self._d[rows] = np.where(change > 0.0, self._q, self._q - 1.0)
            self._c += change @ self._by_row[rows]
        self._s[step.turned_columns] *= -1.0
        self._exchange(edge, step, z)
        self.pivots += 1
        self._since_inverse += 1
        return step.length

    def _longest_descent(self, edge: _Edge, db: Floats, dr: Floats) -> _Step | None:
        # kinks: residuals that run towards zero, and coefficients that do
        flat = PIVOT_TOLERANCE * max(float(np.abs(dr).max(initial=0.0)), 1e-3)
        rows = np.flatnonzero(np.where(self._d > 0.0, dr < -flat, dr > flat))
        flat = PIVOT_TOLERANCE * max(float(np.abs(db).max(initial=0.0)), 1e-3)
        inner = np.flatnonzero(self._s * db < -flat)
        row_speed, inner_speed = np.abs(dr[rows]), np.abs(db[inner])
        at = np.concatenate([np.abs(self._r[rows]) / row_speed, np.abs(self._b[inner]) / inner_speed])
        if len(at) == 0:
            return None
        active_mu = self._mu[self.basis.columns]
        rise = np.concatenate([row_speed, 2.0 * active_mu[inner] * inner_speed])
        count = min(len(at), FIRST_KINKS)
        while True:
            if count < len(at):
                order = np.argpartition(at, count)[:count]
                order = order[np.argsort(at[order], kind="stable")]
            else:
                order = np.argsort(at, kind="stable")
            slope = np.cumsum(rise[order])
            if slope[-1] >= edge.slope or count == len(at):
                break
            count = min(len(at), 8 * count)
        last = min(int(np.searchsorted(slope, edge.slope)), len(order) - 1)
        passed, block = order[:last], int(order[last])
        is_row = block < len(rows)
        return _Step(
            length=float(at[block]),
            turned_rows=rows[passed[passed < len(rows)]],
            turned_columns=inner[passed[passed >= len(rows)] - len(rows)],
            blocking_row=int(rows[block]) if is_row else None,
            blocking_column=-1 if is_row else int(inner[block - len(rows)]),
        )

    def _exchange(self, edge: _Edge, step: _Step, z: Floats) -> None:
        basis = self.basis
        value = edge.sign * step.length
        if edge.column is None:  # a row leaves h with the sign it was pushed to
            leaving = basis.rows[edge.position]
        if step.blocking_row is not None:
            row = step.blocking_row
            self._c -= self._d[row] * self._by_row[row]
            self._d[row] = self._r[row] = 0.0
            x_row = self._by_row[row, basis.columns]
            w = x_row @ basis.inverse
            if edge.column is not None:
                pivot = float(self._by_row[row, edge.column] - x_row @ z)
                basis.grow(row, edge.column, z, w, pivot)
                self._b = np.append(self._b, value)
                self._s = np.append(self._s, edge.sign)
            else:
                basis.exchange_row(edge.position, row, w)
        else:
            a = step.blocking_column
            if edge.column is not None:
                basis.exchange_column(a, edge.column, z)
                self._b[a], self._s[a] = value, edge.sign
            else:
                basis.shrink(a, edge.position)
                self._b[a], self._s[a] = self._b[-1], self._s[-1]
                self._b, self._s = self._b[:-1].copy(), self._s[:-1].copy()
        if edge.column is None:
            self._d[leaving] = self._q if edge.sign > 0.0 else self._q - 1.0
            self._r[leaving] = value
            self._c += self._d[leaving] * self._by_row[leaving]


def _typical(y: Floats) -> float:
    size = np.abs(y)
    return float(np.median(size)) or float(size.max(initial=0.0)) or 1.0
