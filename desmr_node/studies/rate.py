"""The paper's Theorems 5 and 4: the error falls like sqrt(s log N / N), and the support is recovered."""

from itertools import product

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.datasets import simulated_network
from desmr_node.studies.measures import Estimate, accuracy
from desmr_node.studies.methods import DEFAULT, METHODS, ORACLE, POOLED, PRINTED, SPARSITY, Problem
from desmr_node.studies.results import Cell, Results, Row
from desmr_node.studies.simulated import SETTINGS
from desmr_node.studies.study import Check, CurvePlot, Line, Panel, Study, Table

NOISES = ("normal", "cauchy")
ROWS = (100, 200, 400, 800, 1600)
MEMBERS = 10
#: Drawn; the table has all methods.
_DRAWN = (POOLED, PRINTED, DEFAULT, ORACLE)

CELLS: tuple[Cell, ...] = tuple({"noise": noise, "n": n} for noise, n in product(NOISES, ROWS))


def theory(total_rows: Vector) -> Vector:
    """The paper's near-oracle rate, without its constant."""
    return np.sqrt(SPARSITY * np.log(total_rows) / total_rows)


def repetition(cell: Cell, seed: int) -> list[Row]:
    """Error and support at one number of rows."""
    rng = np.random.default_rng(seed)
    design = simulated_network(rng, noise_name=str(cell["noise"]), m=MEMBERS, n=int(cell["n"]))
    problem = Problem(design, seed)
    rows: list[Row] = []
    for name in METHODS:
        estimate = METHODS[name](problem)
        measures = accuracy(estimate, problem.truth)
        measures["recovered"] = _recovered(estimate, problem.truth)
        rows.append({"method": name, **{key: measures[key] for key in MEASURES}})
    return rows


MEASURES = ("l2_error", "recall", "precision", "recovered")


def _recovered(estimate: Estimate, truth: Vector) -> float:
    """Part of the nodes that hold exactly the true support."""
    return float(np.mean(np.all(estimate.support == (truth != 0), axis=1)))


def _errors(results: Results, noise: str, method: str, measure: str = "l2_error") -> Vector:
    return np.array([results.mean({"noise": noise, "n": n}, method, measure) for n in _rows(results)])


def _rows(results: Results) -> list[int]:
    """The numbers of rows that were run, ascending."""
    return sorted({int(cell["n"]) for cell in results.present(CELLS)})


def _noises(results: Results) -> list[str]:
    return list(dict.fromkeys(str(cell["noise"]) for cell in results.present(CELLS)))


def _total(results: Results) -> Vector:
    return MEMBERS * np.array(_rows(results), dtype=np.float64)


def slope(errors: Vector, against: Vector) -> float:
    """Of log(error) over log(against); NaN where there are no two points to join."""
    if len(errors) < 2:
        return float("nan")
    return float(np.polyfit(np.log(against), np.log(errors), 1)[0])


def _tables(results: Results) -> list[Table]:
    N = _total(results)
    rows = []
    for noise, method in product(_noises(results), METHODS):
        errors = _errors(results, noise, method)
        exponents = (slope(errors, N), slope(errors, theory(N)))
        rows.append((noise, method, *errors, *exponents))
    columns = ("noise", "method", *(f"N = {int(total)}" for total in N), "exponent of N", "of √(s log N/N)")
    notes = (
        "The rate √(s log N/N) itself falls like N^−0.44 over this range; √(s/N), the oracle's, like N^−0.5.",
    )
    found = [
        (noise, method, *_errors(results, noise, method, "recovered"))
        for noise, method in product(_noises(results), METHODS)
    ]
    return [
        Table("l2-error by rows of the whole network", columns, tuple(rows), notes),
        Table(
            "Part of the nodes that hold exactly the true variables",
            ("noise", "method", *(f"N = {int(total)}" for total in N)),
            tuple(found),
        ),
    ]


def _checks(results: Results) -> list[Check]:
    N = _total(results)
    checks = []
    for noise in _noises(results):
        cells: list[Cell] = [{"noise": noise, "n": n} for n in _rows(results)]
        if len(results.present(cells)) < len(cells) or len(cells) < 3 or N[-1] < 2000:
            continue  # too few numbers of rows for a rate
        for method in (PRINTED, DEFAULT):
            power = slope(_errors(results, noise, method), theory(N))
            checks.append(Check(f"{noise}: exponent of √(s log N/N), {method}", power, 0.95, False))
        over = _errors(results, noise, DEFAULT) / _errors(results, noise, ORACLE)
        checks.append(Check(f"{noise}: worst of {DEFAULT} / oracle", float(over.max()), 1.10))
        recovered = _errors(results, noise, DEFAULT, "recovered")[N >= 2000]
        name = f"{noise}: support recovered, N >= 2000, {DEFAULT}"
        checks.append(Check(name, float(recovered.min()), 0.95, False))
        recall = min(_errors(results, noise, m, "recall").min() for m in (PRINTED, DEFAULT))
        checks.append(Check(f"{noise}: least recall, as printed and {DEFAULT}", recall, 1.0, False))
    return checks


def _pictures(results: Results) -> list[CurvePlot]:
    N = _total(results)
    errors, supports = [], []
    for noise in _noises(results):
        lines = [Line(method, N, _errors(results, noise, method)) for method in _DRAWN]
        anchor = _errors(results, noise, PRINTED)
        if len(N) > 1:
            lines.append(Line("∝ √(s log N/N)", N, theory(N) * anchor[-1] / theory(N)[-1], "fitted"))
        errors.append(
            Panel(f"{noise}: error", tuple(lines), "rows of the network, N", "l2-error", x_log=True)
        )
        lines = [Line(m, N, _errors(results, noise, m, "recovered")) for m in _DRAWN[:-1]]
        label = "exactly the true variables"
        supports.append(
            Panel(f"{noise}: support", tuple(lines), "rows of the network, N", label, True, False)
        )
    return [CurvePlot(RATE.name, RATE.title, (*errors, *supports), len(errors))]


RATE = Study(
    name="rate",
    title="Near-oracle rate and support recovery (Theorems 4 and 5)",
    about="Ten nodes, p = 100, n = 100 to 1600 rows each. `deSMR as printed` has the bias of the l1 penalty, "
    "hence the logarithm in its rate; SCAD has none.",
    cells=CELLS,
    columns=MEASURES,
    run=repetition,
    tables=_tables,
    checks=_checks,
    pictures=_pictures,
    settings=SETTINGS,
)
