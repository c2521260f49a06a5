"""Hostile connections to the ports of four daemons while they fit: the same bits, hardly later, no memory.

`python -m benchmarks.live_port [--connections 10000] [--fits 4] [--tiny]`

Four daemons over mutual TLS (those of `benchmarks.soak`) run one long fit after another, undisturbed and
under attack in turn. The connections, of all the kinds in `benchmarks.hostile` from noise to a neighbour's
stolen key, begin when a fit has, are spread evenly over most of the time that it takes undisturbed, and count
while it runs. Attackers would have machines of their own: here they are a process that shares the cores with
the nodes, at the lowest priority (nice 19), and what time it takes from them is in the fit's.

Most kinds leave the streams of the fit alone. One in two hundred takes the place of a neighbour's stream,
with that neighbour's key, and breaks the protocol on it: the fit waits there until the neighbour is back.
What a holder of the key may say, such as that the fit is off, is not among them (docs/threat-model.md).
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import numpy as np

from benchmarks import hostile, soak
from benchmarks.figures import Check, anonymous_megabytes, conclude, parser
from benchmarks.round_time import scrape
from desmr_node.cli.local import LocalNetwork
from desmr_node.config import load_node
from desmr_node.data import open_rows
from desmr_node.errors import DesmrError
from desmr_node.protocol.messages import Hello, Schema
from desmr_node.runtime.settings import default_settings, settings_of
from desmr_node.runtime.setup import AUTHORITY
from desmr_node.transport import codec
from desmr_node.transport.wire import admin_pb2 as pb

MOST_TIME, MOST_MEGABYTES = 1.5, 20.0
#: Fits before anything is measured.
WARM_UP = 2
#: Outer rounds, inner ones in each; the part of an undisturbed fit's time that an attack is spread over.
OUTER, INNER, SPREAD = 300, 50, 0.7
_PAUSE, _LIMIT = 0.05, 300.0
#: Seconds between two looks at the nodes' memory.
_LOOK = 0.1


class Memory:
    """What processes have allocated, in MB, looked up again and again from outside."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self.before = self.now()
        self.peak = dict(self.before)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def now(self) -> dict[str, float]:
        """At this moment."""
        return {node: anonymous_megabytes(pid) for node, pid in self._pids.items()}

    def _watch(self) -> None:
        while not self._over.wait(_LOOK):
            self.peak = {node: max(self.peak[node], value) for node, value in self.now().items()}


class Fit(NamedTuple):
    """How long a fit took, and what it came to at each node."""

    seconds: float
    results: dict[str, dict[str, Any]]


