"""The nine divisions as containers: every scenario, who reaches whom, and a division killed in mid-fit."""

import json
import re
import time

import pytest
import yaml

from benchmarks.engine import PROJECT, SLOW, Project, compose_commands, docker
from desmr_node.datasets.crime import BORDERS, DIVISIONS
from desmr_node.runtime.census import ATTACKER, LIAR, PAPER, PORT, node_id

NODES = [node_id(name) for name in DIVISIONS]
EDGES = {frozenset((NODES[a], NODES[b])) for a, b in BORDERS}
#: Seconds from `up` to the end of the report, the image being built.
SLOWEST = 180.0
#: What makes the fit of slow.yml slow.
SLOWLY = yaml.safe_load(SLOW.read_text())["x-slow"]["environment"]


def up(project):
    """Bring it up and let the report come to its end; what it said."""
    began = time.monotonic()
    project.compose("up", "-d", "--no-build")
    code, said = project.wait_for_report()
    assert code == 0, said
    assert time.monotonic() - began < SLOWEST
    return said


def require_report(said, scenario):
    table = re.search(
        rf"scenario {scenario} .*\nthis fit +(\S+) +(\S+) +(\d+)\npaper, deSMR +(\S+) +(\S+)", said
    )
    assert table, said
    rmse, mae, variables, *paper = table.groups()
    assert tuple(map(float, paper)) == PAPER["deSMR"].get(scenario, PAPER["deSMR"]["original"])
    assert float(rmse) < float(paper[0])
    assert float(mae) < float(paper[1])
    assert 5 <= int(variables) <= 60
    assert "9 divisions agree on lambda and variables" in said


def test_every_scenario_prints_the_report_and_ends_like_its_simulation(project):
    """Original first, and a second `up` that finds everything done; then who reaches whom."""
    network = project()
    require_report(up(network), "original")
    assert network.same_bits(NODES)
    again = up(network)
    require_report(again, "original")
    assert "there already" in docker("logs", network.container("prepare")).stdout
    require_isolation(network)
    require_one_scenario_at_a_time(network)


def require_isolation(network):
    """From inside each division: neighbours can be reached, nobody else, and no foreign volume is there."""
    inspected = {node: json.loads(docker("inspect", network.container(node)).stdout)[0] for node in NODES}
    addresses = {
        node: [n["IPAddress"] for n in found["NetworkSettings"]["Networks"].values()]
        for node, found in inspected.items()
    }
    for node in ("pacific", "mountain", "east-north-central"):
        others = {name: [name, *addresses[name]] for name in NODES if name != node}
        reached = network.execute(node, "python", "-c", _KNOCK, json.dumps(others), str(PORT)).stdout
        reached = {name: set(hosts) for name, hosts in json.loads(reached).items()}
        neighbours = {next(iter(edge - {node})) for edge in EDGES if node in edge}
        assert {name for name, hosts in reached.items() if name in hosts} == neighbours
        # By number as well, whatever the names say: one address of a neighbour, none of anybody else.
        assert {name for name, hosts in reached.items() if hosts - {name}} == neighbours
        assert all(len(hosts - {name}) == 1 for name, hosts in reached.items() if name in neighbours)
        out = network.execute(node, "python", "-c", _KNOCK, json.dumps({"x": ["192.0.2.1"]}), "443").stdout
        assert json.loads(out) == {"x": []}
    volumes = {node: {m["Name"] for m in found["Mounts"]} for node, found in inspected.items()}
    assert volumes == {node: {f"{PROJECT}_{node}", f"{PROJECT}_{node}-admin"} for node in NODES}
    files = network.execute("pacific", "find", "/node", "/admin", "-type", "f").stdout
    assert "/node/rows.csv" in files
    assert not any(name in files for name in NODES if name != "pacific")
    key = network.execute("pacific", "stat", "-c", "%a %u", "/node/node.key").stdout.split()
    assert key == ["600", "10001"]
    for node, found in inspected.items():
        assert found["HostConfig"]["ReadonlyRootfs"], node
        assert found["Config"]["User"] == "10001:10001", node
        assert found["HostConfig"]["Memory"] > 0, node
    report = json.loads(docker("inspect", network.container("report")).stdout)[0]
    held = {m["Name"] for m in report["Mounts"]}
    assert not held & {f"{PROJECT}_{node}" for node in (*NODES, ATTACKER, "authority")}


