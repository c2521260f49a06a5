"""The paper's nine census divisions as files: a table of private rows for each, and the network file."""

import csv
import fcntl
import random
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from desmr_node.config import dump_toml, load_network
from desmr_node.core.arrays import Matrix, Vector
from desmr_node.datasets.crime import DIVISIONS, Scenario, crime_network, load_crime
from desmr_node.errors import ConfigError
from desmr_node.runtime.setup import AUTHORITY, write_network
from desmr_node.transport import tls

RESPONSE = "violentPerPop"
ATTACKER, LIAR = "attacker", "liar"
#: RMSE and MAE of the paper's deSMR and deLR, in standard deviations of the response, by scenario.
PAPER = {
    "deSMR": {"original": (0.639, 0.392), "balanced": (0.672, 0.434), "attacker": (0.674, 0.432)},
    "deLR": {"original": (0.610, 0.395), "balanced": (0.887, 0.745), "attacker": (0.871, 0.749)},
}
#: The scenarios: the paper's, and what is to be compared with the paper's original one.
SCENARIOS = (*PAPER["deSMR"], LIAR)
#: What the demonstration fits: the l1 penalty predicts best on these data (docs/results.md).
FIT = {"penalty": "l1"}
#: What is added to it where a member may lie.
WARY = {"edge_force": "auto"}
#: The port every node listens on where each has a host of its own.
PORT = 7100
#: Where ports on loopback are looked for, and how many are tried.
_FIRST_PORT, _TRIALS = 15_000, 4_000
_PREFIX = "crime-"


def node_id(division: str) -> str:
    """A division's name as a node id."""
    return division.lower().replace(" ", "-")


#: All folders that the network's files may lie in: one for each node, and the authority's.
FOLDERS = (*map(node_id, DIVISIONS), ATTACKER, LIAR, AUTHORITY)


def scenario_of(network: str) -> str:
    """The scenario of a network that `write_census` named."""
    scenario = network.removeprefix(_PREFIX)
    if network == scenario or scenario not in SCENARIOS:
        raise ConfigError(
            f"network {network!r} is none that `desmr census init` made: name the folder of such a one"
        )
    return scenario


def write_census(
    folder: Path, scenario: Scenario, seed: int, *, hosts: bool = False, admin: str | None = None
) -> Path:
    """Split the crime table 80/20 into private files and write network.toml beside them; its path.

    The "attacker" scenario has a tenth node, joined to all nine, with nothing but injected rows; that of the
    "liar" is to be run by `runtime.liar`, and the others look out for it. Every node is at a free port of
    this machine or, with ``hosts``, at a host called like it, such as a container.
    """
    network = crime_network(scenario, np.random.default_rng(seed))
    features = load_crime().features
    tenth = LIAR if scenario == LIAR else ATTACKER
    ids = [node_id(name) for name in DIVISIONS] + [tenth] * (len(network.datasets) - len(DIVISIONS))
    X_test, y_test = network.test
    addresses = [f"{name}:{PORT}" for name in ids] if hosts else _loopback(len(ids))
    nodes = []
    for j, name in enumerate(ids):
        node: dict[str, Any] = {"id": name, "address": addresses[j], "admin": admin}
        node["data"] = f"{name}/rows.csv"
        _write_table(folder / node["data"], *network.datasets[j], features)
        held_out = network.test_division == j
        if held_out.any():
            node["holdout"] = f"{name}/holdout.csv"
            _write_table(folder / node["holdout"], X_test[held_out], y_test[held_out], features)
        nodes.append(node)
    document = {
        "network": f"{_PREFIX}{scenario}",
        "edges": [[ids[a], ids[b]] for a, b in network.edges],
        "autostart": True,
        "fit": {**FIT, **(WARY if scenario == LIAR else {}), "seed": seed},
        "data": {"response": RESPONSE},
        "nodes": nodes,
    }
    path = folder / "network.toml"
    draft = path.with_suffix(".new")
    draft.write_text(dump_toml(document), encoding="utf-8")
    return draft.replace(path)  # whole, or not there


def set_up(
    folder: Path, scenario: Scenario, seed: int, *, admin: str | None = None, replace: bool = False
) -> bool:
    """Everything the census network needs on hosts of its own, keys included; False if it was there already.

    Another scenario or seed in the folder is refused or, with ``replace``, cleared away: it is another
    network, whose results would pass for this one's.
    """
    found = folder / "network.toml"
    _require_ours(folder)
    if found.exists():
        old = load_network(found, environ={})
        same = (old.network, old.seed) == (f"{_PREFIX}{scenario}", seed)
        whole = all((folder / node / "node.toml").exists() for node in old.ids)
        if same and whole and {node.admin for node in old.nodes} == {admin}:
            return False
        if not replace:
            raise ConfigError(
                f"{folder} holds {'' if whole else 'part of '}network {old.network} with seed {old.seed}: "
                "name another folder, or clear it with --replace (keys, rows and results)"
            )
    if replace:
        running = [name for name in FOLDERS if _in_use(folder / name / "state" / "lock")]
        if running:
            raise ConfigError(
                f"another network than this one is running in {folder} ({', '.join(running)}): stop it "
                "first (docker compose --profile attacker --profile liar down)"
            )
        found.unlink(missing_ok=True)
        for name in FOLDERS:
            _empty(folder / name)
    write_network(
        load_network(write_census(folder, scenario, seed, hosts=True, admin=admin), environ={}), folder
    )
    return True


def _require_ours(folder: Path) -> None:
    """Refuse a folder with another network than the census divisions': nothing of it may be cleared away."""
    networks = set()
    if (folder / "network.toml").exists():
        networks.add(load_network(folder / "network.toml", environ={}).network)
    if (folder / AUTHORITY / "ca.pem").exists():
        networks.add(tls.Authority.load(folder / AUTHORITY).network)
    for network in networks:
        scenario_of(network)


def _in_use(lock: Path) -> bool:
    """Whether a daemon, perhaps in another container, holds its state folder."""
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _empty(folder: Path) -> None:
    """Remove what is in a folder, not the folder: it may be a volume."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_table(path: Path, X: Matrix, y: Vector, features: tuple[str, ...]) -> None:
    """Doubles as Python prints them: reading them gives the same bits."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*features, RESPONSE])
        writer.writerows(map(list, np.column_stack([X, y]).tolist()))


def _loopback(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on just now, all different.

    They lie below those the system gives to outgoing connections: one of these would otherwise be taken, now
    and then, before its node listens. Drawn at random, since others may be looking for some as well.
    """
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(range(_FIRST_PORT, _outgoing_ports()), _TRIALS):
            trial = held.enter_context(socket.socket())
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise ConfigError(f"no {count} free ports on 127.0.0.1: stop something, or try again")


def _outgoing_ports() -> int:
    """The first port of those for outgoing connections."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 0
    return first if first >= _FIRST_PORT + _TRIALS else 32_768
