"""A node's place in a fit on disk: written whole or not at all, checked when read, never readable by others.

A file is a line that names format and checksum, then the snapshot as MessagePack. Two are kept: if the newest
is damaged the one before it still serves, for as long as the neighbours hold what has happened since.
"""

from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, get_origin

import msgspec
import numpy as np

from desmr_node.core.method import METHOD
from desmr_node.core.share import Progress
from desmr_node.errors import DataError
from desmr_node.protocol.machine import Setup
from desmr_node.protocol.place import Place
from desmr_node.runtime.files import replace_file

#: Raise it when a snapshot of an older release could be misread.
FORMAT = 1
_MAGIC = b"desmr-snapshot"
NEWEST, PREVIOUS = "snapshot", "snapshot.previous"


@dataclass(frozen=True, slots=True)
class Setting:
    """What must be the same for a snapshot to be of any use: with other rows or settings the bits differ."""

    network: str
    node: str
    neighbours: tuple[str, ...]
    schema: tuple[str, ...]
    settings: dict[str, str]
    rows: bytes
    method: int = METHOD

    @classmethod
    def of(cls, setup: Setup, rows: bytes) -> "Setting":
        """Of a node and the digest of its rows."""
        schema = (setup.schema.response, *setup.schema.features)
        neighbours = tuple(sorted(setup.neighbours))
        return cls(setup.network, setup.node, neighbours, schema, dict(setup.settings), rows, setup.method)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a node needs to be where it was.

    The mask key and, in a network without certificates, the signing key are secrets of this one fit.
    """

    setting: Setting
    place: Place
    progress: Progress
    mask_key: bytes = field(repr=False)
    signing_key: bytes = field(repr=False)


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(type(value).__name__)


def _from_plain(kind: type, value: Any) -> Any:
    if get_origin(kind) is not np.ndarray:
        raise NotImplementedError(kind)
    dtype, shape, data = value
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_plain)
_DECODER = msgspec.msgpack.Decoder(Snapshot, dec_hook=_from_plain)


def to_bytes(snapshot: Snapshot) -> bytes:
    """The content of a file."""
    body = _ENCODER.encode(snapshot)
    return b"%s %d %s\n%s" % (_MAGIC, FORMAT, sha256(body).hexdigest().encode(), body)


def from_bytes(data: bytes) -> Snapshot:
    """The snapshot; raises `ValueError` saying what is wrong with the bytes."""
    head, _, body = data.partition(b"\n")
    magic, _, rest = head.partition(b" ")
    written, _, checksum = rest.partition(b" ")
    if magic != _MAGIC or not written.isdigit():
        raise ValueError("is no snapshot")
    if int(written) != FORMAT:
        raise ValueError(f"has format {int(written)}, and this release reads {FORMAT}")
    if sha256(body).hexdigest().encode() != checksum:
        raise ValueError("is damaged: its checksum does not match")
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ValueError(f"is damaged: {error}") from None


def save(folder: Path, snapshot: Snapshot) -> None:
    """Put a snapshot in the place of the newest, which becomes the previous one."""
    replace_file(folder / NEWEST, to_bytes(snapshot), keep=folder / PREVIOUS)


def forget(folder: Path) -> None:
    """There is no fit to go back to."""
    for name in (NEWEST, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def load(folder: Path, setting: Setting) -> tuple[Snapshot | None, list[str]]:
    """The newest snapshot that is sound and of this node's present setting; and why others are not it."""
    complaints = []
    for name in (NEWEST, PREVIOUS):
        path = folder / name
        try:
            if path.stat().st_mode & 0o077:
                raise DataError(
                    f"is readable by others (mode {path.stat().st_mode & 0o777:04o}) and holds keys: "
                    f"`chmod 600 {path}` if you trust it, or delete it"
                )
            snapshot = from_bytes(path.read_bytes())
            foreign = _foreign(snapshot.setting, setting)
            if foreign:
                raise DataError(f"is of {foreign}")
        except FileNotFoundError:
            continue
        except OSError as error:
            complaints.append(f"{path} cannot be read ({error.strerror})")
        except (DataError, ValueError) as error:
            complaints.append(f"{path} {error}")
        else:
            return snapshot, complaints
    return None, complaints


def _foreign(found: Setting, here: Setting) -> str:
    """What makes a snapshot useless here, in words; empty if nothing does."""
    words = {
        "network": f"another network, {found.network!r}",
        "node": f"another node, {found.node!r}",
        "neighbours": "a time with other neighbours",
        "schema": "a time with other columns",
        "settings": "a fit with other settings",
        "rows": "a fit of other rows",
        "method": f"a release that computes by method {found.method}",
    }
    mine, yours = asdict(here), asdict(found)
    return next((text for name, text in words.items() if mine[name] != yours[name]), "")


def rows_digest(secret: bytes) -> bytes:
    """Tells whether the rows have changed, and nothing about them to whoever has no copy."""
    return sha256(b"desmr snapshot" + secret).digest()
