"""A node's rows from CSV, Parquet or NPZ files, read in blocks: again and again, the same bits each time.

Every format gives blocks of `BLOCK_ROWS` rows in C order, as `ArrayRows` does, so that sums over the blocks
do not depend on how a table was stored. Only CSV and Parquet files import Arrow.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from desmr_node.config import DataConfig
from desmr_node.core.rows import RowSource
from desmr_node.data.csv_source import CsvSource
from desmr_node.data.npz_source import NpzSource
from desmr_node.data.parquet_source import ParquetSource
from desmr_node.data.rows import FileRows, KeptRows, read_once, stamp_of
from desmr_node.data.sources import Source
from desmr_node.errors import DataError

__all__ = ["KEPT_BYTES", "FileRows", "KeptRows", "Table", "open_rows"]

#: Tables up to this size stay in memory after the first reading.
KEPT_BYTES = 64 * 2**20
#: How tables with a row index are commonly written.
_UNNAMED = {"", "__index_level_0__"}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with the names of their columns."""

    features: tuple[str, ...]
    response: str
    rows: RowSource


def open_rows(data: DataConfig, which: Literal["file", "holdout"] = "file", *, node: str = "") -> Table:
    """Read a table once, refusing what cannot be fitted; its rows can then be read again at will.

    The holdout has the features of the file, whatever other columns it has.
    """
    where = f"{node}: " if node else ""
    stamp = stamp_of(data.file)
    source = _open(data.file, data.response, where)
    features = _features(source, data)
    if which == "holdout":
        if data.holdout is None:
            raise DataError(f"{where}there is no holdout: set data.holdout to a file of rows")
        stamp = stamp_of(data.holdout)
        source = _open(data.holdout, data.response, where)
        for name in (data.response, *features):
            if name not in source.names:
                raise DataError(
                    f"{source.title} lacks the column {name!r} of {data.file.name}: "
                    f"{_nearest(name, source.names)}"
                )
    return Table(features, data.response, read_once(source, stamp, features, data.response, KEPT_BYTES))


def _open(path: Path, response: str, where: str) -> Source:
    name, title = path.name.lower(), f"{where}{path}"
    if name.endswith((".csv", ".csv.gz")):
        return CsvSource(path, title)
    if name.endswith(".parquet"):
        return ParquetSource(path, title)
    if name.endswith(".npz"):
        return NpzSource(path, title, response, KEPT_BYTES)
    raise DataError(f"{title} is of an unknown kind: give a file ending in .csv, .csv.gz, .parquet or .npz")


def _features(source: Source, data: DataConfig) -> tuple[str, ...]:
    if data.response not in source.names:
        raise DataError(
            f"{source.title} has no column {data.response!r}, the response: "
            f"{_nearest(data.response, source.names)}"
        )
    for name in data.features or ():
        if name not in source.names:
            raise DataError(
                f"{source.title} has no column {name!r}, a feature: {_nearest(name, source.names)}"
            )
    features = data.features or tuple(name for name in source.names if name != data.response)
    for name in _UNNAMED & set(features):
        raise DataError(
            f"{source.title}: column {source.names.index(name) + 1} has no name of its own ({name!r}), "
            "perhaps a row index: remove or name it, or list the features in data.features"
        )
    if not features:
        raise DataError(f"{source.title} has no column beside the response {data.response!r}: add a feature")
    return features


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    some = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return f"its columns are {some}; correct the name or the file"
