"""Edges that break, freeze, double and lie: real daemons, with a meddling proxy or a bare client between."""

import asyncio
import resource
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import grpc
import numpy as np
import pytest

from desmr_node.config import load_node
from desmr_node.protocol.machine import Phase
from desmr_node.protocol.messages import Abort, Ask, Done, Hello, Schema, Standing, Vector
from desmr_node.runtime.daemon import identity_of
from desmr_node.runtime.network import run_network
from desmr_node.runtime.settings import settings_of
from desmr_node.transport import codec, tls
from desmr_node.transport.streams import METHOD, Streams


class Proxy:
    """A TCP relay that can cut its connections, stop forwarding, and forward late."""

    def __init__(self, target):
        self._target = target.rsplit(":", 1)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._connections = set()
        self.delay, self.passed, self.connections = 0.0, 0, 0
        #: Numbers of bytes after which all connections are cut.
        self.cut_after = []

    @asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.resume()
            self.cut()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def cut(self):
        for connection in self._connections:
            connection.cancel()

    def pause(self):
        self._flowing.clear()

    def resume(self):
        self._flowing.set()

    async def _relay(self, reader, writer):
        task = asyncio.current_task()
        self._connections.add(task)
        self.connections += 1
        try:
            onward = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            self._connections.discard(task)
            return
        ways = [
            asyncio.create_task(self._copy(reader, onward[1])),
            asyncio.create_task(self._copy(onward[0], writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # cut
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, onward[1]):
                end.transport.abort()
            self._connections.discard(task)

    async def _copy(self, reader, writer):
        while data := await reader.read(4096):
            await self._flowing.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            self.passed += len(data)
            if self.cut_after and self.passed >= self.cut_after[0]:
                self.cut_after.pop(0)
                self.cut()
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(net, node="a", other="b"):
    """The node dials the other through a proxy."""
    document = load_node(net.paths[node], environ={})
    (address,) = [n.address for n in document.neighbours if n.id == other]
    proxy = Proxy(address)
    async with proxy.serving() as instead:

        def reroute(document):
            for neighbour in document["neighbours"]:
                if neighbour["id"] == other:
                    neighbour["address"] = instead

        net.change(node, reroute)
        try:
            yield proxy
        finally:
            await net.stop()


@pytest.fixture
def connections(monkeypatch):
    """How often each end of each edge came up: (node, peer) to number."""
    counts = {}
    from desmr_node.runtime.node import Node

    connected = Node.connected

    def counted(self, peer):
        key = self.machine.setup.node, peer
        counts[key] = counts.get(key, 0) + 1
        connected(self, peer)

    monkeypatch.setattr(Node, "connected", counted)
    return counts


def same_bits(net):
    simulated = run_network(net.config).documents()
    for node in net.nodes:
        assert net.daemons[node].node.machine.phase is Phase.DONE, net.reason(node)
        result = net.daemons[node].result
        for key in ("coefficients", "intercept", "lambda", "history", "holdout"):
            assert result[key] == simulated[node][key]


# -- broken ----------------------------------------------------------------------------------------------


async def test_a_fit_survives_connections_that_are_cut(network, connections):
    net = network()
    async with proxied(net) as proxy:
        await net.start()
        await net.up()
        proxy.cut_after = [proxy.passed + more for more in (5_000, 40_000, 90_000, 91_000, 150_000)]
        await net.fit("c")
        assert proxy.cut_after == []
        same_bits(net)
        assert connections["a", "b"] > 3
        assert connections["b", "c"] == connections["c", "b"] == 1


async def test_a_fit_survives_slow_connections(network):
    net = network()
    async with proxied(net) as proxy:
        proxy.delay = 0.003
        await net.start()
        await net.fit("a")
        same_bits(net)
        assert proxy.connections == 1


async def test_a_neighbour_that_restarts_is_found_again(network):
    net = network()
    await net.start()
    await net.fit("a")
    for node in "ab":
        await net.stop(node)
        await net.start(node)
        await net.fit("c")
        same_bits(net)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_frozen_peer_is_noticed(network, busy):
    """Nothing comes, nothing is refused: only unanswered pings tell. The fit waits, and goes on."""
    net = network()
    async with proxied(net) as proxy:
        await net.start()
        await net.up()
        if busy:
            proxy.delay = 0.003
            passed = proxy.passed
            fitting = asyncio.create_task(net.fit("c"))
            await net.until("a", lambda machine: machine.phase is Phase.EXCHANGING)
            assert proxy.passed > passed
        proxy.pause()
        began = asyncio.get_running_loop().time()
        for node, peer in ("ab", "ba"):
            await net.until(node, lambda machine, peer=peer: machine.peers[peer].state != "up")
            assert net.peer(node, peer).reason
        assert asyncio.get_running_loop().time() - began < 5.0
        proxy.resume()
        if busy:
            await fitting
        else:
            await net.fit("b")
        same_bits(net)


# -- double ----------------------------------------------------------------------------------------------


async def test_both_ends_dial(network, connections):
    """One stream remains, whoever was first, and it stays."""
    net = network("ab", ("ab",))
    for node in "ab":
        net.change(node, lambda document: document["neighbours"][0].update(dial="always"))
    for _ in range(3):
        await asyncio.gather(net.start("a"), net.start("b"))
        await net.fit("a")
        settled = dict(connections)
        for node in "ba":
            await net.fit(node)
            same_bits(net)
        assert connections == settled
        streams = [net.daemons[node].streams._edges[peer] for node, peer in ("ab", "ba")]
        assert sorted(edge.ours for edge in streams) == [False, True]
        await net.stop()


# -- lying -----------------------------------------------------------------------------------------------


class Stranger:
    """A program that shows a's certificate and is not a desmr-node."""

    def __init__(self, net, call, node="a"):
        config = load_node(net.paths[node], environ={})
        settings = settings_of(config.fit, config.seed)
        schema = Schema("price", ("age", "income", "rooms", "shops", "trees"))
        self.hello = Hello("test", node, 7, schema, settings, Standing())
        self.limits = codec.Limits.of(5, config.fit.lambdas)
        self.call = call

    async def say(self, message):
        await self.call.write(message if isinstance(message, bytes) else codec.encode(message))

    async def hear(self):
        async with asyncio.timeout(10):
            return codec.decode(await self.call.read(), self.limits)

    async def verdict(self):
        """How the other side ended the stream."""
        async with asyncio.timeout(10):
            with suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            return await self.call.code(), await self.call.details()


@asynccontextmanager
async def stranger(net, node="a", other="b"):
    identity = identity_of(load_node(net.paths[node], environ={}))
    address = f"127.0.0.1:{net.daemons[other].port}"
    options = [*tls.channel_options(other), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(address, tls.channel_credentials(identity), options) as channel:
        call = channel.stream_stream(METHOD)()
        yield Stranger(net, call, node)
        call.cancel()


def faults(net, node, peer):
    return net.daemons[node].node.metrics.faults.labels(peer)._value.get()


@pytest.mark.parametrize(
    ("bytes_", "what"),
    [
        (b"\xff\xff\xff", "sent bytes that are no message of this protocol"),
        (b"", "sent a message of no known kind"),
        (codec.encode(Vector(1, 1, 1, np.full((99, 1), 1.0))), "sent 99 x 1 coefficients"),
        (codec.encode(Vector(1, 1, 1, np.full((6, 1), np.nan))), "sent coefficients that are not finite"),
        (codec.encode(Abort(1, "a", "XX")).replace(b"XX", b"\x1b\x07"), "unprintable characters"),
    ],
    ids=["noise", "nothing", "shape", "nan", "text"],
)
async def test_a_malformed_message_costs_the_edge(network, caplog, bytes_, what):
    """It is counted, said on both sides, and forgiven once the peer comes back and behaves."""
    net = network("ab", ("ab",))
    await net.start("b")
    async with stranger(net) as bad:
        await bad.say(bad.hello)
        assert isinstance(await bad.hear(), Hello)
        await net.until("b", lambda machine: machine.peers["a"].state == "up")
        await bad.say(bytes_)
        code, details = await bad.verdict()
        assert code is grpc.StatusCode.ABORTED
        assert what in details
    assert faults(net, "b", "a") == 1.0
    assert what in net.peer("b", "a").reason
    assert what in caplog.text
    await net.start("a")
    await net.fit("a")
    same_bits(net)


async def test_a_peer_that_only_comes_back_to_break_the_rules(network):
    """It is of no use, however often it says hello: the fit fails within patience."""
    net = network("abc", ("ab", "bc"), patience=1.0)
    await net.start("b", "c")
    await net.until("b", lambda machine: machine.peers["c"].state == "up")
    await net.until("c", lambda machine: machine.peers["b"].state == "up")

    async def misbehave():
        while True:
            async with stranger(net) as bad:
                await bad.say(bad.hello)
                await bad.say(b"\xff\xff\xff")
                await bad.verdict()

    bad = asyncio.create_task(misbehave())
    try:
        await net.until("b", lambda machine: machine.peers["a"].faulty)
        from desmr_node.protocol import events as ev

        net.daemons["c"].node.tell(ev.Called())
        await net.over("b", "c")
        assert faults(net, "b", "a") > 1.0
        assert "a has been away for 1 s" in net.reason("b")
        assert "no message of this protocol" in net.reason("b")
        assert net.reason("c") == f"b: {net.reason('b')}"
    finally:
        bad.cancel()
        await asyncio.gather(bad, return_exceptions=True)


async def test_a_message_beyond_the_limit(network, caplog):
    net = network("ab", ("ab",))
    await net.start("b")
    limit = net.daemons["b"].node.limits.message_bytes
    async with stranger(net) as bad:
        await bad.say(bad.hello)
        await net.until("b", lambda machine: machine.peers["a"].state == "up")
        await bad.say(bytes(2 * limit))
        code, _ = await bad.verdict()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await net.until("b", lambda machine: machine.peers["a"].state == "away")
    assert net.daemons["b"].streams.traffic("a").bytes_received < limit
    await net.start("a")
    await net.fit("b")
    same_bits(net)


async def test_a_first_message_that_is_no_hello(network):
    """It is not taken for anything: who has not said hello takes no part."""
    net = network("ab", ("ab",))
    await net.start("b")
    async with stranger(net) as bad:
        for message in (Done(5), Abort(5, "a", "x"), Ask(5, 0, (), False)):
            await bad.say(message)
        await net.until("b", lambda machine: net.daemons["b"].streams.traffic("a").messages_received == 3)
        machine = net.daemons["b"].node.machine
        assert (machine.phase, machine.fit, machine.peers["a"].state) == (Phase.IDLE, 0, "connected")
        await bad.say(bad.hello)
        await net.until("b", lambda machine: machine.peers["a"].state == "up")
    assert faults(net, "b", "a") == 0.0


async def test_a_second_stream_takes_the_place_of_the_first(network):
    """A peer that was cut off comes back before we have noticed."""
    net = network("ab", ("ab",))
    await net.start("b")
    async with stranger(net) as first:
        await first.say(first.hello)
        await net.until("b", lambda machine: machine.peers["a"].state == "up")
        async with stranger(net) as second:
            await second.say(second.hello)
            code, details = await first.verdict()
            assert (code, details) == (grpc.StatusCode.ABORTED, "a newer stream took its place")
            await net.until("b", lambda machine: machine.peers["a"].state == "up")
            assert isinstance(await second.hear(), Hello)


async def test_a_neighbours_key_under_another_name_in_mid_fit(network):
    """Whoever has it is at fault, and heard no further: the fit waits for the neighbour, and goes on."""
    net = network(fit={"outer": 100, "tolerance": 0.0})
    await net.start()
    fitting = asyncio.create_task(net.fit("c"))
    await net.until("b", lambda machine: machine.rounds.outer > 0)
    async with stranger(net) as bad:
        await bad.say(replace(bad.hello, node="c"))
        code, details = await bad.verdict()
        assert (code, details[:20]) == (grpc.StatusCode.ABORTED, "a calls itself 'c': ")
    assert net.daemons["b"].node.machine.rounds.outer < 100
    await fitting
    assert faults(net, "b", "a") == 1.0
    same_bits(net)


# -- not reading -----------------------------------------------------------------------------------------


class Recorder:
    """Listens to streams and says nothing."""

    def __init__(self):
        self.up, self.down, self.reason, self.got = asyncio.Event(), asyncio.Event(), "", 0

    def connected(self, peer):
        self.up.set()

    def lost(self, peer, reason):
        self.reason = reason
        self.down.set()

    def received(self, peer, data):
        self.got += len(data)

    def refused(self, stranger, reason):
        raise AssertionError(reason)


@pytest.fixture
async def silent(nothing_stays):
    """Streams of a node b, and a peer a that opened one and reads nothing."""
    recorder = Recorder()
    streams = Streams("b", {"a": None}, recorder, identity=None, message_bytes=4 << 20)
    port = await streams.listen("127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD)(metadata=(("desmr-node", "a"),))
        await call.write(b"here I am")
        async with asyncio.timeout(10):
            await recorder.up.wait()
        yield streams, recorder, call
        call.cancel()
        await streams.close()


async def test_what_waits_for_a_peer_that_does_not_read_is_bounded(silent):
    streams, recorder, _ = silent
    streams.most_waiting = 8 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    edge = streams._edges["a"]
    most = 0
    for k in range(2_000):
        streams.send("a", bytes([k % 256]) * (1 << 20))
        most = max(most, edge.backlog)
        if edge.closing:
            break
    assert edge.closing == "a does not read what it is sent"
    assert most <= streams.most_waiting + (1 << 20)
    for _ in range(100):
        streams.send("a", bytes(1 << 20))  # goes nowhere
    assert not edge.waiting
    async with asyncio.timeout(5):
        await recorder.down.wait()
    assert recorder.reason == "a does not read what it is sent"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes


async def test_a_peer_that_does_not_read_does_not_keep_us(silent):
    """Leaving takes as long as last words may, not for ever."""
    streams, recorder, _ = silent
    for _ in range(16):
        streams.send("a", bytes(1 << 20))
    async with asyncio.timeout(5):
        await streams.close()
    assert recorder.reason == "b is shutting down"


async def test_what_was_said_before_leaving_is_heard(nothing_stays):
    """Both ways: by the end that dialled, and by the end that was dialled."""
    for leaver in "ab":
        ends = {"a": Recorder(), "b": Recorder()}
        b = Streams("b", {"a": None}, ends["b"], identity=None, message_bytes=4 << 20)
        port = await b.listen("127.0.0.1:0")
        a = Streams("a", {"b": f"127.0.0.1:{port}"}, ends["a"], identity=None, message_bytes=4 << 20)
        a.dial()
        async with asyncio.timeout(10):
            await asyncio.gather(*(end.up.wait() for end in ends.values()))
            leaving, staying = (a, b) if leaver == "a" else (b, a)
            for _ in range(40):
                leaving.send(staying.node, bytes(1 << 19))
            await leaving.close()
            await ends[staying.node].down.wait()
            assert ends[staying.node].got == 40 << 19
            await staying.close()
