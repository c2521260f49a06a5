"""The node as a state machine: events in, effects out. No socket, clock, thread, randomness or logging.

Phases, and what moves a node from one to the next:

    IDLE        no fit yet                          -- Called -->                         MEETING
    MEETING     waiting for all neighbours          -- all greeted, Enrolled -->          GATHERING
    GATHERING   flooding introductions              -- flood 0 closed -->                 COMPUTING
    COMPUTING   the worker is busy                  -- Computed(Sum) -->                  SUMMING
                                                    -- Computed(Exchange or Drain) -->    EXCHANGING
                                                    -- Computed(Finished) -->             DONE
    SUMMING     flooding parts of a sum             -- flood closed -->                   COMPUTING
    EXCHANGING  waiting for neighbours' vectors     -- all in -->                         COMPUTING
    DONE        the fit is over                     -- Called -->                         MEETING
    FAILED      the fit is off, `reason` says why   -- Called -->                         MEETING

An idle, done or failed node that hears of a new fit enrols in it and goes straight to GATHERING. In every phase
of a fit a Stopped, an Abort from a neighbour, a broken worker or a neighbour away for longer than `patience`
leads to FAILED, and all neighbours are told. A node moves as soon as its own neighbours allow; only sums wait
for everybody. The statistics are the worker's: the machine carries its requests and knows nothing of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from desmr_node.core.contributions import Contribution
from desmr_node.core.share import Answer, Drain, Exchange, Finished, Sum
from desmr_node.protocol import events as ev
from desmr_node.protocol import greeting, sums
from desmr_node.protocol.events import Effect, Event
from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import RangeExceeded, pack, unpack, words_of
from desmr_node.protocol.messages import (
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Part,
    Record,
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.protocol.rounds import Rounds
from desmr_node.protocol.seal import Seal


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


RESTING = frozenset({Phase.IDLE, Phase.DONE, Phase.FAILED})
IN_A_FIT = frozenset({Phase.GATHERING, Phase.COMPUTING, Phase.SUMMING, Phase.EXCHANGING})
_WAITING = IN_A_FIT - {Phase.COMPUTING}

#: What each event means in each phase. A pair that is not here is a bug of ours, and raises.
TABLE: dict[type[Event], dict[frozenset[Phase], str]] = {
    ev.Called: {RESTING: "_meet", IN_A_FIT | {Phase.MEETING}: "_ignore"},
    ev.Enrolled: {RESTING | {Phase.MEETING}: "_gather", IN_A_FIT: "_ignore"},
    ev.Declined: {RESTING | {Phase.MEETING}: "_decline", IN_A_FIT: "_ignore"},
    ev.Connected: {frozenset(Phase): "_greet"},
    ev.Lost: {frozenset(Phase): "_lose"},
    ev.Received: {frozenset(Phase): "_receive"},
    ev.Computed: {frozenset({Phase.COMPUTING}): "_go_on", RESTING | {Phase.MEETING} | _WAITING: "_ignore"},
    ev.Broken: {frozenset({Phase.COMPUTING}): "_break", RESTING | {Phase.MEETING} | _WAITING: "_ignore"},
    ev.Stopped: {IN_A_FIT | {Phase.MEETING}: "_stop", RESTING: "_ignore"},
    ev.Ticked: {frozenset(Phase): "_tick"},
}

#: Silence after which a node asks its neighbours to repeat themselves, in seconds; doubles each time.
ASK_AFTER, ASK_AT_MOST = 2.0, 30.0
#: Words of records in one message; a larger record travels alone.
_BUNDLE_WORDS = 1 << 18


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node is, for as long as its process lives. ``patience`` in seconds, or infinity."""

    network: str
    node: str
    neighbours: tuple[str, ...]
    schema: Schema
    settings: dict[str, str] = field(hash=False)
    max_lag: int = 0
    patience: float = 60.0
    incarnation: int = 0


@dataclass(slots=True)
class Peer:
    """A neighbour as this node sees it: away, connected (nothing said yet), up, or refused."""

    state: str = "away"
    since: float = 0.0
    reason: str = "not connected yet"
    incarnation: int | None = None
    standing: Standing = Standing()


