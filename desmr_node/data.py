"""A node's rows from CSV, Parquet or NPZ files, read in blocks: again and again, the same bits each time.

Every format gives blocks of `BLOCK_ROWS` rows in C order, as `ArrayRows` does, so that sums over the blocks
do not depend on how a table was stored. pyarrow costs 30 MB: only CSV and Parquet files import it.
"""

import csv
import difflib
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from desmr_node.config import DataConfig
from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.rows import BLOCK_ROWS, RowSource
from desmr_node.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no stubs
    import pyarrow.parquet  # type: ignore[import-untyped]

#: Tables up to this size stay in memory after the first reading.
KEPT_BYTES = 64 * 2**20
#: Rows taken from a file at a time, beside the block they go into.
_CHUNK_ROWS = BLOCK_ROWS // 4
#: Larger numbers cannot be squared and summed.
_LARGEST = 1e100
#: How missing values are commonly written.
_MISSING = {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?", "."}
#: What the standard library raises over a damaged archive; encrypted and exotic ones are the last two.
_DAMAGED = (EOFError, csv.Error, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError)
#: How tables with a row index are commonly written.
_UNNAMED = {"", "__index_level_0__"}

Block = tuple[Matrix, Vector]


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
    source = _open(data.file, data.response, where)
    features = _features(source, data)
    if which == "holdout":
        if data.holdout is None:
            raise DataError(f"{where}there is no holdout: set data.holdout to a file of rows")
        source = _open(data.holdout, data.response, where)
        for name in (data.response, *features):
            if name not in source.names:
                raise DataError(
                    f"{source.title} lacks the column {name!r} of {data.file.name}: "
                    f"{_nearest(name, source.names)}"
                )
    return Table(features, data.response, _read_once(source, features, data.response))


def _features(source: "_Source", data: DataConfig) -> tuple[str, ...]:
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


# --- rows -----------------------------------------------------------------------------------------------


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

    source: "_Source"
    features: tuple[str, ...]
    response: str
    count: int
    stamp: tuple[int, int]

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
        with _trouble_told(self.source):
            stamp = _stamp(self.source.path)
        if stamp != self.stamp:
            raise DataError(f"{self.source.title} has changed since it was opened: restart the node")


def _stamp(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _read_once(source: "_Source", features: tuple[str, ...], response: str) -> RowSource:
    """Check and count every row; keep them if they turn out to be few."""
    stamp, count = _stamp(source.path), 0
    for X, y in _blocks(source.chunks((*features, response)), len(features)):
        _require_sane(X, y, source, (*features, response), count)
        count += len(y)
    if count == 0:
        raise DataError(f"{source.title} has no rows: add rows, or leave the node out of the network")
    rows = FileRows(source, features, response, count, stamp)
    if count * (len(features) + 1) * 8 > KEPT_BYTES:
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


def _require_sane(X: Matrix, y: Vector, source: "_Source", names: tuple[str, ...], start: int) -> None:
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


# --- formats --------------------------------------------------------------------------------------------


class _Source(Protocol):
    """A table in a file: its names, and its columns in chunks of whatever length suits the format."""

    @property
    def path(self) -> Path: ...

    @property
    def title(self) -> str:
        """How messages call it: node and file."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """The columns as float64, top to bottom; a cell that is no number is a DataError."""


def _open(path: Path, response: str, where: str) -> _Source:
    name, title = path.name.lower(), f"{where}{path}"
    if name.endswith((".csv", ".csv.gz")):
        return _Csv(path, title)
    if name.endswith(".parquet"):
        return _Parquet(path, title)
    if name.endswith(".npz"):
        return _Npz(path, title, response)
    raise DataError(f"{title} is of an unknown kind: give a file ending in .csv, .csv.gz, .parquet or .npz")


@contextmanager
def _trouble_told(source: _Source) -> Iterator[None]:
    """Whatever goes wrong in reading, as a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{source.title} does not exist: correct the path or put the file there") from None
    except IsADirectoryError:
        raise DataError(f"{source.title} is a folder: name a file") from None
    except PermissionError:
        raise DataError(f"{source.title} may not be read by this user: change its permissions") from None
    except UnicodeDecodeError:
        raise DataError(f"{source.title} is not UTF-8 text: save it as UTF-8") from None
    except (*_DAMAGED, OSError) as error:
        raise DataError(f"{source.title} cannot be read ({error}): write the file anew") from None


def _require_distinct(names: tuple[str, ...], title: str) -> tuple[str, ...]:
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(
                f"{title} has two columns named {name!r} (columns {names.index(name) + 1} and {k + 1}): "
                "rename one"
            )
    return names


@dataclass(frozen=True)
class _Csv:
    path: Path
    title: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with _trouble_told(self), self._lines() as lines:
            header = next((row for row in csv.reader(lines) if row), None)
        if header is None:
            raise DataError(f"{self.title} is empty: write the names of the columns in its first line")
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            raise DataError(
                f"{self.title} is not separated by commas ({header[0]!r}): "
                "save it with commas, and with points in decimal numbers"
            )
        object.__setattr__(self, "names", _require_distinct(tuple(header), self.title))

    def _lines(self) -> IO[str]:
        if self.path.name.lower().endswith(".gz"):
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return open(self.path, encoding="utf-8-sig", newline="")

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        import pyarrow as pa
        import pyarrow.csv  # type: ignore[import-untyped]

        # Small, since many blocks are read ahead; a block must hold a line, at some 25 characters a cell.
        block_size = max(2**17, 128 * len(self.names))
        with _trouble_told(self):
            try:
                reader = pyarrow.csv.open_csv(
                    self.path,
                    read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=block_size),
                    # A quoted line break in a column nobody asked for must not shift the rows.
                    parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                    convert_options=pyarrow.csv.ConvertOptions(
                        include_columns=list(columns),
                        column_types=dict.fromkeys(columns, pa.float64()),
                        null_values=[],
                    ),
                )
                with reader:
                    for batch in reader:
                        yield [batch.column(name).to_numpy() for name in columns]
            except pa.ArrowException as error:
                self._tell_first_bad_cell(columns)
                raise DataError(f"{self.title} cannot be read ({error}): write the file anew") from None

    def _tell_first_bad_cell(self, columns: tuple[str, ...]) -> None:
        """Go through the text line by line: slow, and only done when something is wrong."""
        places = [(self.names.index(name), name) for name in columns]
        with self._lines() as lines:
            reader = csv.reader(lines)
            rows = (row for row in reader if row)
            next(rows)
            for i, row in enumerate(rows, 1):
                here = f"row {i} (line {reader.line_num})"
                if len(row) != len(self.names):
                    raise DataError(
                        f"{self.title}: {here} has {len(row)} cells and the header has {len(self.names)}: "
                        "add or remove commas there"
                    )
                for k, name in places:
                    fault = _fault(row[k])
                    if fault:
                        raise DataError(f"{self.title}: column {name!r}, {here} {fault}")


def _fault(cell: str) -> str | None:
    """What is wrong with the text of a number, if anything."""
    if cell.strip().lower() in _MISSING:
        return f"is missing ({cell!r}): drop the row or fill the value"
    try:
        number = float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        number = None
    if number is None:
        return f"is not a number ({cell!r}): correct it, or leave the column out with data.features"
    if not np.isfinite(number):
        return f"is not finite ({cell!r}): drop the row or fill the value"
    return None


@dataclass(frozen=True)
class _Parquet:
    path: Path
    title: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with self._file() as file:
            names = tuple(file.schema_arrow.names)
        object.__setattr__(self, "names", _require_distinct(names, self.title))

    @contextmanager
    def _file(self) -> "Iterator[pyarrow.parquet.ParquetFile]":
        import pyarrow as pa
        import pyarrow.parquet

        with _trouble_told(self):
            try:
                # Buffered and not read ahead: a row group may hold the whole table.
                with pyarrow.parquet.ParquetFile(self.path, buffer_size=2**16, pre_buffer=False) as file:
                    yield file
            except pa.ArrowException as error:
                raise DataError(f"{self.title} is not Parquet ({error}): write the file anew") from None

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        import pyarrow as pa

        with self._file() as file:
            for name in columns:
                kind = file.schema_arrow.field(name).type
                if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
                    batch = next(file.iter_batches(batch_size=1, columns=[name]), None)
                    cell = batch.column(name)[0].as_py() if batch is not None else None
                    raise DataError(
                        f"{self.title}: column {name!r} holds {kind}, in row 1 {cell!r}: "
                        "store it as float64, or leave the column out with data.features"
                    )
            start = 0
            for batch in file.iter_batches(
                batch_size=_CHUNK_ROWS, columns=list(dict.fromkeys(columns)), use_threads=False
            ):
                yield [self._numbers(batch.column(name), name, start) for name in columns]
                start += batch.num_rows
        pa.default_memory_pool().release_unused()  # pages and dictionaries: some 3 MB a column

    def _numbers(self, cells: "pa.Array", name: str, start: int) -> Vector:
        if cells.null_count:
            row = start + int(np.flatnonzero(cells.is_null().to_numpy(zero_copy_only=False))[0]) + 1
            raise DataError(
                f"{self.title}: column {name!r}, row {row} is missing: drop the row or fill the value"
            )
        numbers: Vector = cells.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return numbers


@dataclass(frozen=True)
class _Npz:
    """Arrays X and y, and perhaps names: features for X (else x1, x2, ...), response for y (else any)."""

    path: Path
    title: str
    response: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with _trouble_told(self), zipfile.ZipFile(self.path) as archive:
            with self._array(archive, "X") as X, self._array(archive, "y") as y:
                self._require_table(X, y)
                p = X.shape[1]
            features = self._text(archive, "features", tuple(f"x{k + 1}" for k in range(p)))
            (response,) = self._text(archive, "response", (self.response,))
        if len(features) != p:
            raise DataError(
                f"{self.title}: features has {len(features)} names and X has {p} columns: name every column"
            )
        object.__setattr__(self, "names", _require_distinct((*features, response), self.title))

    def _require_table(self, X: "_Array", y: "_Array") -> None:
        for name, array in (("X", X), ("y", y)):
            if array.dtype.kind not in "fiub":
                raise DataError(
                    f"{self.title}: {name} holds {array.dtype} values: store it as float64, "
                    "with names in an array of their own, features"
                )
        if len(X.shape) != 2 or len(y.shape) != 1 or X.shape[0] != y.shape[0]:
            raise DataError(
                f"{self.title}: X has shape {X.shape} and y {y.shape}: "
                "store X as (rows, columns) and y as (rows,)"
            )
        if X.fortran_order and X.nbytes > KEPT_BYTES:
            raise DataError(
                f"{self.title}: X is stored by columns and too large to turn round in memory: "
                "store np.ascontiguousarray(X)"
            )

    @contextmanager
    def _array(self, archive: zipfile.ZipFile, name: str) -> "Iterator[_Array]":
        if f"{name}.npy" not in archive.namelist():
            raise DataError(f"{self.title} has no array {name!r}: save it with np.savez(file, X=X, y=y)")
        with archive.open(f"{name}.npy") as stream:
            try:
                version = npy.read_magic(stream)
                read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran_order, dtype = read_header(stream)
            except ValueError as error:
                raise DataError(f"{self.title}: {name} is no array ({error}): write the file anew") from None
            yield _Array(stream, shape, fortran_order, dtype)

    def _text(self, archive: zipfile.ZipFile, name: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
        if f"{name}.npy" not in archive.namelist():
            return otherwise
        with self._array(archive, name) as array:
            if array.dtype.kind != "U" or len(array.shape) != (1 if name == "features" else 0):
                raise DataError(
                    f"{self.title}: {name} holds {array.dtype} values of shape {array.shape}: store text"
                )
            return tuple(map(str, np.atleast_1d(array.read(array.size).reshape(array.shape))))

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        order = [self.names.index(name) for name in columns]
        with (
            _trouble_told(self),
            zipfile.ZipFile(self.path) as archive,
            self._array(archive, "X") as X,
            self._array(archive, "y") as y,
        ):
            n, p = X.shape
            whole = X.read(X.size).reshape((n, p), order="F") if X.fortran_order else None
            for start in range(0, n, _CHUNK_ROWS):
                rows = min(_CHUNK_ROWS, n - start)
                part = X.read(rows * p).reshape(rows, p) if whole is None else whole[start : start + rows]
                cells = [*part.T, y.read(rows)]
                yield [cells[k].astype(np.float64, copy=False) for k in order]


@dataclass(frozen=True, slots=True)
class _Array:
    """An array in an archive, read from front to back."""

    stream: IO[bytes]
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def read(self, count: int) -> NDArray[Any]:
        """The next values, flat, in the order they are stored."""
        wanted = count * self.dtype.itemsize
        raw = self.stream.read(wanted)
        if len(raw) < wanted:
            raise EOFError("it ends too soon")
        return np.frombuffer(raw, dtype=self.dtype)
