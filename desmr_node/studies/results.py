"""What the repetitions of a study found: rows in memory, and results.csv, which a run can go on from."""

import csv
import io
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desmr_node.core.arrays import Vector
from desmr_node.errors import DataError

#: One combination of what a study varies, e.g. {"noise": "cauchy", "n": 200}.
Cell = Mapping[str, str | int | float]
#: One line of results.csv beyond its cell and seed: the method, where on a curve, and the measures.
Row = Mapping[str, str | float]
#: A repetition: the values of its cell as text, and its seed.
Key = tuple[tuple[str, ...], int]


def cell_key(cell: Cell) -> tuple[str, ...]:
    """The values of a cell, as results.csv has them."""
    return tuple(map(str, cell.values()))


class Results:
    """The rows of all repetitions so far, by cell and method."""

    def __init__(self) -> None:
        self._rows: dict[tuple[tuple[str, ...], str], list[tuple[int, Row]]] = defaultdict(list)
        self.seeds: set[int] = set()

    def add(self, key: Key, rows: Iterable[Row]) -> None:
        """Take the rows of one repetition."""
        cell, seed = key
        self.seeds.add(seed)
        for row in rows:
            self._rows[cell, str(row["method"])].append((seed, row))

    def present(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of the cells that were run: a study may be run in part."""
        known = {key for key, _ in self._rows}
        return [cell for cell in cells if cell_key(cell) in known]

    def methods(self, cell: Cell) -> list[str]:
        """The methods of a cell, in the order they were run."""
        return [method for key, method in self._rows if key == cell_key(cell)]

    def rows(self, cell: Cell, method: str, **where: float) -> list[Row]:
        """The rows of a method in a cell, in the order of seeds; ``where`` picks points of a curve."""
        found = sorted(self._rows.get((cell_key(cell), method), []), key=lambda pair: pair[0])
        return [row for _, row in found if all(row[name] == value for name, value in where.items())]

    def values(self, cell: Cell, method: str, measure: str, **where: float) -> Vector:
        """A measure in every repetition."""
        return np.array([row[measure] for row in self.rows(cell, method, **where)], dtype=np.float64)

    def mean(self, cell: Cell, method: str, measure: str, **where: float) -> float:
        """Its mean over repetitions; NaN if there is none."""
        values = self.values(cell, method, measure, **where)
        return float(values.mean()) if len(values) else float("nan")

    def curve(self, cell: Cell, method: str, along: str, measure: str) -> tuple[Vector, Vector]:
        """Means of a measure at every value of ``along``, which ascend."""
        at: dict[float, list[float]] = defaultdict(list)
        for row in self.rows(cell, method):
            at[float(row[along])].append(float(row[measure]))
        places = sorted(at)
        return np.array(places), np.array([float(np.mean(at[x])) for x in places])


class ResultsFile:
    """results.csv: a block of lines for each repetition, written when it is done.

    Every line says which of how many of its block it is, so that half a block, which a killed run left at the
    end, is recognised and dropped. Anything else that does not fit was changed by hand: it is refused, not
    repaired, since a repair would throw away what took an hour to compute.
    """

    def __init__(self, path: Path, factors: Sequence[str], columns: Sequence[str]) -> None:
        self.path, self.factors = path, tuple(factors)
        self.header = (*factors, "seed", "line", "of", "method", *columns)
        self._columns = tuple(columns)

    def read(self) -> dict[Key, list[Row]]:
        """The complete blocks of the file, if there is one."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.path} cannot be read ({error}): name another folder with --out") from None
        header, *lines = text.split("\n")[:-1] or [""]
        if tuple(header.split(",")) != self.header:
            raise DataError(
                f"{self.path} is no file of this study: name another folder with --out, or add --fresh"
            )
        blocks: dict[Key, list[Row]] = {}
        open_block: list[Row] = []
        expected: tuple[Key, int] | None = None
        for number, line in enumerate(lines, 2):
            try:
                key, place, of, row = self._parse(line)
            except (ValueError, csv.Error):
                place = 0
            if place != len(open_block) + 1 or (open_block and (key, of) != expected):
                raise DataError(
                    f"{self.path}, line {number}, does not continue the lines before it: put the file back "
                    "as it was written, name another folder with --out, or add --fresh to begin again"
                )
            expected = key, of
            open_block.append(row)
            if place == of:
                blocks[key], open_block = open_block, []
        return blocks

    def _parse(self, text: str) -> tuple[Key, int, int, Row]:
        line = next(csv.reader([text], strict=True), [])
        if len(line) != len(self.header):
            raise ValueError(f"{len(line)} columns")
        count = len(self.factors)
        seed, place, of = (int(text) for text in line[count : count + 3])
        measures = {name: float(text) for name, text in zip(self._columns, line[count + 4 :], strict=True)}
        return (tuple(line[:count]), seed), place, of, {"method": line[count + 3], **measures}

    def rewrite(self, blocks: Mapping[Key, Sequence[Row]]) -> None:
        """Put these blocks, sorted as given, in the place of the file, all at once."""
        part = self.path.with_suffix(".part")
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.header)
            for key, rows in blocks.items():
                writer.writerows(self._lines(key, rows))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)

    def append(self, key: Key, rows: Sequence[Row]) -> None:
        """Add one repetition, in one write."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._lines(key, rows))
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())

    def _lines(self, key: Key, rows: Sequence[Row]) -> Iterator[list[Any]]:
        cell, seed = key
        for place, row in enumerate(rows, 1):
            measures = [row[name] for name in self._columns]
            yield [*cell, seed, place, len(rows), row["method"], *measures]
