"""`desmr census report` over nine daemons: the table, a division that comes back, one that does not."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from desmr_node.cli.local import LocalNetwork
from desmr_node.config import load_network
from desmr_node.runtime.census import write_census
from desmr_node.runtime.setup import write_network

_REPORT = "import sys; from desmr_node.cli import desmr; sys.exit(desmr())"


@pytest.fixture
def folder():
    """With a short path: that of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:
        yield Path(name)


def report(folder, *options):
    command = [sys.executable, "-c", _REPORT, "census", "report", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_the_report_waits_for_the_fit_and_prints_it_as_often_as_asked(folder):
    network = load_network(write_census(folder, "original", seed=0), environ={})
    configs = write_network(network, folder)
    with LocalNetwork(configs) as nodes:
        done = report(folder)
        assert done.returncode == 0, done.stderr
        assert "9 divisions agree on lambda and variables" in done.stdout
        assert "paper, deSMR                 0.639  0.392" in done.stdout
        assert "outer round 1:" in done.stderr
        nodes.client("pacific").stop(shutdown=True)
        nodes.processes["pacific"].wait(20)
        away = report(folder, "--grace", "1")
        assert away.returncode == 3
        assert "pacific stays away" in away.stderr
    with LocalNetwork(configs):
        again = json.loads(report(folder, "--json").stdout)
        assert again["scenario"] == "original"
        assert again["results"].keys() == set(network.ids)
        assert again["earlier"]
        assert "Divisions were started again after this fit" in report(folder).stdout


def test_a_division_that_stays_away_is_named(folder, monkeypatch):
    monkeypatch.setenv("DESMR_PATIENCE", "1.5")
    network = load_network(write_census(folder, "original", seed=0), environ={})
    with LocalNetwork(write_network(network, folder)) as nodes:
        nodes.processes["pacific"].kill()
        done = report(folder, "--grace", "2")
    assert done.returncode == 3
    assert "failed: mountain: pacific has been away for 2 s" in done.stderr
    assert done.stdout == ""
