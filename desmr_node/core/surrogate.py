"""From check loss to least squares: pseudo-responses, and the node's quadratic built a block at a time."""

from collections.abc import Iterable

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.density import kernel_distribution
from desmr_node.core.quadratic import Dense, Quadratic, Rows

#: Residuals this small, relative to the response, are ties with the fit: rounding, not evidence.
_TIE = 2.0**-36


def check_loss(residuals: Matrix, quantile: float) -> Matrix:
    """2 rho_q(r) = |r| + (2q - 1) r, elementwise: the absolute value at the median."""
    return np.abs(residuals) + (2.0 * quantile - 1.0) * residuals


def smooth_score(residuals: Matrix, quantile: float, bandwidth: float) -> Matrix:
    """psi with the jump spread over [-h, h]."""
    return quantile - 1.0 + kernel_distribution(residuals / bandwidth)


def score_function(residuals: Matrix, y: Vector, quantile: float) -> Matrix:
    """A subgradient psi of rho_q at each residual: q above the fit, q - 1 below, 0 on it.

    The paper writes 1{r <= 0} - 1/2 for -psi, which pushes interpolated rows as if they lay below the fit.
    A vertex of the pilot interpolates many rows, a constant response all of them: 0 is the value for which
    a perfect fit stays put.
    """
    psi = np.where(residuals > 0, quantile, quantile - 1.0)
    psi[np.abs(residuals) <= _TIE * (1.0 + np.abs(y))] = 0.0
    return psi


def pseudo_responses(fitted: Vector, y: Vector, density: float, quantile: float, bandwidth: float = 0.0) -> Vector:
    """Equation (pseudo-y) of the paper: x'b + psi(y - x'b) / f."""
    if bandwidth:
        return fitted + smooth_score(y - fitted, quantile, bandwidth) / density
    return fitted + score_function(y - fitted, y, quantile) / density


def gram(blocks: Iterable[tuple[Matrix, Vector]], count: int, order: int, weight: float) -> Quadratic:
    """G = weight * Z'Z: p x p where rows outnumber columns, the scaled rows themselves where they do not."""
    if count < order:
        return Rows(np.sqrt(weight) * np.concatenate([Z for Z, _ in blocks]))
    G = np.zeros((order, order))
    for Z, _ in blocks:
        G += Z.T @ Z
    return Dense(weight * G)


def linear_term(
    blocks: Iterable[tuple[Matrix, Vector]], b: Vector, density: float, quantile: float, weight: float, bandwidth: float = 0.0
) -> Vector:
    """c = weight * Z'y~ with pseudo-responses y~ at b: one pass over the rows."""
    c = np.zeros(len(b))
    for Z, y in blocks:
        c += Z.T @ pseudo_responses(Z @ b, y, density, quantile, bandwidth)
    return weight * c


def linear_term_of_squares(blocks: Iterable[tuple[Matrix, Vector]], order: int, weight: float) -> Vector:
    """c = weight * Z'y for plain least squares."""
    c = np.zeros(order)
    for Z, y in blocks:
        c += Z.T @ y
    return weight * c
