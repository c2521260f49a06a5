"""Thousands of small networks under seeded faults: whatever happens, what must never happen does not.

`python -m benchmarks.schedules [--seeds 10000] [--first 0] [--tiny]`
`python -m benchmarks.schedules --replay SEED`     one seed again, with its schedule, shrunk if it fails

A seed makes a schedule: a graph of 2 to 6 nodes, delays, loss and duplication of messages (which overtake
each other), edges and groups that are cut off, nodes that are killed between any two effects and come back or
do not, disks that are full, slow nodes and clocks that jump. The machines and workers are those of a daemon.
After every event the invariants of `Watch` are checked, and at the end those of `verdict`.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from benchmarks.figures import Check, conclude, parser, repeat
from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import IN_A_FIT, RESTING, Machine, Phase
from desmr_node.protocol.messages import Introduction, Schema
from desmr_node.protocol.seal import Open
from desmr_node.runtime.simulation import Simulation
from desmr_node.runtime.worker import Worker
from desmr_node.transport.simulated import Faults, SimulatedNetwork

FEATURES = 3
SPEC = FitSpec(outer=2, inner=3, lambdas=2, tolerance=0.0)
SCHEMA = Schema("y", tuple(f"x{k}" for k in range(FEATURES)))
#: Seconds, in virtual time: how long a neighbour is waited for, and how long a run may last.
PATIENCE, HORIZON = 60.0, 20_000.0
#: Different graphs: seeds share them, so that the fit of a graph without faults is computed once.
GRAPHS = 60
#: Most events of a run: whoever needs more goes round in circles.
_MOST_EVENTS = 200_000


class InvariantError(AssertionError):
    """What must never happen, has."""


# -- schedules -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """Edges between a group and the rest are down for a while."""

    group: tuple[str, ...]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Kill:
    """A node is killed after so many more effects from a moment on, and back after a while, or never."""

    node: str
    at: float
    effects: int
    away: float


@dataclass(frozen=True, slots=True)
class Slow:
    """Each computation of a node takes so many seconds."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Jump:
    """A node's clock jumps forward."""

    node: str
    at: float
    by: float


@dataclass(frozen=True, slots=True)
class Full:
    """A node's disk is full from a moment on."""

    node: str
    at: float


Fault = Cut | Kill | Slow | Jump | Full


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a run depends on."""

    seed: int
    graph: int
    messages: Faults
    faults: tuple[Fault, ...]


def schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    rng = np.random.default_rng((seed, 3))
    graph = seed % GRAPHS
    names, edges = topology(graph)
    messages = Faults(
        delay=(0.0, float(rng.choice([0.0, 0.01, 0.3, 1.0]))),
        loss=float(rng.choice([0.0, 0.0, 0.02, 0.15])),
        duplication=float(rng.choice([0.0, 0.05, 0.5])),
    )
    span = float(rng.choice([0.5, 5.0, 30.0]))  # of the time in which faults begin
    faults: list[Fault] = []
    for _ in range(int(rng.integers(0, 4))):
        start = float(rng.uniform(0.0, span))
        length = float(rng.choice([rng.exponential(5.0), rng.exponential(100.0)]))
        some = rng.choice(names, int(rng.integers(1, len(names))), replace=False)
        group = tuple(map(str, some)) if rng.random() < 0.5 else _edge(edges, rng)
        faults.append(Cut(group, start, start + length))
    for _ in range(int(rng.integers(0, 4))):
        away = float(rng.choice([rng.exponential(3.0), rng.exponential(100.0), math.inf], p=[0.6, 0.2, 0.2]))
        at, effects = float(rng.uniform(0.0, span)), int(rng.integers(0, 120))
        faults.append(Kill(str(rng.choice(names)), at, effects, away))
    if rng.random() < 0.2:
        faults.append(Slow(str(rng.choice(names)), float(rng.exponential(2.0))))
    if rng.random() < 0.2:
        faults.append(
            Jump(str(rng.choice(names)), float(rng.uniform(0.0, span)), float(rng.exponential(60.0)))
        )
    if rng.random() < 0.1:
        faults.append(Full(str(rng.choice(names)), float(rng.uniform(0.0, span))))
    return Schedule(seed, graph, messages, tuple(faults))


def _edge(edges: Sequence[tuple[str, str]], rng: np.random.Generator) -> tuple[str, ...]:
    """A cut of one edge only: the group is its two ends, joined by a dash."""
    one, other = edges[int(rng.integers(len(edges)))]
    return (f"{one}-{other}",)


def topology(seed: int) -> tuple[list[str], list[tuple[str, str]]]:
    """A random connected graph of 2 to 6 nodes: a random tree and some more edges."""
    rng = np.random.default_rng((seed, 1))
    names = list("abcdef"[: int(rng.integers(2, 7))])
    pairs = {(int(rng.integers(k)), k) for k in range(1, len(names))}
    pairs |= {(j, k) for k in range(len(names)) for j in range(k) if rng.random() < 0.3}
    return names, [(names[j], names[k]) for j, k in sorted(pairs)]


@cache
def rows(graph: int) -> dict[str, ArrayRows]:
    """Everybody's rows."""
    rng = np.random.default_rng((graph, 2))
    found = {}
    for name in topology(graph)[0]:
        X = rng.standard_normal((int(rng.integers(12, 24)), FEATURES))
        found[name] = ArrayRows.checked(X, X @ [2.0, 0.0, -1.0] + rng.standard_t(2, len(X)), name)
    return found


