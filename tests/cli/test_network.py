"""`desmr network`: what is written, for whom it is readable, and what is refused."""

import json
import os
import re
import stat

import pytest

from desmr_node import cli
from desmr_node.config import load_node
from desmr_node.data import open_rows
from desmr_node.errors import ConfigError
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.daemon import identity_of


def _tree(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def _mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_init_writes_what_every_node_needs(network, desmr, tmp_path):
    code, out, err = desmr("network", "init", network(), tmp_path / "n")
    assert (code, err) == (0, "")
    for node in "abc":
        folder = tmp_path / "n" / node
        config = load_node(folder / "node.toml", environ={})
        assert identity_of(config).node == node
        assert open_rows(config.data).rows.count == 60
        assert str(folder / "node.toml") in out
        assert _mode(folder) == 0o700
        assert _mode(folder / "node.key") == 0o600
    assert _mode(tmp_path / "n" / "authority" / "ca.key") == 0o600
    assert _mode(tmp_path / "n" / "authority") == _mode(tmp_path / "n") == 0o700
    assert f"desmr-node --config {tmp_path}/n/a/node.toml" in out


def test_init_as_json(network, desmr, tmp_path):
    code, out, _ = desmr("network", "init", network(), tmp_path / "n", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["nodes"]["b"] == str(tmp_path / "n" / "b" / "node.toml")
    assert told["authority"] == str(tmp_path / "n" / "authority")


def test_keys_are_private_whatever_the_umask(network, desmr, tmp_path):
    before = os.umask(0)
    try:
        assert desmr("network", "init", network(), tmp_path / "n")[0] == 0
    finally:
        os.umask(before)
    assert _mode(tmp_path / "n" / "a" / "node.key") == 0o600
    assert _mode(tmp_path / "n" / "a") == 0o700


def test_rows_inside_the_folder_move_with_it(network, desmr, tmp_path, edit):
    path = network()
    (tmp_path / "n" / "a").mkdir(parents=True)
    (tmp_path / "a.csv").rename(tmp_path / "n" / "a" / "rows.csv")
    edit(path, 'data = "a.csv"', 'data = "n/a/rows.csv"')
    edit(path, 'holdout = "a.csv"', "")
    assert desmr("network", "init", path, tmp_path / "n")[0] == 0
    assert 'file = "rows.csv"' in (tmp_path / "n" / "a" / "node.toml").read_text()
    (tmp_path / "n").rename(tmp_path / "elsewhere")
    assert open_rows(load_node(tmp_path / "elsewhere/a/node.toml", environ={}).data).rows.count == 60


def test_rows_that_are_elsewhere_are_mentioned(network, desmr, tmp_path):
    path = network()
    (tmp_path / "b.csv").unlink()
    code, out, _ = desmr("network", "init", path, tmp_path / "n")
    assert code == 0
    assert "The rows of b are not on this machine" in out


def test_nothing_is_overwritten(network, desmr, tmp_path):
    path = network()
    assert desmr("network", "init", path, tmp_path / "n")[0] == 0
    before = _tree(tmp_path / "n")
    code, out, err = desmr("network", "init", path, tmp_path / "n")
    assert (code, out) == (1, "")
    assert f"{tmp_path}/n/a/node.toml exists already, and nothing was written: name another folder" in err
    (tmp_path / "n" / "a" / "node.toml").unlink()
    code, _, err = desmr("network", "init", path, tmp_path / "n")
    assert code == 1
    assert "ca.pem exists already" in err
    assert set(_tree(tmp_path / "n")) == set(before) - {tmp_path / "n" / "a" / "node.toml"}


def test_all_or_nothing(network, desmr, tmp_path):
    deep = tmp_path / ("x" * 100)
    code, _, err = desmr("network", "init", network(), deep / "n")
    assert code == 1
    assert "socket path" in err
    assert "write a shorter one" in err
    assert not deep.exists()


def test_an_insecure_network_has_no_keys(network, desmr, tmp_path):
    code, out, _ = desmr("network", "init", network(), tmp_path / "n", "--insecure")
    assert code == 0
    assert "none (insecure)" in out
    assert [p.name for p in (tmp_path / "n").rglob("*") if p.is_file()] == ["node.toml"] * 3
    assert load_node(tmp_path / "n" / "a" / "node.toml", environ={}).insecure


def test_an_owner_keeps_its_key(network, desmr, tmp_path):
    """init --request, then request at the owner's and sign at the authority's: the folder is complete."""
    code, out, _ = desmr("network", "init", network(), tmp_path / "n", "--request", "b")
    assert code == 0
    assert "desmr network request b three ." in out
    assert {p.name for p in (tmp_path / "n" / "b").iterdir()} == {"node.toml", "ca.pem"}

    owner = tmp_path / "n" / "b"
    code, out, _ = desmr("network", "request", "b", "three", owner)
    assert code == 0
    assert _mode(owner / "node.key") == 0o600
    assert "it stays here" in out
    code, out, _ = desmr("network", "sign", tmp_path / "n/authority", owner / "node.csr", "--node", "b")
    assert code == 0
    assert str(owner / "node.pem") in out
    assert identity_of(load_node(owner / "node.toml", environ={})).node == "b"


def test_request_reads_the_network_file(network, desmr, tmp_path):
    path = network()
    assert desmr("network", "request", "b", path, tmp_path / "b")[0] == 0
    code, _, err = desmr("network", "request", "d", path, tmp_path / "d")
    assert code == 1
    assert "network three has no node d: its nodes are a, b, c" in err
    assert not (tmp_path / "d").exists()


def test_request_keeps_an_existing_key(desmr, tmp_path):
    assert desmr("network", "request", "b", "three", tmp_path)[0] == 0
    key = (tmp_path / "node.key").read_bytes()
    code, _, err = desmr("network", "request", "b", "three", tmp_path)
    assert code == 1
    assert "node.key exists already, and nothing was written: name another folder" in err
    assert (tmp_path / "node.key").read_bytes() == key


@pytest.fixture
def authority(nodes, tmp_path):
    return tmp_path / "n" / "authority"


@pytest.fixture
def request_of_b(desmr, tmp_path):
    desmr("network", "request", "b", "three", tmp_path / "owner")
    return tmp_path / "owner" / "node.csr"


def test_sign_checks_the_name(desmr, authority, request_of_b):
    code, _, err = desmr("network", "sign", authority, request_of_b, "--node", "a")
    assert code == 1
    assert "the certificate request names b, not a: ask for another" in err
    assert not request_of_b.with_name("node.pem").exists()


def test_sign_checks_the_network(desmr, authority, tmp_path):
    desmr("network", "request", "b", "other", tmp_path / "owner")
    code, _, err = desmr("network", "sign", authority, tmp_path / "owner" / "node.csr")
    assert code == 1
    assert "for network other, and this is the authority of three" in err


def test_sign_refuses_what_is_no_request(desmr, authority, request_of_b):
    request_of_b.write_text("hello")
    code, _, err = desmr("network", "sign", authority, request_of_b)
    assert code == 1
    assert "the certificate request is not in PEM" in err
    request_of_b.unlink()
    code, _, err = desmr("network", "sign", authority, request_of_b)
    assert code == 1
    assert "node.csr cannot be read (No such file or directory): name the file node.csr" in err


def test_sign_needs_an_authority(desmr, request_of_b, tmp_path):
    code, _, err = desmr("network", "sign", tmp_path / "nobody", request_of_b)
    assert code == 1
    assert str(tmp_path / "nobody" / "ca.pem") in err


def test_sign_replaces_only_when_told(desmr, authority, request_of_b, tmp_path):
    out = tmp_path / "b.pem"
    assert desmr("network", "sign", authority, request_of_b, "--out", out)[0] == 0
    first = out.read_bytes()
    code, _, err = desmr("network", "sign", authority, request_of_b, "--out", out)
    assert code == 1
    assert f"{out} exists already: name another file with --out, or add --replace" in err
    assert desmr("network", "sign", authority, request_of_b, "--out", out, "--replace")[0] == 0
    assert out.read_bytes() != first
    code, _, err = desmr("network", "sign", authority, request_of_b, "--out", tmp_path / "no" / "b.pem")
    assert code == 1
    assert f"{tmp_path}/no is no folder: make it first" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--request", "d"], "network three has no node d: its nodes are a, b, c"),
        (["--request", "b", "--insecure"], "an insecure network has no keys to request"),
    ],
)
def test_init_refuses(network, desmr, tmp_path, arguments, sentence):
    code, _, err = desmr("network", "init", network(), tmp_path / "n", *arguments)
    assert code == 1
    assert sentence in err
    assert not (tmp_path / "n").exists()


