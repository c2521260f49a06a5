"""What is solved, and how an answer is proved.

The problem, with n rows x_i', p columns and a level q in (0, 1):

    P(b) = (1/n) sum_i 2 rho_q(y_i - x_i'b) + sum_k lam_k |b_k|,      rho_q(r) = max(q r, (q - 1) r)

It is a linear programme; its dual has one bounded variable per row. With mu_k = n lam_k / 2,

    D(d) = (2/n) y'd,      q - 1 <= d_i <= q,      |X_k'd| <= mu_k

and D(d) <= P(b) for every feasible d and every b. A pair with P(b) = D(d) is therefore optimal, whoever
found it: the certificate below looks at the arrays only and knows nothing of the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desmr_node.errors import ConfigError, DataError

Floats = NDArray[np.float64]

# A relative gap up to here counts as proved optimal: rounding in sums over 1e5 rows stays far below it.
OPTIMAL_GAP = 1e-9
# An interpolating fit has objective 0 up to rounding of the order of P(0): gaps are relative to this share
# of it.
SCALE_FLOOR = 1e-3
# Sums of squares and quotients of larger numbers leave the range of float64.
LARGEST_VALUE = 1e100
# Where mu_k is this small beside what the column could reach, |X_k'd| <= mu_k is nearly an equation:
# shrinking d until rounding errors fit would throw the bound away, moving d a little does not.
NEAR_EQUATION = 1e-4
# Beside n times the largest entry of a column: what rounding can leave of an equation.
ROUNDING = 1e-13
# A gap that no other repair of the dual vector needs to improve.
GOOD_ENOUGH = 1e-12


@dataclass(frozen=True, slots=True)
class QuantileSolution:
    """An l1-penalised quantile fit and its proof.

    Attributes
    ----------
    coef : (p,) the minimiser, a vertex of the linear programme
    dual : (n,) a feasible dual vector, one entry in [q - 1, q] per row
    objective : P(coef)
    gap : (P(coef) - D(dual)) / max(P(coef), 1e-3 P(0)), from the arrays alone
    optimal : whether the gap is within rounding
    interior_iterations, pivots : work done
    """

    coef: Floats
    dual: Floats
    objective: float
    gap: float
    optimal: bool
    interior_iterations: int
    pivots: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """A primal value, a lower bound for every other primal value, and the dual vector that proves it."""

    objective: float
    bound: float
    gap: float
    dual: Floats


@dataclass(frozen=True, slots=True)
class QuantileProblem:
    """A checked problem: finite arrays of matching shapes.

    `peak` holds the largest absolute value of each column; it costs one pass and serves validation, scaling
    and the certificate.
    """

    X: Floats
    y: Floats
    lam: Floats
    quantile: float
    peak: Floats

    @property
    def mu(self) -> Floats:
        """The penalty on the scale of the summed check loss."""
        return 0.5 * len(self.y) * self.lam

    def objective(self, coef: Floats) -> float:
        """P(b)."""
        loss = check_loss(self.y - self.X @ coef, self.quantile)
        return 2.0 / len(self.y) * loss + float(self.lam @ np.abs(coef))

    def certificate(self, coef: Floats, dual: Floats) -> Certificate:
        """Make `dual` feasible and compare D(dual) with P(coef)."""
        objective = self.objective(coef)
        at_zero = 2.0 / len(self.y) * check_loss(self.y, self.quantile)
        scale = max(objective, SCALE_FLOOR * at_zero)
        # near-equations first; where their columns are nearly dependent, shrinking may do better than moving
        best = self._bounded(objective, scale, *self._feasible(dual, coef, NEAR_EQUATION))
        if best.gap <= GOOD_ENOUGH:
            return best
        other = self._bounded(objective, scale, *self._feasible(dual, coef, 0.0))
        return other if other.gap < best.gap else best

    def _bounded(self, objective: float, scale: float, feasible: Floats, shortfall: float) -> Certificate:
        bound = 2.0 / len(self.y) * (float(self.y @ feasible) - shortfall)
        gap = (objective - bound) / scale if scale > 0.0 else 0.0
        return Certificate(objective, bound, gap, feasible)

    def _feasible(self, dual: Floats, coef: Floats, share: float) -> tuple[Floats, float]:
        """A feasible dual next to the given one, and what rounding may have added to its value.

        The box is restored by clipping, the equations and near-equations (mu_k up to `share` of what the
        column could reach) by projection, the rest by shrinking towards 0, which is feasible. What rounding
        leaves of the projected ones, e_k = |X_k'd| - mu_k > 0, can raise y'd above the optimum by at most
        sum_k e_k |b*_k|; with b* of the size of `coef` that is the shortfall. More than rounding is shrunk
        away too.
        """
        n = len(self.y)
        mu, peak = self.mu, self.peak
        d = np.clip(dual, self.quantile - 1.0, self.quantile)
        soft = (mu <= share * n * peak) & (peak > 0.0)
        g = self.X.T @ d
        if soft.any():
            d, g = self._project(d, g, np.flatnonzero(soft))
            d *= _shrink_to_box(d, self.quantile)
            g = self.X.T @ d
        excess = np.abs(g) - mu
        hard = (excess > 0.0) & ~(soft & (excess <= ROUNDING * n * peak))
        if hard.any():
            shrink = float(np.min(mu[hard] / np.abs(g[hard])))
            d *= shrink
            g *= shrink
        if not soft.any():
            return d, 0.0
        excess = np.maximum(np.abs(g[soft]) - mu[soft], 0.0) / peak[soft]
        return d, float(excess.max() * (peak[soft] @ np.abs(coef[soft])))

    def _project(self, d: Floats, g: Floats, soft: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Move d so that the near-equations hold, in at most three least-norm corrections."""
        mu, peak = self.mu[soft] / self.peak[soft], self.peak[soft]
        Z: Floats | None = None
        for _ in range(3):
            scaled = g[soft] / peak
            excess = scaled - np.clip(scaled, -mu, mu)
            if np.abs(excess).max() <= 1e-15 * len(d):
                break
            if Z is None:
                Z = self.X[:, soft] / peak
                U, values, V = np.linalg.svd(Z, full_matrices=False)
                rank = int(np.count_nonzero(values > 1e-14 * values[0]))
            d = d - U[:, :rank] @ ((V[:rank] @ excess) / values[:rank])
            g = self.X.T @ d
        return d, g


