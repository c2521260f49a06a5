"""`desmr census`: the nine divisions' network on hosts of their own, such as containers."""

import argparse
import json
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desmr_node.cli import divisions

if TYPE_CHECKING:
    from desmr_node.cli.client import AdminClient
    from desmr_node.cli.divisions import Progress
    from desmr_node.transport.wire import admin_pb2 as pb

_INIT = """\
Split the packaged crime table (UCI Communities and Crime) into the private tables of nine census divisions
and write, into DIR/<division>, all that each needs to run as a node on a host called like it (port 7100):
rows.csv, holdout.csv, node.toml, key and certificates. DIR/network.toml is the network as a whole, and
DIR/authority can admit members to it.

What is there already is left alone if it is the same network, and refused or replaced if it is another."""
_INIT_EXAMPLES = """\
examples:
  desmr census init census
  desmr census init census --scenario balanced --replace
  desmr simulate census/network.toml      the same fit in this process, same bits"""
_REPORT = """\
Wait until the fit of a network made by `desmr census init` is done, showing each outer round, and print the
model, its errors on held-out communities beside the paper's, and whether all divisions agree. If it fails, as
when a division is restarted in the middle of it, another is begun once all are back. Exit 0 if one is done, 3
if a division stays away."""
#: Seconds between two looks at the nodes, and for which an announced attacker is waited for.
_PAUSE, _ANNOUNCEMENT = 0.5, 3.0
#: Seconds without a fit after which we say whom everybody waits for.
_SILENCE = 5.0
#: Times that a fit which failed is begun again.
_ATTEMPTS = 3
_RESTING = frozenset({"idle", "done", "failed"})


def add(commands: Any) -> None:
    """Declare the commands."""
    census = commands.add_parser(
        "census",
        help="the nine divisions of the demonstration on hosts of their own, such as containers",
        description="The nine census divisions as a network of separate hosts: what docker-compose.yml runs.",
    )
    steps = census.add_subparsers(dest="step", metavar="STEP", required=True)
    formatter = argparse.RawDescriptionHelpFormatter

    init = steps.add_parser(
        "init",
        help="write each division's private rows, configuration and keys",
        description=_INIT,
        epilog=_INIT_EXAMPLES,
        formatter_class=formatter,
    )
    init.add_argument("folder", metavar="DIR", help="where to write")
    divisions.add_scenario(init)
    init.add_argument("--admin", metavar="ADDRESS", help="where every node's admin API shall listen")
    init.add_argument("--replace", action="store_true", help="clear another network away, results included")
    init.add_argument(
        "--announced",
        metavar="[SCENARIO=]HOST",
        type=_announcement,
        action="append",
        default=[],
        help="make it this scenario (attacker unless it says liar) if a host of this name shows up within "
        "three seconds; may be repeated",
    )
    init.set_defaults(run=_init)

    report = steps.add_parser(
        "report",
        help="wait for the fit, then print the result beside the paper's",
        description=_REPORT,
        epilog="example:\n  desmr census report census --admin 'unix:/admin/{}/admin.sock'",
        formatter_class=formatter,
    )
    report.add_argument("folder", metavar="DIR", help="the folder with the network.toml")
    report.add_argument(
        "--admin",
        metavar="PATTERN",
        default="",
        help="admin addresses, {} standing for the division (default: as DIR/<division>/node.toml says)",
    )
    report.add_argument("--timeout", type=float, default=600.0, help="seconds for it all (default: 600)")
    report.add_argument(
        "--grace",
        type=float,
        default=60.0,
        help="seconds to wait, after a fit that failed, for all divisions to be back (default: 60)",
    )
    report.add_argument(
        "--announced",
        metavar="[SCENARIO=]HOST",
        type=_announcement,
        action="append",
        default=[],
        help="refuse if this host is up and no attacker (or liar) is a member; may be repeated",
    )
    report.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    report.set_defaults(run=_report)


def _announcement(text: str) -> tuple[str, str]:
    """Whose profile a host announces: the attacker's or the liar's."""
    scenario, found, host = text.partition("=")
    if not found:
        return "attacker", text
    if scenario not in ("attacker", "liar"):
        raise argparse.ArgumentTypeError(f"{scenario!r} is announced by nobody: attacker or liar is")
    return scenario, host


def _init(arguments: argparse.Namespace) -> int:
    from desmr_node.errors import ConfigError
    from desmr_node.runtime.census import set_up

    scenario = arguments.scenario
    announced = dict(arguments.announced)
    if announced:
        found = _shows_up(announced, _ANNOUNCEMENT)
        if found is not None:
            if scenario not in ("original", found):
                raise ConfigError(
                    f"{announced[found]} is up, and the {scenario} scenario has no {found}: stop the one "
                    "(docker compose down), or leave out the other"
                )
            scenario = found
        elif scenario in announced:
            raise ConfigError(
                f"no {scenario} shows up as {announced[scenario]}: start it too "
                f"(docker compose --profile {scenario} up)"
            )
    folder = Path(arguments.folder)
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = set_up(folder, scenario, arguments.seed, admin=arguments.admin, replace=arguments.replace)
    except OSError as error:
        where = error.filename or folder
        raise ConfigError(f"{where} cannot be written ({error.strerror}): name another folder") from None
    state = "written" if fresh else "there already, and left as it is"
    print(f"{folder / 'network.toml'}: scenario {scenario}, seed {arguments.seed}: {state}")
    return 0


