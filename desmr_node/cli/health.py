"""`desmr health`: is a node serving? For health checks, which ask every few seconds, so it is kept light."""

import argparse
import math
from typing import Any

_DESCRIPTION = """\
Ask a node whether it is serving, by the standard gRPC health service (grpc.health.v1) at its admin address:
exit 0 and the word "serving" if it is, else exit 1 and a sentence. It says that the daemon runs and answers,
not that a fit succeeds or that neighbours are up: for those, `desmr status`."""
_EXAMPLES = """\
examples:
  desmr health node.toml
  desmr health unix:/node/state/admin.sock --timeout 1    lighter: no configuration to read"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "health",
        help="exit 0 if a node is serving, for health checks",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="host:port or unix:/path of the node's [admin] listen, or simply the path of its node.toml",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=3.0, metavar="SECONDS", help="how long to wait (%(default)g s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, also if it is not well")
    parser.set_defaults(run=_health)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds between 0 and 3600")
    return seconds


def _health(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import CANNOT
    from desmr_node.errors import DesmrError

    try:
        ask(arguments.address, arguments.timeout)
    except DesmrError as error:
        if not arguments.json:
            raise
        _print_json(arguments.address, str(error))
        return CANNOT
    if arguments.json:
        _print_json(arguments.address, None)
    else:
        print("serving")
    return 0


def _print_json(address: str, trouble: str | None) -> None:
    import json

    print(json.dumps({"address": address, "serving": trouble is None, "message": trouble or "serving"}))


def ask(address: str, timeout: float) -> None:
    """Return if the node is serving; else a `DesmrError` says why not."""
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    from desmr_node.cli import reaching

    where = reaching.resolve(address)
    with grpc.insecure_channel(where, options=reaching.OPTIONS) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        try:
            answer = check(HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise reaching.told(error, where, timeout) from None
    if answer.status != HealthCheckResponse.SERVING:
        raise reaching.NodeUnreachable(f"the node at {where} answers that it is not serving: it is stopping")
