"""Settings as TOML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w


def dump_toml(document: Mapping[str, Any]) -> str:
    """A document as TOML, without what is None or empty; paths become text.

    Lists of tables become blocks, [[neighbours]], and come last: one more can be put at the end of the file.
    """
    values, blocks = {}, []
    for key, value in plain(document).items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            blocks += [f"[[{key}]]\n{tomli_w.dumps(item)}" for item in value]
        else:
            values[key] = value
    return "\n".join(([tomli_w.dumps(values)] if values else []) + blocks)


def plain(value: Any) -> Any:
    """Only what TOML can write: no None, no empty table, paths as text."""
    if isinstance(value, Mapping):
        pairs = ((str(key), plain(item)) for key, item in value.items())
        return {key: item for key, item in pairs if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