class Machine:
    """One node. `handle` is the only way in; everything else is to be read."""

    def __init__(self, setup: Setup, now: float) -> None:
        self.setup = setup
        self.phase = Phase.IDLE
        self.reason = ""
        self.fit = 0
        self.began = now
        self.peers = {k: Peer(since=now) for k in sorted(setup.neighbours)}
        self.roster: sums.Roster | None = None
        self.rounds = Rounds({}, 0)
        self.flood: sums.Flood | None = None
        self._previous: sums.Flood | None = None
        self._early: dict[tuple[str, str], Record] = {}
        self._called = 0
        self._enrolling = 0
        self._ticket = 0
        self._request: Sum | Exchange | Drain | None = None
        self._ask_at, self._ask_wait = float("inf"), ASK_AFTER
        self._effects: list[Effect] = []
        self._now = now

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event; the effects are to be carried out in order, and before the next event."""
        self._now, self._effects = now, []
        handler = next(name for phases, name in TABLE[type(event)].items() if self.phase in phases)
        try:
            getattr(self, handler)(event)
        except (FitFailure, RangeExceeded) as failure:
            self._fail(str(failure))
        return self._effects

    def deadline(self) -> float:
        """When a `Ticked` is due, if nothing else happens; infinity for never."""
        if self.phase in RESTING:
            return float("inf")
        away = [self._away_since(p) + self.setup.patience for p in self.peers.values() if p.state != "up"]
        return min([*away, self._ask_at if self.phase in _WAITING else float("inf")])

    def waiting_for(self) -> list[str]:
        """Members without whom this node cannot go on."""
        if self.phase is Phase.MEETING:
            return [name for name, peer in self.peers.items() if not self._ready(peer)]
        if self.phase is Phase.EXCHANGING:
            return self.rounds.lacking(isinstance(self._request, Drain))
        if self.phase in (Phase.SUMMING, Phase.GATHERING) and self.flood:
            return self.flood.missing()
        return []

    def finished_neighbours(self) -> bool:
        """Whether no neighbour still needs this node for the present fit."""
        return all(
            not p.standing.active or p.standing.fit < self.fit for p in self.peers.values() if p.state == "up"
        )

    # -- neighbours ------------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """What this node says first on every stream."""
        setup = self.setup
        standing = Standing(self.fit, self.phase in IN_A_FIT, max(self.rounds.outer, 0), self.rounds.inner)
        return Hello(setup.network, setup.node, setup.incarnation, setup.schema, setup.settings, standing)

    def _greet(self, event: ev.Connected) -> None:
        peer = self.peers[event.peer]
        if peer.state == "up":  # a new stream in place of one whose end has not been noticed yet
            peer.since = self._now
        peer.state, peer.reason = "connected", "has not said hello yet"
        self._send(event.peer, self.hello())

    def _lose(self, event: ev.Lost) -> None:
        peer = self.peers[event.peer]
        if peer.state == "up":
            peer.since = self._now
            self._report(f"{event.peer} is gone: {event.reason}")
        if peer.state != "refused":
            peer.state, peer.reason = "away", event.reason
        for flood in (self.flood, self._previous):
            if flood:
                flood.forget(event.peer)

    def _receive(self, event: ev.Received) -> None:
        name, message = event.peer, event.message
        try:
            match message:
                case Hello():
                    self._on_hello(name, message)
                case Reject():
                    self._refuse(name, f"{name} refuses: {message.reason}")
                case _ if self.peers[name].state != "up":
                    pass  # said before its hello: it will be said again after it
                case Flood():
                    self._on_flood(name, message)
                case Vector():
                    self._on_vector(name, message)
                case Ask():
                    self._on_ask(name, message)
                case Abort():
                    self._on_abort(name, message)
                case Done():
                    self._on_done(name, message)
        except PeerFault as fault:
            self.peers[name].state, self.peers[name].reason = "away", f"{name} {fault}"
            self.peers[name].since = self._now
            self._effects.append(ev.Drop(name, f"{name} {fault}", fault=True))

    def _on_hello(self, name: str, hello: Hello) -> None:
        peer = self.peers[name]
        found = greeting.differences(self.hello(), hello, name)
        if found:
            reason = "; ".join(found)
            self._send(name, Reject(reason))
            self._refuse(name, reason)
            return
        restarted = peer.incarnation is not None and peer.incarnation != hello.incarnation
        newly = peer.state != "up"
        peer.incarnation, peer.standing = hello.incarnation, hello.standing
        peer.state, peer.reason, peer.since = "up", "", self._now
        if newly:
            self._report(f"{name} is up")
        if restarted and self.phase in IN_A_FIT and self.flood and name in self.flood.records:
            raise FitFailure(
                f"{name} was restarted in the middle of the fit and has lost its place: start again"
            )
        self._repeat(name)
        if hello.standing.active and hello.standing.fit > self.fit:
            self._hear_of(hello.standing.fit)
        self._try_enrol()

    def _refuse(self, name: str, reason: str) -> None:
        peer = self.peers[name]
        if peer.state != "refused":
            peer.since = self._now
        peer.state, peer.reason = "refused", reason
        self._effects.append(ev.Drop(name, reason, fault=False))
        if self.phase is Phase.MEETING:
            raise FitFailure(reason)

    def _repeat(self, name: str) -> None:
        """Everything a neighbour may lack after its stream broke; what it has, it ignores."""
        if self.phase in IN_A_FIT or self.phase is Phase.DONE:
            for flood in (self._previous, self.flood):
                if flood:
                    flood.forget(name)
                    self._send_records(name, flood.number, flood.news_for(name))
            for vector in self.rounds.retained:
                self._send(name, vector)
        if self.phase is Phase.DONE:
            self._send(name, Done(self.fit))
        if self.phase is Phase.FAILED and self.peers[name].standing.fit == self.fit:
            self._send(name, Abort(self.fit, self.setup.node, self.reason))

    # -- beginning and ending --------------------------------------------------------------------------

    def _meet(self, event: ev.Called) -> None:
        self.phase, self.reason, self.began = Phase.MEETING, "", self._now
        refused = [p.reason for p in self.peers.values() if p.state == "refused"]
        if refused:
            raise FitFailure("; ".join(refused))
        self._try_enrol()

    def _ready(self, peer: Peer) -> bool:
        """Up, and not still busy with a fit that we have left behind."""
        return peer.state == "up" and not (peer.standing.active and peer.standing.fit <= self.fit)

    def _try_enrol(self) -> None:
        if self.phase is Phase.MEETING and all(map(self._ready, self.peers.values())):
            standings = [p.standing for p in self.peers.values()]
            self._enrol(max([self.fit + 1, self._called, *(s.fit + (not s.active) for s in standings)]))

    def _hear_of(self, fit: int) -> None:
        """A neighbour is in a newer fit: join it, now or when the present one is over."""
        self._called = max(self._called, fit)
        if self.phase in RESTING:
            self._enrol(self._called)

    def _enrol(self, fit: int) -> None:
        if self._enrolling != fit:
            self._enrolling = fit
            self._effects.append(ev.Enrol(fit))

    def _decline(self, event: ev.Declined) -> None:
        self.fit, self._enrolling = event.fit, 0
        self.phase, self.began = Phase.GATHERING, self._now  # part of the fit for long enough to call it off
        self._fail(event.reason)

    def _gather(self, event: ev.Enrolled) -> None:
        seal = event.seal
        if seal.fit != self._enrolling:
            return
        self.phase, self.reason, self.began = Phase.GATHERING, "", self._now
        self.fit, self._enrolling, self._seal = seal.fit, 0, seal
        self._previous, self._early = None, {}
        self.roster, self.rounds = None, Rounds({}, 0)
        self.members: tuple[str, ...] = ()
        own = seal.introduce(tuple(self.peers))
        self.flood = sums.Flood(0, own, self.peers, None)
        self._report(f"fit {self.fit} begins")
        self._progress()
        self._spread()
        for name, peer in self.peers.items():
            if peer.state == "up":  # it may have introduced itself before we were ready to listen
                self._send(name, Ask(self.fit, 0, (), False))
        self._close_if_complete()

    def _stop(self, event: ev.Stopped) -> None:
        self._fail(event.reason)

    def _break(self, event: ev.Broken) -> None:
        if event.ticket == self._ticket:
            self._fail(event.reason)

    def _fail(self, reason: str, origin: str | None = None, told_by: str | None = None) -> None:
        """End the fit here, and tell everybody who has not told us."""
        off = self.fit if self.phase in IN_A_FIT else self._called
        origin = origin or self.setup.node
        self.phase, self.reason = Phase.FAILED, reason if origin == self.setup.node else f"{origin}: {reason}"
        self._enrolling = 0
        self._report(f"fit failed: {self.reason}")
        if off:
            self.fit = max(self.fit, off)
            for name, peer in self.peers.items():
                if peer.state == "up" and name != told_by:
                    self._send(name, Abort(off, origin, reason))
        if self._called > self.fit:
            self._enrol(self._called)

    def _on_abort(self, name: str, abort: Abort) -> None:
        peer = self.peers[name]
        if abort.fit >= peer.standing.fit:
            peer.standing = Standing(abort.fit)
        if self.phase in IN_A_FIT and abort.fit == self.fit:
            self._fail(abort.reason, abort.origin, told_by=name)
        elif self.phase is Phase.MEETING and abort.fit > self.fit:
            self._called = max(self._called, abort.fit)
            self._fail(abort.reason, abort.origin, told_by=name)
        else:
            self._try_enrol()

    def _on_done(self, name: str, done: Done) -> None:
        if done.fit >= self.peers[name].standing.fit:
            self.peers[name].standing = Standing(done.fit)
        self._try_enrol()

    # -- sums ------------------------------------------------------------------------------------------

    def _on_flood(self, name: str, message: Flood) -> None:
        if message.fit < self.fit or (message.fit == self.fit and self.phase is Phase.FAILED):
            if message.number == 0:
                why = self.reason if message.fit == self.fit else f"fit {message.fit} is over"
                self._send(name, Abort(message.fit, self.setup.node, why))
            return
        peer = self.peers[name]
        peer.standing = replace(peer.standing, fit=message.fit, active=True)
        if message.fit > self.fit:
            self._hear_of(message.fit)
            return
        if self.phase not in IN_A_FIT or self.flood is None:
            return
        if message.number == self.flood.number + 1:
            for record in message.records:
                self._early[name, record.origin] = record
            if len(self._early) > len(self.peers) * sums.MOST_MEMBERS:
                raise PeerFault("floods records beyond any number of members")
        elif message.number > self.flood.number:
            raise PeerFault(f"sent records of sum {message.number} while we are at {self.flood.number}")
        elif message.number == self.flood.number:
            self._take_in(name, message.records)
            self._spread()
            self._close_if_complete()

    def _take_in(self, name: str, records: Iterable[Record]) -> None:
        assert self.flood is not None
        for record in self.flood.receive(name, records):
            if isinstance(record, Introduction):
                self._seal.admit(record)
            else:
                self._seal.check(self.flood.number, record)
            self.flood.keep(record)
            self._progress()

    def _spread(self) -> None:
        """Give every neighbour what it is not known to hold."""
        assert self.flood is not None
        for name, peer in self.peers.items():
            if peer.state == "up":
                self._send_records(name, self.flood.number, self.flood.news_for(name))

    def _send_records(self, name: str, number: int, records: Iterable[Record]) -> None:
        bundle: list[Record] = []
        size = 0
        for record in records:
            words = len(record.words) if isinstance(record, Part) else 0
            if bundle and size + words > _BUNDLE_WORDS:
                self._send(name, Flood(self.fit, number, tuple(bundle)))
                bundle, size = [], 0
            bundle.append(record)
            size += words
        if bundle:
            self._send(name, Flood(self.fit, number, tuple(bundle)))

    def _close_if_complete(self) -> None:
        if self.flood is None or self.phase not in (Phase.GATHERING, Phase.SUMMING) or self.flood.missing():
            return
        if self.phase is Phase.GATHERING:
            roster = sums.Roster(self.flood.records)
            self._seal.close(self.flood.records)
            self.roster, self.members = roster, roster.names
            self.rounds = Rounds({k: roster.index[k] for k in self.peers}, self.setup.max_lag)
            self._report(f"{len(roster.names)} members: {', '.join(roster.names)}")
            self._compute(ev.Begin(roster.graph, roster.index[self.setup.node]))
        else:
            request = self._request
            assert isinstance(request, Sum)
            words = sums.total(self.flood.records, words_of(request.part))
            kind: type[Contribution] = type(request.part)
            self._compute(unpack(kind, words, request.part, len(self.members), request.gram_exponent))

    # -- the worker ------------------------------------------------------------------------------------

    def _compute(self, answer: ev.Begin | Answer) -> None:
        self._ticket += 1
        self.phase = Phase.COMPUTING
        self._effects.append(ev.Compute(self._ticket, answer))

    def _go_on(self, event: ev.Computed) -> None:
        if event.ticket != self._ticket:
            return
        self._progress()
        match event.request:
            case Sum() as request:
                self._open_sum(request)
            case Exchange() as request:
                self._request, self.phase = request, Phase.EXCHANGING
                vector = Vector(self.fit, request.outer, request.inner, request.B)
                self.rounds.advance(vector)
                for name, peer in self.peers.items():
                    if peer.state == "up":
                        self._send(name, vector)
                for name in self.rounds.misshapen():
                    raise FitFailure(f"{name} runs another fit: its coefficients have another shape")
                self._step_if_possible()
            case Drain() as request:
                self._request, self.phase = request, Phase.EXCHANGING
                self._step_if_possible()
            case Finished(fit):
                self.phase, self.reason = Phase.DONE, fit.message
                self._effects.append(ev.Keep(self.fit, fit, self.members))
                self._report(f"fit {self.fit} is done: {fit.message}")
                for name, peer in self.peers.items():
                    if peer.state == "up":
                        self._send(name, Done(self.fit))
                if self._called > self.fit:
                    self._enrol(self._called)

    def _open_sum(self, request: Sum) -> None:
        assert self.flood is not None
        self._request, self.phase, self._previous = request, Phase.SUMMING, self.flood
        number = self.flood.number + 1
        own = self._seal.part(number, pack(request.part, request.gram_exponent, request.filler))
        self.flood = sums.Flood(number, own, self.peers, self.roster)
        early, self._early = self._early, {}
        for (name, _), record in early.items():
            try:
                self._take_in(name, [record])
            except PeerFault as fault:
                self._effects.append(ev.Drop(name, f"{name} {fault}", fault=True))
        self._spread()
        self._close_if_complete()

    def _on_vector(self, name: str, vector: Vector) -> None:
        if vector.fit == self.fit and self.phase in IN_A_FIT and self.roster is not None:
            if self.rounds.receive(name, vector):
                self._progress()
            self._step_if_possible()

    def _step_if_possible(self) -> None:
        if self.phase is Phase.EXCHANGING and not self.rounds.lacking(isinstance(self._request, Drain)):
            self._compute(self.rounds.neighbours_now())

    # -- time ------------------------------------------------------------------------------------------

    def _tick(self, event: ev.Ticked) -> None:
        if self.phase in RESTING:
            return
        patience = self.setup.patience
        for name, peer in self.peers.items():
            if peer.state != "up" and self._now - self._away_since(peer) >= patience:
                raise FitFailure(f"{name} has been away for {patience:.0f} s ({peer.reason})")
        if self.phase in _WAITING and self._now >= self._ask_at:
            self._ask_wait = min(2.0 * self._ask_wait, ASK_AT_MOST)
            self._ask_at = self._now + self._ask_wait
            exchanging = self.phase is Phase.EXCHANGING
            waiting = self.waiting_for()
            number = self.flood.number if self.flood else 0
            for name in waiting if exchanging else self.peers:
                missing = () if exchanging else tuple(waiting)
                self._send(name, Ask(self.fit, number, missing, exchanging))

    def _away_since(self, peer: Peer) -> float:
        return max(peer.since, self.began)

    def _on_ask(self, name: str, ask: Ask) -> None:
        if ask.fit != self.fit or self.phase in (Phase.IDLE, Phase.MEETING):
            return
        if self.phase is Phase.FAILED:
            self._send(name, Abort(self.fit, self.setup.node, self.reason))
            return
        for flood in (self._previous, self.flood):
            if flood and flood.number == ask.number:
                records = flood.of(ask.missing or flood.records)
                self._send_records(name, flood.number, records)
        if ask.vectors:
            for vector in self.rounds.retained:
                self._send(name, vector)

    def _progress(self) -> None:
        self._ask_wait = ASK_AFTER
        self._ask_at = self._now + ASK_AFTER

    def _ignore(self, event: Event) -> None:
        """Nothing to do in this phase."""

    def _send(self, name: str, message: object) -> None:
        if self.peers[name].state in ("up", "connected") or isinstance(message, Reject):
            self._effects.append(ev.Send(name, message))  # type: ignore[arg-type]

    def _report(self, text: str) -> None:
        self._effects.append(ev.Report(text))
