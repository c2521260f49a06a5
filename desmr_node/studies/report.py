"""A study's tables as Markdown and as JSON: what was run, what came out, what was promised of it."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from desmr_node.studies.methods import MEANINGS
from desmr_node.studies.results import Results
from desmr_node.studies.study import Check, Study, Table
from desmr_node.studies.tables import figure_text


def shown(value: str | float) -> str:
    """A cell of a table for people; whole numbers and text as they are."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else figure_text(float(value))


def verdict(checks: Sequence[Check]) -> str:
    """How many bounds hold."""
    return f"{sum(check.holds for check in checks)} of {len(checks)} bounds hold"


def markdown_table(table: Table) -> str:
    """Numbers to the right."""
    sides = ["---:" if not isinstance(value, str) else "---" for value in table.rows[0]]
    lines = [_line(table.columns), "|" + "|".join(sides) + "|"]
    lines += [_line([shown(value) for value in row]) for row in table.rows]
    if table.notes:
        lines += ["", " ".join(table.notes)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(study: Study, results: Results, *, level: int = 1, pictures: Sequence[str] = ()) -> str:
    """table.md; ``level`` is that of its first heading, ``pictures`` are file names to show."""
    checks = study.checks(results)
    heading = "#" * level
    parts = [
        f"{heading} {study.title}",
        f"`desmr study {study.name}`, {_repetitions(results)}. {study.about}",
    ]
    if study.part:
        parts += [f"Only {study.part}."]
    parts += [f"![{study.title}]({name})" for name in pictures]
    for table in study.tables(results):
        parts += [f"{heading}# {table.title}", markdown_table(table)]
    if level == 1:
        compared = {name for cell in study.cells for name in results.methods(cell)}
        named = [name for name in MEANINGS if name in compared]
        parts += [f"{heading}# Methods", markdown_table(glossary(named))]
    parts += [f"{heading}# Bounds", f"{verdict(checks)}; they are meant for means of 100 repetitions."]
    short = [check for check in checks if not check.holds]
    if short:
        rows = tuple(
            (check.name, f"{check.measured:.4g}", f"{check.relation} {check.bound:.3g}") for check in short
        )
        parts += ["Short:", markdown_table(Table("", ("bound", "measured", "promised"), rows))]
    return "\n\n".join(parts) + "\n"


def counted(count: int, noun: str) -> str:
    """A count and its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _repetitions(results: Results) -> str:
    return f"{counted(len(results.seeds), 'repetition')} (seeds {min(results.seeds)} to {max(results.seeds)})"


def glossary(names: Iterable[str]) -> Table:
    """What the methods are."""
    return Table("", ("method", "what it is"), tuple((name, MEANINGS[name]) for name in names))


def document(study: Study, results: Results) -> dict[str, Any]:
    """The same for programs; what is not a number is null."""
    return {
        "study": study.name,
        "title": study.title,
        "only": study.part or None,
        "repetitions": len(results.seeds),
        "seeds": [min(results.seeds), max(results.seeds)],
        "tables": [
            {
                "title": table.title,
                "columns": list(table.columns),
                "rows": [[_plain(value) for value in row] for row in table.rows],
            }
            for table in study.tables(results)
        ],
        "bounds": [
            {
                "name": check.name,
                "measured": _plain(check.measured),
                "relation": check.relation,
                "bound": check.bound,
                "holds": bool(check.holds),
            }
            for check in study.checks(results)
        ],
    }


def _plain(value: str | float) -> str | float | None:
    if isinstance(value, str | int):
        return value
    return float(value) if math.isfinite(value) else None
