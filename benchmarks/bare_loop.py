"""One node of a network that does nothing: grpc.aio streams to its neighbours, a message each way per round.

What any daemon over grpc.aio must at least cost. Started by `benchmarks.round_time`, once per node:
`python -m benchmarks.bare_loop NODE FOLDER ROUNDS BYTES`, with FOLDER as `desmr network init` writes it.
Writes to all neighbours at once, then reads from all at once; prints the seconds of a round, and of processor
time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from desmr_node.config import NodeConfig, load_node
from desmr_node.transport import tls

SERVICE, METHOD = "bare.Loop", "Exchange"
WARM_UP = 50


async def loop(config: NodeConfig, rounds: int, size: int) -> tuple[float, float]:
    """Seconds and processor seconds per round."""
    assert config.tls is not None
    assert config.listen is not None
    files = config.tls
    identity = tls.Identity.load(files.ca, files.certificate, files.key, config.node, config.network)
    streams: dict[str, Any] = {}
    ready, over = asyncio.Event(), asyncio.Event()

    def joined(peer: str, stream: Any) -> None:
        streams[peer] = stream
        if len(streams) == len(config.neighbours):
            ready.set()

    async def accept(_: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        joined(tls.peer_name(context.auth_context(), identity) or "", context)
        await over.wait()

    server = grpc.aio.server()
    handlers = {METHOD: grpc.stream_stream_rpc_method_handler(accept)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_secure_port(config.listen, tls.server_credentials(lambda: identity))
    await server.start()
    channels = []
    for neighbour in filter(config.dials, config.neighbours):
        options = [*tls.channel_options(neighbour.id), ("grpc.max_reconnect_backoff_ms", 200)]
        channel: Any = grpc.aio.secure_channel(
            neighbour.address or "", tls.channel_credentials(identity), options=options
        )
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(wait_for_ready=True)
        await call.wait_for_connection()
        channels.append(channel)
        joined(neighbour.id, call)
    await ready.wait()
    edges, message = list(streams.values()), bytes(size)

    async def one_round() -> None:
        await asyncio.gather(*(stream.write(message) for stream in edges))
        await asyncio.gather(*(stream.read() for stream in edges))

    for _ in range(WARM_UP):
        await one_round()
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        await one_round()
    took = (time.perf_counter() - begin) / rounds, (time.process_time() - used) / rounds
    await asyncio.sleep(0.5)  # neighbours may still be reading their last round
    over.set()
    for channel in channels:
        await channel.close()
    await server.stop(0.1)
    return took


if __name__ == "__main__":
    name, folder, count, length = sys.argv[1:]
    print(*asyncio.run(loop(load_node(Path(folder, name, "node.toml")), int(count), int(length))))
