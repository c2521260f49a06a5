"""A node's settings and a network's, read from TOML: every mistake is told with its key and its remedy.

The models hold the defaults and what each setting means; `settings` lists them, so the error messages, the
environment variables and the reference in the documentation all come from one place.
"""

import difflib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar, get_args

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from desmr_node.core.graph import Graph
from desmr_node.core.spec import FitSpec
from desmr_node.errors import ConfigError

ENVIRONMENT_PREFIX = "DESMR_"
#: The kernel's `sun_path` holds 108 bytes, the last of them zero.
_LONGEST_SOCKET_PATH = 107

Loc = tuple[str | int, ...]


class _RefusedError(ValueError):
    """Several mistakes at once: each a place below the model that was checked, and what is wrong there."""

    def __init__(self, mistakes: Iterable[tuple[Loc, str]]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(f"{_dotted(loc)} {text}".lstrip() for loc, text in self.mistakes))

    @classmethod
    def unless_none(cls, mistakes: Iterable[tuple[Loc, str]]) -> None:
        refused = cls(mistakes)
        if refused.mistakes:
            raise refused


# --- addresses, names, paths ----------------------------------------------------------------------------


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"; a ValueError says what to write instead."""
    remedy = 'write "host:port" or "[IPv6]:port", such as "10.0.0.7:50051"'
    if "://" in text:
        raise ValueError(f"an address has no scheme; {remedy}")
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([0-9]+)", text, re.ASCII)
    if match is None:
        if text.count(":") > 1 and "[" not in text:
            raise ValueError(f"an IPv6 address belongs in brackets; {remedy}")
        raise ValueError(f"it has no port number; {remedy}" if text else f"it is empty; {remedy}")
    v6, name, port = match.groups()
    try:
        if v6 is not None:
            ipaddress.IPv6Address(v6)
        elif re.fullmatch(r"[0-9.]+", name):
            ipaddress.IPv4Address(name)
        elif not re.fullmatch(r"(?!-)[A-Za-z0-9._-]{1,253}", name):
            raise ValueError
    except ValueError:
        host = name if v6 is None else v6
        raise ValueError(f"{host!r} is neither a host name nor an IP address; {remedy}") from None
    if int(port) > 65535:
        raise ValueError(f"port {port} is above 65535; {remedy}")
    return (name if v6 is None else v6), int(port)


def is_loopback(address: str) -> bool:
    """Whether "host:port" or "unix:path" cannot be reached from another machine."""
    if address.startswith("unix:"):
        return True
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: it may resolve to anything
        return False


def _listen_address(text: str) -> str:
    split_address(text)
    return text


def _dial_address(text: str) -> str:
    host, port = split_address(text)
    if port == 0:
        raise ValueError("port 0 can be listened on but not dialled; write the port the node listens on")
    if host in {"0.0.0.0", "::"}:
        raise ValueError(
            f"{host} can be listened on but not dialled; write the name or IP address of the host"
        )
    return text


def _admin_address(text: str, info: ValidationInfo) -> str:
    if not text.startswith("unix:"):
        return _listen_address(text)
    path = text.removeprefix("unix:")
    if not path:
        raise ValueError('the path of the socket is missing; write "unix:state/admin.sock"')
    if path.startswith("<state>"):  # filled in by NodeConfig, which knows the folder
        return text
    return f"unix:{_resolve(Path(path), info)}"


def _require_short_socket_path(address: str) -> None:
    length = len(os.fsencode(address.removeprefix("unix:")))
    if address.startswith("unix:") and length > _LONGEST_SOCKET_PATH:
        raise ValueError(
            f"{address} is a socket path of {length} bytes and the system takes {_LONGEST_SOCKET_PATH}; "
            'write a shorter one, such as "unix:/run/desmr/admin.sock", or "127.0.0.1:50052"'
        )


