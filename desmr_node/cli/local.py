"""The daemons of a network as processes of this machine: started, looked after, stopped."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from desmr_node.cli.client import AdminClient, NodeUnreachable
from desmr_node.config import load_node
from desmr_node.errors import DesmrError
from desmr_node.transport.wire import admin_pb2 as pb

_PROGRAM = "import sys; from desmr_node.cli import desmr_node; sys.exit(desmr_node())"
#: Seconds between two looks at the nodes.
_PAUSE = 0.2
#: Seconds for a process to end once it is asked to.
_GRACE = 10.0


class LocalNetwork:
    """One process per node.toml; their standard error goes to node.log beside it."""

    def __init__(
        self, configs: Mapping[str, Path], programs: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """``programs``: Python's arguments for nodes that run something else than `desmr-node`."""
        self.configs, self.programs = dict(configs), dict(programs or {})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: dict[str, AdminClient] = {}

    def __enter__(self) -> Self:
        for node, path in self.configs.items():
            path.with_name("node.log").unlink(missing_ok=True)
            self.launch(node)
            self._clients[node] = AdminClient(load_node(path).admin.listen, patience=5.0)
        return self

    def launch(self, node: str) -> None:
        """Start a node's process; its log goes on where an earlier one's ended."""
        path = self.configs[node]
        command = [sys.executable, *self.programs.get(node, ("-c", _PROGRAM)), "--config", str(path)]
        with path.with_name("node.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)

    def kill(self, node: str) -> None:
        """End a node's process at once, as a power cut would."""
        self.processes[node].kill()
        self.processes[node].wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.__exit__(None, None, None)
        for process in self.processes.values():
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that was frozen hears of it too
        for process in self.processes.values():
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def client(self, node: str) -> AdminClient:
        """The node's admin API."""
        return self._clients[node]

    def statuses(self) -> dict[str, pb.Status]:
        """Of those nodes that answer; a node whose process has ended is an error, in its own words."""
        found = {}
        for node, process in self.processes.items():
            if process.poll() is not None:
                raise DesmrError(f"{node} ended with code {process.returncode}: {self._last_words(node)}")
            with suppress(NodeUnreachable):
                found[node] = self._clients[node].status()
        return found

    def wait(
        self,
        phases: frozenset[str],
        told: Callable[[dict[str, pb.Status]], None] = lambda _: None,
        timeout: float = 300.0,
        pause: float = _PAUSE,
        nodes: Collection[str] | None = None,
    ) -> dict[str, pb.Status]:
        """Look at the nodes (all, or some) until they are in one of the phases; ``told`` sees every look."""
        deadline = time.monotonic() + timeout
        wanted = self.configs.keys() if nodes is None else nodes
        while True:
            statuses = {node: status for node, status in self.statuses().items() if node in wanted}
            told(statuses)
            if len(statuses) == len(wanted) and all(s.phase in phases for s in statuses.values()):
                return statuses
            if time.monotonic() > deadline:
                raise DesmrError(f"the nodes were not {' or '.join(sorted(phases))} within {timeout:.0f} s")
            time.sleep(pause)

    def _last_words(self, node: str) -> str:
        lines = self.configs[node].with_name("node.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"
