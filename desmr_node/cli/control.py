"""`desmr start`, `stop`, `status`, `watch`, `result`: a running node, by its admin address."""

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from desmr_node.cli import plots

if TYPE_CHECKING:
    from desmr_node.cli.client import AdminClient
    from desmr_node.transport.wire import admin_pb2 as pb

_ADDRESS = "host:port or unix:/path of the node's [admin] listen, or simply the path of its node.toml"


def add(commands: Any) -> None:
    """Declare the commands."""
    start = _command(
        commands,
        "start",
        "begin a fit on the whole network",
        "Begin a fit. Every member that is idle joins; it takes one `start`, at any of them.",
        "desmr start node.toml\n  desmr start 127.0.0.1:50052 --watch    and look on until it ends",
    )
    start.add_argument("--watch", action="store_true", help="look on until the fit ends; exit 3 if it fails")
    start.add_argument("--json", action="store_true", help="print status objects, one a line")
    start.set_defaults(run=_start)

    stop = _command(
        commands,
        "stop",
        "end the fit under way, or the node",
        "End the fit under way, at every member: nobody can go on without this node's part.",
        'desmr stop node.toml --reason "wrong lambda"\n'
        "  desmr stop node.toml --shutdown    the daemon ends as well",
    )
    stop.add_argument("--shutdown", action="store_true", help="end the daemon as well")
    stop.add_argument("--reason", default="", metavar="TEXT", help="what the other members are told")
    stop.set_defaults(run=_stop)

    status = _command(
        commands,
        "status",
        "where a node stands: its fit, its neighbours, what it waits for",
        "Say where a node stands: its fit, what it waits for, its neighbours, and why one is not up.",
        "desmr status node.toml\n  desmr status unix:/run/desmr/admin.sock --json | jq .phase",
    )
    status.add_argument("--json", action="store_true", help="print the status as one JSON object")
    status.set_defaults(run=_status)

    watch = _command(
        commands,
        "watch",
        "look on while a node fits",
        "Look on while a node fits, until Ctrl-C or, with --until-end, until the fit is over: exit 0 if it\n"
        "is done, 3 if it failed. Where the output is no terminal, a line for everything that happens.",
        "desmr watch node.toml\n  desmr watch node.toml --until-end --json",
    )
    watch.add_argument("--until-end", action="store_true", help="return once the fit is done or has failed")
    watch.add_argument("--json", action="store_true", help="print status objects, one a line")
    watch.set_defaults(run=_watch)

    result = _command(
        commands,
        "result",
        "the coefficients of the last finished fit",
        "Show the last finished fit: coefficients in the data's own units, largest first, penalty level,\n"
        "errors on the hold-out rows, and whether it converged.",
        "desmr result node.toml\n  desmr result node.toml --csv > coefficients.csv\n"
        "  desmr result node.toml --plot result.svg    a bar for each variable",
    )
    result.add_argument("--all", action="store_true", help="show the features that were not selected, too")
    form = result.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the content of result.json")
    form.add_argument("--csv", action="store_true", help="print all coefficients as CSV, every digit kept")
    plots.add_option(result)
    result.set_defaults(run=_result)


def _command(
    commands: Any, name: str, summary: str, description: str, examples: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=f"examples:\n  {examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", metavar="ADDRESS", help=_ADDRESS)
    return parser


def _client(arguments: argparse.Namespace) -> "AdminClient":
    from desmr_node.cli.client import AdminClient

    return AdminClient(arguments.address)


