"""Fit after fit on the same daemons: what they hold between two fits does not grow, and the bits stay.

`python -m benchmarks.soak [--fits 200] [--tiny]`

Four daemons over mutual TLS (a ring with a chord), 200 rows and 20 columns each, default settings; fits are
begun over the admin API, each at the next node. After a fit has ended everywhere each process is looked at
from outside, in /proc: anonymous memory, open files, sockets among them, threads; and its own page of metrics
says how many tasks its event loop has. What a node needs once is there after the first fits, so the figures
of the last ones are held against those of the ones just after the warm-up.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Check, conclude, parser
from benchmarks.round_time import scrape
from desmr_node.cli.local import LocalNetwork
from desmr_node.config import dump_toml, load_network, load_node
from desmr_node.datasets import simulated_network
from desmr_node.errors import DesmrError
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.setup import write_network

NODES = ("east", "north", "south", "west")
EDGES = (("east", "north"), ("east", "south"), ("north", "west"), ("south", "west"), ("north", "south"))
ROWS, COLUMNS = 200, 20
#: Fits before anything is held against anything, and fits at either end whose means are compared.
WARM_UP, WINDOW = 20, 20
MOST_GROWTH = 0.05
#: Seconds for what a fit, or a look, has opened to be closed again: that is done on threads of their own.
_SETTLES = 1.0
_LOOKS, _PAUSE = 5, 0.05
_LIMIT = 60.0


class Held(NamedTuple):
    """What a node holds after a fit; memory in bytes."""

    memory: int
    files: int
    sockets: int
    threads: int
    tasks: int


class Soak(NamedTuple):
    """What was seen after each fit: by node, as arrays of (fits, figures of `Held`)."""

    held: dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]]
    seconds: list[float]
    results: int
    audit_bytes: int
    log_bytes: int


def write(folder: Path, **fit: float) -> dict[str, Path]:
    """The network's files; ``fit`` has settings that are not defaults."""
    design = simulated_network(
        np.random.default_rng(0), noise_name="cauchy", m=len(NODES), n=ROWS, p=COLUMNS, connection=1.0
    )
    ports = iter(free_ports(2 * len(NODES)))
    nodes = []
    for name, (X, y) in zip(NODES, design.datasets, strict=True):
        np.savez(folder / f"{name}.npz", X=X, y=y)
        address, metrics = (f"127.0.0.1:{next(ports)}" for _ in range(2))
        nodes.append({"id": name, "address": address, "metrics": metrics, "data": f"{name}.npz"})
    document = {
        "network": "soak",
        "edges": [list(edge) for edge in EDGES],
        "fit": fit,
        "data": {"response": "y"},
        "nodes": nodes,
    }
    (folder / "network.toml").write_text(dump_toml(document))
    return write_network(load_network(folder / "network.toml", environ={}), folder / "nodes")


