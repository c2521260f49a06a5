"""A whole network in one process: the same machines and workers as in daemons, on a simulated network.

`simulate` is the statistician's entry point; `Simulation` is what it and the protocol's tests drive.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from desmr_node.core.fit import MemberFit, NetworkFit
from desmr_node.core.graph import Graph
from desmr_node.core.rows import ArrayRows, RowSource
from desmr_node.core.spec import FitSpec
from desmr_node.errors import ConfigError, DataError, DesmrError
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import RESTING, Machine, Phase, Setup
from desmr_node.protocol.messages import Schema
from desmr_node.protocol.place import Place
from desmr_node.protocol.seal import Open, Seal
from desmr_node.runtime import checkpoint
from desmr_node.runtime.settings import settings_of
from desmr_node.runtime.worker import Worker
from desmr_node.transport.simulated import Change, Delivery, SimulatedNetwork

_DEFAULT = FitSpec()
#: Seconds until a neighbour that broke the protocol may try again.
_REDIAL = 1.0
#: Seconds after its start at which a node can be reached.
_LISTENS = 1e-3


class Simulation:
    """Machines and workers joined by a simulated network, driven event by event."""

    def __init__(
        self,
        nodes: Mapping[str, Worker],
        edges: Iterable[tuple[str, str]],
        schema: Schema,
        network: SimulatedNetwork,
        *,
        seals: Callable[[str, int], Seal] = Open,
        patience: float = float("inf"),
    ) -> None:
        self.workers, self.network, self.seals = dict(nodes), network, seals
        self.edges = [(min(edge), max(edge)) for edge in edges]
        self.fits: dict[str, MemberFit] = {}
        self.kept: dict[str, list[ev.Keep]] = {}
        #: What each node's disk holds, if nodes are to be killed.
        self.disks: dict[str, bytes | None] | None = None
        #: Nodes that are down, until when; and after how many effects a node is killed, for how long.
        self.down: dict[str, float] = {}
        self.fuses: dict[str, tuple[int, float]] = {}
        self.killed = 0
        #: Seconds that a node's computations take, and by how much its clock is ahead.
        self.slowness: dict[str, float] = {}
        self.ahead: dict[str, float] = {}
        #: Nodes whose disk takes nothing more.
        self.full: set[str] = set()
        self._later: list[tuple[float, int, str, Machine, ev.Event]] = []
        self._sequence = 0
        self._schema, self._patience = schema, patience
        self.network.connect(self.edges)
        links: dict[str, set[str]] = {name: set() for name in nodes}
        for one, other in self.edges:
            links[one].add(other)
            links[other].add(one)
        self._links = {name: tuple(sorted(links[name])) for name in nodes}
        self.machines = {name: Machine(self._setup(name), now=0.0) for name in nodes}

    def _setup(self, name: str) -> Setup:
        worker = self.workers[name]
        return Setup(
            network="simulation",
            node=name,
            neighbours=self._links[name],
            schema=self._schema,
            settings=settings_of(worker.spec, worker.seed),
            max_lag=worker.spec.max_lag,
            inner_rounds=worker.spec.inner,
            rows=worker.rows if worker.spec.strength is not None else 0,
            patience=self._patience,
            incarnation=self.killed,
            last_fit=self.kept[name][-1].number if name in self.kept else 0,
        )

    def run(self, until: float = float("inf"), *, callers: Iterable[str] | None = None) -> None:
        """Start a fit everywhere (or at the callers) and go on until every node rests, or time is up."""
        for name in self.machines if callers is None else callers:
            self.tell(name, ev.Called())
        while not self.at_rest() and self.step(until):
            pass

    def at_rest(self) -> bool:
        """Whether no node takes part in a fit, or waits for one."""
        if any(end < float("inf") for end in self.down.values()):
            return False
        return all(m.phase in RESTING for name, m in self.machines.items() if name not in self.down)

    def step(self, until: float = float("inf")) -> bool:
        """Let one thing happen, or the next deadline pass; False if there is nothing more before `until`."""
        if self.network.imminent():  # no deadline can come first, and there may be hundreds to look at
            deadline = self.network.now
        else:
            deadlines = [self._deadline(name) for name in self.machines if name not in self.down]
            computed = self._later[0][0] if self._later else until
            deadline = min([*deadlines, *self.down.values(), computed, until])
        happening = self.network.next(deadline)
        if happening is not None:
            self.happen(happening)
        elif deadline >= until:
            return False
        else:
            for name in [name for name, end in self.down.items() if end <= self.network.now]:
                self.revive(name)
            while self._later and self._later[0][0] <= self.network.now:
                _, _, name, machine, event = heapq.heappop(self._later)
                if self.machines[name] is machine:  # not another life's
                    self.tell(name, event)
            for name in self.machines:
                if name not in self.down and self._deadline(name) <= self.network.now:
                    self.tell(name, ev.Ticked())
        return True

    def _deadline(self, name: str) -> float:
        return self.machines[name].deadline() - self.ahead.get(name, 0.0)

    def _now(self, name: str) -> float:
        if name not in self.ahead:
            return self.network.now
        now, deadline = self.network.now + self.ahead[name], self.machines[name].deadline()
        return deadline if abs(now - deadline) < 1e-9 else now  # the sum may round to just before it

    def happen(self, happening: Delivery | Change) -> None:
        """Tell the nodes concerned."""
        match happening:
            case Delivery(source, target, message):
                self.tell(target, ev.Received(source, message))
            case Change(one, other, up):
                for here, there in ((one, other), (other, one)):
                    self.tell(here, ev.Connected(there) if up else ev.Lost(there, "partition"))

    def tell(self, name: str, event: ev.Event) -> None:
        """Let a node handle an event, and carry its effects out."""
        queue = [event]
        while queue and name not in self.down:
            for effect in self.machines[name].handle(queue.pop(0), self._now(name)):
                if name in self.fuses and self._burns_down(name):
                    return
                match effect:
                    case ev.Send(peer, message):
                        self.network.send(name, peer, message)
                    case ev.Compute() if name in self.slowness:
                        self._sequence += 1
                        when = self.network.now + self.slowness[name]
                        answer = self.workers[name].compute(effect)
                        heapq.heappush(self._later, (when, self._sequence, name, self.machines[name], answer))
                    case ev.Compute():
                        queue.append(self.workers[name].compute(effect))
                    case ev.Enrol(fit):
                        self.workers[name].reset()
                        queue.append(ev.Enrolled(self.seals(name, fit)))
                    case ev.Keep():
                        self.fits[name] = effect.fit
                        self.kept.setdefault(name, []).append(effect)
                    case ev.Drop(peer, _, fault):
                        now = self.network.now
                        self.network.cut(name, peer, now, now + _REDIAL if fault else float("inf"))
                    case ev.Save(place) if self.disks is not None:
                        self.disks[name] = None if name in self.full else self._snapshot(name, place)
                    case ev.Forget() if self.disks is not None:
                        self.disks[name] = None
                    case ev.Report() | ev.Save() | ev.Forget():
                        pass

    # -- nodes that are killed -------------------------------------------------------------------------

    def kill(self, name: str, until: float) -> None:
        """As by SIGKILL, now: all but its disk is gone, and its streams break. At `until` it is back."""
        self.killed += 1
        self.down[name] = until
        self.fuses.pop(name, None)
        for one, other in self.edges:
            if name in (one, other):
                self.network.cut(one, other, self.network.now, until + _LISTENS)

    def revive(self, name: str) -> None:
        """Start a node that was killed: it knows what its disk holds."""
        del self.down[name]
        self.workers[name] = self.workers[name].anew()
        self.machines[name] = Machine(self._setup(name), now=self._now(name))
        data = self.disks.get(name) if self.disks is not None else None
        if data is not None:
            snapshot = checkpoint.from_bytes(data)
            self.workers[name].resumed = snapshot.progress
            self.tell(name, ev.Resumed(snapshot.place, self.seals(name, snapshot.place.fit)))
        elif name not in self.fits:
            self.tell(name, ev.Called())

    def _snapshot(self, name: str, place: Place) -> bytes:
        setting = checkpoint.Setting.of(self.machines[name].setup, b"")
        progress = self.workers[name].share.progress()
        return checkpoint.to_bytes(checkpoint.Snapshot(setting, place, progress, b"", b""))

    def _burns_down(self, name: str) -> bool:
        """Whether the node's fuse has come to its end: killed between two effects."""
        left, away = self.fuses[name]
        if left > 0:
            self.fuses[name] = left - 1, away
            return False
        self.kill(name, self.network.now + away)
        return True

    def result(self) -> NetworkFit:
        """All members' models side by side; raises what broke the fit, if it failed."""
        left_out = self._left_out()
        for name, machine in self.machines.items():
            if machine.phase is not Phase.DONE and name not in left_out:
                broken = [worker.error for worker in self.workers.values() if worker.error is not None]
                raise broken[0] if broken else DesmrError(machine.reason or f"{name} is still at it")
        fits = [None if name in left_out else self.fits[name] for name in sorted(self.machines)]
        return NetworkFit.gather(fits, self.network.bytes_sent)

    def _left_out(self) -> set[str]:
        """Members without whom the others have ended the fit, since they seemed to lie."""
        ends = [keeps[-1] for keeps in self.kept.values()]
        return set().union(*(keep.lineage.condemned - set(keep.members) for keep in ends))