def _start(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import FAILED, render

    with _client(arguments) as client:
        status = client.start()
        if arguments.watch:
            return _look_on(client.watch(until_end=True), as_json=arguments.json)
    if arguments.json:
        _print_json(status)
    elif status.phase == "failed":
        print(f"desmr: {status.node} could not start: {render.plain(status.message)}", file=sys.stderr)
    else:
        waiting = f"; waiting for {', '.join(status.waiting_for)}" if status.waiting_for else ""
        print(render.plain(f"{status.node} calls for a fit: {render.doing(status)}{waiting}"))
        print(f"desmr watch {arguments.address} shows how it goes")
    return FAILED if status.phase == "failed" else 0


def _stop(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import render

    with _client(arguments) as client:
        before = client.status()
        client.stop(shutdown=arguments.shutdown, reason=arguments.reason)
    resting = before.phase in ("idle", "done", "failed")
    print(
        f"no fit was under way at {render.plain(before.node)}"
        if resting
        else f"fit stopped by {render.plain(before.node)}, for every member"
    )
    if arguments.shutdown:
        print(f"{render.plain(before.node)} is shutting down")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import render

    with _client(arguments) as client:
        status = client.status()
    if arguments.json:
        _print_json(status)
    else:
        render.show(render.status_view(status))
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        try:
            return _look_on(client.watch(until_end=arguments.until_end), as_json=arguments.json)
        except KeyboardInterrupt:
            if arguments.until_end:
                raise
            return 0  # that is how one stops looking


def _look_on(statuses: Iterator["pb.Status"], *, as_json: bool) -> int:
    """Show statuses as they come; the exit code for how the last one ended."""
    from desmr_node.cli import CANNOT, FAILED, INCOMPLETE

    ending = deque(_shown(statuses, as_json=as_json), maxlen=1)
    if not ending:
        return CANNOT
    last = ending.pop()
    done = INCOMPLETE if last.lost else 0
    return {"done": done, "failed": FAILED}.get(last.phase, CANNOT)


def _shown(statuses: Iterator["pb.Status"], *, as_json: bool) -> Iterator["pb.Status"]:
    """The statuses, each shown as it passes."""
    if as_json:
        for status in statuses:
            _print_json(status)
            yield status
    else:
        yield from _live(statuses) if sys.stdout.isatty() else _lines(statuses)


def _live(statuses: Iterator["pb.Status"]) -> Iterator["pb.Status"]:
    from rich.live import Live

    from desmr_node.cli import render

    with Live(console=render.console(), auto_refresh=False) as live:
        for status in statuses:
            live.update(render.status_view(status, bars=True), refresh=True)
            yield status


def _lines(statuses: Iterator["pb.Status"]) -> Iterator["pb.Status"]:
    """A line whenever there is news."""
    from desmr_node.cli import render

    told, peers, rounds, fit = "", dict[str, str](), 0, 0
    for status in statuses:
        phase = status.phase
        if status.fit != fit:
            fit, rounds = status.fit, 0
            if fit and phase != "idle":
                print(f"fit {fit} at {render.plain(status.node)}{render.without(status)}", flush=True)
        for peer in status.peers:
            line = render.peer_line(peer)
            if peers.get(peer.node) != line:
                peers[peer.node] = line
                print(line, flush=True)
        for outer in status.history[rounds:]:
            print(render.round_line(outer), flush=True)
        rounds = len(status.history)
        if phase in ("idle", "meeting", "gathering", "done", "failed") or status.paused:
            news = render.doing(status)
            if status.waiting_for:
                news += render.plain(f", for {', '.join(status.waiting_for)}")
            if news != told:
                print(news, flush=True)
            told = news
        yield status


def _result(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import render
    from desmr_node.cli.client import NodeUnreachable
    from desmr_node.runtime.results import coefficients_csv

    picture = plots.option(arguments)
    try:
        with _client(arguments) as client:
            result = client.result()
    except NodeUnreachable as error:
        kept = _kept(arguments.address)
        if kept is None:
            raise
        result = kept
        print(f"desmr: {error}; this is what it left in its state folder", file=sys.stderr)
    if picture is not None:
        from desmr_node.cli.plots.result import draw_result

        draw_result({result["node"]: result}, picture)
    if arguments.json:
        print(json.dumps(result, indent=1))
    elif arguments.csv:
        print(coefficients_csv(result), end="")
    else:
        render.show_result(result, everything=arguments.all)
        if picture is not None:
            print(f"picture: {picture}")
    return 0


def _kept(address: str) -> dict[str, Any] | None:
    """The last result of a node that is not running, if we were given its node.toml."""
    from desmr_node.config import load_node
    from desmr_node.runtime import results

    if not address.endswith(".toml"):
        return None
    config = load_node(address)
    return results.read(config.state, config.network, config.node)


def _print_json(status: "pb.Status") -> None:
    from desmr_node.cli.client import as_dict

    print(json.dumps(as_dict(status)), flush=True)
