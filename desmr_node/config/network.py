"""NETWORK.toml: all members of a network and their edges, from which each node's own file is made."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from desmr_node.config.addresses import Admin, Dial, File, Label, Listen, is_loopback, split_address
from desmr_node.config.mistakes import Loc, RefusedError, nearest, shown
from desmr_node.config.tables import ColumnsConfig, DataConfig, FrozenTable, SharedConfig
from desmr_node.config.writing import plain
from desmr_node.core.graph import Graph
from desmr_node.errors import ConfigError


class NetworkNodeConfig(FrozenTable):
    """One node of a network file."""

    id: Label = Field(description="the node's id", examples=['id = "pacific"'])
    address: Dial | None = Field(
        None, description='"host:port" the others dial; left out if the node only dials out'
    )
    listen: Listen | None = Field(
        None,
        validate_default=True,
        description="where it listens; left out: the port of `address` on every interface, or `address` "
        "itself if that is loopback",
    )
    admin: Admin | None = Field(
        None, description='where `desmr` reaches it: "unix:path", or "host:port" on loopback'
    )
    metrics: Listen | None = Field(None, description='"host:port" of its metrics page')
    data: File = Field(description="its rows", examples=['data = "pacific.csv"'])
    holdout: File | None = Field(None, description="its rows for evaluation only")

    @field_validator("listen")
    @classmethod
    def _listens_where_it_is_dialled(cls, listen: str | None, info: ValidationInfo) -> str | None:
        address = info.data.get("address")
        if listen is not None or address is None or is_loopback(address):
            return listen or address
        host, port = split_address(address)
        return f"[::]:{port}" if ":" in host else f"0.0.0.0:{port}"

    @field_validator("admin")
    @classmethod
    def _admin_stays_on_its_machine(cls, admin: str | None) -> str | None:
        if admin is not None and not is_loopback(admin):
            raise ValueError("other machines can reach it; write a unix socket or a loopback address")
        return admin


class NetworkConfig(SharedConfig):
    """A whole network: NETWORK.toml."""

    data: ColumnsConfig = Field(
        description="which columns are fitted", examples=["a [data] table with response"]
    )
    edges: tuple[tuple[str, str], ...] = Field(
        (),
        description="pairs of node ids that talk to each other",
        examples=['pairs of node ids, edges = [["a", "b"], ["b", "c"]]'],
    )
    nodes: tuple[NetworkNodeConfig, ...] = Field(
        min_length=1, description="the members", examples=["a [[nodes]] table for each node"]
    )

    @property
    def ids(self) -> tuple[str, ...]:
        """All node ids, sorted."""
        return tuple(sorted(node.id for node in self.nodes))

    def node(self, node_id: str) -> NetworkNodeConfig:
        """The entry of one node."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise ConfigError(
            f"network {self.network} has no node {node_id}: its nodes are {', '.join(self.ids)}"
        )

    def neighbours_of(self, node_id: str) -> tuple[str, ...]:
        """Ids of a node's neighbours, sorted."""
        ends = (edge for edge in self.edges if node_id in edge)
        return tuple(sorted({b if a == node_id else a for a, b in ends}))

    def graph(self) -> Graph:
        """The graph over the ids in sorted order."""
        position = {name: j for j, name in enumerate(self.ids)}
        return Graph.from_edges(len(position), [(position[a], position[b]) for a, b in self.edges])

    def data_of(self, node_id: str) -> DataConfig:
        """One node's files with the columns all share."""
        node = self.node(node_id)
        return DataConfig(
            response=self.data.response, features=self.data.features, file=node.data, holdout=node.holdout
        )

    def node_document(
        self,
        node_id: str,
        *,
        data: str | Path | None = None,
        holdout: str | Path | None = None,
        state: str | Path = "state",
        tls: Mapping[str, str | Path] | None = None,
        insecure: bool = False,
    ) -> dict[str, Any]:
        """What belongs in the node.toml of one node: plain values, ready for `dump_toml`.

        `data` and `holdout` default to the paths of the network file; `tls` maps ca, certificate and key.
        """
        node = self.node(node_id)
        document: dict[str, Any] = {
            "network": self.network,
            "node": node.id,
            "listen": node.listen,
            "insecure": True if insecure else None,
            "patience": self.patience if "patience" in self.model_fields_set else None,
            "autostart": True if self.autostart else None,
            "state": state,
            "data": {
                "file": node.data if data is None else data,
                "holdout": node.holdout if holdout is None else holdout,
                "response": self.data.response,
                "features": self.data.features,
            },
            "fit": self.fit.model_dump(exclude_unset=True)
            | ({"seed": self.seed} if "seed" in self.model_fields_set else {}),
            "floors": self.floors.model_dump(exclude_unset=True),
            "tls": dict(tls or {}),
            "admin": {"listen": node.admin},
            "metrics": {"listen": node.metrics},
            "log": self.log.model_dump(exclude_unset=True),
            "neighbours": [self._neighbour_document(node, other) for other in self.neighbours_of(node_id)],
        }
        if "lambda_" in document["fit"]:
            document["fit"]["lambda"] = document["fit"].pop("lambda_")
        written: dict[str, Any] = plain(document)
        return written

    def _neighbour_document(self, node: NetworkNodeConfig, other_id: str) -> dict[str, Any]:
        other = self.node(other_id)
        # A node that listens where nobody can reach it must dial even if its id is the larger one.
        must_dial = node.address is None and node.listen is not None
        return {"id": other.id, "address": other.address, "dial": "always" if must_dial else None}

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        mistakes = [*self._repeated(), *self._bad_edges()]
        if not mistakes:
            mistakes = list(self._parts())
        RefusedError.unless_none(mistakes)
        return self

    def _repeated(self) -> Iterator[tuple[Loc, str]]:
        for key in ("id", "address"):
            seen: dict[str, int] = {}
            for k, node in enumerate(self.nodes):
                value = getattr(node, key)
                if value is not None and seen.setdefault(value, k) != k:
                    yield (
                        ("nodes", k, key),
                        f"is {shown(value)}, as in nodes[{seen[value]}]: give each node its own {key}",
                    )

    def _bad_edges(self) -> Iterator[tuple[Loc, str]]:
        nodes = {node.id: node for node in self.nodes}
        for k, (a, b) in enumerate(self.edges):
            strangers = [end for end in (a, b) if end not in nodes]
            for end in dict.fromkeys(strangers):
                yield ("edges", k), f"names {shown(end)}, which is no node: {nearest(end, nodes)}"
            if a == b:
                yield ("edges", k), f"joins {shown(a)} to itself: name two different nodes or remove it"
            elif not strangers and nodes[a].address is None and nodes[b].address is None:
                yield (
                    ("edges", k),
                    f"joins {shown(a)} and {shown(b)}, neither of which has an address: "
                    "give one of them the address the other shall dial",
                )

    def _parts(self) -> Iterator[tuple[Loc, str]]:
        left = set(self.ids)
        parts = []
        while left:
            part, fresh = set[str](), {min(left)}
            while fresh:
                part |= fresh
                fresh = {other for name in fresh for other in self.neighbours_of(name)} - part
            left -= part
            parts.append(", ".join(sorted(part)))
        if len(parts) > 1:
            listed = " | ".join(parts)
            yield ("edges",), f"leave the network in {len(parts)} parts ({listed}): add an edge between them"
