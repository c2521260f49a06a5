"""What deSMR is compared with: median regression on pooled, on local and on averaged data, subgradients.

All median regressions here are exact (`core.median`), l1-penalised and, like the paper's, without intercept.
Their lambda is the one of a path that the paper's kind of BIC likes best, see `chosen`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.graph import Graph
from desmr_node.core.median import l1_quantile, l1_quantile_path
from desmr_node.core.quadratic import Dense
from desmr_node.core.subproblem import Solver
from desmr_node.core.surrogate import check_loss
from desmr_node.core.tuning import check_grid, scores, squares_grid

Dataset = tuple[Matrix, Vector]

#: Candidates for the lambda of a baseline, decreasing by a factor of 8 around the universal level.
_CANDIDATES = 16


def stacked(datasets: Sequence[Dataset]) -> Dataset:
    """All rows in one table, which no member of a network ever holds."""
    return np.concatenate([X for X, _ in datasets]), np.concatenate([y for _, y in datasets])


@dataclass(frozen=True, slots=True)
class Tuned:
    """A fit and the lambda it was chosen for."""

    coef: Vector
    lambda_: float
    intercept: float = 0.0


def chosen(X: Matrix, y: Vector, *, intercept: bool = False) -> Tuned:
    """Exact l1 median regression at the lambda with the smallest N log(mean |r|) + df log(N p).

    Only fits that leave three quarters of the rows as degrees of freedom are candidates: where there are as
    many columns as rows, a small enough lambda interpolates every row, the logarithm is minus infinity, and
    BIC would choose nothing else.
    """
    lambdas = _candidates(X)
    weights = np.ones(X.shape[1])
    if intercept:
        X, weights = np.column_stack([np.ones(len(y)), X]), np.append(0.0, weights)
    path = l1_quantile_path(X, y, lambdas, weights=weights, most=len(y) // 4)
    best = int(np.argmin(_bic(X, y, path)))
    constant = float(path[best, 0]) if intercept else 0.0
    return Tuned(path[best, int(intercept) :], float(lambdas[best]), constant)


def interpolating(X: Matrix, y: Vector) -> Vector:
    """The same choice among all lambdas, down to the one next to zero, without that restraint."""
    path = l1_quantile_path(X, y, np.append(_candidates(X), 1e-9))
    best: Vector = path[int(np.argmin(_bic(X, y, path)))]
    return best


def _candidates(X: Matrix) -> Vector:
    """Lambdas around the universal level, for columns of the size these have."""
    n, p = X.shape
    return check_grid(n, p, 0.5, "l1", _CANDIDATES) * float(np.sqrt(np.mean(np.square(X))))


def _bic(X: Matrix, y: Vector, path: Matrix) -> Vector:
    n, p = X.shape
    return scores(
        "bic-check",
        check=check_loss(y - path @ X.T, 0.5).mean(axis=1),
        squares=np.zeros(len(path)),
        df=np.count_nonzero(path, axis=1),
        density=1.0,
        quantile=0.5,
        total_rows=n,
        columns=p,
    )


def told_the_support(datasets: Sequence[Dataset], truth: Vector) -> Vector:
    """The oracle: unpenalised median regression, with an intercept, on the true variables of all rows."""
    support = np.flatnonzero(truth)
    X, y = stacked(datasets)
    coef = np.zeros_like(truth)
    coef[support] = l1_quantile(np.column_stack([np.ones(len(y)), X[:, support]]), y, 0.0)[1:]
    return coef


def lasso(X: Matrix, y: Vector) -> Vector:
    """The lasso without intercept, its lambda chosen by n log(mean square) + df log n on a path of 50."""
    n, p = X.shape
    G, c = X.T @ X / n, X.T @ y / n
    lambdas = squares_grid(c, 50)
    rhs = np.repeat(c[:, None], 50, axis=1)
    path = Solver(Dense(G)).solve(rhs, np.tile(lambdas, (p, 1)), np.zeros((p, 50)))
    squares = np.square(y[:, None] - X @ path).mean(axis=0)
    score = n * np.log(squares) + np.log(n) * np.count_nonzero(path, axis=0)
    return path[:, int(np.argmin(score))]


# -- decentralised subgradient descent ---------------------------------------------------------------------


def metropolis(graph: Graph) -> Matrix:
    """Weights for averaging with neighbours: doubly stochastic, and every node can compute its own."""
    degree = np.array([len(ks) for ks in graph.neighbours])
    W = graph.adjacency() / (1.0 + np.maximum.outer(degree, degree))
    weights: Matrix = W + np.diag(1.0 - W.sum(axis=1))
    return weights


@dataclass(frozen=True, slots=True)
class StepRule:
    """Length of step t = 0, 1, ...: first * decay^t / (1 + t)^power."""

    first: float
    power: float = 0.0
    decay: float = 1.0

    def lengths(self, rounds: int) -> Vector:
        """All of them."""
        t = np.arange(rounds)
        return self.first * self.decay**t / (1.0 + t) ** self.power


def subgradient_descent(
    datasets: Sequence[Dataset],
    graph: Graph,
    start: Matrix,
    lambda_: float,
    rule: StepRule,
    rounds: int,
    watch: Callable[[int, Matrix], None] | None = None,
) -> Matrix:
    """Decentralised subgradient descent (Wang and Li) on (1/N) sum |y - x'b| + lambda |b|_1: (m, p).

    Each round a node steps down its own subgradient, averages with its neighbours, and applies the penalty
    by soft-thresholding, which gives it exact zeros; a plain subgradient of the penalty never does. ``watch``
    is shown the number of every round and the coefficients after it.
    """
    W = metropolis(graph)
    total = sum(len(y) for _, y in datasets)
    tables = [(X, np.ascontiguousarray(X.T) * (len(datasets) / total), y) for X, y in datasets]
    B = np.array(start)
    for done, length in enumerate(rule.lengths(rounds), 1):
        for b, (X, Xt, y) in zip(B, tables, strict=True):
            b += length * (Xt @ np.sign(y - X @ b))
        B = W @ B
        B = np.sign(B) * np.maximum(np.abs(B) - length * lambda_, 0.0)
        if watch:
            watch(done, B)
    return B