def network(
    graph: int, names: Sequence[str], edges: Sequence[tuple[str, str]], wires: SimulatedNetwork
) -> Simulation:
    """Some of the nodes of a graph."""
    workers = {name: Worker(rows(graph)[name], None, SPEC, 0) for name in names}
    lives = count(1)
    return Simulation(
        workers,
        edges,
        SCHEMA,
        wires,
        patience=PATIENCE,
        seals=lambda node, fit: Marked(node, fit, next(lives)),
    )


class Marked(Open):
    """A seal without secrets whose introductions differ from one enrolment to the next, as keys do."""

    def __init__(self, node: str, fit: int, mark: int) -> None:
        super().__init__(node, fit)
        self._mark = mark.to_bytes(4, "little")

    def introduce(self, neighbours: tuple[str, ...], **claims: Any) -> Introduction:
        """With our mark for a key."""
        return replace(super().introduce(neighbours, **claims), mask_key=self._mark)


@cache
def undisturbed(graph: int, names: tuple[str, ...], edges: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The bits of a fit of these members over these edges, without a fault."""
    run = network(graph, names, edges, SimulatedNetwork(None))
    run.run()
    return {name: bits(fit) for name, fit in run.fits.items()}


def bits(fit: Any) -> tuple[Any, ...]:
    """All that a fit says, to the last bit."""
    return fit.coef.tobytes(), fit.intercept, fit.lambda_, fit.history, fit.objective, fit.support.tobytes()


# -- runs ----------------------------------------------------------------------------------------------------


class Run:
    """A network under a schedule, watched at every event."""

    def __init__(self, plan: Schedule) -> None:
        self.plan = plan
        self.names, self.edges = topology(plan.graph)
        rng = np.random.default_rng((plan.seed, 4))
        self.net = network(
            plan.graph, self.names, self.edges, SimulatedNetwork(None, faults=plan.messages, rng=rng)
        )
        self.net.disks = {}
        self._agenda: list[tuple[float, Callable[[], None]]] = []
        for fault in plan.faults:
            self._arrange(fault)
        self._agenda.sort(key=lambda entry: -entry[0])
        self.watch = Watch(self)

    def _arrange(self, fault: Fault) -> None:
        net = self.net
        match fault:
            case Cut(group, start, end):
                for one, other in self.edges:
                    if (one in group) != (other in group) or f"{one}-{other}" in group:
                        net.network.cut(one, other, start, end)
            case Kill(node, at, effects, away):
                self._agenda.append((at, partial(self._light, node, effects, away)))
            case Slow(node, seconds):
                net.slowness[node] = seconds
            case Jump(node, at, by):
                self._agenda.append((at, lambda: net.ahead.update({node: net.ahead.get(node, 0.0) + by})))
            case Full(node, at):
                self._agenda.append((at, lambda: net.full.add(node)))

    def _light(self, node: str, effects: int, away: float) -> None:
        if node not in self.net.down:
            self.net.fuses[node] = effects, away

    def go(self) -> None:
        """From the call to the end, or to the horizon."""
        for name in self.names:
            self.net.tell(name, ev.Called())
        for _ in range(_MOST_EVENTS):
            due = self._agenda[-1][0] if self._agenda else HORIZON
            if self.net.at_rest() and not self._agenda:
                break
            if not self.net.step(due):
                if not self._agenda:
                    break
                self._agenda.pop()[1]()
            self.watch.look()
        else:
            raise InvariantError(f"no end after {_MOST_EVENTS} events: {self.situation()}")
        self.watch.verdict()

    def situation(self) -> dict[str, Any]:
        """Where everybody stands, for a person."""
        return {
            name: "down"
            if name in self.net.down
            else (m.phase.value, m.fit, m.waiting_for(), m.paused or m.reason)
            for name, m in self.net.machines.items()
        }


class Watch:
    """What must hold at every moment, and at the end."""

    def __init__(self, run: Run) -> None:
        self.run, self.net = run, run.net
        self._seen: Counter[str] = Counter()
        self.answers: dict[int, tuple[Any, ...]] = {}
        self.outcomes: Counter[str] = Counter()

    def look(self) -> None:
        """After every event."""
        for name, machine in self.net.machines.items():
            if name not in self.net.down:
                self._bounded(name, machine)
                if machine.phase is Phase.FAILED and not machine.reason:
                    raise InvariantError(f"{name} failed and does not say why")
                for peer, seen in machine.peers.items():
                    if seen.faulty:
                        raise InvariantError(f"{name} blames {peer}, which is honest: {seen.reason}")
        for name, kept in self.net.kept.items():
            for keep in kept[self._seen[name] :]:
                self._seen[name] += 1
                self._one_answer(name, keep)

    def _bounded(self, name: str, machine: Machine) -> None:
        """Nothing is kept that cannot be needed."""
        rounds, members = machine.rounds, set(self.run.names)
        if len(rounds.retained) > 2 * SPEC.inner:
            raise InvariantError(f"{name} retains {len(rounds.retained)} vectors")
        received = max((len(r) for r in rounds._received.values()), default=0)
        if received > (SPEC.inner + 1 if machine.setup.incarnation else 3):
            raise InvariantError(f"{name} holds {received} vectors of one neighbour")
        if machine.flood and not set(machine.flood.records) <= members:
            raise InvariantError(f"{name} holds records of strangers")
        if len(machine._early) > 3 * len(machine.peers) * len(members):
            raise InvariantError(f"{name} holds {len(machine._early)} early records")

    def _one_answer(self, name: str, keep: ev.Keep) -> None:
        """All who finish a fit finish the same one: its number, members, lambda, history, the last bit."""
        base, answer = keep.lineage.base, (keep.number, keep.members, keep.fit.lambda_)
        if self.answers.setdefault(base, answer) != answer:
            raise InvariantError(f"two answers for fit {base}: {answer} at {name}, {self.answers[base]}")
        if not keep.lineage.is_majority(keep.members):
            raise InvariantError(f"{name} finished fit {keep.number} with a minority, {keep.members}")
        if bits(keep.fit) != self._expected(name)[name]:
            raise InvariantError(f"{name} finished fit {keep.number} of {keep.members} with other bits")

    def _expected(self, name: str) -> dict[str, Any]:
        """The bits of the same members joined by the same edges, undisturbed; a node has just ended."""
        roster = self.net.machines[name].roster
        assert roster is not None
        graph = roster.graph
        edges = [
            (roster.names[j], roster.names[k])
            for j in range(graph.size)
            for k in graph.neighbours[j]
            if j < k
        ]
        return undisturbed(self.run.plan.graph, roster.names, tuple(edges))

    def verdict(self) -> None:
        """At the end: nobody stalls, nobody pretends, and harmless faults change nothing."""
        run = self.run
        for name, machine in self.net.machines.items():
            if name in self.net.down:
                self.outcomes["down"] += 1
                continue
            if machine.phase not in RESTING and not self._may_wait(name, machine):
                raise InvariantError(f"{name} stalls: {run.situation()}")
            self.outcomes["paused" if machine.paused else machine.phase.value] += 1
        if harmless(run.plan):
            ended = {name: m.phase for name, m in self.net.machines.items()}
            if set(ended.values()) != {Phase.DONE} or {m.fit for m in self.net.machines.values()} != {1}:
                raise InvariantError(f"harmless faults changed the outcome: {run.situation()}")

    def _may_wait(self, name: str, machine: Machine) -> bool:
        """Whether a node that has not ended has nobody to go on with: most founders are down or cut off.

        Where somebody has confirmed a result, a member that is gone may have been the one that made it a
        majority: nobody can know, and the others must wait for it, unless enough of them confirm as well.
        """
        if machine.phase is Phase.MEETING:  # a fit that cannot begin fails after `patience`, unless it waits
            return any(p.standing.active for p in machine.peers.values())  # for others that pause
        if machine.lineage is None:
            return False
        alive = {n for n in machine.lineage.founders if n not in self.net.down}
        with_memory = {n for n in alive if self._in_the_fit(n, machine.lineage.base)}
        within_reach = _component(name, with_memory, self.run.edges)
        for other in map(self.net.machines.__getitem__, within_reach):
            if other._confirmed and other.flood is not None:
                within_reach = (within_reach & set(other.members)) | other.flood.records.keys()
        return not machine.lineage.is_majority(within_reach)

    def _in_the_fit(self, name: str, base: int) -> bool:
        machine = self.net.machines[name]
        return machine.phase in IN_A_FIT and machine.lineage is not None and machine.lineage.base == base


def _component(name: str, members: set[str], edges: Sequence[tuple[str, str]]) -> set[str]:
    reached, more = {name}, True
    while more:
        more = False
        for one, other in edges:
            for here, there in ((one, other), (other, one)):
                if here in reached and there in members and there not in reached:
                    reached.add(there)
                    more = True
    return reached


def harmless(plan: Schedule) -> bool:
    """Whether nobody is away for as long as patience, so that nothing at all may change."""
    away = 0.0
    for fault in plan.faults:
        match fault:
            case Cut(_, start, end):
                away += end - start
            case Kill():
                away += fault.away + 5.0
            case Jump() | Full():
                return False
    return away < PATIENCE / 2


# -- one seed and many ---------------------------------------------------------------------------------------


def failure(plan: Schedule) -> str:
    """What is broken under a schedule; empty if nothing is."""
    try:
        Run(plan).go()
    except Exception as error:  # a crash is as bad as a broken invariant
        return f"{type(error).__name__}: {error}"
    return ""


def shrink(plan: Schedule) -> Schedule:
    """A schedule that still fails, with as few faults as can be left out one at a time."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(plan):
            if failure(candidate):
                plan, smaller = candidate, True
                break
    return plan


def _simpler(plan: Schedule) -> Iterator[Schedule]:
    for k in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:k] + plan.faults[k + 1 :])
    messages = plan.messages
    for calmer in (
        replace(messages, duplication=0.0),
        replace(messages, loss=0.0),
        replace(messages, delay=(0.0, 0.0)),
    ):
        if calmer != messages:
            yield replace(plan, messages=calmer)


