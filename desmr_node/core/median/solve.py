"""The exact solver's front: scaling, the choice of strategy, the proof, and what to do if the proof fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import qr, solve_triangular

from desmr_node.core.median.basis import basis_near
from desmr_node.core.median.columns import Guess, solve_columns
from desmr_node.core.median.problem import (
    OPTIMAL_GAP,
    Certificate,
    Effort,
    Floats,
    QuantileProblem,
    QuantileSolution,
    TiltedProblem,
    checked_problem,
)
from desmr_node.core.median.rows import solve_rows
from desmr_node.core.median.vertex import Vertex
from desmr_node.errors import ConfigError

# a gap up to here is accepted at once; between it and OPTIMAL_GAP the slower strategies have a try first
TARGET_GAP = 1e-10
# a table is sifted by rows if it has this many entries and this many rows per column
SIFTED_ENTRIES = 300_000
SIFTED_ROWS_PER_COLUMN = 12
# columns whose largest entry lies within these powers of two are left as they are
UNSCALED_POWER = 6
# a column of smaller entries is zero for all purposes
ZERO_COLUMN = 1e-100


def l1_quantile(X: ArrayLike, y: ArrayLike, lam: ArrayLike, quantile: float = 0.5) -> Floats:
    """Solve min_b (1/n) sum_i 2 rho_q(y_i - x_i'b) + sum_k lam_k |b_k| exactly.

    Parameters
    ----------
    X : (n, p) array
        Rows; add a column of ones with penalty 0 for an intercept.
    y : (n,) array
        Response.
    lam : float or (p,) array
        Penalty; zeros leave a coefficient unpenalised.
    quantile : float
        Level q in (0, 1); 0.5 gives the median, with loss (1/n) sum |r_i|.

    Returns
    -------
    (p,) array
        Coefficients, a vertex of the linear programme.
    """
    return l1_quantile_certified(X, y, lam, quantile).coef


def l1_quantile_certified(
    X: ArrayLike, y: ArrayLike, lam: ArrayLike, quantile: float = 0.5, start: ArrayLike | None = None
) -> QuantileSolution:
    """Solve as `l1_quantile` does and return the proof of optimality too.

    `start` is a coefficient vector believed to be close, for instance the solution for another penalty; it
    changes how long the solver takes, and which of several equally good solutions it finds.
    """
    problem = checked_problem(X, y, lam, quantile)
    return solve_checked(problem, None if start is None else _checked_start(start, problem.X.shape[1]))


def _checked_start(start: ArrayLike, p: int) -> Floats:
    coef = np.asarray(start, dtype=np.float64)
    if coef.shape != (p,) or not np.isfinite(coef).all():
        raise ConfigError(
            f"start has to be {p} finite coefficients, one per column of X: pass those or leave it out"
        )
    return coef


@dataclass(frozen=True, slots=True)
class Scaling:
    """Powers of two that bring columns and response near 1, and the columns that can be non-zero at all."""

    columns: NDArray[np.intp]
    column: Floats
    response: float

    @classmethod
    def of(cls, problem: QuantileProblem) -> Scaling:
        """Read the scales off a problem."""
        n = len(problem.y)
        # |X_k'd| cannot exceed n peak_k max(q, 1 - q): beyond that penalty a coefficient stays at zero
        reach = n * problem.peak * max(problem.quantile, 1.0 - problem.quantile)
        columns = np.flatnonzero((problem.mu < reach) & (problem.peak > ZERO_COLUMN))
        power = np.frexp(problem.peak[columns])[1]
        column = np.ldexp(1.0, np.where(np.abs(power) <= UNSCALED_POWER, 0, power))
        size = np.abs(problem.y)
        typical = float(np.median(size)) or float(size.max())
        return cls(columns, column, float(np.ldexp(1.0, int(np.frexp(typical)[1]))))

    def apply(self, problem: QuantileProblem) -> TiltedProblem:
        """The scaled problem in sum form."""
        X = problem.X
        if len(self.columns) < X.shape[1]:
            X = X[:, self.columns]
        if (self.column != 1.0).any():
            X = X / self.column
        mu = problem.mu[self.columns] / self.column
        return TiltedProblem(X, problem.y / self.response, mu, problem.quantile, np.zeros(len(mu)))

    def inward(self, coef: Floats) -> Floats:
        """Coefficients of the caller in scaled units."""
        return coef[self.columns] * self.column / self.response

    def outward(self, coef: Floats, p: int) -> Floats:
        """Scaled coefficients in the caller's units."""
        full = np.zeros(p)
        full[self.columns] = coef / self.column * self.response
        return full


@dataclass(frozen=True, slots=True)
class _Answer:
    coef: Floats
    dual: Floats


def solve_checked(problem: QuantileProblem, start: Floats | None = None) -> QuantileSolution:
    """Try one strategy after another until the certificate holds; the best answer wins in any case."""
    p = problem.X.shape[1]
    effort = Effort()
    scaling = Scaling.of(problem)
    if len(scaling.columns) == 0 or not problem.y.any():
        # any sign would do for a zero: the middle is feasible for every column
        dual = np.where(problem.y > 0.0, problem.quantile, problem.quantile - 1.0)
        dual[problem.y == 0.0] = 0.0
        return _solution(np.zeros(p), problem.certificate(np.zeros(p), dual), effort)
    scaled = scaling.apply(problem)
    begin = None if start is None else scaling.inward(start)
    best: tuple[Floats, Certificate] | None = None
    for strategy in _strategies(scaled, begin):
        answer = strategy(effort)
        if answer is None or not np.isfinite(answer.coef).all():
            continue
        coef = scaling.outward(answer.coef, p)
        certificate = problem.certificate(coef, answer.dual)
        if best is None or certificate.gap < best[1].gap:
            best = coef, certificate
        if certificate.gap <= TARGET_GAP:
            break
    if best is None:
        coef = np.zeros(p)
        best = coef, problem.certificate(coef, np.zeros(len(problem.y)))
    return _solution(*best, effort)


def _solution(coef: Floats, certificate: Certificate, effort: Effort) -> QuantileSolution:
    return QuantileSolution(
        coef=coef,
        dual=certificate.dual,
        objective=certificate.objective,
        gap=certificate.gap,
        optimal=bool(certificate.gap <= OPTIMAL_GAP),
        interior_iterations=effort.interior_iterations,
        pivots=effort.pivots,
    )


def _strategies(scaled: TiltedProblem, start: Floats | None) -> Iterator[Callable[[Effort], _Answer | None]]:
    """Fast ones first; each is exact in exact arithmetic."""
    n, p = scaled.X.shape

    def sift(effort: Effort) -> _Answer | None:
        point = solve_rows(scaled, start, effort)
        return None if point is None else _Answer(point.coef, point.dual)

    def generate_columns(effort: Effort) -> _Answer:
        guess = Guess()
        if start is not None:
            guess = Guess(start, _vertex_at(scaled, start))
        point = solve_columns(scaled, guess, effort)
        return _Answer(point.coef, point.dual)

    def straighten(effort: Effort) -> _Answer:
        return _orthogonalised(scaled, effort)

    def from_zero(effort: Effort) -> _Answer:
        vertex = Vertex(scaled)
        vertex.solve(scaled.mu, 100 * min(n, p) + 1000)
        effort.pivots += vertex.pivots
        return _Answer(vertex.coef, vertex.dual)

    def from_highs(effort: Effort) -> _Answer | None:
        answer = _highs(scaled)
        if answer is None:
            return None
        vertex = Vertex(scaled, *_vertex_at(scaled, answer.coef))
        vertex.solve(scaled.mu, 10 * min(n, p) + 500)
        effort.pivots += vertex.pivots
        return _Answer(vertex.coef, vertex.dual) if vertex.optimal else answer

    if sifted(n, p):
        yield sift
    yield generate_columns
    if np.count_nonzero(scaled.mu == 0.0) > 1:
        yield straighten
    yield from_zero
    yield from_highs


def sifted(n: int, p: int) -> bool:
    """Whether a table of this shape is worth sifting by rows."""
    return n * p > SIFTED_ENTRIES and n > SIFTED_ROWS_PER_COLUMN * p


def _vertex_at(scaled: TiltedProblem, coef: Floats) -> tuple[list[int], list[int]]:
    """The basis of a vertex given by its coefficients: non-zero columns, rows with the smallest residuals."""
    residuals = np.abs(scaled.y - scaled.X @ coef)
    return basis_near(scaled.X, coef, coef != 0.0, 1.0 / (residuals + 1e-9))


def _orthogonalised(scaled: TiltedProblem, effort: Effort) -> _Answer:
    """Replace the unpenalised columns by an orthonormal basis of their span: same fits, better numbers."""
    free = np.flatnonzero(scaled.mu == 0.0)
    others = np.flatnonzero(scaled.mu > 0.0)
    Q, R, order = qr(scaled.X[:, free], mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    rank = int(np.count_nonzero(diagonal > 1e-14 * diagonal[0]))
    size = np.sqrt(len(scaled.y))  # entries of Q near 1
    X = np.ascontiguousarray(np.column_stack([size * Q[:, :rank], scaled.X[:, others]]))
    mu = np.concatenate([np.zeros(rank), scaled.mu[others]])
    point = solve_columns(TiltedProblem(X, scaled.y, mu, scaled.quantile, np.zeros(len(mu))), Guess(), effort)
    coef = np.zeros(scaled.X.shape[1])
    coef[others] = point.coef[rank:]
    coef[free[order[:rank]]] = solve_triangular(R[:rank, :rank], size * point.coef[:rank], check_finite=False)
    return _Answer(coef, point.dual)


def _highs(scaled: TiltedProblem) -> _Answer | None:
    """The dual programme by SciPy's HiGHS: slow, but made for the hardest bases.

    max y'd over q - 1 <= d <= q, -mu <= X'd <= mu; the coefficients are the multipliers of the last two.
    """
    from scipy.optimize import linprog  # 40 MB of memory that a node hardly ever needs

    p = scaled.X.shape[1]
    result = linprog(
        -scaled.y,
        A_ub=np.vstack([scaled.X.T, -scaled.X.T]),
        b_ub=np.concatenate([scaled.mu, scaled.mu]),
        bounds=(scaled.quantile - 1.0, scaled.quantile),
        method="highs",
    )
    if result.x is None:
        return None
    multipliers = -np.asarray(result.ineqlin.marginals)
    return _Answer(multipliers[:p] - multipliers[p:], np.asarray(result.x))
