"""A node's inbox: neighbours' vectors by round, bounded by how far ahead a neighbour can honestly be.

In lock-step a neighbour that has our vector of round t can be at most at t + 1; with `max_lag` it may go that
many rounds further without hearing from us. It may have opened the next outer round while we still add up the
last one, but cannot get past that round's first vector. Anything beyond this window is the peer's fault.
A node that was killed and starts an outer round again finds its neighbours further on in it, or at the first
vector of the next: `replays` widens the window to the rounds they hold for it.
"""

from collections import deque

from desmr_node.core.arrays import Matrix
from desmr_node.core.share import Neighbours
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.messages import Vector


class Rounds:
    """Vectors received and sent in the present outer round, and the first ones of the next."""

    def __init__(self, neighbours: dict[str, int], max_lag: int, replays: int = 0) -> None:
        self.neighbours, self.max_lag = neighbours, max_lag
        self._ahead, self._ahead_next = max(max_lag + 1, replays), replays
        self.outer, self.inner = -1, 0
        self._own: dict[int, Matrix] = {}
        self._received: dict[str, dict[int, Matrix]] = {k: {} for k in neighbours}
        #: Vectors of outer rounds to come, by outer round and neighbour.
        self._early: dict[tuple[int, str], dict[int, Matrix]] = {}
        #: The last round up to which all of a neighbour's vectors are in: a gap would leave a pair unmatched.
        self._reach = dict.fromkeys(neighbours, -1)
        self._matched = dict.fromkeys(neighbours, -1)
        #: Our vectors of this outer round and the last: a neighbour that was killed may need them all again.
        self.retained: deque[Vector] = deque()

    def resume(self, sent: tuple[Vector, ...]) -> None:
        """All rounds up to these, our last ones, are behind us."""
        self.retained.extend(sent)
        if sent:
            last = sent[-1]
            self.outer, self.inner = last.outer, last.inner
            self._own[last.inner] = last.B
            self._reach = dict.fromkeys(self.neighbours, last.inner)
            self._matched = dict.fromkeys(self.neighbours, last.inner)

    def lacked_by(self, outer: int, inner: int) -> list[Vector]:
        """What a neighbour may lack that is in this round."""
        return [v for v in self.retained if (v.outer, v.inner) >= (outer, inner - self.max_lag)]

    def of_this_outer_round(self) -> tuple[Vector, ...]:
        """Our vectors since the last sum."""
        return tuple(v for v in self.retained if v.outer == self.outer)

    def advance(self, vector: Vector) -> None:
        """Our own vector of the next round is ready."""
        if vector.outer != self.outer:
            self.outer = vector.outer
            self._own.clear()
            for peer, received in self._received.items():
                received.clear()
                self._reach[peer] = -1
                received.update(self._early.pop((vector.outer, peer), {}))
                while self._reach[peer] + 1 in received:
                    self._reach[peer] += 1
            while self.retained and self.retained[0].outer < vector.outer - 1:
                self.retained.popleft()
            self._matched = dict.fromkeys(self.neighbours, -1)
        self.inner = vector.inner
        self._own[vector.inner] = vector.B
        self.retained.append(vector)

    def receive(self, peer: str, vector: Vector) -> bool:
        """Keep a neighbour's vector; False if it is stale or known already."""
        opens = vector.outer == self.outer + 2 and vector.inner == 0 and self._ahead_next > 0
        if opens or (vector.outer == self.outer + 1 and vector.inner <= self._ahead_next):
            early = self._early.setdefault((vector.outer, peer), {})
            known = vector.inner in early
            early.setdefault(vector.inner, vector.B)
            return not known
        if vector.outer < self.outer:
            return False
        if vector.outer > self.outer or vector.inner > self.inner + self._ahead:
            raise PeerFault(
                f"sent round ({vector.outer}, {vector.inner}) while we are at ({self.outer}, {self.inner}): "
                "further ahead than it can be"
            )
        received = self._received[peer]
        if vector.inner in received or vector.inner <= self._matched[peer]:
            return False
        if vector.B.shape != self._own[self.inner].shape:
            raise PeerFault(
                f"sent {vector.B.shape} coefficients in round ({vector.outer}, {vector.inner}) "
                f"instead of {self._own[self.inner].shape}"
            )
        received[vector.inner] = vector.B
        while self._reach[peer] + 1 in received:
            self._reach[peer] += 1
        return True

    def lacking(self, drain: bool = False) -> list[str]:
        """Neighbours without whose vectors we cannot take the next step (or close the round)."""
        needed = self.inner if drain else max(self.inner - self.max_lag, 0)
        return [k for k, reach in self._reach.items() if reach < needed]

    def misshapen(self) -> list[str]:
        """Neighbours whose early first vector has not the shape that the round turned out to have."""
        shape = self._own[self.inner].shape
        return [k for k, B in self._received.items() if any(b.shape != shape for b in B.values())]

    def neighbours_now(self) -> Neighbours:
        """The newest vector of each neighbour up to our own round, and the pairs that can now be matched.

        A neighbour may be ahead of us while we wait for another: its next vector is for our next round.
        """
        newest, matched = {}, {}
        for peer, index in self.neighbours.items():
            received, last = self._received[peer], self._matched[peer]
            now = self._matched[peer] = min(self._reach[peer], self.inner)
            matched[index] = [(self._own[t], received[t]) for t in range(last + 1, now + 1)]
            newest[index] = received[now]
            for t in range(max(last, 0), now):  # the newest stays: with a lag it may have to serve again
                del received[t]
        done = min(self._matched.values(), default=self.inner)
        for t in [t for t in self._own if t <= done and t < self.inner]:
            del self._own[t]
        return Neighbours(newest, matched)
