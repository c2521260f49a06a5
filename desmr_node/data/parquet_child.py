"""The process that decodes a Parquet file for `parquet_source`.

arro3 panics over some damaged files, and where it does so it ends its process: this one, not the node's.
Run as a script, with the request on standard input; it does without numpy, and starts in some 20 ms.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from arro3.core import DataType, Field, RecordBatch, RecordBatchReader, Schema
from arro3.io import read_parquet, write_ipc_stream


def describe(path: str) -> list[tuple[str, str | None, str]]:
    """Each column's name, its type if it does not hold numbers, and then its first cell."""
    schema = read_parquet(path).schema
    fields = [schema.field(k) for k in range(len(schema))]
    kinds = [None if _is_number(each.type) else _name(each.type) for each in fields]
    first = next(iter(read_parquet(path, batch_size=1)), None) if any(kinds) else None
    return [
        (each.name, kind, repr(_cell(first, k)) if kind else "")
        for k, (each, kind) in enumerate(zip(fields, kinds, strict=True))
    ]


def _is_number(kind: DataType) -> bool:
    if DataType.is_dictionary(kind) and kind.value_type is not None:
        kind = kind.value_type
    return DataType.is_floating(kind) or DataType.is_integer(kind) or DataType.is_boolean(kind)


def _name(kind: DataType) -> str:
    """As Arrow writes it in other languages: string, list, decimal128(5, 2)."""
    if any(f(kind) for f in (DataType.is_string, DataType.is_large_string, DataType.is_string_view)):
        return "string"
    name = repr(kind).strip().removeprefix("arro3.core.DataType<").removesuffix(">").lower()
    return name if DataType.is_decimal(kind) else name.partition("(")[0]


def _cell(first: RecordBatch | None, k: int) -> Any:
    try:
        return first.column(k)[0].as_py() if first is not None else None
    except Exception:  # of a type that Python has not: its name says enough
        return None


def stream(path: str, columns: list[str], rows: int) -> None:
    """Columns as float64, in Arrow's format for streams, to standard output."""
    double = DataType.float64()
    schema = Schema([Field(name, double) for name in columns])

    def batches() -> Iterator[RecordBatch]:
        for batch in read_parquet(path, batch_size=rows):
            cells = [batch.column(name).cast(double) for name in columns]
            yield RecordBatch.from_arrays(cells, schema=schema)

    write_ipc_stream(RecordBatchReader.from_batches(schema, batches()), sys.stdout.buffer, compression=None)


def main() -> int:
    """Answer one request; what goes wrong is told on standard error, shortly."""
    # Panics are printed, at any length, by whatever panics: only the last word shall reach the node.
    report = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        request = json.load(sys.stdin)
        if request["columns"] is None:
            json.dump(describe(request["path"]), sys.stdout)
        else:
            stream(request["path"], request["columns"], request["rows"])
        sys.stdout.flush()
    except BaseException as error:  # a panic is no Exception
        os.write(report, str(error).encode(errors="replace")[:1000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
