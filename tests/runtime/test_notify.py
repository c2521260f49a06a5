"""What a service manager hears, on a real datagram socket."""

import asyncio
import os
import signal
import socket
import sys
from types import SimpleNamespace

import pytest

from desmr_node.protocol.machine import Phase
from desmr_node.runtime import notify
from desmr_node.runtime.notify import ServiceManager, standing

DEADLINE = 20.0
_PROGRAM = "import sys; from desmr_node.cli import desmr_node; sys.exit(desmr_node())"


class Manager:
    """The other end: what was said, datagram by datagram, as lists of lines."""

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.heard = []

    async def hear(self):
        async with asyncio.timeout(DEADLINE):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        self.heard.append(data.decode().split("\n"))
        return self.heard[-1]

    async def until(self, holds):
        while not holds(line := await self.hear()):
            pass
        return line

    def close(self):
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request, short):
    address = str(short / "notify") if request.param == "file" else f"@desmr-test-{os.getpid()}"
    made = Manager(address)
    yield made
    made.close()


class StandingNode:
    """As much of a node as is looked at."""

    def __init__(self, phase=Phase.IDLE, reason="", fit=0):
        peers = {name: SimpleNamespace(state=state) for name, state in (("b", "up"), ("c", "away"))}
        self.machine = SimpleNamespace(phase=phase, reason=reason, fit=fit, peers=peers)
        self.changed = asyncio.Event()

    def now(self, phase, reason="", fit=1):
        self.machine.phase, self.machine.reason, self.machine.fit = phase, reason, fit
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


async def test_the_life_of_a_service(manager):
    told = ServiceManager({"NOTIFY_SOCKET": manager.address})
    node = StandingNode()
    told.status("reading the rows")
    assert await manager.hear() == ["STATUS=reading the rows"]
    told.ready(node)
    assert await manager.hear() == ["READY=1", "STATUS=idle; 1 of 2 neighbours up"]
    await asyncio.sleep(0)  # the follower looks, and waits for a change
    node.now(Phase.FAILED, "c: lunch")
    assert await manager.hear() == ["STATUS=failed: c: lunch; 1 of 2 neighbours up"]
    await told.stopping()
    assert await manager.hear() == ["STOPPING=1", "STATUS=stopping"]
    told.close()
    told.status("after the end")
    assert await _silent(manager)


async def _silent(manager, seconds=0.1):
    try:
        async with asyncio.timeout(seconds):
            await manager.hear()
    except TimeoutError:
        return True
    return False


async def test_many_changes_make_one_status(manager, monkeypatch):
    monkeypatch.setattr(notify, "_PAUSE", 0.05)
    told = ServiceManager({"NOTIFY_SOCKET": manager.address})
    node = StandingNode()
    told.ready(node)
    for number in range(500):
        node.now(Phase.COMPUTING if number % 2 else Phase.EXCHANGING)
        await asyncio.sleep(0)
    node.now(Phase.DONE, "converged")
    await manager.until(lambda lines: lines == ["STATUS=done: converged; 1 of 2 neighbours up"])
    assert len(manager.heard) < 10
    await told.stopping()
    told.close()


async def test_the_watchdog_hears_the_loop_turn(manager):
    told = ServiceManager(
        {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid())}
    )
    assert told.period == pytest.approx(0.05)
    told.ready(StandingNode())
    loop = asyncio.get_running_loop()
    assert (await manager.hear())[0] == "READY=1"
    began = loop.time()
    for _ in range(4):
        assert await manager.hear() == ["WATCHDOG=1"]
    assert loop.time() - began >= 0.14  # three pauses of half the time: not a flood either
    await told.stopping()
    await manager.until(lambda lines: lines[0] == "STOPPING=1")
    assert await _silent(manager, 0.15)
    told.close()


@pytest.mark.parametrize(
    ("environ", "period"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),  # meant for another process
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-4"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "me"}, None),
    ],
)
def test_half_of_the_time_allowed(environ, period):
    assert ServiceManager(environ).period == period


async def test_a_peers_words_stay_words(manager):
    """A reason comes from another member: no line of it may become one of ours, no byte may spoil ours."""
    told = ServiceManager({"NOTIFY_SOCKET": manager.address})
    told.status("c: so\nMAINPID=1\r\nSTOPPING=1\0\x1b[31m\ud800" + "x" * 10_000)
    (line,) = await manager.hear()
    assert line.startswith("STATUS=c: so MAINPID=1  STOPPING=1  [31m")
    assert len(line) < 500
    told.close()


@pytest.mark.parametrize(
    "address", ["", "/nowhere/at/all", "@nobody-listens", "relative", "vsock:2:1", "/" + "x" * 300, "/a\0b"]
)
async def test_nothing_that_is_wrong_here_reaches_the_node(address):
    told = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
    told.status("reading the rows")
    told.ready(StandingNode())
    await asyncio.sleep(0.05)
    await told.stopping()
    told.close()


async def test_a_manager_that_does_not_read_holds_nobody_up(manager):
    told = ServiceManager({"NOTIFY_SOCKET": manager.address})
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(5_000):  # far more than its queue takes
        told.status("on and on")
    assert loop.time() - began < DEADLINE / 4
    told.close()


async def test_nothing_happens_without_a_manager():
    told = ServiceManager({})
    told.ready(StandingNode())
    assert len(asyncio.all_tasks()) == 1
    await told.stopping()
    told.close()


def test_how_a_node_stands():
    for phase, reason, line in (
        (Phase.IDLE, "", "idle; 1 of 2 neighbours up"),
        (Phase.MEETING, "", "meeting; 1 of 2 neighbours up"),
        (Phase.SUMMING, "", "summing in fit 3; 1 of 2 neighbours up"),
        (Phase.DONE, "converged", "done: converged; 1 of 2 neighbours up"),
    ):
        assert standing(StandingNode(phase, reason, 3).machine) == line


async def test_a_real_node_from_start_to_end(manager, network):
    net = network()
    environ = {**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "400000"}
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, "--config", str(net.paths["a"])),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert await manager.hear() == ["STATUS=reading the rows"]
        ready = await manager.hear()
        assert ready[0] == "READY=1"
        host, port = net.config.node("a").address.split(":")
        socket.create_connection((host, int(port)), 5.0).close()  # ready means that the port is open
        await manager.until(lambda lines: lines == ["WATCHDOG=1"])
        await net.start("b", "c")
        await manager.until(lambda lines: lines == ["STATUS=idle; 1 of 1 neighbours up"])
        await net.fit("b")
        await manager.until(lambda lines: lines[0].startswith("STATUS=done: converged"))
        await manager.until(lambda lines: lines == ["WATCHDOG=1"])
        daemon.send_signal(signal.SIGTERM)
        await manager.until(lambda lines: lines[0] == "STOPPING=1")
        assert await asyncio.wait_for(daemon.wait(), DEADLINE) == 0
    finally:
        if daemon.returncode is None:
            daemon.kill()
        _, said = await daemon.communicate()
    assert b"Traceback" not in said


async def test_a_node_that_cannot_start_never_says_that_it_is_ready(manager, network):
    net = network()
    net.change("a", lambda document: document["data"].update(response="prize"))
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, "--config", str(net.paths["a"])),
        env={**os.environ, "NOTIFY_SOCKET": manager.address},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    await asyncio.wait_for(daemon.communicate(), DEADLINE)
    assert daemon.returncode == 1
    await manager.until(lambda lines: lines[0] == "STOPPING=1")
    assert "READY=1" not in [line for lines in manager.heard for line in lines]
