"""Whatever the network does to messages, a fit ends with the same bits.

Every case is a seed: the graph, the rows, the faults and their timing follow from it, so that a failing one runs
again from its test id alone.
"""

from functools import cache

import numpy as np
import pytest

from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.protocol.machine import IN_A_FIT, Phase
from desmr_node.protocol.messages import Schema
from desmr_node.protocol.seal import Sealed
from desmr_node.protocol.sealing import MaskKey
from desmr_node.runtime.signing import BareSigner
from desmr_node.runtime.simulation import Simulation
from desmr_node.runtime.worker import Worker
from desmr_node.transport.codec import Limits
from desmr_node.transport.simulated import Faults, SimulatedNetwork

FEATURES = 5
SPEC = FitSpec(outer=3, inner=4, lambdas=3, tolerance=0.0)
LIMITS = Limits.of(FEATURES, SPEC.lambdas)
SEEDS = 200


def topology(seed, nodes=None):
    """A random connected graph of 3 to 8 nodes: a random tree and some more edges."""
    rng = np.random.default_rng((seed, 1))
    m = nodes or int(rng.integers(3, 9))
    names = [f"node-{j}" for j in range(m)]
    edges = {(int(rng.integers(k)), k) for k in range(1, m)}
    edges |= {(j, k) for j in range(m) for k in range(j + 1, m) if rng.random() < 0.2}
    return names, [(names[j], names[k]) for j, k in sorted(edges)]


def workers(names, seed, spec):
    rng = np.random.default_rng((seed, 2))
    found = {}
    for name in names:
        X = rng.standard_normal((int(rng.integers(20, 40)), FEATURES))
        y = X @ [2.0, 0.0, -1.0, 0.0, 0.0] + rng.standard_t(2, len(X))
        found[name] = Worker(ArrayRows.checked(X, y, name), None, spec, seed=0)
    return found


SCHEMA = Schema("y", tuple(f"x{k}" for k in range(FEATURES)))


def simulation(seed, network, spec=SPEC, nodes=None, **options):
    names, edges = topology(seed, nodes)
    return Simulation(workers(names, seed, spec), edges, SCHEMA, network, **options)


def bits(run):
    """Everything a fit leaves on every node, to the last bit."""
    assert {name: m.phase for name, m in run.machines.items()} == dict.fromkeys(run.machines, Phase.DONE)
    return {
        name: (fit.coef.tobytes(), fit.intercept, fit.lambda_, fit.history, fit.objective, fit.support.tobytes())
        for name, fit in run.fits.items()
    }


@cache
def undisturbed(graph):
    run = simulation(graph, SimulatedNetwork(None))
    run.run()
    return bits(run)


# -- what holds after every event ----------------------------------------------------------------------------


def vectors_held(machine):
    rounds = machine.rounds
    return len(rounds._own) + len(rounds._early) + sum(map(len, rounds._received.values()))


def check(run):
    """No more is kept than can be needed; nobody runs ahead; an edge's two duals are each other's negatives."""
    lag = next(iter(run.workers.values())).spec.max_lag
    for name, machine in run.machines.items():
        degree = len(machine.peers)
        assert vectors_held(machine) <= (2 * lag + 3) * (degree + 1) + degree
        assert len(machine.rounds.retained) <= 2 * lag + 2
        members = set(run.machines)
        if machine.flood:
            assert set(machine.flood.records) <= members
        if machine.roster:
            assert set(machine.roster.names) == members
        assert len(machine._early) <= degree * len(members)
        assert {origin for _, origin in machine._early} <= members
        for peer in machine.peers:
            other = run.machines[peer]
            if machine.phase in IN_A_FIT and other.phase in IN_A_FIT and machine.fit == other.fit:
                compare(run, name, peer, lag)


def compare(run, name, peer, lag):
    one, other = run.machines[name], run.machines[peer]
    here, there = (one.rounds.outer, one.rounds.inner), (other.rounds.outer, other.rounds.inner)
    assert here[0] <= there[0] + 1
    if here[0] == there[0]:
        assert here[1] <= there[1] + lag + 1
    elif here[0] > there[0] >= 0:
        assert here[1] == 0
        assert there[1] == run.workers[name].spec.inner - 1
    if abs(one.flood.number - other.flood.number) > 1:
        raise AssertionError("sums more than one apart")
    both_report = one.flood.number == other.flood.number and one.phase is other.phase is Phase.SUMMING
    if both_report and hasattr(run.workers[name].share, "member"):
        mine, theirs = run.workers[name].share.member, run.workers[peer].share.member
        if hasattr(mine, "duals") and hasattr(theirs, "duals") and one.roster:
            j, k = one.roster.index[name], one.roster.index[peer]
            assert np.array_equal(mine.duals[k], -theirs.duals[j])


def run_checked(run, until=1e4):
    for name in run.machines:
        run.tell(name, called())
    while not run.at_rest():
        assert run.step(until), f"stuck at {run.network.now}: {situation(run)}"
        check(run)


def called():
    from desmr_node.protocol.events import Called

    return Called()


def situation(run):
    return {
        name: (m.phase.value, m.fit, m.rounds.outer, m.rounds.inner, m.waiting_for(), m.reason)
        for name, m in run.machines.items()
    }


# -- faults --------------------------------------------------------------------------------------------------


def disturbed_network(seed, limits=None):
    """Delays up to a second (so that messages overtake each other), loss, duplication, partitions."""
    rng = np.random.default_rng((seed, 3))
    faults = Faults(
        delay=(0.0, float(rng.choice([0.0, 0.01, 1.0]))),
        loss=float(rng.choice([0.0, 0.02, 0.15])),
        duplication=float(rng.choice([0.0, 0.05, 0.5])),
    )
    network = SimulatedNetwork(limits, faults=faults, rng=rng)
    return network, rng


def partitions(run, rng):
    for _ in range(int(rng.integers(0, 6))):
        one, other = run.edges[int(rng.integers(len(run.edges)))]
        start = float(rng.uniform(0.0, 30.0))
        run.network.cut(one, other, start, start + float(rng.exponential(5.0)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_do_not_change_a_bit(seed):
    graph = seed % 20
    network, rng = disturbed_network(seed)
    run = simulation(graph, network)
    partitions(run, rng)
    run_checked(run)
    assert bits(run) == undisturbed(graph)
