"""The rows of a table in blocks: checked once, then kept in memory or read from the file each time."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.rows import BLOCK_ROWS, RowSource
from desmr_node.data.sources import Source, trouble_told
from desmr_node.errors import DataError

#: Larger numbers cannot be squared and summed.
_LARGEST = 1e100
Block = tuple[Matrix, Vector]
Stamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows held in memory."""

    kept: tuple[Block, ...]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(y) for _, y in self.kept)

    @property
    def columns(self) -> int:
        """Number of features."""
        return int(self.kept[0][0].shape[1])

    def blocks(self) -> Iterator[Block]:
        """The blocks as they were first read."""
        yield from self.kept


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows read from the file each time; refused once the file is no longer the one that was checked."""

    source: Source
    features: tuple[str, ...]
    response: str
    count: int
    stamp: Stamp

    @property
    def columns(self) -> int:
        """Number of features."""
        return len(self.features)

    def blocks(self) -> Iterator[Block]:
        """Blocks of `BLOCK_ROWS` rows."""
        self._require_unchanged()
        yield from _blocks(self.source.chunks((*self.features, self.response)), self.columns)
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        with trouble_told(self.source):
            os.stat(self.source.path)
        if stamp_of(self.source.path) != self.stamp:
            raise DataError(f"{self.source.title} has changed since it was opened: restart the node")


def stamp_of(path: Path) -> Stamp:
    """What changes when a file does; None if it is not there, which its source will tell."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def read_once(
    source: Source, stamp: Stamp, features: tuple[str, ...], response: str, most_kept: int
) -> RowSource:
    """Check and count every row; keep them if they take at most `most_kept` bytes.

    ``stamp`` is the file's before anything of it was read, its header included.
    """
    count = 0
    for X, y in _blocks(source.chunks((*features, response)), len(features)):
        _require_sane(X, y, source, (*features, response), count)
        count += len(y)
    if count == 0:
        raise DataError(f"{source.title} has no rows: add rows, or leave the node out of the network")
    rows = FileRows(source, features, response, count, stamp)
    if count * (len(features) + 1) * 8 > most_kept:
        return rows
    kept = tuple(rows.blocks())
    for X, y in kept:
        X.flags.writeable = y.flags.writeable = False
    return KeptRows(kept)


def _blocks(chunks: Iterable[Sequence[Vector]], p: int) -> Iterator[Block]:
    """Chunks of columns (the response last) of any length, as blocks of `BLOCK_ROWS` rows."""
    X, y, filled = np.empty((BLOCK_ROWS, p)), np.empty(BLOCK_ROWS), 0
    for chunk in chunks:
        length, taken = len(chunk[-1]), 0
        while taken < length:
            step = min(length - taken, BLOCK_ROWS - filled)
            for k in range(p):
                X[filled : filled + step, k] = chunk[k][taken : taken + step]
            y[filled : filled + step] = chunk[p][taken : taken + step]
            filled, taken = filled + step, taken + step
            if filled == BLOCK_ROWS:
                yield X, y
                X, y, filled = np.empty((BLOCK_ROWS, p)), np.empty(BLOCK_ROWS), 0
    if filled:
        yield X[:filled].copy(), y[:filled].copy()


def _require_sane(X: Matrix, y: Vector, source: Source, names: tuple[str, ...], start: int) -> None:
    with np.errstate(invalid="ignore"):
        # A NaN is the maximum of whatever it is in, and not below any bound.
        sane = max(X.max(), -X.min()) <= _LARGEST and max(y.max(), -y.min()) <= _LARGEST
        if sane:
            return
        table = np.column_stack([X, y])
        i, k = map(int, np.argwhere(~(np.abs(table) <= _LARGEST))[0])
    value = table[i, k]
    if np.isfinite(value):
        fault = f"is {value:g}, above {_LARGEST:g}, whose square overflows: change the column's unit"
    else:
        fault = f"is {value}: drop the row or fill the value"
    raise DataError(f"{source.title}: column {names[k]!r}, row {start + i + 1} {fault}")
