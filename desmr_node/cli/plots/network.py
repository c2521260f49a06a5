"""A network as a picture: a box with its id for every node, a line for every edge."""

from pathlib import Path

import numpy as np

from desmr_node.cli.plots.files import INK, PALE, save, style, text_widths
from desmr_node.cli.plots.layout import place
from desmr_node.config import NetworkConfig

#: White space between an id and its box, and around the whole, in points.
_PADDING = np.array([7.0, 5.0])
_MARGIN = 16.0
_CAPTION = 22.0


def draw_network(network: NetworkConfig, path: Path) -> str:
    """Draw the nodes and edges of a network file; the caption."""
    with style():
        return _draw(network, path)


def _draw(network: NetworkConfig, path: Path) -> str:
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    graph, ids = network.graph(), network.ids
    listed = [ids.index(node.id) for node in network.nodes]
    size = 9.5 if graph.size <= 16 else 8.5 if graph.size <= 32 else 7.0
    half = np.array([[width, 0.75 * size] for width in text_widths(ids, size)]) / 2 + _PADDING * size / 10
    places = place(graph, half, listed)
    caption = (
        f"{network.network}: {_counted(graph.size, 'node')}, {_counted(graph.edge_count, 'edge')}, "
        f"diameter {graph.diameter()}"
    )
    # The page is as large as what is on it: one unit of the axes is one point.
    low = (places - half).min(axis=0) - _MARGIN - [0.0, _CAPTION]
    high = (places + half).max(axis=0) + _MARGIN
    missing = text_widths([caption], 9.5)[0] + 2 * _MARGIN - (high - low)[0]
    low[0], high[0] = low[0] - max(missing, 0.0) / 2, high[0] + max(missing, 0.0) / 2
    figure = Figure(figsize=tuple((high - low) / 72), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    # All edges are one line with gaps: a picture of a dense network stays small.
    gap = np.full(2, np.nan)
    ends = [(places[j], places[k], gap) for j, ks in enumerate(graph.neighbours) for k in ks if j < k]
    if ends:
        width = 1.4 if graph.edge_count <= 3 * graph.size else 0.8
        axes.plot(*np.concatenate(ends).T, color=PALE, linewidth=width, zorder=1)
    for name, centre, (w, h) in zip(ids, places, half, strict=True):
        x, y = map(float, centre)
        shape = FancyBboxPatch(
            (x - w, y - h),
            2 * w,
            2 * h,
            boxstyle=f"round,pad=0,rounding_size={0.8 * h:.2f}",
            facecolor="#eef3f8",
            edgecolor=INK,
            linewidth=1.1,
            zorder=2,
        )
        axes.add_patch(shape)
        axes.text(
            x, y, name, size=size, ha="center", va="center_baseline", color=INK, parse_math=False, zorder=3
        )
    axes.text(
        (low[0] + high[0]) / 2,
        low[1] + _MARGIN,
        caption,
        size=9.5,
        ha="center",
        va="baseline",
        color=PALE,
        parse_math=False,
    )
    save(figure, path, caption)
    return caption


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