def _shows_up(announced: Mapping[str, str], patience: float) -> str | None:
    """The scenario whose host can be resolved, now or soon: containers start in no particular order."""
    deadline = time.monotonic() + patience
    while True:
        for scenario, host in announced.items():
            with suppress(OSError):
                if socket.getaddrinfo(host, None):
                    return scenario
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def _report(arguments: argparse.Namespace) -> int:
    from desmr_node.cli import FAILED, INCOMPLETE
    from desmr_node.cli.client import AdminClient
    from desmr_node.cli.divisions import Progress, outcome, show_outcome
    from desmr_node.config import load_network
    from desmr_node.errors import ConfigError
    from desmr_node.runtime.census import LIAR, scenario_of

    folder = Path(arguments.folder)
    if not (folder / "network.toml").exists():
        raise ConfigError(f"{folder} has no network.toml: `desmr census init {folder}` writes one")
    network = load_network(folder / "network.toml", environ={})
    scenario = scenario_of(network.network)
    late = _shows_up({k: host for k, host in arguments.announced if k not in network.ids}, 0.0)
    if late is not None:
        raise ConfigError(
            f"the {late} came after the network had been prepared for nine: stop all and start once more "
            f"(docker compose --profile {late} stop, then up)"
        )
    honest = [node for node in network.ids if node != LIAR]
    pattern = arguments.admin or str(folder / "{}" / "node.toml")
    with ExitStack() as stack:
        clients = {
            node: stack.enter_context(AdminClient(pattern.replace("{}", node), patience=5.0))
            for node in honest
        }
        with Progress(honest) as progress:
            statuses = _wait(clients, progress, arguments.timeout, arguments.grace)
        away = [node for node in clients if node not in statuses]
        lost = {name for status in statuses.values() for name in status.lost}
        failed = any(status.phase == "failed" for status in statuses.values())
        if not failed and not lost.issuperset(away):
            _say(f"{', '.join(away)} stays away: start it again")
            return FAILED
        found = outcome(statuses, clients)
    found |= {"scenario": scenario}
    if found["failed"]:
        return FAILED  # said while we waited for another
    if arguments.json:
        print(json.dumps(found))
    else:
        show_outcome(found)
    return INCOMPLETE if lost - {LIAR} else 0


def _wait(
    clients: "dict[str, AdminClient]", progress: "Progress", timeout: float, grace: float
) -> "dict[str, pb.Status]":
    """Look at the nodes until all have finished the same fit, or one has failed for good.

    A fit that failed, as one does when a node is restarted in the middle of it, is begun again as soon as
    every node is back.
    """
    from desmr_node.errors import DesmrError

    deadline, over = time.monotonic() + timeout, float("inf")
    told, attempts = 0, _ATTEMPTS
    news, patient = "", time.monotonic() + _SILENCE
    while True:
        statuses, now = _statuses(clients), time.monotonic()
        progress.show(statuses)
        complete = len(statuses) == len(clients)
        if complete and _all_finished(statuses):
            return statuses
        failed = [s for s in statuses.values() if s.phase == "failed"]
        if not failed and (complete or not _all_finished(statuses)):
            over = float("inf")
        else:
            over = min(over, now + grace)
        if failed:
            last = max(failed, key=lambda status: status.fit)
            if last.fit > told:
                told = last.fit
                _say(f"fit {last.fit} failed: {last.message}")
            if complete and attempts and all(s.phase in _RESTING for s in statuses.values()):
                attempts -= 1
                _say("every division is there: beginning another")
                with suppress(DesmrError):  # somebody was faster
                    next(iter(clients.values())).start()
                continue
        if now > over:
            return statuses
        if now > patient and (waiting := _waiting_for(clients, statuses)) != news:
            news = waiting
            if news:
                _say(news)
        if now > deadline:
            raise DesmrError(f"the fit was not over within {timeout:.0f} s: {_standing(clients, statuses)}")
        time.sleep(_PAUSE)


def _say(text: str) -> None:
    from desmr_node.cli import render

    print(render.plain(text), file=sys.stderr, flush=True)


def _statuses(clients: "dict[str, AdminClient]") -> "dict[str, pb.Status]":
    """Of those nodes that answer."""
    from desmr_node.cli.client import NodeUnreachable

    found = {}
    for node, client in clients.items():
        with suppress(NodeUnreachable):
            found[node] = client.status()
    return found


def _all_finished(statuses: "dict[str, pb.Status]") -> bool:
    """Done with the same fit, or started again after it was done."""
    done = bool(statuses) and all(
        s.phase == "done" or (s.phase == "idle" and s.fit > 0) for s in statuses.values()
    )
    return done and len({s.fit for s in statuses.values()}) == 1


def _waiting_for(clients: "dict[str, AdminClient]", statuses: "dict[str, pb.Status]") -> str:
    """Nodes that do not answer us, if the others wait for them."""
    away = [node for node in clients if node not in statuses]
    return f"waiting for {', '.join(away)}: it does not run, or not yet" if away else ""


def _standing(clients: "dict[str, AdminClient]", statuses: "dict[str, pb.Status]") -> str:
    """What every node is doing, in one line."""
    from desmr_node.cli import render

    away = [f"{node} does not answer" for node in clients if node not in statuses]
    return "; ".join([f"{node}: {render.doing(status)}" for node, status in statuses.items()] + away)