def simulate(
    datasets: Sequence[tuple[ArrayLike, ArrayLike]],
    edges: Iterable[Sequence[int]],
    spec: FitSpec = _DEFAULT,
    *,
    seed: int = 0,
) -> NetworkFit:
    """Fit one sparse model over rows held by several nodes, as the nodes of a network would.

    Parameters
    ----------
    datasets : one ``(X, y)`` per node: X is (n_j, p), y is (n_j,); arrays of any kind, memory-mapped included
    edges : pairs of node indices; the graph must be connected
    spec : what to fit and how; the default is a SCAD-penalised median regression with lambda chosen
    seed : of the random numbers that scale the pilots' penalty; the same seed gives the same fit

    Returns
    -------
    NetworkFit, in the data's own units.

    Raises
    ------
    DataError, ConfigError
        Naming the node, row, column or setting, and what to do about it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((3, 80, 5))
    >>> y = X @ [2.0, 0.0, 0.0, -1.0, 0.0] + rng.standard_cauchy((3, 80))
    >>> fit = simulate([(X[j], y[j]) for j in range(3)], [(0, 1), (1, 2)])
    >>> fit.converged, np.flatnonzero(fit.support)
    (True, array([0, 3]))
    """
    simulation = assemble(datasets, edges, spec, seed=seed)
    simulation.run()
    return simulation.result()