#: Which of several hosts' names and addresses take a connection, all tried at once.
_KNOCK = """
import concurrent.futures, json, socket, sys
hosts, port = json.loads(sys.argv[1]), int(sys.argv[2])
def knock(host):
    try:
        socket.create_connection((host, port), timeout=2).close()
        return True
    except OSError:
        return False
with concurrent.futures.ThreadPoolExecutor(50) as pool:
    answers = {name: pool.map(knock, each) for name, each in hosts.items()}
print(json.dumps({name: [h for h, yes in zip(hosts[name], each) if yes] for name, each in answers.items()}))
"""


def require_one_scenario_at_a_time(network):
    """Another scenario over a running network: refused, or, where Compose stops the divisions first, done."""
    network.environ["SCENARIO"] = "balanced"
    if network.compose("up", "-d", "--no-build", check=False).returncode == 0:
        code, said = network.wait_for_report()
        assert code == 0, said
        require_report(said, "balanced")
        assert network.same_bits(NODES)
    else:
        assert "stop it" in docker("logs", network.container("prepare")).stderr
        assert network.status("pacific")["phase"] in ("done", "idle")


def test_the_balanced_scenario(project):
    network = project(SCENARIO="balanced")
    require_report(up(network), "balanced")
    assert network.same_bits(NODES)


def test_the_attacker_joins_all_nine(project):
    network = project(profile="attacker")
    require_report(up(network), "attacker")
    assert network.same_bits([*NODES, ATTACKER])
    assert len(network.status(ATTACKER)["peers"]) == len(NODES)


def test_a_liar_that_joins_all_nine_is_left_out(project):
    """The nine end as if it had never been there."""
    network = project(profile="liar")
    said = up(network)
    require_report(said, "liar")
    assert "WITHOUT liar, which seemed to lie and was left out" in said
    results = {node: network.result(node) for node in NODES}
    assert {tuple(result["left_out"]) for result in results.values()} == {(LIAR,)}
    assert {tuple(result["members"]) for result in results.values()} == {tuple(sorted(NODES))}
    assert len({result["lambda"] for result in results.values()}) == 1


@pytest.mark.parametrize("victim", ["pacific", "east-north-central"])
def test_a_division_killed_in_mid_fit_and_started_again(project, victim):
    """It takes its place up again, and the fit ends with the undisturbed bits."""
    network = project(overlay=SLOW)
    network.compose("up", "-d", "--no-build")
    network.until("mountain", lambda s: s["phase"] == "exchanging")
    docker("kill", network.container(victim))
    docker("start", network.container(victim))
    code, said = network.wait_for_report()
    assert code == 0, said
    assert "failed" not in said
    assert "back in fit 1" in docker("logs", network.container(victim)).stderr
    require_report(said, "original")
    assert network.same_bits(NODES, **SLOWLY)


def test_every_compose_understands_the_file(image):
    for command in compose_commands():
        for tenth in (ATTACKER, LIAR):
            network = Project(image, profile=tenth, command=command)
            require_networks_to_be_edges(yaml.safe_load(network.compose("config").stdout), tenth)


def require_networks_to_be_edges(document, tenth):
    other = LIAR if tenth == ATTACKER else ATTACKER
    services = {name: each for name, each in document["services"].items() if name != other}
    assert {*NODES, tenth, "prepare", "report"} <= services.keys()
    ends = {}
    for service, settings in services.items():
        for network in settings.get("networks", {}):
            ends.setdefault(network, set()).add(service)
    assert all(document["networks"][name]["internal"] for name in ends)
    pairs = {
        frozenset(pair)
        for name, pair in ends.items()
        if name != "preparation" and not name.endswith(f"--{other}")
    }
    assert pairs == EDGES | {frozenset((node, tenth)) for node in NODES}
    assert not ends["preparation"] & {*NODES, tenth}
