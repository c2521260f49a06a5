"""gRPC streams to the neighbours: one per edge, made again whenever it breaks.

Bytes in, bytes out: this module knows who a peer is and that it may talk to us, the codec what it says. Of
two ends that both dial, the smaller id chooses the stream that is kept. Settings that are not defaults were
measured: see docs/decisions/0007-streams.md.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in the stubs

from desmr_node.errors import ConfigError
from desmr_node.transport import tls

METHOD = "/desmr.peer.v1.Peer/Exchange"
_SERVICE, _RPC = METHOD[1:].split("/")
#: In an insecure network a node's name is whatever it says.
_NAME_KEY = "desmr-node"

#: A peer that is frozen or cut off is noticed by unanswered pings; keepalive alone would take a minute.
_KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 1_500),
    ("grpc.http2.ping_timeout_ms", 1_500),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
]
#: Filters we have no use for cost a twentieth of a round; and what is not unpacked cannot blow up.
_LEAN: list[tuple[str, int]] = [
    ("grpc.per_message_compression", 0),
    ("grpc.per_message_decompression", 0),
    ("grpc.census", 0),
    ("grpc.enable_channelz", 0),
    ("grpc.enable_deadline_checking", 0),
    ("grpc.enable_http_proxy", 0),  # neighbours are dialled where the configuration says
]
_RECONNECT: list[tuple[str, int]] = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
]
#: What strangers can take up. A neighbour has one connection with one stream; two while a new one takes the
#: place of a dead one.
_STRANGERS: list[tuple[str, int]] = [
    ("grpc.max_concurrent_streams", 8),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 10_000),
]
#: Connections at a time, beside two for each neighbour: far below the number of files a process may open.
_MOST_STRANGERS = 128
#: Seconds for a peer to say something on its stream; it should be a hello.
_FIRST_WORDS = 10.0
#: Bytes beyond the limit that are still read: who sends a little too much is told so, and it is counted.
_MARGIN = 1 << 20
#: Pause before an edge is dialled again, in seconds: grows by half each time, up to the most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
#: Seconds for what still waits to be written when a stream is closed.
_LAST_WORDS = 1.0
#: Bytes that may wait to be written before the stream is held to be dead, if that is more than the sums of
#: all members: a reader that slow has stopped, or asks for more than it reads.
LEAST_BACKLOG = 64 * 2**20


class Listener(Protocol):
    """Whoever is told what happens on the edges. All calls come from the event loop."""

    def connected(self, peer: str) -> None:
        """A stream is up."""

    def lost(self, peer: str, reason: str) -> None:
        """A stream is gone, or could not be made."""

    def received(self, peer: str, data: bytes) -> None:
        """Bytes have come."""

    def refused(self, stranger: str, reason: str) -> None:
        """Somebody who may not was turned away."""


class _Stream(Protocol):
    """What grpc.aio's client call and server context have in common."""

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`."""

    async def write(self, message: bytes) -> None:
        """Send; waits while the peer's window is full."""


class _Opened:
    """A stream of which one message has been read already."""

    def __init__(self, stream: _Stream, first: bytes) -> None:
        self._stream, self._first, self.write = stream, [first], stream.write

    async def read(self) -> Any:
        return self._first.pop() if self._first else await self._stream.read()


@dataclass(slots=True)
class Traffic:
    """What has passed over an edge since the process started."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0


@dataclass(slots=True)
class _Edge:
    """One neighbour: the stream to it if there is one, and what waits to be written to it."""

    peer: str
    address: str | None
    traffic: Traffic = field(default_factory=Traffic)
    stream: _Stream | None = None
    ours: bool = False
    pump: asyncio.Task[str] | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: deque[bytes] = field(default_factory=deque)
    backlog: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    limit: asyncio.Timeout | None = None
    closing: str = ""


class Streams:
    """All edges of a node. ``addresses`` has every neighbour; None for those that dial us."""

    def __init__(
        self,
        node: str,
        addresses: Mapping[str, str | None],
        listener: Listener,
        *,
        identity: Callable[[], tls.Identity] | None,
        message_bytes: int,
    ) -> None:
        self.node, self.listener, self._identity = node, listener, identity
        self._edges = {peer: _Edge(peer, address) for peer, address in addresses.items()}
        self._options = [
            *_KEEPALIVE,
            *_LEAN,
            ("grpc.max_receive_message_length", message_bytes + _MARGIN),
            ("grpc.max_send_message_length", -1),
        ]
        #: Bytes that may wait for one peer.
        self.most_waiting = LEAST_BACKLOG
        self._server: grpc.aio.Server | None = None
        self._dialling: list[asyncio.Task[None]] = []
        self._over = False

    # -- life ------------------------------------------------------------------------------------------

    async def listen(self, address: str, more: Callable[[grpc.aio.Server], None] | None = None) -> int:
        """Accept neighbours; the port, which may have been left to the system. ``more`` adds services."""
        most = 2 * len(self._edges) + _MOST_STRANGERS
        options = [*self._options, *_STRANGERS, ("grpc.max_allowed_incoming_connections", most)]
        self._server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(
            self._accept
        )  # bytes as they are: the codec reads them
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_RPC: handler}),)
        )
        if more is not None:
            more(self._server)
        self._server.add_generic_rpc_handlers((_Unknown(self.listener),))  # the last one to be asked
        try:
            if self._identity is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, tls.server_credentials(self._identity))
        except RuntimeError:
            raise ConfigError(
                f"listen = {address!r}: the address is in use or not this machine's; choose another"
            ) from None
        await self._server.start()
        return port

    def dial(self) -> None:
        """Open the edges that this end opens, and keep them open."""
        for edge in self._edges.values():
            if edge.address is not None:
                self._dialling.append(asyncio.create_task(self._keep(edge), name=f"dial {edge.peer}"))

    async def close(self) -> None:
        """End all streams, letting what was said be heard."""
        self._over = True
        pumps = [edge.pump for edge in self._edges.values() if edge.pump is not None]
        for edge in self._edges.values():
            self.drop(edge.peer, f"{self.node} is shutting down")
        await asyncio.gather(*pumps, return_exceptions=True)
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(grace=0.2)

    # -- use -------------------------------------------------------------------------------------------

    def traffic(self, peer: str) -> Traffic:
        """What has passed over the edge."""
        return self._edges[peer].traffic

    def send(self, peer: str, data: bytes) -> None:
        """Hand bytes to the edge; without a stream they are dropped, and the machine repeats itself later."""
        edge = self._edges[peer]
        if edge.stream is None or edge.closing:
            return
        edge.waiting.append(data)
        edge.backlog += len(data)
        edge.wake.set()
        if edge.backlog > self.most_waiting:
            edge.waiting.clear()
            self.drop(peer, f"{peer} does not read what it is sent")

    def drop(self, peer: str, reason: str) -> None:
        """Close the stream once what waits is written, or soon if the peer does not read it."""
        edge = self._edges[peer]
        if edge.stream is not None and not edge.closing:
            edge.closing = reason
            edge.wake.set()
            if edge.limit is not None:
                edge.limit.reschedule(asyncio.get_running_loop().time() + _LAST_WORDS)

    # -- one stream ------------------------------------------------------------------------------------

    async def _serve(self, edge: _Edge, stream: _Stream) -> str:
        """Read and write until the stream ends; why it did."""
        async with edge.turn:
            return await self._use(edge, stream)

    async def _use(self, edge: _Edge, stream: _Stream) -> str:
        edge.stream, edge.closing = stream, ""
        edge.waiting.clear()
        edge.backlog = 0
        edge.wake.clear()
        self.listener.connected(edge.peer)
        writer = asyncio.create_task(self._write(edge, stream), name=f"write {edge.peer}")
        reader = asyncio.create_task(self._read(edge, stream), name=f"read {edge.peer}")
        reason = f"the stream to {edge.peer} was closed"
        heard = edge.traffic.messages_received

        def hang_up_on_silence() -> None:
            if edge.traffic.messages_received == heard:
                self.drop(edge.peer, _silence(edge.peer))

        patience = asyncio.get_running_loop().call_later(_FIRST_WORDS, hang_up_on_silence)
        try:
            done, _ = await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            reason = "; ".join(sorted({task.result() for task in done}))
            if edge.closing and isinstance(stream, grpc.aio.Call):
                # To cancel a call takes back what was just written: let the other end finish it.
                await stream.done_writing()  # type: ignore[attr-defined]  # missing in the stubs
                await asyncio.wait((reader,), timeout=_LAST_WORDS)
            return reason
        finally:
            patience.cancel()
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            edge.stream = None
            self.listener.lost(edge.peer, reason)

    async def _read(self, edge: _Edge, stream: _Stream) -> str:
        received, traffic, peer = self.listener.received, edge.traffic, edge.peer
        while True:
            try:
                data = await stream.read()
            except grpc.aio.AioRpcError as error:
                return _explain(peer, error)
            except grpc.aio.BaseError:
                return f"{peer} closed the stream"
            if data is EOF:
                return await _why_ended(peer, stream)
            traffic.bytes_received += len(data)
            traffic.messages_received += 1
            if not edge.closing:
                received(peer, data)

    async def _write(self, edge: _Edge, stream: _Stream) -> str:
        waiting, wake, traffic = edge.waiting, edge.wake, edge.traffic
        try:
            async with asyncio.timeout(None) as edge.limit:
                while True:
                    while waiting:
                        data = waiting.popleft()
                        await stream.write(data)
                        edge.backlog -= len(data)
                        traffic.bytes_sent += len(data)
                        traffic.messages_sent += 1
                    if edge.closing:
                        return edge.closing
                    wake.clear()
                    await wake.wait()
        except TimeoutError:
            return edge.closing
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            # The reader knows better why; let it speak if it is about to.
            await asyncio.sleep(0.05)
            return _explain(edge.peer, error)
        finally:
            edge.limit = None

    # -- both ends -------------------------------------------------------------------------------------

    async def _accept(self, request_iterator: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        name = self._caller(context)
        edge = self._edges.get(name)
        if edge is None:
            reason = (
                f"{name} is not a neighbour of {self.node}: add it to [[neighbours]] at {self.node}, "
                f"or remove {self.node} from those of {name}"
            )
            self.listener.refused(name, reason)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        elif self._over:
            await context.abort(grpc.StatusCode.ABORTED, f"{self.node} is shutting down")
        elif edge.pump is not None and edge.ours and self.node < name:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"{self.node} has opened this edge itself")
        else:
            stream: _Stream = context
            if edge.address is not None and name < self.node:
                # Both ends dial, and the smaller id may have taken our stream instead: it has its say first.
                try:
                    async with asyncio.timeout(_FIRST_WORDS):
                        first = await context.read()
                except TimeoutError:
                    await context.abort(grpc.StatusCode.ABORTED, _silence(name))
                if first is EOF:
                    return
                stream = _Opened(context, first)
            if edge.pump is not None:  # a second stream of the same peer: the first must be dead
                edge.pump.cancel()
            reason = await self._pump(edge, stream, ours=False)
            await context.abort(grpc.StatusCode.ABORTED, reason)

    def _caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        if self._identity is not None:
            return tls.peer_name(context.auth_context(), self._identity()) or "an unnamed peer"
        named = [str(v) for k, v in context.invocation_metadata() or () if k == _NAME_KEY]
        return named[0] if named else "an unnamed peer"

    async def _pump(self, edge: _Edge, stream: Any, ours: bool) -> str:
        """Serve the stream in a task of its own, which a newer stream may cancel."""

        def over(pump: asyncio.Task[str]) -> None:
            if edge.pump is pump:
                edge.pump = None

        edge.ours = ours
        pump = edge.pump = asyncio.create_task(self._serve(edge, stream), name=f"edge {edge.peer}")
        pump.add_done_callback(over)
        try:
            await asyncio.wait((pump,))
        except asyncio.CancelledError:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            raise
        return "a newer stream took its place" if pump.cancelled() else pump.result()

    async def _keep(self, edge: _Edge) -> None:
        """Dial, serve, and dial again."""
        pause = _FIRST_PAUSE
        while not self._over:
            if edge.pump is None:
                began = asyncio.get_running_loop().time()
                await self._dial(edge)
                if asyncio.get_running_loop().time() - began > 5.0:
                    pause = _FIRST_PAUSE  # it was up for a while
            # Peers that come back together should not knock together.
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    async def _dial(self, edge: _Edge) -> None:
        # A new channel each time: certificates are read anew, and no back-off of an old one is in the way.
        async with self._channel(edge) as channel:
            metadata = ((_NAME_KEY, self.node),)
            call = channel.stream_stream(METHOD)(metadata=metadata)
            try:
                await call.wait_for_connection()
            except grpc.aio.AioRpcError as error:
                self.listener.lost(edge.peer, _explain(edge.peer, error))
                return
            if edge.pump is not None:  # the other end was faster
                call.cancel()
                return
            await self._pump(edge, call, ours=True)
            call.cancel()

    def _channel(self, edge: _Edge) -> Any:  # the stubs know no channel without serialisers
        options = [*self._options, *_RECONNECT, *tls.channel_options(edge.peer)]
        assert edge.address is not None
        if self._identity is None:
            return grpc.aio.insecure_channel(edge.address, options=options)
        return grpc.aio.secure_channel(
            edge.address, tls.channel_credentials(self._identity()), options=options
        )


class _Unknown(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Asked for a method that nobody else has: gRPC refuses the call, and it is noted."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def service(self, handler_call_details: object) -> None:
        self._listener.refused("an unnamed peer", "somebody called a method that neighbours do not have")


def _silence(peer: str) -> str:
    return f"{peer} opened a stream and said nothing on it for {_FIRST_WORDS:g} s"


async def _why_ended(peer: str, stream: Any) -> str:
    """A client's call knows the status that the server ended it with."""
    if isinstance(stream, grpc.aio.Call):  # a server's context has `details` as well, its own
        details = await stream.details()
        if details:
            return str(details)
    return f"{peer} closed the stream"


def _explain(peer: str, error: BaseException) -> str:
    """A sentence for what gRPC says."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return f"the stream to {peer} broke"
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        if "Connection refused" in details:
            return f"{peer} refuses connections: it may not be running"
        if "handshake" in details.lower() and "shutdown" in details.lower():
            return f"{peer} did not finish the TLS handshake in time: it may be starting"
        if "handshake" in details.lower() or "certificate" in details.lower() or "SSL" in details:
            return f"no trust between us and {peer}: the TLS handshake failed ({details[:200]})"
        return f"{peer} cannot be reached ({details[:200]})"
    return details[:500] or f"{peer}: {error.code().name}"
