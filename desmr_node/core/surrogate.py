"""From check loss to least squares: pseudo-responses, and the node's quadratic built a block at a time."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.density import kernel_distribution
from desmr_node.core.quadratic import Dense, Quadratic, Rows

#: Residuals this small, relative to the response, are ties with the fit: rounding, not evidence.
_TIE = 2.0**-36


def check_loss(residuals: Matrix, quantile: float) -> Matrix:
    """2 rho_q(r) = |r| + (2q - 1) r, elementwise: the absolute value at the median."""
    return np.abs(residuals) + (2.0 * quantile - 1.0) * residuals


@dataclass(frozen=True, slots=True)
class Pseudo:
    """How pseudo-responses are made: density f, level q, and a bandwidth over which the jump is smoothed."""

    density: float
    quantile: float = 0.5
    bandwidth: float = 0.0


def score_function(residuals: Vector, y: Vector, quantile: float, bandwidth: float) -> Vector:
    """psi, the derivative of rho_q: q above the fit, q - 1 below.

    With a bandwidth h the jump is spread over [-h, h] by the kernel's distribution function: the derivative
    of rho_q convolved with the kernel. The outer loop then is Newton's method on a smooth function and
    converges; with the bare jump it keeps moving by a few tenths of a standard error for ever.

    Without (h = 0) this is the paper's 1{r <= 0} - 1/2, negated, but for exact ties. The paper pushes
    interpolated rows as if they lay below the fit; a vertex of the pilot interpolates many rows, a constant
    response all of them, and 0 is the value for which a perfect fit stays put.
    """
    if bandwidth > 0:
        return quantile - 1.0 + kernel_distribution(residuals / bandwidth)
    psi = np.where(residuals > 0, quantile, quantile - 1.0)
    psi[np.abs(residuals) <= _TIE * (1.0 + np.abs(y))] = 0.0
    return psi


def pseudo_responses(fitted: Vector, y: Vector, pseudo: Pseudo) -> Vector:
    """Equation (pseudo-y) of the paper: x'b + psi(y - x'b) / f."""
    return fitted + score_function(y - fitted, y, pseudo.quantile, pseudo.bandwidth) / pseudo.density


def gram(blocks: Iterable[tuple[Matrix, Vector]], count: int, order: int, weight: float) -> Quadratic:
    """G = weight * Z'Z: p x p where rows outnumber columns, the scaled rows themselves where they do not."""
    if count < order:
        return Rows(np.sqrt(weight) * np.concatenate([Z for Z, _ in blocks]))
    G = np.zeros((order, order))
    for Z, _ in blocks:
        G += Z.T @ Z
    return Dense(weight * G)


def linear_term(blocks: Iterable[tuple[Matrix, Vector]], b: Vector, weight: float, pseudo: Pseudo) -> Vector:
    """c = weight * Z'y~ with pseudo-responses y~ at b: one pass over the rows."""
    c = np.zeros(len(b))
    for Z, y in blocks:
        c += Z.T @ pseudo_responses(Z @ b, y, pseudo)
    return weight * c


def linear_term_of_squares(blocks: Iterable[tuple[Matrix, Vector]], order: int, weight: float) -> Vector:
    """c = weight * Z'y for plain least squares."""
    c = np.zeros(order)
    for Z, y in blocks:
        c += Z.T @ y
    return weight * c
