"""The paper's Proposition 1: the inner loop converges linearly, at a rate that the graph sets."""

from itertools import product

import numpy as np

from desmr_node.core.agreement import Plan
from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.member import Member
from desmr_node.core.quadratic import Dense
from desmr_node.core.reference import lock_step, prepare
from desmr_node.core.subproblem import Solver
from desmr_node.core.tuning import universal_level
from desmr_node.datasets import simulated_network
from desmr_node.studies import methods
from desmr_node.studies.methods import DEFAULT, PRINTED, Problem
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.study import Check, CurvePlot, Line, Panel, Study, Table

CONNECTIONS = (0.3, 0.5, 0.8)
ROUNDS, EVERY = 200, 5
#: Distances below this are rounding.
FLOOR = 1e-11
#: The first rounds, in which the support is still found, are no part of the fitted line.
SETTLING = 20
_SPECS = {PRINTED: methods.PRINTED_SPEC, DEFAULT: methods.DEFAULT_SPEC}

CELLS: tuple[Cell, ...] = tuple({"p_c": p_c} for p_c in CONNECTIONS)


def pooled_solution(members: list[Member], plan: Plan) -> Matrix:
    """The minimiser of the sum of all members' surrogates, which no member ever sees: (p, L)."""
    order = members[0].ground.scaling.order
    gram = sum((member.quadratic.apply(np.eye(order)) for member in members), np.zeros((order, order)))
    linear = np.sum([member.linear for member in members], axis=0)
    slopes = np.sum([member.objective.slopes for member in members], axis=0)
    count = len(plan.lambdas)
    return Solver(Dense(gram)).solve(
        np.repeat(linear[:, None], count, axis=1), slopes, np.zeros((order, count))
    )


def distances(problem: Problem, method: str, rounds: int) -> Vector:
    """||B_t - B^||_F after each round of the first outer round, relative to the start's; lambda is fixed."""
    n, p = problem.datasets[0][0].shape
    level = universal_level(n * len(problem.datasets), p, 0.5)
    spec = _SPECS[method].model_copy(update={"lambda_": level, "outer": 1, "inner": rounds})
    initials = [(b, 0.0) for b in problem.local] if method == PRINTED else None
    network = prepare(problem.sources, problem.graph, spec, problem.seed, initials)
    network.open(network.plan)
    target = pooled_solution(network.members, network.plan)

    def distance() -> float:
        return float(np.sqrt(sum(np.sum((member.B - target) ** 2) for member in network.members)))

    found = [distance()]
    for _ in range(rounds):
        lock_step(network.members)
        found.append(distance())
    relative: Vector = np.array(found) / found[0]
    return relative


def repetition(cell: Cell, seed: int) -> list[Row]:
    """The logarithm of the distance, every few rounds."""
    rng = np.random.default_rng(seed)
    problem = Problem(simulated_network(rng, noise_name="cauchy", connection=float(cell["p_c"])), seed)
    rows: list[Row] = []
    for method in _SPECS:
        gone = np.log10(np.maximum(distances(problem, method, ROUNDS), 1e-17))
        rows += [
            {"method": method, "rounds": t, "log10_distance": float(gone[t])}
            for t in range(0, ROUNDS + 1, EVERY)
        ]
    return rows


def fitted_rate(rounds: Vector, log10_distance: Vector) -> tuple[float, float, Vector]:
    """gamma of distance = C gamma^t after the settling rounds, the R^2 of that line, and the line itself."""
    used = (rounds >= SETTLING) & (log10_distance > np.log10(FLOOR))
    if np.count_nonzero(used) < 3:
        used = log10_distance > np.log10(FLOOR)
    slope, offset = np.polyfit(rounds[used], log10_distance[used], 1)
    line = offset + slope * rounds
    left = np.square(log10_distance[used] - line[used]).sum()
    whole = np.square(log10_distance[used] - log10_distance[used].mean()).sum()
    return float(10.0**slope), float(1.0 - left / whole), line


def _tables(results: Results) -> list[Table]:
    rows: list[tuple[str | float, ...]] = []
    for cell, method in product(results.present(CELLS), _SPECS):
        x, y = results.curve(cell, method, "rounds", "log10_distance")
        rate, determination, _ = fitted_rate(x, y)
        at = [float(10.0 ** y[x == t][0]) for t in (10, 50, 100, 200)]
        rows.append((str(cell["p_c"]), method, rate, determination, *(f"{d:.1e}" for d in at)))
    columns = ("p_c", "method", "rate γ", "R²", *(f"after {t}" for t in (10, 50, 100, 200)))
    notes = (
        "Distance of all nodes to the pooled solution, relative to the start: geometric mean over "
        "repetitions. γ: fitted factor per round, R² of the straight line in the logarithm.",
    )
    return [Table("Linear convergence of the inner loop", columns, tuple(rows), notes)]


def _checks(results: Results) -> list[Check]:
    checks = []
    for cell, method in product(results.present(CELLS), _SPECS):
        rate, determination, _ = fitted_rate(*results.curve(cell, method, "rounds", "log10_distance"))
        checks.append(Check(f"p_c = {cell['p_c']}: rate, {method}", rate, 0.95))
        checks.append(Check(f"p_c = {cell['p_c']}: R² of the line, {method}", determination, 0.98, False))
    return checks


def _pictures(results: Results) -> list[CurvePlot]:
    panels = []
    for cell in results.present(CELLS):
        lines = []
        for method in _SPECS:
            x, y = results.curve(cell, method, "rounds", "log10_distance")
            rate, _, line = fitted_rate(x, y)
            shown = line > np.log10(FLOOR)
            lines.append(Line(method, x, 10.0**y, "marks"))
            lines.append(Line(f"fitted, γ = {rate:.3f}", x[shown], 10.0 ** line[shown], "fitted"))
        label = "relative distance to the pooled solution"
        panels.append(Panel(f"p_c = {cell['p_c']}", tuple(lines), "inner rounds", label))
    return [CurvePlot(CONVERGENCE.name, CONVERGENCE.title, tuple(panels), len(panels))]


CONVERGENCE = Study(
    name="convergence",
    title="Linear convergence of the inner loop (Proposition 1)",
    about="n = 200, p = 100, Cauchy noise, one outer round from the initial estimates at a fixed lambda: how "
    "far all nodes are from the exact minimiser of the pooled surrogate, round by round.",
    cells=CELLS,
    columns=("rounds", "log10_distance"),
    run=repetition,
    tables=_tables,
    checks=_checks,
    pictures=_pictures,
    settings={name: spec.model_dump() for name, spec in _SPECS.items()},
)
