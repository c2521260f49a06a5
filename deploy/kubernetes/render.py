"""Print the Kubernetes manifests of a network, or of those of its members that one cluster runs.

    python deploy/kubernetes/render.py NETWORK.toml [NODES_DIR] [--node ID ...]

Needs desmr-node and PyYAML. With NODES_DIR, the folder that `desmr network init` wrote, keys are part of the
output: pipe it into `kubectl apply -f -`, or write it with --out to a file for your eyes only.
"""

import argparse
import hashlib
import ipaddress
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import yaml
except ImportError:
    sys.exit("render.py: PyYAML is missing: pip install pyyaml")

from desmr_node.config import NetworkConfig, dump_toml, is_loopback, load_network, split_address
from desmr_node.errors import ConfigError, DesmrError
from desmr_node.transport import tls

Manifest = dict[str, Any]

USER = 10001  # of the image
#: Where a container finds its node: configuration and keys, rows, what it may write, its admin socket.
NODE, ROWS, STORE, RUN = "/node", "/rows", "/var/lib/desmr", "/run/desmr"
ADMIN = f"unix:{RUN}/admin.sock"
KEYS = {"ca": "ca.pem", "certificate": "node.pem", "key": "node.key"}
#: Pods of a StatefulSet carry a label of its name and eleven characters more.
_LONGEST_NAME = 52


@dataclass(frozen=True)
class Site:
    """What is the same for all members of one cluster."""

    network: NetworkConfig
    namespace: str = "desmr"
    image: str = "desmr-node:latest"
    storage: str = "1Gi"
    memory: str = "1Gi"
    #: Addresses of members that run elsewhere: a NetworkPolicy knows no host names.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    #: Where keys lie, a folder for each member; without it Secrets are only referred to.
    keys: Path | None = None


def manifests(site: Site, members: Sequence[str] = ()) -> Iterator[Manifest]:
    """Everything these members need, or all of them, in the order in which it can be applied."""
    for member in (*members, *site.elsewhere):
        site.network.node(member)  # raises, naming those there are
    yield _namespace(site)
    yield _service_account(site)
    yield _deny_all(site)
    for member in members or site.network.ids:
        _require_sense(site, member)
        yield _config_map(site, member)
        if site.keys is not None and _has_keys(site.keys / member):
            yield _secret(site, member, site.keys / member)
        yield _service(site, member)
        yield _policy(site, member)
        yield _stateful_set(site, member)


def node_toml(site: Site, member: str) -> str:
    """The member's node.toml, with paths as its container sees them."""
    rows = _rows(site.network, member)
    document = site.network.node_document(
        member, data=rows["data"], holdout=rows.get("holdout"), state=f"{STORE}/state", tls=KEYS
    )
    return dump_toml(document | {"admin": {"listen": ADMIN}})


# -- what all members share ------------------------------------------------------------------------------


def _manifest(api: str, kind: str, site: Site, name: str, member: str | None = None, **body: Any) -> Manifest:
    metadata = {"name": name, "namespace": site.namespace, "labels": _labels(site, member)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


def _labels(site: Site, member: str | None = None) -> dict[str, str]:
    labels = {"app.kubernetes.io/name": "desmr-node", "app.kubernetes.io/part-of": site.network.network}
    return labels if member is None else labels | {"app.kubernetes.io/instance": member}


def _namespace(site: Site) -> Manifest:
    document = _manifest("v1", "Namespace", site, site.namespace)
    del document["metadata"]["namespace"]
    for what in ("enforce", "audit", "warn"):
        document["metadata"]["labels"][f"pod-security.kubernetes.io/{what}"] = "restricted"
    return document


def _service_account(site: Site) -> Manifest:
    return _manifest("v1", "ServiceAccount", site, "desmr-node", automountServiceAccountToken=False)


def _deny_all(site: Site) -> Manifest:
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", site, "deny-all", spec=spec)


# -- one member ------------------------------------------------------------------------------------------


def _config_map(site: Site, member: str) -> Manifest:
    data = {"node.toml": node_toml(site, member)}
    return _manifest("v1", "ConfigMap", site, f"{member}-config", member, data=data)


def _secret(site: Site, member: str, folder: Path) -> Manifest:
    paths = {what: folder / name for what, name in KEYS.items()}
    # raises unless the node will take them
    tls.Identity.load(paths["ca"], paths["certificate"], paths["key"], member, site.network.network)
    data = {path.name: path.read_text(encoding="ascii") for path in paths.values()}
    return _manifest("v1", "Secret", site, f"{member}-keys", member, type="Opaque", stringData=data)


def _service(site: Site, member: str) -> Manifest:
    """The name that neighbours dial. They must meet before any of them can be called ready."""
    port = _port(site.network, member)
    spec: Manifest = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _labels(site, member),
    }
    if port is not None:
        spec["ports"] = [{"name": "peers", "port": port, "targetPort": "peers"}]
    return _manifest("v1", "Service", site, member, member, spec=spec)


