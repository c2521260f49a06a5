"""The operator's API: status, start, stop, watch and result, with health and reflection beside it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from desmr_node.errors import ConfigError
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import RESTING, Machine, Phase
from desmr_node.runtime.metrics import memory_bytes
from desmr_node.runtime.node import Node
from desmr_node.transport.wire import admin_pb2 as pb

SERVICE = "desmr.admin.v1.Admin"
_PEER_SERVICE = "desmr.peer.v1.Peer"
#: A watcher is sent at most this many statuses a second.
_WATCH_PAUSE = 0.1


def status(node: Node, version: str) -> pb.Status:
    """Where the node stands."""
    machine, share, spec = node.machine, node.worker.share, node.worker.spec
    setup = machine.setup
    resting = machine.phase in RESTING
    history = [
        pb.OuterRound(
            outer=line.outer,
            admm_rounds=line.admm_rounds,
            candidates=line.candidates,
            objective=line.objective,
            nonzeros=line.nonzeros,
            moved=line.moved,
            spread=line.spread,
            changed=line.changed,
            accepted=line.accepted,
            **{"lambda": line.lambda_},
        )
        for line in list(share.history)
    ]
    peers = []
    for name, peer in machine.peers.items():
        traffic = node.streams.traffic(name)
        state = "connecting" if peer.state in ("away", "connected") else peer.state
        peers.append(
            pb.Peer(
                node=name,
                state=state,
                reason=peer.reason,
                bytes_sent=traffic.bytes_sent,
                bytes_received=traffic.bytes_received,
                messages_sent=traffic.messages_sent,
                messages_received=traffic.messages_received,
                release=peer.release,
                wire_version=peer.version,
                suspicion=machine.suspicion_of(name),
            )
        )
    in_rounds = share.stage == "rounds"
    return pb.Status(
        network=setup.network,
        node=setup.node,
        version=version,
        phase=machine.phase.value,
        message=machine.reason,
        fit=machine.fit,
        stage=machine.phase.value if resting or machine.roster is None else share.stage,
        outer=len(history) + in_rounds,
        outer_limit=spec.outer,
        inner=share.inner if in_rounds else 0,
        inner_limit=spec.inner,
        history=history,
        peers=peers,
        waiting_for=machine.waiting_for(),
        members=len(machine.roster.names) if machine.roster else 0,
        elapsed_seconds=(machine.ended if resting else asyncio.get_running_loop().time()) - machine.began,
        round_milliseconds=1e3 * node.metrics.round_seconds,
        memory_bytes=memory_bytes(),
        lost=machine.lost(),
        continues=machine.hello().standing.continues,
        paused=machine.paused,
    )


def _which(machine: Machine) -> str:
    return "a fit" if machine.phase is Phase.MEETING else f"fit {machine.fit}"  # no number before all met


class Admin:
    """The service's five calls."""

    def __init__(
        self,
        node: Node,
        version: str,
        result: Callable[[], dict[str, Any] | None],
        shutdown: Callable[[], None],
    ) -> None:
        self._node, self._version, self._result, self._shutdown = node, version, result, shutdown
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in the stubs

    # -- life ------------------------------------------------------------------------------------------

    async def listen(self, address: str) -> int:
        """Serve the operator; the port, which may have been left to the system (0 for a unix socket)."""
        server = self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        unary = grpc.unary_unary_rpc_method_handler
        handlers = {
            "Status": unary(self._status, pb.StatusRequest.FromString, pb.StatusResponse.SerializeToString),
            "Start": unary(self._start, pb.StartRequest.FromString, pb.StartResponse.SerializeToString),
            "Stop": unary(self._stop, pb.StopRequest.FromString, pb.StopResponse.SerializeToString),
            "Result": unary(
                self._get_result, pb.ResultRequest.FromString, pb.ResultResponse.SerializeToString
            ),
            "Watch": grpc.unary_stream_rpc_method_handler(
                self._watch, pb.WatchRequest.FromString, pb.WatchResponse.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, _PEER_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:
            raise ConfigError(
                f"[admin] listen = {address!r}: in use, or not this machine's; choose another"
            ) from None
        await server.start()
        for name in ("", SERVICE, _PEER_SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return port

    async def close(self) -> None:
        """Say that we are going, then go."""
        await self._health.enter_graceful_shutdown()
        if self._server is not None:
            await self._server.stop(grace=0.5)

    # -- calls -----------------------------------------------------------------------------------------

    def _now(self) -> pb.Status:
        return status(self._node, self._version)

    async def _status(self, request: pb.StatusRequest, context: object) -> pb.StatusResponse:
        return pb.StatusResponse(status=self._now())

    async def _start(
        self, request: pb.StartRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.StartResponse:
        machine = self._node.machine
        if machine.phase not in RESTING:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{_which(machine)} is under way ({machine.phase.value}): wait for it, or stop it",
            )
        self._node.tell(ev.Called())
        return pb.StartResponse(status=self._now())

    async def _stop(self, request: pb.StopRequest, context: object) -> pb.StopResponse:
        node = self._node.machine.setup.node
        self._node.tell(ev.Stopped(request.reason or f"stopped by the operator of {node}"))
        if request.shutdown:
            self._shutdown()
        return pb.StopResponse(status=self._now())

    async def _get_result(
        self, request: pb.ResultRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ResultResponse:
        result = self._result()
        if result is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, "no fit has been finished here yet: `desmr start` begins one"
            )
        return pb.ResultResponse(json=json.dumps(result))

    async def _watch(self, request: pb.WatchRequest, context: object) -> AsyncIterator[pb.WatchResponse]:
        node = self._node
        while True:
            changed = node.changed
            now = self._now()
            yield pb.WatchResponse(status=now)  # while it is sent, the fit may end: that is for the next one
            if request.until_end and Phase(now.phase) in (Phase.DONE, Phase.FAILED):
                return
            await asyncio.sleep(_WATCH_PAUSE)  # many changes make one status
            await changed.wait()
