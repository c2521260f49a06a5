"""What nodes say to each other, as values; `transport.codec` makes bytes of them and checks foreign ones."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from desmr_node.core.arrays import Matrix
from desmr_node.core.method import METHOD

Words = NDArray[np.uint64]

#: Newest version of this protocol, and the oldest that is still spoken: one back, so that the nodes of a
#: network can be upgraded one at a time. docs/decisions/0010-versions.md says when to raise it.
VERSION = 1
OLDEST_VERSION = max(1, VERSION - 1)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of everybody's table, in order."""

    response: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a node stands: the latest fit it knows of, whether that is under way, and its place in it.

    ``finished``: it has ended that fit well, and holds what a neighbour may lack of it. ``continues``: the
    number under which the fit began, if it goes on without some of its members. ``closed``: its members are
    known, and nobody can join it any more.
    """

    fit: int = 0
    active: bool = False
    outer: int = 0
    inner: int = 0
    finished: bool = False
    continues: int = 0
    closed: bool = False

    @property
    def base(self) -> int:
        """The number under which the fit began."""
        return self.continues or self.fit

    def progress(self) -> tuple[int, bool, bool, int, int]:
        """Orders the standings of one process in time: nobody enters a fit again that it has left."""
        return self.fit, not self.active, self.closed, self.outer, self.inner

    def can_be_joined(self) -> bool:
        """Whether a node that has no part in that fit may still have one."""
        return self.active and not self.closed and not self.continues


@dataclass(frozen=True, slots=True)
class Hello:
    """First message each way on a stream; `settings` are those of the fit, name to JSON value.

    ``defaults`` are what they are where nobody sets them: by these an end that does not know a setting can
    tell whether it matters.
    """

    network: str
    node: str
    incarnation: int
    schema: Schema
    settings: dict[str, str] = field(hash=False)
    standing: Standing
    version: int = VERSION
    oldest_version: int = OLDEST_VERSION
    method: int = METHOD
    release: str = ""
    defaults: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """Why the sender will not talk to the receiver."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The sender's coefficient vectors (p, L) before inner round `inner`."""

    fit: int
    outer: int
    inner: int
    B: Matrix


@dataclass(frozen=True, slots=True)
class Introduction:
    """A member, its neighbours and its keys: the record of flood 0.

    ``certificate`` is an X.509 certificate (DER), or a bare public key in an insecure network. ``continues``
    and ``lost``: this goes on with an earlier fit, and without these. ``indispensable``: the others may not
    go on without this member. ``rows``: how many it has, where members may lie about it later; else 0.
    """

    origin: str
    neighbours: tuple[str, ...]
    mask_key: bytes
    certificate: bytes
    signature: bytes
    continues: int = 0
    lost: tuple[str, ...] = ()
    indispensable: bool = False
    rows: int = 0

    def content(self) -> bytes:
        """What the signature covers, besides the record's place."""
        parts = [name.encode() for name in self.neighbours] + [self.mask_key, self.certificate]
        if self.continues or self.indispensable or self.rows:
            flags = self.continues.to_bytes(4, "little") + bytes([self.indispensable])
            flags += self.rows.to_bytes(8, "little") if self.rows else b""
            parts += [b"", flags, *(name.encode() for name in self.lost)]  # no key is empty, no name either
        return b"".join(len(p).to_bytes(4, "little") + p for p in parts)

    def size(self) -> int:
        """About how many bytes it takes, or a little more."""
        names = 65 * (1 + len(self.neighbours) + len(self.lost))
        return names + len(self.mask_key) + len(self.certificate) + len(self.signature)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A member's masked contribution to a network sum: the record of a later flood."""

    origin: str
    words: Words
    signature: bytes

    def content(self) -> bytes:
        """What the signature covers, besides the record's place."""
        return self.words.astype("<u8", copy=False).tobytes()

    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.origin) + 8 * len(self.words) + len(self.signature)


Record = Introduction | Part


def same(one: Record, other: Record) -> bool:
    """Whether two records of one origin say the same."""
    if one is other:
        return True
    if isinstance(one, Part) and isinstance(other, Part):
        return bool(np.array_equal(one.words, other.words))
    return isinstance(one, type(other)) and one.content() == other.content()


@dataclass(frozen=True, slots=True)
class Flood:
    """Records that the receiver may lack: introductions (number 0) or parts of a sum, never both."""

    fit: int
    number: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Send again what seems lost: the records of a sum by these members, and the vectors still held."""

    fit: int
    number: int
    missing: tuple[str, ...]
    vectors: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """The fit is off, everywhere."""

    fit: int
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The sender has finished this fit and needs nothing more."""

    fit: int


Message = Hello | Reject | Vector | Flood | Ask | Abort | Done
