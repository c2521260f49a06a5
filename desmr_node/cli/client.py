"""Talking to a running node over its admin address, and looking at a neighbour; all trouble is a sentence."""

import asyncio
import json
import math
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from desmr_node.cli.reaching import OPTIONS, code_of, resolve, told
from desmr_node.cli.reaching import NodeUnreachable as NodeUnreachable
from desmr_node.cli.render import plain
from desmr_node.config import NodeConfig
from desmr_node.data import Table
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.greeting import differences
from desmr_node.protocol.messages import Hello, Reject, Schema, Standing
from desmr_node.runtime.settings import default_settings, settings_of
from desmr_node.transport import codec, tls
from desmr_node.transport.probe import Diagnosis, probe
from desmr_node.transport.streams import METHOD
from desmr_node.transport.wire import admin_pb2 as pb

_SERVICE = "/desmr.admin.v1.Admin/"
#: Seconds to wait for an answer; a node is never busy for as long.
PATIENCE = 10.0
#: Seconds for a neighbour to say hello.
_HELLO_PATIENCE = 5.0

Answer = TypeVar("Answer", bound=Message)


class AdminClient:
    """One node's admin API."""

    def __init__(self, address: str, *, patience: float = PATIENCE) -> None:
        self.address, self._patience = resolve(address), patience
        self._channel = grpc.insecure_channel(self.address, options=OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def status(self) -> pb.Status:
        """Where the node stands."""
        return self._ask("Status", pb.StatusRequest(), pb.StatusResponse.FromString).status

    def start(self) -> pb.Status:
        """Begin a fit."""
        return self._ask("Start", pb.StartRequest(), pb.StartResponse.FromString).status

    def stop(self, *, shutdown: bool = False, reason: str = "") -> pb.Status:
        """End the fit under way and, if asked, the node."""
        request = pb.StopRequest(shutdown=shutdown, reason=reason)
        return self._ask("Stop", request, pb.StopResponse.FromString).status

    def result(self) -> dict[str, Any]:
        """The last finished fit: the content of result.json."""
        answer = self._ask("Result", pb.ResultRequest(), pb.ResultResponse.FromString)
        result: dict[str, Any] = json.loads(answer.json)
        return result

    def watch(self, *, until_end: bool) -> Iterator[pb.Status]:
        """A status whenever something changed; until the end of the fit, or for ever."""
        call = self._channel.unary_stream(
            f"{_SERVICE}Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )(pb.WatchRequest(until_end=until_end))
        seen = False
        try:
            for answer in call:
                seen = True
                yield answer.status
        except grpc.RpcError as error:
            if seen and code_of(error) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise NodeUnreachable(
                    f"the node at {self.address} has gone: its log says why, and desmr-node starts it again"
                ) from None
            raise told(error, self.address, self._patience) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]  # the stubs say nothing about it

    def _ask(self, method: str, request: Message, parse: Callable[[bytes], Answer]) -> Answer:
        call = self._channel.unary_unary(
            _SERVICE + method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=parse,
        )
        try:
            answer: Answer = call(request, timeout=self._patience)
        except grpc.RpcError as error:
            raise told(error, self.address, self._patience) from None
        return answer


def as_dict(message: Message) -> dict[str, Any]:
    """A message for `json.dumps`: every field by its name in the .proto file, null where a number is none."""

    def value(thing: Any) -> Any:
        if isinstance(thing, Message):
            return as_dict(thing)
        return None if isinstance(thing, float) and not math.isfinite(thing) else thing

    made = {}
    for field in message.DESCRIPTOR.fields:
        content = getattr(message, field.name)
        made[field.name] = [value(each) for each in content] if field.is_repeated else value(content)
    return made


# --- neighbours -----------------------------------------------------------------------------------------


def look_at(address: str, node: str, identity: tls.Identity | None) -> Diagnosis:
    """Name, port, TLS and certificate."""
    return asyncio.run(probe(address, node, identity))


def greet(
    config: NodeConfig, table: Table, address: str, node: str, identity: tls.Identity | None
) -> list[str]:
    """What keeps the neighbour and us apart: its hello against ours, which is not sent.

    A node says hello as soon as a stream is open. It hears nothing from us, so to it this is a stream that
    broke: it neither takes us for present nor for restarted.
    """
    schema = Schema(table.response, table.features)
    settings = settings_of(config.fit, config.seed)
    ours = Hello(config.network, config.node, 0, schema, settings, Standing(), defaults=default_settings())
    limits = codec.Limits.of(len(table.features), config.fit.lambdas)
    try:
        said = codec.decode(_first_words(config.node, address, node, identity, limits), limits)
    except PeerFault as fault:
        raise NodeUnreachable(f"{node} {plain(str(fault))}: the two run versions that do not fit") from None
    match said:
        case Hello():
            return [plain(sentence) for sentence in differences(ours, said, node)]
        case Reject(reason):
            return [plain(f"{node} refuses us: {reason}")]
        case _:
            raise NodeUnreachable(f"{node} does not say hello first: upgrade the older of the two nodes")


def _first_words(
    own: str, address: str, node: str, identity: tls.Identity | None, limits: codec.Limits
) -> bytes:
    options: list[tuple[str, Any]] = [
        *tls.channel_options(node),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    over = threading.Event()

    def silence() -> Iterator[bytes]:
        over.wait()
        yield from ()

    if identity is None:
        channel = grpc.insecure_channel(address, options=options)
    else:
        channel = grpc.secure_channel(address, tls.channel_credentials(identity), options=options)
    with channel:
        call: Any = channel.stream_stream(METHOD)(  # type: ignore[call-arg]  # the stubs want serialisers
            silence(), timeout=_HELLO_PATIENCE, metadata=(("desmr-node", own),)
        )
        try:
            first: bytes = next(call)
        except StopIteration:
            raise NodeUnreachable(f"{node} at {address} says nothing: its log says why") from None
        except grpc.RpcError as error:
            details = plain(error.details() or "") if isinstance(error, grpc.Call) else ""
            raise NodeUnreachable(
                f"{node} at {address} will not talk to us: {details or 'its log says why'}"
            ) from None
        finally:
            call.cancel()
            over.set()
    return first
