"""`desmr simulate`: a network file fitted in one process."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from desmr_node.cli import plots

if TYPE_CHECKING:
    from desmr_node.core.fit import OuterRound

_DESCRIPTION = """\
Fit the network of a file in this process: the machines, messages and sums of its daemons, without ports and
certificates. The coefficients are those of the daemons, to the last bit.

All nodes' data files must be on this machine."""
_EXAMPLES = """\
examples:
  desmr simulate crime.toml
  desmr simulate crime.toml --json | jq '.nodes.pacific.holdout'
  desmr simulate crime.toml --out results    result.json and coefficients.csv of every node
  desmr simulate crime.toml --plot crime.svg    a bar for each variable, a whisker for how far nodes differ
  DESMR_FIT__PENALTY=l1 desmr simulate crime.toml    with a setting changed"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "simulate",
        help="fit a network in one process; same bits as its daemons",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", metavar="NETWORK.toml", help="the network: its nodes, edges, columns, fit")
    parser.add_argument("--all", action="store_true", help="show the features that were not selected, too")
    parser.add_argument("--json", action="store_true", help="print every node's result as one JSON object")
    parser.add_argument("--out", metavar="DIR", help="write each node's result.json and coefficients.csv")
    plots.add_option(parser)
    parser.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import FAILED, render
    from desmr_node.config import load_network
    from desmr_node.runtime.network import Agreement, FitFailed, run_network

    picture = plots.option(arguments)
    network = load_network(arguments.network)
    try:
        fit = run_network(network, _tell if sys.stderr.isatty() else None)
    except FitFailed as failure:
        print(f"desmr: the fit failed: {render.plain(str(failure))}", file=sys.stderr)
        return FAILED
    documents = fit.documents()
    written = fit.write(arguments.out) if arguments.out else []
    if picture is not None:
        from desmr_node.cli.plots.result import draw_result

        draw_result(documents, picture)
    if arguments.json:
        print(json.dumps({"network": network.network, "bytes_sent": fit.bytes_sent, "nodes": documents}))
        return 0
    first = network.ids[0]
    ranges = None
    if len(documents) > 1:
        ranges = {"(intercept)": _range([d["intercept"] for d in documents.values()])} | {
            name: _range([d["coefficients"][name] for d in documents.values()])
            for name in documents[first]["coefficients"]
        }
    render.show_result(documents[first], everything=arguments.all, ranges=ranges)
    if len(documents) > 1:
        agreement, spread = Agreement.of(fit.fits), fit.fits[first].history[-1].spread
        same = "the same lambda and features at every node" if agreement.alike else "NODES DISAGREE"
        print(
            f"agreement: {same}; coefficients differ by at most {render.number(agreement.coefficient, 2)} "
            f"({render.number(spread, 2)} standard errors)"
        )
    if written:
        print(f"written: result.json and coefficients.csv in {written[0]} and {len(written) - 1} more")
    if picture is not None:
        print(f"picture: {picture}")
    return 0


def _range(values: list[float]) -> float:
    return max(values) - min(values)


def _tell(line: "OuterRound") -> None:
    print(
        f"outer round {line.outer}: lambda {line.lambda_:.3g}, objective {line.objective:.6g}, "
        f"{line.nonzeros} variables, moved {line.moved:.2g} and spread {line.spread:.2g} standard errors"
        f"{'' if line.accepted else ', rejected'}",
        file=sys.stderr,
    )
