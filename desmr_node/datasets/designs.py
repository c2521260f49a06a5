"""The paper's simulated networks (section 4.1): a random graph, sparse linear data, four kinds of noise."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.errors import ConfigError

#: Exp(1) is taken as the paper takes it, not centred: its median log 2 goes to the intercept.
NOISES = ("normal", "exponential", "cauchy", "t1")
#: How members may differ: in the covariance of their covariates, or in the distribution of their noise.
Heterogeneity = Literal["none", "covariate", "noise"]
#: What each member draws its covariance from (section 4.4): variances and correlations.
VARIANCES, CORRELATIONS = (1.0, 3.0), (0.1, 0.3)


@dataclass(frozen=True, slots=True)
class Design:
    """One simulated network: y = x'b + e at every node."""

    datasets: list[tuple[Matrix, Vector]]
    edges: list[tuple[int, int]]
    coef: Vector


def erdos_renyi(m: int, probability: float, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Edges of a random graph, drawn again until it is connected."""
    for _ in range(10_000):
        joined = np.triu(rng.random((m, m)) < probability, 1)
        laplacian = np.diag((joined | joined.T).sum(axis=1)) - (joined | joined.T).astype(float)
        if m == 1 or np.linalg.eigvalsh(laplacian)[1] > 1e-8:
            return [(int(j), int(k)) for j, k in np.argwhere(joined)]
    raise ConfigError(f"no connected graph of {m} nodes in 10,000 draws: raise the probability {probability}")


def noise(name: str, size: int, rng: np.random.Generator) -> Vector:
    """`size` independent errors."""
    if name == "normal":
        return rng.standard_normal(size)
    if name == "exponential":
        return rng.exponential(size=size)
    if name == "cauchy":
        return rng.standard_cauchy(size)
    if name == "t1":
        return rng.standard_t(1, size=size)
    raise ConfigError(f"noise {name!r} is unknown: choose one of {', '.join(NOISES)}")


def simulated_network(
    rng: np.random.Generator,
    *,
    noise_name: str = "normal",
    m: int = 10,
    n: int = 200,
    p: int = 100,
    connection: float = 0.3,
    correlation: float = 0.1,
    heterogeneity: Heterogeneity = "none",
) -> Design:
    """b = (1, 2, ..., 10, 0, ..., 0), x normal with covariance correlation^|i-j|.

    With ``heterogeneity="covariate"`` every member draws a variance and a correlation of its own, with
    "noise" a kind of noise; ``correlation`` or ``noise_name`` then plays no part.
    """
    edges = erdos_renyi(m, connection, rng)
    coef = np.zeros(p)
    coef[: min(10, p)] = np.arange(1, min(10, p) + 1)
    datasets = []
    for _ in range(m):
        variance, rho, name = 1.0, correlation, noise_name
        if heterogeneity == "covariate":
            variance, rho = float(rng.choice(VARIANCES)), float(rng.choice(CORRELATIONS))
        elif heterogeneity == "noise":
            name = str(rng.choice(NOISES))
        X = rng.standard_normal((n, p)) @ _factor(variance, rho, p).T
        datasets.append((X, X @ coef + noise(name, n, rng)))
    return Design(datasets, edges, coef)


@cache
def _factor(variance: float, correlation: float, p: int) -> Matrix:
    """Cholesky factor of the covariance variance * correlation^|i-j|."""
    lags = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    factor: Matrix = np.asarray(np.linalg.cholesky(variance * correlation**lags), dtype=np.float64)
    factor.setflags(write=False)
    return factor
