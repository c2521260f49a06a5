"""`desmr health` against daemons, against nothing, and against the wrong ports."""

import json
import socket
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from desmr_node.cli import client, reaching
from desmr_node.config import split_address
from desmr_node.runtime.census import free_ports


async def test_a_node_that_runs(nodes, serving, remote):
    """By every kind of address, before, during and after its life."""
    path = nodes["a"]
    sock = path.parent / "state" / "admin.sock"
    async with serving(path):
        for address in (path, f"unix:{sock}", sock):
            assert await remote("health", address) == (0, "serving\n", "")
        code, out, err = await remote("health", path, "--json", "--timeout", "2")
        assert (code, err) == (0, "")
        assert json.loads(out) == {"address": str(path), "serving": True, "message": "serving"}
    code, out, err = await remote("health", path)
    assert (code, out) == (1, "")
    assert err == (
        f"desmr: no node answers at unix:{sock}, which does not exist: is desmr-node running? "
        "its [admin] listen says where\n"
    )


async def test_host_and_port(nodes, serving, remote, edit):
    port = free_ports(1)[0]
    with nodes["a"].open("a") as file:
        file.write(f'\n[admin]\nlisten = "127.0.0.1:{port}"\n')
    async with serving(nodes["a"]) as (daemon,):
        assert await remote("health", f"127.0.0.1:{port}") == (0, "serving\n", "")
        # the neighbours' port speaks TLS, and no health
        code, _, err = await remote("health", f"127.0.0.1:{daemon.port}")
        assert code == 1
        assert f"what answers at 127.0.0.1:{daemon.port} is no node's admin address" in err


def test_nobody_there(desmr, tmp_path):
    port = free_ports(1)[0]
    code, out, err = desmr("health", f"127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert err.startswith(f"desmr: no node answers at 127.0.0.1:{port}: is desmr-node running?")
    code, out, err = desmr("health", f"127.0.0.1:{port}", "--json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["serving"] is False
    assert told["message"].startswith("no node answers at")
    code, _, err = desmr("health", tmp_path)
    assert (code, err) == (1, f"desmr: {tmp_path} is a folder: name the node.toml in it\n")


def test_whoever_hangs_is_not_waited_for(desmr):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, _, err = desmr("health", f"127.0.0.1:{port}", "--timeout", "0.2")
    assert code == 1
    assert f"the node at 127.0.0.1:{port} does not answer within 0.2 s" in err


@pytest.mark.parametrize("kind", ["not serving", "no health"])
async def test_a_server_that_is_not_well(remote, kind):
    server = grpc.aio.server()
    if kind == "not serving":
        servicer = health.aio.HealthServicer()
        await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        code, out, err = await remote("health", f"127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert (code, out) == (1, "")
    assert {
        "not serving": "answers that it is not serving",
        "no health": "is no node's admin address",
    }[kind] in err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_number_of_seconds(text, capsys):
    from desmr_node import cli

    with pytest.raises(SystemExit) as stopped:
        cli.desmr(["health", "x:1", f"--timeout={text}"])
    assert stopped.value.code == 2
    assert "is no number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nowhere", "no port number"),
        ("localhost:0", "port 0"),
        ("h:65536", "above 65535"),
        ("::1:7", "brackets"),
    ],
)
def test_addresses_that_make_no_sense(address, sentence, desmr):
    code, _, err = desmr("health", address)
    assert code == 1
    assert sentence in err


@given(st.from_regex(reaching._PLAINLY_RIGHT, fullmatch=True))
def test_the_short_cut_takes_nothing_that_would_be_refused(address):
    host, port = split_address(address)
    assert host
    assert 0 < port < 65536


def test_the_short_cut_takes_what_people_write():
    for address in ("localhost:7100", "127.0.0.1:50052", "north.example:7100"):
        assert reaching._PLAINLY_RIGHT.fullmatch(address)
    assert client.resolve is reaching.resolve


def test_it_is_light():
    """Health checks run for as long as a node does: no numpy, pydantic or rich for them."""
    script = (
        "import sys\nfrom desmr_node import cli\ncode = cli.desmr(['health', '127.0.0.1:1'])\n"
        "heavy = {'numpy', 'scipy', 'pydantic', 'rich', 'cryptography', 'pyarrow', 'importlib.metadata'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "1 []\n"
