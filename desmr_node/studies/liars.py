"""Beyond the paper: members that lie in what they send, and what holds against them.

Every network has ten honest members and, joined to some or all of them, liars. A liar has rows like everybody
else and adds what they say to the network's sums, as a member that agrees with its neighbours would; only its
coefficient vectors are lies (`datasets.liars`). What a liar can do to a sum is the threat model's subject.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from desmr_node.core import reference
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.graph import Graph
from desmr_node.core.member import Member
from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.datasets import simulated_network
from desmr_node.datasets.liars import ATTACKS, MEANINGS, Liar
from desmr_node.studies import baselines, methods, tables
from desmr_node.studies.baselines import Dataset
from desmr_node.studies.methods import NOTICED, STEPS
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.study import Check, DotPlot, Picture, Points, Study, Table

HONEST = 10
EVERYBODY = "all"
#: The network without its liars; and the ways of living with them.
ALONE, DROPPED, BOXED, PLAIN = "without liars", "desmr-node", "box alone", "plain ADMM"
TRIMMED, MEDIAN, CLIPPED = "trimmed mean", "coordinate median", "self-centred clipping"
SPECS: Final[Mapping[str, FitSpec]] = {
    DROPPED: FitSpec(edge_force="auto"),
    BOXED: FitSpec(edge_force="auto", suspects="report"),
    PLAIN: FitSpec(),
}
RULES: Final[Mapping[str, baselines.Aggregation]] = {
    TRIMMED: baselines.trimmed_mean,
    MEDIAN: baselines.coordinate_median,
    CLIPPED: baselines.self_centred_clipping,
}
#: Rounds of the robust subgradient methods, from the honest members' own fits.
ROUNDS = 500
MEASURES = ("worst_error", "l2_error", "recall", "precision", "rounds", "left_out", "wronged", "start_kept")

_ALL_ATTACKS: list[Cell] = [
    {"attack": attack, "liars": 1, "joined": EVERYBODY} for attack in ATTACKS if attack != "collusion"
]
_TWO: list[Cell] = [
    {"attack": attack, "liars": 2, "joined": EVERYBODY} for attack in ("collusion", "two-faced", "small-bias")
]
_FEW: list[Cell] = [
    {"attack": attack, "liars": 1, "joined": str(degree)}
    for degree, attack in product((1, 2, 3, 4, 5), ("sign-flip", "two-faced", "small-bias"))
]
_NONE: list[Cell] = [{"attack": "none", "liars": 0, "joined": EVERYBODY}]
CELLS: tuple[Cell, ...] = (*_NONE, *_ALL_ATTACKS, *_TWO, *_FEW)


@dataclass(frozen=True, slots=True)
class Infested:
    """A network with liars: the members of ``lies`` come after the honest ones."""

    datasets: Sequence[Dataset]
    edges: Sequence[tuple[int, int]]
    honest_edges: Sequence[tuple[int, int]]
    truth: Vector
    attack: str
    liars: tuple[int, ...]
    seed: int

    @classmethod
    def draw(cls, cell: Cell, seed: int) -> "Infested":
        """Ten honest members on a random graph (p_c = 0.3, Cauchy noise), and the cell's liars."""
        rng = np.random.default_rng(seed)
        count = int(cell["liars"])
        design = simulated_network(rng, noise_name="cauchy", m=HONEST)
        more = simulated_network(rng, noise_name="cauchy", m=count, connection=1.0) if count else None
        liars = tuple(range(HONEST, HONEST + count))
        edges = list(design.edges)
        for liar in liars:
            degree = HONEST if cell["joined"] == EVERYBODY else int(cell["joined"])
            edges += [(int(j), liar) for j in sorted(rng.choice(HONEST, degree, replace=False))]
        datasets = [*design.datasets, *(more.datasets if more else ())]
        return cls(datasets, edges, design.edges, design.coef, str(cell["attack"]), liars, seed)

    def cast(self) -> dict[int, Liar]:
        """The liars, each anew."""
        return {place: Liar(self.attack, self.seed + place, self.seed) for place in self.liars}


