"""A node's admin address: what is meant by it, and why nobody answers there; all trouble is a sentence.

Kept apart from the client because `desmr health` is run every few seconds for as long as a node lives: no
numpy, no pydantic, and the configuration is read only if it is a node.toml that was named.
"""

import re
from pathlib import Path

import grpc

from desmr_node.cli.render import plain
from desmr_node.errors import ConfigError, DesmrError

OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),  # the node is on this machine
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
#: Right beyond doubt; whatever else is given is looked at by the configuration's own reader.
_PLAINLY_RIGHT = re.compile(r"(?:[a-z][a-z0-9.-]{,99}|127\.0\.0\.1):(?:[1-9][0-9]{,3}|[1-5][0-9]{4})")


class NodeUnreachable(DesmrError):  # noqa: N818 - a state of the world, not a mistake
    """Nobody answers at the admin address, or not a node."""


def resolve(address: str) -> str:
    """The admin address meant by "host:port", "unix:/path" or the path of a socket or node.toml."""
    if address.startswith("unix:"):
        if address == "unix:":
            raise ConfigError('the path of the socket is missing: write "unix:/path/admin.sock"')
        return address
    path = Path(address)
    if path.is_dir():
        raise ConfigError(f"{address} is a folder: name the node.toml in it")
    if path.suffix == ".toml" or path.is_file():
        from desmr_node.config import load_node

        listen = load_node(path).admin.listen
        if listen.endswith(":0") and not listen.startswith("unix:"):
            raise ConfigError(
                f"{address}: [admin] listen = {listen!r} leaves the port to the system: "
                "give the host:port from the node's log instead"
            )
        return listen
    if path.is_socket():
        return f"unix:{path}"
    if not _PLAINLY_RIGHT.fullmatch(address):
        _require_address(address)
    return address


def _require_address(address: str) -> None:
    from desmr_node.config import split_address

    try:
        _, port = split_address(address)
    except ValueError as error:
        raise ConfigError(
            f"{address!r} is no admin address ({error}): give host:port, unix:/path or a node.toml"
        ) from None
    if port == 0:
        raise ConfigError(f"{address!r} has port 0: give the port of the node's [admin] listen")


def told(error: grpc.RpcError, where: str, patience: float) -> DesmrError:
    """What to raise for what gRPC says of a call to ``where`` that might last ``patience`` seconds."""
    code = code_of(error)
    details = plain((error.details() or "") if isinstance(error, grpc.Call) else "")
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
            hung_up = "Socket closed" in details  # somebody was there, and did not like to be spoken to
            if where.startswith("unix:") or ("connect" in details.lower() and not hung_up):
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
                f"the node at {where} does not answer within {patience:g} s: see whether it hangs"
            )
        case grpc.StatusCode.NOT_FOUND | grpc.StatusCode.FAILED_PRECONDITION:
            return DesmrError(details)
        case _:
            return DesmrError(f"the node at {where} says {code.name.lower()}: {details or 'no more'}")


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """gRPC's name for what happened."""
    code = error.code() if isinstance(error, grpc.Call) else None
    return code or grpc.StatusCode.UNKNOWN
