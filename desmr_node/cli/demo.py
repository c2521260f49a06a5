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
    parser.add_argument(
        "--attack",
        choices=divisions.ATTACKS,
        help="what the liar of `--scenario liar` says (default: sign-flip)",
    )
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
    from desmr_node.runtime.census import LIAR, write_census
    from desmr_node.runtime.setup import write_network

    if arguments.attack and arguments.scenario != LIAR:
        raise ConfigError("--attack is what a liar says: add --scenario liar")
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
        outcome = _fit(configs, arguments.attack or "sign-flip")
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
        return INCOMPLETE if set(outcome["lost"]) - {LIAR} else 0
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}): name another with --keep"
        ) from None
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _fit(configs: dict[str, Path], attack: str) -> dict[str, Any]:
    """Start the daemons, look on, and gather what the honest ones hold at the end."""
    from desmr_node.cli.divisions import OVER, Progress, outcome
    from desmr_node.cli.local import LocalNetwork
    from desmr_node.runtime.census import LIAR

    lies = {LIAR: ("-m", "desmr_node.runtime.liar", "--attack", attack)}
    honest = sorted(configs.keys() - {LIAR})
    with LocalNetwork(configs, lies) as network, Progress(honest) as progress:
        statuses = network.wait(OVER, progress.show, nodes=honest)
        return outcome(statuses, {node: network.client(node) for node in honest})