class Live:
    """The daemons, one fit after another, and what was done to them meanwhile."""

    def __init__(self, folder: Path, outer: int, rng: np.random.Generator) -> None:
        self._paths = soak.write(folder, outer=outer, inner=INNER, tolerance=0.0)
        self._authority = folder / "nodes" / AUTHORITY
        self._configs = {node: load_node(path) for node, path in self._paths.items()}
        self._network, self._rng = LocalNetwork(self._paths), rng
        self._targets = tuple(
            hostile.Target(node, int(str(config.listen).rsplit(":", 1)[1]), neighbour.id)
            for node, config in self._configs.items()
            for neighbour in config.neighbours
        )
        self._fits = 0
        #: What became of the connections that were made while a fit ran, and of the rest.
        self.outcome = hostile.Outcome()

    def __enter__(self) -> Self:
        self._network.__enter__()
        self._network.wait(frozenset({"idle"}))
        return self

    def __exit__(self, *error: Any) -> None:
        self._network.__exit__(*error)

    @property
    def pids(self) -> dict[str, int]:
        """The nodes' processes."""
        return {node: process.pid for node, process in self._network.processes.items()}

    def held(self) -> dict[str, soak.Held]:
        """What the nodes hold."""
        return {node: soak.usually(pid, self._page(node)) for node, pid in self.pids.items()}

    def counted(self) -> tuple[float, float]:
        """Streams of strangers that the nodes have refused, and faults of their neighbours."""
        pages = [scrape(self._page(node)) for node in self._configs]
        refused = sum(page["desmr_refused_streams_total"] for page in pages)
        faults = [
            v for page in pages for name, v in page.items() if name.startswith("desmr_peer_faults_total{")
        ]
        return refused, sum(faults)

    def written(self) -> int:
        """Bytes of the nodes' logs."""
        return sum(log.stat().st_size for log in self._logs())

    def tracebacks(self) -> int:
        """How many of them the nodes have logged."""
        return sum(log.read_text(errors="replace").count("Traceback") for log in self._logs())

    def _logs(self) -> list[Path]:
        return [path.with_name("node.log") for path in self._paths.values()]

    def undisturbed(self) -> Fit:
        """One more fit."""
        began = self._begin()
        return self._end(began)

    def attacked(self, connections: int, seconds: float) -> Fit:
        """One more fit, and so many connections spread over these seconds of it."""
        context = get_context("spawn")
        pipe, theirs = context.Pipe()
        attackers = context.Process(target=hostile.run, args=(self._plan(connections, seconds), theirs))
        attackers.start()
        theirs.close()
        try:
            pipe.recv()  # they are ready
            began = self._begin()
            self._await(lambda status: status.outer > 0)
            pipe.send(None)
            fit = self._end(began)
            outcome: hostile.Outcome = pipe.recv()
        finally:
            attackers.terminate()
            attackers.join()
        outcome.moments = [moment for moment in outcome.moments if moment < began + fit.seconds]
        self.outcome.merge(outcome)
        return fit

    def _plan(self, connections: int, seconds: float) -> hostile.Plan:
        config = next(iter(self._configs.values()))
        table = open_rows(config.data)
        hello = Hello(
            config.network,
            config.node,
            0,
            Schema(table.response, table.features),
            settings_of(config.fit, config.seed),
            hostile.standing_in(self._fits + 1),
            defaults=default_settings(),
        )
        return hostile.Plan(
            hostile.mixed(connections, self._rng),
            seconds,
            int(self._rng.integers(2**31)),
            self._targets,
            self._authority,
            hello,
            codec.Limits.of(len(table.features), config.fit.lambdas),
        )

    def _begin(self) -> float:
        self._fits += 1
        began = time.monotonic()
        self._network.client(soak.NODES[self._fits % len(soak.NODES)]).start()
        return began

    def _end(self, began: float) -> Fit:
        self._await(lambda status: status.phase == "done")
        seconds = time.monotonic() - began
        results = {node: self._network.client(node).result() for node in soak.NODES}
        for result in results.values():
            for key in ("fit", "bytes_sent"):
                del result[key]
        return Fit(seconds, results)

    def _await(self, holds: Callable[[pb.Status], bool]) -> None:
        """Until it holds for this fit at every node."""
        deadline = time.monotonic() + _LIMIT
        while True:
            statuses = self._network.statuses()
            for node, status in statuses.items():
                if status.fit > self._fits or status.phase == "failed":
                    raise DesmrError(f"fit {self._fits} at {node}: {status.message or status.lost}")
            if all(status.fit >= self._fits and holds(status) for status in statuses.values()):
                return
            if time.monotonic() > deadline:
                raise DesmrError(f"fit {self._fits} took longer than {_LIMIT:.0f} s")
            time.sleep(_PAUSE)

    def _page(self, node: str) -> str:
        return self._configs[node].metrics.listen or ""


class Seen(NamedTuple):
    """What a run has shown."""

    calm: list[Fit]
    attacked: list[Fit]
    #: Time of a fit under attack, as a multiple of that of the ones before and after it.
    ratios: list[float]
    outcome: hostile.Outcome
    before: dict[str, soak.Held]
    peak: dict[str, float]
    after: dict[str, soak.Held]
    refused: float
    faults: float
    log_bytes: int
    tracebacks: int


