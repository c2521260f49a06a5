"""Pictures of networks and fits, with matplotlib (the extra `plots`), as SVG or PNG files.

A command asks for the path first, so that nothing long is computed for a picture that cannot be written, and
draws at the end with `network.draw_network` or `result.draw_result`, which import what is heavy.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desmr_node.cli.plots.files import check, check_folder

if TYPE_CHECKING:
    from desmr_node.config import NetworkConfig

__all__ = ["add_option", "check", "check_folder", "draw_demo", "option"]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Declare `--plot FILE` of a command that ends with a fit."""
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the selected coefficients, per standard deviation of each variable if the network scaled "
        "them, into this .svg or .png file (needs matplotlib: pip install 'desmr-node[plots]')",
    )
    parser.add_argument("--replace", action="store_true", help="put the picture in the place of an older one")


def option(arguments: argparse.Namespace) -> Path | None:
    """The path given with `--plot`, if any."""
    return None if arguments.plot is None else check(arguments.plot, replace=arguments.replace)


def draw_demo(network: "NetworkConfig", outcome: Mapping[str, Any], folder: Path) -> None:
    """The demonstration's two pictures: network.svg, and result.svg with the errors beside the paper's."""
    from desmr_node.cli.plots.network import draw_network
    from desmr_node.cli.plots.result import Rival, draw_result
    from desmr_node.runtime.census import ATTACKER, LIAR, PAPER

    scenario = "original" if outcome["scenario"] == LIAR else outcome["scenario"]
    results = {node: result for node, result in outcome["results"].items() if node not in (ATTACKER, LIAR)}
    rivals = [
        Rival("paper, deSMR", *PAPER["deSMR"][scenario]),
        Rival("paper, least squares (deLR)", *PAPER["deLR"][scenario]),
    ]
    draw_network(network, folder / "network.svg")
    label = "error on held-out communities, in standard deviations (paper: means over its splits)"
    draw_result(results, folder / "result.svg", rivals, label)
