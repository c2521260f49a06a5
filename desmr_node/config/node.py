"""node.toml: everything one node is told, and whether it can work and is safe."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator

from desmr_node.config.addresses import File, Label, Listen, is_loopback, require_short_socket_path
from desmr_node.config.mistakes import Loc, RefusedError, shown
from desmr_node.config.tables import (
    AdminConfig,
    DataConfig,
    MetricsConfig,
    NeighbourConfig,
    SharedConfig,
    TlsConfig,
)


class NodeConfig(SharedConfig):
    """Everything one node is told: node.toml."""

    node: Label = Field(
        description="this node's id, the name in its certificate", examples=['node = "pacific"']
    )
    listen: Listen | None = Field(
        None, description='"host:port" to accept neighbours on, port 0 for any; left out: dial-out only'
    )
    insecure: StrictBool = Field(
        False, description="allow plain text to and from other machines; for closed test networks"
    )
    state: File = Field(
        Path("state"),
        validate_default=True,
        description="folder for results, the audit log and the admin socket",
    )
    data: DataConfig = Field(
        description="the node's private rows", examples=["a [data] table with file and response"]
    )
    tls: TlsConfig | None = Field(None, description="who this node is and whom it trusts")
    admin: AdminConfig = Field(
        AdminConfig(), validate_default=True, description="where the operator's tool reaches the node"
    )
    metrics: MetricsConfig = Field(MetricsConfig(), description="where Prometheus scrapes the node")
    neighbours: tuple[NeighbourConfig, ...] = Field(
        (),
        description="the nodes this one talks to",
        examples=["a [[neighbours]] table for each neighbour"],
    )

    def dials(self, neighbour: NeighbourConfig) -> bool:
        """Whether this end opens the stream to `neighbour`."""
        if neighbour.dial != "auto":
            return neighbour.dial == "always"
        return neighbour.address is not None and (self.node < neighbour.id or self.listen is None)

    @field_validator("admin")
    @classmethod
    def _admin_socket_lies_in_state(cls, admin: AdminConfig, info: ValidationInfo) -> AdminConfig:
        if "state" in info.data:
            listen = admin.listen.replace("<state>", str(info.data["state"]), 1)
            try:
                require_short_socket_path(listen)
            except ValueError as error:
                raise RefusedError([(("listen",), f"is too long: {error}")]) from None
            return admin.model_copy(update={"listen": listen})
        return admin

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        RefusedError.unless_none([*self._unsafe(), *self._unreachable()])
        return self

    def _unsafe(self) -> Iterator[tuple[Loc, str]]:
        if self.tls is not None:
            if self.insecure:
                yield ("insecure",), "is true beside a [tls] table: remove one of the two"
            return
        if self.insecure:
            return
        remedy = "add a [tls] table, use a loopback address, or set insecure = true"
        if self.listen is not None and not is_loopback(self.listen):
            yield ("listen",), f"is {shown(self.listen)}, open to other machines without TLS: {remedy}"
        for k, neighbour in enumerate(self.neighbours):
            address = neighbour.address
            if address is not None and self.dials(neighbour) and not is_loopback(address):
                yield (
                    ("neighbours", k, "address"),
                    f"is {shown(address)}, on another machine, and would be dialled without TLS: {remedy}",
                )

    def _unreachable(self) -> Iterator[tuple[Loc, str]]:
        seen: dict[str, int] = {}
        places: dict[str, int] = {}
        for k, neighbour in enumerate(self.neighbours):
            here: Loc = ("neighbours", k)
            name = shown(neighbour.id)
            if neighbour.id == self.node:
                yield (*here, "id"), f"is {name}, this node itself: name another node or remove the entry"
            if seen.setdefault(neighbour.id, k) != k:
                yield (
                    (*here, "id"),
                    f"is {name}, as in neighbours[{seen[neighbour.id]}]: list each neighbour once",
                )
            if neighbour.address is not None and places.setdefault(neighbour.address, k) != k:
                yield (
                    (*here, "address"),
                    f"is {shown(neighbour.address)}, as in neighbours[{places[neighbour.address]}]: "
                    "give each neighbour its own address",
                )
            if neighbour.dial == "always" and neighbour.address is None:
                yield (
                    (*here, "address"),
                    f'is missing, yet dial = "always" for {name}: write its "host:port", or dial = "auto"',
                )
            elif neighbour.dial == "never" and self.listen is None:
                yield (
                    (*here, "dial"),
                    f'is "never" for {name}, yet this node does not listen: set listen, or dial = "auto"',
                )
            elif neighbour.address is None and self.listen is None:
                yield (
                    (*here, "address"),
                    f"is missing for {name} and this node does not listen, so neither can reach the other: "
                    'write its "host:port", or set listen',
                )
