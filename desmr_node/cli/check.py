"""`desmr check`: is a node ready to run and, with --connect, are its neighbours?"""

import argparse
import errno
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desmr_node.cli.render import Mark
    from desmr_node.config import NodeConfig
    from desmr_node.data import Table
    from desmr_node.transport import tls
    from desmr_node.transport.wire import admin_pb2 as pb

_DESCRIPTION = """\
Look a node over without starting it: its configuration, certificates, rows, floors, state folder and ports.
Every line is ok, a warning or a problem, with the remedy. Exit 0 if there is no problem, else 1.

With --connect, the neighbours as well: name, port, TLS, certificate, and whether they have the same columns
and fit settings. No message is sent, so nothing happens to a fit that is under way. If the node is running,
it is asked, since it knows; stop it to have the neighbours dialled anew."""
_EXAMPLES = """\
examples:
  desmr check node.toml
  desmr check node.toml --connect
  desmr check node.toml --json | jq '.checks[] | select(.mark == "problem")'"""

#: Columns named before they are only counted.
_NAMED = 5


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="look a node over, and with --connect its neighbours, without starting it",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="NODE.toml", help="the node's configuration file")
    parser.add_argument("--connect", action="store_true", help="check the neighbours as well")
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import CANNOT

    findings = list(examine(arguments.config, connect=arguments.connect))
    fine = all(finding.mark != "problem" for finding in findings)
    if arguments.json:
        checks = [{"check": f.check, "mark": f.mark, "text": f.text} for f in findings]
        print(json.dumps({"config": arguments.config, "ok": fine, "checks": checks}, indent=1))
    else:
        _show(findings)
    return 0 if fine else CANNOT


def _show(findings: list["Finding"]) -> None:
    from rich.table import Table
    from rich.text import Text

    from desmr_node.cli import render

    grid = Table.grid(padding=(0, 2))
    for finding in findings:
        grid.add_row(render.mark(finding.mark), Text(finding.check), Text(render.plain(finding.text)))
    render.show(grid)
    count = {kind: sum(f.mark == kind for f in findings) for kind in ("problem", "warning")}
    if count["problem"]:
        print(f"\n{_counted(count['problem'], 'problem')}: the node cannot do its part like this")
    elif count["warning"]:
        print(f"\nready, with {_counted(count['warning'], 'warning')}")
    else:
        print("\nready")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# --- the list -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the list: what was checked, how it is, and the remedy if it is not well."""

    check: str
    mark: "Mark"
    text: str


def examine(path: str | Path, *, connect: bool = False) -> Iterator[Finding]:
    """Everything that can be found out about a node; stops only where the rest makes no sense."""
    from desmr_node.config import load_node
    from desmr_node.data import open_rows
    from desmr_node.errors import ConfigError, DesmrError
    from desmr_node.runtime.daemon import identity_of

    try:
        config = load_node(path)
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Finding("configuration", "problem", line)
        return
    yield Finding(
        "configuration",
        "ok",
        f"node {config.node} of network {config.network}, {_counted(len(config.neighbours), 'neighbour')}",
    )
    running = _running(config)
    identity: tls.Identity | None = None
    trusted = True
    try:
        identity = identity_of(config)
    except ConfigError as error:
        trusted = False
        yield Finding("certificates", "problem", str(error))
    else:
        yield from _certificates(config, identity)
    table: Table | None = None
    try:
        table = open_rows(config.data, node=config.node)
    except DesmrError as error:
        yield Finding("data", "problem", str(error))
    else:
        yield from _data(config, table)
    yield _state(config)
    yield from _ports(config, running)
    if connect:
        yield from _neighbours(config, identity if trusted else None, trusted, table, running)


# --- the node itself ------------------------------------------------------------------------------------


def _running(config: "NodeConfig") -> "pb.Status | None":
    """Our own daemon's status, if there is one."""
    from desmr_node.cli.client import AdminClient
    from desmr_node.errors import DesmrError

    if config.admin.listen.endswith(":0") and not config.admin.listen.startswith("unix:"):
        return None
    try:
        with AdminClient(config.admin.listen, patience=3.0) as client:
            return client.status()
    except DesmrError:
        return None


