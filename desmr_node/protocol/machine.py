"""The node as a state machine: events in, effects out. No socket, clock, thread, randomness or logging.

Phases, and what moves a node from one to the next:

    IDLE        no fit yet                          -- Called -->                         MEETING
                                                    -- Resumed -->    GATHERING, COMPUTING or DONE
    MEETING     waiting for all neighbours          -- all greeted, Enrolled -->          GATHERING
    GATHERING   flooding introductions              -- flood 0 closed -->                 COMPUTING
    COMPUTING   the worker is busy                  -- Computed(Sum) -->                  SUMMING
                                                    -- Computed(Exchange or Drain) -->    EXCHANGING
                                                    -- Computed(Finished) -->             DONE
    SUMMING     flooding parts of a sum             -- flood closed -->                   COMPUTING
    EXCHANGING  waiting for neighbours' vectors     -- all in -->                         COMPUTING
    DONE        the fit is over                     -- Called -->                         MEETING
    FAILED      the fit is off, `reason` says why   -- Called -->                         MEETING

A node that hears of a newer fit joins it: at rest it goes to MEETING, as if called; while it still gathers
for an older one it changes over; later it waits until the present fit is over. In every phase of a fit a
Stopped, an Abort from a neighbour, a broken worker, a neighbour that refuses us or is away for longer than
`patience` leads to FAILED, and all neighbours are told. A node moves as soon as its neighbours allow; only
sums wait for everybody. What a slower neighbour may lack of a finished fit is kept until the next one begins,
and that begins when no neighbour needs it any more.

A node that is killed loses nothing: its place (`protocol.place`) is saved before anything is sent that
follows from it, and Resumed takes it back there. What it did since it does again, to the same bits, from what
its neighbours still hold and repeat. The statistics are the worker's: the machine carries its
requests and knows nothing of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from desmr_node.core.contributions import Contribution
from desmr_node.core.fit import MemberFit
from desmr_node.core.force import Suspicion
from desmr_node.core.method import METHOD
from desmr_node.core.share import Answer, Drain, Exchange, Finished, Sum
from desmr_node.protocol import events as ev
from desmr_node.protocol import greeting, sums
from desmr_node.protocol.events import Effect, Event
from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import RangeExceeded, pack, packing_of, unpack
from desmr_node.protocol.lineage import Lineage
from desmr_node.protocol.messages import (
    OLDEST_VERSION,
    VERSION,
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Message,
    Part,
    Record,
    Reject,
    Schema,
    Standing,
    Vector,
    same,
)
from desmr_node.protocol.place import Place
from desmr_node.protocol.rounds import Rounds
from desmr_node.protocol.seal import CONFIRMED, Seal


class Phase(Enum):
    """Where a node stands; see the head of the module."""

    IDLE = "idle"
    MEETING = "meeting"
    GATHERING = "gathering"
    COMPUTING = "computing"
    SUMMING = "summing"
    EXCHANGING = "exchanging"
    DONE = "done"
    FAILED = "failed"

    __hash__ = object.__hash__  # phases are looked up at every event, and Enum's own hash is slow


RESTING = frozenset({Phase.IDLE, Phase.DONE, Phase.FAILED})
IN_A_FIT = frozenset({Phase.GATHERING, Phase.COMPUTING, Phase.SUMMING, Phase.EXCHANGING})
_BUSY = frozenset({Phase.COMPUTING})
_WAITING = IN_A_FIT - _BUSY
_ENROLLING = frozenset({Phase.MEETING, Phase.GATHERING})

#: What each event means in each phase. A pair that is not here is a bug of ours, and raises.
TABLE: dict[type[Event], dict[frozenset[Phase], str]] = {
    ev.Called: {RESTING: "_meet", IN_A_FIT | {Phase.MEETING}: "_ignore"},
    ev.Resumed: {frozenset({Phase.IDLE}): "_resume", frozenset(Phase) - {Phase.IDLE}: "_ignore"},
    ev.Enrolled: {_ENROLLING: "_gather", frozenset(Phase) - _ENROLLING: "_ignore"},
    ev.Declined: {_ENROLLING: "_decline", frozenset(Phase) - _ENROLLING: "_ignore"},
    ev.Connected: {frozenset(Phase): "_greet"},
    ev.Lost: {frozenset(Phase): "_lose"},
    ev.Received: {frozenset(Phase): "_receive"},
    ev.Garbled: {frozenset(Phase): "_garble"},
    ev.Computed: {_BUSY: "_go_on", frozenset(Phase) - _BUSY: "_ignore"},
    ev.Broken: {_BUSY: "_break", frozenset(Phase) - _BUSY: "_ignore"},
    ev.Stopped: {IN_A_FIT | {Phase.MEETING}: "_stop", RESTING: "_ignore"},
    ev.Ticked: {frozenset(Phase): "_tick"},
}

_HANDLERS = {
    (kind, phase): handler
    for kind, rows in TABLE.items()
    for phases, handler in rows.items()
    for phase in phases
}

#: Silence after which a node asks its neighbours to repeat themselves, in seconds; doubles each time.
ASK_AFTER, ASK_AT_MOST = 2.0, 30.0
#: By how many fits others may be ahead of a node that was away.
_MOST_AHEAD = 1_000_000
_FORGETFUL = "was restarted in the middle of the fit and has lost its place"
#: Bytes of records in one message; a larger record travels alone.
_BUNDLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node is, for as long as its process lives. ``patience`` in seconds, or infinity.

    ``inner_rounds`` is how many an outer round has: what a neighbour holds for a node that was killed.
    ``indispensable``: the others may not go on without this node when it is lost in the middle of a fit.
    ``rows`` is how many it has, if members are not trusted to tell the truth about that later; then whoever
    is proven to lie is left out. ``last_fit`` is the number of the last fit it finished in an earlier life.
    ``defaults`` of the settings are for neighbours of an older release, which may not know all of them.
    ``version`` and ``oldest_version`` are the wire versions it speaks, ``release`` is for people.
    """

    network: str
    node: str
    neighbours: tuple[str, ...]
    schema: Schema
    settings: dict[str, str] = field(hash=False)
    max_lag: int = 0
    inner_rounds: int = 0
    indispensable: bool = False
    rows: int = 0
    patience: float = 60.0
    incarnation: int = 0
    last_fit: int = 0
    defaults: dict[str, str] = field(default_factory=dict, hash=False)
    version: int = VERSION
    oldest_version: int = OLDEST_VERSION
    method: int = METHOD
    release: str = ""


