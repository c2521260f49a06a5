"""Choosing lambda: a grid that every node can compute alone, and scores that are network sums."""

from typing import Literal

import numpy as np

from desmr_node.core.arrays import Counts, Vector

Score = Literal["likelihood-ratio", "bic-squares", "bic-check"]


def universal_level(total_rows: float, columns: int, quantile: float) -> float:
    """The lambda, on the scale of the check loss, that the noise alone reaches somewhere.

    A column of unit spread has the score (1/N) sum_i 2 psi_i x_i, of standard deviation
    2 sqrt(q (1-q) / N); the largest of p such scores is about sqrt(2 log p) deviations.
    """
    deviation = 2.0 * np.sqrt(quantile * (1.0 - quantile) / max(total_rows, 1.0))
    return float(deviation * np.sqrt(2.0 * np.log(max(columns, 2))))


def check_grid(total_rows: float, columns: int, quantile: float, penalty: str, size: int) -> Vector:
    """`size` lambdas for the check loss, decreasing by a factor of 8 in all, around the universal level.

    The l1 penalty pays for every lambda with bias and wants smaller ones than penalties that leave large
    coefficients alone. No slope of the loss exceeds 1 (columns have unit spread), so neither does a useful
    lambda. Where the grid turns out too high, `agreement` moves it down.
    """
    top = (2.0 if penalty == "l1" else 4.0) * universal_level(total_rows, columns, quantile)
    return np.geomspace(min(top, 1.0), min(top, 1.0) / 8.0, size)


def squares_grid(linear: Vector, size: int) -> Vector:
    """`size` lambdas for least squares, decreasing from the smallest that leaves only the intercept."""
    largest = max(float(np.max(np.abs(linear))), 1e-300)
    return np.geomspace(largest, largest / 1000.0, size)


def scores(
    rule: Score,
    *,
    check: Vector,
    squares: Vector,
    df: Counts,
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
    df : number of coefficients in the network's support
    density : agreed density of the noise at zero
    """
    price = np.log(max(total_rows, 2.0))
    score: Vector
    if rule == "likelihood-ratio":
        # Koenker and Machado (1999): f / (q (1-q)) times a difference of summed 2 rho_q is chi-squared.
        score = density / (quantile * (1.0 - quantile)) * total_rows * check + price * df
    elif rule == "bic-squares":
        score = total_rows * np.log(np.maximum(squares, 1e-300)) + price * df
    else:
        # After Lee, Noh and Park (2014), whose price grows with the number of columns tried.
        price += np.log(max(columns, 1))
        score = total_rows * np.log(np.maximum(check, 1e-300)) + price * df
    return score
