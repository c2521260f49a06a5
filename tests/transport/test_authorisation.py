"""Who gets what at a node's ports, over real TLS: one table, and a neighbour that none of it disturbs.

The node z listens; its neighbour a has a stream to it; m is configured as a neighbour, and only its
certificate is used here. What fails in the handshake never reaches us: gRPC drops the connection, the caller
sees UNAVAILABLE, and nothing is counted.
"""

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from desmr_node.config import dump_toml, load_network, load_node
from desmr_node.protocol.messages import Done, Hello
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.daemon import Daemon
from desmr_node.runtime.setup import write_network
from desmr_node.transport import codec, streams, tls
from desmr_node.transport.streams import METHOD

NOW = datetime.now(UTC)
ADMIN = "/desmr.admin.v1.Admin/Stop"
NOBODY = "/desmr.peer.v1.Peer/Anything"


@dataclass(frozen=True)
class Case:
    """A caller, and what becomes of it; `refused` is by how much the counter of strangers rises."""

    credentials: object  # of a fixture's authority, the channel credentials
    code: grpc.StatusCode
    method: str = METHOD
    says: str = ""
    refused: int = 0
    hello: str = ""  # the name in the Hello that it sends, if any
    port: str = "peer"


def shows(node, **issued):
    """With a key of its own and a certificate of the network's authority."""
    return lambda authority: tls.channel_credentials(authority.member(node, **issued))


def other_authority(authority):
    """Believes the network's authority, and shows another's certificate."""
    other = tls.Authority.create("crime").member("m")
    return tls.channel_credentials(replace(other, authorities=(authority.certificate,)))


def other_network(authority):
    """The authority's key has vouched for a member of another network."""
    return tls.channel_credentials(replace(authority, network="burglary").member("m"))


def other_trust(authority):
    """A neighbour that believes another authority: it is the one that hangs up."""
    believed = tls.Authority.create("crime").certificate
    return tls.channel_credentials(replace(authority.member("m"), authorities=(believed,)))


def no_certificate(authority):
    return grpc.ssl_channel_credentials(tls.certificate_pem(authority.certificate))


def plain(authority):
    return None


status = grpc.StatusCode
CASES = {
    # in the handshake
    "no certificate": Case(no_certificate, status.UNAVAILABLE),
    "another authority's": Case(other_authority, status.UNAVAILABLE),
    "expired": Case(shows("m", now=NOW - timedelta(days=900)), status.UNAVAILABLE),
    "not yet valid": Case(shows("m", now=NOW + timedelta(days=9)), status.UNAVAILABLE),
    "trusts another authority": Case(other_trust, status.UNAVAILABLE),
    "no TLS": Case(plain, status.UNAVAILABLE),
    # of the authority, and yet
    "a member, no neighbour": Case(
        shows("s"), status.PERMISSION_DENIED, says="s is not a neighbour of z: add it", refused=1
    ),
    "another network's": Case(
        other_network, status.PERMISSION_DENIED, says="an unnamed peer is not a neighbour of z", refused=1
    ),
    "the node's own name": Case(
        shows("z"), status.PERMISSION_DENIED, says="z is not a neighbour of z", refused=1
    ),
    "another's name": Case(shows("m"), status.ABORTED, says="m calls itself 'a': its certificate", hello="a"),
    # the wrong door
    "no such method": Case(shows("m"), status.UNIMPLEMENTED, method=NOBODY, refused=1),
    "no such method, for a stranger": Case(shows("s"), status.UNIMPLEMENTED, method=NOBODY, refused=1),
    "admin at the peers' port": Case(shows("m"), status.UNIMPLEMENTED, method=ADMIN, refused=1),
    "peer at the admin port": Case(plain, status.UNIMPLEMENTED, port="admin"),
    # and one that may
    "a neighbour": Case(shows("m"), status.OK, hello="m"),
}


