"""One tilted problem to the exact optimum: interior point, vertex, and a working set of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desmr_node.core.median.basis import basis_near
from desmr_node.core.median.interior import interior_point
from desmr_node.core.median.problem import Effort, Floats, TiltedProblem
from desmr_node.core.median.vertex import Vertex

INTERIOR_TOLERANCE = 1e-6
# below this many multiplications a normal matrix is cheaper than choosing columns
DENSE_WORK = 3e7
DENSE_COLUMNS = 150
FEW_COLUMNS = 60  # smallest working set, and smallest number of columns added at once
NEARLY_ALL = 0.7  # a working set with this share of the columns is not worth the bookkeeping


@dataclass(frozen=True, slots=True)
class VertexPoint:
    """An optimal vertex if `solved`; `columns` and `rows` are its basis, `working` the columns looked at."""

    coef: Floats
    dual: Floats
    columns: list[int]
    rows: list[int]
    solved: bool
    working: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Guess:
    """What is known beforehand: coefficients, a basis, a working set of columns; each may be missing."""

    coef: Floats | None = None
    basis: tuple[Sequence[int], Sequence[int]] | None = None
    working: NDArray[np.intp] | None = None


def solve_vertex(problem: TiltedProblem, guess: Guess, effort: Effort) -> Vertex:
    """The optimal vertex over all columns of the problem.

    A known basis is tried first, with about as many pivots as an interior point would cost. Otherwise the
    simplex starts beside an interior point; if it does not end there, beside a sharper one, and at last
    from zero.
    """
    n, p = problem.X.shape
    coef = guess.coef
    if guess.basis is not None:
        vertex = Vertex(problem, *guess.basis)
        vertex.solve(problem.mu, _affordable_pivots(n, p, len(vertex.basis)))
        effort.pivots += vertex.pivots
        if vertex.optimal:
            return vertex
        coef = vertex.coef
    limit = 10 * min(n, p) + 500
    for tolerance in (INTERIOR_TOLERANCE, 1e-3 * INTERIOR_TOLERANCE):
        point = interior_point(problem, tolerance, coef)
        effort.interior_iterations += point.iterations
        if not point.finite:
            coef = None
            continue
        vertex = Vertex(problem, *basis_near(problem.X, point.coef, point.active, point.row_weight))
        vertex.solve(problem.mu, limit)
        effort.pivots += vertex.pivots
        if vertex.optimal:
            return vertex
    vertex = Vertex(problem)
    vertex.solve(problem.mu, 10 * limit)
    effort.pivots += vertex.pivots
    return vertex


def _affordable_pivots(n: int, p: int, k: int) -> int:
    """How many pivots cost as much as an interior point, by measured seconds; only their ratio matters."""
    k = max(k, 10)
    interior = 14 * (n * p * p / 2e10 + p**3 / 3e10 + 6e-8 * (n + p)) + 2e-3
    pivot = 1.5e-4 + (n * k + p * k + k * k) * 1e-9 + 8e-9 * n
    return int(min(max(interior / pivot, 20), 400))


def solve_columns(problem: TiltedProblem, guess: Guess, effort: Effort) -> VertexPoint:
    """Exact over all columns by column generation.

    The problem is solved on a working set; columns outside whose reduced cost |g_k| exceeds mu_k join it.
    The loop ends when there are none, or with all columns in the set.
    """
    p = problem.X.shape[1]
    working = _first_columns(problem) if guess.working is None else guess.working
    basis, coef = guess.basis, guess.coef
    if basis is not None:
        # The vertex may come from another penalty (a SCAD step, the last lambda of a path) and stand on
        # columns that do not look promising under this one.
        working = np.union1d(working, np.asarray(basis[0], dtype=np.intp))
    while True:
        if len(working) > NEARLY_ALL * p:
            working = np.arange(p)
        everything = len(working) == p
        part = problem if everything else problem.columns(working)
        known = Guess(
            coef=None if coef is None else coef[working],
            basis=None if basis is None else (_positions(basis[0], working), basis[1]),
        )
        vertex = solve_vertex(part, known, effort)
        coef = np.zeros(p)
        coef[working] = vertex.coef
        dual = vertex.dual
        columns = [int(working[a]) for a in vertex.basis.columns]
        point = VertexPoint(coef, dual, columns, list(vertex.basis.rows), vertex.optimal, working)
        if everything:
            return point
        excess = np.abs(problem.X.T @ dual + problem.tilt) - problem.mu * (1.0 + 1e-11)
        excess[working] = 0.0
        joining = np.flatnonzero(excess > 1e-11)
        if len(joining) == 0:
            return point
        if not vertex.optimal:
            working = np.arange(p)
            basis = None
            continue
        most = max(FEW_COLUMNS, len(working))
        if len(joining) > most:
            joining = joining[np.argpartition(-excess[joining], most - 1)[:most]]
        # a handful of new columns is a matter of a few pivots
        basis = (columns, point.rows) if len(joining) <= 3 + len(columns) // 5 else None
        working = np.sort(np.concatenate([working, joining]))


def _positions(chosen: Sequence[int], working: NDArray[np.intp]) -> list[int]:
    return [int(a) for a in np.searchsorted(working, np.asarray(chosen, dtype=np.intp))]


def _first_columns(problem: TiltedProblem) -> NDArray[np.intp]:
    """All columns of a small problem, otherwise the free ones and those that pull most at b = 0."""
    n, p = problem.X.shape
    if p <= DENSE_COLUMNS or max(n, p) * min(n, p) ** 2 <= DENSE_WORK:
        return np.arange(p)
    d = np.where(problem.y > 0.0, problem.quantile, problem.quantile - 1.0)
    pull = np.abs(problem.X.T @ d + problem.tilt) - problem.mu
    free = problem.mu <= 0.0
    pull[free] = np.inf
    count = max(int(free.sum()), FEW_COLUMNS, min(n // 8, p // 3, 250))
    if count >= p:
        return np.arange(p)
    return np.sort(np.argpartition(-pull, count - 1)[:count])
