"""`desmr demo`: nine census divisions as nine local daemons over mutual-TLS gRPC, and their result."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from desmr_node.cli import divisions, plots


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
    divisions.add_scenario(parser)
    parser.add_argument("--keep", metavar="DIR", help="keep the network's files in this folder")
    parser.add_argument(
        "--plot",
        metavar="DIR",
        help="draw network.svg and result.svg into this folder, in the place of older ones (needs "
        "matplotlib: pip install 'desmr-node[plots]')",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import FAILED, INCOMPLETE
    from desmr_node.cli.divisions import show_outcome
    from desmr_node.config import load_network
    from desmr_node.errors import ConfigError
    from desmr_node.runtime.census import write_census
    from desmr_node.runtime.setup import write_network

    pictures = plots.check_folder(arguments.plot) if arguments.plot else None
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
        if pictures is not None:
            plots.draw_demo(network, outcome, pictures)
        if arguments.json:
            print(json.dumps(outcome))
        else:
            show_outcome(outcome, folder if arguments.keep else None)
        return INCOMPLETE if outcome["lost"] else 0
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}): name another with --keep"
        ) from None
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _fit(configs: dict[str, Path]) -> dict[str, Any]:
    """Start the daemons, look on, and gather what they hold at the end."""
    from desmr_node.cli.divisions import OVER, Progress, outcome
    from desmr_node.cli.local import LocalNetwork

    with LocalNetwork(configs) as network, Progress(sorted(configs)) as progress:
        statuses = network.wait(OVER, progress.show)
        return outcome(statuses, {node: network.client(node) for node in configs})