def assemble(
    datasets: Sequence[tuple[ArrayLike, ArrayLike]],
    edges: Iterable[Sequence[int]],
    spec: FitSpec = _DEFAULT,
    *,
    seed: int = 0,
) -> Simulation:
    """The network that `simulate` runs, before its first event."""
    sources, graph = check_inputs(datasets, edges, spec, seed)
    names = [f"{j:06d}" for j in range(len(sources))]
    workers = {name: Worker(rows, None, spec, int(seed)) for name, rows in zip(names, sources, strict=True)}
    links = [(names[j], names[k]) for j, ks in enumerate(graph.neighbours) for k in ks if j < k]
    schema = Schema("y", tuple(f"x{k}" for k in range(sources[0].columns)))
    return Simulation(workers, links, schema, SimulatedNetwork(limits=None))


def check_inputs(
    datasets: Sequence[tuple[ArrayLike, ArrayLike]], edges: Iterable[Sequence[int]], spec: FitSpec, seed: int
) -> tuple[list[RowSource], Graph]:
    """Refuse what cannot be fitted, in the user's words."""
    if not isinstance(spec, FitSpec):
        raise ConfigError(f"spec is a {type(spec).__name__}: pass a FitSpec, e.g. FitSpec(penalty='l1')")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed is {seed!r}: pass a whole number, 0 or more")
    if not isinstance(datasets, Sequence):
        raise DataError(f"datasets is a {type(datasets).__name__}: pass a list with a pair (X, y) per node")
    sources: list[RowSource] = []
    for j, pair in enumerate(datasets):
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise DataError(f"node {j}: expected a pair (X, y), got {type(pair).__name__}")
        sources.append(ArrayRows.checked(pair[0], pair[1], f"node {j}"))
    if not isinstance(edges, Iterable):
        raise ConfigError(f"edges is a {type(edges).__name__}: pass a list of pairs of node numbers")
    graph = Graph.from_edges(len(sources), edges)
    for j, rows in enumerate(sources):
        if rows.columns != sources[0].columns:
            raise DataError(
                f"node {j} has {rows.columns} columns and node 0 has {sources[0].columns}: "
                "all nodes must have the same columns in the same order"
            )
    return sources, graph
