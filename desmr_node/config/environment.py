"""The `DESMR_` variables of the environment, which override what a file says."""

import tomllib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from desmr_node.config.mistakes import Loc, nearest
from desmr_node.config.reference import ENVIRONMENT_PREFIX, settings
from desmr_node.errors import ConfigError


def override(document: dict[str, Any], model: type[BaseModel], environ: Mapping[str, str]) -> dict[Loc, str]:
    """Write the `DESMR_` variables into the document; the keys they set, with their names."""
    known = {setting.variable: setting.path for setting in settings(model) if setting.variable is not None}
    known[f"{ENVIRONMENT_PREFIX}FIT__LAMBDA_"] = ("fit", "lambda")
    given = sorted(
        (name for name in environ if name.startswith(ENVIRONMENT_PREFIX)), key=lambda n: (n.count("__"), n)
    )
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(
            "\n".join(f"environment variable {name} sets nothing: {nearest(name, known)}" for name in unknown)
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
