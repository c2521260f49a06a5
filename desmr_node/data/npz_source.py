"""Arrays in numpy's archives, read a part at a time."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from desmr_node.core.arrays import Vector
from desmr_node.data.sources import CHUNK_ROWS, require_distinct, trouble_told
from desmr_node.errors import DataError


@dataclass(frozen=True)
class NpzSource:
    """Arrays X and y, and perhaps names: features for X (else x1, x2, ...), response for y (else any)."""

    path: Path
    title: str
    response: str
    #: An X stored by columns must be read whole, and is refused above this.
    most_bytes: int
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with trouble_told(self), zipfile.ZipFile(self.path) as archive:
            with self._array(archive, "X") as X, self._array(archive, "y") as y:
                self._require_table(X, y)
                p = X.shape[1]
            features = self._text(archive, "features", tuple(f"x{k + 1}" for k in range(p)))
            (response,) = self._text(archive, "response", (self.response,))
        if len(features) != p:
            raise DataError(
                f"{self.title}: features has {len(features)} names and X has {p} columns: name every column"
            )
        object.__setattr__(self, "names", require_distinct((*features, response), self.title))

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
        if X.fortran_order and X.nbytes > self.most_bytes:
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
        """As `Source.chunks`, `CHUNK_ROWS` rows at a time."""
        order = [self.names.index(name) for name in columns]
        with (
            trouble_told(self),
            zipfile.ZipFile(self.path) as archive,
            self._array(archive, "X") as X,
            self._array(archive, "y") as y,
        ):
            n, p = X.shape
            whole = X.read(X.size).reshape((n, p), order="F") if X.fortran_order else None
            for start in range(0, n, CHUNK_ROWS):
                rows = min(CHUNK_ROWS, n - start)
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
