"""What settings there are, from the models: for messages, environment variables and the documentation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

from desmr_node.config.network import NetworkConfig
from desmr_node.config.node import NodeConfig
from desmr_node.core.spec import FitSpec

ENVIRONMENT_PREFIX = "DESMR_"


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
        table, is_list = table_type(field.annotation)
        key = written(name)
        path = (*above, key + "[]" if is_list else key)
        yield Setting(
            path if not is_list else (*above, key),
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


def table_type(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model of a table and whether there is a list of them; (None, False) for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part, Ellipsis in get_args(annotation)
    return None, False


def written(name: str) -> str:
    """The key of a field as a file has it."""
    return "lambda" if name == "lambda_" else name
