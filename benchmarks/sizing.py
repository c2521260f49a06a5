"""What a node needs: memory, processor time, bytes per edge and disk of daemons on a ring, for one fit.

python -m benchmarks.sizing             the table of docs/operations.md, about ten minutes on two cores
python -m benchmarks.sizing 1000,20,3,20   one line: rows of a node, features, members, lambdas
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desmr_node.cli.local import LocalNetwork
from desmr_node.config import dump_toml, load_network
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.setup import write_network

CASES = (
    (1_000, 20, 3, 20),
    (1_000, 100, 3, 20),
    (1_000, 100, 3, 5),
    (1_000, 500, 3, 20),
    (100_000, 20, 3, 20),
    (100_000, 100, 3, 20),
    (100_000, 500, 3, 20),
    (1_000, 20, 9, 20),
    (1_000, 100, 9, 20),
    (1_000, 500, 9, 20),
)
_COLUMNS = [
    *("n", "p", "m", "lambdas", "idle MB", "peak MB", "processor s", "elapsed s"),
    *("MB per edge", "audit kB", "result kB", "ADMM rounds"),
]
_RESTING, _ENDED = frozenset({"idle"}), frozenset({"done", "failed"})


@dataclass(frozen=True, slots=True)
class Need:
    """Of the node that needed most; memory in bytes, times in seconds."""

    idle_memory: int
    peak_memory: int
    processor: float
    elapsed: float
    edge_bytes: int
    audit_bytes: int
    result_bytes: int
    admm_rounds: int


def measure(rows: int, features: int, members: int, *, folder: Path, **fit: Any) -> Need:
    """Run one fit on local daemons, a ring of them, and look at what they used."""
    rng = np.random.default_rng(0)
    truth = np.r_[np.linspace(3.0, 1.0, 5), np.zeros(features - 5)]
    names = [f"n{j}" for j in range(members)]
    for name in names:
        X = rng.standard_normal((rows, features))
        np.savez(folder / f"{name}.npz", X=X, y=X @ truth + rng.standard_cauchy(rows))
    ring = [[names[j], names[(j + 1) % members]] for j in range(members)]
    nodes = [
        {"id": name, "address": f"127.0.0.1:{port}", "data": f"{name}.npz"}
        for name, port in zip(names, free_ports(members), strict=True)
    ]
    document = {"network": "size", "edges": ring, "data": {"response": "y"}, "fit": fit, "nodes": nodes}
    (folder / "network.toml").write_text(dump_toml(document))
    paths = write_network(load_network(folder / "network.toml", environ={}), folder / "n")
    with LocalNetwork(paths) as network:
        network.wait(_RESTING, timeout=600)
        pids = {name: process.pid for name, process in network.processes.items()}
        idle = max(_memory(pid) for pid in pids.values())
        before = {name: _processor(pid) for name, pid in pids.items()}
        network.client(names[0]).start()
        statuses = network.wait(_ENDED, timeout=3_600)
        if any(status.phase != "done" for status in statuses.values()):
            raise SystemExit(f"the fit failed: {statuses[names[0]].message}")
        results = {name: network.client(name).result() for name in names}
        return Need(
            idle_memory=idle,
            peak_memory=max(_memory(pid) for pid in pids.values()),
            processor=max(_processor(pid) - before[name] for name, pid in pids.items()),
            elapsed=max(status.elapsed_seconds for status in statuses.values()),
            edge_bytes=max(max(result["bytes_sent"].values()) for result in results.values()),
            audit_bytes=max(_size(path, "audit.jsonl") for path in paths.values()),
            result_bytes=max(_size(path, "result.json") for path in paths.values()),
            admm_rounds=results[names[0]]["admm_rounds"],
        )


def _memory(pid: int) -> int:
    """The most a process has ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _size(config: Path, name: str) -> int:
    return (config.parent / "state" / name).stat().st_size


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    arguments = sys.argv[1:] if argv is None else argv
    cases = [tuple(int(part) for part in text.split(",")) for text in arguments] or CASES
    print(f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|")
    for rows, features, members, lambdas in cases:
        with tempfile.TemporaryDirectory(prefix="d") as folder:
            need = measure(rows, features, members, folder=Path(folder), lambdas=lambdas)
        cells = (
            *(str(number) for number in (rows, features, members, lambdas)),
            f"{need.idle_memory / 1e6:.0f}",
            f"{need.peak_memory / 1e6:.0f}",
            f"{need.processor:.1f}",
            f"{need.elapsed:.1f}",
            f"{need.edge_bytes / 1e6:.2f}",
            f"{need.audit_bytes / 1e3:.0f}",
            f"{need.result_bytes / 1e3:.0f}",
            str(need.admm_rounds),
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