def test_a_node_cannot_be_called_authority(network, desmr, tmp_path, edit):
    path = network()
    for _ in range(2):
        edit(path, '"c"', '"authority"')
    code, _, err = desmr("network", "init", path, tmp_path / "n")
    assert code == 1
    assert "a node is called 'authority', as is the authority's folder: rename the node" in err


def test_init_needs_a_folder_it_can_make(network, desmr, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = desmr("network", "init", network(), tmp_path / "file")
    assert code == 1
    assert "file is a file: name a folder" in err
    code, _, err = desmr("network", "init", network(), tmp_path / "file" / "n")
    assert code == 1
    assert "cannot be made (Not a directory): choose another folder" in err


def test_init_needs_a_network_file(desmr, tmp_path):
    code, _, err = desmr("network", "init", tmp_path / "no.toml", tmp_path / "n")
    assert code == 1
    assert f"{tmp_path}/no.toml does not exist" in err


@pytest.mark.parametrize("days", ["0", "-3", "soon", "nan", "1e9"])
def test_days_are_a_number(capsys, days):
    with pytest.raises(SystemExit) as stopped:
        cli.desmr(["network", "init", "net.toml", "n", f"--days={days}"])
    assert stopped.value.code == 2
    assert f"{days!r} is no number of days" in capsys.readouterr().err


# --- one more member ------------------------------------------------------------------------------------


@pytest.fixture
def grown(network, desmr, tmp_path, edit):
    """A network of three that was set up, whose file has since got a fourth node, joined to a and c."""

    def write(*, address=True):
        path = network()
        assert desmr("network", "init", path, tmp_path / "n")[0] == 0
        edit(path, '["b", "c"]', '["b", "c"], ["a", "d"], ["d", "c"]')
        where = f'address = "127.0.0.1:{free_ports(1)[0]}"\n' if address else ""
        (tmp_path / "d.csv").write_bytes((tmp_path / "a.csv").read_bytes())
        with path.open("a") as file:
            file.write(f'[[nodes]]\nid = "d"\n{where}data = "d.csv"\n')
        return path

    return write


async def test_one_more_member_takes_part(grown, desmr, remote, serving, tmp_path):
    """Its neighbours do what they are told, and nobody else does anything."""
    path, folder = grown(), tmp_path / "n"
    before = _tree(folder)
    code, out, err = desmr("network", "add", path, folder, "d")
    assert (code, err) == (0, "")
    after = _tree(folder)
    assert {each: after[each] for each in before} == before
    new = {each.name for each in after.keys() - before.keys()}
    assert new == {"d", "node.toml", "node.key", "node.pem", "ca.pem"}
    assert _mode(folder / "d") == 0o700
    assert _mode(folder / "d" / "node.key") == 0o600
    for text in ("a:\n     [[neighbours]]", "c:\n     [[neighbours]]", "Restart a, c.", "desmr start"):
        assert text in out
    assert "b:" not in out

    blocks = re.findall(r"   (\w):\n((?:     .*\n)+)", out)
    assert [node for node, _ in blocks] == ["a", "c"]
    for node, block in blocks:
        with (folder / node / "node.toml").open("a") as file:
            file.write(block)
        assert "d" in {n.id for n in load_node(folder / node / "node.toml", environ={}).neighbours}
    async with serving(*(folder / node / "node.toml" for node in "abcd")):
        code, out, err = await remote("start", folder / "b" / "node.toml", "--watch")
        assert (code, err) == (0, "")
        _, out, _ = await remote("result", folder / "b" / "node.toml", "--json")
    assert json.loads(out)["members"] == list("abcd")


def test_one_more_member_as_json(grown, desmr, tmp_path):
    """A member without an address is dialled by nobody: its neighbours' blocks say so."""
    code, out, _ = desmr("network", "add", grown(address=False), tmp_path / "n", "d", "--json")
    assert code == 0
    told = json.loads(out)
    block = '[[neighbours]]\nid = "d"\n'
    assert told == {
        "network": "three",
        "node": "d",
        "config": str(tmp_path / "n" / "d" / "node.toml"),
        "neighbours": {"a": block, "c": block},
    }
    assert load_node(told["config"], environ={}).listen is None


def test_one_more_member_whose_owner_makes_the_key(grown, desmr, tmp_path):
    code, out, _ = desmr("network", "add", grown(), tmp_path / "n", "d", "--request")
    here = tmp_path / "n" / "d"
    assert code == 0
    assert sorted(each.name for each in here.iterdir()) == ["ca.pem", "node.toml"]
    assert "desmr network request d three ." in out
    assert desmr("network", "request", "d", "three", here)[0] == 0
    authority = tmp_path / "n" / "authority"
    assert desmr("network", "sign", authority, here / "node.csr", "--node", "d")[0] == 0
    assert identity_of(load_node(here / "node.toml", environ={})).node == "d"


@pytest.mark.parametrize(
    ("change", "node", "sentence"),
    [
        ("nothing", "e", "network three has no node e: its nodes are a, b, c, d"),
        ("nothing", "a", "a/node.toml exists already, and nothing was written"),
        ("no edge", "d", "leave the network in 2 parts (a, b, c | d): add an edge between them"),
        ("another network", "d", "is the authority of network three, and the file describes four"),
        ("no authority", "d", "has no folder authority: name the folder that `desmr network init` wrote"),
        ("half an authority", "d", "ca.key does not exist"),
    ],
)
def test_one_more_member_refused(grown, desmr, tmp_path, edit, change, node, sentence):
    path, folder = grown(), tmp_path / "n"
    match change:
        case "no edge":
            edit(path, ', ["a", "d"], ["d", "c"]', "")
        case "another network":
            edit(path, '"three"', '"four"')
        case "no authority":
            (folder / "authority").rename(tmp_path / "safe")
        case "half an authority":
            (folder / "authority" / "ca.key").unlink()
    before = _tree(folder)
    code, out, err = desmr("network", "add", path, folder, node)
    assert (code, out) == (1, "")
    assert sentence in err
    assert _tree(folder) == before


def test_a_member_alone_has_nobody_to_add_it_to(desmr, tmp_path):
    path = tmp_path / "one.toml"
    path.write_text('network = "one"\n[data]\nresponse = "y"\n[[nodes]]\nid = "a"\ndata = "a.csv"\n')
    assert desmr("network", "init", path, tmp_path / "n")[0] == 0
    code, _, err = desmr("network", "add", path, tmp_path / "n", "a")
    assert (code, "a has no neighbour: add an edge" in err) == (1, True)


def test_half_a_member_is_not_left_behind(grown, desmr, tmp_path, monkeypatch):
    path, folder = grown(), tmp_path / "n"
    before = _tree(folder)

    def refuse(*_, **__):
        raise ConfigError("the socket's path is too long")

    monkeypatch.setattr("desmr_node.runtime.setup.load_node", refuse)
    assert desmr("network", "add", path, folder, "d")[0] == 1
    assert _tree(folder) == before
