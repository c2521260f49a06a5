"""`desmr start`, `stop`, `status`, `watch`, `result` against daemons over mutual TLS."""

import asyncio
import io
import json
import socket
import sys
from importlib.metadata import version

import pytest
from rich.console import Console

from desmr_node.cli import client, render
from desmr_node.config import load_network
from desmr_node.protocol.messages import VERSION
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.setup import write_network
from desmr_node.transport.wire import admin_pb2 as pb


async def test_a_fit_from_start_to_result(nodes, serving, remote, network, tmp_path):
    """Three daemons end with the bits of `desmr simulate`, and every command has something to say of it."""
    async with serving(*nodes.values()):
        code, out, err = await remote("start", nodes["a"], "--watch")
        assert (code, err) == (0, "")
        assert "outer round 1: lambda " in out
        assert "done: converged in" in out.splitlines()[-1]

        _, out, _ = await remote("simulate", tmp_path / "net.toml", "--json")
        simulated = json.loads(out)["nodes"]
        for node, path in nodes.items():
            code, out, _ = await remote("watch", path, "--until-end", "--json")
            assert code == 0
            assert json.loads(out.splitlines()[-1])["phase"] == "done"
            code, out, _ = await remote("result", path, "--json")
            assert code == 0
            result = json.loads(out)
            assert set(result.pop("bytes_sent")) <= set(nodes)
            assert result == simulated[node]

        code, out, _ = await remote("result", nodes["b"])
        assert code == 0
        assert "fit 1 of network three, as b holds it" in out
        assert [line.split()[0] for line in out.splitlines()[4:7]] == ["(intercept)", "u", "z"]
        assert "2 of 4 features selected (--all shows the others)" in out
        _, out, _ = await remote("result", nodes["b"], "--all")
        assert any(line.split()[:3] == ["v", "+0", "no"] for line in out.splitlines())
        _, out, _ = await remote("result", nodes["b"], "--csv")
        assert out == (nodes["b"].parent / "state" / "coefficients.csv").read_text()

        code, out, _ = await remote("status", nodes["b"])
        assert code == 0
        assert "b in network three" in out
        assert "fit 1 of 3 nodes" in out
        assert f"  {version('desmr-node')} (wire {VERSION})  " in out
        _, out, _ = await remote("status", nodes["b"], "--json")
        status = json.loads(out)
        assert [peer["state"] for peer in status["peers"]] == ["up", "up"]
        assert [(peer["release"], peer["wire_version"]) for peer in status["peers"]] == 2 * [
            (version("desmr-node"), VERSION)
        ]
        assert status["history"][0]["lambda"] > 0

        code, out, _ = await remote("stop", nodes["b"])
        assert (code, out) == (0, "no fit was under way at b\n")

    code, out, err = await remote("result", nodes["b"], "--csv")
    assert code == 0
    assert out == (nodes["b"].parent / "state" / "coefficients.csv").read_text()
    assert "this is what it left in its state folder" in err


async def test_a_second_fit_begins_without_the_rounds_of_the_first(nodes, serving, remote):
    async with serving(*nodes.values()) as daemons:
        assert (await remote("start", nodes["a"], "--watch"))[0] == 0
        first = len(daemons[0].node.worker.share.history)
        await remote("stop", nodes["c"], "--shutdown")
        _, out, _ = await remote("start", nodes["a"], "--json")
        assert first > 0
        assert json.loads(out)["history"] == []


