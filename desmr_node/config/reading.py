"""From a TOML file to a checked configuration, or a `ConfigError` with a line for every mistake."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from desmr_node.config.environment import override
from desmr_node.config.mistakes import Loc, RefusedError, dotted, shown
from desmr_node.config.network import NetworkConfig
from desmr_node.config.node import NodeConfig
from desmr_node.config.tables import FitTable
from desmr_node.config.telling import mistakes_told
from desmr_node.core.spec import FitSpec
from desmr_node.errors import ConfigError

Model = TypeVar("Model", NodeConfig, NetworkConfig)


def load_node(path: str | Path, environ: Mapping[str, str] = os.environ) -> NodeConfig:
    """Read node.toml; `DESMR_` variables override it."""
    return _load(NodeConfig, Path(path), environ)


def load_network(path: str | Path, environ: Mapping[str, str] = os.environ) -> NetworkConfig:
    """Read NETWORK.toml; `DESMR_` variables override it."""
    return _load(NetworkConfig, Path(path), environ)


def _load(model: type[Model], path: Path, environ: Mapping[str, str]) -> Model:
    document = _read_toml(path)
    if model is NodeConfig and "nodes" in document and "node" not in document:
        raise ConfigError(
            f"{path}: this is the file of a network: `desmr network init` makes each node's file of it"
        )
    if model is NetworkConfig and "node" in document and "nodes" not in document:
        raise ConfigError(f"{path}: this is the file of one node: name that of the network")
    overridden = override(document, model, environ)
    mistakes: list[tuple[Loc, str]] = []
    fit = document.pop("fit", {})
    if "seed" in document:
        document.pop("seed")
        mistakes.append((("seed",), "is not a key of the file itself: write it in the [fit] table"))
    if not isinstance(fit, dict):
        mistakes.append((("fit",), f"is {shown(fit)}: write a table, [fit]"))
    else:
        try:
            document |= _fit_and_seed(fit)
        except ValidationError as error:
            mistakes += mistakes_told(error, FitTable, ("fit",))
        except RefusedError as error:
            mistakes += error.mistakes
    folder = Path(os.path.abspath(path)).parent
    try:
        config = model.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        mistakes += mistakes_told(error, model, ())
    if mistakes:
        _refuse(path, overridden, mistakes)
    return config


def _fit_and_seed(table: dict[str, Any]) -> dict[str, Any]:
    if "lambda" in table and "lambda_" in table:
        raise RefusedError([(("fit", "lambda"), "is given twice, as lambda and as lambda_: keep lambda")])
    written = {"lambda_" if key == "lambda" else key: value for key, value in table.items()}
    checked = FitTable(**written).model_dump(exclude_unset=True)
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
        lines.append(f"{source}: {dotted(loc)} {text}")
    raise ConfigError("\n".join(dict.fromkeys(lines)))
