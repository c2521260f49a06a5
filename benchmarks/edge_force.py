"""What a box on every edge's dual costs where nobody lies, and what a liar does to the nine divisions.

`python -m benchmarks.edge_force [--repetitions 25] [--jobs 2] [--tiny]`

Honest networks: every cell of the studies heavy-tail, heterogeneity, nodes and sparsity, and the three crime
scenarios, each repetition fitted with `edge_force = "auto"` and without a box. The evidence of every edge is
looked at after every outer round but the first, when pilots may be far apart. (The attacker of the crime data
has bad rows and keeps to the protocol: nobody is to accuse it.)

Then a liar is joined to all nine divisions of the crime data: its rows are those of a division with permuted
responses, what it sends is an attack of `desmr study liars`. Errors are those of the nine, over those of the
nine by themselves without a box.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from benchmarks.figures import Check, conclude, parser, repeat
from desmr_node import FitSpec
from desmr_node.core import reference
from desmr_node.core.fit import NetworkFit
from desmr_node.core.graph import Graph
from desmr_node.core.member import Member
from desmr_node.core.rows import ArrayRows
from desmr_node.datasets import crime_network
from desmr_node.datasets.crime import DIVISIONS, CrimeNetwork, Scenario
from desmr_node.datasets.liars import ATTACKS, Liar
from desmr_node.studies import STUDIES, tables
from desmr_node.studies.baselines import Dataset
from desmr_node.studies.liars import Masquerade
from desmr_node.studies.results import Cell
from desmr_node.studies.simulated import Draw

SIMULATED = ("heavy-tail", "heterogeneity", "nodes", "sparsity")
SCENARIOS: tuple[Scenario, ...] = ("original", "balanced", "attacker")
NINE = len(DIVISIONS)
#: A single liar has nobody to collude with.
LIES = tuple(attack for attack in ATTACKS if attack != "collusion")
WITHOUT, WITH = FitSpec(), FitSpec(edge_force="auto")
CRIME_WITHOUT, CRIME_WITH = (
    spec.model_copy(update={"penalty": "l1", "scaling": "none"}) for spec in (WITHOUT, WITH)
)
MOST_ERROR, MOST_ROUNDS, MOST_ERROR_WITH_A_LIAR = 1.02, 1.1, 1.05

#: The name of a study, or "crime", and one of its cells.
Place = tuple[str, Cell]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One fit: its errors (the l2-error; of crime RMSE and MAE), and what the edges showed at the most."""

    errors: tuple[float, ...]
    rounds: int
    left_out: tuple[int, ...]
    accusations: int
    excess: float
    load: float


class Watch:
    """Looks at the evidence when the members have settled, before they suspect anybody."""

    def __init__(self) -> None:
        self.excess = self.load = 0.0
        self._accused = self._now = self._if_last = 0

    def __call__(self, members: Sequence[Member]) -> None:
        """After an outer round; in the first one pilots may be far apart, and nobody is accused."""
        self._accused += self._now
        self._now = self._if_last = 0
        for member in members:
            if member.force is None or member.plan.carry is None:
                continue
            self._now += len(copy(member).suspect(last=False).accused)
            looked = copy(member)
            self._if_last += len(looked.suspect(last=True).accused)
            self.excess = max(self.excess, *(evidence.excess for evidence in looked.evidence))
            self.load = max(self.load, *(evidence.load for evidence in looked.evidence))

    @property
    def accusations(self) -> int:
        """Of one member by another, in all rounds, whatever became of them."""
        return self._accused + self._if_last


def fitted(
    datasets: Sequence[Dataset],
    edges: Sequence[tuple[int, int]],
    spec: FitSpec,
    seed: int,
    watch: Watch,
    liar: Liar | None = None,
) -> NetworkFit:
    """A fit by the plain loop; the liar, if there is one, is the last member."""
    sources = [ArrayRows.checked(X, y, f"node {j}") for j, (X, y) in enumerate(datasets)]
    lies = Masquerade({len(sources) - 1: liar}) if liar else None
    return reference.fit(
        sources, Graph.from_edges(len(sources), edges), spec, seed, watch=watch, exchange=lies
    )


def _outcome(errors: tuple[float, ...], fit: NetworkFit, watch: Watch) -> Outcome:
    return Outcome(errors, fit.admm_rounds, fit.left_out, watch.accusations, watch.excess, watch.load)


def simulated(place: Place, seed: int) -> tuple[Outcome, Outcome]:
    """One design of a cell, without the box and with it."""
    study, cell = place
    draw: Draw = cast("partial[object]", STUDIES[study].run).keywords["draw"]
    design = draw(cell, np.random.default_rng(seed))

    def run(spec: FitSpec) -> Outcome:
        fit = fitted(design.datasets, design.edges, spec, seed, watch := Watch())
        return _outcome((float(np.nanmean(np.linalg.norm(fit.coef - design.coef, axis=1))),), fit, watch)

    return run(WITHOUT), run(WITH)


def _crime(network: CrimeNetwork, spec: FitSpec, seed: int, liar: Liar | None = None) -> Outcome:
    fit = fitted(network.datasets, network.edges, spec, seed, watch := Watch(), liar)
    X, y = network.test
    errors = y - (fit.coef[:NINE] @ X.T + fit.intercept[:NINE, None])
    rmse, mae = np.sqrt(np.square(errors).mean(axis=1)), np.abs(errors).mean(axis=1)
    return _outcome((float(np.nanmean(rmse)), float(np.nanmean(mae))), fit, watch)


