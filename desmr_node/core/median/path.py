"""Exact solutions along a decreasing sequence of penalties, each starting where the last one ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from desmr_node.core.median.problem import Floats, QuantileProblem, checked_problem
from desmr_node.core.median.solve import TARGET_GAP, Scaling, sifted, solve_checked
from desmr_node.core.median.vertex import Vertex
from desmr_node.errors import ConfigError


def l1_quantile_path(
    X: ArrayLike,
    y: ArrayLike,
    lams: Sequence[float] | Floats,
    quantile: float = 0.5,
    weights: ArrayLike | None = None,
    most: int | None = None,
) -> Floats:
    """Solve for every penalty lam * weights, lam in `lams`, which decreases.

    Parameters
    ----------
    X : (n, p) array
        Rows.
    y : (n,) array
        Response.
    lams : sequence of L floats
        Penalties, none larger than the one before.
    quantile : float
        Level q in (0, 1).
    weights : (p,) array, optional
        Multiplies the penalty of each coordinate; zeros leave one unpenalised, none means all ones.
    most : int, optional
        Stop before the first solution with more nonzero coefficients than this; the first always counts.

    Returns
    -------
    (L, p) array
        One exact solution per penalty; each is certified on its own. Fewer than L rows if it stopped.
    """
    sequence = np.asarray(lams, dtype=np.float64)
    if sequence.ndim != 1 or np.any(np.diff(sequence) > 0.0):
        raise ConfigError("lams has to be a decreasing sequence of penalties: sort it from large to small")
    bad = ~((sequence >= 0.0) & np.isfinite(sequence))
    if bad.any():
        raise ConfigError(f"lams contains {sequence[bad][0]}: penalties must be finite and not negative")
    relative = 1.0 if weights is None else weights
    first = checked_problem(X, y, relative, quantile, "weights")
    path = np.zeros((len(sequence), first.X.shape[1]))
    walker = _Walker(first)
    for step, lam in enumerate(sequence):
        path[step] = walker.solve(float(lam))
        if most is not None and step and np.count_nonzero(path[step]) > most:
            return path[:step]
    return path


class _Walker:
    """Carries a vertex from one penalty to the next, or only its coefficients where the rows are sifted."""

    def __init__(self, problem: QuantileProblem) -> None:
        self._problem = problem  # its penalties are the weights
        self._coef: Floats | None = None
        self._vertex: Vertex | None = None
        # a scaling read at a large penalty would drop columns that smaller ones need
        free = self._at(0.0)
        self._scaling = Scaling.of(free)
        if len(self._scaling.columns) and problem.y.any() and not sifted(*problem.X.shape):
            self._vertex = Vertex(self._scaling.apply(free))

    def solve(self, lam: float) -> Floats:
        problem = self._at(lam)
        n, p = problem.X.shape
        if self._vertex is not None:
            mu = problem.mu[self._scaling.columns] / self._scaling.column
            if self._vertex.solve(mu, 10 * min(n, p) + 500):
                coef = self._scaling.outward(self._vertex.coef, p)
                if problem.certificate(coef, self._vertex.dual).gap <= TARGET_GAP:
                    self._coef = coef
                    return coef
        self._coef = solve_checked(problem, self._coef).coef
        return self._coef

    def _at(self, lam: float) -> QuantileProblem:
        problem = self._problem
        return QuantileProblem(problem.X, problem.y, lam * problem.lam, problem.quantile, problem.peak)


def lambda_max(X: ArrayLike, y: ArrayLike, quantile: float = 0.5, weights: ArrayLike | None = None) -> float:
    """The penalty from which on every penalised coefficient is zero.

    With weights, lam such that lam * weights does it; coordinates of weight zero stay free and are fitted
    first. It is the smallest such penalty unless residuals of that first fit tie at zero, when a smaller
    one may do. Zero if nothing is penalised.
    """
    relative = 1.0 if weights is None else weights
    problem = checked_problem(X, y, relative, quantile, "weights")
    penalised = problem.lam > 0.0
    if not penalised.any():
        return 0.0
    free = QuantileProblem(
        problem.X[:, ~penalised],
        problem.y,
        problem.lam[~penalised],
        problem.quantile,
        problem.peak[~penalised],
    )
    pull = np.abs(problem.X.T @ solve_checked(free).dual)[penalised]
    return float(np.max(pull / problem.lam[penalised]) * 2.0 / len(problem.y))
