"""The paper's tables on simulated designs: heavy tails, heterogeneity, number of nodes, density of the graph.

They differ in the design alone: a repetition draws one, runs every method on it and compares with the truth.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from desmr_node.datasets import NOISES, Design, simulated_network
from desmr_node.studies import methods, paper, tables
from desmr_node.studies.baselines import interpolating
from desmr_node.studies.measures import Estimate, accuracy
from desmr_node.studies.methods import DEFAULT, METHODS, PRINTED, Problem
from desmr_node.studies.paper import Figures
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.study import Check, Picture, Study, Table

Draw = Callable[[Cell, np.random.Generator], Design]
Methods = Mapping[str, Callable[[Problem], Estimate]]

#: In the order of the paper's tables: (n, p).
SIZES = ((100, 100), (200, 100), (200, 200))
MEASURES = ("l2_error", "recall", "precision", "f1", "rounds")
SETTINGS: Mapping[str, Any] = {
    PRINTED: methods.PRINTED_SPEC.model_dump(),
    methods.LEAST_SQUARES: methods.LEAST_SQUARES_SPEC.model_dump(),
    DEFAULT: methods.DEFAULT_SPEC.model_dump(),
    methods.SUBGRADIENT: repr(methods.STEPS),
}


def repetition(cell: Cell, seed: int, draw: Draw, compared: Methods) -> list[Row]:
    """Draw a design and run every method on it."""
    problem = Problem(draw(cell, np.random.default_rng(seed)), seed)
    return [{"method": name, **accuracy(fit(problem), problem.truth)} for name, fit in compared.items()]


def _study(
    name: str,
    title: str,
    about: str,
    cells: Sequence[Cell],
    draw: Draw,
    figures: Figures,
    shown: Sequence[str],
    compared: Methods = METHODS,
    more: Callable[[Results], list[Check]] = lambda _: [],
) -> Study:
    """A table of the paper; ``shown`` are the measures of it, ``more`` are bounds beyond the usual."""
    printed = {measure for row in figures.values() for method, measure in row if method == PRINTED}
    measured = [measure for measure in shown if measure in printed]

    def made_tables(results: Results) -> list[Table]:
        return [
            tables.against_the_paper(results, cells, figures, "l2_error"),
            *(tables.all_methods(results, cells, figures, measure) for measure in (*shown, "rounds")),
        ]

    def bounds(results: Results) -> list[Check]:
        return tables.desmr_bounds(results, cells, figures, measured) + more(results)

    def pictures(results: Results) -> list[Picture]:
        return [tables.dot_plot(results, cells, figures, "l2_error", name, title)]

    return Study(
        name=name,
        title=title,
        about=about,
        cells=tuple(cells),
        columns=MEASURES,
        run=partial(repetition, draw=draw, compared=compared),
        tables=made_tables,
        checks=bounds,
        pictures=pictures,
        settings=SETTINGS,
    )


# -- Table 1 -------------------------------------------------------------------------------------------------


def _sized(cell: Cell, rng: np.random.Generator) -> Design:
    return simulated_network(rng, noise_name=str(cell["noise"]), n=int(cell["n"]), p=int(cell["p"]))


_HEAVY: list[Cell] = [{"noise": noise, "n": n, "p": p} for noise in NOISES for n, p in SIZES]


def _found_soon(results: Results) -> list[Check]:
    """Few false variables and few rounds; as printed, about as precise as in the paper."""
    checks = []
    for cell in results.present(_HEAVY):
        name = tables.named(cell)
        for method, measure, bound in (
            (DEFAULT, "precision", 0.99),
            (PRINTED, "precision", tables.paper_figure(paper.HEAVY_TAIL, cell, PRINTED, "precision") - 0.03),
        ):
            found = results.mean(cell, method, measure)
            checks.append(Check(f"{name}: {measure}, {method}", found, bound, at_most=False))
        most = float(results.values(cell, DEFAULT, "rounds").max())
        checks.append(Check(f"{name}: most ADMM rounds, {DEFAULT}", most, 30 if cell["n"] == 200 else 60))
    return checks


HEAVY_TAIL = _study(
    "heavy-tail",
    "Four kinds of noise, deLR against deSMR (Table 1)",
    "Ten nodes on a random graph (p_c = 0.3), ten true variables, four kinds of noise.",
    _HEAVY,
    _sized,
    paper.HEAVY_TAIL,
    ("l2_error", "recall", "precision"),
    more=_found_soon,
)

# -- Tables 2 and 3 ------------------------------------------------------------------------------------------


def _mixed(cell: Cell, rng: np.random.Generator) -> Design:
    return simulated_network(
        rng,
        noise_name="cauchy",
        n=int(cell["n"]),
        p=int(cell["p"]),
        heterogeneity="covariate" if cell["differs"] == "covariate" else "noise",
    )


def _unrestrained(problem: Problem) -> Estimate:
    """Local MR with BIC over all lambdas, which at n <= p interpolates: the paper's column."""
    return Estimate.exact(np.stack([interpolating(X, y) for X, y in problem.datasets]))


