"""What left this node: one line per message, written before the message is sent.

A node that cannot write the line does not send the message; the one exception is the message that calls the
fit off for that reason, whose line is in the node's log. Lines survive a crash of the process (each is
handed to the system at once) but, like everything of a disk's last seconds, not a loss of power.
"""

import json
import os
import time
from collections.abc import Sequence
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path

from desmr_node.errors import DesmrError
from desmr_node.protocol.messages import Flood, Introduction, Message, Vector


class AuditFailed(DesmrError):  # noqa: N818 - says what happened
    """The audit log cannot be written."""


def describe(message: Message) -> str:
    """Kind and place of a message as members of a JSON object; never its content."""
    match message:
        case Vector(fit, outer, inner, B):
            rows, columns = B.shape
            return f'"kind":"vector","fit":{fit},"outer":{outer},"inner":{inner},"shape":[{rows},{columns}]'
        case Flood(fit, number, records):
            kind = "introductions" if isinstance(records[0], Introduction) else "masked sums"
            origins = json.dumps([record.origin for record in records], separators=(",", ":"))
            return f'"kind":"{kind}","fit":{fit},"sum":{number},"origins":{origins}'
    return f'"kind":"{type(message).__name__.lower()}"'


class AuditLog:
    """A file of JSON lines, readable by its owner alone.

    It may be moved away at any time: the next line begins a new file in its place. That is seen by a look at
    the path before every line, which costs three microseconds.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        try:
            self._open()
        except OSError as error:
            raise AuditFailed(
                f"{path}: the audit log cannot be written ({error.strerror}): mend its permissions"
            ) from None

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        opened = os.fstat(self._file)
        self._place = opened.st_dev, opened.st_ino

    def _follow(self) -> None:
        """Have the file open that is at the path."""
        try:
            there = os.stat(self._path)
            if (there.st_dev, there.st_ino) == self._place:
                return
        except FileNotFoundError:
            pass
        old = self._file
        self._open()
        os.close(old)

    def write(self, message: Message, data: bytes, peers: Sequence[str]) -> None:
        """Note that these bytes are about to go to these peers."""
        to = '","'.join(peers)  # node ids need no escaping
        text = (
            f'{{"time":{time.time():.3f},"to":["{to}"],{describe(message)},'
            f'"bytes":{len(data)},"sha256":"{sha256(data).hexdigest()}"}}\n'
        ).encode()
        try:
            if self._file >= 0:
                self._follow()
            written = os.write(self._file, text)
            if written != len(text):
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)  # no half lines
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        except OSError as error:
            raise AuditFailed(
                f"the audit log cannot be written ({error.strerror}): nothing more is sent"
            ) from None

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)
        self._file = -1  # the system gives the number to the next file that is opened