def honest(item: tuple[Place, int]) -> tuple[Outcome, Outcome]:
    """One repetition of a cell, without the box and with it."""
    place, seed = item
    if place[0] != "crime":
        return simulated(place, seed)
    network = crime_network(cast(Scenario, place[1]["scenario"]), np.random.default_rng(seed))
    return _crime(network, CRIME_WITHOUT, seed), _crime(network, CRIME_WITH, seed)


def lied_to(item: tuple[str, int]) -> tuple[Outcome, Outcome]:
    """The nine divisions by themselves, without a box; and with a box, a liar among them."""
    attack, seed = item
    rng = np.random.default_rng(seed)
    alone = crime_network("original", rng)
    X, y = alone.datasets[int(rng.integers(NINE))]
    joined = CrimeNetwork(
        [*alone.datasets, (X, rng.permutation(y))],
        (*alone.edges, *((j, NINE) for j in range(NINE))),
        alone.test,
        alone.test_division,
    )
    return _crime(alone, CRIME_WITHOUT, seed), _crime(joined, CRIME_WITH, seed, Liar(attack, seed))


def _ratios(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[float]:
    """Mean error with over mean error without, for each kind of error."""
    without, with_ = (np.array([outcome.errors for outcome in half]).mean(axis=0) for half in zip(*pairs))  # noqa: B905
    return [float(ratio) for ratio in with_ / without]


def _rounds(pairs: Sequence[tuple[Outcome, Outcome]]) -> tuple[float, float]:
    without, with_ = (float(np.mean([outcome.rounds for outcome in half])) for half in zip(*pairs))  # noqa: B905
    return without, with_


def nobody_lies(places: Sequence[Place], repetitions: int, jobs: int) -> Iterator[Check]:
    """A line for every cell, and the bounds."""
    print(f"{'honest networks':<48}{'error':>16}{'rounds':>8}{'with':>7}{'left out':>10}{'accused':>9}"
          f"{'excess':>8}{'load':>6}")  # fmt: skip
    errors, rounds = [], []
    every: list[Outcome] = []
    for place in places:
        pairs = repeat(honest, [(place, seed) for seed in range(repetitions)], jobs)
        ratios, (before, after) = _ratios(pairs), _rounds(pairs)
        errors += ratios
        rounds.append(after / before)
        boxed = [outcome for _, outcome in pairs]
        every += boxed
        print(
            f"{place[0] + ': ' + tables.named(place[1]):<48}{', '.join(f'{r:.4f}' for r in ratios):>16}"
            f"{before:>8.1f}{after:>7.1f}{sum(len(o.left_out) for o in boxed):>10}"
            f"{sum(o.accusations for o in boxed):>9}{max(o.excess for o in boxed):>8.1f}"
            f"{max(o.load for o in boxed):>6.1f}",
            flush=True,
        )
    yield Check("honest: most mean error, with / without", max(errors), MOST_ERROR)
    yield Check("honest: most mean ADMM rounds, with / without", max(rounds), MOST_ROUNDS)
    yield Check(f"honest: members left out in {len(every)} fits", sum(len(o.left_out) for o in every), 0)
    yield Check(f"honest: accusations in {len(every)} fits", sum(o.accusations for o in every), 0)


def one_lies(lies: Sequence[str], repetitions: int, jobs: int) -> Iterator[Check]:
    """A line for every attack, and the bounds."""
    print(f"{'a liar joined to all nine divisions':<48}{'RMSE, MAE':>16}{'rounds':>8}{'with':>7}"
          f"{'left out':>10}{'honest':>9}")  # fmt: skip
    for attack in lies:
        pairs = repeat(lied_to, [(attack, seed) for seed in range(repetitions)], jobs)
        ratios, (before, after) = _ratios(pairs), _rounds(pairs)
        out = [outcome.left_out for _, outcome in pairs]
        wronged = sum(j < NINE for places in out for j in places)
        print(
            f"{attack:<48}{', '.join(f'{r:.4f}' for r in ratios):>16}{before:>8.1f}{after:>7.1f}"
            f"{np.mean([NINE in places for places in out]):>10.0%}{wronged:>9}",
            flush=True,
        )
        for measure, ratio in zip(("RMSE", "MAE"), ratios, strict=True):
            yield Check(f"{attack}: {measure} / without the liar", ratio, MOST_ERROR_WITH_A_LIAR)
        yield Check(f"{attack}: divisions left out", wronged, 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables and their bounds."""
    chosen = parser(__doc__, repetitions=25).parse_args(argv)
    places: list[Place] = [(name, cell) for name in SIMULATED for cell in STUDIES[name].cells]
    places += [("crime", {"scenario": scenario}) for scenario in SCENARIOS]
    if chosen.tiny:
        small: list[Place] = [
            ("sparsity", {"noise": "cauchy", "p_c": 0.3}),
            ("crime", {"scenario": "original"}),
        ]
        return conclude([*nobody_lies(small, 2, 1), *one_lies(("sign-flip",), 1, 1)])
    print(f"edge_force = {WITH.strength:g}, {chosen.repetitions} repetitions of every cell")
    return conclude(
        [
            *nobody_lies(places, chosen.repetitions, chosen.jobs),
            *one_lies(LIES, chosen.repetitions, chosen.jobs),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
