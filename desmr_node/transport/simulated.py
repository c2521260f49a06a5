"""A network in one process: messages as bytes, in virtual time, with seeded delay, loss, duplication, partition.

A lost message is what a broken stream loses: nobody is told. A partition breaks the streams of its edges at
both ends and lets nothing through until it heals.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from desmr_node.protocol.messages import Message
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


class SimulatedNetwork:
    """Carries messages between named nodes; `next` says what happens next, and when.

    With ``limits`` every message travels as bytes through the codec; without, by reference, which is as lossless
    and much faster for hundreds of nodes. ``tap`` sees (source, target, bytes) of everything sent.
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
        self.now = 0.0
        self.bytes_sent = 0
        self.lost = self.duplicated = 0
        self._queue: list[tuple[float, int, Happening | tuple[str, str, bytes]]] = []
        self._sequence = 0
        self._down: set[frozenset[str]] = set()
        self._sizes: dict[int, tuple[Message, int]] = {}

    def connect(self, edges: Iterable[tuple[str, str]]) -> None:
        """Bring edges up, now."""
        for one, other in edges:
            self._at(self.now, Change(one, other, True))

    def cut(self, one: str, other: str, start: float, end: float) -> None:
        """Partition: the edge is down from `start` until `end`."""
        self._at(start, Change(one, other, False))
        self._at(end, Change(one, other, True))

    def send(self, source: str, target: str, message: Message) -> None:
        """Put a message on its way."""
        faults = self.faults
        data = codec.encode(message) if self.limits is not None else b""
        self.bytes_sent += len(data) if self.limits is not None else self._size(message)
        if self.tap is not None:
            self.tap(source, target, data)
        if frozenset((source, target)) in self._down:
            return
        copies = 1
        if self.rng is not None:
            if faults.loss and self.rng.random() < faults.loss:
                self.lost += 1
                return
            if faults.duplication and self.rng.random() < faults.duplication:
                self.duplicated += 1
                copies = 2
        for _ in range(copies):
            when = self.now + (self.rng.uniform(*faults.delay) if self.rng is not None else faults.delay[0])
            if self.limits is not None:
                self._at(when, (source, target, data))
            else:
                self._at(when, Delivery(source, target, message))

    def next(self, before: float = float("inf")) -> Happening | None:
        """Let time pass until something happens; None if nothing does before `before`."""
        while self._queue and self._queue[0][0] <= before:
            self.now, _, what = heapq.heappop(self._queue)
            if isinstance(what, Change):
                edge = frozenset((what.one, what.other))
                if what.up:
                    self._down.discard(edge)
                else:
                    self._down.add(edge)
                return what
            source, target = (what.source, what.target) if isinstance(what, Delivery) else what[:2]
            if frozenset((source, target)) in self._down:
                continue  # it was in flight when the stream broke
            if isinstance(what, Delivery):
                return what
            assert self.limits is not None
            return Delivery(source, target, codec.decode(what[2], self.limits))
        self.now = max(self.now, before) if before != float("inf") else self.now
        return None

    def _at(self, when: float, what: Happening | tuple[str, str, bytes]) -> None:
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