def look(pid: int, page: str) -> Held:
    """A process as the system sees it, and its tasks as it counts them itself."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in status)
    open_ = list(_open(pid))
    sockets = sum(target.startswith("socket:") for target in open_)
    tasks = int(scrape(page)["desmr_tasks"])  # last: asking takes a socket and a thread there, for a moment
    return Held(1024 * int(fields["RssAnon"].split()[0]), len(open_), sockets, int(fields["Threads"]), tasks)


def _open(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue  # closed since it was listed


def usually(pid: int, page: str) -> Held:
    """The least of several looks: what is only on its way out does not count."""
    looks = []
    for _ in range(_LOOKS):
        looks.append(look(pid, page))
        time.sleep(_PAUSE)
    return Held(*np.min(looks, axis=0).tolist())


def settled(pid: int, page: str, usual: Held) -> Held:
    """A look, once all is as usual or, if it never is, as it is after a while: leaving takes a moment."""
    deadline = time.monotonic() + _SETTLES
    while True:
        seen = look(pid, page)
        if seen[1:] == usual[1:] or time.monotonic() > deadline:
            return seen
        time.sleep(_PAUSE)


def soak(folder: Path, fits: int, warm_up: int) -> Soak:
    """Run the fits; every one must be done everywhere, by all members."""
    paths = write(folder)
    pages = {node: load_node(path).metrics.listen or "" for node, path in paths.items()}
    held: dict[str, list[Held]] = {node: [] for node in NODES}
    usual: dict[str, Held] = {}
    results, seconds = set(), []
    with LocalNetwork(paths) as network:
        network.wait(frozenset({"idle"}))
        for fit in range(1, fits + 1):
            begin = time.monotonic()
            network.client(NODES[fit % len(NODES)]).start()
            _await(network, fit)
            seconds.append(time.monotonic() - begin)
            for node, process in network.processes.items():
                if fit == warm_up:
                    usual[node] = usually(process.pid, pages[node])
                if fit <= warm_up:
                    held[node].append(look(process.pid, pages[node]))
                else:
                    usual[node] = settled(process.pid, pages[node], usual[node])
                    held[node].append(usual[node])
                result = network.client(node).result()
                results.add((node, result["lambda"], result["intercept"], *result["coefficients"].values()))
            if fit % WINDOW == 0:
                megabytes = max(seen[-1].memory for seen in held.values()) / 1e6
                print(f"  fit {fit}: {megabytes:.1f} MB at most, {seconds[-1]:.2f} s", flush=True)
    return Soak(
        {node: np.array(seen, dtype=float) for node, seen in held.items()},
        seconds,
        len(results),
        max((path.parent / "state" / "audit.jsonl").stat().st_size for path in paths.values()),
        max(path.with_name("node.log").stat().st_size for path in paths.values()),
    )


def _await(network: LocalNetwork, fit: int) -> None:
    deadline = time.monotonic() + _LIMIT
    while True:
        statuses = network.statuses()
        failed = [status.message for status in statuses.values() if status.phase == "failed"]
        if failed:
            raise DesmrError(f"fit {fit} failed: {failed[0]}")
        if all(status.phase == "done" and status.fit == fit for status in statuses.values()):
            return
        if time.monotonic() > deadline:
            raise DesmrError(f"fit {fit} was not done within {_LIMIT:.0f} s")
        time.sleep(0.02)


def growth(memory: np.ndarray[tuple[int], np.dtype[np.float64]], warm_up: int, window: int) -> float:
    """How far the mean of the last fits is from that of the first ones after the warm-up, as a part of it."""
    return float(abs(memory[-window:].mean() / memory[warm_up : warm_up + window].mean() - 1))


def bounds(seen: Soak, warm_up: int, window: int) -> list[Check]:
    """Flat memory, and as many of everything else at the end as after the warm-up."""
    compared = f"memory, last {window} fits against {warm_up + 1} to {warm_up + window}"
    checks = [
        Check(f"{node}: {compared}", growth(held[:, 0], warm_up, window), MOST_GROWTH)
        for node, held in seen.held.items()
    ]
    for k, name in enumerate(Held._fields[1:], start=1):
        spread = max(float(np.ptp(held[warm_up:, k])) for held in seen.held.values())
        checks.append(Check(f"{name}: most against fewest after a fit", spread, 0.0))
    checks.append(Check("results that differ from the first", seen.results - len(NODES), 0.0))
    return checks


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, compare."""
    options = parser(__doc__)
    options.add_argument("--fits", type=int, default=200, help="default %(default)s, at least 40")
    chosen = options.parse_args(argv)
    fits, warm_up, window = (6, 3, 1) if chosen.tiny else (chosen.fits, WARM_UP, WINDOW)
    if fits < warm_up + window:
        options.error(f"--fits {fits}: at least {warm_up + window} are needed")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="desmr-soak-") as folder:
        seen = soak(Path(folder), fits, warm_up)
    elapsed, median = time.monotonic() - begin, float(np.median(seen.seconds))
    print(f"{fits} fits in {elapsed:.0f} s, {median:.2f} s each (median)")
    print(f"{'':12}{'MB after fit 1':>16}{'after warm-up':>16}{'at the end':>12}", end="")
    print("".join(f"{name:>10}" for name in Held._fields[1:]))
    for node, held in seen.held.items():
        memory = held[:, 0] / 1e6
        after = memory[warm_up : warm_up + window].mean()
        print(f"{node:12}{memory[0]:>16.1f}{after:>16.1f}{memory[-window:].mean():>12.1f}", end="")
        print("".join(f"{int(value):>10}" for value in held[-1, 1:]))
    audit, log = seen.audit_bytes / fits / 1e3, seen.log_bytes / fits / 1e3
    print(f"kB a fit: audit log {audit:.1f}, node.log {log:.2f}")
    return conclude(bounds(seen, warm_up, window))


if __name__ == "__main__":
    raise SystemExit(main())