@pytest.fixture
async def daemons():
    """z, and its neighbour a with a stream to it; the authority that made their certificates."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:  # sockets have short paths
        folder = Path(name)
        nodes = []
        for node, port in zip("amsz", free_ports(4), strict=True):
            (folder / f"{node}.csv").write_text("x,y\n1,2\n2,3\n3,5\n")
            nodes.append({"id": node, "address": f"127.0.0.1:{port}", "data": f"{node}.csv"})
        document = {"network": "crime", "edges": [["a", "z"], ["m", "z"], ["m", "s"]], "nodes": nodes}
        (folder / "network.toml").write_text(dump_toml(document | {"data": {"response": "y"}}))
        paths = write_network(load_network(folder / "network.toml", environ={}), folder)
        z, a = (Daemon(load_node(paths[node], environ={})) for node in "za")
        try:
            await z.start()
            await a.start()
            await until(lambda: z.node.machine.peers["a"].state == "up" == a.node.machine.peers["z"].state)
            yield z, a, tls.Authority.load(folder / "authority")
        finally:
            await a.close()
            await z.close()


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def hello(daemon, name):
    """What a node would say that is set up like this one, and calls itself so."""
    return replace(daemon.node.machine.hello(), node=name, incarnation=7)


async def call(case, daemon, authority):
    """Open a stream as the case says, and see it end: its status. A stream that stays up is OK."""
    credentials = case.credentials(authority)
    address = daemon.config.admin.listen if case.port == "admin" else f"127.0.0.1:{daemon.port}"
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options)
    else:
        channel = grpc.aio.secure_channel(address, credentials, [*options, *tls.channel_options("z")])
    async with asyncio.timeout(10), channel:
        stream = channel.stream_stream(case.method)()
        try:
            if case.hello:
                await stream.write(codec.encode(hello(daemon, case.hello)))
            if case.code is status.OK:
                assert isinstance(codec.decode(await stream.read(), daemon.node.limits), Hello)
                await until(lambda: daemon.node.machine.peers["m"].state == "up")
                return status.OK, ""
        except grpc.aio.AioRpcError:  # it was ended before we could say a word
            pass
        return await verdict(stream)


async def verdict(stream):
    """How the other side ended a stream."""
    with suppress(grpc.aio.AioRpcError):
        while await stream.read() is not grpc.aio.EOF:
            pass
    return await stream.code(), await stream.details()


@pytest.mark.parametrize("name", CASES)
async def test_who_gets_what(daemons, name):
    case = CASES[name]
    z, a, authority = daemons
    metrics, stream = z.node.metrics, z.streams._edges["a"].stream
    code, details = await call(case, z, authority)
    assert (code, case.says in details) == (case.code, True), details
    assert metrics.refused._value.get() == case.refused
    assert {peer: metrics.faults.labels(peer)._value.get() for peer in "am"} == {"a": 0, "m": 0}
    assert (
        z.node.machine.peers["m"].state in {"": ("away",), "a": ("refused",), "m": ("up", "away")}[case.hello]
    )
    # The neighbour has the stream it had, and is heard.
    heard = z.streams.traffic("a").messages_received
    a.streams.send("z", codec.encode(Done(0)))
    await until(lambda: z.streams.traffic("a").messages_received == heard + 1)
    assert z.streams._edges["a"].stream is stream
    assert z.node.machine.peers["a"].state == "up"


async def test_a_stream_on_which_nothing_is_said(daemons, monkeypatch):
    """Such as that of a program that has a neighbour's key: it is closed, whichever end dials."""
    monkeypatch.setattr(streams, "_FIRST_WORDS", 0.3)
    z, _, authority = daemons
    for address in (None, "127.0.0.1:1"):  # the second makes z an end that dials as well
        z.streams._edges["m"].address = address
        code, details = await call(Case(shows("m"), status.ABORTED), z, authority)
        assert (code, details) == (status.ABORTED, "m opened a stream and said nothing on it for 0.3 s")
    assert z.node.machine.peers["a"].state == "up"


async def test_a_message_that_is_a_little_too_long_is_a_fault(daemons):
    """Far beyond the limit gRPC does not let it in at all, and we only see the stream break."""
    z, _, authority = daemons
    limit = z.node.limits.message_bytes
    options = [*tls.channel_options("z"), ("grpc.use_local_subchannel_pool", 1)]
    for size, code, faults in ((limit + 1, status.ABORTED, 1), (2 * limit, status.RESOURCE_EXHAUSTED, 1)):
        credentials = shows("m")(authority)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{z.port}", credentials, options)
        async with asyncio.timeout(10), channel:
            stream = channel.stream_stream(METHOD)()
            await stream.write(codec.encode(hello(z, "m")))
            await until(lambda: z.node.machine.peers["m"].state == "up")
            await stream.write(bytes(size))
            assert (await verdict(stream))[0] is code
        await until(lambda: z.node.machine.peers["m"].state == "away")
        assert z.node.metrics.faults.labels("m")._value.get() == faults
    assert z.node.machine.peers["a"].state == "up"
