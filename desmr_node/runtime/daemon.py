"""A node as a process: reads its files, opens its ports, runs until told to stop."""

import asyncio
import fcntl
import gc
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, Metric

from desmr_node.config import NodeConfig, split_address
from desmr_node.data import Table, open_rows
from desmr_node.errors import ConfigError, DataError
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import Machine, Phase, Setup
from desmr_node.protocol.messages import Schema
from desmr_node.protocol.place import Place
from desmr_node.protocol.seal import Seal, Sealed, Signer
from desmr_node.protocol.sealing import MaskKey
from desmr_node.runtime import checkpoint, results
from desmr_node.runtime.admin import Admin
from desmr_node.runtime.audit import AuditLog
from desmr_node.runtime.metrics import Metrics, gauge, memory_bytes, open_files, per_peer
from desmr_node.runtime.node import Node
from desmr_node.runtime.notify import ServiceManager
from desmr_node.runtime.settings import default_settings, settings_of
from desmr_node.runtime.signing import BareSigner, CertificateSigner
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec, tls
from desmr_node.transport.probe import probe
from desmr_node.transport.renewal import Reminder, Renewal
from desmr_node.transport.streams import Streams

log = logging.getLogger("desmr.node")

#: Seconds a neighbour may be away before we look for the reason, and between two looks.
_PROBE_AFTER, _PROBE_AGAIN = 3.0, 10.0
#: Seconds between two looks at the files of the certificates.
_LOOK_AGAIN = 60.0
#: Seconds that a node which leaves after one fit waits for neighbours that still need it.
_LINGER = 30.0


def identity_of(config: NodeConfig) -> tls.Identity | None:
    """The node's key and certificate, checked; None in an insecure network."""
    if config.tls is None:
        return None
    files = config.tls
    return tls.Identity.load(files.ca, files.certificate, files.key, config.node, config.network)


def renewal_of(config: NodeConfig) -> Renewal | None:
    """The same, as its files have it from time to time."""
    if config.tls is None:
        return None
    first = identity_of(config)
    assert first is not None  # there is a [tls] table
    files = config.tls
    return Renewal(lambda: identity_of(config) or first, (files.ca, files.certificate, files.key))


def expired(identity: tls.Identity) -> str | None:
    """Why the node declines to take part: no other member would believe what it signs."""
    end = identity.valid_until
    if datetime.now(UTC) <= end:
        return None
    return f"declines: its certificate expired on {tls.moment(end)}"


def below_floor(config: NodeConfig, table: Table) -> str | None:
    """Why the node declines to take part, if it does. Its number of rows is nobody else's business."""
    rows, floors = table.rows.count, config.floors
    if rows < floors.rows:
        return "declines: it holds fewer rows than its floor ([floors] rows)"
    if rows < floors.rows_per_variable * len(table.features):
        return "declines: it holds fewer rows per variable than its floor ([floors] rows_per_variable)"
    return None