@dataclass(frozen=True, slots=True)
class TiltedProblem:
    """The sum form that the solvers work on, possibly on some of the rows and columns.

        min_b  sum_i rho_q(y_i - x_i'b) - tilt'b + sum_k mu_k |b_k|

    A row whose residual is known to be positive or negative has a linear loss; all such rows together are
    the tilt.
    """

    X: Floats
    y: Floats
    mu: Floats
    quantile: float
    tilt: Floats

    def value(self, coef: Floats, residuals: Floats) -> float:
        """The objective at `coef`, whose residuals are known."""
        return check_loss(residuals, self.quantile) + float(self.mu @ np.abs(coef) - self.tilt @ coef)

    def columns(self, chosen: NDArray[np.intp]) -> TiltedProblem:
        """The same problem with the other coefficients held at zero."""
        X = np.ascontiguousarray(self.X[:, chosen])
        return TiltedProblem(X, self.y, self.mu[chosen], self.quantile, self.tilt[chosen])


@dataclass(slots=True)
class Effort:
    """Work counted while solving."""

    interior_iterations: int = 0
    pivots: int = 0


def check_loss(residuals: Floats, quantile: float) -> float:
    """sum_i rho_q(r_i)."""
    # rho_q(r) = |r|/2 + (q - 1/2) r, without masks
    return 0.5 * float(np.abs(residuals).sum()) + (quantile - 0.5) * float(residuals.sum())


def _shrink_to_box(d: Floats, quantile: float) -> float:
    largest = max(float(d.max(initial=0.0)) / quantile, float(d.min(initial=0.0)) / (quantile - 1.0))
    return 1.0 / largest if largest > 1.0 else 1.0


def checked_problem(
    X: ArrayLike, y: ArrayLike, lam: ArrayLike, quantile: float, name: str = "lam"
) -> QuantileProblem:
    """The caller's arrays as a problem, or one sentence about what is wrong with them.

    `name` is what the caller calls the penalties.
    """
    rows, peak = checked_matrix(X)
    response = _real(y, "y")
    if response.ndim != 1 or len(response) != len(rows):
        raise DataError(
            f"y has shape {response.shape} but X has {len(rows)} rows: pass one response per row, as a vector"
        )
    if not _within_range(float(np.max(response)), float(np.min(response))):
        i = int(np.flatnonzero(~(np.abs(response) <= LARGEST_VALUE))[0])
        raise DataError(f"y is {response[i]} at row {i} (from 0): {_REMEDY}")
    return QuantileProblem(
        rows, response, checked_weights(lam, rows.shape[1], name), checked_quantile(quantile), peak
    )


_REMEDY = "remove the row, fill the value in, or rescale it below 1e100"


def checked_matrix(X: ArrayLike) -> tuple[Floats, Floats]:
    """X as a finite row-major float64 matrix, and the largest absolute value of each column."""
    rows = np.ascontiguousarray(_real(X, "X"))
    if rows.ndim != 2:
        raise DataError(f"X has {rows.ndim} dimensions: pass a matrix, one row per observation")
    if len(rows) == 0:
        raise DataError("X has no rows: a quantile needs at least one observation")
    with np.errstate(invalid="ignore"):
        peak = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    if not np.all(peak <= LARGEST_VALUE):
        i, k = np.argwhere(~(np.abs(rows) <= LARGEST_VALUE))[0]
        raise DataError(f"X is {rows[i, k]} at row {i}, column {k} (both from 0): {_REMEDY}")
    return rows, peak


def checked_weights(weights: ArrayLike, p: int, name: str) -> Floats:
    """A non-negative vector of length p; a scalar stands for all coordinates."""
    try:
        vector = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is not numeric: pass a number, or one number per column of X") from None
    if vector.ndim != 0 and vector.shape != (p,):
        raise ConfigError(
            f"{name} has shape {vector.shape} but X has {p} columns: pass a number or {p} of them"
        )
    bad = ~((vector >= 0.0) & (vector <= LARGEST_VALUE))
    if bad.any():
        where = f"at column {int(np.flatnonzero(bad)[0])} (from 0) " if vector.ndim else ""
        value = float(vector[bad][0]) if vector.ndim else float(vector)
        raise ConfigError(
            f"{name} is {value} {where}: penalties must be finite and not negative".replace(" :", ":")
        )
    return np.array(np.broadcast_to(vector, (p,)))


def checked_quantile(quantile: float) -> float:
    """A level strictly between 0 and 1."""
    level = float(quantile)
    if not 0.0 < level < 1.0:
        raise ConfigError(f"quantile is {quantile}: choose a level strictly between 0 and 1, such as 0.5")
    return level


def _real(values: ArrayLike, name: str) -> Floats:
    try:
        array: NDArray[Any] = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} is not a rectangular array of real numbers: encode or drop such columns"
        ) from None


def _within_range(largest: float, smallest: float) -> bool:
    return largest <= LARGEST_VALUE and smallest >= -LARGEST_VALUE
