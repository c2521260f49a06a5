"""How soon do all nodes hold the pooled solution? The crime data, nine divisions, one fixed quadratic.

`python -m benchmarks.consensus [--rounds 250] [--tiny]`

Least squares, and the median's first surrogate (pseudo-responses at the pilots), l1, lambda 0.03, the whole
table scaled to mean 0 and deviation 1. The distance is the largest absolute difference between any node's
coefficients, the intercept included, and the pooled optimum, which plain coordinate descent on the pooled
rows finds on its own. The bound is for the default update; the others are printed beside it.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Check, conclude, parser
from desmr_node import FitSpec, simulate
from desmr_node.core.graph import Graph
from desmr_node.core.reference import Prepared, lock_step, prepare
from desmr_node.core.rows import ArrayRows
from desmr_node.core.surrogate import Pseudo, pseudo_responses
from desmr_node.datasets.crime import BORDERS, DIVISIONS, load_crime

Floats = NDArray[np.float64]

LAMBDA = 0.03
CLOSE = 1e-6
SHOWN = (30, 60, 100, 150, 200, 250)
#: (update, metric): the default first, the paper's last.
FORMS = (("exact", "pooled"), ("exact", "identity"), ("linearised", "identity"))


@dataclass(frozen=True, slots=True)
class Approach:
    """Distance to the pooled optimum after each round, and the error of that optimum itself."""

    distances: Floats
    violation: float

    @property
    def first_close(self) -> int | None:
        """The first round after which all nodes are close."""
        close = np.flatnonzero(self.distances <= CLOSE)
        return int(close[0]) + 1 if len(close) else None


def divisions() -> list[tuple[Floats, Floats]]:
    """The whole table by division, every variable with mean 0 and deviation 1."""
    table = load_crime()
    X = (table.X - table.X.mean(axis=0)) / table.X.std(axis=0, ddof=1)
    y = (table.y - table.y.mean()) / table.y.std(ddof=1)
    return [(X[table.division == j], y[table.division == j]) for j in range(len(DIVISIONS))]


def settings(loss: str, update: str, metric: str, rounds: int) -> FitSpec:
    """One outer round of `rounds` ADMM rounds."""
    return FitSpec(loss=loss, update=update, metric=metric, penalty="l1", lambda_=LAMBDA, scaling="none",
                   outer=1, inner=rounds, tolerance=0.0)  # fmt: skip


def coordinate_descent(G: Floats, c: Floats, weights: Floats) -> tuple[Floats, float]:
    """min_b b'Gb/2 - c'b + sum_k weights_k |b_k|, one coordinate at a time; and the violation it leaves."""
    b = np.zeros(len(c))
    gradient = -c
    for _ in range(20_000):
        largest = 0.0
        for k in range(len(b)):
            z = b[k] - gradient[k] / G[k, k]
            step = np.sign(z) * max(abs(z) - weights[k] / G[k, k], 0.0) - b[k]
            if step:
                b[k] += step
                gradient += step * G[:, k]
                largest = max(largest, abs(step))
        if largest <= 1e-14:
            break
    gradient = G @ b - c
    violation = np.where(b != 0, np.abs(gradient + weights * np.sign(b)), np.abs(gradient) - weights)
    return b, float(max(violation.max(), 0.0))


def pooled_optimum(
    datasets: Sequence[tuple[Floats, Floats]], network: Prepared, loss: str
) -> tuple[Floats, float]:
    """The optimum over all rows together; of the members only the pilots are used, for the median."""
    X = np.concatenate([X for X, _ in datasets])
    y = np.concatenate([y for _, y in datasets])
    Z = np.column_stack([np.ones(len(y)), X])
    weights = np.concatenate([[0.0], np.full(X.shape[1], LAMBDA)])
    if loss == "median":
        unit, plan = network.ground.scaling.unit, network.plan
        fitted = np.concatenate(
            [
                member.settled[0] + X @ member.settled[1:]
                for member, (X, _) in zip(network.members, datasets, strict=True)
            ]
        )
        y = unit * pseudo_responses(fitted, y / unit, Pseudo(plan.density, 0.5, plan.bandwidth))
        # The check loss has curvature 2 f; f is agreed in units of the scaled response.
        weights *= unit / (2.0 * plan.density)
    return coordinate_descent(Z.T @ Z / len(y), Z.T @ y / len(y), weights)


def approach(loss: str, update: str, metric: str, rounds: int) -> Approach:
    """Run the rounds and look at every node after each."""
    datasets = divisions()
    sources = [ArrayRows.checked(X, y, DIVISIONS[j]) for j, (X, y) in enumerate(datasets)]
    network = prepare(
        sources, Graph.from_edges(len(sources), BORDERS), settings(loss, update, metric, rounds)
    )
    optimum, violation = pooled_optimum(datasets, network, loss)
    unit = network.ground.scaling.unit
    network.open(network.plan)
    distances = np.empty(rounds)
    for t in range(rounds):
        lock_step(network.members)
        distances[t] = max(np.abs(unit * member.B[:, 0] - optimum).max() for member in network.members)
    return Approach(distances, violation)


def through_simulate(rounds: int) -> float:
    """The same distance, for least squares, of what `simulate` returns."""
    datasets = divisions()
    fit = simulate(datasets, BORDERS, settings("squared", "exact", "pooled", rounds))
    X = np.concatenate([X for X, _ in datasets])
    y = np.concatenate([y for _, y in datasets])
    Z = np.column_stack([np.ones(len(y)), X])
    weights = np.concatenate([[0.0], np.full(X.shape[1], LAMBDA)])
    optimum, _ = coordinate_descent(Z.T @ Z / len(y), Z.T @ y / len(y), weights)
    return float(np.abs(np.column_stack([fit.intercept, fit.coef]) - optimum).max())


def run(rounds: int, close: float = CLOSE, forms: Sequence[tuple[str, str]] = FORMS) -> list[Check]:
    """Print a line per loss and form."""
    shown = [t for t in SHOWN if t <= rounds]
    print(f"{'loss':<9}{'update':<12}{'metric':<10}" + "".join(f"{t:>9}" for t in shown) + "   below 1e-6")
    checks = []
    for loss in ("squared", "median"):
        for update, metric in forms:
            got = approach(loss, update, metric, rounds)
            first = "never" if got.first_close is None else f"round {got.first_close}"
            distances = "".join(f"{got.distances[t - 1]:>9.1e}" for t in shown)
            print(f"{loss:<9}{update:<12}{metric:<10}{distances}   {first}", flush=True)
            if (update, metric) == FORMS[0]:
                last = float(got.distances[-1])
                checks.append(Check(f"{loss}: distance after {rounds} rounds", last, close))
                checks.append(Check(f"{loss}: violation left by coordinate descent", got.violation, 1e-12))
    checks.append(Check("squared: distance of simulate()'s result", through_simulate(rounds), close))
    return checks


def main(argv: Sequence[str] | None = None) -> int:
    """Print the distances and their bounds."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=250, help="default %(default)s")
    chosen = options.parse_args(argv)
    print(f"consensus on the crime data, lambda {LAMBDA}: distance to the pooled optimum by round")
    if chosen.tiny:
        return conclude(run(60, close=0.02, forms=FORMS[:1]))
    return conclude(run(chosen.rounds))


if __name__ == "__main__":
    raise SystemExit(main())
