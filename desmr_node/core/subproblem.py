"""The exact local update: min_b 1/2 b'Qb - q'b + sum_k w_k |b_k|, for many right-hand sides at once.

Block principal pivoting (Judice and Pires 1994, for complementarity problems with positive definite
matrices). A column's state is a sign pattern s. Given s, the coefficients on its support solve
Q_AA b_A = q_A - w_A s_A, a k x k Cholesky; the pattern is optimal if b_A has the signs s_A and no other
gradient exceeds its weight. Otherwise all offenders change sides at once, as long as their number keeps
falling; when it stops falling only the last one does (Murty's rule), which cannot cycle. Inside the consensus
loop each problem is a small perturbation of the last, its pattern rarely changes, and one solve per column
and one product with Q for all columns suffice. Nothing of size p x p is formed per column.
"""

import numpy as np
from scipy.linalg.lapack import dposv

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.quadratic import Quadratic

#: Exchanges that may go by without fewer offenders before Murty's rule takes over.
_PATIENCE = 4
#: After this many exchanges a column is handed to coordinate descent, which stops at a looser tolerance.
_EXCHANGES = 300
_SWEEPS = 10_000
_DESCENT_SLACK = 1e4


def optimality_violation(gradient: Matrix, B: Matrix, weights: Matrix) -> Matrix:
    """Distance of the (smooth) gradient from minus the subdifferential of the penalty, elementwise."""
    at_zero = np.maximum(np.abs(gradient) - weights, 0.0)
    return np.where(B != 0, np.abs(gradient + weights * np.sign(B)), at_zero)


def solve(Q: Quadratic, rhs: Matrix, weights: Matrix, start: Matrix, tolerance: float = 1e-12) -> Matrix:
    """Minimise each column's problem.

    Parameters
    ----------
    Q : positive definite quadratic of order p
    rhs, weights, start : (p, L) arrays; weights nonnegative
    tolerance : largest violation of the optimality conditions, relative to the column's largest |rhs|

    Returns
    -------
    (p, L) array of minimisers.
    """
    slack = tolerance * np.maximum(np.abs(rhs).max(axis=0), weights.max(axis=0)) + 1e-300
    signs = np.where(weights > 0, np.sign(start), 1.0)
    B = np.zeros_like(start)
    fewest = np.full(B.shape[1], np.inf)
    patience = np.full(B.shape[1], _PATIENCE)
    left = np.arange(B.shape[1])
    for _ in range(_EXCHANGES):
        for column in left:
            B[:, column] = _on_support(Q, rhs[:, column], weights[:, column], signs[:, column])
        gradient = Q.apply(B[:, left]) - rhs[:, left]
        s, w = signs[:, left], weights[:, left]
        leaving = (B[:, left] * s < 0) & (w > 0)
        entering = (s == 0) & (np.abs(gradient) > w + slack[left])
        offenders = leaving | entering
        count = offenders.sum(axis=0)
        # An exact zero on the support is optimal too, and is no longer counted as nonzero by anyone.
        open_ = np.flatnonzero(count)
        if len(open_) == 0:
            return B
        fewer = count < fewest[left]
        patience[left] = np.where(fewer, _PATIENCE, patience[left] - 1)
        fewest[left] = np.minimum(count, fewest[left])
        murty = patience[left] < 0
        if murty.any():
            last = len(offenders) - 1 - np.argmax(offenders[::-1], axis=0)
            offenders &= ~murty | (np.arange(len(offenders))[:, None] == last)
        signs[:, left] = np.where(offenders, np.where(leaving, 0.0, -np.sign(gradient)), s)
        left = left[open_]
    B[:, left] = _coordinate_descent(
        Q, rhs[:, left], weights[:, left], start[:, left], _DESCENT_SLACK * slack[left]
    )
    return B


def _on_support(Q: Quadratic, q: Vector, w: Vector, signs: Vector) -> Vector:
    """The minimiser with these signs on the support and zero off it."""
    b = np.zeros(len(q))
    support = np.flatnonzero(signs)
    if len(support):
        block, target = Q.block(support), q[support] - w[support] * signs[support]
        _, b[support], failed = dposv(block, target)
        if failed:  # positive definite on paper, but not in floating point
            b[support] = np.linalg.lstsq(block, target, rcond=None)[0]
    return b


def _coordinate_descent(Q: Quadratic, rhs: Matrix, weights: Matrix, start: Matrix, slack: Vector) -> Matrix:
    """The slow and sure way, all columns at a time."""
    B = start.copy()
    rows = np.arange(len(B))
    H = Q.block(rows)
    gradient = H @ B - rhs
    for _ in range(_SWEEPS):
        for i in rows:
            z = B[i] - gradient[i] / H[i, i]
            threshold = weights[i] / H[i, i]
            step = z - np.clip(z, -threshold, threshold) - B[i]
            if step.any():
                B[i] += step
                gradient += H[:, i, None] * step
        if np.all(optimality_violation(gradient, B, weights).max(axis=0) <= slack):
            break
    return B
