"""`desmr check`: every line of the list, and every way in which it can be a warning or a problem."""

import json
import re
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from desmr_node.config import load_network
from desmr_node.core.method import METHOD
from desmr_node.runtime import daemon as daemons
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.setup import write_network
from desmr_node.transport import tls


@pytest.fixture
def found(desmr):
    """The exit code, and the findings as (check, mark, text)."""

    def run(*arguments):
        code, out, err = desmr("check", *arguments, "--json")
        assert err == ""
        told = json.loads(out)
        assert told["ok"] == (code == 0)
        assert (code == 1) == any(each["mark"] == "problem" for each in told["checks"])
        return code, [(each["check"], each["mark"], each["text"]) for each in told["checks"]]

    return run


def _troubles(findings):
    return [(check, text) for check, mark, text in findings if mark in ("warning", "problem")]


def test_a_node_that_is_ready(nodes, desmr):
    code, out, err = desmr("check", nodes["b"])
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "ready"
    assert "node b of network three, 2 neighbours" in out
    assert "(824 days)" in out
    assert "60 rows, 4 features, response y" in out
    assert "state can be made" in out
    assert not (nodes["b"].parent / "state").exists()  # looking changes nothing


def test_findings_for_scripts(nodes, found):
    code, findings = found(nodes["b"])
    assert code == 0
    assert {check for check, _, _ in findings} == {
        "configuration",
        "certificates",
        "data",
        "hold-out",
        "state",
        "ports",
    }
    assert {mark for _, mark, _ in findings} == {"ok"}


def test_every_authority_is_looked_at(nodes, found):
    """While the authority is replaced there are two: either may be about to expire."""
    ca = nodes["b"].with_name("ca.pem")
    soon = tls.Authority.create("three", years=1, now=datetime.now(UTC) - timedelta(days=355))
    ca.write_bytes(ca.read_bytes() + tls.certificate_pem(soon.certificate))
    code, findings = found(nodes["b"])
    assert code == 0
    assert any("authority 1 of the 2 in ca.pem" in text for _, _, text in findings)
    ((check, text),) = _troubles(findings)
    assert check == "certificates"
    assert text.startswith("authority 2 of the 2 in ca.pem valid until")
    assert "(10 days)" in text


def test_mistakes_in_the_configuration(nodes, found, desmr, edit, tmp_path):
    edit(nodes["b"], 'network = "three"', 'network = "Three"\nlisten_at = 3')
    code, findings = found(nodes["b"])
    assert code == 1
    assert [mark for _, mark, _ in findings] == ["problem", "problem"]
    assert any("listen_at is not a known key" in text for _, _, text in findings)
    code, out, _ = desmr("check", nodes["b"])
    assert code == 1
    assert out.splitlines()[-1] == "2 problems: the node cannot do its part like this"
    code, findings = found(tmp_path / "missing.toml")
    assert code == 1
    assert "missing.toml does not exist" in findings[0][2]


def test_a_certificate_that_ends_soon(network, found, desmr, tmp_path):
    nodes = write_network(load_network(network(), environ={}), tmp_path / "n", days=10)
    code, findings = found(nodes["a"])
    assert code == 0
    ((check, text),) = _troubles(findings)
    assert check == "certificates"
    assert "certificate of a valid until" in text
    assert "(9 days): have it issued again by whoever keeps ca.key" in text
    assert desmr("check", nodes["a"])[1].splitlines()[-1] == "ready, with 1 warning"


def test_the_certificate_of_another(nodes, found):
    (nodes["a"].parent / "node.pem").write_bytes((nodes["b"].parent / "node.pem").read_bytes())
    code, findings = found(nodes["a"], "--connect")
    assert code == 1
    assert "node.key does not belong to" in _troubles(findings)[0][1]
    assert ("neighbours", "skipped", "not dialled: mend the certificates first") in findings


def test_a_key_that_others_can_read(nodes, found):
    (nodes["a"].parent / "node.key").chmod(0o644)
    code, findings = found(nodes["a"])
    assert code == 1
    assert "chmod 600" in _troubles(findings)[0][1]


@pytest.mark.parametrize(("insecure", "sentence"), [(True, "insecure = true"), (False, "no [tls]: loopback")])
def test_no_certificates(network, found, tmp_path, edit, insecure, sentence):
    nodes = write_network(load_network(network(), environ={}), tmp_path / "n", insecure=True)
    if not insecure:
        edit(nodes["a"], "insecure = true", "")
    code, findings = found(nodes["a"])
    assert code == 0
    assert sentence in _troubles(findings)[0][1]


def test_data_that_cannot_be_read(nodes, found, edit, tmp_path):
    edit(nodes["a"], 'response = "y"', 'response = "yy"')
    code, findings = found(nodes["a"], "--connect")
    assert code == 1
    assert "has no column 'yy', the response: did you mean 'y'?" in _troubles(findings)[0][1]
    (tmp_path / "a.csv").unlink()
    code, findings = found(nodes["a"])
    assert code == 1
    assert "a.csv does not exist" in _troubles(findings)[0][1]


