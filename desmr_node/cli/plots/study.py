"""A study as a picture: marks by cell, or curves in panels. Marks and dashes tell methods apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desmr_node.cli.plots.files import INK, PALE, save, style, text_widths
from desmr_node.studies.study import CurvePlot, DotPlot, Line, Panel, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _GRID, _BAND = "#2f6690", "#e3e8ee", "#f5f7fa"

# In points.
_WIDTH, _MARGIN, _ROW, _AXIS, _LINE = 640.0, 16.0, 17.0, 42.0, 15.0
_SIZE, _HEAD = 8.5, 10.5
_PANEL = (210.0, 165.0)


@dataclass(frozen=True, slots=True)
class _Mark:
    """How a method is drawn: marker, filled or hollow, colour, dashes."""

    marker: str
    fill: str
    colour: str
    dashes: Any = "-"

    def options(self, size: float = 5.5) -> dict[str, Any]:
        return {
            "marker": self.marker,
            "markersize": 2 * size if self.marker == "|" else size,
            "markerfacecolor": self.fill,
            "markeredgecolor": self.colour,
            "markeredgewidth": 1.1,
            "color": self.colour,
        }


_HOLLOW = "white"
#: By the first words of a method's name. The project's own is the only solid one.
_MARKS = {
    "desmr-node, as it stops": _Mark("*", _BLUE, _BLUE),
    "desmr-node, to the end": _Mark("o", _BLUE, _BLUE),
    "desmr-node, SCAD": _Mark("P", _HOLLOW, _BLUE),
    "desmr-node, no intercept": _Mark("h", _HOLLOW, _BLUE),
    "Pooled MR, intercept": _Mark("s", PALE, PALE),
    "desmr-node": _Mark("o", INK, INK),
    "deSMR, paper": _Mark("x", INK, INK),
    "deSMR as printed": _Mark("o", _HOLLOW, INK, (0, (5, 2))),
    "Pooled MR": _Mark("s", _HOLLOW, PALE, (0, (1, 1.5))),
    "Local MR, any lambda": _Mark("1", PALE, PALE),
    "Local MR": _Mark("v", _HOLLOW, PALE),
    "Avg. MR": _Mark("^", _HOLLOW, PALE),
    "D-subGD": _Mark("D", _HOLLOW, PALE, (0, (4, 1.5, 1, 1.5))),
    "deLR": _Mark("+", PALE, PALE),
    "initial estimator": _Mark("v", _HOLLOW, PALE),
    "oracle": _Mark("|", _BLUE, _BLUE, (0, (8, 1.5))),
    "as printed, T = 20": _Mark("v", _HOLLOW, PALE, (0, (2, 1, 2, 3))),
    "as printed, T = 50": _Mark("o", _HOLLOW, INK, (0, (5, 2))),
    "as printed, T = 100": _Mark("s", _HOLLOW, PALE, (0, (4, 1.5, 1, 1.5))),
}
_OTHER = _Mark("d", _HOLLOW, INK)


def _mark(name: str) -> _Mark:
    return next((mark for start, mark in _MARKS.items() if name.startswith(start)), _OTHER)


def draw(picture: Picture, folder: Path) -> tuple[Path, Path]:
    """Draw it as NAME.png and NAME.svg into the folder; their paths."""
    with style():
        figure = _dots(picture) if isinstance(picture, DotPlot) else _curves(picture)
        paths = folder / f"{picture.name}.png", folder / f"{picture.name}.svg"
        for path in paths:
            save(figure, path, picture.title)
    return paths


def _page(title: str, wide: float, high: float) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide / 72, high / 72), facecolor="white")
    figure.text(
        _MARGIN / wide,
        1 - (_MARGIN + 0.8 * _HEAD) / high,
        title,
        size=_HEAD,
        weight="bold",
        color=INK,
        va="baseline",
        parse_math=False,
    )
    return figure


def _legend(figure: "Figure", handles: Sequence[Any], wide: float, high: float) -> None:
    figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=((_MARGIN - 4) / wide, 1 - (_MARGIN + _HEAD + 6) / high),
        ncols=_columns(handles, wide),
        frameon=False,
        fontsize=_SIZE,
        handlelength=2.4,
        columnspacing=1.4,
        borderaxespad=0.0,
        labelspacing=0.35,
    )


def _columns(handles: Sequence[Any], wide: float) -> int:
    widest = max(text_widths([handle.get_label() for handle in handles], _SIZE))
    return max(1, min(len(handles), int((wide - 2 * _MARGIN) / (widest + 3.8 * _SIZE))))


def _legend_height(handles: Sequence[Any], wide: float) -> float:
    return _LINE * -(-len(handles) // _columns(handles, wide))


# --- a line for each cell -------------------------------------------------------------------------------


def _dots(plot: DotPlot) -> "Figure":
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="none", label=points.name, **_mark(points.name).options())
        for points in plot.points
        if not all(np.isnan(points.values))
    ]
    top = _MARGIN + _HEAD + 10 + _legend_height(handles, _WIDTH) + 8
    high = top + _ROW * len(plot.lines) + _AXIS
    left = max(text_widths(plot.lines, _SIZE)) + _MARGIN + 8
    figure = _page(plot.title, _WIDTH, high)
    _legend(figure, handles, _WIDTH, high)
    box = (left / _WIDTH, _AXIS / high, (_WIDTH - left - _MARGIN) / _WIDTH, _ROW * len(plot.lines) / high)
    axes = figure.add_axes(box)
    rows = np.arange(len(plot.lines))
    for row in rows[::2]:
        axes.axhspan(row - 0.5, row + 0.5, color=_BAND, linewidth=0)
    for k, points in enumerate(plot.points):
        # A little above or below the middle of the row: marks of equal errors do not hide each other.
        shift = 0.5 * (k / max(len(plot.points) - 1, 1) - 0.5)
        axes.plot(
            points.values, rows + shift, linestyle="none", **_mark(points.name).options(), clip_on=False
        )
    if plot.logarithmic:
        _logarithmic(axes.xaxis, [v for points in plot.points for v in points.values])
    axes.set_ylim(len(plot.lines) - 0.5, -0.5)
    axes.set_yticks(rows, plot.lines)
    axes.tick_params(axis="y", length=0, pad=5, labelsize=_SIZE)
    axes.tick_params(axis="x", length=3, labelsize=_SIZE, color=PALE)
    axes.grid(axis="x", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_xlabel(plot.label, size=_SIZE, parse_math=False)
    return figure


def _logarithmic(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers: 1, 2 and 5 of each decade if there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    finite = [v for v in values if np.isfinite(v) and v > 0]
    axis._set_axes_scale("log")
    decades = np.log10(max(finite) / min(finite)) if finite else 1.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,), numticks=12))
    axis.set_minor_formatter(NullFormatter())
    if decades < 5:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


# --- curves in panels -----------------------------------------------------------------------------------


def _curves(plot: CurvePlot) -> "Figure":
    across = min(plot.across, len(plot.panels))
    down = -(-len(plot.panels) // across)
    room, gap = 52.0, 46.0
    wide = max(2 * _MARGIN + across * (_PANEL[0] + room), 420.0)
    handles = _handles(plot.panels)
    top = _MARGIN + _HEAD + 10 + _legend_height(handles, wide) + 22
    high = top + down * (_PANEL[1] + gap) + 8
    figure = _page(plot.title, wide, high)
    _legend(figure, handles, wide, high)
    for place, panel in enumerate(plot.panels):
        row, column = divmod(place, across)
        left = _MARGIN + room - 8 + column * (_PANEL[0] + room)
        low = high - top - (row + 1) * _PANEL[1] - row * gap
        _panel(figure.add_axes((left / wide, low / high, _PANEL[0] / wide, _PANEL[1] / high)), panel)
    return figure


def _options(line: Line) -> dict[str, Any]:
    mark = _mark(line.name)
    if line.kind == "fitted":
        return {"color": INK, "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 1}
    if line.kind == "level":
        return {"color": mark.colour, "linewidth": 1.2, "linestyle": mark.dashes, "zorder": 1}
    options = mark.options(4.0 if line.kind == "curve" else 5.0)
    options["linestyle"] = mark.dashes if line.kind == "curve" else "none"
    # A mark on every tenth point or so: dashes alone are hard to tell apart where curves meet.
    options["markevery"] = max(1, len(line.x) // 10)
    return options | {"linewidth": 1.2}


def _handles(panels: Sequence[Panel]) -> list[Any]:
    from matplotlib.lines import Line2D

    named: dict[str, Any] = {}
    for panel in panels:
        for line in panel.lines:
            if line.kind != "fitted":
                options = {key: value for key, value in _options(line).items() if key != "markevery"}
                named.setdefault(line.name, Line2D([], [], label=line.name, **options))
    return list(named.values())


def _panel(axes: "Axes", panel: Panel) -> None:
    above = True
    for line in panel.lines:
        axes.plot(line.x, line.y, **_options(line))
        if line.kind == "fitted" and len(line.x):
            # The first falls above the second: its name stands above it, the other's below.
            place = 3 * len(line.x) // 4
            axes.annotate(
                line.name.removeprefix("fitted, "),
                (float(line.x[place]), float(line.y[place])),
                (5, 4) if above else (-6, -5),
                textcoords="offset points",
                size=_SIZE - 1,
                ha="left" if above else "right",
                va="bottom" if above else "top",
                color=INK,
                parse_math=False,
            )
            above = False
    if panel.x_log:
        _logarithmic(axes.xaxis, [v for line in panel.lines for v in line.x])
    if panel.y_log:
        _logarithmic(axes.yaxis, [v for line in panel.lines for v in line.y])
    axes.set_title(panel.title, size=_SIZE + 0.5, loc="left", pad=4, parse_math=False)
    axes.set_xlabel(panel.x_label, size=_SIZE, labelpad=2, parse_math=False)
    axes.set_ylabel(panel.y_label, size=_SIZE, labelpad=2, parse_math=False)
    axes.tick_params(labelsize=_SIZE - 0.5, length=3, color=PALE)
    axes.grid(color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["right", "top"]].set_visible(False)