def _certificates(config: "NodeConfig", identity: "tls.Identity | None") -> Iterator[Finding]:
    from desmr_node.transport import tls
    from desmr_node.transport.probe import SOON_DAYS

    if identity is None:
        if config.insecure:
            text = "insecure = true: plain text, and neighbours are not checked; add [tls] for real rows"
        else:
            text = "no [tls]: loopback addresses only, for development"
        yield Finding("certificates", "warning", text)
        return
    now = datetime.now(UTC)
    count = len(identity.authorities)
    named = (
        ("authority" if count == 1 else f"authority {k} of the {count} in ca.pem", authority)
        for k, authority in enumerate(identity.authorities, 1)
    )
    for who, certificate in ((f"certificate of {config.node}", identity.certificate), *named):
        end = certificate.not_valid_after_utc
        days = (end - now).days
        text = f"{who} valid until {tls.moment(end)} ({days} days)"
        if days < SOON_DAYS:
            yield Finding("certificates", "warning", f"{text}: have it issued again by whoever keeps ca.key")
        else:
            yield Finding("certificates", "ok", text)


def _data(config: "NodeConfig", table: "Table") -> Iterator[Finding]:
    from desmr_node.data import open_rows
    from desmr_node.errors import DesmrError
    from desmr_node.runtime.daemon import below_floor

    rows, features = table.rows.count, len(table.features)
    yield Finding(
        "data", "ok", f"{config.data.file}: {rows} rows, {features} features, response {table.response}"
    )
    constant = _constant(table)
    if constant:
        listed = ", ".join(constant[:_NAMED]) + (", ..." if len(constant) > _NAMED else "")
        yield Finding(
            "data",
            "warning",
            f"the same value in every row here: {listed} ({len(constant)} of {features + 1} columns); such a "
            "column tells nothing unless it varies at other nodes",
        )
    if config.data.holdout is not None:
        try:
            holdout = open_rows(config.data, "holdout", node=config.node)
        except DesmrError as error:
            yield Finding("hold-out", "problem", str(error))
        else:
            yield Finding("hold-out", "ok", f"{config.data.holdout}: {holdout.rows.count} rows")
    declined = below_floor(config, table)
    if declined is not None:
        floors = config.floors
        yield Finding(
            "floors",
            "problem",
            f"the node {declined}; {rows} rows for {features} features, floors of {floors.rows} rows and "
            f"{floors.rows_per_variable:g} rows per variable: add rows, or lower the floor",
        )
    elif config.floors.rows or config.floors.rows_per_variable:
        yield Finding("floors", "ok", "enough rows to take part")


def _constant(table: "Table") -> list[str]:
    """Names of the columns that hold one value."""
    import numpy as np

    low = high = None
    for X, y in table.rows.blocks():
        block = np.column_stack([X, y])
        least, most = block.min(axis=0), block.max(axis=0)
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
    assert low is not None  # a table without rows is refused when it is read
    assert high is not None
    names = (*table.features, table.response)
    return [names[k] for k in np.flatnonzero(low == high)]


def _state(config: "NodeConfig") -> Finding:
    from desmr_node.cli.render import size

    folder = config.state
    existing = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    remedy = "choose another folder with state, or mend its permissions"
    if not existing.is_dir():
        return Finding("state", "problem", f"{existing} is not a folder: {remedy}")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding("state", "problem", f"{existing} cannot be written ({error.strerror}): {remedy}")
    disk = os.statvfs(existing)
    free = size(disk.f_bavail * disk.f_frsize)
    return Finding(
        "state",
        "ok",
        f"{folder} is writable, {free} free" if existing == folder else f"{folder} can be made, {free} free",
    )


# --- ports ----------------------------------------------------------------------------------------------


