"""`desmr network`: the files, keys and certificates of a network's nodes, and its picture."""

import argparse
import json
from pathlib import Path
from typing import Any

_INIT = """\
Write DIR/<node>/node.toml with key and certificates for every node of a network file, and the
authority that vouches for them in DIR/authority.

The certificates make the network: whoever holds DIR/authority/ca.key can add members. Keep it off the
nodes' machines. Each node needs its own folder only; send it over a channel you trust, or let the owner
make the key where it will be used: see --request."""
_INIT_EXAMPLES = """\
examples:
  desmr network init crime.toml nodes
  desmr network init crime.toml nodes --request pacific    pacific's key never leaves its owner
  desmr network init crime.toml nodes --insecure           no TLS: closed test networks only

then, on each node's machine:
  desmr check nodes/pacific/node.toml
  desmr-node --config nodes/pacific/node.toml"""
_ADD = """\
Add a member to a network that exists. Write its [[nodes]] entry and its edges into the network file first;
DIR is the folder that `desmr network init` wrote, with the authority in it.

Only DIR/NODE is written. What the new member's neighbours must add to their own node.toml is printed, and
the order in which to go about it. Members that are not its neighbours need not be touched."""
_ADD_EXAMPLES = """\
examples:
  desmr network add crime.toml nodes alaska
  desmr network add crime.toml nodes alaska --request    alaska's key never leaves its owner"""
_REQUEST = """\
Make a node's private key where it will be used, and the request for its certificate.

Send node.csr (no secret) to whoever keeps the network's authority; put the node.pem that comes back into the
same folder. To renew a certificate, do the same in a new folder and replace key and certificate together."""
_SIGN = """\
Answer a node's request with a certificate, as the network's authority.

A certificate says that whoever holds the key is that node: make sure that the request comes from its owner,
and name the node you expect with --node."""
_DRAW = """\
Draw a network file: a box for every node, a line for every edge. FILE ends in .svg or .png.

Nodes lie as far apart as they are in hops. The longest way through the network lies across the page, and the
node listed first is on the right, so the order of [[nodes]] decides which way round the picture is.
Needs matplotlib: pip install 'desmr-node[plots]'."""

_COLUMNS = ("node", "configuration", "key", "listens at", "neighbours")


def add(commands: Any) -> None:
    """Declare the commands."""
    network = commands.add_parser(
        "network",
        help="write configuration, keys and certificates for every node of a network, or draw it",
        description="Set a network up: its nodes' configuration, keys and certificates; and see it.",
    )
    steps = network.add_subparsers(dest="step", metavar="STEP", required=True)
    formatter = argparse.RawDescriptionHelpFormatter

    init = steps.add_parser(
        "init",
        help="write a node.toml, keys and certificates for each node",
        description=_INIT,
        epilog=_INIT_EXAMPLES,
        formatter_class=formatter,
    )
    init.add_argument("network", metavar="NETWORK.toml", help="the network: its nodes, edges, columns, fit")
    init.add_argument("folder", metavar="DIR", help="where to write; no file that exists is touched")
    init.add_argument(
        "--days", type=positive, default=825, help="how long the certificates last (%(default)s days)"
    )
    init.add_argument("--insecure", action="store_true", help="no TLS, no keys: for closed test networks")
    init.add_argument(
        "--request",
        metavar="NODE",
        action="append",
        default=[],
        help="make no key for this node: its owner will ask for a certificate (may be repeated)",
    )
    init.add_argument("--json", action="store_true", help="print the paths written as JSON")
    init.set_defaults(run=_init)

    more = steps.add_parser(
        "add",
        help="write the files of one more member, and say what its neighbours change",
        description=_ADD,
        epilog=_ADD_EXAMPLES,
        formatter_class=formatter,
    )
    more.add_argument("network", metavar="NETWORK.toml", help="the network, the new node and its edges in it")
    more.add_argument("folder", metavar="DIR", help="the folder that `desmr network init` wrote")
    more.add_argument("node", metavar="NODE", help="the new node's id")
    more.add_argument(
        "--days", type=positive, default=825, help="how long the certificate lasts (%(default)s days)"
    )
    more.add_argument(
        "--request", action="store_true", help="make no key: the owner will ask for a certificate"
    )
    more.add_argument("--json", action="store_true", help="print path and neighbours' blocks as JSON")
    more.set_defaults(run=_add)

    request = steps.add_parser(
        "request",
        help="on the owner's machine: make a key and ask for a certificate",
        description=_REQUEST,
        epilog="example:\n  desmr network request pacific crime nodes/pacific",
        formatter_class=formatter,
    )
    request.add_argument("node", metavar="NODE", help="the node's id")
    request.add_argument("network", metavar="NETWORK", help="the network's id, or its NETWORK.toml")
    request.add_argument("folder", metavar="DIR", help="where node.key and node.csr go")
    request.set_defaults(run=_request)

    sign = steps.add_parser(
        "sign",
        help="as the authority: answer a request with a certificate",
        description=_SIGN,
        epilog="example:\n  desmr network sign nodes/authority node.csr --node pacific --out node.pem",
        formatter_class=formatter,
    )
    sign.add_argument("authority", metavar="AUTHORITY_DIR", help="the folder with ca.key and ca.pem")
    sign.add_argument("request", metavar="REQUEST.csr", help="what the owner sent")
    sign.add_argument("--node", help="refuse unless the request is for this node")
    sign.add_argument("--out", metavar="node.pem", help="where to write it (node.pem beside the request)")
    sign.add_argument("--replace", action="store_true", help="put it in the place of an older one")
    sign.add_argument(
        "--days", type=positive, default=825, help="how long the certificate lasts (%(default)s days)"
    )
    sign.set_defaults(run=_sign)

    draw = steps.add_parser(
        "draw",
        help="the network as a picture",
        description=_DRAW,
        epilog="examples:\n  desmr network draw crime.toml crime.svg\n"
        "  desmr network draw crime.toml crime.svg --replace    after a change of crime.toml",
        formatter_class=formatter,
    )
    draw.add_argument("network", metavar="NETWORK.toml", help="the network: its nodes and edges")
    draw.add_argument("file", metavar="FILE", help="the picture, .svg or .png")
    draw.add_argument("--replace", action="store_true", help="put it in the place of an older one")
    draw.set_defaults(run=_draw)


