"""`desmr demo`: nine census divisions as nine local daemons over mutual-TLS gRPC, and their result."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.live import Live

    from desmr_node.transport.wire import admin_pb2 as pb

_OVER = frozenset({"done", "failed"})


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="nine census divisions fit one model on this machine",
        description="Split the packaged crime table (UCI Communities and Crime) into the private files of "
        "nine census divisions, start a daemon for each, let them fit one sparse median regression over "
        "mutual-TLS gRPC, and print the model and its errors on held-out communities beside the paper's.",
        epilog="The folder given with --keep holds everything a real network has: network.toml, a node.toml, "
        "key and certificate per node, logs, audit logs and results.",
    )
    parser.add_argument(
        "--scenario",
        choices=("original", "balanced", "attacker"),
        default="original",
        help="data as they are; one injected row per nine at every division; or a tenth member, joined to "
        "all, with nothing but injected rows (default: original)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random 80/20 split (default: 0)")
    parser.add_argument("--keep", metavar="DIR", help="keep the network's files in this folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import FAILED
    from desmr_node.config import load_network
    from desmr_node.errors import ConfigError
    from desmr_node.runtime.census import write_census
    from desmr_node.runtime.setup import write_network

    if arguments.seed < 0:
        raise ConfigError(f"--seed is {arguments.seed}: give a whole number, 0 or more")
    began = time.monotonic()
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="desmr-demo-"))
    if arguments.keep and folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty: name a new folder with --keep")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        print(f"Writing private tables, keys and configurations to {folder} ...", file=sys.stderr, flush=True)
        network = load_network(write_census(folder, arguments.scenario, arguments.seed), environ={})
        configs = write_network(network, folder)
        print(f"Starting {len(configs)} daemons ...", file=sys.stderr, flush=True)
        outcome = _fit(configs)
        outcome |= {"scenario": arguments.scenario, "seconds": round(time.monotonic() - began, 1)}
        if outcome["failed"]:
            for node, reason in outcome["failed"].items():
                print(f"desmr: {node}: {reason}", file=sys.stderr)
            return FAILED
        if arguments.json:
            print(json.dumps(outcome))
        else:
            _show(outcome, folder if arguments.keep else None)
        return 0
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}): name another with --keep"
        ) from None
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _fit(configs: dict[str, Path]) -> dict[str, Any]:
    """Start the daemons, look on, and gather what they hold at the end."""
    from desmr_node.cli.local import LocalNetwork

    with LocalNetwork(configs) as network, _Progress(sorted(configs)) as progress:
        statuses = network.wait(_OVER, progress.show)
        failed = {node: s.message for node, s in statuses.items() if s.phase == "failed"}
        results = {} if failed else {node: network.client(node).result() for node in configs}
        return {
            "failed": failed,
            "results": results,
            "fit_seconds": max(s.elapsed_seconds for s in statuses.values()),
            "memory_megabytes": max(s.memory_bytes for s in statuses.values()) / 1e6,
            "bytes_per_edge": {
                f"{node} -> {peer.node}": peer.bytes_sent for node, s in statuses.items() for peer in s.peers
            },
        }


class _Progress:
    """A table that follows the nodes on a terminal; a line per outer round elsewhere."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes, self._told = nodes, 0
        self._live: Live | None = None
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
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
        history = max((list(s.history) for s in statuses.values()), key=len, default=[])
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


def _show(outcome: dict[str, Any], kept: Path | None) -> None:
    from desmr_node.cli import render
    from desmr_node.runtime.census import ATTACKER, PAPER

    results = {node: r for node, r in outcome["results"].items() if node != ATTACKER}
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
    paper = PAPER["deSMR"][scenario]
    least_squares = PAPER["deLR"][scenario]
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
    render.show(
        render.coefficients(first, ranges=ranges),
        "",
        render.table(columns, rows),
        "",
        f"Errors in standard deviations of the response, on {errors['rows']} held-out communities of one "
        "random 80/20 split; the paper's are means over its splits.",
        f"{len(results)} divisions {'agree' if alike else 'DO NOT AGREE'} on lambda and variables; "
        f"{first['message']}.",
        f"Fit {outcome['fit_seconds']:.1f} s, all {outcome['seconds']:.1f} s; {first['rounds']} message "
        f"rounds, {render.size(sum(traffic) / len(traffic))} per edge and direction; "
        f"at most {outcome['memory_megabytes']:.0f} MB of memory a node.",
        *([f"Files: {kept}"] if kept else []),
    )