class Masquerade:
    """One ADMM round of a network with liars, for `reference.fit`."""

    def __init__(self, liars: Mapping[int, Liar]) -> None:
        self.liars = liars

    def __call__(self, members: Sequence[Member], places: Sequence[int]) -> None:
        """Liars say what they like, and seem to agree with everybody in the sums."""
        liars = {j: self.liars[place] for j, place in enumerate(places) if place in self.liars}
        sent = [member.B for member in members]
        told: dict[tuple[int, int], Matrix] = {}
        for j, liar in liars.items():
            neighbours = members[j].neighbours
            told |= {(j, k): liar.say(sent[j], i) for i, k in enumerate(neighbours)}
            liar.hear([sent[k] for k in neighbours])
        for j, member in enumerate(members):
            if j not in liars:
                received = {k: told.get((k, j), sent[k]) for k in member.neighbours}
                member.step(received, {k: [(sent[j], received[k])] for k in member.neighbours})
        for j, liar in liars.items():
            member = members[j]
            member.B = member.previous = np.ascontiguousarray(liar.mean)
            member.received = np.repeat(member.B[None], len(member.neighbours), axis=0)
            member.duals = np.zeros_like(member.duals)


def _judged(coef: Matrix, support: Mask, truth: Vector) -> dict[str, float]:
    """Of the honest members' models."""
    errors = np.linalg.norm(coef - truth, axis=1)
    true = truth != 0
    hits = np.count_nonzero(support & true, axis=1)
    found = np.count_nonzero(support, axis=1)
    return {
        "worst_error": float(errors.max()),
        "l2_error": float(errors.mean()),
        "recall": float(np.mean(hits / np.count_nonzero(true))),
        "precision": float(np.mean(hits / np.maximum(found, 1))),
    }


def _fitted(infested: Infested, spec: FitSpec, *, alone: bool = False) -> dict[str, float]:
    datasets = infested.datasets[:HONEST] if alone else infested.datasets
    sources = [ArrayRows.checked(X, y, f"node {j}") for j, (X, y) in enumerate(datasets)]
    graph = Graph.from_edges(len(sources), infested.honest_edges if alone else infested.edges)
    liars = {} if alone else infested.cast()
    with np.errstate(all="ignore"):  # plain ADMM may leave the range of numbers
        fit = reference.fit(
            sources, graph, spec, infested.seed, exchange=Masquerade(liars) if liars else None
        )
    honest = [j for j in range(HONEST) if j not in fit.left_out]
    support = np.broadcast_to(fit.support, (len(honest), len(infested.truth)))
    return {
        **_judged(np.nan_to_num(fit.coef[honest], nan=1e9), support, infested.truth),
        "rounds": float(fit.admm_rounds),
        "left_out": float(len(set(fit.left_out) & set(infested.liars))),
        "wronged": float(HONEST - len(honest)),
        "start_kept": float(fit.objective == fit.pilot_objective),
    }


def _robust(infested: Infested) -> list[Row]:
    """Decentralised subgradients from the local fits, with other ways to take the neighbours' mean."""
    graph = Graph.from_edges(len(infested.datasets), infested.edges)
    start = np.stack([baselines.chosen(X, y).coef for X, y in infested.datasets])
    lambda_ = baselines.chosen(*baselines.stacked(infested.datasets[:HONEST])).lambda_
    rows: list[Row] = []
    for name, rule in RULES.items():
        coef = baselines.robust_subgradient_descent(
            infested.datasets, graph, start, lambda_, STEPS, ROUNDS, rule, infested.cast()
        )[:HONEST]
        judged = _judged(coef, np.abs(coef) > NOTICED, infested.truth)
        none = dict.fromkeys(("left_out", "wronged", "start_kept"), 0.0)
        rows.append({"method": name, **judged, "rounds": float(ROUNDS), **none})
    return rows


def repetition(cell: Cell, seed: int) -> list[Row]:
    """One network: what its honest members end with, by every method."""
    infested = Infested.draw(cell, seed)
    rows: list[Row] = [{"method": ALONE, **_fitted(infested, SPECS[PLAIN], alone=True)}]
    rows += [{"method": name, **_fitted(infested, spec)} for name, spec in SPECS.items()]
    if cell["joined"] == EVERYBODY:
        rows += _robust(infested)
    return rows


