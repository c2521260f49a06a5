"""A network in one process: messages in virtual time, with seeded delay, loss, duplication and partitions.

It is harsher than any stream: messages overtake each other, arrive twice, or vanish and nobody is told. A
partition breaks the streams of its edges at both ends, loses what is under way on them, and lets nothing
through until it heals. Only what opens a stream or ends a fit is never lost on its own: a node says it once,
since a real stream that loses it is broken, and the next one begins with a new `Hello`.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from desmr_node.protocol.messages import Done, Hello, Message, Reject
from desmr_node.transport import codec


@dataclass(frozen=True, slots=True)
class Faults:
    """What the network does to messages: delay in seconds (uniform), chances of loss and of duplication."""

    delay: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0
    duplication: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that arrives."""

    source: str
    target: str
    message: Message


@dataclass(frozen=True, slots=True)
class Change:
    """An edge that comes up or goes down."""

    one: str
    other: str
    up: bool


Happening = Delivery | Change


@dataclass(slots=True)
class _Edge:
    """How many partitions hold an edge down, and the number of its present stream."""

    holds: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class _Flight:
    """A message on its way, on one stream."""

    source: str
    target: str
    message: Message | bytes
    stream: int


class SimulatedNetwork:
    """Carries messages between named nodes; `next` says what happens next, and when.

    With ``limits`` every message travels as bytes through the codec; without, by reference, which is as
    lossless and much faster for hundreds of nodes. ``tap`` sees (source, target, bytes) of everything sent
    as bytes.
    """

    def __init__(
        self,
        limits: codec.Limits | None,
        *,
        faults: Faults | None = None,
        rng: np.random.Generator | None = None,
        tap: Callable[[str, str, bytes], None] | None = None,
    ) -> None:
        self.limits, self.rng, self.tap = limits, rng, tap
        self.faults = faults or Faults()
        if self.faults != Faults((self.faults.delay[0],) * 2) and rng is None:
            raise ValueError("random faults need a random number generator")
        self.now = 0.0
        self.bytes_sent = 0
        self.lost = self.duplicated = 0
        self._queue: list[tuple[float, int, Change | _Flight]] = []
        self._sequence = 0
        self._edges: dict[frozenset[str], _Edge] = {}
        self._sizes: dict[int, tuple[Message, int]] = {}

    def connect(self, edges: Iterable[tuple[str, str]]) -> None:
        """Bring edges up, now."""
        for one, other in edges:
            self._edges[frozenset((one, other))] = _Edge(holds=1)
            self._at(self.now, Change(one, other, True))

    def cut(self, one: str, other: str, start: float, end: float) -> None:
        """Partition: the edge is down from `start` until `end`, or longer if another partition holds it."""
        self._at(start, Change(one, other, False))
        if end < float("inf"):
            self._at(end, Change(one, other, True))

    def send(self, source: str, target: str, message: Message) -> None:
        """Put a message on its way."""
        faults = self.faults
        data = codec.encode(message) if self.limits is not None else b""
        self.bytes_sent += len(data) if self.limits is not None else self._size(message)
        if self.tap is not None and self.limits is not None:
            self.tap(source, target, data)
        edge = self._edges[frozenset((source, target))]
        if edge.holds:
            return
        copies = 1
        if self.rng is not None:
            if self.rng.random() < faults.loss and not isinstance(message, Hello | Reject | Done):
                self.lost += 1
                return
            if self.rng.random() < faults.duplication:
                self.duplicated += 1
                copies = 2
        for _ in range(copies):
            delay = self.rng.uniform(*faults.delay) if self.rng is not None else faults.delay[0]
            carried = data if self.limits is not None else message
            self._at(self.now + delay, _Flight(source, target, carried, edge.stream))

    def imminent(self) -> bool:
        """Whether something happens at this very moment."""
        return bool(self._queue) and self._queue[0][0] <= self.now

    def next(self, before: float = float("inf")) -> Happening | None:
        """Let time pass until something happens; None if nothing does before `before`."""
        while self._queue and self._queue[0][0] <= before:
            self.now, _, what = heapq.heappop(self._queue)
            if isinstance(what, Change):
                edge = self._edges[frozenset((what.one, what.other))]
                was_up = edge.holds == 0
                edge.holds += -1 if what.up else 1
                edge.stream += was_up
                if was_up != (edge.holds == 0):
                    return what
            elif what.stream == self._edges[frozenset((what.source, what.target))].stream:
                message = what.message
                if isinstance(message, bytes):
                    assert self.limits is not None
                    message = codec.decode(message, self.limits)
                return Delivery(what.source, what.target, message)
        self.now = max(self.now, before) if before != float("inf") else self.now
        return None

    def _at(self, when: float, what: "Change | _Flight") -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when, self._sequence, what))

    def _size(self, message: Message) -> int:
        """Bytes of a message that several neighbours are sent: encoded once."""
        known = self._sizes.get(id(message))
        if known is None or known[0] is not message:
            if len(self._sizes) > 10_000:
                self._sizes.clear()
            known = self._sizes[id(message)] = message, codec.size(message)
        return known[1]
