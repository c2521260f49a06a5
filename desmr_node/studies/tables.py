"""Tables, bounds and dot plots of studies by cell: what most of the paper's tables have in common."""

from collections.abc import Mapping, Sequence

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.studies.methods import DEFAULT, ORACLE, PRINTED
from desmr_node.studies.paper import Figures
from desmr_node.studies.results import Cell, Results, cell_key
from desmr_node.studies.study import Check, DotPlot, Points, Table

#: A mean this many times its median is that of a distribution which may have none: the median is shown, too.
_SKEWED = 2.0
_TITLES: Mapping[str, str] = {
    "l2_error": "l2-error",
    "f1": "F1-score",
    "recall": "recall",
    "precision": "precision",
    "rmse": "RMSE",
    "mae": "MAE",
    "rounds": "rounds",
    "worst_error": "l2-error of the worst honest member",
    "left_out": "liars left out",
    "wronged": "honest members left out",
}
#: Measures of which more is better; of the others less is.
MORE_IS_BETTER = frozenset({"recall", "precision", "f1"})


def title(measure: str) -> str:
    """A measure's name for people."""
    return _TITLES.get(measure, measure)


def named(cell: Cell) -> str:
    """A cell in a few words: its texts as they are, its numbers with their names."""
    return ", ".join(
        str(value) if isinstance(value, str) else f"{name} = {value}" for name, value in cell.items()
    )


def factors(cell: Cell) -> list[str]:
    """The values of a cell, for the first columns of a table."""
    return [f"{value:g}" if isinstance(value, float) else str(value) for value in cell.values()]


def paper_figure(paper: Figures, cell: Cell, method: str, measure: str) -> float:
    """What the paper prints; NaN if it does not."""
    return paper.get(cell_key(cell), {}).get((method, measure), float("nan"))


def against_the_paper(
    results: Results, cells: Sequence[Cell], paper: Figures, measure: str, *, oracle: bool = True
) -> Table:
    """deSMR in every cell: the paper's figure, the algorithm as printed, the default, and the oracle."""
    columns = [*cells[0], "paper", PRINTED, "/ paper", DEFAULT, "/ paper"]
    if oracle:
        columns += ["oracle", f"{DEFAULT} / oracle"]
    rows: list[tuple[str | float, ...]] = []
    for cell in results.present(cells):
        figure = paper_figure(paper, cell, PRINTED, measure)
        printed, default = (results.mean(cell, method, measure) for method in (PRINTED, DEFAULT))
        row: list[str | float] = [
            *factors(cell),
            figure,
            printed,
            printed / figure,
            default,
            default / figure,
        ]
        if oracle:
            told = results.mean(cell, ORACLE, measure)
            row += [told, default / told]
        rows.append(tuple(row))
    return Table(f"deSMR: {title(measure)}", tuple(columns), tuple(rows))


def all_methods(results: Results, cells: Sequence[Cell], paper: Figures, measure: str) -> Table:
    """Every method in every cell, with the paper's figure in brackets."""
    cells = results.present(cells)
    methods = list(dict.fromkeys(method for cell in cells for method in results.methods(cell)))
    rows = [
        (*factors(cell), *(_beside(results, paper, cell, method, measure) for method in methods))
        for cell in cells
    ]
    notes = [
        "Means over repetitions; the paper's figures in brackets." if paper else "Means over repetitions."
    ]
    uncertain = [results.values(cell, method, measure) for cell in cells for method in (PRINTED, DEFAULT)]
    relative = [v.std(ddof=1) / np.sqrt(len(v)) / v.mean() for v in uncertain if len(v) > 1 and v.mean() > 0]
    if relative and measure != "rounds":
        notes.append(
            f"Standard errors of the means of {PRINTED} and {DEFAULT}: at most {100 * max(relative):.2g} %."
        )
    if any(", median " in str(value) for row in rows for value in row):
        notes.append("Where a mean is more than twice the median the median is given, too.")
    return Table(f"All methods: {title(measure)}", (*cells[0], *methods), tuple(rows), tuple(notes))


def _beside(results: Results, paper: Figures, cell: Cell, method: str, measure: str) -> str:
    values = results.values(cell, method, measure)
    if not len(values):
        return "–"
    text = figure_text(float(values.mean()))
    if _is_skewed(values):
        text += f", median {figure_text(float(np.median(values)))}"
    figure = paper_figure(paper, cell, method, measure)
    return text if np.isnan(figure) else f"{text} ({figure_text(figure)})"


def _is_skewed(values: Vector) -> bool:
    return bool(values.mean() > _SKEWED * np.median(values))


def figure_text(value: float) -> str:
    """Three digits, as the paper's tables have them."""
    if np.isnan(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    decimals = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:.{decimals}f}" if size < 1e4 else f"{value:.2e}"


def desmr_bounds(
    results: Results,
    cells: Sequence[Cell],
    paper: Figures,
    measures: Sequence[str] = ("l2_error",),
    *,
    oracle: bool = True,
) -> list[Check]:
    """What is promised of every deSMR cell of a table.

    The default: better than the paper (to the digits it prints), and within 1.10 times the oracle's error. As
    printed: within 1.1 times the paper's figure, or a 1.1th of it where more is better.
    """
    checks = []
    for cell in results.present(cells):
        for measure in measures:
            figure = paper_figure(paper, cell, PRINTED, measure)
            what = f"{named(cell)}: {title(measure)}"
            printed, default = (results.mean(cell, method, measure) for method in (PRINTED, DEFAULT))
            if measure in MORE_IS_BETTER:
                checks.append(Check(f"{what}, {DEFAULT}", round(default, 3), figure, at_most=False))
                checks.append(Check(f"{what}, as printed / paper", printed / figure, 1 / 1.1, at_most=False))
                continue
            checks.append(Check(f"{what}, {DEFAULT} / paper", default / figure, 1.0))
            if oracle:
                told = results.mean(cell, ORACLE, measure)
                checks.append(Check(f"{what}, {DEFAULT} / oracle", default / told, 1.10))
            checks.append(Check(f"{what}, as printed / paper", printed / figure, 1.1))
    return checks


def dot_plot(
    results: Results,
    cells: Sequence[Cell],
    paper: Figures,
    measure: str,
    name: str,
    heading: str,
    *,
    logarithmic: bool = True,
) -> DotPlot:
    """Every method in every cell, the paper's deSMR beside them; medians of what has no mean."""
    cells = results.present(cells)
    methods = list(dict.fromkeys(method for cell in cells for method in results.methods(cell)))

    def typical(cell: Cell, method: str) -> float:
        values = results.values(cell, method, measure)
        if not len(values):
            return float("nan")
        return float(np.median(values) if _is_skewed(values) else values.mean())

    points = [Points(method, tuple(typical(cell, method) for cell in cells)) for method in methods]
    printed = tuple(paper_figure(paper, cell, PRINTED, measure) for cell in cells)
    points.append(Points("deSMR, paper", printed))
    label = f"{title(measure)}, mean over repetitions"
    if any(_is_skewed(results.values(cell, m, measure)) for cell in cells for m in results.methods(cell)):
        label += " (median where the mean is more than twice as large)"
    return DotPlot(name, heading, tuple(map(named, cells)), tuple(points), label, logarithmic)
