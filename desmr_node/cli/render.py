"""What the commands print: tables for people, by rich, without colours where NO_COLOR or a pipe says so.

Names and reasons may come from other machines: whatever could move a cursor is taken out of them first.
"""

import csv
import io
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Columns where the output is no terminal and COLUMNS is not set.
_WIDTH = 120

Side = Literal["left", "right"]
Mark = Literal["ok", "warning", "problem", "skipped"]
_STYLES: dict[Mark, str] = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}


def console(*, stderr: bool = False) -> "Console":
    """Where to print: as wide as the terminal, plain if it is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(file=stream, width=fixed, highlight=False, markup=False, emoji=False)


def plain(text: str) -> str:
    """Foreign text without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def number(value: float | None, digits: int = 4) -> str:
    """A number for people; a dash if there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def table(columns: Mapping[str, Side], rows: Iterable[Sequence[str]]) -> "Table":
    """A table without frames; nothing in it is taken for markup."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title, side in columns.items():
        made.add_column(title, justify=side, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def mark(kind: Mark) -> "Text":
    """The first word of a line of a checklist."""
    from rich.text import Text

    return Text(kind, style=_STYLES[kind])


def result_lines(result: Mapping[str, Any]) -> list[str]:
    """What a fit is and how it ended, for above and below the coefficients."""
    settings = result["settings"]
    model = (
        "median regression"
        if settings["quantile"] == 0.5
        else f"{settings['quantile']:g}-quantile regression"
    )
    if settings["loss"] == "squared":
        model = "least squares"
    members = result["members"]
    head = (
        f"{result['response']}: {settings['penalty'].upper()}-penalised {model} over {result['rows']} rows "
        f"of {len(members)} {'node' if len(members) == 1 else 'nodes'}"
    )
    lines = [head, f"fit {result['fit']} of network {result['network']}, as {result['node']} holds it"]
    return [plain(line) for line in lines]


def ending_lines(result: Mapping[str, Any]) -> list[str]:
    """Errors on the hold-out rows, the objective, and whether it converged."""
    errors = result["holdout"]
    lines = [
        f"lambda {number(result['lambda'])}; mean loss plus penalty {number(result['objective'], 6)} "
        f"(pilots: {number(result['pilot_objective'], 6)})"
    ]
    if errors is None:
        lines.append("no hold-out rows: set data.holdout at the nodes to have the predictions judged")
    else:
        lines.append(
            f"on {errors['rows']} hold-out rows: RMSE {number(errors['rmse'])}, MAE {number(errors['mae'])}"
        )
    lines.append(result["message"])
    return [plain(line) for line in lines]


def coefficients(
    result: Mapping[str, Any], *, everything: bool = False, ranges: Mapping[str, float] | None = None
) -> "Table":
    """The intercept, then the coefficients by size: the selected ones, or all. ``ranges``: over nodes."""
    support = set(result["support"])
    values: dict[str, float] = result["coefficients"]
    names = sorted((n for n in values if everything or n in support), key=lambda n: (-abs(values[n]), n))
    columns: dict[str, Side] = {"feature": "left", "coefficient": "right"}
    if everything:
        columns["selected"] = "left"
    if ranges is not None:
        columns["nodes differ by"] = "right"
    rows = []
    for name in ("(intercept)", *names):
        value = result["intercept"] if name == "(intercept)" and name not in values else values[name]
        row = [name, f"{value:+.6g}"]
        if everything:
            row.append("" if name == "(intercept)" else "yes" if name in support else "no")
        if ranges is not None:
            row.append(number(ranges[name], 2))
        rows.append(row)
    return table(columns, rows)


def show_result(
    result: Mapping[str, Any], *, everything: bool = False, ranges: Mapping[str, float] | None = None
) -> None:
    """The whole report of one node's fit."""
    out = console()
    for line in result_lines(result):
        out.print(line)
    out.print()
    out.print(coefficients(result, everything=everything, ranges=ranges))
    kept, all_ = len(result["support"]), len(result["coefficients"])
    hidden = "" if everything or kept == all_ else " (--all shows the others)"
    out.print(f"{kept} of {all_} features selected{hidden}")
    out.print()
    for line in ending_lines(result):
        out.print(line)


def coefficients_csv(result: Mapping[str, Any]) -> str:
    """The coefficients as coefficients.csv has them, every digit kept."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["feature", "coefficient", "selected"])
    writer.writerow(["(intercept)", repr(result["intercept"]), ""])
    support = set(result["support"])
    for name, value in result["coefficients"].items():
        writer.writerow([name, repr(value), "yes" if name in support else "no"])
    return text.getvalue()
