"""Talking to a running node over its admin address, and looking at a neighbour; all trouble is a sentence."""

import asyncio
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

# gRPC's own lines on standard error say what our sentences say, in other words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import Message

from desmr_node.cli.render import plain
from desmr_node.config import NodeConfig, load_node, split_address
from desmr_node.data import Table
from desmr_node.errors import ConfigError, DesmrError
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.greeting import differences
from desmr_node.protocol.messages import Hello, Reject, Schema, Standing
from desmr_node.runtime.settings import settings_of
from desmr_node.transport import codec, tls
from desmr_node.transport.probe import Diagnosis, probe
from desmr_node.transport.streams import METHOD
from desmr_node.transport.wire import admin_pb2 as pb

_SERVICE = "/desmr.admin.v1.Admin/"
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),  # the node is on this machine
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
#: Seconds to wait for an answer; a node is never busy for as long.
PATIENCE = 10.0
#: Seconds for a neighbour to say hello.
_HELLO_PATIENCE = 5.0

Answer = TypeVar("Answer", bound=Message)


class NodeUnreachable(DesmrError):  # noqa: N818 - a state of the world, not a mistake
    """Nobody answers at the admin address, or not a node."""


def resolve(address: str) -> str:
    """The admin address meant by "host:port", "unix:/path" or the path of a node.toml."""
    if address.startswith("unix:"):
        if address == "unix:":
            raise ConfigError('the path of the socket is missing: write "unix:/path/admin.sock"')
        return address
    path = Path(address)
    if path.is_dir():
        raise ConfigError(f"{address} is a folder: name the node.toml in it")
    if path.suffix == ".toml" or path.is_file():
        listen = load_node(path).admin.listen
        if listen.endswith(":0") and not listen.startswith("unix:"):
            raise ConfigError(
                f"{address}: [admin] listen = {listen!r} leaves the port to the system: "
                "give the host:port from the node's log instead"
            )
        return listen
    if path.is_socket():
        return f"unix:{path}"
    try:
        _, port = split_address(address)
    except ValueError as error:
        raise ConfigError(
            f"{address!r} is no admin address ({error}): give host:port, unix:/path or a node.toml"
        ) from None
    if port == 0:
        raise ConfigError(f"{address!r} has port 0: give the port of the node's [admin] listen")
    return address


class AdminClient:
    """One node's admin API."""

    def __init__(self, address: str, *, patience: float = PATIENCE) -> None:
        self.address, self._patience = resolve(address), patience
        self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)

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
            if seen and _code(error) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise NodeUnreachable(
                    f"the node at {self.address} has gone: its log says why, and desmr-node starts it again"
                ) from None
            raise self._told(error) from None
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
            raise self._told(error) from None
        return answer

    def _told(self, error: grpc.RpcError) -> DesmrError:
        code, where = _code(error), self.address
        details = plain(_details(error))
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                path = where.removeprefix("unix:")
                if where.startswith("unix:") and not Path(path).exists():
                    return NodeUnreachable(
                        f"no node answers at {where}, which does not exist: is desmr-node running? "
                        "its [admin] listen says where"
                    )
                if "Permission denied" in details:
                    return NodeUnreachable(
                        f"{where} may not be opened by this user: run desmr as the user of the node"
                    )
                if "refused" in details or where.startswith("unix:") or "connect" in details.lower():
                    return NodeUnreachable(
                        f"no node answers at {where}: is desmr-node running? its [admin] listen says where"
                    )
                return NodeUnreachable(
                    f"what answers at {where} is no node's admin address ({details[:120]}): the port for "
                    "neighbours, perhaps; [admin] listen says where"
                )
            case grpc.StatusCode.UNIMPLEMENTED:
                return NodeUnreachable(
                    f"what answers at {where} is no node's admin address: [admin] listen says where"
                )
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return NodeUnreachable(
                    f"the node at {where} does not answer within {self._patience:g} s: see whether it hangs"
                )
            case grpc.StatusCode.NOT_FOUND | grpc.StatusCode.FAILED_PRECONDITION:
                return DesmrError(details)
            case _:
                return DesmrError(f"the node at {where} says {code.name.lower()}: {details or 'no more'}")


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    code = error.code() if isinstance(error, grpc.Call) else None
    return code or grpc.StatusCode.UNKNOWN


def _details(error: grpc.RpcError) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call) else ""


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
    ours = Hello(config.network, config.node, 0, schema, settings, Standing())
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
