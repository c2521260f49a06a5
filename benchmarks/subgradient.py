"""Which step rule is best for D-subGD? Every rule on the same designs, its error over that of pooled MR.

`python -m benchmarks.subgradient [--repetitions 10] [--jobs 2] [--tiny]`

500 rounds from the local fits, told the lambda that pooled median regression chose; the error it aims for is
that of the pooled fit, so a ratio of 1 is all a rule can reach. The studies use the rule with the smallest
worst ratio over the cells (`studies.methods.STEPS`); the bound says that no rule of the grid beats it by more
than one per cent.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.figures import Check, conclude, parser, repeat
from desmr_node.datasets import simulated_network
from desmr_node.studies.baselines import StepRule, subgradient_descent
from desmr_node.studies.measures import l2_error
from desmr_node.studies.methods import INNER, OUTER, STEPS, Problem

CELLS = (("normal", 200, 100), ("cauchy", 100, 100), ("cauchy", 200, 200))
FIRSTS = (0.03, 0.1, 0.3, 1.0)
RULES = [
    *(StepRule(first / 10) for first in FIRSTS),
    *(StepRule(first, power=0.5) for first in FIRSTS),
    *(StepRule(10 * first, power=1.0) for first in FIRSTS),
    *(StepRule(first, decay=decay) for first in FIRSTS for decay in (0.98, 0.99, 0.995)),
]


def ratios(seed: int, cell: tuple[str, int, int], rules: Sequence[StepRule]) -> list[float]:
    """The error of every rule over that of the pooled fit."""
    noise, n, p = cell
    problem = Problem(simulated_network(np.random.default_rng(seed), noise_name=noise, n=n, p=p), seed)
    aim = l2_error(problem.pooled.coef[None], problem.truth)
    found = []
    for rule in rules:
        coef = subgradient_descent(
            problem.datasets, problem.graph, problem.local, problem.pooled.lambda_, rule, OUTER * INNER
        )
        found.append(l2_error(coef, problem.truth) / aim)
    return found


def kind(rule: StepRule) -> str:
    """The rule as a formula."""
    if rule.decay < 1.0:
        return f"{rule.first:g} x {rule.decay:g}^t"
    return f"{rule.first:g}" + {0.0: "", 0.5: " / sqrt(1 + t)", 1.0: " / (1 + t)"}[rule.power]


def run(
    cells: Sequence[tuple[str, int, int]], rules: Sequence[StepRule], repetitions: int, jobs: int
) -> list[Check]:
    """Print a line for every rule, best first."""
    seeds = range(1000, 1000 + repetitions)  # none that a study uses
    means = np.array(
        [np.mean(repeat(partial(ratios, cell=cell, rules=rules), seeds, jobs), axis=0) for cell in cells]
    )
    print(f"{'step':<22}" + "".join(f"{noise} ({n}, {p})".rjust(20) for noise, n, p in cells))
    for k in np.argsort(means.max(axis=0)):
        used = "   used" if rules[k] == STEPS else ""
        print(f"{kind(rules[k]):<22}" + "".join(f"{ratio:>20.3f}" for ratio in means[:, k]) + used)
    worst = means.max(axis=0)
    used_worst = float(worst[list(rules).index(STEPS)])
    return [Check("worst ratio of the rule used over the best rule's", used_worst / float(worst.min()), 1.01)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and its bound."""
    chosen = parser(__doc__, 10).parse_args(argv)
    if chosen.tiny:
        return conclude(run(CELLS[:1], [StepRule(0.01), STEPS], 1, 1))
    print(
        f"D-subGD, {OUTER * INNER} rounds, {chosen.repetitions} repetitions: l2-error over that of pooled MR"
    )
    return conclude(run(CELLS, RULES, chosen.repetitions, chosen.jobs))


if __name__ == "__main__":
    raise SystemExit(main())