def test_a_hold_out_that_cannot_be_read(nodes, found, edit, tmp_path):
    (tmp_path / "later.csv").write_text("u,v,w,y\n1,2,3,4\n")
    edit(nodes["a"], f'holdout = "{tmp_path}/a.csv"', f'holdout = "{tmp_path}/later.csv"')
    code, findings = found(nodes["a"])
    assert code == 1
    assert _troubles(findings)[0][0] == "hold-out"
    assert "lacks the column 'z'" in _troubles(findings)[0][1]


def test_a_column_that_never_varies(nodes, found, tmp_path):
    table = np.loadtxt(tmp_path / "a.csv", delimiter=",", skiprows=1)
    table[:, [1, 4]] = 12.0
    np.savetxt(tmp_path / "a.csv", table, delimiter=",", header="u,v,w,z,y", comments="")
    code, findings = found(nodes["a"])
    assert code == 0
    ((check, text),) = _troubles(findings)
    assert check == "data"
    assert "the same value in every row here: v, y (2 of 5 columns)" in text
    assert "12" not in text  # counts and names, no values


@pytest.mark.parametrize("floor", ["rows = 61", "rows_per_variable = 16.0"])
def test_floors(nodes, found, floor):
    nodes["a"].write_text(nodes["a"].read_text() + f"\n[floors]\n{floor}\n")
    code, findings = found(nodes["a"])
    assert code == 1
    ((check, text),) = _troubles(findings)
    assert check == "floors"
    assert "60 rows for 4 features" in text
    assert "add rows, or lower the floor" in text


def test_floors_that_are_met(nodes, found):
    nodes["a"].write_text(nodes["a"].read_text() + "\n[floors]\nrows = 60\n")
    assert ("floors", "ok", "enough rows to take part") in found(nodes["a"])[1]


def test_a_state_that_is_no_folder(nodes, found):
    (nodes["a"].parent / "state").touch()
    code, findings = found(nodes["a"])
    assert code == 1
    assert "state is not a folder: choose another" in dict(_troubles(findings))["state"]


def test_a_port_that_is_taken(nodes, found, edit):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        nodes["a"].write_text(nodes["a"].read_text() + f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
        code, findings = found(nodes["a"])
    assert code == 1
    assert _troubles(findings) == [
        (
            "ports",
            f"[metrics] listen = '127.0.0.1:{port}': another process has the port; "
            "end it, or choose another port",
        )
    ]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            '[metrics]\nlisten = "192.0.2.1:9100"',
            "not this machine's address; write its own, or 0.0.0.0 for all",
        ),
        (
            '[metrics]\nlisten = "no-such-host.invalid:9100"',
            "the name no-such-host.invalid is not known here",
        ),
        ('[admin]\nlisten = "unix:/nowhere/admin.sock"', "the folder /nowhere does not exist; make it"),
        ('[admin]\nlisten = "unix:node.key"', "a file that is no socket is there; remove it"),
    ],
)
def test_an_address_nobody_can_listen_at(nodes, found, table, sentence):
    nodes["a"].write_text(nodes["a"].read_text() + f"\n{table}\n")
    code, findings = found(nodes["a"])
    assert code == 1
    ((check, text),) = _troubles(findings)
    assert check == "ports"
    assert sentence in text


def test_an_admin_address_open_to_others(nodes, found):
    nodes["a"].write_text(
        nodes["a"].read_text() + f'\n[admin]\nlisten = "0.0.0.0:{free_ports(1)[0]}"\ninsecure = true\n'
    )
    code, findings = found(nodes["a"])
    assert code == 0
    assert "whoever reaches it can stop the node" in _troubles(findings)[0][1]


# --- neighbours -----------------------------------------------------------------------------------------


@pytest.fixture
def connected(remote):
    """Like `found --connect`, beside daemons: the findings by check."""

    async def run(path):
        code, out, err = await remote("check", path, "--connect", "--json")
        assert err == ""
        told: dict[str, list[tuple[str, str]]] = {}
        for each in json.loads(out)["checks"]:
            told.setdefault(each["check"], []).append((each["mark"], each["text"]))
        return code, told

    return run


async def test_neighbours_that_are_ready(nodes, serving, connected):
    async with serving(nodes["a"], nodes["c"]) as daemons:
        code, told = await connected(nodes["b"])
        assert code == 0
        for node in "ac":
            assert [mark for mark, _ in told[node]] == ["ok", "ok"]
            assert "answers, and its certificate is valid until" in told[node][0][1]
            assert told[node][1][1] == (
                "the same columns, fit settings and method, and a common wire version"
            )
        assert told["clocks"][0][0] == "skipped"
        # they heard nothing: b is neither here nor refused
        assert [d.node.machine.peers["b"].incarnation for d in daemons] == [None, None]


