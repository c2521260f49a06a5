"""Parquet tables."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from desmr_node.core.arrays import Vector
from desmr_node.data.sources import CHUNK_ROWS, require_distinct, trouble_told
from desmr_node.errors import DataError

if TYPE_CHECKING:
    from arro3.core import Array

_CHILD = Path(__file__).with_name("parquet_child.py")
_WRAPPINGS = re.compile(
    "^((External( error)?|Exception|C Data interface error|Parquet( argument)? error): )+"
)


@dataclass(frozen=True)
class ParquetSource:
    """Columns of numbers, in row groups of any size; decoded by a process that may die of a damaged file."""

    path: Path
    title: str
    names: tuple[str, ...] = field(init=False)
    #: Columns that do not hold numbers: their type and first cell.
    _others: dict[str, tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        with self._child(None) as answer:
            columns = json.load(answer)
        names = tuple(name for name, _, _ in columns)
        object.__setattr__(self, "names", require_distinct(names, self.title))
        object.__setattr__(self, "_others", {name: (kind, cell) for name, kind, cell in columns if kind})

    @contextmanager
    def _child(self, columns: tuple[str, ...] | None) -> Iterator[IO[bytes]]:
        """What the child answers; if that ends too soon, why."""
        request = {"path": os.fspath(self.path), "columns": columns, "rows": CHUNK_ROWS}
        with trouble_told(self):
            with open(self.path, "rb"):
                pass  # a file that is not there or may not be read is told as for any other
            with subprocess.Popen(
                [sys.executable, "-P", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as child:
                assert child.stdin is not None
                assert child.stdout is not None
                assert child.stderr is not None
                try:
                    with child.stdin:
                        child.stdin.write(json.dumps(request).encode())
                    yield child.stdout
                except BaseException as error:
                    if isinstance(error, DataError) or not isinstance(error, Exception):
                        child.kill()  # nobody wants the rest
                        raise
                    # Half an answer makes no sense to its reader: the child knows what the matter is.
                    while child.stdout.read(2**20):
                        pass
                    if child.wait() == 0:
                        raise
                if child.wait() < 0 and -child.returncode != signal.SIGABRT:
                    raise DataError(
                        f"{self.title} could not be read: {signal.Signals(-child.returncode).name} ended the "
                        "process that decodes it, perhaps for want of memory: give the node more"
                    )
                if child.returncode != 0:
                    reason = _reason(child.stderr.read().decode(errors="replace"))
                    raise DataError(f"{self.title} is not Parquet ({reason}): write the file anew")

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """As `Source.chunks`, `CHUNK_ROWS` rows at a time."""
        from arro3.io import read_ipc_stream

        for name in columns:
            if name in self._others:
                kind, cell = self._others[name]
                raise DataError(
                    f"{self.title}: column {name!r} holds {kind}, in row 1 {cell}: "
                    "store it as float64, or leave the column out with data.features"
                )
        start = 0
        with self._child(tuple(dict.fromkeys(columns))) as answer:
            for batch in read_ipc_stream(answer):
                yield [self._numbers(batch.column(name), name, start) for name in columns]
                start += batch.num_rows

    def _numbers(self, cells: "Array", name: str, start: int) -> Vector:
        if cells.null_count:
            row = start + next(i for i in range(len(cells)) if not cells[i].is_valid) + 1
            raise DataError(
                f"{self.title}: column {name!r}, row {row} is missing: drop the row or fill the value"
            )
        return cells.to_numpy()


def _reason(told: str) -> str:
    """The last word of a decoder without the wrappings of its layers."""
    quoted = re.search(r'\("([^"]*)"\)$', told)
    if told.startswith("called `") and not quoted:
        told = ""
    first = (quoted[1] if quoted else told).partition("\n")[0]
    return _WRAPPINGS.sub("", first) or "damaged"