@dataclass(slots=True)
class Peer:
    """A neighbour as this node sees it: away, connected (nothing said yet), up, or refused.

    ``since`` says how long it has been of no use: a peer that comes back only to break the protocol again
    was never back.
    """

    state: str = "away"
    #: No stream since it was last up or refused: what was said on that one is no news any more.
    closed: bool = True
    faulty: bool = False
    since: float = 0.0
    reason: str = "not connected yet"
    incarnation: int | None = None
    standing: Standing = field(default_factory=Standing)
    #: Wire version spoken with it while it is up, else 0.
    version: int = 0
    #: What it runs, as it said last; empty if it never said.
    release: str = ""


def _parts(flood: sums.Flood) -> tuple[Part, ...]:
    return tuple(record for record in flood.records.values() if isinstance(record, Part))


class Machine:
    """One node. `handle` is the only way in; everything else is to be read."""

    _seal: Seal
    _own: Introduction

    def __init__(self, setup: Setup, now: float) -> None:
        self.setup = setup
        self.phase = Phase.IDLE
        self.reason = ""
        self.fit = setup.last_fit
        self.began = self.ended = now
        self.peers = {k: Peer(since=now) for k in sorted(setup.neighbours)}
        self.roster: sums.Roster | None = None
        #: The fit as it began, once its members are known.
        self.lineage: Lineage | None = None
        #: Why the fit stands still here until somebody comes back, if it does.
        self.paused = ""
        #: The neighbours we have in the present fit: those we list and, once all is known, that list us.
        self._mates: tuple[str, ...] = tuple(self.peers)
        self._confirmed = False
        self._resumed = False
        #: What the last outer round showed of the neighbours, by name.
        self.doubted: frozenset[str] = frozenset()
        self.accused: frozenset[str] = frozenset()
        self._uneasy: frozenset[str] = frozenset()
        self._weighed: Suspicion | None = None
        self.rounds = Rounds({}, 0)
        self.members: tuple[str, ...] = ()
        self.flood: sums.Flood | None = None
        self._previous: sums.Flood | None = None
        #: The last fit, if it was finished: of it we still hold what a neighbour may lack.
        self._finished = 0
        #: What the members of the last fit that failed were told.
        self._aborted: Abort | None = None
        #: Records of sums to come, by sum, sender and origin; after a restart there may be some of two.
        self._early: dict[tuple[int, str, str], Record] = {}
        self._furthest = 0
        self._introductions: tuple[Introduction, ...] = ()
        #: A sum was closed, and the worker told: what it asks for next is the place to come back to.
        self._unsaved = False
        self._called = 0
        self._enrolling = 0
        self._heir: Lineage | None = None
        self._ticket = 0
        self._request: Sum | Exchange | Drain | Finished | None = None
        self._ask_at, self._ask_wait = float("inf"), ASK_AFTER
        self._effects: list[Effect] = []
        self._now = now

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event; the effects are to be carried out in order, and before the next event."""
        self._now, self._effects = now, []
        try:
            getattr(self, _HANDLERS[type(event), self.phase])(event)
        except (FitFailure, RangeExceeded) as failure:
            self._fail(str(failure))
        return self._effects

    def deadline(self) -> float:
        """When a `Ticked` is due, if nothing else happens; infinity for never."""
        if self.phase in RESTING:
            return float("inf")
        away = [self._away_since(self.peers[name]) + self.setup.patience for name in self._missed()]
        return min([*away, self._ask_at if self.phase in _WAITING else float("inf")])

    def _missed(self) -> list[str]:
        """Neighbours that are away, and are not waited for beyond `patience`."""
        if self.phase is Phase.MEETING:
            return [name for name, peer in self.peers.items() if peer.state != "up"]
        if self.paused or self._enrolling:
            return []
        return [name for name in self._mates if self.peers[name].state != "up"]

    def waiting_for(self) -> list[str]:
        """Members without whom this node cannot go on."""
        if self.phase is Phase.MEETING:
            return [name for name, peer in self.peers.items() if not self._ready(peer)]
        if self.phase is Phase.EXCHANGING:
            return self.rounds.lacking(isinstance(self._request, Drain))
        if self.phase in (Phase.SUMMING, Phase.GATHERING) and self.flood:
            return self.flood.missing()
        return []

    def lost(self) -> list[str]:
        """Members of the present fit, as it began, that are not in it any more."""
        if self.lineage is None:
            return []
        return sorted(self.lineage.founders.keys() - set(self.members) if self.members else self.lineage.lost)

    def suspicion_of(self, name: str) -> str:
        """Whether a neighbour seems to lie: "doubted", "accused", "left out", or nothing."""
        if self.lineage is not None and name in self.lineage.condemned:
            return "left out"
        return "accused" if name in self.accused else "doubted" if name in self.doubted else ""

    def finished_neighbours(self) -> bool:
        """Whether no neighbour still needs this node for the present fit."""
        return all(
            not p.standing.active or p.standing.fit < self.fit for p in self.peers.values() if p.state == "up"
        )

    # -- neighbours ------------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """What this node says first on every stream."""
        setup = self.setup
        active, rounds = self.phase in IN_A_FIT, self.rounds
        finished = self.phase is Phase.DONE and self._finished == self.fit
        continues = self.lineage.base if self.lineage and self.lineage.base != self.fit else 0
        closed = active and self.roster is not None
        standing = Standing(self.fit, active, max(rounds.outer, 0), rounds.inner, finished, continues, closed)
        return Hello(
            network=setup.network,
            node=setup.node,
            incarnation=setup.incarnation,
            schema=setup.schema,
            settings=setup.settings,
            standing=standing,
            version=setup.version,
            oldest_version=setup.oldest_version,
            method=setup.method,
            release=setup.release,
            defaults=setup.defaults,
        )

    def _greet(self, event: ev.Connected) -> None:
        # It may be a new stream in place of one whose end has not been noticed yet.
        peer = self.peers[event.peer]
        peer.closed = False
        # What it did wrong is worth more to know than that it is back.
        self._set_apart(event.peer, "connected", peer.reason if peer.faulty else "has not said hello yet")
        self._send(event.peer, self.hello())

    def _lose(self, event: ev.Lost) -> None:
        peer = self.peers[event.peer]
        if peer.state == "up":
            self._report(f"{event.peer} is gone: {event.reason}")
        if peer.state != "refused" or peer.closed:
            self._set_apart(event.peer, "away", event.reason)
        peer.closed = True
        for flood in (self.flood, self._previous):
            if flood:
                flood.forget(event.peer)

    def _receive(self, event: ev.Received) -> None:
        name, message = event.peer, event.message
        try:
            if isinstance(message, Hello) or self.peers[name].state == "up":
                self._require_near(message)
            match message:
                case Vector() if self.peers[name].state == "up":  # first, as nearly all are
                    self._on_vector(name, message)
                case Hello():
                    self._on_hello(name, message)
                case Flood() if self._left_out(name, message.fit):
                    pass  # it is not in this fit with us, or does not know it yet
                case Abort() if self._left_out(name, message.fit) and not self.paused:
                    pass  # what it may call off is not what we do
                case Reject():
                    self._refuse(name, f"{name} refuses: {message.reason}")
                case _ if self.peers[name].state != "up":
                    pass  # said before its hello: it will be said again after it
                case Flood():
                    self._on_flood(name, message)
                case Ask():
                    self._on_ask(name, message)
                case Abort():
                    self._on_abort(name, message)
                case Done():
                    self._on_done(name, message)
        except PeerFault as fault:
            self._blame(name, fault)

    def _require_near(self, message: Message) -> None:
        """The number of a fit that could be: after the largest there would be no other."""
        fit = message.standing.fit if isinstance(message, Hello) else getattr(message, "fit", 0)
        if fit > self.fit + _MOST_AHEAD:
            raise PeerFault(f"speaks of fit {fit} while we are at {self.fit}: further ahead than it can be")

    def _garble(self, event: ev.Garbled) -> None:
        self._blame(event.peer, PeerFault(event.reason))

    def _blame(self, name: str, fault: PeerFault) -> None:
        """A peer's fault costs it its edge."""
        self._set_apart(name, "away", f"{name} {fault}")
        self.peers[name].faulty = True
        self._effects.append(ev.Drop(name, f"{name} {fault}", fault=True))

    def _set_apart(self, name: str, state: str, reason: str) -> None:
        """For whatever reason, the peer is of no use from now on (if it was until now)."""
        peer = self.peers[name]
        if peer.state == "up" and not peer.faulty:
            peer.since = self._now
        peer.state, peer.reason, peer.version = state, reason, 0

    def _on_hello(self, name: str, hello: Hello) -> None:
        peer = self.peers[name]
        own = self.hello()
        peer.release = hello.release  # of one that is refused, too: it may be what has to change
        found = greeting.differences(own, hello, name)
        if found:
            reason = "; ".join(found)
            self._send(name, Reject(reason))
            self._refuse(name, reason)
            return
        known = peer.incarnation is not None
        restarted = known and peer.incarnation != hello.incarnation
        forgetful = restarted or (self._resumed and not known)  # all were in the fit when we were killed
        newly = peer.state != "up"
        if restarted:
            peer.standing = Standing()
        peer.incarnation, peer.state, peer.reason = hello.incarnation, "up", ""
        peer.version = greeting.spoken(own, hello) or 0
        self._note(name, hello.standing)
        if newly:
            self._report(f"{name} is up{self._other_release(peer)}")
        if forgetful and self._counts_on(name) and not self._is_back(hello.standing):
            self._miss([name], _FORGETFUL, for_good=True)
            return
        self._welcome(name)
        self._repeat(name)
        if hello.standing.can_be_joined() and hello.standing.fit > self.fit:
            self._hear_of(hello.standing.fit)
        self._try_enrol()

    def _other_release(self, peer: Peer) -> str:
        """A remark on a peer whose release is not ours: half-upgraded networks should be seen."""
        if peer.release == self.setup.release:
            return ""
        runs = f"release {peer.release}" if peer.release else "an unnamed release"
        return f" ({runs}, wire version {peer.version}; {self.setup.release or 'unnamed'} here)"

    def _note(self, name: str, standing: Standing) -> None:
        """Where a peer stands now, unless we know of a later standing: messages may overtake each other."""
        peer = self.peers[name]
        peer.standing = max(peer.standing, standing, key=Standing.progress)

    def _counts_on(self, name: str) -> bool:
        """Whether the peer has taken up a part in the present fit that only the same process can play."""
        if self.phase not in IN_A_FIT or name not in self._mates:
            return False
        return self.lineage is not None or (self.flood is not None and name in self.flood.records)

    def _is_back(self, standing: Standing) -> bool:
        """Whether a restarted peer is still in the present fit, or holds all that we may lack of it."""
        base = self.lineage.base if self.lineage else self.fit
        return (standing.active and standing.base == base) or (standing.finished and standing.fit == self.fit)

    def _left_out(self, name: str, fit: int) -> bool:
        """Whether a neighbour has no part in the present fit, of which it speaks."""
        return fit == (self.fit if self.phase in IN_A_FIT else self._finished) and name not in self._mates

    def _refuse(self, name: str, reason: str) -> None:
        if self.peers[name].state == "refused":
            return  # each end tells the other what it has found: once is enough
        self._set_apart(name, "refused", reason)
        self._effects.append(ev.Drop(name, reason, fault=False))
        if self.phase not in RESTING:
            raise FitFailure(reason)

    def _serves(self, fit: int, name: str) -> bool:
        """Whether we hold what this member of this fit may ask for."""
        ours = self.fit if self.phase in IN_A_FIT else self._finished
        return fit > 0 and fit == ours and name in self._mates

    def _repeat(self, name: str) -> None:
        """Everything a neighbour may lack after its stream broke; what it has, it ignores."""
        standing = self.peers[name].standing
        if self.phase in IN_A_FIT and name not in self._mates:
            return
        if self.phase in IN_A_FIT or (standing.active and self._serves(standing.fit, name)):
            for flood in (self._previous, self.flood):
                if flood:
                    flood.forget(name)
                    self._send_records(name, flood.number, flood.news_for(name))
            for vector in self.rounds.lacked_by(standing.outer, standing.inner):
                self._send(name, vector)
        if self._finished:
            self._send(name, Done(self._finished))
        will_hear = self.phase in IN_A_FIT and self._is_back(standing)  # that we go on without some
        served = will_hear or self._serves(standing.fit, name)
        if standing.active and standing.fit <= self.fit and not served:
            self._call_off(name, standing.fit)

    # -- beginning and ending --------------------------------------------------------------------------

    def _meet(self, event: ev.Called | None = None) -> None:
        self.phase, self.reason, self.began = Phase.MEETING, "", self._now
        refused = [p.reason for p in self.peers.values() if p.state == "refused"]
        if refused:
            self._fail("; ".join(refused))
        self._try_enrol()

    def _ready(self, peer: Peer) -> bool:
        """Up, and not still busy with a fit that we have left behind, or that has begun without us."""
        standing = peer.standing
        joinable = standing.can_be_joined() and standing.fit > self.fit
        return peer.state == "up" and (joinable or not standing.active)

    def _try_enrol(self) -> None:
        if self.phase is Phase.MEETING and all(map(self._ready, self.peers.values())):
            self._enrol(self._next_number())

    def _next_number(self) -> int:
        standings = [p.standing for p in self.peers.values()]
        return max([self.fit + 1, self._called, *(s.fit + (not s.active) for s in standings)])

    def _hear_of(self, fit: int) -> None:
        """A neighbour is in a newer fit: join it, now or when the present one is over."""
        self._called = max(self._called, fit)
        if self.phase in RESTING:
            self._meet()
        elif self.phase is Phase.GATHERING and self.lineage is None:
            self._enrol(self._called)  # nothing has been computed yet: the larger number wins
        else:
            self._try_enrol()

    def _enrol(self, fit: int, heir: Lineage | None = None) -> None:
        if self._enrolling != fit:
            self._enrolling, self._heir = fit, heir
            self._effects.append(ev.Enrol(fit))

    def _decline(self, event: ev.Declined) -> None:
        if event.fit != self._enrolling:
            return
        self.fit, self._finished = event.fit, 0
        self.phase, self.began = Phase.GATHERING, self._now  # part of the fit for long enough to call it off
        self._fail(event.reason)

    def _gather(self, event: ev.Enrolled) -> None:
        seal = event.seal
        if seal.fit != self._enrolling:
            return
        self.phase, self.reason, self.paused = Phase.GATHERING, "", ""
        self.fit, self._enrolling, self._seal = seal.fit, 0, seal
        self.began = self._now
        self.lineage, self._heir = self._heir, None
        self._finished, self._aborted = 0, None
        self._confirmed = self._resumed = False
        self.doubted = self.accused = self._uneasy = frozenset()
        self._weighed = None
        self._previous, self._early, self._furthest = None, {}, 0
        self.roster, self.rounds, self.members = None, Rounds({}, 0), ()
        for peer in self.peers.values():
            peer.faulty = False
        heir, needed = self.lineage, self.setup.indispensable
        if heir is None:
            self._mates = tuple(self.peers)
            self._own = seal.introduce(self._mates, indispensable=needed, rows=self.setup.rows)
            self._report(f"fit {self.fit} begins")
        else:
            lost = heir.excluded
            self._mates = tuple(name for name in self.peers if name not in lost)
            self._own = seal.introduce(
                self._mates, continues=heir.base, lost=lost, indispensable=needed, rows=self.setup.rows
            )
            without = f" without {', '.join(lost)}" if lost else ""
            self._report(f"fit {self.fit} goes on with fit {heir.base}{without}")
        self._introductions, self._unsaved = (), False
        self.flood = sums.Flood(0, self._own, self._mates, None)
        self._save()
        self._progress()
        self._spread()
        for name in self._mates:  # it may have introduced itself before we were ready to listen
            self._send(name, Ask(self.fit, 0, (), False))
        self._close_if_complete()

    def _stop(self, event: ev.Stopped) -> None:
        self._fail(event.reason)

    def _break(self, event: ev.Broken) -> None:
        if event.ticket == self._ticket:
            self._fail(event.reason)

    def _fail(self, reason: str, origin: str | None = None, told_by: str | None = None) -> None:
        """End the fit here, and tell everybody who has not told us."""
        if self.phase in IN_A_FIT:
            off = self.fit
        else:  # meeting: what it would have been, if that is known
            off = max(self._called, self._enrolling)
            off = off if off > self.fit else 0
        origin = origin or self.setup.node
        self.phase, self.ended = Phase.FAILED, self._now
        self.reason = reason if origin == self.setup.node else f"{origin}: {reason}"
        self._enrolling, self._heir, self.paused = 0, None, ""
        self._effects.append(ev.Forget())
        self._effects.append(ev.Report(f"fit failed: {self.reason}", grave=True))
        if off:
            self.fit, self._aborted = off, Abort(off, origin, reason)
            for name in self.peers:
                if name != told_by:
                    self._call_off(name, off)
        if self._called > self.fit:
            self._meet()

    def _call_off(self, name: str, fit: int, reason: str = "") -> None:
        """Tell a neighbour that a fit is off; it will leave it, and need not answer."""
        aborted = self._aborted
        if aborted is None or aborted.fit != fit:
            aborted = Abort(fit, self.setup.node, reason or self._why_over(fit))
        self._send(name, aborted)
        if self.peers[name].state == "up":
            self._note(name, Standing(fit))
            self._try_enrol()

    def _why_over(self, fit: int) -> str:
        if self.lineage and self.lineage.base <= fit <= self.fit != self.lineage.base:
            return f"the others went on without this member as fit {self.fit}, which is over"
        return f"fit {fit} is over"

    def _on_abort(self, name: str, abort: Abort) -> None:
        self._note(name, Standing(abort.fit))
        if self.phase in IN_A_FIT and abort.fit == self.fit:
            self._fail(abort.reason, abort.origin, told_by=name)
        elif self.phase is Phase.MEETING and abort.fit > self.fit and abort.fit >= self._called:
            self._called = abort.fit
            self._fail(abort.reason, abort.origin, told_by=name)
        else:
            self._try_enrol()

    def _on_done(self, name: str, done: Done) -> None:
        self._note(name, Standing(done.fit))
        self._try_enrol()

    # -- sums ------------------------------------------------------------------------------------------

    def _on_flood(self, name: str, message: Flood) -> None:
        first = message.records[0] if message.records else None
        base = first.continues if isinstance(first, Introduction) else 0
        if not base and self.peers[name].standing.fit == message.fit:
            base = self.peers[name].standing.continues
        self._note(name, Standing(message.fit, active=True, continues=base, closed=message.number > 0))
        if message.fit > self.fit and message.number == 0:
            if base:
                self._hear_of_heirs(name, message, base)
            else:
                self._hear_of(message.fit)
        elif self.phase in IN_A_FIT and message.fit == self.fit and self.flood is not None:
            self._on_records(name, message)
        elif (
            self._serves(message.fit, name) and self.flood is not None and self.flood.number == message.number
        ):
            self._take_in(name, message.records)  # confirmations that others may still need
            self._spread()
        elif self.phase not in IN_A_FIT and message.number == 0 and not self._serves(message.fit, name):
            self._call_off(name, message.fit)

    def _on_records(self, name: str, message: Flood) -> None:
        assert self.flood is not None
        if message.number > max(self.flood.number + 1, self._furthest):
            if self._resumed and self.flood.number < self._furthest:
                raise FitFailure(
                    f"our snapshot, of sum {self.flood.number}, is too old: {name} is at {message.number}"
                )
            raise PeerFault(f"sent records of sum {message.number} while we are at {self.flood.number}")
        if message.number == 0 and self.roster is not None:
            known = {record.origin: record for record in self._introductions}
            if any(r.origin == name and not same(r, known.get(name, r)) for r in message.records):
                self._miss([name], _FORGETFUL, for_good=True)
        elif message.number == self.flood.number:
            self._take_in(name, message.records)
            self._spread()
            self._close_if_complete()
        elif message.number > self.flood.number and self.roster is not None:
            # It may well be a sum ahead, but not before it has passed on all introductions.
            for record in message.records:
                if record.origin not in self.roster.index:
                    raise PeerFault(f"sent a record of {record.origin!r}, which is no member of this fit")
                self._early[message.number, name, record.origin] = record

    def _take_in(self, name: str, records: Iterable[Record]) -> None:
        """Check and keep what is new. If some of it is bad, what came before stays good."""
        if self.flood is None:
            return  # what came before has ended this attempt
        try:
            for record in self.flood.receive(name, records):
                if isinstance(record, Introduction):
                    self._seal.admit(record)
                else:
                    self._seal.check(self.flood.number, record)
                self.flood.keep(record)
                self._progress()
                self.peers[name].faulty = False
        except PeerFault as fault:
            self._blame(name, fault)
        except sums.TwoFaced as proof:
            self._convict(proof)

    def _convict(self, proof: sums.TwoFaced) -> None:
        """A member has signed two records for one place: all get both, see for themselves, and leave it out.

        Before the members are known, or where liars are not looked for, the fit ends.
        """
        record = proof.record
        if not self.setup.rows or self.roster is None or record.origin == self.setup.node:
            raise proof
        assert self.flood is not None
        both = self.flood.records[record.origin], record
        for name in self._mates:
            if name != record.origin:
                self._send(name, Flood(self.fit, self.flood.number, both))
        if not self._expel([record.origin], str(proof)):
            raise proof

    def _spread(self) -> None:
        """Give every neighbour what it is not known to hold."""
        if self.flood is None:
            return
        for name in self.flood.eager():
            if self.peers[name].state == "up":  # whoever is not gets everything when it is
                self._send_records(name, self.flood.number, self.flood.news_for(name))

    def _send_records(self, name: str, number: int, records: Iterable[Record]) -> None:
        fit = self._finished or self.fit
        bundle: list[Record] = []
        size = 0
        for record in records:
            more = record.size()
            if bundle and size + more > _BUNDLE:
                self._send(name, Flood(fit, number, tuple(bundle)))
                bundle, size = [], 0
            bundle.append(record)
            size += more
        if bundle:
            self._send(name, Flood(fit, number, tuple(bundle)))

    def _close_if_complete(self) -> None:
        if self.flood is None or self.phase not in (Phase.GATHERING, Phase.SUMMING):
            return
        if isinstance(self._request, Finished) and self.phase is Phase.SUMMING:
            self._conclude_if_confirmed(self._request.fit)
            return
        if self.flood.missing():
            return
        if self.phase is Phase.GATHERING:
            if not self._may_go_on():
                return
            roster = self._constitute(replays=0)
            self._report(f"members: {', '.join(roster.names)}")
            self._unsaved = True
            self._compute(self._begin(roster))
        else:
            request = self._request
            assert isinstance(request, Sum)
            words = sums.total(self.flood.records, packing_of(request.part))
            kind: type[Contribution] = type(request.part)
            self._unsaved = True
            self._compute(unpack(kind, words, request.part, len(self.members), request.gram_exponent))

    def _begin(self, roster: sums.Roster, again: bool = False) -> ev.Begin:
        rows = {record.origin: record.rows for record in self._introductions}
        silent = sorted(name for name, count in rows.items() if count == 0)
        if self.setup.rows and silent:
            raise FitFailure(
                f"{', '.join(silent)} did not say with how many rows: upgrade it, or leave it out"
            )
        declared = tuple(rows[name] for name in roster.names) if self.setup.rows else ()
        return ev.Begin(roster.graph, roster.index[self.setup.node], again, declared)

    def _constitute(self, replays: int) -> sums.Roster:
        """All introductions are in: these are the members."""
        assert self.flood is not None
        records = self.flood.records
        self.roster = roster = sums.Roster(records, heirs=self.lineage is not None)
        self._seal.close(records)
        self.members = roster.names
        introductions = {name: r for name, r in records.items() if isinstance(r, Introduction)}
        self._introductions = tuple(introductions.values())
        if self.lineage is None:
            self.lineage = Lineage.of(self.fit, introductions)
        else:
            self.lineage = self.lineage.found(roster.names)
        here = roster.graph.neighbours[roster.index[self.setup.node]]
        self._mates = tuple(roster.names[j] for j in here)
        self.rounds = Rounds({k: roster.index[k] for k in self._mates}, self.setup.max_lag, replays)
        return roster

    # -- members that are lost -------------------------------------------------------------------------

    def _miss(self, names: list[str], why: str, *, for_good: bool = False) -> None:
        """These neighbours will not come back in time: go on without them, wait for them, or give it all up.

        The fit cannot be gone on with before it has begun, since nobody knows who its members would be.
        """
        told = "; ".join(f"{name} {why}" for name in names)
        if self.phase is Phase.MEETING or self.lineage is None:
            raise FitFailure(f"{told}: start again" if for_good else told)
        if self._confirmed:
            self._pause(f"{told}, and few others have confirmed the result yet")
            return
        present = self.flood.records if self.flood else ()
        lineage = self.lineage.found(present).without(names, self.fit, self.rounds.outer + 1)
        obstacle = lineage.obstacle(self.setup.node)
        if obstacle and for_good:
            raise FitFailure(f"{told}, and {obstacle}: start again")
        if obstacle:
            self._pause(f"{told}, and {obstacle}")
        else:
            self._effects.append(ev.Report(f"{told}: going on without", grave=True))
            self._go_on_as(self._next_number(), lineage)

    def _pause(self, why: str) -> None:
        if not self.paused:
            self.paused = f"{why}: waiting until it is back"
            self._effects.append(ev.Report(f"fit {self.fit} pauses: {self.paused}", grave=True))

    def _go_on_as(self, fit: int, lineage: Lineage) -> None:
        """Leave the present attempt for the next: what comes of it now is of no use any more."""
        self.phase, self.flood, self.roster = Phase.GATHERING, None, None
        self._previous, self._early = None, {}
        self._enrol(fit, lineage)

    def _hear_of_heirs(self, name: str, message: Flood, base: int) -> None:
        """A neighbour goes on with a fit without some of its members."""
        lineage = self.lineage
        if lineage is None or lineage.base != base:
            self._call_off(name, message.fit, f"{self.setup.node} has no place in fit {base}")
        elif self._finished or self._confirmed:
            self._call_off(name, message.fit, f"fit {self.fit} has been completed at {self.setup.node}")
        elif self.phase not in IN_A_FIT:
            self._call_off(name, message.fit)
        elif name not in self._mates:
            self._welcome(name)
        else:
            lost = {k for r in message.records if isinstance(r, Introduction) for k in r.lost}
            believed = lost & self._uneasy - {self.setup.node}  # others have stronger evidence than we
            seen = {k for k, peer in self.peers.items() if self._is_in(peer, base)}
            lost -= {self.setup.node, *(seen - believed)}
            heir = lineage.without(sorted(lost), self.fit, self.rounds.outer + 1).condemning(believed)
            if believed:
                told = ", ".join(sorted(believed))
                self._effects.append(
                    ev.Report(f"{name} has found that {told} lies, and so have we", grave=True)
                )
            self._go_on_as(message.fit, heir)

    def _is_in(self, peer: Peer, base: int) -> bool:
        """Whether a neighbour is up, and in the fit that began with this number."""
        return peer.state == "up" and peer.standing.active and peer.standing.base == base

    def _welcome(self, name: str) -> None:
        """A neighbour is up that may have been waited for, or given up: it may come in again, once."""
        lineage, peer = self.lineage, self.peers[name]
        if self.phase not in IN_A_FIT or lineage is None or self._confirmed or self._enrolling:
            return
        if name in lineage.condemned:
            return
        if name in self._mates:
            self._unpause()
            return
        if self._is_in(peer, lineage.base) and (name not in lineage.readmitted or self.paused):
            self._report(f"{name} is back, and is let in again")
            self._go_on_as(max(self._next_number(), peer.standing.fit + 1), lineage.again_with(name))

    def _unpause(self) -> None:
        if self.paused:  # if others are still away it will pause again
            self.paused = ""
            self._report(f"fit {self.fit} goes on")
            self._close_if_complete()

    def _may_go_on(self) -> bool:
        """Whether those who have introduced themselves are enough of the fit that they go on with."""
        assert self.flood is not None
        lineage = self.lineage
        base = lineage.base if lineage else 0
        for name, record in self.flood.records.items():
            if not isinstance(record, Introduction) or record.continues != base:
                raise FitFailure(f"{name} takes fit {self.fit} for another one than we do: start again")
        if lineage is None:
            return True
        for name in self.flood.records:
            if name not in lineage.founders:
                raise FitFailure(f"{name} was no member of fit {lineage.base}, which is gone on with")
        members = self.flood.records.keys()
        needed = sorted(lineage.indispensable - members)
        if needed:
            self._pause(f"{', '.join(needed)} must not be left out ([floors] indispensable)")
        elif not lineage.is_majority(members):
            self._pause(f"{len(members)} of {len(lineage.founders)} members are no majority")
        return not self.paused

    def _conclude_if_confirmed(self, fit: MemberFit) -> None:
        """The result counts once most members hold it: whoever goes on without us will meet one of them."""
        assert self.flood is not None
        assert self.lineage is not None
        for name, record in self.flood.records.items():
            if not isinstance(record, Part) or not np.array_equal(record.words, CONFIRMED):
                raise FitFailure(f"{name} adds up where all others have ended: it runs another fit")
        if not self.lineage.is_majority(self.flood.records):
            return
        self.phase, self.reason, self.ended = Phase.DONE, fit.message, self._now
        self._finished, self.paused = self.fit, ""
        self._effects.append(ev.Keep(self.fit, fit, self.members, self.lineage))
        self._save(finished=True)
        self._report(f"fit {self.fit} is done: {fit.message}")
        for name in self.peers:
            self._send(name, Done(self.fit))
        if self._called > self.fit:
            self._meet()

    # -- members that lie ------------------------------------------------------------------------------

    def _weigh(self, suspicion: Suspicion) -> bool:
        """What the worker holds of the neighbours; True if that ends this attempt."""
        self._weighed = suspicion
        named = [
            frozenset(self.members[k] for k in places)
            for places in (suspicion.accused, suspicion.doubted, suspicion.uneasy)
        ]
        before = self.doubted | self.accused
        self.accused, self.doubted, self._uneasy = named
        for name in sorted((self.doubted | self.accused) - before):
            self._effects.append(
                ev.Report(f"{name} pulls harder than honest members do: it may be lying", grave=True)
            )
        if not self.accused or not suspicion.drop:
            return False
        return self._expel(sorted(self.accused), f"{', '.join(sorted(self.accused))} lies in what it sends")

    def _expel(self, names: list[str], why: str) -> bool:
        """Go on without these, who are not let in again in this fit; if that cannot be, only say so."""
        assert self.lineage is not None
        lineage = self.lineage.found(self.members).without(names, self.fit, self.rounds.outer + 1)
        obstacle = lineage.obstacle(self.setup.node)
        if obstacle:
            self._effects.append(ev.Report(f"{why}, but stays: {obstacle}", grave=True))
            return False
        self._effects.append(ev.Report(f"{why}: going on without", grave=True))
        self._go_on_as(self._next_number(), lineage.condemning(names))
        return True

    # -- killed and back -------------------------------------------------------------------------------

    def _save(self, finished: bool = False) -> None:
        """Our place, as of the last sum. With a lag, steps depend on what came in time and are no replay."""
        if self.setup.max_lag > 0:
            return
        sum_, confirming = (self._previous, self.flood) if finished else (self.flood, None)
        assert sum_ is not None
        place = Place(
            fit=self.fit,
            own=self._own,
            introductions=self._introductions,
            number=sum_.number,
            parts=_parts(sum_),
            vectors=self.rounds.of_this_outer_round(),
            lineage=self.lineage,
            confirmed=self._confirmed,
            finished=finished,
            confirmations=_parts(confirming) if confirming else (),
        )
        self._effects.append(ev.Save(place))

    def _resume(self, event: ev.Resumed) -> None:
        place, self._seal = event.place, event.seal
        self.fit, self.began, self._own = place.fit, self._now, place.own
        self.lineage, self._confirmed, self._resumed = place.lineage, place.confirmed, True
        self._mates = tuple(name for name in place.own.neighbours if name in self.peers)
        self.phase, self.flood = Phase.GATHERING, sums.Flood(0, place.own, self._mates, None)
        self._progress()
        if not place.introductions:
            self._report(f"back in fit {self.fit}, among the first")
            return
        try:
            for introduction in place.introductions:
                self._seal.admit(introduction)
                self.flood.keep(introduction)
        except PeerFault as fault:
            raise FitFailure(f"the fit cannot be taken up again: a neighbour {fault}") from None
        roster = self._constitute(replays=self.setup.inner_rounds)
        self.rounds.resume(place.vectors)
        self._furthest = place.number + 2  # we may have sent our part of the next: others have closed it
        if place.number:
            self.flood = self._flood_again(place.number, place.parts)
        if place.finished:
            self._previous = self.flood
            self.flood = self._flood_again(place.number + 1, place.confirmations)
            self.phase, self._finished, self.ended = Phase.DONE, self.fit, self._now
            return
        self._report(f"back in fit {self.fit}, after sum {place.number}")
        self._compute(self._begin(roster, again=True))

    def _flood_again(self, number: int, parts: tuple[Part, ...]) -> sums.Flood:
        own = next(part for part in parts if part.origin == self.setup.node)
        flood = sums.Flood(number, own, self._mates, self.roster)
        for part in parts:
            flood.keep(part)
        return flood

    # -- the worker ------------------------------------------------------------------------------------

    def _compute(self, answer: ev.Begin | Answer) -> None:
        self._ticket += 1
        self.phase = Phase.COMPUTING
        self._effects.append(ev.Compute(self._ticket, answer))

    def _go_on(self, event: ev.Computed) -> None:
        if event.ticket != self._ticket:
            return
        self._progress()
        suspicion = event.suspicion
        if suspicion is not None and suspicion is not self._weighed and self._weigh(suspicion):
            return
        self._confirmed = isinstance(event.request, Finished)
        if self._unsaved:
            self._save()
        self._unsaved = False
        match event.request:
            case Sum() as request:
                self._open_sum(request)
            case Exchange() as request:
                self._request, self.phase = request, Phase.EXCHANGING
                vector = Vector(self.fit, request.outer, request.inner, request.B)
                self.rounds.advance(vector)
                for name in self._mates:
                    self._send(name, vector)
                for name in self.rounds.misshapen() if request.inner == 0 else ():
                    raise FitFailure(f"{name} runs another fit: its coefficients have another shape")
                self._step_if_possible()
            case Drain() as request:
                self._request, self.phase = request, Phase.EXCHANGING
                self._step_if_possible()
            case Finished() as request:
                self._open_sum(request)

    def _open_sum(self, request: Sum | Finished) -> None:
        assert self.flood is not None
        self._request, self.phase, self._previous = request, Phase.SUMMING, self.flood
        number = self.flood.number + 1
        if isinstance(request, Finished):
            own = self._seal.confirm(number)
        else:
            words = pack(request.part, request.gram_exponent, request.filler)
            own = self._seal.part(number, words, packing_of(request.part))
        self.flood = sums.Flood(number, own, self._mates, self.roster)
        for key in [key for key in self._early if key[0] == number]:
            self._take_in(key[1], [self._early.pop(key)])
        self._spread()
        self._close_if_complete()

    def _on_vector(self, name: str, vector: Vector) -> None:
        if vector.fit == self.fit and self.phase in IN_A_FIT and name in self.rounds.neighbours:
            if self.rounds.receive(name, vector):
                self._progress()
                self.peers[name].faulty = False
            self._step_if_possible()

    def _step_if_possible(self) -> None:
        if self.phase is Phase.EXCHANGING and not self.rounds.lacking(isinstance(self._request, Drain)):
            self._compute(self.rounds.neighbours_now())

    # -- time ------------------------------------------------------------------------------------------

    def _tick(self, event: ev.Ticked) -> None:
        if self.phase in RESTING:
            return
        overdue = self._missed_for_long()
        if overdue:
            reasons = ", ".join(sorted({self.peers[name].reason for name in overdue}))
            self._miss(overdue, f"has been away for {self.setup.patience:.0f} s ({reasons})")
        if self.phase in _WAITING and self._now >= self._ask_at and self.flood is not None:
            self._ask_wait = min(2.0 * self._ask_wait, ASK_AT_MOST)
            self._ask_at = self._now + self._ask_wait
            exchanging = self.phase is Phase.EXCHANGING
            waiting = self.waiting_for()
            for name in waiting if exchanging else self._mates:
                missing = () if exchanging else tuple(waiting)
                self._send(name, Ask(self.fit, self.flood.number, missing, exchanging))

    def _missed_for_long(self) -> list[str]:
        """Neighbours that have been away for longer than `patience`."""
        patience = self.setup.patience
        return [k for k in self._missed() if self._now >= self._away_since(self.peers[k]) + patience]

    def _away_since(self, peer: Peer) -> float:
        return max(peer.since, self.began)

    def _on_ask(self, name: str, ask: Ask) -> None:
        if ask.fit > self.fit:
            if ask.number == 0:  # its introduction, which says more, is lost or to come
                self._send(name, Ask(ask.fit, 0, (), False))
            elif self.phase not in IN_A_FIT:
                self._call_off(name, ask.fit, f"{self.setup.node} has lost its place in fit {ask.fit}")
            return
        if not self._serves(ask.fit, name):
            if self.phase in IN_A_FIT:
                if (
                    name in self._mates and ask.number == 0
                ):  # it gathers for an older fit: let it hear of ours
                    self._send(name, Ask(self.fit, 0, (), False))
                elif not self._is_back(self.peers[name].standing):
                    self._call_off(name, ask.fit)
            else:
                self._call_off(name, ask.fit)
            return
        for flood in (self._previous, self.flood):
            if flood and flood.number == ask.number:
                records = flood.of(ask.missing or flood.records)
                self._send_records(name, flood.number, records)
            elif flood and ask.number == 0:  # it could not keep records of a sum before it knew the members
                self._send_records(name, flood.number, flood.of(flood.records))
        if ask.vectors:
            for vector in self.rounds.retained:
                self._send(name, vector)

    def _progress(self) -> None:
        self._ask_wait = ASK_AFTER
        self._ask_at = self._now + ASK_AFTER

    def _ignore(self, event: Event) -> None:
        """Nothing to do in this phase."""

    def _send(self, name: str, message: Message) -> None:
        """To a peer that is up; before that, nobody is told anything but who we are."""
        if self.peers[name].state == "up" or isinstance(message, Hello | Reject):
            self._effects.append(ev.Send(name, message))

    def _report(self, text: str) -> None:
        self._effects.append(ev.Report(text))
