"""Network sums: signed records flooded to closure, so that all hold the same set and add it up alike."""

from collections.abc import Iterable

import numpy as np

from desmr_node.core.graph import Graph
from desmr_node.errors import ConfigError
from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import Packing
from desmr_node.protocol.messages import Introduction, Part, Record, Words, same

#: Introductions are not limited by a known membership; this many members are.
MOST_MEMBERS = 4_096


class TwoFaced(FitFailure):
    """A member has signed two different records for one place: this one, and the one that is held."""

    def __init__(self, record: Record, number: int) -> None:
        super().__init__(f"{record.origin} signed two different records for sum {number}: it lies or is ill")
        self.record = record


class Flood:
    """The records of one sum that this node holds, and which of them each neighbour is known to hold."""

    def __init__(self, number: int, own: Record, neighbours: Iterable[str], roster: "Roster | None") -> None:
        self.number, self.roster = number, roster
        self.records: dict[str, Record] = {}
        self._at_peer: dict[str, set[str]] = {k: set() for k in neighbours}
        self._relays = None if roster is None else roster.relays(own.origin)
        #: Origins of records to pass on to each neighbour, and (in flood 0) everybody named so far.
        self._pending: dict[str, set[str]] = {k: set() for k in self._at_peer}
        self._eager: set[str] = set()
        self._named: set[str] = set()
        self.keep(own)

    def receive(self, peer: str, records: Iterable[Record]) -> list[Record]:
        """Note what the peer holds; return what is new to us, which the caller must check before `keep`."""
        fresh = []
        for record in records:
            if isinstance(record, Introduction) != (self.number == 0):
                raise PeerFault(f"sent a record of the wrong kind in sum {self.number}")
            if self.roster is not None and record.origin not in self.roster.index:
                raise PeerFault(f"sent a record of {record.origin!r}, which is no member of this fit")
            self._at_peer[peer].add(record.origin)
            known = self.records.get(record.origin)
            if known is None or not same(known, record):
                fresh.append(record)
        if len(self.records) + len(fresh) > MOST_MEMBERS:
            raise PeerFault(f"sent records of more than {MOST_MEMBERS} members")
        return fresh

    def keep(self, record: Record) -> None:
        """A new record whose signature holds. Only its origin can make two of those: no relay is to blame."""
        known = self.records.get(record.origin)
        if known is not None and not same(known, record):
            raise TwoFaced(record, self.number)
        if known is None:
            self.records[record.origin] = record
            for peer in self._heirs(record.origin):
                if record.origin not in self._at_peer[peer]:
                    self._pending[peer].add(record.origin)
                    self._eager.add(peer)
            if isinstance(record, Introduction):
                self._named.update(record.neighbours)

    def _heirs(self, origin: str) -> Iterable[str]:
        """The neighbours to whom a record of this origin is passed on."""
        return self._pending if self._relays is None else self._relays.get(origin, ())

    def eager(self) -> list[str]:
        """Neighbours for whom there may be news."""
        eager, self._eager = sorted(self._eager), set()
        return eager

    def news_for(self, peer: str) -> tuple[Record, ...]:
        """Records to pass on that the peer is not known to hold; from now on it is taken to hold them."""
        pending, held = self._pending[peer], self._at_peer[peer]
        if not pending:
            return ()
        news = sorted(pending - held)
        pending.clear()
        held.update(news)
        return tuple(self.records[origin] for origin in news)

    def of(self, origins: Iterable[str]) -> tuple[Record, ...]:
        """The records of these members, as far as they are here."""
        return tuple(self.records[origin] for origin in sorted(set(origins)) if origin in self.records)

    def forget(self, peer: str) -> None:
        """The stream to the peer broke: what it holds is unknown again."""
        if peer in self._at_peer:
            self._at_peer[peer].clear()
            self._pending[peer] = {origin for origin in self.records if peer in self._heirs(origin)}

    def missing(self) -> list[str]:
        """Members whose record has yet to come: all, or all that some introduction names as neighbour."""
        if self.roster is None:
            return sorted(self._named - self.records.keys())
        if len(self.records) == len(self.roster.names):
            return []
        return [name for name in self.roster.names if name not in self.records]


def _introduction(record: Record) -> Introduction:
    assert isinstance(record, Introduction)  # `receive` sees to it
    return record


class Roster:
    """The members of a fit in sorted order, and the graph between them: what a closed flood 0 says."""

    def __init__(self, introductions: dict[str, Record], *, heirs: bool = False) -> None:
        """Of ``heirs``, who go on without some, an edge counts if both its ends still have it."""
        self.names = tuple(sorted(introductions))
        self.index = {name: j for j, name in enumerate(self.names)}
        self._relays: dict[str, dict[str, list[str]]] = {}
        links = {name: set(_introduction(introductions[name]).neighbours) for name in self.names}
        for name in self.names:
            for other in sorted(links[name]):
                if name not in links[other] and not heirs:
                    raise FitFailure(
                        f"{name} lists {other} as its neighbour but {other} does not list {name}: "
                        "add it to [[neighbours]] there, or remove it here"
                    )
        edges = [(self.index[a], self.index[b]) for a in self.names for b in links[a] if a in links[b]]
        try:
            self.graph = Graph.from_edges(len(self.names), edges)
        except ConfigError:  # honest floods run along edges: somebody was passed off as a member
            raise FitFailure(
                f"the members {', '.join(self.names)} are not connected by the neighbours they list: "
                + ("start again" if heirs else "somebody passes on introductions that do not belong here")
            ) from None

    def relays(self, here: str) -> dict[str, list[str]]:
        """To whom `here` passes each origin's records on: a shortest-path tree from every origin.

        With the graph known a record need not cross every edge both ways. If one goes missing on the tree (an
        edge is down, a relay keeps it to itself) whoever lacks it asks all its neighbours.
        """
        if here not in self._relays:
            j, parents = self.index[here], self.graph.parents()
            relays: dict[str, list[str]] = {}
            for w in self.graph.neighbours[j]:
                for origin in np.flatnonzero(parents[:, w] == j):
                    relays.setdefault(self.names[origin], []).append(self.names[w])
            self._relays[here] = relays
        return self._relays[here]


def total(records: dict[str, Record], packing: Packing) -> Words:
    """The sum of all members' words, number by number with carries; their order does not matter."""
    vectors, length = [], packing.length
    for origin in sorted(records):
        part = records[origin]
        assert isinstance(part, Part)  # `Flood.receive` sees to it
        if len(part.words) != length:
            raise FitFailure(
                f"{origin} contributed {len(part.words)} words to a sum of {length}: it runs another fit"
            )
        vectors.append(part.words)
    return packing.sum(vectors)
