"""Many nodes, and many more columns than rows: time, memory and what is found.

`python -m benchmarks.scale [--tiny]`

Default `FitSpec` (20 lambdas, SCAD, lambda chosen) on the paper's design with Cauchy noise: 200 nodes with
100 columns, on a sparse and on a dense graph; then 10 nodes of 200 rows with 2000 columns, in the pooled
metric and in the identity. Each fit runs in a process of its own; its peak is anonymous memory (RssAnon).
The number in brackets is the probability of an edge; "cpu s" is the time a quiet machine would take.
"matrices" is memory in units of one p x p matrix. The pooled metric needs a few for each node; none may be
formed for each lambda, so what a node allocates within one round (by tracemalloc) stays below one.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import Check, apart, conclude, parser
from desmr_node import FitSpec, simulate
from desmr_node.core.graph import Graph
from desmr_node.core.reference import prepare
from desmr_node.core.rows import ArrayRows
from desmr_node.datasets import simulated_network


@dataclass(frozen=True, slots=True)
class Case:
    """A simulated network and how it is fitted."""

    m: int
    n: int
    p: int
    connection: float
    metric: str = "pooled"

    def __str__(self) -> str:
        return f"m={self.m} n={self.n} p={self.p} ({self.connection:g}) {self.metric}"

    @property
    def matrix(self) -> float:
        """MB of one p x p matrix, the intercept included."""
        return (self.p + 1) ** 2 * 8 / 1e6


MANY = (Case(200, 200, 100, 0.05), Case(200, 200, 100, 0.3))
WIDE = (Case(10, 200, 2000, 0.3), Case(10, 200, 2000, 0.3, "identity"))
TINY_MANY = (Case(12, 60, 20, 0.3),)
TINY_WIDE = (Case(12, 30, 120, 0.3), Case(12, 30, 120, 0.3, "identity"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One fit."""

    seconds: float
    processor: float
    error: float
    recall: float
    precision: float
    admm_rounds: int
    converged: bool


def fit(case: Case) -> Outcome:
    """Draw the network, fit it, measure."""
    design = simulated_network(
        np.random.default_rng(0),
        noise_name="cauchy",
        m=case.m,
        n=case.n,
        p=case.p,
        connection=case.connection,
    )
    begin, processor = time.perf_counter(), time.process_time()
    found = simulate(design.datasets, design.edges, FitSpec(metric=case.metric))
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    true = design.coef != 0
    hits = int(np.count_nonzero(found.support & true))
    return Outcome(
        seconds=seconds,
        processor=processor,
        error=float(np.linalg.norm(found.coef - design.coef, axis=1).mean()),
        recall=hits / int(np.count_nonzero(true)),
        precision=hits / max(int(np.count_nonzero(found.support)), 1),
        admm_rounds=found.admm_rounds,
        converged=found.converged,
    )


def round_megabytes(case: Case) -> float:
    """The most that a node allocates on top of its state within one of the first three rounds."""
    design = simulated_network(
        np.random.default_rng(0), noise_name="cauchy", m=3, n=case.n, p=case.p, connection=1.0
    )
    sources = [ArrayRows.checked(X, y, f"node {j}") for j, (X, y) in enumerate(design.datasets)]
    network = prepare(sources, Graph.from_edges(3, design.edges), FitSpec(metric=case.metric))
    network.open(network.plan)
    most = 0
    tracemalloc.start()
    for _ in range(3):
        sent = [member.B for member in network.members]
        for member in network.members:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            received = {k: sent[k] for k in member.neighbours}
            member.step(received, {k: [(member.B, B)] for k, B in received.items()})
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return most / 1e6


def line(case: Case, got: Outcome, peak: float) -> str:
    """A row of the table."""
    return (
        f"{case!s:<36}{got.seconds:>8.1f}{got.processor:>7.1f}{peak:>9.0f}{got.error:>10.3f}{got.recall:>8.2f}{got.precision:>11.2f}"
        f"{got.admm_rounds:>8}{'yes' if got.converged else 'no':>11}"
    )


def run(many: Sequence[Case], wide: Sequence[Case], seconds: float, within: float) -> list[Check]:
    """Print a line per case; `within` bounds a round's allocations, in matrices."""
    print(f"{'case':<36}{'seconds':>8}{'cpu s':>7}{'peak MB':>9}{'l2-error':>10}{'recall':>8}"
          f"{'precision':>11}{'rounds':>8}{'converged':>11}")  # fmt: skip
    checks = []
    for case in many:
        got, peak = apart(fit, case)
        print(line(case, got, peak), flush=True)
        checks.append(Check(f"{case}: seconds", got.seconds, seconds))
        checks.append(Check(f"{case}: recall", got.recall, 1.0, at_most=False))
    for case in wide:
        got, peak = apart(fit, case)
        print(line(case, got, peak), flush=True)
        allocated, _ = apart(round_megabytes, case)
        checks.append(Check(f"{case}: recall", got.recall, 1.0, at_most=False))
        checks.append(Check(f"{case}: matrices within a round", allocated / case.matrix, within))
        if case.p >= 1000:  # below, the interpreter is larger than the fit
            each = 4.0 if case.metric == "pooled" else 1.0
            checks.append(Check(f"{case}: matrices at the peak", peak / case.matrix, each * case.m))
    return checks


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and its bounds."""
    chosen = parser(__doc__).parse_args(argv)
    print("scale, Cauchy noise, 20 lambdas")
    if chosen.tiny:
        return conclude(run(TINY_MANY, TINY_WIDE, 10.0, 10.0))
    return conclude(run(MANY, WIDE, 60.0, 1.0))


if __name__ == "__main__":
    raise SystemExit(main())
