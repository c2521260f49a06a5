"""Whatever the network does to messages, a fit ends with the same bits.

Every case is a seed: the graph, the rows, the faults and their timing follow from it, so that a failing one
runs again from its test id alone.
"""

from functools import cache

import numpy as np
import pytest

from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.protocol.events import Called, Stopped
from desmr_node.protocol.machine import IN_A_FIT, RESTING, Phase
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
        name: (
            fit.coef.tobytes(),
            fit.intercept,
            fit.lambda_,
            fit.history,
            fit.objective,
            fit.support.tobytes(),
        )
        for name, fit in run.fits.items()
    }


@cache
def undisturbed(graph):
    run = simulation(graph, SimulatedNetwork(None))
    run.run()
    return bits(run)


# -- what holds after every event ----------------------------------------------------------------------------


def check(run):
    """Nothing is kept that cannot be needed; nobody runs ahead; the duals of an edge add up to zero."""
    members = set(run.machines)
    for name, machine in run.machines.items():
        lag, degree = machine.setup.max_lag, len(machine.peers)
        rounds = machine.rounds
        assert len(rounds.retained) <= 2 * machine.setup.inner_rounds
        assert len(rounds._own) <= 2 * lag + 2
        assert len(rounds._early) <= (2 if machine.setup.incarnation else 1) * degree
        ahead = max(2 * lag + 3, run.workers[name].spec.inner if machine.setup.incarnation else 0)
        assert all(len(received) <= ahead for received in rounds._received.values())
        assert set(machine.flood.records if machine.flood else ()) <= members
        assert {origin for _, _, origin in machine._early} <= members
        for peer in machine.peers:
            other = run.machines[peer]
            if name < peer and machine.phase in IN_A_FIT and other.phase in IN_A_FIT:
                compare(run, name, peer)


def compare(run, name, peer):
    """Two neighbours in a fit: at most a round and a sum apart, and the pull of their edge is mutual."""
    one, other = run.machines[name], run.machines[peer]
    if one.fit != other.fit:
        return
    again = one.setup.incarnation or other.setup.incarnation  # its part of the next sum may have been sent
    assert abs(one.flood.number - other.flood.number) <= (2 if again else 1)
    behind, ahead = sorted([(one.rounds.outer, one.rounds.inner), (other.rounds.outer, other.rounds.inner)])
    assert ahead[0] <= behind[0] + 1
    if run.killed:  # whoever was killed goes through the rounds since its snapshot again
        pass
    elif ahead[0] == behind[0]:
        assert ahead[1] <= behind[1] + one.setup.max_lag + 1
    elif behind[0] >= 0:
        assert ahead[1] == 0
        assert behind[1] == run.workers[name].spec.inner - 1
    if (
        one.phase is other.phase is Phase.SUMMING
        and one.rounds.outer >= 0
        and (one.flood.number == other.flood.number and ahead == behind)
        and one.setup.incarnation == other.setup.incarnation == 0  # back in the last sums, nobody needs them
    ):
        members = [run.workers[who].share.member for who in (name, peer)]
        duals = [dict(zip(m.neighbours, m.duals, strict=True)) for m in members]
        j, k = one.roster.index[name], one.roster.index[peer]
        assert np.array_equal(duals[0][k], -duals[1][j])
        run.compared = getattr(run, "compared", 0) + 1


def run_checked(run, until=1e4, callers=None):
    for name in callers or run.machines:
        run.tell(name, Called())
    while not run.at_rest():
        assert run.step(until), f"stuck at {run.network.now:.1f} s: {situation(run)}"
        check(run)


def situation(run):
    return {
        name: (m.phase.value, m.fit, m.rounds.outer, m.rounds.inner, m.waiting_for(), m.reason)
        for name, m in run.machines.items()
    }


# -- faults --------------------------------------------------------------------------------------------------


def disturbed(seed, graph, spec=SPEC, limits=None, **options):
    """Delays up to a second (so that messages overtake each other), loss, duplication, partitions."""
    rng = np.random.default_rng((seed, 3))
    faults = Faults(
        delay=(0.0, float(rng.choice([0.001, 0.1, 1.0]))),
        loss=float(rng.choice([0.0, 0.02, 0.15])),
        duplication=float(rng.choice([0.0, 0.05, 0.5])),
    )
    run = simulation(graph, SimulatedNetwork(limits, faults=faults, rng=rng), spec, **options)
    for _ in range(int(rng.integers(0, 6))):
        one, other = run.edges[int(rng.integers(len(run.edges)))]
        start = float(rng.uniform(0.0, 30.0))
        run.network.cut(one, other, start, start + float(rng.exponential(5.0)))
    return run


@pytest.mark.parametrize("seed", range(200))
def test_faults_do_not_change_a_bit(seed):
    graph = seed % 20
    run = disturbed(seed, graph)
    run_checked(run)
    assert bits(run) == undisturbed(graph)
    assert run.compared > 0


