"""What is shown of the nine census divisions: their progress, and their result beside the paper's."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live

    from desmr_node.cli.client import AdminClient
    from desmr_node.transport.wire import admin_pb2 as pb

#: Phases in which a node's fit is over.
OVER = frozenset({"done", "failed"})
#: `datasets.liars.ATTACKS`, here without numpy; a test holds the two together.
ATTACKS = (
    "sign-flip", "constant", "noise", "two-faced", "small-bias", "hidden-bias", "replay", "copy", "drop-out",
    "collusion",
)  # fmt: skip


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Declare which of the paper's scenarios, and which split of its table."""
    parser.add_argument(
        "--scenario",
        choices=("original", "balanced", "attacker", "liar"),
        default="original",
        help="data as they are; one injected row per nine at every division; or a tenth member, joined to "
        "all, with nothing but injected rows, or that lies in every coefficient it sends (default: original)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the random 80/20 split (default: 0)")


def seed(text: str) -> int:
    """A seed as it is written."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: give a whole number, 0 or more")
    return int(text)


class Progress:
    """A table that follows the nodes on a terminal; a line per outer round elsewhere."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes, self._told = nodes, 0
        self._live: Live | None = None
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        from rich.live import Live

        from desmr_node.cli.render import console

        if self._terminal:
            self._live = Live(console=console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, statuses: "dict[str, pb.Status]") -> None:
        """Draw what is known of the nodes."""
        from desmr_node.cli import render

        if self._live is not None:
            rows = [self._row(node, statuses.get(node)) for node in self._nodes]
            titles = (
                "division",
                "neighbours",
                "doing",
                "outer",
                "inner",
                "variables",
                "moved (s.e.)",
                "sent",
            )
            columns: dict[str, render.Side] = dict.fromkeys(titles, "right")
            columns |= {"division": "left", "doing": "left"}
            self._live.update(render.table(columns, rows), refresh=True)
            return
        newest = max((s.fit for s in statuses.values()), default=0)
        history = max((list(s.history) for s in statuses.values() if s.fit == newest), key=len, default=[])
        for line in history[self._told :]:
            print(render.round_line(line), file=sys.stderr)
        self._told = len(history)

    def _row(self, node: str, status: "pb.Status | None") -> list[str]:
        from desmr_node.cli import render

        if status is None:
            return [node, "", "starting", "", "", "", "", ""]
        up = sum(peer.state == "up" for peer in status.peers)
        last = status.history[-1] if status.history else None
        return [
            node,
            f"{up} of {len(status.peers)}",
            status.stage,
            str(status.outer) if status.outer else "",
            f"{status.inner} of {status.inner_limit}" if status.inner else "",
            str(last.nonzeros) if last else "",
            render.number(last.moved, 2) if last else "",
            render.size(sum(peer.bytes_sent for peer in status.peers)),
        ]


def outcome(statuses: "Mapping[str, pb.Status]", clients: "Mapping[str, AdminClient]") -> dict[str, Any]:
    """What the nodes hold once their fit is over: results if it is done everywhere, else why it is not."""
    failed = {node: s.message for node, s in statuses.items() if s.phase == "failed"}
    return {
        "failed": failed,
        "results": {} if failed else {node: clients[node].result() for node in statuses},
        "lost": sorted({name for s in statuses.values() for name in s.lost}),
        # Started again since: what they hold is of another process, and so are its time and traffic.
        "earlier": any(s.phase == "idle" or s.elapsed_seconds == 0 for s in statuses.values()),
        "fit_seconds": max(s.elapsed_seconds for s in statuses.values()),
        "memory_megabytes": max(s.memory_bytes for s in statuses.values()) / 1e6,
        "bytes_per_edge": {
            f"{node} -> {peer.node}": peer.bytes_sent for node, s in statuses.items() for peer in s.peers
        },
    }


def _why_lost(result: Mapping[str, Any]) -> str:
    lies = {lost["node"] for lost in result["lost"]} <= set(result["left_out"])
    return "which seemed to lie and was left out" if lies else "lost"


def show_outcome(outcome: Mapping[str, Any], kept: Path | None = None) -> None:
    """The model, its errors beside the paper's, and how far the divisions agree."""
    from desmr_node.cli import render
    from desmr_node.runtime.census import ATTACKER, LIAR, PAPER

    results = {node: r for node, r in outcome["results"].items() if node not in (ATTACKER, LIAR)}
    first = next(iter(results.values()))
    scenario = outcome["scenario"]
    ranges = {
        name: max(r["coefficients"][name] for r in results.values())
        - min(r["coefficients"][name] for r in results.values())
        for name in first["coefficients"]
    }
    intercepts = [r["intercept"] for r in results.values()]
    ranges["(intercept)"] = max(intercepts) - min(intercepts)
    errors = first["holdout"]
    compared = "original" if scenario == LIAR else scenario  # the paper has no liars
    paper, least_squares = PAPER["deSMR"][compared], PAPER["deLR"][compared]
    rows = [
        ["this fit", f"{errors['rmse']:.3f}", f"{errors['mae']:.3f}", str(len(first["support"]))],
        ["paper, deSMR", f"{paper[0]:.3f}", f"{paper[1]:.3f}", ""],
        ["paper, least squares (deLR)", f"{least_squares[0]:.3f}", f"{least_squares[1]:.3f}", ""],
    ]
    columns: dict[str, render.Side] = {
        f"scenario {scenario}": "left", "RMSE": "right", "MAE": "right", "variables": "right"
    }  # fmt: skip
    alike = len({(r["lambda"], tuple(r["support"])) for r in results.values()}) == 1
    traffic = outcome["bytes_per_edge"].values()
    total = f", all {outcome['seconds']:.1f} s" if "seconds" in outcome else ""
    cost = (
        f"Fit {outcome['fit_seconds']:.1f} s{total}; {first['rounds']} message rounds, "
        f"{render.size(sum(traffic) / len(traffic))} per edge and direction; "
        f"at most {outcome['memory_megabytes']:.0f} MB of memory a node."
    )
    if outcome["earlier"]:
        cost = (
            "Divisions were started again after this fit: it is what they kept. `desmr start` begins another."
        )
    render.show(
        render.coefficients(first, ranges=ranges),
        *render.selected_zeros(first),
        "",
        render.table(columns, rows),
        "",
        f"Errors in standard deviations of the response, on {errors['rows']} held-out communities of one "
        "random 80/20 split; the paper's are means over its splits.",
        f"{len(results)} divisions {'agree' if alike else 'DO NOT AGREE'} on lambda and variables; "
        f"{first['message']}.",
        *(
            [f"WITHOUT {', '.join(outcome['lost'])}, {_why_lost(first)} in the middle of the fit."]
            if outcome["lost"]
            else []
        ),
        cost,
        *([f"Files: {kept}"] if kept else []),
    )
