"""What left this node: one line per message, written before the message is sent.

A node that cannot write the line does not send the message. Lines survive a crash of the process (each is
handed to the system at once) but, like everything of a disk's last seconds, not a loss of power.
"""

import json
import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from desmr_node.errors import DesmrError
from desmr_node.protocol.messages import Flood, Introduction, Message, Vector


class AuditFailed(DesmrError):  # noqa: N818 - says what happened
    """The audit log cannot be written."""


def describe(message: Message) -> dict[str, object]:
    """Kind and place of a message; never its content."""
    told: dict[str, object] = {"kind": type(message).__name__.lower()}
    match message:
        case Vector(fit, outer, inner, B):
            told |= {"fit": fit, "outer": outer, "inner": inner, "shape": list(B.shape)}
        case Flood(fit, number, records):
            kind = "introductions" if isinstance(records[0], Introduction) else "masked sums"
            told |= {"kind": kind, "fit": fit, "sum": number, "origins": [r.origin for r in records]}
    return told


class AuditLog:
    """A file of JSON lines, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, message: Message, data: bytes, peers: Sequence[str]) -> None:
        """Note that these bytes are about to go to these peers."""
        line = {
            "time": round(time.time(), 3),
            "to": peers,
            **describe(message),
            "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            if os.write(self._file, text) != len(text):
                raise OSError("the disk is full")
        except OSError as error:
            raise AuditFailed(
                f"{self._path}: the audit log cannot be written ({error}): nothing more is sent"
            ) from None

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)
