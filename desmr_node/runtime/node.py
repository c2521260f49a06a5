"""The driver: gives events to the machine and carries its effects out. No statistics, no protocol."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from desmr_node.core.share import Neighbours
from desmr_node.protocol import events as ev
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.machine import IN_A_FIT, Machine, Phase, Setup
from desmr_node.protocol.messages import Abort, Hello, Message
from desmr_node.protocol.place import Place
from desmr_node.protocol.seal import Seal
from desmr_node.runtime.audit import AuditFailed, AuditLog
from desmr_node.runtime.metrics import Metrics
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec
from desmr_node.transport.streams import LEAST_BACKLOG, Streams

log = logging.getLogger("desmr.node")

#: Name of the thread in which long computations run.
WORKER_THREAD = "rows"
#: Makes the seal of a fit, or says why the node will not take part.
Enrolment = Callable[[int], Seal | str]


class Node:
    """One machine, its worker and its streams. Everything happens on the event loop but long computations."""

    streams: Streams

    def __init__(
        self,
        setup: Setup,
        worker: Worker,
        *,
        enrol: Enrolment,
        keep: Callable[[ev.Keep], None],
        save: Callable[[Place | None], None],
        audit: AuditLog,
        metrics: Metrics,
        limits: codec.Limits,
        machine: Callable[[Setup, float], Machine] = Machine,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.machine = machine(setup, self._loop.time())
        self.worker, self.limits, self.metrics = worker, limits, metrics
        self._changed: asyncio.Event | None = None
        #: Fails with whatever broke this node, if it is our own fault.
        self.crashed: asyncio.Future[None] = self._loop.create_future()
        self._enrol, self._keep, self._save, self._audit = enrol, keep, save, audit
        self._events: deque[ev.Event] = deque()
        self._handling = False
        self._timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=WORKER_THREAD)
        self._held: list[tuple[str, bytes]] = []
        self._due = 0
        self._told: set[tuple[str, str]] = set()
        #: What was found out about neighbours that stay away: better than what the next attempt will say.
        self._diagnoses: dict[str, str] = {}
        self._unaudited: list[str] = []
        self._closed = False

    # -- events in -------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> None:
        """Let the machine handle an event, and whatever follows from it."""
        if self._held:
            self._read_held()
        self._handle(event)
        self._after()

    def _handle(self, event: ev.Event) -> None:
        self._events.append(event)
        if self._handling:
            return  # an effect of an earlier event: its turn will come
        self._handling = True
        try:
            while self._events:
                self._carry_out(self.machine.handle(self._events.popleft(), self._loop.time()))
            if self._unaudited:
                self._fall_silent()
        except Exception as error:  # our own fault: nothing can be trusted any more
            if not self.crashed.done():
                self.crashed.set_exception(error)
            self._events.clear()
        finally:
            self._handling = False

    def _after(self) -> None:
        machine = self.machine
        self._due = len(machine.waiting_for()) if machine.phase is Phase.EXCHANGING else 0
        if self._timer is None:
            self._set_timer()
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change, for all who asked for it before: take it first, then look, then wait."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def connected(self, peer: str) -> None:
        """A stream is up."""
        self.tell(ev.Connected(peer))

    def lost(self, peer: str, reason: str) -> None:
        """A stream is gone."""
        seen = self.machine.peers[peer]
        if seen.state == "up":  # the machine reports it; whatever comes next is news
            self._diagnoses.pop(peer, None)
            self._told = {(who, what) for who, what in self._told if who != peer}
        elif seen.state != "refused":
            self.warn(peer, self._diagnoses.get(peer, reason), logging.INFO)
        self.tell(ev.Lost(peer, self._diagnoses.get(peer, reason)))

    def diagnosed(self, peer: str, sentence: str) -> None:
        """Why a neighbour does not come up; an empty sentence if nothing seems to be wrong."""
        self._diagnoses.pop(peer, None)
        if sentence and self.machine.peers[peer].state == "away":
            self._diagnoses[peer] = sentence
            self.warn(peer, sentence)
            self.lost(peer, sentence)

    def received(self, peer: str, data: bytes) -> None:
        """Foreign bytes. Vectors that cannot let us step yet are left unread until the last one is in.

        A process that wakes up finds its caches cold, and reading d vectors in one go costs little more than
        reading one. Nothing else waits: any other message or event has the held ones read first.
        """
        self._held.append((peer, data))
        if len(self._held) >= self._due or not codec.is_vector(data):
            self._read_held()

    def _read_held(self) -> None:
        """From here on bytes are a message, or the peer's fault."""
        held, self._held = self._held, []
        for peer, data in held:
            try:
                message = codec.decode(data, self.limits)
                self._require_own_name(peer, message)
            except PeerFault as fault:
                self._handle(ev.Garbled(peer, str(fault)))
            else:
                self._handle(ev.Received(peer, message))
        self._after()

    def _require_own_name(self, peer: str, message: Message) -> None:
        """A neighbour that is set up wrongly is refused, for all to see, and that ends a fit. In the middle
        of one it has had its own name already: whoever says another with its key is at fault.
        """
        if isinstance(message, Hello) and message.node != peer and self.machine.phase in IN_A_FIT:
            raise PeerFault(
                f"calls itself {message.node!r}: its certificate and its node id must be the same"
            )

    def refused(self, stranger: str, reason: str) -> None:
        """Somebody who may not talk to us tried."""
        self.metrics.refused.inc()
        self.warn(stranger, reason)

    # -- effects out -----------------------------------------------------------------------------------

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        message: Message | None = None
        peers: list[str] = []
        for effect in effects:
            if isinstance(effect, ev.Send):
                if effect.message is not message and message is not None:
                    self._send(message, peers)
                    peers = []
                message = effect.message
                peers.append(effect.peer)
                continue
            if message is not None:
                self._send(message, peers)
                message, peers = None, []
            match effect:
                case ev.Compute():
                    self._compute(effect)
                case ev.Report(text, grave):
                    extra = {"fit": self.machine.fit, "phase": self.machine.phase.value}
                    log.log(logging.WARNING if grave else logging.INFO, text, extra=extra)
                case ev.Drop():
                    self._drop(effect)
                case ev.Enrol(fit):
                    self.worker.reset()
                    seal = self._enrol(fit)
                    self._events.append(
                        ev.Declined(fit, seal) if isinstance(seal, str) else ev.Enrolled(seal)
                    )
                case ev.Save(place):
                    self._save(place)
                case ev.Forget():
                    self._save(None)
                case ev.Keep():
                    self._keep(effect)
        if message is not None:
            self._send(message, peers)

    def _send(self, message: Message, peers: list[str]) -> None:
        """Encode once for all, note it, send it."""
        data = codec.encode(message)
        try:
            self._audit.write(message, data, peers)
        except AuditFailed as failure:
            self.warn(self.machine.setup.node, str(failure))
            self._unaudited += peers
            if not isinstance(message, Abort):
                self._events.append(ev.Stopped(str(failure)))
                return
            # Others must not wait for us in vain. It says nothing but that, and the log says it too.
            log.error(f"calling fit {message.fit} off, unaudited, at {', '.join(peers)}: {message.reason}")
        for peer in peers:
            self.streams.send(peer, data)

    def _fall_silent(self) -> None:
        """Close the streams that we may not use: once the log can be written they are made again."""
        reason = f"{self.machine.setup.node} cannot write its audit log"
        for peer in self._unaudited:
            self._drop(ev.Drop(peer, reason, fault=False))
        self._unaudited.clear()

    def _drop(self, effect: ev.Drop) -> None:
        if effect.fault:
            self.metrics.faults.labels(effect.peer).inc()
        self.warn(effect.peer, effect.reason)
        self.streams.drop(effect.peer, effect.reason)

    def warn(self, peer: str, reason: str, level: int = logging.WARNING) -> None:
        """Say a thing once, not at every attempt."""
        if (peer, reason) not in self._told:
            if len(self._told) > 1_000:
                self._told.clear()
            self._told.add((peer, reason))
            log.log(level, reason, extra={"peer": peer})

    def _compute(self, task: ev.Compute) -> None:
        if isinstance(task.answer, ev.Begin):  # a neighbour may lack two sums, each with a part of everybody
            sums = 2 * len(self.machine.members) * self.limits.message_bytes
            self.streams.most_waiting = max(LEAST_BACKLOG, sums)
        if self.worker.is_quick(task):
            self._events.append(self.worker.compute(task))
            self.metrics.note_round(self._loop.time())
            return
        self.metrics.note_round(self._loop.time() if isinstance(task.answer, Neighbours) else None)
        future = self._loop.run_in_executor(self._pool, self.worker.compute, task)
        future.add_done_callback(self._computed)

    def _computed(self, future: asyncio.Future[ev.Computed | ev.Broken]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if self._closed:
            return
        if error is not None:
            if not self.crashed.done():
                self.crashed.set_exception(error)
            return
        self.tell(future.result())

    # -- time ------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One timer; it looks again when it fires, so a deadline that moved back costs nothing."""
        deadline = self.machine.deadline()
        if deadline != float("inf"):
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.machine.deadline() <= self._loop.time():
            self.tell(ev.Ticked())
        else:
            self._set_timer()

    def close(self) -> None:
        """No more events."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._audit.close()