async def test_watch_on_a_terminal(nodes, serving, remote, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    async with serving(*nodes.values()):
        code, out, err = await remote("start", nodes["c"], "--watch")
        assert (code, err) == (0, "")
        assert "\x1b[" in out
        assert "done: converged" in out
        monkeypatch.setenv("NO_COLOR", "1")
        _, out, _ = await remote("watch", nodes["c"], "--until-end")
        assert "done: converged" in out
        assert "\x1b[32m" not in out  # no green


async def test_a_stopped_fit_is_a_failed_one(nodes, serving, remote):
    """a waits for b, which is not there: the operator gives up."""
    async with serving(nodes["a"]):
        code, out, _ = await remote("start", nodes["a"])
        assert code == 0
        assert "a calls for a fit: waiting until all neighbours are ready; waiting for b" in out
        code, out, err = await remote("start", nodes["a"])
        assert (code, out) == (1, "")
        assert "is under way (meeting): wait for it, or stop it" in err
        watching = asyncio.create_task(asyncio.to_thread(_last_phase, nodes["a"]))
        code, out, _ = await remote("stop", nodes["a"], "--reason", "lunch")
        assert (code, out) == (0, "fit stopped by a, for every member\n")
        assert await watching == "failed"
        code, out, _ = await remote("watch", nodes["a"], "--until-end")
        assert code == 3
        assert "lunch" in out.splitlines()[-1]
        code, out, _ = await remote("watch", nodes["a"], "--until-end", "--json")
        assert code == 3
        assert json.loads(out)["phase"] == "failed"


def _last_phase(path):
    with client.AdminClient(str(path)) as node:
        *_, last = node.watch(until_end=True)
    return last.phase


async def test_a_node_that_declines_cannot_start(nodes, serving, remote):
    (nodes["a"]).write_text(nodes["a"].read_text() + "\n[floors]\nrows = 1000\n")
    async with serving(nodes["a"], nodes["b"], nodes["c"]):
        code, out, err = await remote("start", nodes["c"], "--watch")
        assert (code, err) == (3, "")
        assert "declines" in out.splitlines()[-1]
        code, _, err = await remote("result", nodes["c"])
        assert code == 1
        assert "no fit has been finished here yet: `desmr start` begins one" in err


async def test_shutdown_ends_the_daemon_and_the_watch(nodes, serving, remote):
    with client.AdminClient(str(nodes["a"])) as node:
        async with serving(nodes["a"]) as (daemon,):
            statuses = node.watch(until_end=False)
            assert (await asyncio.to_thread(next, statuses)).phase == "idle"
            code, out, _ = await remote("stop", nodes["a"], "--shutdown")
            assert code == 0
            assert out.splitlines() == ["no fit was under way at a", "a is shutting down"]
            assert await daemon.run() == 0
        with pytest.raises(client.NodeUnreachable, match="has gone: its log says why"):
            await asyncio.to_thread(list, statuses)


async def test_every_way_to_name_a_node(nodes, serving, remote, edit, monkeypatch):
    port = free_ports(1)[0]
    nodes["b"].write_text(nodes["b"].read_text() + f'\n[admin]\nlisten = "127.0.0.1:{port}"\n')
    async with serving(nodes["a"], nodes["b"]):
        path = nodes["a"].parent / "state" / "admin.sock"
        monkeypatch.chdir(nodes["a"].parent)
        for name, address in [
            ("a", nodes["a"]),
            ("a", "node.toml"),
            ("a", path),
            ("a", f"unix:{path}"),
            ("b", f"127.0.0.1:{port}"),
            ("b", f"localhost:{port}"),
        ]:
            code, out, err = await remote("status", address, "--json")
            assert (code, err) == (0, "")
            assert json.loads(out)["node"] == name


async def test_the_port_for_neighbours_is_not_the_admin_port(nodes, serving, remote):
    async with serving(nodes["a"]) as (daemon,):
        code, _, err = await remote("status", f"127.0.0.1:{daemon.port}")
        assert code == 1
        assert "[admin] listen says where" in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["start", "stop", "status", "watch", "result"])
def test_nobody_there(desmr, nodes, command):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    code, out, err = desmr(command, address)
    assert (code, out) == (1, "")
    assert err == (
        f"desmr: no node answers at {address}: is desmr-node running? its [admin] listen says where\n"
    )
    code, _, err = desmr(command, nodes["a"])
    assert code == 1
    assert "admin.sock, which does not exist: is desmr-node running?" in err


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nonsense", "'nonsense' is no admin address (it has no port number"),
        ("127.0.0.1:0", "'127.0.0.1:0' has port 0"),
        ("http://127.0.0.1:50052", "an address has no scheme"),
        ("unix:", "the path of the socket is missing"),
        ("missing.toml", "missing.toml does not exist"),
        ("/tmp", "/tmp is a folder: name the node.toml in it"),
    ],
)
def test_an_address_that_cannot_be(desmr, address, sentence):
    code, _, err = desmr("status", address)
    assert code == 1
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_node_file_whose_admin_port_is_left_to_the_system(desmr, nodes):
    nodes["b"].write_text(nodes["b"].read_text() + '\n[admin]\nlisten = "127.0.0.1:0"\n')
    code, _, err = desmr("status", nodes["b"])
    assert code == 1
    assert "leaves the port to the system: give the host:port from the node's log" in err