class Daemon:
    """One node: `start`, then `run` until it is over, then `close`; the ports are known after `start`."""

    node: Node
    admin: Admin
    identity: Renewal | None
    _seal: Sealed

    def __init__(self, config: NodeConfig, machine: Callable[[Setup, float], Machine] = Machine) -> None:
        self.config, self._machine = config, machine
        self.result: dict[str, Any] | None = None
        self.port = self.admin_port = self.metrics_port = 0
        self._sent_before: dict[str, int] = {}
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._metrics_server: tuple[Any, Thread] | None = None
        self._lock: int | None = None
        #: Whether the fit under way can be taken up again.
        self._saved = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read the rows, open the ports, dial the neighbours."""
        config = self.config
        identity = self.identity = renewal_of(config)
        table = open_rows(config.data, node=config.node)
        holdout = open_rows(config.data, "holdout", node=config.node).rows if config.data.holdout else None
        self._prepare_state()
        try:
            self.result = results.read(config.state, config.network, config.node)
        except DataError as error:
            log.warning(str(error))
        schema = Schema(table.response, table.features)
        declined = below_floor(config, table)
        release = version("desmr-node")

        def enrol(fit: int) -> Seal | str:
            self._sent_before = {
                name: self.streams.traffic(name).bytes_sent for name in self.node.machine.peers
            }
            # Key and certificate of a fit are those of its beginning, whatever is replaced while it runs.
            own = None if identity is None else identity()
            signer: Signer = BareSigner() if own is None else CertificateSigner(own)
            refusal = declined or (own and expired(own))
            if refusal:
                return refusal
            self._seal = Sealed(config.network, config.node, fit, MaskKey.generate(), signer)
            return self._seal

        setup = Setup(
            network=config.network,
            node=config.node,
            neighbours=tuple(sorted(n.id for n in config.neighbours)),
            schema=schema,
            settings=settings_of(config.fit, config.seed),
            max_lag=config.fit.max_lag,
            inner_rounds=config.fit.inner,
            indispensable=config.floors.indispensable,
            rows=table.rows.count if config.fit.strength is not None else 0,
            patience=float("inf") if config.patience == "forever" else config.patience,
            incarnation=secrets.randbits(64),
            last_fit=self.result["fit"] if self.result else 0,
            defaults=default_settings(),
            release=release,
        )
        metrics = Metrics()
        limits = codec.Limits.of(len(table.features), config.fit.lambdas)
        worker = Worker(table.rows, holdout, config.fit, config.seed)
        audit = AuditLog(config.state / "audit.jsonl")
        setting = checkpoint.Setting.of(setup, checkpoint.rows_digest(worker.rows_secret()))
        self.node = Node(
            setup,
            worker,
            enrol=enrol,
            keep=lambda kept: self._keep(kept, schema),
            save=lambda place: self._save(place, setting),
            audit=audit,
            metrics=metrics,
            limits=limits,
            machine=self._machine,
        )
        addresses = {n.id: n.address if config.dials(n) else None for n in config.neighbours}
        self.streams = self.node.streams = Streams(
            config.node,
            addresses,
            self.node,
            identity=identity,
            message_bytes=limits.message_bytes,
        )
        self.admin = Admin(self.node, release, lambda: self.result, self.stop)
        for name, address in addresses.items():
            if address is None:
                self.node.tell(ev.Lost(name, f"{name} has not dialled us yet"))
        self.admin_port = await self.admin.listen(config.admin.listen)
        if config.metrics.listen is not None:
            self._serve_metrics(config.metrics.listen)
        if config.listen is not None:
            self.port = await self.streams.listen(config.listen)
        log.info(
            f"rows: {table.rows.count}; features: {len(table.features)}; neighbours: {len(addresses)}; "
            f"admin at {self._shown_admin()}"
        )
        if declined is not None:
            log.warning(f"this node {declined}: no fit can begin while it is a member")
        self._resume(setting)
        if config.autostart and self.result is None:
            self.node.tell(ev.Called())
        self.streams.dial()
        self._tasks.append(asyncio.create_task(self._probe(), name="probe"))
        if identity is not None:
            reminder = Reminder(identity)
            self._remind(reminder)
            self._tasks.append(asyncio.create_task(self._look_at_files(reminder), name="certificates"))

    def _shown_admin(self) -> str:
        listen = self.config.admin.listen
        return listen if listen.startswith("unix:") else f"{split_address(listen)[0]}:{self.admin_port}"

    def _prepare_state(self) -> None:
        state = self.config.state
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(state / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"state = {str(state)!r} is another desmr-node's, which is running: stop that one first"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"state = {str(state)!r} cannot be written ({error.strerror}): "
                "choose a folder of this user's, or mend its permissions"
            ) from None

    def _keep(self, kept: ev.Keep, schema: Schema) -> None:
        config = self.config
        self.result = results.document(
            kept,
            network=config.network,
            node=config.node,
            schema=schema,
            spec=config.fit,
            seed=config.seed,
        )
        before = self._sent_before
        self.result["bytes_sent"] = {p: self.streams.traffic(p).bytes_sent - before[p] for p in before}
        try:
            results.write(config.state, self.result)
        except OSError as error:
            log.error(
                f"the result could not be written to {config.state} ({error.strerror}): `desmr result` has it"
            )
        # A fit leaves cycles behind that the collector, slow as `serve` sets it, lets pile up for hundreds of
        # fits. Where all that was loaded is frozen it has little to look at; elsewhere it would take long.
        if gc.get_freeze_count():
            gc.collect()

    # -- killed and back -------------------------------------------------------------------------------

    def _save(self, place: Place | None, setting: checkpoint.Setting) -> None:
        """Without a snapshot the fit goes on; it is only a crash of this node that it would not survive."""
        state, self._saved = self.config.state, False
        try:
            if place is None:
                checkpoint.forget(state)
                return
            share = self.node.worker.share
            checkpoint.save(
                state, checkpoint.Snapshot(setting, place, share.progress(), *self._seal.secrets())
            )
            self._saved = not place.finished
        except OSError as error:
            with suppress(OSError):  # an older one would lead back to where the others are no more
                checkpoint.forget(state)
            self.node.warn(
                self.config.node,
                f"no snapshot could be written to {state} ({error.strerror}): "
                "if this node is killed now, the fit is lost to it",
            )

    def _resume(self, setting: checkpoint.Setting) -> None:
        """Back to where the node was when it was killed, if it was in a fit."""
        config = self.config
        snapshot, complaints = checkpoint.load(config.state, setting)
        for complaint in complaints:
            log.warning(f"{complaint}; it is not used")
        if snapshot is None:
            return
        own = None if self.identity is None else self.identity()
        if own is not None and own.certificate_der != snapshot.place.own.certificate:
            log.warning(
                f"fit {snapshot.place.fit} cannot be taken up again: "
                "the node's certificate was replaced while it was down"
            )
            return
        signer: Signer = BareSigner(snapshot.signing_key) if own is None else CertificateSigner(own)
        self._seal = Sealed(
            config.network, config.node, snapshot.place.fit, MaskKey(snapshot.mask_key), signer
        )
        self._sent_before = dict.fromkeys(self.node.machine.peers, 0)
        self.node.worker.resumed, self._saved = snapshot.progress, not snapshot.place.finished
        self.node.tell(ev.Resumed(snapshot.place, self._seal))

    # -- metrics ---------------------------------------------------------------------------------------

    def _serve_metrics(self, address: str) -> None:
        host, port = split_address(address)
        self.node.metrics.watch(self._collect)
        try:
            self._metrics_server = start_http_server(port, host, self.node.metrics.registry)
        except OSError as error:
            raise ConfigError(
                f"[metrics] listen = {address!r}: {error.strerror}; choose another address"
            ) from None
        self.metrics_port = self._metrics_server[0].server_port

    def _collect(self) -> Iterator[Metric]:
        machine = self.node.machine
        yield gauge("desmr_fit", "Number of the latest fit", machine.fit)
        for phase in Phase:
            yield gauge(f"desmr_phase_{phase.value}", "1 while in this phase", float(machine.phase is phase))
        yield gauge(
            "desmr_paused", "1 while the fit waits for a member to come back", float(bool(machine.paused))
        )
        yield gauge("desmr_lost_members", "Members that the present fit has lost", len(machine.lost()))
        history = self.node.worker.share.history
        if history:
            last = history[-1]
            yield gauge("desmr_outer_round", "Outer rounds so far", last.outer)
            yield gauge(
                "desmr_moved", "Movement of the fit in the last outer round, standard errors", last.moved
            )
            yield gauge("desmr_spread", "Primal residual: spread over members, standard errors", last.spread)
            yield gauge("desmr_changed", "Dual residual: last inner step, standard errors", last.changed)
            yield gauge("desmr_objective", "Mean loss plus penalty", last.objective)
        peers = machine.peers
        up = {name: float(peer.state == "up") for name, peer in peers.items()}
        yield per_peer("desmr_peer_up", "1 while the neighbour is up", up, counter=False)
        levels = {"": 0.0, "doubted": 1.0, "accused": 2.0, "left out": 3.0}
        held = {name: levels[machine.suspicion_of(name)] for name in peers}
        yield per_peer(
            "desmr_peer_suspicion",
            "Whether the neighbour seems to lie: 1 doubted, 2 accused, 3 left out",
            held,
            counter=False,
        )
        traffic = {name: self.streams.traffic(name) for name in peers}
        sent = {name: float(t.bytes_sent) for name, t in traffic.items()}
        received = {name: float(t.bytes_received) for name, t in traffic.items()}
        yield per_peer("desmr_sent_bytes", "Bytes of messages sent", sent, counter=True)
        yield per_peer("desmr_received_bytes", "Bytes of messages received", received, counter=True)
        if self.identity is not None:
            yield gauge(
                "desmr_certificate_expires_seconds",
                "When the node's certificate expires, seconds since 1970",
                self.identity().valid_until.timestamp(),
            )
        yield gauge("desmr_memory_bytes", "Resident memory", memory_bytes())
        yield gauge("desmr_open_files", "Open files, sockets and pipes", open_files())
        tasks = asyncio.all_tasks(self.node.crashed.get_loop())  # asked from the thread that serves the page
        yield gauge("desmr_tasks", "Tasks of the event loop", len(tasks))
        yield CounterMetricFamily("desmr_cpu_seconds", "Processor time used", value=time.process_time())

    # -- neighbours that stay away ---------------------------------------------------------------------

    async def _probe(self) -> None:
        """Look for the reason where a neighbour does not come up: the end that listens sees nothing else."""
        addresses = {n.id: n.address for n in self.config.neighbours}
        dialled = {n.id: self.config.dials(n) for n in self.config.neighbours}
        own = self.config.node
        waits = f"{{}} answers at {{}} but does not dial us: see whether {own} is among its [[neighbours]]"
        pause = _PROBE_AFTER
        while True:
            await asyncio.sleep(pause)
            pause = _PROBE_AGAIN
            for name, peer in self.node.machine.peers.items():
                address = addresses[name]
                if peer.state == "away" and address is not None:
                    found = await probe(address, name, self.identity() if self.identity else None)
                    sentence = found.sentence
                    if found.ok:
                        sentence = "" if dialled[name] else waits.format(name, address)
                    self.node.diagnosed(name, sentence)

    # -- certificates ----------------------------------------------------------------------------------

    def _remind(self, reminder: Reminder) -> None:
        sentence = reminder.due(datetime.now(UTC))
        if sentence is not None:
            log.warning(sentence)

    async def _look_at_files(self, reminder: Reminder) -> None:
        """Notice new certificates, and old ones, also while nobody connects and no fit begins."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            self._remind(reminder)

    # -- the end ---------------------------------------------------------------------------------------

    def stop(self, reason: str = "asked to stop") -> None:
        """End `run`."""
        self._stop_reason = reason
        self._stop.set()

    async def run(self, *, once: bool = False) -> int:
        """Until stopped (0) or, if ``once``, until a fit is done (0; 4 if members were lost) or failed (3).

        Raises what broke us. A fit that can be taken up again is not ended: the others wait for us.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._stop.wait())]
        if once:
            waits.append(asyncio.create_task(self._one_fit()))
        try:
            first: list[asyncio.Future[Any]] = [*waits, self.node.crashed]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if self.node.crashed.done():
            self.node.crashed.result()
        machine = self.node.machine
        if self._stop.is_set():
            log.info(f"stopping: {self._stop_reason}")
            if self._saved:
                log.info(f"fit {machine.fit} is taken up again at the next start")
            else:
                self.node.tell(ev.Stopped(f"{self.config.node} was shut down ({self._stop_reason})"))
        if once and machine.phase is not Phase.DONE:
            return 3
        return 4 if once and machine.lost() else 0

    async def _one_fit(self) -> None:
        machine = self.node.machine
        while machine.phase not in (Phase.DONE, Phase.FAILED):
            await self.node.changed.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while not machine.finished_neighbours():
                    await self.node.changed.wait()

    async def close(self) -> None:
        """Close everything that `start` opened."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "streams"):
            await self.streams.close()
            await self.admin.close()
            self.node.close()
        if self._metrics_server is not None:
            server, thread = self._metrics_server
            await asyncio.to_thread(server.shutdown)
            server.server_close()
            thread.join()
        if self._lock is not None:
            if hasattr(self, "streams") and self.config.admin.listen.startswith("unix:"):
                Path(self.config.admin.listen.removeprefix("unix:")).unlink(missing_ok=True)
            os.close(self._lock)


async def serve(
    config: NodeConfig, *, once: bool = False, machine: Callable[[Setup, float], Machine] = Machine
) -> int:
    """A daemon's whole life; the exit code of its process."""
    os.umask(0o077)
    manager = ServiceManager()
    daemon = Daemon(config, machine)
    try:
        manager.status("reading the rows")
        await daemon.start()
        # What is loaded by now stays: the collector need not look at it again in the middle of a round.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        manager.ready(daemon.node)
        return await daemon.run(once=once)
    finally:
        await manager.stopping()
        await daemon.close()
        manager.close()