HETEROGENEITY = _study(
    "heterogeneity",
    "Nodes that differ, in covariates or in noise (Tables 2 and 3)",
    "Every node draws its covariance (variance 1 or 3, correlation 0.1 or 0.3; Cauchy noise), or its kind of "
    "noise. `Local MR, any lambda` lets BIC choose lambdas at which a fit interpolates its rows, which is "
    "what explodes in the paper's columns at n <= p.",
    [{"differs": differs, "n": n, "p": p} for differs in ("covariate", "noise") for n, p in SIZES],
    _mixed,
    paper.HETEROGENEITY,
    ("l2_error", "f1"),
    METHODS | {"Local MR, any lambda": _unrestrained},
)

# -- Table 4 -------------------------------------------------------------------------------------------------

ROWS = 4000


def _complete(cell: Cell, rng: np.random.Generator) -> Design:
    m = int(cell["nodes"])
    return simulated_network(rng, noise_name=str(cell["noise"]), m=m, n=ROWS // m, connection=1.0)


NODES = _study(
    "nodes",
    "4000 rows over 5, 10 and 20 nodes (Table 4)",
    "4000 rows dealt to m nodes, every pair of which is joined; p = 100, which the paper does not say.",
    [{"noise": noise, "nodes": m} for noise, m in product(NOISES, (5, 10, 20))],
    _complete,
    paper.NODES,
    ("l2_error", "f1"),
)

# -- Table 5 -------------------------------------------------------------------------------------------------

CONNECTIONS = (0.3, 0.5, 0.8)


def _joined(cell: Cell, rng: np.random.Generator) -> Design:
    return simulated_network(rng, noise_name=str(cell["noise"]), p=50, connection=float(cell["p_c"]))


def _flat(results: Results) -> list[Check]:
    """The error does not depend on the density of the graph."""
    checks = []
    for noise in NOISES:
        cells: list[Cell] = [{"noise": noise, "p_c": p_c} for p_c in CONNECTIONS]
        if len(results.present(cells)) < len(cells):
            continue
        for method in (PRINTED, DEFAULT):
            errors = [results.mean(cell, method, "l2_error") for cell in cells]
            name = f"{noise}: largest / smallest error over p_c, {method}"
            checks.append(Check(name, float(np.max(errors) / np.min(errors)), 1.05))
    return checks


SPARSITY = _study(
    "sparsity",
    "Denser and sparser graphs (Table 5)",
    "Ten nodes on random graphs with connection probability p_c, n = 200, p = 50.",
    [{"noise": noise, "p_c": p_c} for noise, p_c in product(NOISES, CONNECTIONS)],
    _joined,
    paper.SPARSITY,
    ("l2_error", "recall", "precision"),
    more=_flat,
)
