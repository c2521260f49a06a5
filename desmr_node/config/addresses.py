"""Addresses, names and paths as a file writes them; each mistake is a ValueError that says what to write."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

#: The kernel's `sun_path` holds 108 bytes, the last of them zero.
_LONGEST_SOCKET_PATH = 107


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"; a ValueError says what to write instead."""
    remedy = 'write "host:port" or "[IPv6]:port", such as "10.0.0.7:50051"'
    if "://" in text:
        raise ValueError(f"an address has no scheme; {remedy}")
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([0-9]+)", text, re.ASCII)
    if match is None:
        if text.count(":") > 1 and "[" not in text:
            raise ValueError(f"an IPv6 address belongs in brackets; {remedy}")
        raise ValueError(f"it has no port number; {remedy}" if text else f"it is empty; {remedy}")
    v6, name, port = match.groups()
    try:
        if v6 is not None:
            ipaddress.IPv6Address(v6)
        elif re.fullmatch(r"[0-9.]+", name):
            ipaddress.IPv4Address(name)
        elif not re.fullmatch(r"(?!-)[A-Za-z0-9._-]{1,253}", name):
            raise ValueError
    except ValueError:
        host = name if v6 is None else v6
        raise ValueError(f"{host!r} is neither a host name nor an IP address; {remedy}") from None
    if int(port) > 65535:
        raise ValueError(f"port {port} is above 65535; {remedy}")
    return (name if v6 is None else v6), int(port)


def is_loopback(address: str) -> bool:
    """Whether "host:port" or "unix:path" cannot be reached from another machine."""
    if address.startswith("unix:"):
        return True
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: it may resolve to anything
        return False


def _listen_address(text: str) -> str:
    split_address(text)
    return text


def _dial_address(text: str) -> str:
    host, port = split_address(text)
    if port == 0:
        raise ValueError("port 0 can be listened on but not dialled; write the port the node listens on")
    if host in {"0.0.0.0", "::"}:
        raise ValueError(
            f"{host} can be listened on but not dialled; write the name or IP address of the host"
        )
    return text


def _admin_address(text: str, info: ValidationInfo) -> str:
    if not text.startswith("unix:"):
        return _listen_address(text)
    path = text.removeprefix("unix:")
    if not path:
        raise ValueError('the path of the socket is missing; write "unix:state/admin.sock"')
    if path.startswith("<state>"):  # filled in by NodeConfig, which knows the folder
        return text
    return f"unix:{_resolve(Path(path), info)}"


def require_short_socket_path(address: str) -> None:
    """Refuse "unix:path" if the system cannot bind a socket there."""
    length = len(os.fsencode(address.removeprefix("unix:")))
    if address.startswith("unix:") and length > _LONGEST_SOCKET_PATH:
        raise ValueError(
            f"{address} is a socket path of {length} bytes and the system takes {_LONGEST_SOCKET_PATH}; "
            'write a shorter one, such as "unix:/run/desmr/admin.sock", or "127.0.0.1:50052"'
        )


def _label(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(
            "write 1 to 63 lower-case letters, digits or hyphens, no hyphen at either end, "
            'such as "new-england"'
        )
    return text


def _resolve(path: Path, info: ValidationInfo) -> Path:
    """Relative paths start at the folder of the file they are written in."""
    if str(path) == ".":
        raise ValueError("the path is empty; write the path of a file or folder in quotes")
    if "\0" in str(path):
        raise ValueError("no path has a zero byte; write the path of a file or folder in quotes")
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError("no such user's home folder; write the path without ~") from None
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(os.path.normpath(folder / path))


Label = Annotated[str, AfterValidator(_label)]
Listen = Annotated[str, AfterValidator(_listen_address)]
Dial = Annotated[str, AfterValidator(_dial_address)]
Admin = Annotated[str, AfterValidator(_admin_address)]
File = Annotated[Path, AfterValidator(_resolve)]
