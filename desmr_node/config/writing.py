"""Settings as TOML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w


def dump_toml(document: Mapping[str, Any]) -> str:
    """A document as TOML, without what is None or empty; paths become text."""
    return tomli_w.dumps(plain(document))


def plain(value: Any) -> Any:
    """Only what TOML can write: no None, no empty table, paths as text."""
    if isinstance(value, Mapping):
        pairs = ((str(key), plain(item)) for key, item in value.items())
        return {key: item for key, item in pairs if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
