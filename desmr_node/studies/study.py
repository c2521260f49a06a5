"""What a study is: cells, one function that runs a repetition of a cell, and what is made of the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from desmr_node.core.arrays import Vector
from desmr_node.studies.results import Cell, Results, Row


@dataclass(frozen=True, slots=True)
class Check:
    """One measured number beside its bound."""

    name: str
    measured: float
    bound: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the bound is met."""
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    @property
    def relation(self) -> str:
        """How the number should stand to its bound."""
        return "<=" if self.at_most else ">="

    def __str__(self) -> str:
        verdict = "pass" if self.holds else "SHORT"
        return f"  {self.name:<58} {self.measured:>10.4g} {self.relation} {self.bound:<10.4g} {verdict}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells that are numbers or text; ``notes`` stand below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Points:
    """One method in a dot plot: a value for every line of it, NaN where it has none."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DotPlot:
    """A line for each cell, a mark for each method."""

    name: str
    title: str
    lines: tuple[str, ...]
    points: tuple[Points, ...]
    label: str
    logarithmic: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a panel; ``fitted`` ones are drawn thin, ``level`` ones are horizontal."""

    name: str
    x: Vector
    y: Vector
    kind: Literal["curve", "fitted", "level", "marks"] = "curve"


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one pair of axes."""

    title: str
    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = True


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """Panels in rows of ``across``."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    across: int


Picture = DotPlot | CurvePlot


@dataclass(frozen=True, slots=True)
class Study:
    """One table or figure.

    Attributes
    ----------
    name, title : as `desmr study list` shows them
    about : what is varied, what is assumed; a few sentences for the head of table.md
    cells : what is varied
    columns : of results.csv, beyond cell, seed and method: places on a curve, then measures
    run : one repetition of a cell, from its seed: a row for every method (and place on a curve)
    tables : the first one is what the terminal shows
    checks : what the project promises of it
    pictures : what is drawn
    settings : of the methods, so that results of other settings are not mistaken for these
    part : which of its cells, in words, if some were left out
    """

    name: str
    title: str
    about: str
    cells: tuple[Cell, ...]
    columns: tuple[str, ...]
    run: Callable[[Cell, int], list[Row]]
    tables: Callable[[Results], Sequence[Table]]
    checks: Callable[[Results], Sequence[Check]]
    pictures: Callable[[Results], Sequence[Picture]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""

    @property
    def factors(self) -> tuple[str, ...]:
        """What its cells vary."""
        return tuple(self.cells[0])
