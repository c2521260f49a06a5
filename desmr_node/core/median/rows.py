"""Many rows: most residuals are far from zero, and a row whose sign is known is only a linear term.

Nested random samples give an ever better b. At each of them the rows in a band around zero are kept and the
others join the tilt with the sign of their residual (Portnoy and Koenker's sifting, here with the penalty
and a working set of columns as well). The last sample is the whole table, solved exactly; every assumed
sign is then verified, rows with a wrong one come back, and the loop ends when none is left. So the samples
decide how long it takes, never what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desmr_node.core.median.columns import NEARLY_ALL, Guess, VertexPoint, solve_columns
from desmr_node.core.median.interior import interior_point
from desmr_node.core.median.problem import Effort, Floats, TiltedProblem

SAMPLE_GROWTH = 7
ROUNDS = 12
BAND = 4.0  # half-width of the band, in units of (median |residual|) sqrt(k / rows seen)
COARSE_TOLERANCE = 1e-3
SAMPLE_TOLERANCE = 1e-4
MOST_COLUMNS_AT_ONCE = 300


@dataclass(slots=True)
class _Level:
    """What a sample taught: coefficients, columns worth keeping, number of non-zeros, rows it rests on."""

    coef: Floats
    working: NDArray[np.intp]
    nonzeros: int
    rows_seen: int


def solve_rows(problem: TiltedProblem, start: Floats | None, effort: Effort) -> VertexPoint | None:
    """The exact optimum over all rows; None if the assumed signs do not settle."""
    n = len(problem.y)
    if start is None:
        level = _sample_levels(problem, effort)
    else:
        # a fit for another penalty, say: taken for as good as one on a sample of some size
        dual = _sign_duals(problem.y - problem.X @ start, problem.quantile)
        working, k = _worth_keeping(start, dual, problem)
        level = _Level(start, working, k, max(1, n // SAMPLE_GROWTH**2))
    return _settle(problem, level, effort)


def _sample_levels(problem: TiltedProblem, effort: Effort) -> _Level:
    n, p = problem.X.shape
    # any fixed order would do for random rows; a fixed shuffle also serves sorted tables
    order = np.random.default_rng(0).permutation(n)
    size = min(n, max(1000, min(8 * p, 2 * p + 1200)))
    part = _sample(problem, order[:size])
    coef, dual = _approximate(part, None, COARSE_TOLERANCE, effort)
    working, k = _worth_keeping(coef, dual, part)
    level = _Level(coef, working, k, size)
    while size * (SAMPLE_GROWTH + 2) < n:
        size *= SAMPLE_GROWTH
        part = _sample(problem, order[:size])
        residuals = part.y - part.X @ level.coef
        kept = _band(residuals, level, BAND)
        fixed = np.where(kept, 0.0, _sign_duals(residuals, part.quantile))
        columns = level.working if len(level.working) <= NEARLY_ALL * p else np.arange(p)
        near = np.flatnonzero(kept)
        narrow = TiltedProblem(part.X[near], part.y[near], part.mu, part.quantile, part.X.T @ fixed)
        coef = np.zeros(p)
        coef[columns], near_dual = _approximate(
            narrow.columns(columns), level.coef[columns], SAMPLE_TOLERANCE, effort
        )
        fixed[near] = near_dual
        working, k = _worth_keeping(coef, fixed, part)
        level = _Level(coef, working, k, size)
    return level


def _sample(problem: TiltedProblem, rows: NDArray[np.intp]) -> TiltedProblem:
    rows = np.sort(rows)
    share = len(rows) / len(problem.y)
    return TiltedProblem(
        problem.X[rows], problem.y[rows], problem.mu * share, problem.quantile, problem.tilt * share
    )


def _approximate(
    part: TiltedProblem, start: Floats | None, tolerance: float, effort: Effort
) -> tuple[Floats, Floats]:
    """Coefficients and duals good enough to sift by."""
    if part.X.shape[1] <= MOST_COLUMNS_AT_ONCE:
        point = interior_point(part, tolerance, start)
        effort.interior_iterations += point.iterations
        if point.finite:
            return point.coef, point.row_dual
    exact = solve_columns(part, Guess(coef=start), effort)
    return exact.coef, exact.dual


def _settle(problem: TiltedProblem, level: _Level, effort: Effort) -> VertexPoint | None:
    """The whole table: solve in the band, verify the signs outside, repeat."""
    width = BAND
    centre = level.coef
    residuals = problem.y - problem.X @ centre
    value = problem.value(centre, residuals)
    rounding = 1e-12 * (1.0 + np.abs(problem.y))
    basis: tuple[list[int], list[int]] | None = None
    leverage: Floats | None = None  # a pass over X that ordinary tables do not need
    for _ in range(ROUNDS):
        if basis is None:
            kept = _band(residuals if leverage is None else residuals / leverage, level, width)
            assumed = _sign_duals(residuals, problem.quantile)
            fixed = np.where(kept, 0.0, assumed)
            tilt = problem.X.T @ fixed + problem.tilt
        near = np.flatnonzero(kept)
        narrow = TiltedProblem(problem.X[near], problem.y[near], problem.mu, problem.quantile, tilt)
        warm = None if basis is None else (basis[0], np.searchsorted(near, basis[1]).tolist())
        found = solve_columns(narrow, Guess(centre, warm, level.working), effort)
        columns, rows = found.columns, near[found.rows].tolist()
        now = problem.y - problem.X @ found.coef
        wrong = ~kept & (_sign_duals(now, problem.quantile) != assumed) & (np.abs(now) > rounding)
        count = int(np.count_nonzero(wrong))
        if count == 0 and found.solved:
            fixed[near] = found.dual
            return VertexPoint(found.coef, fixed, columns, rows, True, found.working)
        level.working, level.nonzeros = found.working, max(1, len(columns))
        poor = not found.solved or count > 0.2 * len(near)
        # with many wrong signs the fit runs away: then the band stays where the loss was smaller
        if not poor or problem.value(found.coef, now) < value:
            centre, residuals = found.coef, now
            value = problem.value(centre, residuals)
        if poor:
            basis = None
            width *= 3.0
            if leverage is None:
                leverage = _leverage(problem.X)
            continue
        returning = np.flatnonzero(wrong)
        tilt = tilt - assumed[returning] @ problem.X[returning]
        fixed[returning] = 0.0
        kept = kept | wrong
        basis = columns, rows
    return None


def _band(residuals: Floats, level: _Level, width: float) -> NDArray[np.bool_]:
    """The rows whose sign is open, given how far the coefficients may still move.

    `residuals` are in units of the distance they can move.
    """
    n = len(residuals)
    size = np.abs(residuals)
    least = min(n, 4 * level.nonzeros + 60)
    thinned = size[:: max(1, n // 4000)]
    # the median, unless so many residuals tie at zero that it says nothing
    typical = max(float(np.median(thinned)), 0.4 * float(np.quantile(thinned, 0.75)))
    reach = width * typical * np.sqrt(level.nonzeros / level.rows_seen)
    share = min(0.9, max(least / n, float(np.mean(thinned <= reach))))
    kept = size <= np.quantile(thinned, share)
    if np.count_nonzero(kept) < least:
        kept = np.zeros(n, dtype=np.bool_)
        kept[np.argpartition(size, least - 1)[:least]] = True
    return np.asarray(kept)


def _leverage(X: Floats) -> Floats:
    """How far a residual moves with the coefficients, 1 for all rows but the longest."""
    length = np.sqrt(np.einsum("ij,ij->i", X, X))
    return np.asarray(np.maximum(1.0, length / max(float(np.median(length)), 1e-300)))


def _worth_keeping(coef: Floats, dual: Floats, part: TiltedProblem) -> tuple[NDArray[np.intp], int]:
    """The non-zero columns and those closest to entering, and the number of the former."""
    p = len(coef)
    active = np.abs(coef) > 1e-3 * np.abs(coef).max()
    k = max(1, int(np.count_nonzero(active)))
    # not divided: a penalty may be zero
    slack = part.mu - np.abs(part.X.T @ dual + part.tilt)
    slack[active | (part.mu <= 0.0)] = -np.inf
    count = max(k + max(10, k // 4), int(np.count_nonzero(np.isinf(slack))))
    if count >= NEARLY_ALL * p:
        return np.arange(p), k
    return np.sort(np.argpartition(slack, count - 1)[:count]), k


def _sign_duals(residuals: Floats, quantile: float) -> Floats:
    return np.where(residuals > 0.0, quantile, quantile - 1.0)