def positive(text: str) -> float:
    """A number of days."""
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= 36_525:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days between 0 and 36525")
    return days


def _init(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import render
    from desmr_node.config import load_network
    from desmr_node.runtime.setup import write_network

    network = load_network(arguments.network)
    requests = dict.fromkeys(arguments.request)
    folder = Path(arguments.folder)
    written = write_network(
        network, folder, days=arguments.days, insecure=arguments.insecure, requests=requests
    )
    if arguments.json:
        paths = {node: str(path) for node, path in written.items()}
        authority = None if arguments.insecure else str(folder.absolute() / "authority")
        print(json.dumps({"network": network.network, "nodes": paths, "authority": authority}, indent=1))
        return 0
    key = {True: "none (insecure)", False: "node.key, node.pem"}[arguments.insecure]
    rows = []
    for node in network.ids:
        entry = network.node(node)
        rows.append(
            [
                node,
                str(folder / node / "node.toml"),
                "the owner's to make" if node in requests else key,
                entry.listen or "dials out only",
                ", ".join(network.neighbours_of(node)),
            ]
        )
    render.show(render.table(dict.fromkeys(_COLUMNS, "left"), rows))
    absent = [node for node in network.ids if not network.node(node).data.exists()]
    if absent:
        print(f"\nThe rows of {', '.join(absent)} are not on this machine: [data] file says where.")
    if not arguments.insecure:
        print(f"\n{folder / 'authority' / 'ca.key'} can admit members: keep it apart from the nodes.")
    for node in requests:
        print(f"\n{_owner_asks(node, network.network, folder)}")
    node = next((n for n in network.ids if n not in requests), network.ids[0])
    print(
        f"\nNext, for each node on its own machine:\n"
        f"  desmr check {folder / node / 'node.toml'}\n"
        f"  desmr-node --config {folder / node / 'node.toml'}\n"
        f"and then, at any one of them:\n"
        f"  desmr start {folder / node / 'node.toml'} --watch"
    )
    return 0


def _owner_asks(node: str, network: str, folder: Path) -> str:
    return (
        f"{node}: its owner runs\n"
        f"  desmr network request {node} {network} .    in the folder with {node}'s node.toml\n"
        "and sends you node.csr, for which you make the certificate that goes into the same folder:\n"
        f"  desmr network sign {folder / 'authority'} node.csr --node {node} --out node.pem"
    )


def _add(arguments: argparse.Namespace) -> int:
    from desmr_node.config import load_network
    from desmr_node.runtime.setup import add_member, neighbour_block

    network, node = load_network(arguments.network), arguments.node
    folder = Path(arguments.folder)
    path = add_member(network, folder, node, days=arguments.days, request=arguments.request)
    blocks = {other: neighbour_block(network, other, node) for other in network.neighbours_of(node)}
    if arguments.json:
        told = {"network": network.network, "node": node, "config": str(path), "neighbours": blocks}
        print(json.dumps(told, indent=1))
        return 0
    print(f"{folder / node}: the new member's folder; it goes to {node}'s machine, over a channel you trust")
    if arguments.request:
        print(f"\n{_owner_asks(node, network.network, folder)}")
    print("\n1. Between two fits, put this at the end of the neighbours' node.toml:")
    for other, block in blocks.items():
        print(f"\n   {other}:")
        print("".join(f"     {line}\n" for line in block.splitlines()), end="")
    print(
        f"\n2. Restart {', '.join(blocks)}. No fit can begin until {node} is there.\n"
        f"3. On {node}'s machine:\n"
        f"     desmr check {folder / node / 'node.toml'} --connect\n"
        f"     desmr-node --config {folder / node / 'node.toml'}\n"
        "4. At any node, `desmr start`: the new member takes part from the next fit on."
    )
    return 0


def _request(arguments: argparse.Namespace) -> int:
    from desmr_node.config import load_network
    from desmr_node.runtime.setup import write_request

    network = arguments.network
    if network.endswith(".toml"):
        known = load_network(network)
        network = known.network
        known.node(arguments.node)
    key, request = write_request(arguments.node, network, arguments.folder)
    print(f"{key}: the private key; it stays here")
    print(f"{request}: send this to whoever keeps the authority of {network}, who runs")
    print(f"  desmr network sign AUTHORITY_DIR node.csr --node {arguments.node} --out node.pem")
    print(f"and put the node.pem that comes back into {key.parent}")
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    from desmr_node.runtime.setup import sign_request

    path = sign_request(
        arguments.authority,
        arguments.request,
        node=arguments.node,
        out=arguments.out,
        days=arguments.days,
        replace=arguments.replace,
    )
    print(f"{path}: the certificate; send it to the node's owner, with ca.pem if they lack it")
    return 0


def _draw(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import plots
    from desmr_node.cli.plots.network import draw_network
    from desmr_node.config import load_network

    path = plots.check(arguments.file, replace=arguments.replace)
    print(f"{path}: {draw_network(load_network(arguments.network), path)}")
    return 0
