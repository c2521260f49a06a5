"""Beyond the paper: error against rounds of communication and bytes sent, counted on real messages.

The two schedules of deSMR run on the nodes' own machines and codec, so that network sums, masks, signatures
and framing count; D-subGD is charged its bare vectors.
"""

import numpy as np

from desmr_node.core.spec import FitSpec
from desmr_node.datasets import simulated_network
from desmr_node.protocol import events as ev
from desmr_node.runtime.simulation import assemble
from desmr_node.studies import baselines, methods
from desmr_node.studies.measures import l2_error
from desmr_node.studies.methods import (
    AVERAGE,
    DEFAULT,
    LEAST_SQUARES,
    LOCAL,
    ORACLE,
    POOLED,
    PRINTED,
    STEPS,
    SUBGRADIENT,
    Problem,
)
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.study import Check, CurvePlot, Line, Panel, Study, Table

NOISES = ("normal", "exponential", "cauchy")
STOPPED = "desmr-node, as it stops"
#: The default goes on for this many outer rounds to show where it is going.
LONGER = 6
SUBGRADIENT_EVERY, SUBGRADIENT_ROUNDS = 50, 500

CELLS: tuple[Cell, ...] = tuple({"noise": noise} for noise in NOISES)


def trajectory(problem: Problem, name: str, spec: FitSpec) -> list[Row]:
    """Error, rounds and bytes at the end of every outer round of a simulated network; the end itself last.

    Rounds count as in `NetworkFit.rounds`: ADMM rounds, and a diameter for every network sum.
    """
    simulation = assemble(problem.datasets, problem.edges, spec, seed=problem.seed)
    workers = list(simulation.workers.values())
    rows: list[Row] = []
    for node in simulation.machines:
        simulation.tell(node, ev.Called())
    while not simulation.at_rest() and simulation.step():
        outer = len(rows) + 1
        if min(len(worker.share.history) for worker in workers) < outer:
            continue
        share = workers[0].share
        coef = [w.share.ground.scaling.to_data_units(w.share.member.settled)[0] for w in workers]
        rows.append(
            {
                "method": name,
                "outer": outer,
                "rounds": share.history[outer - 1].admm_rounds + (1 + share.sums) * share.graph.diameter(),
                "megabytes": simulation.network.bytes_sent / 1e6,
                "l2_error": l2_error(np.stack(coef), problem.truth),
            }
        )
    fit = simulation.result()
    end = {"rounds": fit.rounds, "megabytes": fit.bytes_sent / 1e6}
    rows[-1] = {**rows[-1], **end, "l2_error": l2_error(fit.coef, problem.truth)}
    # Without a tolerance, too, a fit ends once it does not move at all: it stays where it is from then on.
    later = range(len(rows) + 1, spec.outer + 1) if spec.tolerance == 0 else ()
    return rows + [{**rows[-1], "outer": outer} for outer in later]