def replay(seed: int) -> int:
    """One seed, told in full; if it fails, what is left of its schedule when it is shrunk."""
    plan = schedule(seed)
    wrong = failure(plan)
    _tell(plan)
    if not wrong:
        print("holds")
        return 0
    print(f"BROKEN {wrong}\n\nshrunk:")
    small = shrink(plan)
    _tell(small)
    print(f"BROKEN {failure(small)}")
    return 1


def _tell(plan: Schedule) -> None:
    names, edges = topology(plan.graph)
    joined = ", ".join(f"{one}-{other}" for one, other in edges)
    print(f"seed {plan.seed}: nodes {', '.join(names)}; edges {joined}\n  {plan.messages}")
    for fault in plan.faults:
        print(f"  {fault}")


def outcome(seed: int) -> tuple[int, str, Counter[str]]:
    """What became of a seed."""
    plan = schedule(seed)
    run = Run(plan)
    try:
        run.go()
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}", Counter()
    counts = Counter(run.watch.outcomes)
    counts["killed"] = run.net.killed
    counts["lost messages"] = run.net.network.lost
    counts["fits gone on with without somebody"] = sum(number != base for base, (number, *_) in answers(run))
    counts["schedules with an answer"] = bool(run.watch.answers)
    return seed, "", counts


