"""Nine processes of `desmr-node`, one per census division: same bits as the simulation, twice."""

import json
import subprocess
import sys

from desmr_node.cli.local import LocalNetwork
from desmr_node.config import load_network
from desmr_node.runtime.census import write_census
from desmr_node.runtime.network import run_network
from desmr_node.runtime.setup import write_network

#: Bytes of memory that a node may take.
MOST_MEMORY = 200e6
_DEMO = "import sys; from desmr_node.cli import desmr; sys.exit(desmr())"


def test_nine_processes_end_like_their_simulation(folder):
    network = load_network(write_census(folder, "original", seed=0), environ={})
    assert len(network.nodes) == 9
    simulated = run_network(network).documents()
    lambdas = set()
    with LocalNetwork(write_network(network, folder)) as nodes:
        for fit in (1, 2):
            if fit == 2:
                nodes.client("pacific").start()
                for node in network.ids:  # nobody shows the first fit any more
                    *_, last = nodes.client(node).watch(until_end=True)
                    while last.fit < fit:
                        *_, last = nodes.client(node).watch(until_end=True)
            statuses = nodes.wait(frozenset({"done", "failed"}), timeout=60.0)
            assert {s.phase for s in statuses.values()} == {"done"}, {s.message for s in statuses.values()}
            assert {s.fit for s in statuses.values()} == {fit}
            assert max(s.memory_bytes for s in statuses.values()) < MOST_MEMORY
            for node in network.ids:
                result = nodes.client(node).result()
                assert json.loads((folder / node / "state" / "result.json").read_text()) == result
                del result["bytes_sent"]
                assert result == simulated[node] | {"fit": fit}
                lambdas.add(result["lambda"])
    assert len(lambdas) == 1
    for node in network.ids:
        assert nodes.processes[node].returncode == 0
        log = (folder / node / "node.log").read_text()
        assert "Traceback" not in log
        assert "fit 2 is done" in log
        assert "stopping: SIGTERM" in log


def test_the_demonstration_with_an_attacker():
    done = subprocess.run(
        [sys.executable, "-c", _DEMO, "demo", "--scenario", "attacker", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["scenario"] == "attacker"
    assert outcome["failed"] == {}
    assert len(outcome["results"]) == 10
    assert "attacker" in outcome["results"]
    assert len({result["lambda"] for result in outcome["results"].values()}) == 1
    assert outcome["memory_megabytes"] < MOST_MEMORY / 1e6
    assert "Traceback" not in done.stderr