def _label(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(
            "write 1 to 63 lower-case letters, digits or hyphens, no hyphen at either end, "
            'such as "new-england"'
        )
    return text


def _resolve(path: Path, info: ValidationInfo) -> Path:
    """Relative paths start at the folder of the file they are written in."""
    if str(path) == ".":
        raise ValueError("the path is empty; write the path of a file or folder in quotes")
    if "\0" in str(path):
        raise ValueError("no path has a zero byte; write the path of a file or folder in quotes")
    try:
        path = path.expanduser()
    except RuntimeError:
        raise ValueError("no such user's home folder; write the path without ~") from None
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(os.path.normpath(folder / path))


Label = Annotated[str, AfterValidator(_label)]
Listen = Annotated[str, AfterValidator(_listen_address)]
Dial = Annotated[str, AfterValidator(_dial_address)]
Admin = Annotated[str, AfterValidator(_admin_address)]
File = Annotated[Path, AfterValidator(_resolve)]


# --- the tables of a file -------------------------------------------------------------------------------


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ColumnsConfig(_Table):
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
                    yield ("features", k), f"repeats {_shown(name)}: name each column once"
                if name == self.response:
                    yield ("features", k), f"is {_shown(name)}, the response: leave it out of the features"

        _RefusedError.unless_none(mistakes())
        return self


class DataConfig(ColumnsConfig):
    """The node's private rows."""

    file: File = Field(
        description="the rows: .csv, .csv.gz, .parquet or .npz", examples=['file = "rows.csv"']
    )
    holdout: File | None = Field(
        None, description="rows with the same columns that are never fitted, only predicted"
    )


class FloorsConfig(_Table):
    """What the node must hold to take part: below either floor it declines."""

    rows: StrictInt = Field(0, ge=0, description="least number of rows")
    rows_per_variable: StrictFloat = Field(0.0, ge=0.0, description="least number of rows per feature")


class TlsConfig(_Table):
    """Who this node is and whom it trusts; PEM files."""

    ca: File = Field(
        description="certificate of the authority that signed every node's", examples=['ca = "ca.pem"']
    )
    certificate: File = Field(
        description="this node's certificate, whose name is its id", examples=['certificate = "node.pem"']
    )
    key: File = Field(
        description="this node's private key, readable by its user alone", examples=['key = "node.key"']
    )


class AdminConfig(_Table):
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
            raise _RefusedError(
                [
                    (
                        ("listen",),
                        f"is {_shown(self.listen)}, which other machines can reach: write a unix socket or a "
                        "loopback address, or set insecure = true in [admin]",
                    )
                ]
            )
        return self


class MetricsConfig(_Table):
    """Where Prometheus scrapes the node."""

    listen: Listen | None = Field(None, description='"host:port" of the metrics page; none if left out')


class LogConfig(_Table):
    """What the daemon writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity written")
    format: Literal["text", "json"] = Field("text", description="lines for people, or one object a line")


class NeighbourConfig(_Table):
    """A node this one exchanges vectors with."""

    id: Label = Field(description="the neighbour's node id", examples=['id = "pacific"'])
    address: Dial | None = Field(
        None, description='"host:port" it can be reached at; left out if it only dials out'
    )
    dial: Literal["auto", "always", "never"] = Field(
        "auto", description="who opens the stream; auto: the smaller id, unless only one end can be reached"
    )


class _Shared(_Table):
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
        False, description="begin the first fit as soon as the node is up, not on `desmr start`"
    )
    floors: FloorsConfig = Field(FloorsConfig(), description="what a node must hold to take part")
    log: LogConfig = Field(LogConfig(), description="what the daemon writes to standard error")


class NodeConfig(_Shared):
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
        description="folder for results, the audit log and snapshots",
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
                _require_short_socket_path(listen)
            except ValueError as error:
                raise _RefusedError([(("listen",), f"is too long: {error}")]) from None
            return admin.model_copy(update={"listen": listen})
        return admin

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        _RefusedError.unless_none([*self._unsafe(), *self._unreachable()])
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
            yield ("listen",), f"is {_shown(self.listen)}, open to other machines without TLS: {remedy}"
        for k, neighbour in enumerate(self.neighbours):
            address = neighbour.address
            if address is not None and self.dials(neighbour) and not is_loopback(address):
                yield (
                    ("neighbours", k, "address"),
                    f"is {_shown(address)}, on another machine, and would be dialled without TLS: {remedy}",
                )

    def _unreachable(self) -> Iterator[tuple[Loc, str]]:
        seen: dict[str, int] = {}
        places: dict[str, int] = {}
        for k, neighbour in enumerate(self.neighbours):
            here: Loc = ("neighbours", k)
            name = _shown(neighbour.id)
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
                    f"is {_shown(neighbour.address)}, as in neighbours[{places[neighbour.address]}]: "
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


class NetworkNodeConfig(_Table):
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


class NetworkConfig(_Shared):
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
        plain: dict[str, Any] = _plain(document)
        return plain

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
        _RefusedError.unless_none(mistakes)
        return self

    def _repeated(self) -> Iterator[tuple[Loc, str]]:
        for key in ("id", "address"):
            seen: dict[str, int] = {}
            for k, node in enumerate(self.nodes):
                value = getattr(node, key)
                if value is not None and seen.setdefault(value, k) != k:
                    yield (
                        ("nodes", k, key),
                        f"is {_shown(value)}, as in nodes[{seen[value]}]: give each node its own {key}",
                    )

    def _bad_edges(self) -> Iterator[tuple[Loc, str]]:
        nodes = {node.id: node for node in self.nodes}
        for k, (a, b) in enumerate(self.edges):
            strangers = [end for end in (a, b) if end not in nodes]
            for end in dict.fromkeys(strangers):
                yield ("edges", k), f"names {_shown(end)}, which is no node: {_nearest(end, nodes)}"
            if a == b:
                yield ("edges", k), f"joins {_shown(a)} to itself: name two different nodes or remove it"
            elif not strangers and nodes[a].address is None and nodes[b].address is None:
                yield (
                    ("edges", k),
                    f"joins {_shown(a)} and {_shown(b)}, neither of which has an address: "
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


# --- reading --------------------------------------------------------------------------------------------


class _FitTable(FitSpec):
    """`[fit]` as it is written: strict about types, with the seed."""

    model_config = ConfigDict(strict=True)

    seed: int = Field(0, ge=0, lt=2**63)

    def __init__(self, /, **table: Any) -> None:
        BaseModel.__init__(self, **table)  # without FitSpec's own telling of mistakes: `_mistakes` does that


Model = TypeVar("Model", NodeConfig, NetworkConfig)


def load_node(path: str | Path, environ: Mapping[str, str] = os.environ) -> NodeConfig:
    """Read node.toml; `DESMR_` variables override it."""
    return _load(NodeConfig, Path(path), environ)


def load_network(path: str | Path, environ: Mapping[str, str] = os.environ) -> NetworkConfig:
    """Read NETWORK.toml; `DESMR_` variables override it."""
    return _load(NetworkConfig, Path(path), environ)


def dump_toml(document: Mapping[str, Any]) -> str:
    """A document as TOML, without what is None or empty; paths become text."""
    return tomli_w.dumps(_plain(document))


def _load(model: type[Model], path: Path, environ: Mapping[str, str]) -> Model:
    document = _read_toml(path)
    overridden = _override(document, model, environ)
    mistakes: list[tuple[Loc, str]] = []
    fit = document.pop("fit", {})
    if "seed" in document:
        document.pop("seed")
        mistakes.append((("seed",), "is not a key of the file itself: write it in the [fit] table"))
    if not isinstance(fit, dict):
        mistakes.append((("fit",), f"is {_shown(fit)}: write a table, [fit]"))
    else:
        try:
            document |= _fit_and_seed(fit)
        except ValidationError as error:
            mistakes += _mistakes(error, _FitTable, ("fit",))
        except _RefusedError as error:
            mistakes += error.mistakes
    folder = Path(os.path.abspath(path)).parent
    try:
        config = model.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        mistakes += _mistakes(error, model, ())
    if mistakes:
        _refuse(path, overridden, mistakes)
    return config


def _fit_and_seed(table: dict[str, Any]) -> dict[str, Any]:
    if "lambda" in table and "lambda_" in table:
        raise _RefusedError([(("fit", "lambda"), "is given twice, as lambda and as lambda_: keep lambda")])
    written = {"lambda_" if key == "lambda" else key: value for key, value in table.items()}
    checked = _FitTable(**written).model_dump(exclude_unset=True)
    seed = {"seed": checked.pop("seed")} if "seed" in checked else {}
    return {"fit": FitSpec(**checked)} | seed


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: check the path, or write the file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder: name the file in it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        place = _line_and_column(raw[: error.start].decode())
        raise ConfigError(f"{path}: not UTF-8 at {place}: save the file as UTF-8") from None
    try:
        return tomllib.loads(text)
    except ValueError as error:
        told = str(error).replace("at end of document", f"at {_line_and_column(text)}, the end of the file")
        raise ConfigError(f"{path}: not TOML: {told}; correct that line") from None


def _line_and_column(before: str) -> str:
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _refuse(path: Path, overridden: Mapping[Loc, str], mistakes: Iterable[tuple[Loc, str]]) -> NoReturn:
    """One line per mistake, each naming the file or the variable it comes from."""
    lines = []
    for loc, text in mistakes:
        origins = (overridden[loc[:depth]] for depth in range(len(loc), 0, -1) if loc[:depth] in overridden)
        origin = next(origins, None)
        source = f"{path}" if origin is None else f"{path} with environment variable {origin}"
        lines.append(f"{source}: {_dotted(loc)} {text}")
    raise ConfigError("\n".join(dict.fromkeys(lines)))


# --- environment ----------------------------------------------------------------------------------------


def _override(document: dict[str, Any], model: type[BaseModel], environ: Mapping[str, str]) -> dict[Loc, str]:
    """Write the `DESMR_` variables into the document; the keys they set, with their names."""
    known = {setting.variable: setting.path for setting in settings(model) if setting.variable is not None}
    known[f"{ENVIRONMENT_PREFIX}FIT__LAMBDA_"] = ("fit", "lambda")
    given = sorted(
        (name for name in environ if name.startswith(ENVIRONMENT_PREFIX)), key=lambda n: (n.count("__"), n)
    )
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(
            "\n".join(
                f"environment variable {name} sets nothing: {_nearest(name, known)}" for name in unknown
            )
        )
    overridden: dict[Loc, str] = {}
    for name in given:
        path = known[name]
        table = document
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):  # told later, as a mistake of the file
                break
        else:
            if path == ("fit", "lambda"):
                table.pop("lambda_", None)
            table[path[-1]] = _environment_value(environ[name])
            overridden[path] = name
    return overridden


def _environment_value(text: str) -> Any:
    """A TOML value where it is one, else the text itself."""
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    return document["value"] if document.keys() == {"value"} else text


# --- what settings there are, and how mistakes in them are told -----------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a file: `path` is the tables it lies in and its name, "[]" after a list of tables."""

    path: tuple[str, ...]
    description: str
    required: bool
    default: Any
    is_table: bool

    @property
    def key(self) -> str:
        """The dotted key, such as fit.penalty or neighbours[].address."""
        return ".".join(self.path)

    @property
    def variable(self) -> str | None:
        """The environment variable that overrides it; none inside a list of tables."""
        if any(part.endswith("[]") for part in self.path[:-1]):
            return None
        return ENVIRONMENT_PREFIX + "__".join(part.removesuffix("[]").upper() for part in self.path)


def settings(model: type[BaseModel]) -> Iterator[Setting]:
    """All keys of `NodeConfig` or `NetworkConfig` in order, each table before its keys."""
    yield from _settings_below(model, ())


def _settings_below(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        if model in (NodeConfig, NetworkConfig) and name == "seed":
            continue  # written in [fit]
        table, is_list = _table_type(field.annotation)
        written = "lambda" if name == "lambda_" else name
        path = (*above, written + "[]" if is_list else written)
        yield Setting(
            path if not is_list else (*above, written),
            field.description or "",
            field.is_required(),
            None if field.is_required() else field.get_default(),
            table is not None,
        )
        if table is not None:
            yield from _settings_below(table, path)
        if table is FitSpec:
            seed = model.model_fields["seed"]
            yield Setting((*path, "seed"), seed.description or "", False, seed.get_default(), False)


def _table_type(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model of a table and whether there is a list of them; (None, False) for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part, Ellipsis in get_args(annotation)
    return None, False


_ADVICE = {
    "bool_type": "write true or false",
    "finite_number": "write a finite number",
    "float_type": "write a number",
    "int_type": "write a whole number",
    "literal_error": "write {expected}",
    "greater_than": "write a number above {gt:g}",
    "greater_than_equal": "write a number of at least {ge:g}",
    "less_than": "write a number below {lt:g}",
    "less_than_equal": "write a number of at most {le:g}",
    "model_type": "write a table",
    "model_attributes_type": "write a table",
    "path_type": "write a path in quotes",
    "string_type": "write text in quotes",
    "string_too_short": "write a name in quotes",
    "tuple_type": "write a list in brackets",
}
#: Mistakes of shape, where an example says more than a rule.
_BETTER_SHOWN = {"model_type", "too_long", "too_short", "tuple_type"}


def _mistakes(error: ValidationError, model: type[BaseModel], above: Loc) -> Iterator[tuple[Loc, str]]:
    """What pydantic found, as one text per place; the branches of a union are told together."""
    told: dict[Loc, str] = {}
    for mistake in error.errors(include_url=False):
        loc, holder, example = _place(model, mistake["loc"])
        place = above + tuple("lambda" if part == "lambda_" else part for part in loc)
        context = mistake.get("ctx", {})
        refused = context.get("error")
        if isinstance(refused, _RefusedError):
            yield from ((place + below, text) for below, text in refused.mistakes)
        elif mistake["type"] == "extra_forbidden":
            yield place, f"is not a known key: {_nearest_key(model, holder, place)}"
        elif mistake["type"] == "missing":
            yield place, f"is missing: write {example}"
        elif not loc:  # a FitSpec whose settings contradict each other; its text starts with the key
            key, _, text = mistake["msg"].removeprefix("Value error, ").partition(" ")
            yield (*above, _written(key)), text.replace("lambda_", "lambda")
        else:
            if refused is not None:
                advice = str(refused)
            elif example is not None and mistake["type"] in _BETTER_SHOWN:
                advice = f"write {example}"
            else:
                rule = _ADVICE.get(mistake["type"])
                advice = mistake["msg"] if rule is None else rule.format(**context)
            if place in told:
                told[place] += f" or {advice.removeprefix('write ')}"
            else:
                told[place] = f"is {_shown(mistake['input'])}: {advice}"
    yield from told.items()


_NOT_WRITTEN = {(NodeConfig, "seed"), (NetworkConfig, "seed")}


def _place(model: type[BaseModel], loc: Loc) -> tuple[Loc, type[BaseModel], str | None]:
    """A place without the names of union branches, the table it lies in, and what to write there."""
    place: list[str | int] = []
    holder, example = model, None
    inside: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            place.append(part)
        elif inside is not None and part in inside.model_fields:
            holder, field = inside, inside.model_fields[part]
            example = next(iter(field.examples or ()), None)
            inside, _ = _table_type(field.annotation)
            place.append(part)
        elif inside is not None:  # a key that is not known
            holder = inside
            place.append(part)
    return tuple(place), holder, example


def _nearest_key(model: type[BaseModel], holder: type[BaseModel], place: Loc) -> str:
    """What an unknown key may stand for: one of its own table, or one of the same name in another."""
    *above, key = place
    known = [_written(name) for name in holder.model_fields if (holder, name) not in _NOT_WRITTEN]
    table = _dotted(tuple(above))
    if not difflib.get_close_matches(str(key), known, n=1) and model is not _FitTable:
        for setting in settings(model):
            if setting.path[-1] == key:
                return f"did you mean {setting.key}?"
    return _nearest(str(key), known, f"{table}." if table else "")


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{close[0]}?" if close else f"write one of {', '.join(names)}"


def _written(name: str) -> str:
    return "lambda" if name == "lambda_" else name


def _dotted(loc: Loc) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    """A value as one would write it in TOML, on one short line."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)
    )
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: Any) -> Any:
    """Only what TOML can write: no None, no empty table, paths as text."""
    if isinstance(value, Mapping):
        pairs = ((str(key), _plain(item)) for key, item in value.items())
        return {key: item for key, item in pairs if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