def _subgradients(problem: Problem) -> list[Row]:
    rows: list[Row] = []
    p = len(problem.truth)
    per_round = 8 * p * 2 * problem.graph.edge_count / 1e6

    def watch(rounds: int, coef: np.ndarray) -> None:
        if rounds % SUBGRADIENT_EVERY == 0:
            row = {"outer": rounds // SUBGRADIENT_EVERY, "rounds": rounds, "megabytes": rounds * per_round}
            rows.append({"method": SUBGRADIENT, **row, "l2_error": l2_error(coef, problem.truth)})

    baselines.subgradient_descent(
        problem.datasets,
        problem.graph,
        problem.local,
        problem.pooled.lambda_,
        STEPS,
        SUBGRADIENT_ROUNDS,
        watch,
    )
    return rows


def repetition(cell: Cell, seed: int) -> list[Row]:
    """Two schedules of deSMR, subgradients, and two fits that need no network."""
    problem = Problem(simulated_network(np.random.default_rng(seed), noise_name=str(cell["noise"])), seed)
    longer = methods.DEFAULT_SPEC.model_copy(update={"outer": LONGER, "tolerance": 0.0})
    rows = trajectory(problem, PRINTED, methods.PRINTED_SPEC) + trajectory(problem, DEFAULT, longer)
    rows.append({**trajectory(problem, STOPPED, methods.DEFAULT_SPEC)[-1], "outer": 0})
    rows += trajectory(problem, LEAST_SQUARES, methods.LEAST_SQUARES_SPEC)
    rows += _subgradients(problem)
    for name in (POOLED, LOCAL, AVERAGE, ORACLE):
        error = l2_error(methods.METHODS[name](problem).coef, problem.truth)
        rows.append({"method": name, "outer": 0, "rounds": 0, "megabytes": 0.0, "l2_error": error})
    return rows


def _ends(results: Results, cell: Cell) -> dict[str, tuple[float, float, float]]:
    """Rounds, megabytes and error at the end of each."""
    ends = {}
    for name, outer in (
        (PRINTED, methods.OUTER),
        (STOPPED, 0),
        (SUBGRADIENT, SUBGRADIENT_ROUNDS // SUBGRADIENT_EVERY),
        (LEAST_SQUARES, methods.OUTER),
        (POOLED, 0),
        (LOCAL, 0),
        (AVERAGE, 0),
        (ORACLE, 0),
    ):
        at = [results.mean(cell, name, key, outer=outer) for key in ("rounds", "megabytes", "l2_error")]
        ends[name] = (at[0], at[1], at[2])
    return ends


def _tables(results: Results) -> list[Table]:
    rows = [
        (cell["noise"], name, f"{rounds:.0f}", f"{megabytes:.2f}", error)
        for cell in results.present(CELLS)
        for name, (rounds, megabytes, error) in _ends(results, cell).items()
    ]
    columns = ("noise", "method", "rounds", "MB, whole network", "l2-error")
    notes = (
        "Rounds include the hops of every network sum. Bytes are those of the encoded messages; of D-subGD "
        "only its vectors are counted.",
    )
    return [Table("What an answer costs", columns, tuple(rows), notes)]


def _checks(results: Results) -> list[Check]:
    checks = []
    for cell in results.present(CELLS):
        ends = _ends(results, cell)
        printed, stopped, oracle = ends[PRINTED], ends[STOPPED], ends[ORACLE]
        noise = cell["noise"]
        checks.append(Check(f"{noise}: l2-error, default / paper's schedule", stopped[2] / printed[2], 0.5))
        checks.append(Check(f"{noise}: l2-error, default / oracle", stopped[2] / oracle[2], 1.10))
        checks.append(Check(f"{noise}: rounds, default / paper's schedule", stopped[0] / printed[0], 0.25))
        checks.append(Check(f"{noise}: bytes, default / paper's schedule", stopped[1] / printed[1], 1.0))
    return checks


def _panel(results: Results, cell: Cell, along: str) -> Panel:
    lines = []
    for name in (SUBGRADIENT, PRINTED, DEFAULT):
        _, x = results.curve(cell, name, "outer", along)
        _, y = results.curve(cell, name, "outer", "l2_error")
        lines.append(Line(name, x, y))
    at, error = (results.mean(cell, STOPPED, key) for key in (along, "l2_error"))
    lines.append(Line(STOPPED, np.array([at]), np.array([error]), "marks"))
    ends = np.array([min(line.x.min() for line in lines), max(line.x.max() for line in lines)])
    for name in (POOLED, ORACLE):
        lines.append(Line(name, ends, np.full(2, results.mean(cell, name, "l2_error")), "level"))
    label = "rounds of communication" if along == "rounds" else "megabytes sent in the whole network"
    return Panel(str(cell["noise"]), tuple(lines), label, "l2-error", x_log=True)


def _pictures(results: Results) -> list[CurvePlot]:
    cells = results.present(CELLS)
    panels = tuple(_panel(results, cell, along) for along in ("rounds", "megabytes") for cell in cells)
    return [CurvePlot(ROUNDS.name, ROUNDS.title, panels, len(cells))]


ROUNDS = Study(
    name="rounds",
    title="Error against rounds of communication and bytes (ours)",
    about="n = 200, p = 100, ten nodes as machines on a simulated network. Here the algorithm as printed "
    "begins at the default's pilots, too.",
    cells=CELLS,
    columns=("outer", "rounds", "megabytes", "l2_error"),
    run=repetition,
    tables=_tables,
    checks=_checks,
    pictures=_pictures,
    settings={
        PRINTED: methods.PRINTED_SPEC.model_dump(),
        DEFAULT: methods.DEFAULT_SPEC.model_dump(),
        LEAST_SQUARES: methods.LEAST_SQUARES_SPEC.model_dump(),
        SUBGRADIENT: repr(STEPS),
    },
)