async def test_neighbours_without_tls(network, serving, connected, tmp_path):
    nodes = write_network(load_network(network(), environ={}), tmp_path / "n", insecure=True)
    async with serving(nodes["a"], nodes["c"]):
        code, told = await connected(nodes["b"])
        assert code == 0
        assert [mark for mark, _ in told["a"]] == ["ok", "ok"]
        assert "clocks" not in told


async def test_settings_and_columns_that_differ(nodes, serving, connected, edit, tmp_path):
    nodes["b"].write_text(nodes["b"].read_text() + '\n[fit]\npenalty = "l1"\n')
    edit(tmp_path / "b.csv", "u,v,w,z,y", "u,v,w,zz,y")
    async with serving(nodes["a"], nodes["c"]) as daemons:
        code, told = await connected(nodes["b"])
        assert code == 1
        assert told["a"][1:] == [
            ("problem", "feature 4 is 'zz' at b and 'z' at a: make them alike"),
            ("problem", '[fit] penalty is "l1" at b and "scad" at a: make them alike'),
        ]
        assert all(d.node.machine.peers["b"].state != "refused" for d in daemons)


async def test_a_neighbour_of_another_release(nodes, serving, connected, monkeypatch):
    """a has one setting more than b, and has changed it; c computes by another method."""
    real = daemons.Setup

    def newer(**setup):
        made = real(**setup)
        if made.node == "c":
            return replace(made, method=made.method + 1)
        changed = {"settings": made.settings | {"depth": "3"}, "defaults": made.defaults | {"depth": "2"}}
        return replace(made, version=made.version + 1, **changed)

    monkeypatch.setattr(daemons, "Setup", newer)
    async with serving(nodes["a"], nodes["c"]):
        code, told = await connected(nodes["b"])
        assert code == 1
        assert told["a"][1:] == [
            (
                "problem",
                "[fit] depth is 3 at a, and b runs an older release that does not know it: "
                "upgrade b, or set the default 2",
            )
        ]
        assert told["c"][1:] == [
            (
                "problem",
                f"b computes by method {METHOD} and c by method {METHOD + 1}: a fit needs the same at every "
                "member; upgrade b",
            )
        ]


async def test_a_neighbour_that_does_not_know_us(nodes, serving, connected, edit):
    edit(nodes["a"], 'id = "b"', 'id = "d"')
    async with serving(nodes["a"]):
        code, told = await connected(nodes["b"])
        assert code == 1
        assert "b is not a neighbour of a: add it to [[neighbours]] at a" in told["a"][1][1]
        assert told["c"] == [("problem", told["c"][0][1])]
        assert "refuses the connection: start the node there" in told["c"][0][1]


async def test_a_neighbour_under_another_authority(network, nodes, serving, connected, tmp_path):
    strangers = write_network(load_network(tmp_path / "net.toml", environ={}), tmp_path / "m")
    async with serving(strangers["a"]):
        code, told = await connected(nodes["b"])
        assert code == 1
        assert "shows a certificate of another authority" in told["a"][0][1]


async def test_a_neighbour_that_dials_us(nodes, connected, edit):
    text = nodes["b"].read_text()
    nodes["b"].write_text(re.sub(r'(id = "a"\n)address = .*\n', r"\1", text))
    code, told = await connected(nodes["b"])
    assert code == 1  # c is not there
    assert told["a"][0][0] == "skipped"
    assert "has no address here: it dials us" in told["a"][0][1]


async def test_a_running_node_is_asked(nodes, serving, connected, remote):
    """Dialling under its name would break its own streams."""
    async with serving(*nodes.values()) as daemons:
        assert (await remote("start", nodes["a"], "--watch"))[0] == 0
        code, told = await connected(nodes["b"])
        assert code == 0
        ((mark, text),) = told["ports"]
        assert (mark, text.split(" (")[0]) == ("ok", "b is running and has them")
        assert told["a"] == [("ok", "up, with the same columns and fit settings, says the running node")]
        assert "clocks" not in told
        assert all(p.state == "up" for d in daemons for p in d.node.machine.peers.values())


async def test_a_running_node_knows_who_is_away(nodes, serving, connected):
    async with serving(nodes["b"]):
        code, told = await connected(nodes["b"])
        assert code == 1
        mark, text = told["a"][0]
        assert mark == "problem"
        assert text.startswith("connecting, says the running node: ")


async def test_the_admin_address_of_another(nodes, serving, connected):
    listen = f'\n[admin]\nlisten = "unix:{nodes["a"].parent}/state/admin.sock"\n'
    nodes["b"].write_text(nodes["b"].read_text() + listen)
    async with serving(nodes["a"]):
        code, told = await connected(nodes["b"])
        assert code == 1
        assert "is answered by node a: choose another" in told["ports"][0][1]
