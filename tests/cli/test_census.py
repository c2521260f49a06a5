"""`desmr census init`: the nine divisions' files for hosts of their own, once and again."""

import fcntl

import pytest

from desmr_node.cli import census, desmr
from desmr_node.config import load_network, load_node
from desmr_node.datasets.crime import DIVISIONS
from desmr_node.runtime.census import ATTACKER, FOLDERS, LIAR, node_id, scenario_of

NODES = sorted(node_id(name) for name in DIVISIONS)
ADMIN = "unix:/admin/admin.sock"


@pytest.fixture
def init(tmp_path, capsys):
    """Run `desmr census init`; code, output and errors."""

    def run(*arguments):
        code = desmr(["census", "init", str(tmp_path), "--admin", ADMIN, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_every_division_gets_all_it_needs_and_nothing_of_the_others(init, tmp_path):
    code, out, _ = init()
    assert code == 0
    assert "scenario original, seed 0: written" in out
    network = load_network(tmp_path / "network.toml", environ={})
    assert list(network.ids) == NODES
    for node in NODES:
        here = tmp_path / node
        names = {"ca.pem", "holdout.csv", "node.key", "node.pem", "node.toml", "rows.csv"}
        assert {path.name for path in here.iterdir()} == names
        assert (here / "node.key").stat().st_mode & 0o777 == 0o600
        assert here.stat().st_mode & 0o077 == 0
        config = load_node(here / "node.toml", environ={})
        assert config.listen == "0.0.0.0:7100"
        assert config.admin.listen == ADMIN
        assert config.data.file == here / "rows.csv"
        assert all(each.address == f"{each.id}:7100" for each in config.neighbours)


def test_the_same_network_is_left_alone(init, tmp_path):
    init()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, out, _ = init("--replace")
    assert (code, "there already" in out) == (0, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("other", [("--scenario", "balanced"), ("--seed", "1"), ("--scenario", "attacker")])
def test_another_network_is_refused_or_takes_its_place(init, tmp_path, other):
    init()
    old_key = (tmp_path / "pacific" / "node.key").read_bytes()
    left_over = tmp_path / "pacific" / "state" / "result.json"
    left_over.parent.mkdir()
    left_over.write_text("{}")
    code, _, err = init(*other)
    assert code == 1
    assert "holds network crime-original with seed 0" in err
    assert left_over.exists()
    code, _, _ = init(*other, "--replace")
    assert code == 0
    assert not left_over.exists()
    assert (tmp_path / "pacific" / "node.key").read_bytes() != old_key
    assert (tmp_path / ATTACKER / "node.toml").exists() == ("attacker" in other)


def test_a_network_that_runs_is_not_replaced(init, tmp_path):
    init()
    lock = tmp_path / "mountain" / "state" / "lock"
    lock.parent.mkdir()
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, _, err = init("--seed", "1", "--replace")
        assert code == 1
        assert "is running" in err
        assert "(mountain)" in err
        assert load_network(tmp_path / "network.toml", environ={}).seed == 0
    assert init("--seed", "1", "--replace")[0] == 0


def test_no_other_network_is_ever_cleared_away(init, tmp_path, capsys):
    """Neither one with its network file in the folder nor one of which only the authority is there."""
    rows = '[[nodes]]\nid = "pacific"\naddress = "p:1"\ndata = "rows.csv"\n'
    (tmp_path / "network.toml").write_text(f'network = "clinics"\n[data]\nresponse = "y"\n{rows}')
    assert desmr(["network", "init", str(tmp_path / "network.toml"), str(tmp_path)]) == 0
    capsys.readouterr()
    key = (tmp_path / "authority" / "ca.key").read_bytes()
    code, _, err = init("--replace")
    assert (code, "network 'clinics' is none that" in err) == (1, True)
    (tmp_path / "network.toml").unlink()
    code, _, err = init("--replace")
    assert (code, "network 'clinics' is none that" in err) == (1, True)
    assert (tmp_path / "authority" / "ca.key").read_bytes() == key


def test_what_was_interrupted_is_made_whole(init, tmp_path):
    init()
    (tmp_path / "pacific" / "node.toml").unlink()
    code, _, err = init()
    assert (code, "holds part of network" in err) == (1, True)
    assert init("--replace")[0] == 0
    assert (tmp_path / "pacific" / "node.toml").exists()


def test_an_attacker_that_shows_up_makes_it_its_scenario(init, tmp_path, monkeypatch):
    monkeypatch.setattr(census, "_ANNOUNCEMENT", 0.0)
    code, out, _ = init("--announced", "localhost")
    assert (code, "scenario attacker" in out) == (0, True)
    assert len(load_network(tmp_path / "network.toml", environ={}).neighbours_of(ATTACKER)) == 9
    code, _, err = init("--announced", "localhost", "--scenario", "balanced")
    assert (code, "has no attacker" in err) == (1, True)


def test_a_liar_that_shows_up_makes_it_its_scenario(init, tmp_path, monkeypatch):
    monkeypatch.setattr(census, "_ANNOUNCEMENT", 0.0)
    code, out, _ = init("--announced", "attacker=no.such.host.invalid", "--announced", "liar=localhost")
    assert (code, "scenario liar" in out) == (0, True)
    network = load_network(tmp_path / "network.toml", environ={})
    assert len(network.neighbours_of(LIAR)) == 9
    assert network.fit.edge_force == "auto"


def test_a_report_of_nine_is_refused_where_an_attacker_came_too_late(init, tmp_path, capsys):
    init()
    assert desmr(["census", "report", str(tmp_path), "--announced", "localhost"]) == 1
    assert "the attacker came after the network had been prepared" in capsys.readouterr().err


def test_without_one_there_is_none(init, tmp_path, monkeypatch):
    monkeypatch.setattr(census, "_shows_up", lambda announced, patience: None)
    code, out, _ = init("--announced", "nobody")
    assert (code, "scenario original" in out) == (0, True)
    code, _, err = init("--announced", "nobody", "--scenario", "attacker")
    assert (code, "no attacker shows up as nobody" in err) == (1, True)


def test_mistakes_are_sentences(init, tmp_path, capsys):
    with pytest.raises(SystemExit):
        init("--seed", "-1")
    assert "'-1' is no seed: give a whole number, 0 or more" in capsys.readouterr().err
    (tmp_path / "network.toml").mkdir()
    code, _, err = init()
    assert code == 1
    assert "Traceback" not in err
    assert desmr(["census", "report", str(tmp_path / "nothing")]) == 1
    assert "network.toml" in capsys.readouterr().err


def test_the_image_has_a_folder_for_every_node():
    assert {*NODES, ATTACKER, LIAR, "authority"} == set(FOLDERS)
    assert scenario_of("crime-balanced") == "balanced"


def test_the_attacks_of_the_demonstration_are_those_there_are():
    from desmr_node.cli.divisions import ATTACKS
    from desmr_node.datasets import liars

    assert set(ATTACKS) == set(liars.ATTACKS) == set(liars.MEANINGS)
