"""Nine processes, and again and again one of them is killed at a random moment of a fit and started again.

`python -m benchmarks.killed [--repetitions 100] [--tiny]`

SIGKILL, as a power cut would. The moment is uniform over an undisturbed fit, the victim any of the nine, and
it stays away for up to two seconds. Every fit must end at every node with the bits of the undisturbed one.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.figures import Check, conclude, parser
from desmr_node.cli.client import NodeUnreachable
from desmr_node.cli.local import LocalNetwork
from desmr_node.config import load_network
from desmr_node.runtime.census import write_census
from desmr_node.runtime.network import run_network
from desmr_node.runtime.setup import write_network

#: Seconds for a fit in which a node is killed.
_PATIENCE = 60.0
_PAUSE = 0.02


class Nine:
    """The census divisions as processes, what their fit must be, and how long it takes undisturbed."""

    def __init__(self, folder: Path) -> None:
        network = load_network(write_census(folder, "original", seed=0), environ={})
        self.ids = list(network.ids)
        self.folder = folder
        self.expected = run_network(network).documents()
        self.nodes = LocalNetwork(write_network(network, folder))
        self.fit = 1

    def __enter__(self) -> Nine:
        self.nodes.__enter__()
        self.wait(self.ids)
        return self

    def __exit__(self, *error: Any) -> None:
        self.nodes.__exit__(*error)

    def begin(self, caller: str) -> None:
        """Start the next fit."""
        self.nodes.client(caller).start()
        self.fit += 1

    def wait(self, ids: Sequence[str], patience: float = _PATIENCE) -> None:
        """Until these nodes have ended the fit."""
        deadline = time.monotonic() + patience
        for node in ids:
            while not self._ended(node):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{node} has not ended fit {self.fit} after {patience:.0f} s")
                time.sleep(_PAUSE)

    def _ended(self, node: str) -> bool:
        with suppress(NodeUnreachable):
            status = self.nodes.client(node).status()
            return status.fit >= self.fit and status.phase in ("done", "failed")
        return False

    def undisturbed(self, caller: str) -> float:
        """Seconds of a fit."""
        began = time.perf_counter()
        self.begin(caller)
        self.wait(self.ids)
        return time.perf_counter() - began

    def wrong(self) -> list[str]:
        """What is not as in the undisturbed fit, node by node."""
        found = []
        for node in self.ids:
            status = self.nodes.client(node).status()
            result = self.nodes.client(node).result()
            result.pop("bytes_sent")
            if status.phase != "done":
                found.append(f"{node} {status.phase}: {status.message}")
            elif result != self.expected[node] | {"fit": self.fit}:
                found.append(f"{node} ends elsewhere")
        return found

    def killed(self, victim: str, caller: str, moment: float, away: float) -> list[str]:
        """A fit in which the victim is killed ``moment`` seconds after its begin, and back after ``away``."""
        self.begin(caller)
        time.sleep(moment)
        self.nodes.kill(victim)
        time.sleep(away)
        self.nodes.launch(victim)
        self.wait(self.ids)
        return self.wrong()

    def resumed(self) -> int:
        """How often a node took its place up again in the middle of a fit."""
        logs = [(self.folder / node / "node.log").read_text(errors="replace") for node in self.ids]
        return sum(log.count("back in fit") for log in logs)


def checks(repetitions: int, seed: int = 0) -> Iterator[Check]:
    """All figures."""
    rng = np.random.default_rng(seed)
    with TemporaryDirectory(prefix="d", dir="/tmp") as folder, Nine(Path(folder)) as nine:
        seconds = float(np.median([nine.undisturbed(nine.ids[0]) for _ in range(3)]))
        print(f"undisturbed: {seconds:.2f} s")
        same = 0
        for run in range(repetitions):
            victim, caller = map(str, rng.choice(nine.ids, 2, replace=False))
            moment, away = rng.uniform(0.0, seconds), rng.uniform(0.0, 2.0)
            wrong = nine.killed(victim, caller, moment, away)
            same += not wrong
            text = "; ".join(wrong) or "same bits"
            print(f"{run + 1:>4} {victim:<20} at {moment:.2f} s for {away:.2f} s: {text}", flush=True)
        print(f"{nine.resumed()} of {repetitions} were killed in the middle of the fit and took it up again")
        yield Check("runs with the bits of the undisturbed one, share", same / repetitions, 1, at_most=False)
        yield Check("runs in mid-fit, share", nine.resumed() / repetitions, 0.5, at_most=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    chosen = parser(__doc__, repetitions=100).parse_args(argv)
    return conclude(checks(3 if chosen.tiny else chosen.repetitions))


if __name__ == "__main__":
    raise SystemExit(main())
