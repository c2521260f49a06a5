"""Tables of commas and line breaks, packed or not."""

import csv
import gzip
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.data.plain_text import PlainText
from desmr_node.data.sources import CHUNK_ROWS, require_distinct, trouble_told
from desmr_node.errors import DataError

#: How missing values are commonly written.
_MISSING = {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?", "."}


class _NotPlainError(Exception):
    """Something that the fast reader does not take for a table of numbers."""


@dataclass(frozen=True)
class CsvSource:
    """Names in the first line, a row in each of the others."""

    path: Path
    title: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        with trouble_told(self), self._lines() as lines:
            header = next((row for row in csv.reader(lines) if row), None)
        if header is None:
            raise DataError(f"{self.title} is empty: write the names of the columns in its first line")
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            raise DataError(
                f"{self.title} is not separated by commas ({header[0]!r}): "
                "save it with commas, and with points in decimal numbers"
            )
        object.__setattr__(self, "names", require_distinct(tuple(header), self.title))

    @property
    def _packed(self) -> bool:
        return self.path.name.lower().endswith(".gz")

    def _lines(self) -> IO[str]:
        if self._packed:
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return open(self.path, encoding="utf-8-sig", newline="")

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """As `Source.chunks`; from the first chunk with anything unusual on, Python reads the text itself."""
        count = 0
        with trouble_told(self):
            try:
                for part in self._quickly(columns):
                    yield part
                    count += len(part[0])
            except _NotPlainError:
                yield from self._carefully(columns, count)

    def _quickly(self, columns: tuple[str, ...]) -> Iterator[list[Vector]]:
        from arro3.core import DataType, Field, Schema
        from arro3.io import read_csv

        wanted, number, nothing = set(columns), DataType.float64(), DataType.null()
        schema = Schema(
            [Field(str(k), number if name in wanted else nothing) for k, name in enumerate(self.names)]
        )
        order = [self.names.index(name) for name in columns]
        with gzip.open(self.path) if self._packed else open(self.path, "rb") as raw:
            try:
                text = io.BufferedReader(PlainText(raw))
                for batch in read_csv(text, schema, has_header=True, batch_size=CHUNK_ROWS):
                    cells = [batch.column(k) for k in order]
                    if any(column.null_count for column in cells):
                        raise _NotPlainError("a cell is empty")
                    yield [column.to_numpy() for column in cells]
            except Exception as error:  # arro3 has none of its own, nor passes on those of `raw`
                raise _NotPlainError(str(error)) from None

    def _carefully(self, columns: tuple[str, ...], count: int) -> Iterator[list[Vector]]:
        """The rows after the first `count`, line by line; a bad cell anywhere is told with its line."""
        places = [(self.names.index(name), name) for name in columns]
        chunk: list[list[float]] = []
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
                numbers = [_number(row[k]) for k, _ in places]
                for (k, name), number in zip(places, numbers, strict=True):
                    if not math.isfinite(number):
                        raise DataError(f"{self.title}: column {name!r}, {here} {_fault(row[k])}")
                if i > count:
                    chunk.append(numbers)
                if len(chunk) == CHUNK_ROWS:
                    yield list(np.array(chunk).T)
                    chunk = []
        if chunk:
            yield list(np.array(chunk).T)


def _number(cell: str) -> float:
    """The number in a cell, NaN if there is none; Python's digits of other scripts and 1_000 are none."""
    try:
        return float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return math.nan


def _fault(cell: str) -> str:
    """What is wrong with a cell that holds no finite number."""
    if cell.strip().lower() in _MISSING:
        return f"is missing ({cell!r}): drop the row or fill the value"
    if math.isinf(_number(cell)):
        return f"is not finite ({cell!r}): drop the row or fill the value"
    return f"is not a number ({cell!r}): correct it, or leave the column out with data.features"
