"""What the service manager is told: that the node is ready, how it stands, that it still turns, that it ends.

The protocol of sd_notify(3) is a datagram of KEY=value lines to the socket in NOTIFY_SOCKET. Without that
variable nothing happens; whatever goes wrong here costs a message, never the node.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from desmr_node.protocol.machine import RESTING, Machine, Phase
from desmr_node.runtime.node import Node

log = logging.getLogger("desmr.node")

#: Seconds between two looks at the node: many changes make one status.
_PAUSE = 0.5
#: Seconds that a word which must arrive may wait for room in the manager's queue.
_PATIENCE = 1.0
#: Characters of a status; reasons are long only if a peer makes them so.
_LONGEST = 400


class ServiceManager:
    """The manager that started this process, if it wants to know."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Seconds between two signs of life; None if nobody waits for them.
        self.period = _watchdog_period(environ)
        address = environ.get("NOTIFY_SOCKET", "")
        if not address:
            return
        # "@name" is a socket without a file, which the kernel writes with a zero byte instead
        self._address = "\0" + address[1:] if address.startswith("@") else address
        if address[0] in "/@":
            try:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            except OSError as error:
                log.debug(f"no word to the service manager ({error})")
        else:
            log.debug(f"no word to the service manager: NOTIFY_SOCKET is {address!r}")

    # -- words -----------------------------------------------------------------------------------------

    def status(self, text: str) -> None:
        """One line for `systemctl status`; lost if the manager is busy."""
        self._say(_status(text))

    def ready(self, node: Node) -> None:
        """The ports are open. From now on the status follows the node, and the watchdog the event loop."""
        if self._socket is None:
            return
        now = standing(node.machine)
        self._say("READY=1", _status(now), patience=_PATIENCE)
        self._tasks.append(asyncio.create_task(self._follow(node, now), name="service status"))
        if self.period is not None:
            self._tasks.append(asyncio.create_task(self._turn(self.period), name="service watchdog"))

    async def stopping(self, reason: str = "stopping") -> None:
        """The node is about to close; the last word but one from `close`."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._say("STOPPING=1", _status(reason), patience=_PATIENCE)

    def close(self) -> None:
        """No more words."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- between ready and stopping --------------------------------------------------------------------

    async def _follow(self, node: Node, told: str) -> None:
        while True:
            changed = node.changed
            now = standing(node.machine)
            if now != told:
                self.status(now)
                told = now
            await changed.wait()
            await asyncio.sleep(_PAUSE)

    async def _turn(self, period: float) -> None:
        """From the event loop, since it is the loop that must not hang."""
        while True:
            self._say("WATCHDOG=1")
            await asyncio.sleep(period)

    def _say(self, *lines: str, patience: float = 0.0) -> None:
        if self._socket is None:
            return
        try:
            self._socket.settimeout(patience)
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
            log.debug(f"the service manager did not hear {lines[0]!r} ({error})")


def standing(machine: Machine) -> str:
    """Where a node stands, in a line."""
    up = sum(peer.state == "up" for peer in machine.peers.values())
    neighbours = f"{up} of {len(machine.peers)} neighbours up"
    if machine.phase in RESTING:
        reason = f": {machine.reason}" if machine.reason else ""
        return f"{machine.phase.value}{reason}; {neighbours}"
    # A fit has no number before all have met.
    fit = "" if machine.phase is Phase.MEETING else f" in fit {machine.fit}"
    return f"{machine.phase.value}{fit}; {neighbours}"


def _status(text: str) -> str:
    """A status is one line: a peer's words must not become a line of ours, such as MAINPID=."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return f"STATUS={line[:_LONGEST]}"


def _watchdog_period(environ: Mapping[str, str]) -> float | None:
    """Half of what the manager allows; it names the process it means."""
    try:
        allowed = int(environ.get("WATCHDOG_USEC", ""))
        process = int(environ.get("WATCHDOG_PID", "") or os.getpid())
    except ValueError:
        return None
    return allowed / 2e6 if 0 < allowed < 2**63 and process == os.getpid() else None
