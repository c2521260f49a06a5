"""The paper's figure: l2-error against outer rounds and all rounds, with T = 20, 50, 100 inner ones."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from desmr_node.core.member import Member
from desmr_node.datasets import simulated_network
from desmr_node.studies import methods
from desmr_node.studies.measures import l2_error
from desmr_node.studies.methods import DEFAULT, ORACLE, POOLED, PRINTED, Problem
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.study import Check, CurvePlot, Line, Panel, Study, Table
from desmr_node.studies.tables import factors

NOISES = ("normal", "exponential", "cauchy")
INNER = (20, 50, 100)
OUTER = 50
#: The outer rounds that the table shows; the last ones are taken for the limit.
SHOWN = (1, 2, 3, 5, 10, 20, 50)
LIMIT = range(41, OUTER + 1)

#: What has no rounds, or no curve of its own here: its error stands at round 0.
OTHERS = tuple(name for name in methods.METHODS if name not in (PRINTED, DEFAULT))

CELLS: tuple[Cell, ...] = tuple({"noise": noise, "T": T} for noise, T in product(NOISES, INNER))


def trajectory(problem: Problem, method: str, inner: int) -> list[Row]:
    """The error after every outer round; both methods go on for all of them, converged or not."""
    spec = methods.PRINTED_SPEC if method == PRINTED else methods.DEFAULT_SPEC
    spec = spec.model_copy(update={"outer": OUTER, "inner": inner, "tolerance": 0.0})
    rows: list[Row] = []

    def watch(members: Sequence[Member]) -> None:
        coef = [member.ground.scaling.to_data_units(member.settled)[0] for member in members]
        outer = len(rows) + 1
        error = l2_error(np.stack(coef), problem.truth)
        rows.append({"method": method, "outer": outer, "rounds": outer * inner, "l2_error": error})

    problem.fit(spec, problem.local if method == PRINTED else None, watch)
    # A fit that does not move at all any more ends before the last round.
    for outer in range(len(rows) + 1, OUTER + 1):
        rows.append({**rows[-1], "outer": outer, "rounds": outer * inner})
    return rows


def repetition(cell: Cell, seed: int) -> list[Row]:
    """Both trajectories, and the errors of fits without rounds."""
    problem = Problem(simulated_network(np.random.default_rng(seed), noise_name=str(cell["noise"])), seed)
    inner = int(cell["T"])
    rows = trajectory(problem, PRINTED, inner) + trajectory(problem, DEFAULT, inner)
    for name in OTHERS:
        error = l2_error(methods.METHODS[name](problem).coef, problem.truth)
        rows.append({"method": name, "outer": 0, "rounds": 0, "l2_error": error})
    return rows


def limit(results: Results, cell: Cell, method: str) -> float:
    """The mean error over the last ten outer rounds."""
    return float(np.mean([results.mean(cell, method, "l2_error", outer=v) for v in LIMIT]))


def _tables(results: Results) -> list[Table]:
    rows: list[tuple[str | float, ...]] = []
    for cell in results.present(CELLS):
        for method in (PRINTED, DEFAULT):
            errors = [results.mean(cell, method, "l2_error", outer=v) for v in SHOWN]
            told = results.mean(cell, ORACLE, "l2_error")
            at_ten = results.mean(cell, method, "l2_error", outer=10) / limit(results, cell, method)
            rows.append((*factors(cell), method, *errors, at_ten, told))
    columns = (*CELLS[0], "method", *(f"v = {v}" for v in SHOWN), "v = 10 / limit", ORACLE)
    notes = ("l2-error after v outer rounds of T inner ones; the limit is the mean of rounds 41 to 50.",)
    others: tuple[tuple[str | float, ...], ...] = tuple(
        (*factors(cell), *(results.mean(cell, name, "l2_error") for name in OTHERS))
        for cell in results.present(CELLS)
    )
    return [
        Table("l2-error by outer round", columns, tuple(rows), notes),
        Table("l2-error of the other methods", (*CELLS[0], *OTHERS), others),
    ]


def _checks(results: Results) -> list[Check]:
    """Ten outer rounds suffice, and more than 50 inner ones gain nothing."""
    checks = []
    for cell in results.present(CELLS):
        for method in (PRINTED, DEFAULT):
            ratio = results.mean(cell, method, "l2_error", outer=10) / limit(results, cell, method)
            name = f"{cell['noise']}, T = {cell['T']}: v = 10 from the limit, {method}"
            checks.append(Check(name, abs(ratio - 1), 0.05))
    for noise in NOISES:
        cells: list[Cell] = [{"noise": noise, "T": T} for T in (50, 100)]
        if len(results.present(cells)) == len(cells):
            fifty, hundred = (limit(results, cell, PRINTED) for cell in cells)
            name = f"{noise}: T = 50 from T = 100, as printed"
            checks.append(Check(name, abs(fifty / hundred - 1), 0.05))
    return checks


def _panel(results: Results, noise: str, along: str) -> Panel:
    cells = [cell for cell in results.present(CELLS) if cell["noise"] == noise]
    lines = [
        Line(f"as printed, T = {cell['T']}", *results.curve(cell, PRINTED, along, "l2_error"))
        for cell in cells
    ]
    cell = cells[0]
    x, y = results.curve(cell, DEFAULT, along, "l2_error")
    lines.append(Line(f"desmr-node, T = {cell['T']}", x, y))
    ends = np.array([min(line.x[0] for line in lines), max(line.x[-1] for line in lines)])
    for name in (POOLED, ORACLE):
        lines.append(Line(name, ends, np.full(2, results.mean(cell, name, "l2_error")), "level"))
    label = "outer rounds" if along == "outer" else "ADMM rounds in all"
    return Panel(noise, tuple(lines), label, "l2-error", x_log=True)


def _pictures(results: Results) -> list[CurvePlot]:
    noises = list(dict.fromkeys(str(cell["noise"]) for cell in results.present(CELLS)))
    panels = tuple(_panel(results, noise, along) for along, noise in product(("outer", "rounds"), noises))
    return [CurvePlot(ITERATIONS.name, ITERATIONS.title, panels, len(noises))]


ITERATIONS = Study(
    name="iterations",
    title="Error against outer and all rounds (Figure 1)",
    about="n = 200, p = 100, ten nodes, 50 outer rounds of T inner ones. The paper gives no numbers here.",
    cells=CELLS,
    columns=("outer", "rounds", "l2_error"),
    run=repetition,
    tables=_tables,
    checks=_checks,
    pictures=_pictures,
    settings={PRINTED: methods.PRINTED_SPEC.model_dump(), DEFAULT: methods.DEFAULT_SPEC.model_dump()},
)