def run(folder: Path, connections: int, fits: int, outer: int, warm_up: int = WARM_UP, seed: int = 0) -> Seen:
    """Fit, undisturbed and attacked in turn, until so many connections have been made."""
    attacked, ratios = list[Fit](), list[float]()
    with Live(folder, outer, np.random.default_rng(seed)) as live:
        calm = [live.undisturbed() for _ in range(warm_up)]
        made = live.outcome.moments
        before, counts, written = live.held(), live.counted(), live.written()
        with Memory(live.pids) as memory:
            while len(made) < connections and len(attacked) < 2 * fits:
                part = min(-(-connections // fits), connections - len(made))
                attacked.append(live.attacked(part, SPREAD * calm[-1].seconds))
                calm.append(live.undisturbed())
                usual = (calm[-2].seconds + calm[-1].seconds) / 2
                ratios.append(attacked[-1].seconds / usual)
                took = f"{attacked[-1].seconds:.1f} s, undisturbed {usual:.1f} s"
                print(f"  {len(made)} connections made: a fit takes {took}", flush=True)
        refused, faults = np.subtract(live.counted(), counts).tolist()
        log_bytes = live.written() - written
        after = live.held()
        return Seen(
            calm, attacked, ratios, live.outcome, before, memory.peak, after,
            refused, faults, log_bytes, live.tracebacks(),
        )  # fmt: skip


def tell(seen: Seen) -> None:
    """What became of each kind, and what it took."""
    for kind in hostile.KINDS:
        ends = seen.outcome.ends[kind]
        told = ", ".join(f"{end} {count}" for end, count in ends.most_common())
        print(f"{kind:28}{ends.total():>6}  {told}")
    print(f"attackers' processor time {seen.outcome.cpu_seconds:.0f} s, logs {seen.log_bytes / 1e3:.0f} kB")
    for node, held in seen.before.items():
        mine = held.memory / 1e6, seen.peak[node], seen.after[node].memory / 1e6
        print("{:10}{:>8.1f} MB before, {:.1f} at most, {:.1f} afterwards".format(node, *mine))


def bounds(seen: Seen, connections: int) -> Iterator[Check]:
    """All figures."""
    same = [fit.results == seen.calm[0].results for fit in (*seen.calm, *seen.attacked)]
    nodes = seen.before.items()
    peak = max(seen.peak[node] - held.memory / 1e6 for node, held in nodes)
    stays = max(seen.after[node].memory - held.memory for node, held in nodes) / 1e6
    left = [
        getattr(seen.after[node], name) - getattr(held, name)
        for node, held in nodes
        for name in ("files", "sockets", "tasks")
    ]
    calls = seen.outcome.count(lambda kind: kind.refused)
    taken = seen.outcome.count(lambda kind: kind.in_its_place)
    yield Check("hostile connections made while a fit ran", len(seen.outcome.moments), connections, False)
    yield Check("fits with the bits of the first, share", float(np.mean(same)), 1.0, at_most=False)
    yield Check(
        "time under attack / undisturbed, median of the fits", float(np.median(seen.ratios)), MOST_TIME
    )
    yield Check("memory growth under attack, MB, worst node", peak, MOST_MEGABYTES)
    yield Check("memory growth afterwards, MB, worst node", stays, MOST_MEGABYTES)
    yield Check("files, sockets or tasks left behind, worst node", max(left), 0)
    yield Check("calls that were refused, counted / made", seen.refused / calls, 1, at_most=False)
    # Some are cut short by the neighbour that comes back, or by gRPC.
    yield Check("a neighbour's faults, counted / made", seen.faults / taken, 0.5, at_most=False)
    yield Check("tracebacks in the logs", seen.tracebacks, 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, compare."""
    options = parser(__doc__)
    options.add_argument("--connections", type=int, default=10_000, help="default %(default)s")
    options.add_argument("--fits", type=int, default=4, help="attacked ones, default %(default)s")
    chosen = options.parse_args(argv)
    connections = 200 if chosen.tiny else chosen.connections
    with TemporaryDirectory(prefix="d", dir="/tmp") as folder:
        if chosen.tiny:
            seen = run(Path(folder), connections, fits=1, outer=15, warm_up=1)
        else:
            seen = run(Path(folder), connections, chosen.fits, OUTER)
    tell(seen)
    return conclude(bounds(seen, connections))


if __name__ == "__main__":
    raise SystemExit(main())