def _named(cell: Cell) -> str:
    """A cell in a few words."""
    if not cell["liars"]:
        return "nobody lies"
    joined = "everybody" if cell["joined"] == EVERYBODY else str(cell["joined"])
    return f"{cell['attack']}, {cell['liars']} joined to {joined}"


def _tables(results: Results) -> list[Table]:
    cells = results.present(CELLS)
    ratios = tuple(_ratios(results, cell) for cell in cells)
    columns = ("attack", "liars", "joined to", "without liars", DROPPED, BOXED, PLAIN)
    notes = (
        "l2-error of the worst honest member: of the honest network by itself; and with the liars, as a "
        "multiple of that (means over repetitions).",
        "A fit that ends worse than the mean of all pilots returns that mean, to which a liar adds the pilot "
        "of its rows: in brackets how often, if ever.",
    )
    return [
        Table("Worst honest member", (*columns, TRIMMED, MEDIAN, CLIPPED), ratios, notes),
        *(
            tables.all_methods(results, cells, {}, measure)
            for measure in ("worst_error", "recall", "precision", "rounds", "left_out", "wronged")
        ),
    ]


def _ratios(results: Results, cell: Cell) -> tuple[str | float, ...]:
    alone = results.mean(cell, ALONE, "worst_error")
    others = (DROPPED, BOXED, PLAIN, TRIMMED, MEDIAN, CLIPPED)
    return (
        *tables.factors(cell),
        alone,
        *(_multiple(results, cell, name, alone) for name in others),
    )


def _multiple(results: Results, cell: Cell, method: str, alone: float) -> str:
    if not len(results.values(cell, method, "worst_error")):
        return "–"
    text = f"{tables.figure_text(results.mean(cell, method, 'worst_error') / alone)}x"
    kept = results.mean(cell, method, "start_kept")
    return f"{text} ({kept:.0%})" if kept else text


def _checks(results: Results) -> list[Check]:
    checks = []
    for cell in results.present(CELLS):
        name = _named(cell)
        alone = results.mean(cell, ALONE, "worst_error")
        ratio = results.mean(cell, DROPPED, "worst_error") / alone
        caught = results.mean(cell, DROPPED, "left_out") >= float(cell["liars"])
        bound = 1.05 if caught else 2.0
        what = "all left out, " if caught and cell["liars"] else ""
        checks.append(Check(f"{name}: {what}worst error / without liars", ratio, bound))
        for measure, least in (("recall", 1.0), ("precision", 0.95)):
            found = results.mean(cell, DROPPED, measure)
            checks.append(Check(f"{name}: {measure}", found, least, at_most=False))
        checks.append(Check(f"{name}: honest left out", results.mean(cell, DROPPED, "wronged"), 0.0))
    return checks


def _pictures(results: Results) -> list[Picture]:
    cells = results.present([*_NONE, *_ALL_ATTACKS, *_TWO])
    shown = (ALONE, DROPPED, BOXED, PLAIN, TRIMMED, MEDIAN, CLIPPED)
    points = tuple(
        Points(name, tuple(results.mean(cell, name, "worst_error") for cell in cells)) for name in shown
    )
    lines = tuple(_named(cell) for cell in cells)
    return [DotPlot(LIARS.name, LIARS.title, lines, points, "l2-error of the worst honest member")]


LIARS = Study(
    name="liars",
    title="Members that lie in what they send (ours)",
    about="Ten honest members (p_c = 0.3, n = 200, p = 100, Cauchy noise), and liars with rows of their own, "
    'joined to all of them or to some. `desmr-node` is the default with `edge_force = "auto"`, `box alone` '
    'the same with `suspects = "report"`, `plain ADMM` the default. The last three are subgradients for '
    "500 rounds with robust means. Attacks: "
    + "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    + ".",
    cells=CELLS,
    columns=MEASURES,
    run=repetition,
    tables=_tables,
    checks=_checks,
    pictures=_pictures,
    settings={name: spec.model_dump() for name, spec in SPECS.items()} | {"steps": repr(methods.STEPS)},
)
