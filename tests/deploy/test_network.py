"""deploy/network.toml is the network of the demonstration, on hosts of their own names."""

import tomllib
from pathlib import Path

from desmr_node.config import load_network
from desmr_node.datasets.crime import BORDERS, DIVISIONS
from desmr_node.runtime.census import FIT, RESPONSE, node_id, write_census

FILE = Path(__file__).parents[2] / "deploy" / "network.toml"
IDS = [node_id(division) for division in DIVISIONS]


def test_the_edges_are_the_borders():
    network = load_network(FILE, environ={})
    assert len(network.edges) == 13
    assert network.edges == tuple((IDS[a], IDS[b]) for a, b in BORDERS)
    assert [node.id for node in network.nodes] == IDS


def test_each_node_is_at_its_name_with_rows_in_a_folder_of_its_name():
    network = load_network(FILE, environ={})
    for node in network.nodes:
        assert node.address == f"{node.id}:7100"
        assert node.listen == "0.0.0.0:7100"
        assert node.data == FILE.parent / node.id / "rows.csv"
        assert node.holdout == FILE.parent / node.id / "holdout.csv"


def test_it_fits_what_the_demonstration_fits(tmp_path):
    """All but where the nodes and their files are."""
    ours = tomllib.loads(FILE.read_text(encoding="utf-8"))
    theirs = tomllib.loads(write_census(tmp_path, "original", seed=0).read_text(encoding="utf-8"))
    assert ours["fit"] == {**FIT, "seed": 0}
    assert ours["data"] == {"response": RESPONSE}
    assert [(node["id"], set(node)) for node in ours.pop("nodes")] == [
        (node["id"], set(node)) for node in theirs.pop("nodes")
    ]
    assert ours == theirs
