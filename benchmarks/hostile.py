"""Hostile connections to the ports of nodes, of many kinds: what `benchmarks.live_port` throws at them.

Made by hand from sockets and HTTP/2 frames: a gRPC client would say little of this, and takes more of a
processor that is the nodes' as well. Only who has a neighbour's key and gets as far as a stream of its own
speaks gRPC. No kind says what a member may say: a member can end a fit, or leave and come back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np

from desmr_node.protocol.messages import Hello, Message, Standing, Vector
from desmr_node.transport import codec, tls
from desmr_node.transport.streams import METHOD

#: Streams that a flood opens on one connection.
STREAMS = 100
#: Seconds that a half-open connection is held, at most.
LONGEST_HELD = 5.0
#: Connections at a time, and seconds after which one is given up.
_AT_A_TIME, _PATIENCE = 100, 15.0
_EXPIRED = timedelta(days=900)


@dataclass(frozen=True)
class Target:
    """A port that is attacked, and a neighbour of that node, whose key was stolen."""

    node: str
    port: int
    neighbour: str


@dataclass(frozen=True)
class Plan:
    """An attack: the kinds of its connections in order, spread evenly over so many seconds."""

    kinds: tuple[str, ...]
    seconds: float
    seed: int
    targets: tuple[Target, ...]
    #: The network's authority, for keys of members of all sorts.
    authority: Path
    #: What a neighbour says first, but for its name.
    hello: Hello
    limits: codec.Limits


@dataclass
class Outcome:
    """When each connection was made, and what became of it, by kind."""

    moments: list[float] = field(default_factory=list)
    ends: dict[str, Counter[str]] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    def add(self, kind: str, end: str) -> None:
        """One more connection."""
        self.ends.setdefault(kind, Counter())[end] += 1

    def count(self, among: Callable[[Kind], bool]) -> int:
        """How many there were of some kinds."""
        return sum(ends.total() for kind, ends in self.ends.items() if among(KINDS[kind]))

    def merge(self, other: Outcome) -> None:
        """Those of another attack."""
        self.moments += other.moments
        self.cpu_seconds += other.cpu_seconds
        for kind, ends in other.ends.items():
            self.ends.setdefault(kind, Counter()).update(ends)


# -- HTTP/2, as little of it as is needed --------------------------------------------------------------------

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _AWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS = 1, 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(value: bytes) -> bytes:
    """A string of HPACK, as it is."""
    length = len(value)
    if length < 127:
        return bytes([length]) + value
    head, length = bytearray(b"\x7f"), length - 127
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes(head) + bytes([length]) + value


def call(stream: int, path: bytes = METHOD.encode()) -> bytes:
    """The frame that begins a call."""
    fields = {
        b":method": b"POST",
        b":scheme": b"https",
        b":path": path,
        b":authority": b"node",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
    return frame(_HEADERS, _END_HEADERS, stream, block)


_HELLO_HTTP = _PREFACE + frame(_SETTINGS)


def _odd(count: int) -> Iterator[int]:
    """Ids of a client's streams."""
    return iter(range(1, 2 * count, 2))


def _garbage(rng: np.random.Generator) -> bytes:
    """What may come after the preface, and should not."""
    calls = call(1)
    return (
        rng.bytes(200),
        frame(_DATA, 0, 7, b"x"),  # of a stream that nobody opened
        b"\xff\xff\xff" + calls[3:],  # longer than any frame may be
        frame(_HEADERS, _END_HEADERS, 1, rng.bytes(60)),  # headers that HPACK does not read
        frame(_HEADERS, _END_HEADERS, 2, calls[9:]),  # a stream that only a server may open
        frame(_HEADERS, 0, 1, calls[9:]) + frame(_PING, 0, 0, bytes(8)),  # headers that are not continued
        frame(_CONTINUATION, 0, 1, calls[9:]),
        frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 2**32 - 1)),  # a window beyond what may be
        frame(_WINDOW, 0, 0, bytes(4)),
        frame(_PING, 0, 0, b"short"),
        calls[: rng.integers(1, len(calls))],
        frame(_SETTINGS) * 200 + frame(_PING, 0, 0, bytes(8)) * 200,
        frame(11, 255, 1, rng.bytes(30)) + frame(_AWAY, 0, 0, rng.bytes(8)),
    )[rng.integers(13)]