def answers(run: Run) -> list[tuple[int, tuple[Any, ...]]]:
    """Every fit that was finished, by the number it began with."""
    return list(run.watch.answers.items())


def checks(seeds: Sequence[int], jobs: int) -> Iterator[Check]:
    """All figures."""
    total: Counter[str] = Counter()
    broken = []
    for begin in range(0, len(seeds), 500):
        for seed, wrong, counts in repeat(outcome, seeds[begin : begin + 500], jobs):
            total += counts
            if wrong:
                broken.append(seed)
                print(f"seed {seed} BROKEN {wrong}\n  python -m benchmarks.schedules --replay {seed}")
        print(f"{min(begin + 500, len(seeds))} of {len(seeds)} schedules, {len(broken)} broken", flush=True)
    print("; ".join(f"{name}: {count}" for name, count in sorted(total.items())))
    yield Check(f"schedules of {len(seeds)} in which an invariant is broken", len(broken), 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=10_000, help="how many, default %(default)s")
    options.add_argument("--first", type=int, default=0, help="the first one, default %(default)s")
    options.add_argument("--jobs", type=int, default=2, help="processes, default %(default)s")
    options.add_argument("--replay", type=int, metavar="SEED", help="run one seed, and shrink it if it fails")
    chosen = options.parse_args(argv)
    if chosen.replay is not None:
        return replay(chosen.replay)
    count = 100 if chosen.tiny else chosen.seeds
    return conclude(checks(range(chosen.first, chosen.first + count), 1 if chosen.tiny else chosen.jobs))


if __name__ == "__main__":
    raise SystemExit(main())
