"""Keys and certificates that are replaced while the node runs, and a word before they expire."""

import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock

from desmr_node.errors import ConfigError
from desmr_node.transport.probe import SOON_DAYS
from desmr_node.transport.tls import Identity, moment

log = logging.getLogger("desmr.node")

_REMIND_AGAIN = timedelta(days=1)
_Mark = tuple[int, int, int] | None


class Renewal:
    """The node's identity as its files have it now.

    Files are replaced one after the other, so there are moments when they do not fit together: until they do,
    the identity before them is used, and the log says so once. gRPC asks from threads of its own.
    """

    def __init__(self, load: Callable[[], Identity], files: Sequence[Path]) -> None:
        self._load, self._files = load, tuple(files)
        self._lock = Lock()
        self._marks = self._refused = self._look()
        self._identity = load()

    def __call__(self) -> Identity:
        """The identity to use for what begins now."""
        with self._lock:
            marks = self._look()  # before the files are read: a change in between is seen next time
            if marks != self._marks:
                try:
                    self._identity = self._load()
                except ConfigError as error:
                    # Read again each time: a certificate may only have to wait for its first day.
                    if marks != self._refused:
                        log.warning(f"the certificates were replaced, but the old ones stay in use: {error}")
                    self._refused = marks
                else:
                    self._marks = marks
                    end = moment(self._identity.valid_until)
                    log.info(
                        f"the certificates were replaced: new streams and the next fit use them until {end}; "
                        "streams that are up stay up"
                    )
            return self._identity

    def _look(self) -> tuple[_Mark, ...]:
        return tuple(_mark(path) for path in self._files)


def _mark(path: Path) -> _Mark:
    """What changes when a file does; none while it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Reminder:
    """Says, once a day, that a certificate is about to expire."""

    def __init__(self, identity: Callable[[], Identity]) -> None:
        self._identity = identity
        self._last: datetime | None = None

    def due(self, now: datetime) -> str | None:
        """The sentence, if it is time for it."""
        end = self._identity().valid_until
        days = (end - now).days
        if days >= SOON_DAYS or (self._last is not None and now - self._last < _REMIND_AGAIN):
            return None
        self._last = now
        if now > end:
            return (
                f"the certificate of this node expired on {moment(end)}: no neighbour takes it any more, "
                "and it takes part in no fit until a new one is put in its place"
            )
        return (
            f"the certificate of this node expires on {moment(end)}, in {days} days: have it issued again by "
            "whoever keeps ca.key, and put it in its place while the node runs"
        )