def _policy(site: Site, member: str) -> Manifest:
    """Its edges, both ways since the end that waits looks at the other as well, and the cluster's DNS."""
    network = site.network
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    lookups = {"to": [dns], "ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}
    ingress, egress = [], [lookups]
    own = _port(network, member)
    for neighbour in network.neighbours_of(member):
        peer = _peer(site, neighbour)
        if own is not None:
            ingress.append({"from": [peer], "ports": [{"protocol": "TCP", "port": own}]})
        address = network.node(neighbour).address
        if address is not None:
            ports = [{"protocol": "TCP", "port": split_address(address)[1]}]
            egress.append({"to": [peer], "ports": ports})
    spec = {
        "podSelector": {"matchLabels": _labels(site, member)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", site, member, member, spec=spec)


def _peer(site: Site, member: str) -> Manifest:
    """Where a policy finds a neighbour: a pod beside us, or addresses elsewhere."""
    if member in site.elsewhere:
        return {"ipBlock": {"cidr": site.elsewhere[member]}}
    address = site.network.node(member).address
    host = member if address is None else split_address(address)[0]
    try:
        return {"ipBlock": {"cidr": str(ipaddress.ip_network(host))}}
    except ValueError:
        if not _is_beside_us(site, member):
            raise ConfigError(
                f"{member} is at {host}, outside namespace {site.namespace}, and a NetworkPolicy knows no "
                f"host names: say where that is with --elsewhere {member}=CIDR"
            ) from None
    return {"podSelector": {"matchLabels": _labels(site, member)}}


def _stateful_set(site: Site, member: str) -> Manifest:
    labels = _labels(site, member)
    digest = hashlib.sha256(node_toml(site, member).encode()).hexdigest()
    pod = {
        # a node reads its configuration when it starts: a new one is a new pod
        "metadata": {"labels": labels, "annotations": {"checksum/config": digest}},
        "spec": _pod(site, member),
    }
    spec = {
        "serviceName": member,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": pod,
        "volumeClaimTemplates": [_claim(site, "rows"), _claim(site, "state")],
    }
    return _manifest("apps/v1", "StatefulSet", site, member, member, spec=spec)


def _claim(site: Site, name: str) -> Manifest:
    resources = {"requests": {"storage": site.storage}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


def _pod(site: Site, member: str) -> Manifest:
    files = [
        {"configMap": {"name": f"{member}-config"}},
        {"secret": {"name": f"{member}-keys", "items": [{"key": k, "path": k} for k in KEYS.values()]}},
    ]
    return {
        "serviceAccountName": "desmr-node",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables of a Service called desmr would pass for settings
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_wait_for_rows(site, member)],
        "containers": [_container(site, member)],
        "volumes": [
            # root's, and readable by the node's group: the key as the node demands it
            {"name": "node", "projected": {"defaultMode": 0o440, "sources": files}},
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }


def _wait_for_rows(site: Site, member: str) -> Manifest:
    """The pod stays here, where `kubectl cp` reaches it, until its rows are there."""
    there = " && ".join(f"[ -r {shlex.quote(path)} ]" for path in _rows(site.network, member).values())
    script = f"trap 'exit 1' TERM\nuntil {there}; do sleep 2 & wait $!; done\n"
    return {
        "name": "rows",
        "image": site.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "securityContext": _unprivileged(),
        "resources": _resources("50m", "64Mi", "64Mi"),
        "volumeMounts": [{"name": "rows", "mountPath": ROWS}],
    }


def _container(site: Site, member: str) -> Manifest:
    health = {"exec": {"command": ["desmr", "health", ADMIN]}, "timeoutSeconds": 10}
    container = {
        "name": "node",
        "image": site.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["desmr-node", "--config", f"{NODE}/node.toml"],
        "securityContext": _unprivileged(),
        "resources": _resources("250m", "256Mi", site.memory),
        # large tables take their time to be read: ten minutes
        "startupProbe": health | {"periodSeconds": 5, "failureThreshold": 120},
        "readinessProbe": health | {"periodSeconds": 15},
        # a false alarm would cost the whole network its fit
        "livenessProbe": health | {"periodSeconds": 30, "failureThreshold": 4},
        "volumeMounts": [
            {"name": "node", "mountPath": NODE, "readOnly": True},
            {"name": "rows", "mountPath": ROWS, "readOnly": True},
            {"name": "state", "mountPath": STORE},
            {"name": "run", "mountPath": RUN},
        ],
    }
    port = _port(site.network, member)
    if port is not None:
        container["ports"] = [{"name": "peers", "containerPort": port}]
    return container


def _unprivileged() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _resources(cpu: str, memory: str, most: str) -> Manifest:
    """One core computes, and probes start a process of their own."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "2", "memory": most}}


# -- what a network file must say for this ---------------------------------------------------------------


def _rows(network: NetworkConfig, member: str) -> dict[str, str]:
    """The member's files as its container sees them: their names count, their folders do not."""
    entry = network.node(member)
    names = {"data": entry.data.name} | ({"holdout": entry.holdout.name} if entry.holdout else {})
    if len(set(names.values())) < len(names):
        raise ConfigError(
            f"{member}: data and holdout are both called {entry.data.name} and share a volume: rename one"
        )
    return {key: f"{ROWS}/{name}" for key, name in names.items()}


def _port(network: NetworkConfig, member: str) -> int | None:
    listen = network.node(member).listen
    return None if listen is None else split_address(listen)[1]


def _is_beside_us(site: Site, member: str) -> bool:
    """Whether neighbours dial the member's Service."""
    address = site.network.node(member).address
    host = member if address is None else split_address(address)[0]
    return (
        re.fullmatch(rf"{re.escape(member)}(\.{re.escape(site.namespace)}(\.svc(\..+)?)?)?", host) is not None
    )


def _require_sense(site: Site, member: str) -> None:
    entry = site.network.node(member)
    if not re.fullmatch(rf"[a-z][a-z0-9-]{{0,{_LONGEST_NAME - 1}}}", member):
        raise ConfigError(
            f"{member} cannot name a Service and a StatefulSet: call the node by a letter and at most "
            f"{_LONGEST_NAME - 1} letters, digits and hyphens"
        )
    if entry.listen is not None and is_loopback(entry.listen):
        raise ConfigError(f"{member} listens at {entry.listen}, which no other pod reaches: write 0.0.0.0")
    if entry.address is not None and _is_beside_us(site, member):
        dialled, port = split_address(entry.address)[1], _port(site.network, member)
        if dialled != port:
            raise ConfigError(
                f"{member} is dialled at port {dialled} and listens at {port}, and its Service maps no "
                "ports: write the same in both"
            )


def _has_keys(folder: Path) -> bool:
    """False if the member makes its own key (`desmr network init --request`)."""
    if (folder / KEYS["key"]).exists() or (folder / KEYS["certificate"]).exists():
        return True
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist: name the folder that `desmr network init` wrote")
    print(f"{folder.name} keeps its key to itself: no Secret for it", file=sys.stderr)
    return False


# -- as text ---------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Every document stands alone, and a file in it looks like a file."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(documents: Sequence[Manifest]) -> str:
    """The manifests as a stream of YAML documents."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=110)


def write(path: Path, text: str, *, private: bool) -> None:
    """Put a file in its place in one step; one with keys is its owner's alone from the first instant."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(
        fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("network", metavar="NETWORK.toml", help="the network, as for `desmr network init`")
    add("keys", metavar="NODES_DIR", nargs="?", help="what `desmr network init` wrote: adds the Secrets")
    add("--node", metavar="ID", action="append", default=[], help="only this member (may be repeated)")
    add("--image", default=Site.image, help="the image to run (%(default)s)")
    add("--namespace", metavar="NS", type=_name, default=Site.namespace, help="(%(default)s)")
    add("--storage", type=_quantity, default=Site.storage, help="size of each volume (%(default)s)")
    add("--memory", type=_quantity, default=Site.memory, help="most memory of a node (%(default)s)")
    add(
        "--elsewhere",
        metavar="ID=CIDR",
        type=_place,
        action="append",
        default=[],
        help="a neighbour that is no pod of this namespace, and its addresses (may be repeated)",
    )
    add("--out", metavar="FILE", type=Path, help="write there instead; mode 0600 if keys are in it")
    return parser.parse_args(argv)


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name: lower-case letters, digits and hyphens")
    return text


def _quantity(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*([KMGTPE]i|[kMGTPE])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500Mi or 2Gi")
    return text


def _place(text: str) -> tuple[str, str]:
    node, _, cidr = text.partition("=")
    try:
        return node, str(ipaddress.ip_network(cidr))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=CIDR ({error})") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Render; the exit code."""
    options = _options(argv)
    try:
        site = Site(
            load_network(options.network),
            options.namespace,
            options.image,
            options.storage,
            options.memory,
            dict(options.elsewhere),
            Path(options.keys) if options.keys else None,
        )
        documents = list(manifests(site, list(dict.fromkeys(options.node))))
        if options.out is None:
            print(as_yaml(documents), end="")
        else:
            write(options.out, as_yaml(documents), private=any(d["kind"] == "Secret" for d in documents))
    except (DesmrError, OSError) as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