def _status(**changes):
    made = {
        "network": "three",
        "node": "a",
        "phase": "exchanging",
        "stage": "rounds",
        "fit": 2,
        "outer": 12,
        "outer_limit": 20,
        "inner": 3,
        "inner_limit": 10,
        "members": 3,
        "history": [pb.OuterRound(outer=k, objective=float("nan"), accepted=k != 11) for k in range(1, 12)],
        "peers": [
            pb.Peer(node="b", state="refused", reason="evil \x1b[2J\r\nreason [bold]", bytes_sent=1234)
        ],
        "waiting_for": ["b"],
    }
    return pb.Status(**(made | changes))


def _drawn(status, **options):
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=False).print(render.status_view(status, **options))
    return out.getvalue()


def test_the_view_of_a_fit_under_way():
    text = _drawn(_status(), bars=True)
    assert "fit 2 of 3 nodes" in text
    assert "exchanging coefficients" in text
    assert "waiting for b" in text
    assert "12 of at most 20" in text
    assert "3 of 10" in text
    assert "outer (last 8)" in text
    assert "rejected" in text
    assert "1.2 kB" in text
    assert "evil  [2J  reason [bold]" in text  # shown, and nothing a terminal or rich would act on


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"release": "0.1.0", "wire_version": 1}, "0.1.0 (wire 1)"),
        ({"release": "0.2.0", "wire_version": 0}, "0.2.0"),  # refused, or gone: what it said last
        ({"release": "", "wire_version": 1}, "unnamed (wire 1)"),  # too old to say
        ({"release": "", "wire_version": 0}, ""),
        ({"release": "0.1\x1b[2J", "wire_version": 2}, "0.1 [2J (wire 2)"),
    ],
)
def test_what_a_neighbour_runs(said, shown):
    peer = pb.Peer(node="b", state="up", bytes_sent=7, **said)
    assert render.peer_release(peer) == shown
    head, line = _drawn(_status(peers=[peer], history=[])).splitlines()[-2:]
    assert head.split() == ["neighbour", "state", "release", "sent", "received", "why"]
    assert line[head.index("release") :].split("  ")[0].rstrip() == shown


def test_a_status_is_json_whatever_its_numbers():
    told = json.loads(json.dumps(client.as_dict(_status()), allow_nan=False))
    assert told["history"][0]["objective"] is None
    assert told["peers"][0]["bytes_sent"] == 1234
    assert told["waiting_for"] == ["b"]


def test_lines_tell_only_news(capsys):
    from desmr_node.cli.control import _look_on

    idle = _status(phase="idle", stage="idle", fit=0, history=[], waiting_for=[], message="")
    ended = _status(phase="failed", message="lost b", waiting_for=[])
    statuses = [idle, idle, _status(phase="meeting", fit=0, history=[]), _status(), _status(), ended]
    assert _look_on(iter(statuses), as_json=False) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "idle: no fit has been started",
        "waiting until all neighbours are ready, for b",
        "fit 2 at a",
    ]
    assert [line.split(":")[0] for line in lines[4:15]] == [f"outer round {k}" for k in range(1, 12)]
    assert lines[15:] == ["failed: lost b"]


async def test_a_port_for_neighbours_without_tls(network, serving, remote, tmp_path):
    nodes = write_network(load_network(network(), environ={}), tmp_path / "m", insecure=True)
    async with serving(nodes["a"]) as (daemon,):
        code, _, err = await remote("status", f"127.0.0.1:{daemon.port}")
        assert code == 1
        assert "is no node's admin address: [admin] listen says where" in err


def test_something_that_hangs():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            client.AdminClient(address, patience=0.2) as node,
            pytest.raises(
                client.NodeUnreachable, match=r"does not answer within 0.2 s: see whether it hangs"
            ),
        ):
            node.status()


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--until-end",), 130)])
def test_ctrl_c_ends_a_watch(desmr, monkeypatch, options, code):
    """Looking on for ever ends like that; a fit whose end was waited for has not ended."""

    def interrupted(self, *, until_end):
        raise KeyboardInterrupt

    monkeypatch.setattr(client.AdminClient, "watch", interrupted)
    assert desmr("watch", "127.0.0.1:1", *options) == (code, "", "")
