"""The methods that the studies compare, by the names their tables use.

The three decentralised fits run the plain loop of `core.reference`: what a network of nodes computes (tests
hold the two to 1e-10), without the cost of its messages, which only the study `rounds` needs.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from desmr_node.core import reference
from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.fit import NetworkFit
from desmr_node.core.graph import Graph
from desmr_node.core.member import Member
from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.datasets import Design
from desmr_node.studies import baselines
from desmr_node.studies.baselines import Dataset, StepRule, Tuned
from desmr_node.studies.measures import Estimate

POOLED, LOCAL, AVERAGE, SUBGRADIENT = "Pooled MR", "Local MR", "Avg. MR", "D-subGD"
LEAST_SQUARES, PRINTED, DEFAULT, ORACLE = "deLR", "deSMR as printed", "desmr-node", "oracle"

#: The schedule of section 4.2 of the paper.
OUTER, INNER = 10, 50
#: Number of nonzero coefficients in all simulated designs; the printed bandwidth wants to know it.
SPARSITY = 10

#: The algorithm as printed, its two slips mended (docs/paper-notes.md).
PRINTED_SPEC: Final = FitSpec(
    update="linearised",
    metric="identity",
    penalty="l1",
    score="bic-check",
    smoothing="none",
    bandwidth="paper",
    sparsity=SPARSITY,
    outer=OUTER,
    inner=INNER,
    tolerance=0.0,
    intercept=False,
)
#: The same inner loop on the responses themselves, for as many rounds.
LEAST_SQUARES_SPEC: Final = FitSpec(
    loss="squared",
    update="linearised",
    metric="identity",
    penalty="l1",
    outer=OUTER,
    inner=INNER,
    tolerance=0.0,
    intercept=False,
)
DEFAULT_SPEC: Final = FitSpec()
#: The best of the rules that `python -m benchmarks.subgradient` tries, for the loss of a response whose noise
#: is of order one.
STEPS: Final = StepRule(first=0.3, decay=0.99)

#: Subgradients leave small numbers where zeros belong: D-subGD is said to hold a coefficient from here on, a
#: hundredth of the smallest true one.
NOTICED: Final = 0.01


class Problem:
    """One repetition of a simulated design, and what several methods need of it, computed once."""

    def __init__(self, design: Design, seed: int) -> None:
        self.datasets: Sequence[Dataset] = design.datasets
        self.edges, self.truth, self.seed = design.edges, design.coef, seed
        self.graph = Graph.from_edges(len(design.datasets), design.edges)

    @cached_property
    def sources(self) -> list[ArrayRows]:
        """The rows, as members read them."""
        return [ArrayRows.checked(X, y, f"node {j}") for j, (X, y) in enumerate(self.datasets)]

    @cached_property
    def pooled(self) -> Tuned:
        """Median regression of all rows."""
        return baselines.chosen(*baselines.stacked(self.datasets))

    @cached_property
    def local(self) -> Matrix:
        """Every node's own median regression: (m, p)."""
        return np.stack([baselines.chosen(X, y).coef for X, y in self.datasets])

    def fit(
        self,
        spec: FitSpec,
        initials: Matrix | None = None,
        watch: Callable[[Sequence[Member]], None] | None = None,
    ) -> NetworkFit:
        """A decentralised fit; ``initials`` (m, p) in the place of the pilots."""
        models = None if initials is None else [(b, 0.0) for b in initials]
        return reference.fit(self.sources, self.graph, spec, self.seed, initials=models, watch=watch)


def of_network(fit: NetworkFit) -> Estimate:
    """The members' models; a coefficient counts as nonzero if the network agreed on it."""
    return Estimate(fit.coef, np.broadcast_to(fit.support, fit.coef.shape), fit.admm_rounds)


def pooled(problem: Problem) -> Estimate:
    """Exact l1 median regression of all rows together: what nobody may compute."""
    return Estimate.exact(problem.pooled.coef)


def local(problem: Problem) -> Estimate:
    """Every node by itself, exactly."""
    return Estimate.exact(problem.local)


def average(problem: Problem) -> Estimate:
    """The mean of the local fits."""
    return Estimate.exact(problem.local.mean(axis=0))


def subgradient(problem: Problem) -> Estimate:
    """D-subGD from the local fits, as many rounds as deSMR, told the lambda that the pooled fit chose."""
    rounds = OUTER * INNER
    coef = baselines.subgradient_descent(
        problem.datasets, problem.graph, problem.local, problem.pooled.lambda_, STEPS, rounds
    )
    return Estimate(coef, np.abs(coef) > NOTICED, rounds)


def least_squares(problem: Problem) -> Estimate:
    """The paper's deLR."""
    return of_network(problem.fit(LEAST_SQUARES_SPEC))


def printed(problem: Problem) -> Estimate:
    """The paper's deSMR, from the local fits."""
    return of_network(problem.fit(PRINTED_SPEC, problem.local))


def default(problem: Problem) -> Estimate:
    """`FitSpec()`."""
    return of_network(problem.fit(DEFAULT_SPEC))


def oracle(problem: Problem) -> Estimate:
    """Unpenalised median regression of all rows, told which variables are true."""
    return Estimate.exact(baselines.told_the_support(problem.datasets, problem.truth))


METHODS: Final[dict[str, Callable[[Problem], Estimate]]] = {
    POOLED: pooled,
    LOCAL: local,
    AVERAGE: average,
    SUBGRADIENT: subgradient,
    LEAST_SQUARES: least_squares,
    PRINTED: printed,
    DEFAULT: default,
    ORACLE: oracle,
}
#: What each is, for people who meet it in a table.
MEANINGS: Final[dict[str, str]] = {
    POOLED: "exact l1 median regression of all rows together, which nobody may compute",
    LOCAL: "every node by itself, exactly",
    AVERAGE: "the mean of the local fits",
    SUBGRADIENT: "decentralised subgradient descent, 500 rounds from the local fits, best of 24 step rules",
    LEAST_SQUARES: "the paper's least squares over the same network, at most 500 rounds",
    PRINTED: "the paper's algorithm, slips mended: l1, 10 x 50 linearised rounds from the local fits",
    DEFAULT: "this project's default, `FitSpec()`; in `crime` with l1, in `initial` one outer round of it",
    ORACLE: "unpenalised median regression of all rows, told which variables are true",
}


def perturbed(truth: Vector, members: int, deviation: float, rng: np.random.Generator) -> Matrix:
    """The truth with normal noise on its nonzero coefficients, another draw for every node: (m, p)."""
    noise = rng.normal(0.0, deviation, size=(members, len(truth)))
    return np.where(truth != 0, truth + noise, 0.0)