def _ports(config: "NodeConfig", running: "pb.Status | None") -> Iterator[Finding]:
    from desmr_node.config import is_loopback

    if running is not None and running.node != config.node:
        yield Finding(
            "ports",
            "problem",
            f"[admin] listen = {config.admin.listen!r} is answered by node {running.node}: choose another",
        )
        return
    if running is not None:
        yield Finding("ports", "ok", f"{config.node} is running and has them (phase {running.phase})")
        return
    places = {
        "listen": config.listen,
        "[admin] listen": config.admin.listen,
        "[metrics] listen": config.metrics.listen,
    }
    for key, address in places.items():
        if address is not None:
            trouble = _trouble_at(address, config.state)
            if trouble is None:
                yield Finding("ports", "ok", f"{key} = {address!r} is free")
            else:
                yield Finding("ports", "problem", f"{key} = {address!r}: {trouble}")
    if config.admin.insecure and not is_loopback(config.admin.listen):
        yield Finding(
            "ports",
            "warning",
            f"[admin] listen = {config.admin.listen!r}: whoever reaches it can stop the node",
        )


def _trouble_at(address: str, state: Path) -> str | None:
    """Why nobody can listen there, if so."""
    from desmr_node.config import split_address

    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if path.exists() and not path.is_socket():
            return "a file that is no socket is there; remove it, or choose another path"
        if path.parent != state and not path.parent.is_dir():
            return f"the folder {path.parent} does not exist; make it, or choose another path"
        return None
    host, port = split_address(address)
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        return f"the name {host} is not known here; write an address of this machine, or 0.0.0.0 for all"
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(where)
            trial.listen(1)
        except OSError as error:
            return {
                errno.EADDRINUSE: "another process has the port; end it, or choose another port",
                errno.EADDRNOTAVAIL: "not this machine's address; write its own, or 0.0.0.0 for all",
                errno.EACCES: "this user may not have the port; choose one above 1023",
            }.get(error.errno or 0, f"{error.strerror}; choose another address")
    return None


# --- neighbours -----------------------------------------------------------------------------------------


def _neighbours(
    config: "NodeConfig",
    identity: "tls.Identity | None",
    trusted: bool,
    table: "Table | None",
    running: "pb.Status | None",
) -> Iterator[Finding]:
    from desmr_node.cli.client import NodeUnreachable, greet, look_at
    from desmr_node.transport import tls
    from desmr_node.transport.probe import SOON_DAYS

    if running is not None and running.node == config.node:
        yield from _as_the_node_sees_them(running)
        return
    reachable = [n for n in config.neighbours if n.address is not None]
    for neighbour in config.neighbours:
        if neighbour.address is None:
            yield Finding(
                neighbour.id,
                "skipped",
                "has no address here: it dials us, so run desmr check --connect there, or start this node "
                "and see desmr status",
            )
    if reachable and not trusted:
        yield Finding("neighbours", "skipped", "not dialled: mend the certificates first")
        return
    for neighbour in reachable:
        assert neighbour.address is not None
        diagnosis = look_at(neighbour.address, neighbour.id, identity)
        if not diagnosis.ok:
            yield Finding(neighbour.id, "problem", diagnosis.sentence)
            continue
        soon = diagnosis.days_left is not None and diagnosis.days_left < SOON_DAYS
        yield Finding(neighbour.id, "warning" if soon else "ok", diagnosis.sentence)
        if table is None:
            yield Finding(neighbour.id, "skipped", "columns not compared: mend the data first")
            continue
        try:
            found = greet(config, table, neighbour.address, neighbour.id, identity)
        except NodeUnreachable as error:
            yield Finding(neighbour.id, "problem", str(error))
            continue
        for sentence in found:
            remedy = "" if ": " in sentence else ": make them alike"  # some name their own
            yield Finding(neighbour.id, "problem", sentence + remedy)
        if not found:
            yield Finding(
                neighbour.id, "ok", "the same columns, fit settings and method, and a common wire version"
            )
    if reachable and identity is not None:
        yield Finding(
            "clocks",
            "skipped",
            "gRPC tells no neighbour's time; by the clock here "
            f"({tls.moment(datetime.now(UTC))}) the certificates were judged as above",
        )


def _as_the_node_sees_them(running: "pb.Status") -> Iterator[Finding]:
    for peer in running.peers:
        if peer.state == "up":
            yield Finding(
                peer.node, "ok", "up, with the same columns and fit settings, says the running node"
            )
        else:
            reason = peer.reason or "no reason known: see its log"
            yield Finding(peer.node, "problem", f"{peer.state}, says the running node: {reason}")
