"""The pilot fit: a penalty that needs no hold-out set, and two steps that undo its shrinkage.

Under the model the score of the loss at the true coefficients has a known distribution given X, and Belloni
and Chernozhukov's pivotal penalty is what its largest entry reaches by chance. As a penalty it
over-shrinks. Here an l1 fit at a share of it, which finds the large coefficients and some false ones, is
followed by SCAD in local linear approximation at twice that share, which frees the former and drops the
latter: the next fit penalises coordinate k by lam_k times

    w(|b_k|) = clip((a t_k - |b_k|) / ((a - 1) t_k), 0, 1),      a = 3.7

t_k is a threshold on coefficients while lam_k is one on scores. Near its minimum the loss (1/n) sum 2 rho_q
has second derivative 2 f m_k in b_k, with f the density of the noise at its q-quantile and m_k the mean
square of column k, so that the l1 fit shrinks b_k by about lam_k / (2 f m_k). That is the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from desmr_node.core.median.problem import (
    Floats,
    QuantileProblem,
    checked_matrix,
    checked_problem,
    checked_quantile,
    checked_weights,
)
from desmr_node.core.median.solve import solve_checked

SIMULATED_ROWS = 2000
# Shares of the pivotal penalty, chosen by l2-error over n = 1 ... 2000, p = 20 ... 100, strong, weak and no
# signal, normal and Cauchy noise. With fewer than FEW_ROWS rows there is nothing to select and the full
# penalty is best.
FIRST_SHARE = 0.3
SCAD_SHARE = 0.6
FEW_ROWS = 8
SCAD_STEPS = 2
SCAD_A = 3.7


@dataclass(frozen=True, slots=True)
class Pilot:
    """A node's own fit: coefficients, the penalty level chosen, the relative duality gap of the last fit."""

    coef: Floats
    lambda_: float
    gap: float


def pivotal_lambda(
    X: ArrayLike,
    quantile: float = 0.5,
    *,
    rng: np.random.Generator,
    weights: ArrayLike | None = None,
    confidence: float = 0.9,
    margin: float = 1.1,
    draws: int = 500,
) -> float:
    """Belloni and Chernozhukov's pivotal penalty, on the scale of `l1_quantile`.

    `margin` times the `confidence` quantile of max_k |(2/n) sum_i x_ik (q - 1{u_i <= q})| / weight_k with
    uniform u_i: what the score of the loss at the truth can reach by chance. It depends on X only.
    Coordinates of weight zero are fitted freely, so the other columns count only by what those leave of
    them (with an intercept: centred).

    Parameters
    ----------
    X : (n, p) array
        Rows; of more than 2000 a random 2000 are used, and the result scaled by the root of the ratio.
    quantile : float
        Level q in (0, 1).
    rng : numpy.random.Generator
        The only source of randomness.
    weights : (p,) array, optional
        Relative penalties; none means all ones.
    confidence, margin : float
        See above.
    draws : int
        Simulated responses.

    Returns
    -------
    float
        The penalty; 0 if nothing is penalised.
    """
    rows, _ = checked_matrix(X)
    p = rows.shape[1]
    relative = checked_weights(1.0 if weights is None else weights, p, "weights")
    return _pivotal(rows, checked_quantile(quantile), rng, relative, confidence, margin, draws)


def _pivotal(
    X: Floats,
    quantile: float,
    rng: np.random.Generator,
    weights: Floats,
    confidence: float = 0.9,
    margin: float = 1.1,
    draws: int = 500,
) -> float:
    n = len(X)
    penalised = weights > 0.0
    if not penalised.any():
        return 0.0
    if n > SIMULATED_ROWS:
        X = X[np.sort(rng.choice(n, SIMULATED_ROWS, replace=False))]
    m = len(X)
    Z = X[:, penalised] / weights[penalised]
    left = _off_span(Z, X[:, ~penalised])
    # free columns that interpolate every row leave nothing to simulate
    Z = left if left.any() else Z
    scores = np.where(rng.random((draws, m)) <= quantile, quantile - 1.0, quantile) @ Z
    largest = np.abs(scores).max(axis=1) * (2.0 / m)
    return float(margin * np.quantile(largest, confidence) * np.sqrt(m / n))


