"""What deSMR is compared with: median regression on pooled, on local and on averaged data, subgradients.

All median regressions here are exact (`core.median`), l1-penalised and, like the paper's, without intercept.
Their lambda is the one of a path that the paper's kind of BIC likes best, see `chosen`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.graph import Graph
from desmr_node.core.median import l1_quantile, l1_quantile_path
from desmr_node.core.quadratic import Dense
from desmr_node.core.subproblem import Solver
from desmr_node.core.surrogate import check_loss
from desmr_node.core.tuning import check_grid, scores, squares_grid
from desmr_node.datasets.liars import Liar

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


# -- and with neighbours that may lie ------------------------------------------------------------------------

#: The neighbours' part of a round: own vector (p,), theirs (d, p), the weights of `metropolis` for both.
Aggregation = Callable[[Vector, Matrix, float, Vector], Vector]


def trimmed_mean(own: Vector, theirs: Matrix, weight: float, weights: Vector) -> Vector:
    """Without the largest and the smallest of the neighbours, coordinate by coordinate (BRIDGE-T)."""
    if len(theirs) < 3:
        return own
    middle: Vector = np.sort(theirs, axis=0)[1:-1]
    mean: Vector = np.concatenate([middle, own[None]]).mean(axis=0)
    return mean


def coordinate_median(own: Vector, theirs: Matrix, weight: float, weights: Vector) -> Vector:
    """The median of all, coordinate by coordinate (BRIDGE-M)."""
    median: Vector = np.median(np.concatenate([theirs, own[None]]), axis=0)
    return median


def self_centred_clipping(own: Vector, theirs: Matrix, weight: float, weights: Vector) -> Vector:
    """Differences cut to a radius (He, Karimireddy and Jaggi 2022): here the median of their lengths."""
    differences = theirs - own
    lengths = np.linalg.norm(differences, axis=1)
    radius = float(np.median(lengths))
    shrink = np.minimum(1.0, radius / np.maximum(lengths, 1e-300))
    clipped: Vector = own + (weights * shrink) @ differences
    return clipped


def robust_subgradient_descent(
    datasets: Sequence[Dataset],
    graph: Graph,
    start: Matrix,
    lambda_: float,
    rule: StepRule,
    rounds: int,
    aggregate: Aggregation,
    liars: Mapping[int, Liar],
) -> Matrix:
    """`subgradient_descent` among liars: what a node takes from its neighbours is `aggregate` of them."""
    W = metropolis(graph)
    total = sum(len(y) for _, y in datasets)
    tables = [(X, np.ascontiguousarray(X.T) * (len(datasets) / total), y) for X, y in datasets]
    B = np.array(start)
    for length in rule.lengths(rounds):
        for b, (X, Xt, y) in zip(B, tables, strict=True):
            b += length * (Xt @ np.sign(y - X @ b))
        told = {
            (j, k): liar.say(B[j][:, None], i)[:, 0]
            for j, liar in liars.items()
            for i, k in enumerate(graph.neighbours[j])
        }
        for j, liar in liars.items():
            liar.hear([B[k][:, None] for k in graph.neighbours[j]])
        after = np.array(B)
        for j, ks in enumerate(graph.neighbours):
            if j not in liars:
                theirs = np.stack([told.get((k, j), B[k]) for k in ks])
                after[j] = aggregate(B[j], theirs, float(W[j, j]), W[j, list(ks)])
        B = np.sign(after) * np.maximum(np.abs(after) - length * lambda_, 0.0)
    return B
