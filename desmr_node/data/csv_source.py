"""Tables of commas and line breaks, packed or not."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.data.sources import require_distinct, trouble_told
from desmr_node.errors import DataError

#: How missing values are commonly written.
_MISSING = {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?", "."}


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

    def _lines(self) -> IO[str]:
        if self.path.name.lower().endswith(".gz"):
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return open(self.path, encoding="utf-8-sig", newline="")

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """As `Source.chunks`; what arrow refuses is looked up in the text and told with its line."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it has no stubs
        import pyarrow.csv  # type: ignore[import-untyped]

        # Small, since many blocks are read ahead; a block must hold a line, at some 25 characters a cell.
        block_size = max(2**17, 128 * len(self.names))
        with trouble_told(self):
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
