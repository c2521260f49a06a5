"""A fit as a picture: its coefficients, largest first, and its errors beside those of others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desmr_node.cli import render
from desmr_node.cli.plots.files import INK, PALE, save, style, text_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: One node's result.json, and those of several nodes by id.
Result = Mapping[str, Any]
#: Variables shown at most: more fit on no page.
_MOST = 40
#: Characters of a name shown at most.
_LONG = 36
_FILL = "#9db8d2"

# In points.
_WIDTH, _MARGIN, _ROW, _LINE = 590.0, 16.0, 14.5, 14.0
_AXIS = 40.0  # ticks and label below a panel
_SIZE, _HEAD = 8.5, 10.5


@dataclass(frozen=True, slots=True)
class Rival:
    """One line of the comparison: whose errors, RMSE, MAE."""

    name: str
    rmse: float
    mae: float


def draw_result(
    results: Mapping[str, Result],
    path: Path,
    rivals: Sequence[Rival] = (),
    errors_label: str = "error on the hold-out rows",
) -> None:
    """Draw the coefficients that one node, or several, hold; with ``rivals``, errors in a second panel."""
    with style():
        _draw(results, path, rivals, errors_label)


def _draw(results: Mapping[str, Result], path: Path, rivals: Sequence[Rival], errors_label: str) -> None:
    from matplotlib.figure import Figure

    first = next(iter(results.values()))
    bars = _bars(results)
    head, lines = _head(first), _filled(_caption(results, len(bars)))
    errors = first["holdout"]
    compared = [Rival("this fit", errors["rmse"], errors["mae"]), *rivals] if errors and rivals else []
    names = [bar.name for bar in bars] + [rival.name for rival in compared]
    left = max(text_widths(names, _SIZE), default=0.0) + _MARGIN + 8.0
    top = _MARGIN + _HEAD + _LINE * len(lines) + 12.0
    room = _ROW * max(len(bars), 2) + 6.0
    below = _AXIS + (_ROW * (len(compared) + 1) + _AXIS + 4.0 if compared else 0.0) + 4.0
    height = top + room + below
    figure = Figure(figsize=(_WIDTH / 72, height / 72), facecolor="white")

    def panel(low: float, tall: float) -> "Axes":
        wide = _WIDTH - left - _MARGIN
        return figure.add_axes((left / _WIDTH, low / height, wide / _WIDTH, tall / height))

    _write(figure, [head, *lines], height)
    _coefficients(panel(below, room), bars, _axis_label(first))
    if compared:
        _comparison(panel(_AXIS + 4.0, _ROW * (len(compared) + 1)), compared, errors_label)
    save(figure, path, head)


# --- what is shown --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bar:
    """A variable: the mean of its coefficients over the nodes, the smallest and the largest."""

    name: str
    value: float
    low: float
    high: float


def _bars(results: Mapping[str, Result]) -> list[_Bar]:
    first = next(iter(results.values()))
    scales = first.get("scales") or {}
    bars = []
    for name in first["support"]:
        values = np.array([r["coefficients"][name] for r in results.values()]) * scales.get(name, 1.0)
        bars.append(_Bar(_short(name), float(values.mean()), float(values.min()), float(values.max())))
    return sorted(bars, key=lambda bar: (-abs(bar.value), bar.name))[:_MOST]


def _head(result: Result) -> str:
    """What was fitted, over what."""
    return render.result_lines({**result, "response": _short(result["response"])})[0]


def _caption(results: Mapping[str, Result], shown: int) -> list[str]:
    """Where, how sparse, how good, how it ended: in pieces, each of which stays on one line."""
    node, first = next(iter(results.items()))
    kept, errors = len(first["support"]), first["holdout"]
    variables = f"{kept} of {len(first['coefficients'])} variables"
    pieces = [
        f"network {_short(first['network'])}",
        f"lambda {render.number(first['lambda'], 3)}",
        variables if shown == kept else f"{variables}, the {shown} largest shown",
        f"RMSE {render.number(errors['rmse'], 3)}, MAE {render.number(errors['mae'], 3)} "
        f"on {errors['rows']} hold-out rows"
        if errors
        else "no hold-out rows",
        "converged" if first["converged"] else "NOT CONVERGED",
    ]
    if len(results) > 1 and shown:
        pieces.append(f"bars: mean of {len(results)} nodes, whiskers: their range")
    elif len(first["members"]) > 1:
        pieces.insert(1, f"as {_short(node)} holds it")
    return pieces


def _filled(pieces: list[str]) -> list[str]:
    """As many pieces on a line as fit on the page."""
    lines = pieces[:1]
    for piece in pieces[1:]:
        longer = f"{lines[-1]} · {piece}"
        if text_widths([longer], _SIZE)[0] <= _WIDTH - 2 * _MARGIN:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _axis_label(result: Result) -> str:
    if not result.get("scales"):
        return "coefficient, in the data's own units"
    spread = "standard deviation" if result["settings"]["intercept"] else "root mean square"
    return f"change of {_short(result['response'])} per {spread} of the variable"


def _short(name: str) -> str:
    """A name without control characters; without its middle if it is long, since names differ at the ends."""
    name = render.plain(name)
    if len(name) <= _LONG:
        return name
    return f"{name[: _LONG // 2]}…{name[-(_LONG - _LONG // 2 - 1) :]}"


# --- how it is drawn ------------------------------------------------------------------------------------


def _write(figure: "Figure", lines: list[str], height: float) -> None:
    down = _MARGIN + 0.8 * _HEAD
    for k, line in enumerate(lines):
        figure.text(
            _MARGIN / _WIDTH,
            1 - down / height,
            line,
            size=_SIZE if k else _HEAD,
            weight="normal" if k else "bold",
            color=PALE if k else INK,
            va="baseline",
            parse_math=False,
        )
        down += _LINE if k else _LINE + 2.0


def _coefficients(axes: "Axes", bars: list[_Bar], label: str) -> None:
    rows = np.arange(len(bars))
    axes.barh(rows, [bar.value for bar in bars], height=0.62, color=_FILL, edgecolor=INK, linewidth=0.6)
    for row, bar in zip(rows, bars, strict=True):
        if bar.high > bar.low:
            axes.plot([bar.low, bar.high], [row, row], color=INK, linewidth=1.0)
            axes.plot([bar.low, bar.high], [row, row], "|", color=INK, markersize=5.0, markeredgewidth=1.0)
    if not bars:
        axes.set_xlim(-1.0, 1.0)
        axes.set_xticks([0.0])
        axes.text(0.03, 0.5, "no variable was selected", color=PALE, size=_SIZE, va="center")
    axes.axvline(0.0, color=INK, linewidth=0.9)
    _rows(axes, [bar.name for bar in bars], label)


def _comparison(axes: "Axes", lines: list[Rival], label: str) -> None:
    rows = np.arange(1, len(lines) + 1)  # row 0 says which mark is which
    for measure, fill in (("rmse", INK), ("mae", "white")):
        values = [float(getattr(line, measure)) for line in lines]
        axes.plot(values, rows, "o", markersize=5.0, markerfacecolor=fill, markeredgecolor=INK)
        axes.text(values[0], 0, measure.upper(), size=_SIZE, weight="bold", ha="center", va="center")
        for value, row in zip(values, rows, strict=True):
            axes.annotate(
                f"{value:.3f}", (value, row), (6, 0), textcoords="offset points", size=_SIZE, va="center"
            )
    axes.set_xlim(0.0, 1.15 * max(max(line.rmse, line.mae) for line in lines))
    _rows(axes, ["", *(line.name for line in lines)], label)


def _rows(axes: "Axes", names: list[str], label: str) -> None:
    """A name for every row, the first on top; no frame but the axis."""
    axes.set_ylim(max(len(names), 2) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.tick_params(axis="y", length=0, pad=5, labelsize=_SIZE)
    axes.tick_params(axis="x", length=3, labelsize=_SIZE, color=PALE)
    axes.grid(axis="x", color="#e3e8ee", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_xlabel(label, size=_SIZE, parse_math=False)
