"""Parquet tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.data.sources import CHUNK_ROWS, require_distinct, trouble_told
from desmr_node.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no stubs
    import pyarrow.parquet  # type: ignore[import-untyped]


@dataclass(frozen=True)
class ParquetSource:
    """Columns of numbers, in row groups of any size."""

    path: Path
    title: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with self._file() as file:
            names = tuple(file.schema_arrow.names)
        object.__setattr__(self, "names", require_distinct(names, self.title))

    @contextmanager
    def _file(self) -> "Iterator[pyarrow.parquet.ParquetFile]":
        import pyarrow as pa
        import pyarrow.parquet

        with trouble_told(self):
            try:
                # Buffered and not read ahead: a row group may hold the whole table.
                with pyarrow.parquet.ParquetFile(self.path, buffer_size=2**16, pre_buffer=False) as file:
                    yield file
            except pa.ArrowException as error:
                raise DataError(f"{self.title} is not Parquet ({error}): write the file anew") from None

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """As `Source.chunks`, `CHUNK_ROWS` rows at a time."""
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
                batch_size=CHUNK_ROWS, columns=list(dict.fromkeys(columns)), use_threads=False
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
