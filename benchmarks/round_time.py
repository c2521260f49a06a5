"""The time of a round, nine daemons over mutual TLS, against a bare grpc.aio loop over the same graph.

`python -m benchmarks.round_time [--rounds 3000] [--repeats 5] [--tiny]`

The census graph (9 nodes, 13 edges), 200 rows and 100 columns at each node, Cauchy noise, one lambda, one
long outer round. A daemon's round time is read off its own metrics. The bare loop (`benchmarks.bare_loop`)
sends as many bytes over the same edges with the same certificates and does no work. The two take turns; the
ratio is that of the medians over turns. Where nine processes share a few cores a round's time is mostly
processor time, so that is printed as well: it does not depend on what else the machine is doing.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Check, conclude, parser
from desmr_node.cli.local import LocalNetwork
from desmr_node.config import dump_toml, load_network, load_node
from desmr_node.datasets import simulated_network
from desmr_node.datasets.crime import BORDERS, DIVISIONS
from desmr_node.runtime.census import free_ports, node_id
from desmr_node.runtime.setup import write_network

COLUMNS, ROWS, LAMBDA = 100, 200, 0.05
MOST_RATIO = 1.3
WARM_UP = 50


class Cost(NamedTuple):
    """Of one round, mean over the nodes, in milliseconds; bytes of a message."""

    wall: float
    processor: float
    message_bytes: int


def write(folder: Path, rounds: int) -> dict[str, Path]:
    """The network's files."""
    ids = [node_id(name) for name in DIVISIONS]
    design = simulated_network(
        np.random.default_rng(0), noise_name="cauchy", m=len(ids), n=ROWS, p=COLUMNS, connection=1.0
    )
    ports = free_ports(2 * len(ids))
    nodes = []
    for j, name in enumerate(ids):
        X, y = design.datasets[j]
        np.savez(folder / f"{name}.npz", X=X, y=y)
        address, metrics = (f"127.0.0.1:{ports[2 * j + k]}" for k in (0, 1))
        nodes.append({"id": name, "address": address, "metrics": metrics, "data": f"{name}.npz"})
    document = {
        "network": "round-time",
        "edges": [[ids[a], ids[b]] for a, b in BORDERS],
        "fit": {"lambda": LAMBDA, "outer": 1, "inner": rounds, "tolerance": 0.0},
        "data": {"response": "y"},
        "nodes": nodes,
    }
    (folder / "network.toml").write_text(dump_toml(document))
    return write_network(load_network(folder / "network.toml", environ={}), folder / "nodes")


def scrape(address: str) -> dict[str, float]:
    """A node's metrics, with their labels."""
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        lines = page.read().decode().splitlines()
    return {k: float(v) for k, v in (line.rsplit(maxsplit=1) for line in lines if line[0] != "#")}


def daemons(configs: dict[str, Path]) -> Cost:
    """Nine daemons, one fit."""
    pages = {node: load_node(path).metrics.listen or "" for node, path in configs.items()}
    with LocalNetwork(configs) as network:
        network.wait(frozenset({"idle"}))
        network.client(min(configs)).start()
        before = {node: scrape(page) for node, page in pages.items()}
        while min(page["desmr_round_seconds_count"] for page in before.values()) < WARM_UP:
            before = {node: scrape(page) for node, page in pages.items()}
        statuses = network.wait(frozenset({"done", "failed"}), pause=1.0)
        failed = [status.message for status in statuses.values() if status.phase == "failed"]
        if failed:
            raise RuntimeError(failed[0])
        after = {node: scrape(page) for node, page in pages.items()}
        sent = sum(peer.bytes_sent for status in statuses.values() for peer in status.peers)
        messages = sum(peer.messages_sent for status in statuses.values() for peer in status.peers)

    def per_round(name: str) -> float:
        counted = "desmr_round_seconds_count"
        return float(
            np.mean(
                [(after[n][name] - before[n][name]) / (after[n][counted] - before[n][counted]) for n in pages]
            )
        )

    for path in configs.values():
        shutil.rmtree(path.parent / "state")
    wall, processor = per_round("desmr_round_seconds_sum"), per_round("desmr_cpu_seconds_total")
    return Cost(1e3 * wall, 1e3 * processor, round(sent / messages))


def bare(configs: dict[str, Path], rounds: int, size: int) -> Cost:
    """Nine processes that only talk, over gRPC as it comes."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    folder = next(iter(configs.values())).parent.parent
    command = [sys.executable, "-m", "benchmarks.bare_loop"]
    processes = [
        subprocess.Popen(
            [*command, node, str(folder), str(rounds), str(size)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for node in configs
    ]
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):  # the others would wait for it for ever
            for process in processes:
                process.kill()
        time.sleep(0.05)
    printed = [process.communicate()[0].split() for process in processes]
    if not all(printed):
        raise RuntimeError(f"a bare loop broke off: {[process.returncode for process in processes]}")
    wall, processor = np.array(printed, dtype=float).mean(axis=0)
    return Cost(1e3 * float(wall), 1e3 * float(processor), size)


def measure(rounds: int, repeats: int) -> tuple[Cost, Cost]:
    """Medians over turns of (daemons, bare loop)."""
    with tempfile.TemporaryDirectory(prefix="desmr-rounds-") as name:
        configs = write(Path(name), rounds)
        turns = []
        for _ in range(repeats):
            ours = daemons(configs)
            peer = bare(configs, rounds, ours.message_bytes)
            turns.append((ours, peer))
            print(f"  daemons {ours.wall:.3f} ms a round, bare loop {peer.wall:.3f} ms", flush=True)
        middle = np.median(np.array(turns, dtype=float), axis=0)
        ours, peer = (Cost(wall, processor, int(size)) for wall, processor, size in middle)
        return ours, peer


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, compare."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=3000)
    arguments.add_argument("--repeats", type=int, default=5)
    chosen = arguments.parse_args(argv)
    rounds, repeats = (200, 1) if chosen.tiny else (chosen.rounds, chosen.repeats)
    ours, peer = measure(rounds, repeats)
    print(f"{'':24}{'round, ms':>12}{'processor, ms a node':>24}{'bytes a message':>18}")
    for name, cost in (("desmr-node", ours), ("bare grpc.aio loop", peer)):
        print(f"{name:24}{cost.wall:>12.3f}{cost.processor:>24.3f}{cost.message_bytes:>18}")
    print(f"{'ratio':24}{ours.wall / peer.wall:>12.2f}{ours.processor / peer.processor:>24.2f}")
    return conclude([Check("round time, daemons against the bare loop", ours.wall / peer.wall, MOST_RATIO)])


if __name__ == "__main__":
    raise SystemExit(main())
