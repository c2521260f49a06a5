"""Real processes, killed by SIGKILL in the middle of a fit and started again: the bits of an undisturbed run."""

import time

import numpy as np
import pytest

from desmr_node.cli.local import LocalNetwork
from desmr_node.config import load_network
from desmr_node.runtime.census import write_census
from desmr_node.runtime.network import run_network
from desmr_node.runtime.setup import write_network


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_division_takes_up_its_place_again(short_folder, seed):
    rng = np.random.default_rng(seed)
    network = load_network(write_census(short_folder, "original", seed=0), environ={})
    simulated = run_network(network).documents()
    with LocalNetwork(write_network(network, short_folder)) as nodes:
        victim = str(rng.choice(network.ids))
        deadline = time.monotonic() + 60.0
        while nodes.client(victim).status().outer < 1 + seed:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        nodes.kill(victim)
        time.sleep(float(rng.uniform(0.0, 2.0)))
        nodes.launch(victim)
        statuses = nodes.wait(frozenset({"done", "failed"}), timeout=90.0)
        assert {s.phase for s in statuses.values()} == {"done"}, {s.message for s in statuses.values()}
        for node in network.ids:
            result = nodes.client(node).result()
            del result["bytes_sent"]
            assert result == simulated[node] | {"fit": 1}
    log = (short_folder / victim / "node.log").read_text()
    assert "back in fit 1" in log
    assert "Traceback" not in log
