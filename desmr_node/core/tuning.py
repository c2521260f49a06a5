"""Choosing lambda: a grid that every node can compute alone, and scores that are network sums."""

from typing import Literal

import numpy as np

from desmr_node.core.arrays import Vector

Score = Literal["likelihood-ratio", "bic-squares", "bic-check"]


def universal_level(total_rows: float, columns: int, quantile: float) -> float:
    """The lambda, on the scale of the check loss, that the noise alone reaches somewhere.

    A column of unit spread has the score (1/N) sum_i 2 psi_i x_i, of standard deviation
    2 sqrt(q (1-q) / N); the largest of p such scores is about sqrt(2 log p) deviations.
    """
    deviation = 2.0 * np.sqrt(quantile * (1.0 - quantile) / max(total_rows, 1.0))
    return float(deviation * np.sqrt(2.0 * np.log(max(columns, 2))))


def check_grid(total_rows: float, columns: int, quantile: float, size: int, top: float) -> Vector:
    """`size` lambdas for the check loss, decreasing, around the universal level.

    No slope of the loss exceeds 1 (columns have unit spread), so neither does a useful lambda.
    """
    level = universal_level(total_rows, columns, quantile)
    start = min(top * level, 1.0)
    return np.geomspace(start, start / 8.0, size)


def squares_grid(largest: float, size: int) -> Vector:
    """`size` lambdas for least squares, decreasing from the smallest that leaves only the intercept."""
    return np.geomspace(largest, largest / 1000.0, size)


def scores(
    rule: Score,
    *,
    check: Vector,
    squares: Vector,
    df: Vector,
    density: float,
    quantile: float,
    total_rows: float,
    columns: int,
) -> Vector:
    """The score of each candidate lambda; the smallest wins.

    Parameters
    ----------
    check : mean over rows of 2 rho_q(y - x'b)
    squares : mean over rows of the squared surrogate residual (squared residual for loss "squared")
    df : number of nonzero coefficients, averaged over nodes
    density : agreed density of the noise at zero
    """
    import os; cost = df * (float(os.environ.get("COST","1"))*np.log(max(total_rows, 2.0)) + float(os.environ.get("A","0"))*np.log(columns))
    if rule == "likelihood-ratio":
        # Koenker and Machado (1999): 2 f / (q (1-q)) times a difference of summed check losses is chi-squared.
        return density / (quantile * (1.0 - quantile)) * total_rows * check + cost
    if rule == "bic-squares":
        return total_rows * np.log(np.maximum(squares, 1e-300)) + cost
    # Lee, Noh and Park (2014); half the usual price per coefficient, since the check loss enters once.
    return total_rows * np.log(np.maximum(check, 1e-300)) + 0.5 * cost
