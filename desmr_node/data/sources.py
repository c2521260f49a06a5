"""A table in a file, whatever its format, and the trouble that any file can give."""

import csv
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from desmr_node.core.arrays import Vector
from desmr_node.core.rows import BLOCK_ROWS
from desmr_node.errors import DataError

#: Rows taken from a file at a time, beside the block they go into.
CHUNK_ROWS = BLOCK_ROWS // 4
#: What the standard library raises over a damaged archive; encrypted and exotic ones are the last two.
_DAMAGED = (EOFError, csv.Error, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError)


class Source(Protocol):
    """A table in a file: its names, and its columns in chunks of whatever length suits the format."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def title(self) -> str:
        """How messages call it: node and file."""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the file, in its order, no two alike."""

    def chunks(self, columns: tuple[str, ...]) -> Iterator[Sequence[Vector]]:
        """The columns as float64, top to bottom; a cell that is no number is a DataError."""


@contextmanager
def trouble_told(source: Source) -> Iterator[None]:
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


def require_distinct(names: tuple[str, ...], title: str) -> tuple[str, ...]:
    """The names, if no two are the same."""
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(
                f"{title} has two columns named {name!r} (columns {names.index(name) + 1} and {k + 1}): "
                "rename one"
            )
    return names
