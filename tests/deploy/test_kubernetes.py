"""The manifests against the API's schemas, against the network they stand for, and laid out as mounted."""

import copy
import ipaddress
import os
import runpy
import stat
from dataclasses import replace
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from desmr_node.config import load_network, load_node
from desmr_node.datasets.crime import BORDERS, DIVISIONS
from desmr_node.errors import ConfigError
from desmr_node.runtime.census import node_id
from desmr_node.runtime.daemon import identity_of
from desmr_node.runtime.setup import write_network

DEPLOY = Path(__file__).parents[2] / "deploy"
CENSUS = DEPLOY / "kubernetes" / "census.yaml"
EDGES = {frozenset((node_id(DIVISIONS[a]), node_id(DIVISIONS[b]))) for a, b in BORDERS}
IDS = sorted({end for edge in EDGES for end in edge})
#: The oldest API version that is still looked after, and the newest one whose schemas we have.
VERSIONS = ("1.31", kubernetes_validate.latest_version())

render = runpy.run_path(str(DEPLOY / "kubernetes" / "render.py"))
Site, manifests = render["Site"], render["manifests"]


@pytest.fixture(scope="module")
def site():
    return Site(load_network(DEPLOY / "network.toml", environ={}))


@pytest.fixture(scope="module")
def census(site):
    return list(manifests(site))


@pytest.fixture(scope="module")
def folder(site, tmp_path_factory):
    """What `desmr network init` writes."""
    path = tmp_path_factory.mktemp("k") / "nodes"
    write_network(site.network, path, requests=["mountain"])
    return path


def of_kind(documents, kind):
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}


def validate(documents):
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_committed_manifests_are_current(census):
    assert CENSUS.read_text(encoding="utf-8") == render["as_yaml"](census)
    assert list(yaml.safe_load_all(CENSUS.read_text(encoding="utf-8"))) == census
    assert of_kind(census, "Secret") == {}


# -- the schemas -----------------------------------------------------------------------------------------


def test_every_document_is_what_the_api_takes(census, site, folder):
    validate(census)
    validate(manifests(replace(site, keys=folder, elsewhere={"pacific": "203.0.113.0/28"})))


def _misspelt(documents):
    of_kind(documents, "StatefulSet")["pacific"]["spec"]["template"]["spec"]["securityContex"] = {}


def _of_the_wrong_type(documents):
    of_kind(documents, "Service")["pacific"]["spec"]["ports"][0]["port"] = "7100"


def _incomplete(documents):
    del of_kind(documents, "StatefulSet")["pacific"]["spec"]["template"]["spec"]["containers"][0]["name"]


def _out_of_place(documents):
    of_kind(documents, "NetworkPolicy")["pacific"]["spec"]["ingress"][0]["to"] = []


@pytest.mark.parametrize("spoil", [_misspelt, _of_the_wrong_type, _incomplete, _out_of_place])
def test_a_broken_manifest_is_found(census, spoil):
    documents = copy.deepcopy(census)
    spoil(documents)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(documents)


# -- who may talk to whom --------------------------------------------------------------------------------


def matches(selector, labels):
    return selector["matchLabels"].items() <= labels.items() if selector else True


def allowed(documents, direction, ends):
    """(pod, other pod) for each pair that a policy lets through at port 7100, by the pods' labels."""
    pods = {
        name: d["spec"]["template"]["metadata"]["labels"]
        for name, d in of_kind(documents, "StatefulSet").items()
    }
    pairs = set()
    for policy in of_kind(documents, "NetworkPolicy").values():
        chosen = [pod for pod, labels in pods.items() if matches(policy["spec"]["podSelector"], labels)]
        for rule in policy["spec"].get(direction, ()):
            if rule["ports"] != [{"protocol": "TCP", "port": 7100}]:
                continue
            for peer in rule[ends]:
                assert set(peer) == {"podSelector"}
                others = [other for other, labels in pods.items() if matches(peer["podSelector"], labels)]
                pairs |= {(pod, other) for pod in chosen for other in others}
    return pairs


