"""Nodes are killed at any point, between any two effects, and started again: the fit ends with the same bits.

Every case is a seed: graph, rows, faults and their timing follow from it.
"""

import numpy as np
import pytest

from desmr_node.protocol.events import Called
from desmr_node.protocol.machine import Phase
from tests.simulation.test_schedules import bits, disturbed, run_checked, situation, undisturbed


def killed(seed, kills):
    """A disturbed network whose nodes are killed, some of them again and again, some at the same time."""
    rng = np.random.default_rng((seed, 8))
    run = disturbed(seed, seed % 20)
    run.disks = {}
    names = list(run.machines)
    for _ in range(kills):
        name = str(rng.choice(names))
        run.fuses[name] = int(rng.integers(0, 250)), float(rng.exponential(3.0))
    return run, rng


@pytest.mark.parametrize("seed", range(200))
def test_a_killed_node_changes_no_bit(seed):
    run, _ = killed(seed, kills=1 + seed % 3)
    run_checked(run)
    assert bits(run) == undisturbed(seed % 20)
    assert {m.fit for m in run.machines.values()} == {1}


@pytest.mark.parametrize("seed", range(40))
def test_nodes_killed_again_and_again(seed):
    """Also two neighbours at once, and a node that has just come back."""
    run, rng = killed(1000 + seed, kills=2)
    names, done = list(run.machines), 0
    for name in names:
        run.tell(name, Called())
    while not run.at_rest():
        assert run.step(1e4), situation(run)
        if done < 12 and rng.random() < 0.02:
            done += 1
            alive = [n for n in names if n not in run.down and n not in run.fuses]
            if alive:
                run.fuses[str(rng.choice(alive))] = int(rng.integers(0, 40)), float(rng.exponential(2.0))
    assert bits(run) == undisturbed((1000 + seed) % 20)


def test_the_kills_are_real():
    kills = phases = 0
    for seed in range(10):
        run, _ = killed(seed, kills=3)
        run.run()
        kills += run.killed
        phases += sum(m.phase is Phase.DONE for m in run.machines.values())
    assert kills >= 10
    assert phases > 10
