"""The tables that node.toml and NETWORK.toml are made of, with their defaults and what each key means."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, model_validator

from desmr_node.config.addresses import Admin, Dial, File, Label, Listen, is_loopback
from desmr_node.config.mistakes import Loc, RefusedError, shown
from desmr_node.core.spec import FitSpec


class FrozenTable(BaseModel):
    """A table with no other keys than its fields, all numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ColumnsConfig(FrozenTable):
    """Which columns are fitted; the same at every node."""

    response: str = Field(
        min_length=1, description="name of the column to explain", examples=['response = "violentPerPop"']
    )
    features: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="names of the columns to explain it with, in this order; all other columns if left out",
        examples=['features = ["age", "income"]'],
    )

    @model_validator(mode="after")
    def _each_column_once(self) -> Self:
        def mistakes() -> Iterator[tuple[Loc, str]]:
            names = self.features or ()
            for k, name in enumerate(names):
                if name in names[:k]:
                    yield ("features", k), f"repeats {shown(name)}: name each column once"
                if name == self.response:
                    yield ("features", k), f"is {shown(name)}, the response: leave it out of the features"

        RefusedError.unless_none(mistakes())
        return self


class DataConfig(ColumnsConfig):
    """The node's private rows."""

    file: File = Field(
        description="the rows: .csv, .csv.gz, .parquet or .npz", examples=['file = "rows.csv"']
    )
    holdout: File | None = Field(
        None, description="rows with the same columns that are never fitted, only predicted"
    )


class FloorsConfig(FrozenTable):
    """What the node must hold to take part: below either floor it declines."""

    rows: StrictInt = Field(0, ge=0, description="least number of rows")
    rows_per_variable: StrictFloat = Field(0.0, ge=0.0, description="least number of rows per feature")
    indispensable: StrictBool = Field(
        False, description="whether the others must wait for this node when it is lost in the middle of a fit"
    )


class TlsConfig(FrozenTable):
    """Who this node is and whom it trusts; PEM files."""

    ca: File = Field(
        description="certificate of the authority that signed every node's", examples=['ca = "ca.pem"']
    )
    certificate: File = Field(
        description="this node's certificate, whose name is its id", examples=['certificate = "node.pem"']
    )
    key: File = Field(
        description="this node's private key: its user's with mode 0600 or less, or root's with 0640 or less",
        examples=['key = "node.key"'],
    )


class AdminConfig(FrozenTable):
    """Where the operator's tool reaches the node."""

    listen: Admin = Field(
        "unix:<state>/admin.sock", description='"unix:path" of a socket, or "host:port" on loopback'
    )
    insecure: StrictBool = Field(
        False, description="allow an admin address that other machines can reach; it has no password"
    )

    @model_validator(mode="after")
    def _stays_on_this_machine(self) -> Self:
        if not self.insecure and not is_loopback(self.listen):
            raise RefusedError(
                [
                    (
                        ("listen",),
                        f"is {shown(self.listen)}, which other machines can reach: write a unix socket or a "
                        "loopback address, or set insecure = true in [admin]",
                    )
                ]
            )
        return self


class MetricsConfig(FrozenTable):
    """Where Prometheus scrapes the node."""

    listen: Listen | None = Field(None, description='"host:port" of the metrics page; none if left out')


class LogConfig(FrozenTable):
    """What the daemon writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity written")
    format: Literal["text", "json"] = Field("text", description="lines for people, or one object a line")


class NeighbourConfig(FrozenTable):
    """A node this one exchanges vectors with."""

    id: Label = Field(description="the neighbour's node id", examples=['id = "pacific"'])
    address: Dial | None = Field(
        None, description='"host:port" it can be reached at; left out if it only dials out'
    )
    dial: Literal["auto", "always", "never"] = Field(
        "auto", description="who opens the stream; auto: the smaller id, unless only one end can be reached"
    )


class FitTable(FitSpec):
    """`[fit]` as it is written: strict about types, with the seed."""

    model_config = ConfigDict(strict=True)

    seed: int = Field(0, ge=0, lt=2**63)

    def __init__(self, /, **table: Any) -> None:
        BaseModel.__init__(self, **table)  # without FitSpec's own telling of mistakes: `telling` does that


class SharedConfig(FrozenTable):
    """What node.toml and NETWORK.toml have in common."""

    network: Label = Field(
        description="id of the network; nodes of another network are rejected", examples=['network = "crime"']
    )
    fit: FitSpec = Field(FitSpec(), description="what to fit and how; the same at every node")
    seed: StrictInt = Field(
        0, ge=0, lt=2**63, description="seed of whatever the fit draws; the same at every node"
    )
    patience: Literal["forever"] | Annotated[StrictFloat, Field(gt=0.0)] = Field(
        60.0, description='seconds to wait for a peer that stays away, or "forever"'
    )
    autostart: StrictBool = Field(
        False, description="begin the first fit as soon as the node is up, without waiting for `desmr start`"
    )
    floors: FloorsConfig = Field(FloorsConfig(), description="what a node must hold to take part")
    log: LogConfig = Field(LogConfig(), description="what the daemon writes to standard error")
