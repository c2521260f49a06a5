"""Small networks of real daemons over mutual TLS on one event loop, and a guard that nothing stays behind."""

import asyncio
import gc
import os
import shutil
import tempfile
import threading
import tomllib
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from desmr_node.config import dump_toml, load_network, load_node
from desmr_node.protocol.machine import Phase
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.daemon import Daemon
from desmr_node.runtime.setup import write_network
from desmr_node.transport.wire import admin_pb2 as pb

FEATURES = ("age", "income", "rooms", "shops", "trees")
BETA = np.array([2.0, 0.0, -1.5, 0.0, 0.0])
#: Seconds after which a wait has failed; far more than anything here takes.
DEADLINE = 20.0


def rows(node, count=60):
    """A node's table: five columns and a response with Cauchy noise."""
    rng = np.random.default_rng([*node.encode()])
    X = rng.standard_normal((count, len(FEATURES)))
    return X, 1.0 + X @ BETA + 0.3 * rng.standard_cauchy(count)


def write_rows(path, X, y, features=FEATURES):
    header = ",".join((*features, "price"))
    table = np.column_stack([X, y])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")


class Network:
    """The files of a network, and those of its daemons that were started here."""

    def __init__(self, folder, nodes, edges, *, insecure=False, **settings):
        self.folder, self.nodes, self.edges = folder, nodes, edges
        entries = []
        for node, port in zip(nodes, free_ports(len(nodes)), strict=True):
            write_rows(folder / f"{node}.csv", *rows(node))
            write_rows(folder / f"{node}-out.csv", *rows(node + "-holdout", 25))
            entry = {"id": node, "address": f"127.0.0.1:{port}", "data": f"{node}.csv"}
            entries.append(entry | {"holdout": f"{node}-out.csv"})
        self.file = folder / "network.toml"
        document = {"network": "test", "edges": [list(edge) for edge in edges], "patience": 10.0, **settings}
        self.file.write_text(dump_toml(document | {"data": {"response": "price"}, "nodes": entries}))
        self.config = load_network(self.file, environ={})
        self.paths = write_network(self.config, folder, insecure=insecure)
        self.daemons = {}
        self.runs = {}

    def change(self, node, edit):
        """Let a function edit a node's settings."""
        document = tomllib.loads(self.paths[node].read_text())
        edit(document)
        self.paths[node].write_text(dump_toml(document))

    def rows(self, node):
        return rows(node)

    def holdout(self, node):
        return rows(node + "-holdout", 25)

    def state(self, node):
        return self.paths[node].parent / "state"

    async def start(self, *nodes):
        """Start these daemons, or all."""
        for node in nodes or self.nodes:
            daemon = Daemon(load_node(self.paths[node], environ={}))
            self.daemons[node] = daemon
            await daemon.start()
            self.runs[node] = asyncio.create_task(daemon.run(), name=f"run {node}")

    async def stop(self, *nodes):
        """End these daemons, or all, as SIGTERM would."""
        ending = {node: self.daemons.pop(node) for node in nodes or list(self.daemons)}
        for daemon in ending.values():
            daemon.stop("the test is over")
        runs = [self.runs.pop(node) for node in ending if node in self.runs]
        try:
            await asyncio.gather(*(run for run in runs if not run.done()))
        finally:
            await asyncio.gather(*(daemon.close() for daemon in ending.values()))

    async def until(self, node, holds, what=""):
        """Wait until something holds of a daemon; it is asked whenever its node changes."""
        watched = self.daemons[node].node
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    changed = watched.changed
                    if holds(watched.machine):
                        return
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"{node} {what}; {self._standing()}") from None

    def _standing(self):
        said = []
        for node, daemon in self.daemons.items():
            machine = daemon.node.machine
            peers = {name: (peer.state, peer.reason) for name, peer in machine.peers.items()}
            said.append(f"{node}: {machine.phase.value} {machine.reason} {peers}")
        return "; ".join(said)

    async def phase(self, phase, *nodes):
        """Wait until these nodes, or all, are in the phase."""
        for node in nodes or self.daemons:
            await self.until(node, lambda machine: machine.phase is phase, f"and never {phase.value}")

    async def over(self, *nodes):
        """Wait until the fit has ended at these nodes, or all, one way or the other."""
        for node in nodes or self.daemons:
            await self.until(node, lambda machine: machine.phase in (Phase.DONE, Phase.FAILED))

    async def up(self, *nodes):
        """Wait until these nodes, or all, see all their neighbours."""
        for node in nodes or self.daemons:
            await self.until(node, lambda machine: {p.state for p in machine.peers.values()} <= {"up"})

    def peer(self, node, other):
        """How a node sees another."""
        return self.daemons[node].node.machine.peers[other]

    def reason(self, node):
        return self.daemons[node].node.machine.reason

    async def fit(self, node):
        """Begin a fit at a node and see it through everywhere."""
        await self.up()
        number = self.daemons[node].node.machine.fit
        async with self.admin(node) as call:
            await call("Start", pb.StartRequest())
        for name in self.daemons:
            await self.until(name, lambda m: m.fit > number and m.phase in (Phase.DONE, Phase.FAILED))

    def coefficients(self, node):
        result = self.daemons[node].result
        return [result["intercept"], *result["coefficients"].values()]

    @asynccontextmanager
    async def admin(self, node):
        """Calls of a node's admin API by name, over gRPC."""
        async with grpc.aio.insecure_channel(self.daemons[node].config.admin.listen) as channel:

            def call(name, request):
                kind = channel.unary_stream if name == "Watch" else channel.unary_unary
                answer = getattr(pb, f"{name}Response")
                serialise = type(request).SerializeToString
                return kind(f"/desmr.admin.v1.Admin/{name}", serialise, answer.FromString)(request)

            yield call


@pytest.fixture
def short():
    """A folder with a short path: that of a unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def network(short, nothing_stays):
    """Makes networks (a line of three nodes unless told otherwise) and ends their daemons."""
    async with AsyncExitStack() as stack:
        made = []

        def make(nodes="abc", edges=("ab", "bc"), **settings):
            folder = short / str(len(made))
            folder.mkdir()
            made.append(Network(folder, list(nodes), [tuple(edge) for edge in edges], **settings))
            stack.push_async_callback(made[-1].stop)
            return made[-1]

        yield make


def _open_files():
    """What is open, by kind; numbers and inodes differ each time."""
    kinds = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing's own
        kinds[target.split(":[")[0]] += 1
    return kinds


def _threads():
    """Ours: gRPC's and asyncio's own come and go by their own rules."""
    return {t for t in threading.enumerate() if t.name.startswith(("rows", "Thread-"))}


@pytest.fixture
async def nothing_stays(caplog):
    """Fails if the test leaves a task, thread, socket or file behind, or a library complained."""
    async with grpc.aio.insecure_channel("127.0.0.1:1"):  # starts what gRPC starts once
        tasks, files, threads = asyncio.all_tasks(), _open_files(), _threads()
        yield
        for _ in range(200):  # gRPC closes its sockets on threads of its own
            gc.collect()
            left = asyncio.all_tasks() - tasks - {asyncio.current_task()}
            opened, running = _open_files() - files, _threads() - threads
            if not left and not opened and not running:
                break
            await asyncio.sleep(0.02)
        assert (left, opened, running) == (set(), Counter(), set())
    records = caplog.get_records("call") + caplog.records
    foreign = {r.getMessage() for r in records if not r.name.startswith("desmr") and r.levelname != "DEBUG"}
    assert foreign == set()