def _off_span(Z: Floats, free: Floats) -> Floats:
    """The columns of Z less their projection on the free columns; entries at rounding level become zero."""
    peak = np.abs(free).max(axis=0, initial=0.0)
    free = free[:, peak > 0.0] / peak[peak > 0.0]
    if free.shape[1] == 0:
        return Z
    U, values, _ = np.linalg.svd(free, full_matrices=False)
    U = U[:, values > 1e-10 * values[0]]
    left = Z - U @ (U.T @ Z)
    return np.where(np.abs(left) > 1e-10 * np.abs(Z).max(axis=0), left, 0.0)


def pilot(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float = 0.5,
    *,
    weights: ArrayLike | None = None,
    rng: np.random.Generator,
) -> Pilot:
    """A node's first estimate from its own rows: l1 at a share of the pivotal penalty, then two SCAD steps.

    Parameters
    ----------
    X : (n, p) array
        Rows; columns of unit mean square on the network, of any kind here.
    y : (n,) array
        Response.
    quantile : float
        Level q in (0, 1).
    weights : (p,) array, optional
        Relative penalties, zero for an intercept; none means all ones.
    rng : numpy.random.Generator
        Used for the pivotal penalty.

    Returns
    -------
    Pilot
        Multiplying y by a number multiplies the coefficients by it.
    """
    problem = checked_problem(X, y, 1.0 if weights is None else weights, quantile, "weights")
    n = len(problem.y)
    square = np.einsum("ij,ij->j", problem.X, problem.X) / n
    # A column that is large here has large scores: penalised by its size, it does not raise the level of
    # the others. One that is small here is not penalised less: its coefficient would be the noise times a
    # large number.
    relative = problem.lam * np.sqrt(np.maximum(square, 1.0))
    pivotal = _pivotal(problem.X, problem.quantile, rng, relative)
    share = FIRST_SHARE + (1.0 - FIRST_SHARE) * min(1.0, FEW_ROWS / n) ** 3
    first, level = share * pivotal, max(share, SCAD_SHARE) * pivotal
    solution = solve_checked(_with_penalty(problem, first * relative))
    for _ in range(SCAD_STEPS):
        density = _noise_density(problem, solution.coef)
        if density is None:
            break
        threshold = first * relative / (2.0 * density * np.maximum(square, 1.0))
        step = _with_penalty(problem, level * relative * _scad_weight(solution.coef, threshold))
        solution = solve_checked(step, solution.coef)
    return Pilot(solution.coef, level, solution.gap)


def _with_penalty(problem: QuantileProblem, lam: Floats) -> QuantileProblem:
    return QuantileProblem(problem.X, problem.y, lam, problem.quantile, problem.peak)


def _scad_weight(coef: Floats, threshold: Floats) -> Floats:
    """The derivative of SCAD, relative to that of l1."""
    excess = SCAD_A * threshold - np.abs(coef)
    span = (SCAD_A - 1.0) * threshold
    return np.clip(np.divide(excess, span, out=np.zeros_like(span), where=span > 0.0), 0.0, 1.0)


def _noise_density(problem: QuantileProblem, coef: Floats) -> float | None:
    """The density of the noise at its quantile, from the scale of the residuals; None if they are all zero.

    A normal shape is assumed: the threshold needs the order of magnitude. Interpolated rows say nothing
    about the noise and are left out.
    """
    residuals = problem.y - problem.X @ coef
    size = np.abs(problem.y)
    residuals = residuals[np.abs(residuals) > 1e-9 * (size + np.median(size))]
    if len(residuals) == 0:
        return None
    deviation = np.abs(residuals - np.median(residuals))
    spread = float(np.median(deviation)) or float(np.mean(np.abs(residuals)))
    scale = spread / float(ndtri(0.75))
    height = float(np.exp(-0.5 * ndtri(problem.quantile) ** 2) / np.sqrt(2.0 * np.pi))
    return height / scale