_PATHS = (
    b"/desmr.peer.v1.Peer/Exchanges",
    b"/desmr.admin.v1.Admin/Stop",
    b"/",
    b"",
    b"*",
    b"/" + b"x" * 5000,
)


async def _ending(reader: asyncio.StreamReader, calls: int = 1) -> str:
    """How the node ends these calls, or the connection."""
    ended = 0
    while ended < calls:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        kind, flags = head[3], head[4]
        if kind == _AWAY:
            return "told to go away"
        if kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            ended += 1
    return "call refused" if calls == 1 else "all calls refused"


# -- the kinds -----------------------------------------------------------------------------------------------


class Attacker:
    """Makes the connections of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.rng = plan, np.random.default_rng(plan.seed)
        self.authority = tls.Authority.load(plan.authority)
        self.greeting = _client_hello()
        other = tls.Authority.create(self.authority.network)
        abroad = replace(self.authority, network=f"{self.authority.network}-2")
        self.strangers = {
            "nobody": _context(None),
            "other authority": _context(other.member("stranger")),
            "expired": _context(self.authority.member("stranger", now=datetime.now(UTC) - _EXPIRED)),
            "stranger": _context(self.authority.member("stranger")),
            "other network": _context(abroad.member(plan.targets[0].neighbour)),
        }
        #: Of two ends the smaller id dials: where that is the neighbour, its stream can be replaced.
        self.dialled = [t for t in plan.targets if t.neighbour < t.node]
        self.stolen = {t.neighbour: self.authority.member(t.neighbour) for t in plan.targets}
        self.neighbours = {name: _context(identity) for name, identity in self.stolen.items()}

    # -- below TLS

    async def _knock(self, target: Target) -> str:
        _, writer = await _tcp(target)
        writer.close()
        return "we left"

    async def _noise(self, target: Target) -> str:
        reader, writer = await _tcp(target)
        writer.write(self.rng.bytes(int(self.rng.integers(1, 3000))))
        return await _until_closed(reader, writer)

    async def _plain_http(self, target: Target) -> str:
        reader, writer = await _tcp(target)
        writer.write(_HELLO_HTTP + call(1))
        return await _until_closed(reader, writer)

    async def _half_open(self, target: Target) -> str:
        _, writer = await _tcp(target)
        return await self._hold(writer)

    async def _half_a_handshake(self, target: Target) -> str:
        _, writer = await _tcp(target)
        writer.write(self.greeting[: int(self.rng.integers(1, len(self.greeting)))])
        return await self._hold(writer)

    async def _hold(self, writer: asyncio.StreamWriter) -> str:
        await asyncio.sleep(float(self.rng.uniform(0.1, LONGEST_HELD)))
        writer.close()
        return "we left"

    # -- refused in the handshake

    async def _no_certificate(self, target: Target) -> str:
        return await self._turned_away(target, "nobody")

    async def _other_authority(self, target: Target) -> str:
        return await self._turned_away(target, "other authority")

    async def _expired(self, target: Target) -> str:
        return await self._turned_away(target, "expired")

    async def _turned_away(self, target: Target, who: str) -> str:
        reader, writer = await _tls(target, self.strangers[who])
        writer.write(_HELLO_HTTP + call(1))
        return await _until_closed(reader, writer)

    # -- of the authority, and no neighbour

    async def _stranger(self, target: Target) -> str:
        return await self._call(target, self.strangers["stranger"], call(1))

    async def _other_network(self, target: Target) -> str:
        return await self._call(target, self.strangers["other network"], call(1))

    async def _flood_of_streams(self, target: Target) -> str:
        calls = b"".join(map(call, _odd(STREAMS)))
        return await self._call(target, self.strangers["stranger"], calls, STREAMS)

    async def _rapid_resets(self, target: Target) -> str:
        pairs = [call(k) + frame(_RESET, 0, k, struct.pack(">I", 8)) for k in _odd(STREAMS)]
        return await self._call(target, self.strangers["stranger"], b"".join(pairs) + call(2 * STREAMS + 1))

    # -- with a neighbour's key, and no stream

    async def _wrong_method(self, target: Target) -> str:
        path = _PATHS[self.rng.integers(len(_PATHS))]
        return await self._call(target, self.neighbours[target.neighbour], call(1, path))

    async def _http_garbage(self, target: Target) -> str:
        garbage = _garbage(self.rng)
        reader, writer = await _tls(target, self.neighbours[target.neighbour])
        writer.write(_HELLO_HTTP + garbage)
        if writer.can_write_eof():
            writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return await _until_closed(reader, writer)
        writer.close()
        return "we left"

    async def _call(self, target: Target, context: ssl.SSLContext, frames: bytes, calls: int = 1) -> str:
        reader, writer = await _tls(target, context)
        try:
            writer.write(_HELLO_HTTP + frames)
            return await _ending(reader, calls)
        finally:
            writer.close()

    # -- with a neighbour's key, in the neighbour's place

    async def _another_name(self, target: Target) -> str:
        return await self._speak(target, self._hello(target.node))

    async def _no_message(self, target: Target) -> str:
        return await self._speak(target, b"\xff" + self.rng.bytes(300))

    async def _too_long(self, target: Target) -> str:
        size = self.plan.limits.message_bytes + 1
        return await self._speak(target, self._hello(target.neighbour), bytes(size))

    async def _far_too_long(self, target: Target) -> str:
        size = 2 * self.plan.limits.message_bytes + (1 << 20)
        return await self._speak(target, self._hello(target.neighbour), bytes(size))

    async def _not_a_number(self, target: Target) -> str:
        B = np.full((self.plan.limits.order, 1), [np.nan, np.inf, -np.inf][self.rng.integers(3)])
        fit = self.plan.hello.standing.fit
        return await self._speak(target, self._hello(target.neighbour), Vector(fit, 1, 1, B))

    async def _absurd_round(self, target: Target) -> str:
        outer, inner = [(2**31 - 1, 0), (2**30, 7), (2**32 - 1, 2**32 - 1)][self.rng.integers(3)]
        vector = Vector(self.plan.hello.standing.fit, outer, inner, np.zeros((self.plan.limits.order, 1)))
        return await self._speak(target, self._hello(target.neighbour), vector)

    async def _malformed(self, target: Target) -> str:
        damaged = codec.encode(Vector(1, 1, 1, np.ones((self.plan.limits.order, 1))))[:-3]
        return await self._speak(target, self._hello(target.neighbour), damaged)

    def _hello(self, name: str) -> Hello:
        return replace(self.plan.hello, node=name, incarnation=int(self.rng.integers(1, 2**62)))

    async def _speak(self, target: Target, *messages: Message | bytes) -> str:
        """Open the neighbour's stream, say these, and see it end."""
        identity = self.stolen[target.neighbour]
        options = [*tls.channel_options(target.node), ("grpc.use_local_subchannel_pool", 1)]
        options += [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
        address, credentials = f"127.0.0.1:{target.port}", tls.channel_credentials(identity)
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            stream = channel.stream_stream(METHOD)()
            with suppress(grpc.aio.AioRpcError):
                for message in messages:
                    await stream.write(message if isinstance(message, bytes) else codec.encode(message))
                while await stream.read() is not grpc.aio.EOF:
                    pass
            details = str(await stream.details())
            return f"{(await stream.code()).name}: {details.removeprefix(f'{target.neighbour} ')[:40]}"

    # -- all of them

    async def attack(self) -> Outcome:
        """Make the connections, each when it is due or, where we fall behind, as soon as we can."""
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of connections that end badly
        plan, outcome, room = self.plan, Outcome(), asyncio.Semaphore(_AT_A_TIME)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for k, kind in enumerate(plan.kinds):
                await asyncio.sleep(max(0.0, began + plan.seconds * k / len(plan.kinds) - time.monotonic()))
                await room.acquire()
                targets = self.dialled if KINDS[kind].in_its_place else plan.targets
                target = targets[self.rng.integers(len(targets))]
                group.create_task(self._one(kind, target, outcome, room))
        return replace(outcome, cpu_seconds=time.process_time())

    async def _one(self, kind: str, target: Target, outcome: Outcome, room: asyncio.Semaphore) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                end = await KINDS[kind].make(self, target)
        except ConnectionRefusedError:
            outcome.add(kind, "NOT CONNECTED")
            return
        except TimeoutError:
            end = "left waiting"
        except ssl.SSLError:
            end = "refused in the handshake"
        except (OSError, asyncio.IncompleteReadError):
            end = "hung up"
        finally:
            room.release()
        outcome.moments.append(begun)
        outcome.add(kind, end)


class Kind(NamedTuple):
    """A kind of connection: how many of ten thousand are of it, and how it is made."""

    share: int
    make: Callable[[Attacker, Target], Awaitable[str]]
    #: It gets as far as a call, whose refusal is counted.
    refused: bool = False
    #: It takes a neighbour's stream from it, for a moment.
    in_its_place: bool = False


KINDS = {
    "connects and leaves": Kind(1860, Attacker._knock),
    "noise": Kind(1400, Attacker._noise),
    "HTTP/2 without TLS": Kind(500, Attacker._plain_http),
    "connects and is silent": Kind(1200, Attacker._half_open),
    "half a TLS handshake": Kind(800, Attacker._half_a_handshake),
    "no certificate": Kind(750, Attacker._no_certificate),
    "another authority's": Kind(750, Attacker._other_authority),
    "expired": Kind(750, Attacker._expired),
    "a member, no neighbour": Kind(750, Attacker._stranger, refused=True),
    "another network's": Kind(250, Attacker._other_network, refused=True),
    f"{STREAMS} streams at once": Kind(60, Attacker._flood_of_streams, refused=True),
    f"{STREAMS} streams, each reset": Kind(40, Attacker._rapid_resets),
    "neighbour: wrong method": Kind(420, Attacker._wrong_method, refused=True),
    "neighbour: broken HTTP/2": Kind(420, Attacker._http_garbage),
    "neighbour: another's name": Kind(8, Attacker._another_name, in_its_place=True),
    "neighbour: no message": Kind(7, Attacker._no_message, in_its_place=True),
    "neighbour: malformed": Kind(7, Attacker._malformed, in_its_place=True),
    "neighbour: too long": Kind(7, Attacker._too_long, in_its_place=True),
    "neighbour: far too long": Kind(7, Attacker._far_too_long, in_its_place=True),
    "neighbour: NaN": Kind(7, Attacker._not_a_number, in_its_place=True),
    "neighbour: absurd round": Kind(7, Attacker._absurd_round, in_its_place=True),
}


def mixed(connections: int, rng: np.random.Generator) -> tuple[str, ...]:
    """The kinds of so many connections in a random order: some of each, and of the first what is left."""
    counts = {name: max(1, round(kind.share * connections / 10_000)) for name, kind in KINDS.items()}
    first = next(iter(KINDS))
    counts[first] = max(1, counts[first] + connections - sum(counts.values()))
    kinds = [name for name, count in counts.items() for _ in range(count)]
    return tuple(rng.permutation(kinds).tolist())


async def _tcp(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", target.port)


async def _tls(target: Target, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", target.port, ssl=context, server_hostname=target.node)


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    try:
        while await reader.read(1 << 16):
            pass
        return "hung up"
    finally:
        writer.close()


def _context(identity: tls.Identity | None) -> ssl.SSLContext:
    """Trusts anybody, and shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if identity is not None:
        path = Path(f"/dev/fd/{os.memfd_create('key')}")  # the library reads files only
        path.write_bytes(tls.private_pem(identity.key) + identity.certificate_pem)
        context.load_cert_chain(path)
        os.close(int(path.name))
    return context


def _client_hello() -> bytes:
    """What a TLS client says first."""
    outgoing = ssl.MemoryBIO()
    client = _context(None).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="node")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def run(plan: Plan, pipe: Connection) -> None:
    """A process of its own, which gives way to all others: ready, told to begin, and done."""
    os.nice(19)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    attacker = Attacker(plan)
    pipe.send(None)
    pipe.recv()
    pipe.send(asyncio.run(attacker.attack()))


def standing_in(fit: int) -> Standing:
    """Where a neighbour says it stands that is in this fit."""
    return Standing(fit, active=True, closed=True)