def test_pods_reach_their_neighbours_and_nobody_else(census):
    both_ways = {(a, b) for edge in EDGES for a in edge for b in edge if a != b}
    assert len(both_ways) == 26
    assert allowed(census, "ingress", "from") == both_ways
    assert allowed(census, "egress", "to") == both_ways


def test_all_else_is_denied_but_name_lookups(census):
    policies = of_kind(census, "NetworkPolicy")
    denied = policies.pop("deny-all")["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert sorted(policies) == IDS
    for policy in policies.values():
        other = [rule for rule in policy["spec"]["egress"] if rule["ports"][0]["port"] != 7100]
        assert [sorted(rule) for rule in other] == [["ports", "to"]]
        assert other[0]["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
        assert other[0]["to"][0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
        assert all(rule["ports"][0]["port"] == 7100 for rule in policy["spec"]["ingress"])


def test_each_name_leads_to_one_pod(census):
    sets, services = of_kind(census, "StatefulSet"), of_kind(census, "Service")
    assert sorted(sets) == sorted(services) == IDS
    for name, service in services.items():
        spec = service["spec"]
        labelled = {other: d["spec"]["template"]["metadata"]["labels"] for other, d in sets.items()}
        assert [
            other for other, labels in labelled.items() if spec["selector"].items() <= labels.items()
        ] == [name]
        assert spec["clusterIP"] == "None"
        assert spec["publishNotReadyAddresses"]
        workload = sets[name]["spec"]
        assert workload["serviceName"] == name
        assert workload["replicas"] == 1
        assert matches(workload["selector"], labelled[name])
        (container,) = workload["template"]["spec"]["containers"]
        assert container["ports"] == [{"name": spec["ports"][0]["targetPort"], "containerPort": 7100}]


# -- what a pod may do -----------------------------------------------------------------------------------


def test_pods_are_restricted(census):
    labels = of_kind(census, "Namespace")["desmr"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert of_kind(census, "ServiceAccount")["desmr-node"]["automountServiceAccountToken"] is False
    for workload in of_kind(census, "StatefulSet").values():
        pod = workload["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        context = pod["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 10001, 10001)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["initContainers"] + pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert set(container["resources"]) == {"requests", "limits"}
        (container,) = pod["containers"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["exec"]["command"] == ["desmr", "health", "unix:/run/desmr/admin.sock"]
        writable = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
        assert writable == ["/var/lib/desmr", "/run/desmr"]


# -- what a node finds -----------------------------------------------------------------------------------


def mounted(root, documents, node):
    """The projected volume of a member's pod as the kubelet lays it out: links to links to files."""
    pod = of_kind(documents, "StatefulSet")[node]["spec"]["template"]["spec"]
    volume = next(v["projected"] for v in pod["volumes"] if v["name"] == "node")
    assert "/node" in [m["mountPath"] for m in pod["containers"][0]["volumeMounts"] if m["name"] == "node"]
    files = {}
    for source in volume["sources"]:
        if "configMap" in source:
            files |= of_kind(documents, "ConfigMap")[source["configMap"]["name"]]["data"]
        else:
            kept = of_kind(documents, "Secret")[source["secret"]["name"]]["stringData"]
            files |= {item["path"]: kept[item["key"]] for item in source["secret"]["items"]}
    folder = root / "node"
    (folder / "..2024").mkdir(parents=True)
    (folder / "..data").symlink_to("..2024")
    for name, text in files.items():
        path = folder / "..2024" / name
        path.write_text(text)
        path.chmod(volume["defaultMode"])
        (folder / name).symlink_to(f"..data/{name}")
    return folder


@pytest.mark.parametrize("node", ["pacific", "east-north-central"])
def test_a_node_finds_what_it_needs(site, folder, tmp_path, monkeypatch, node):
    documents = list(manifests(replace(site, keys=folder), [node]))
    here = mounted(tmp_path, documents, node)
    config = load_node(here / "node.toml", environ={})
    assert (config.node, config.network, config.listen) == (node, "crime-original", "0.0.0.0:7100")
    assert {n.id: n.address for n in config.neighbours} == {
        other: f"{other}:7100" for edge in EDGES if node in edge for other in edge - {node}
    }
    pod = of_kind(documents, "StatefulSet")[node]["spec"]["template"]["spec"]
    mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    for path in (config.data.file, config.data.holdout, config.state, Path(config.admin.listen[5:])):
        assert {str(parent) for parent in path.parents} & mounts
    waits = pod["initContainers"][0]["command"][-1]
    assert f"[ -r {config.data.file} ]" in waits
    assert f"[ -r {config.data.holdout} ]" in waits
    assert config.autostart
    # a Secret's files are root's and readable by the group; a process of the image's user accepts that
    found = os.stat(here / "node.key")
    assert stat.S_IMODE(found.st_mode) == 0o440
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: _as_roots(real(fd)))
    assert identity_of(config).node == node


def _as_roots(found):
    return os.stat_result([0 if k == 4 else value for k, value in enumerate(found)])


def test_keys_that_are_not_the_members_are_refused(site, folder, tmp_path):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "pacific").symlink_to(folder / "new-england")
    with pytest.raises(ConfigError, match="new-england"):
        list(manifests(replace(site, keys=tmp_path / "nodes"), ["pacific"]))
    with pytest.raises(ConfigError, match="name the folder that `desmr network init` wrote"):
        list(manifests(replace(site, keys=tmp_path), ["pacific"]))


def test_a_member_that_keeps_its_key_gets_no_secret(site, folder, capsys):
    documents = list(manifests(replace(site, keys=folder)))
    assert sorted(of_kind(documents, "Secret")) == sorted(f"{n}-keys" for n in IDS if n != "mountain")
    assert "mountain keeps its key to itself" in capsys.readouterr().err


# -- the command -----------------------------------------------------------------------------------------


def run(*arguments):
    return render["main"]([str(argument) for argument in arguments])


def test_one_member_for_its_own_cluster(census, capsys):
    assert run(DEPLOY / "network.toml", "--node", "pacific") == 0
    alone = list(yaml.safe_load_all(capsys.readouterr().out))
    assert sorted(of_kind(alone, "StatefulSet")) == ["pacific"]
    assert [document for document in census if document in alone] == alone  # nothing that all together lack
    assert run(DEPLOY / "network.toml", "--node", "atlantis") == 1
    assert "no node atlantis" in capsys.readouterr().err


def test_options_end_up_where_they_belong(capsys):
    options = (
        "--image",
        "registry.example/desmr:1",
        "--namespace",
        "clinics",
        "--storage",
        "5Gi",
        "--memory",
        "3Gi",
    )
    assert run(DEPLOY / "network.toml", "--node", "pacific", *options) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    validate(documents)
    assert {d["metadata"].get("namespace", "clinics") for d in documents} == {"clinics"}
    spec = of_kind(documents, "StatefulSet")["pacific"]["spec"]
    pod = spec["template"]["spec"]
    assert {c["image"] for c in pod["containers"] + pod["initContainers"]} == {"registry.example/desmr:1"}
    assert {c["spec"]["resources"]["requests"]["storage"] for c in spec["volumeClaimTemplates"]} == {"5Gi"}
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "3Gi"


@pytest.mark.parametrize(
    "option", [("--namespace", "A b"), ("--storage", "much"), ("--elsewhere", "pacific=there")]
)
def test_nonsense_is_refused(option, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(DEPLOY / "network.toml", *option)
    assert stopped.value.code == 2
    assert option[1] in capsys.readouterr().err


def test_a_file_with_keys_is_its_owners_alone(folder, tmp_path):
    out = tmp_path / "all.yaml"
    out.write_text("readable by all until now")
    out.chmod(0o644)
    before = os.umask(0)
    try:
        assert run(DEPLOY / "network.toml", folder, "--out", out) == 0
        assert run(DEPLOY / "network.toml", "--out", tmp_path / "bare.yaml") == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "PRIVATE KEY" in out.read_text()
    assert stat.S_IMODE((tmp_path / "bare.yaml").stat().st_mode) == 0o666
    assert "PRIVATE KEY" not in (tmp_path / "bare.yaml").read_text()
    assert [path.name for path in tmp_path.glob(".*")] == []


def clinics(tmp_path, **changes):
    """A network over several sites: south in the cluster, north elsewhere by name, west by its IP address."""
    nodes = {
        "south": {"address": "south:7100"},
        "north": {"address": "north.example:7200"},
        "west": {"address": "198.51.100.7:7300"},
        "nat": {},
    } | changes
    text = 'network = "clinics"\nedges = [["south", "north"], ["south", "west"], ["south", "nat"]]\n'
    text += '[data]\nresponse = "cost"\n'
    for node, entry in nodes.items():
        lines = {"data": f"/srv/{node}/rows.csv"} | entry
        text += f'[[nodes]]\nid = "{node}"\n' + "".join(f'{k} = "{v}"\n' for k, v in lines.items())
    (tmp_path / "clinics.toml").write_text(text)
    return Site(load_network(tmp_path / "clinics.toml", environ={}))


def test_neighbours_elsewhere_are_addresses(tmp_path):
    site = clinics(tmp_path)
    with pytest.raises(ConfigError, match=r"north is at north\.example.*--elsewhere north=CIDR"):
        list(manifests(site, ["south"]))
    places = {"north": "203.0.113.0/28", "nat": "192.0.2.1/32"}
    documents = list(manifests(replace(site, elsewhere=places), ["south"]))
    validate(documents)
    spec = of_kind(documents, "NetworkPolicy")["south"]["spec"]

    def blocks(rules, ends):
        found = [(rule[ends][0].get("ipBlock"), rule["ports"][0]["port"]) for rule in rules]
        return {(str(ipaddress.ip_network(block["cidr"])), port) for block, port in found if block}

    west = "198.51.100.7/32"
    assert blocks(spec["ingress"], "from") == {(cidr, 7100) for cidr in (*places.values(), west)}
    # a node that only dials out cannot be dialled
    assert blocks(spec["egress"], "to") == {("203.0.113.0/28", 7200), (west, 7300)}
    alone = list(manifests(replace(site, elsewhere=places), ["nat"]))
    validate(alone)
    assert "ports" not in of_kind(alone, "Service")["nat"]["spec"]
    assert of_kind(alone, "NetworkPolicy")["nat"]["spec"]["ingress"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"south": {"address": "127.0.0.1:7100"}}, "which no other pod reaches"),
        ({"south": {"address": "south:7100", "listen": "0.0.0.0:9"}}, "its Service maps no ports"),
        ({"south": {"address": "south:7100", "holdout": "/other/rows.csv"}}, "rename one"),
    ],
)
def test_a_network_that_cannot_run_here_is_refused(tmp_path, changes, said):
    site = replace(clinics(tmp_path, **changes), elsewhere={"north": "203.0.113.0/28"})
    with pytest.raises(ConfigError, match=said):
        list(manifests(site, ["south"]))


def test_names_that_kubernetes_does_not_take_are_refused(tmp_path):
    for name in ("9lives", "x" * 53):
        text = f'network = "n"\n[data]\nresponse = "y"\n[[nodes]]\nid = "{name}"\ndata = "rows.csv"\n'
        (tmp_path / "n.toml").write_text(text)
        with pytest.raises(ConfigError, match="cannot name a Service"):
            list(manifests(Site(load_network(tmp_path / "n.toml", environ={}))))