def test_the_faults_are_real():
    """The schedules above do lose, double and delay messages, and break streams."""
    lost = duplicated = times = 0.0
    for seed in range(10):
        run = disturbed(seed, seed % 20)
        run.run()
        lost += run.network.lost
        duplicated += run.network.duplicated
        times += run.network.now
    assert lost > 100
    assert duplicated > 300
    assert times > 100.0


@pytest.mark.parametrize("seed", range(12))
def test_fits_called_one_after_the_other_by_anybody(seed):
    """The next call comes while neighbours may still finish the last fit; each fit has the same bits."""
    rng = np.random.default_rng((seed, 4))
    graph = seed % 20
    run = disturbed(seed, graph)
    names = list(run.machines)
    for number in range(1, 4):
        callers = rng.choice(names, size=int(rng.integers(1, len(names) + 1)), replace=False)
        while not any(run.machines[name].phase in RESTING for name in callers):
            assert run.step(1e4)
            check(run)
        for name in callers:
            run.tell(name, Called())
        first = next(name for name in callers if run.machines[name].phase not in RESTING)
        while not (run.machines[first].fit >= number and run.machines[first].phase in RESTING):
            assert run.step(1e4), situation(run)
            check(run)
    while not run.at_rest():
        assert run.step(1e4), situation(run)
    assert bits(run) == undisturbed(graph)
    assert {m.fit for m in run.machines.values()} == {3}


@pytest.mark.parametrize("seed", range(12))
def test_a_stop_at_any_moment_ends_the_fit_for_all_and_the_next_one_goes_well(seed):
    rng = np.random.default_rng((seed, 5))
    graph = seed % 20
    run = disturbed(seed, graph)
    names = list(run.machines)
    for name in names:
        run.tell(name, Called())
    for _ in range(int(rng.integers(1, 400))):
        if not run.at_rest():
            run.step(1e4)
    run.tell(str(rng.choice(names)), Stopped("enough"))
    while not run.at_rest():
        assert run.step(1e4), situation(run)
        check(run)
    run_checked(run)
    assert bits(run) == undisturbed(graph)


# -- bytes and seals -----------------------------------------------------------------------------------------


def seals():
    signers = {}

    def seal(name, fit):
        signer = signers.setdefault(name, BareSigner())
        return Sealed("simulation", name, fit, MaskKey.generate(), signer)

    return seal


@pytest.mark.parametrize("graph", range(4))
def test_bytes_and_references_masks_and_plain_words_give_the_same_bits(graph):
    for limits, options in ((LIMITS, {}), (None, {"seals": seals()}), (LIMITS, {"seals": seals()})):
        run = simulation(graph, SimulatedNetwork(limits), **options)
        run_checked(run)
        assert bits(run) == undisturbed(graph)


@pytest.mark.parametrize("seed", range(4))
def test_sealed_bytes_under_faults(seed):
    run = disturbed(seed, seed, limits=LIMITS, seals=seals())
    run_checked(run)
    assert bits(run) == undisturbed(seed)


def test_bytes_are_counted_alike_with_and_without_the_codec():
    counts = []
    for limits in (None, LIMITS):
        run = simulation(3, SimulatedNetwork(limits))
        run.run()
        counts.append(run.network.bytes_sent)
    assert counts[0] == counts[1] > 0


# -- with a lag ----------------------------------------------------------------------------------------------


def lagging(max_lag):
    """One lambda and rounds enough to get to the end. At a lag of two an edge must pull more gently."""
    settings = {"penalty": "l1", "lambda_": 0.05, "loss": "squared", "outer": 2, "inner": 150}
    return FitSpec(**settings, tolerance=0.0, max_lag=max_lag)


@cache
def in_step(graph):
    run = simulation(graph, SimulatedNetwork(None), lagging(0))
    run.run()
    return {name: fit.coef for name, fit in run.fits.items()}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_lag", [1, 2])
def test_with_a_lag_the_answer_is_that_of_lock_step(seed, max_lag):
    """Vectors are late or lost; duals are late, and still of matched rounds, so that they add up to zero."""
    rng = np.random.default_rng((seed, 7))
    faults = Faults(delay=(0.0, 1.0), loss=0.02 * (seed % 2), duplication=0.05)
    run = simulation(seed, SimulatedNetwork(None, faults=faults, rng=rng), lagging(max_lag))
    lags = []
    for name in run.machines:
        run.tell(name, Called())
    while not run.at_rest():
        assert run.step(1e5), situation(run)
        check(run)
        machines = run.machines.values()
        if all(m.phase is Phase.EXCHANGING for m in machines):
            lags += [m.rounds.inner - matched for m in machines for matched in m.rounds._matched.values()]
        if all(m.phase is Phase.SUMMING and m.rounds.outer >= 0 for m in machines):
            total = sum(u for w in run.workers.values() for u in w.share.member.duals)
            assert np.abs(total).max() < 1e-9
            run.balanced = True
    assert run.balanced
    assert max(lags) > 1  # in lock-step a waiting node lacks its own round only
    for name, fit in run.fits.items():
        np.testing.assert_allclose(fit.coef, in_step(seed)[name], atol=1e-5)
