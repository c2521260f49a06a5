"""Nine processes, and one of them is killed for good, or frozen, in the middle of a fit: the others go on.

`python -m benchmarks.lost [--repetitions 3] [--tiny]`

The fit is made long (more outer rounds, no tolerance) so that its time means something. A death is noticed
when the first neighbour reports the stream gone; a frozen process (SIGSTOP), like a pulled cable, by pings
that are not answered. The survivors' answer is compared with that of a network of the survivors alone.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import signal
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
from desmr_node.transport.wire import admin_pb2 as pb

#: Seconds that a neighbour is waited for.
PATIENCE = 5.0
MOST_NOTICED, MOST_TIME, MOST_DIFFERENCE = 3.0, 1.5, 1e-6
_PAUSE = 0.02
#: Divisions without which the others are still connected.
VICTIMS = ("pacific", "south-atlantic", "new-england", "east-south-central", "west-south-central")


class Survivors:
    """The nine divisions as processes, of which one is to be lost."""

    def __init__(self, folder: Path, outer: int, patience: float = PATIENCE) -> None:
        self.folder, self.outer = folder, outer
        self.path = write_census(folder, "original", seed=0)
        text = self.path.read_text(encoding="utf-8").replace("autostart = true", "autostart = false")
        text = text.replace("[fit]", f"[fit]\nouter = {outer}\ntolerance = 0.0")
        self.path.write_text(f"patience = {patience}\n{text}", encoding="utf-8")
        self.network = load_network(self.path, environ={})
        self.ids = list(self.network.ids)
        self.configs = write_network(self.network, folder)

    def alone(self, victim: str) -> dict[str, dict[str, Any]]:
        """What a network without the victim ends with."""
        nodes = [node for node in self.network.nodes if node.id != victim]
        edges = [edge for edge in self.network.edges if victim not in edge]
        return run_network(self.network.model_copy(update={"nodes": nodes, "edges": edges})).documents()

    def run(self, victim: str | None, moment: float, frozen: bool = False) -> dict[str, Any]:
        """A fit, and what became of it; times in seconds from the fit's begin."""
        with LocalNetwork(self.configs) as nodes:
            before = max(s.fit for s in nodes.wait(frozenset({"idle", "done"}), timeout=60.0).values())
            self._all_up(nodes)
            left = [node for node in self.ids if node != victim]
            began = time.monotonic()
            nodes.client(left[0]).start()
            found: dict[str, Any] = {}
            if victim is not None:
                time.sleep(moment)
                process = nodes.processes[victim]
                process.send_signal(signal.SIGSTOP if frozen else signal.SIGKILL)
                found["lost"] = time.monotonic()
                found["noticed"] = self._until_noticed(nodes, victim) - found["lost"]
            for node in left:
                while not _ended(nodes.client(node).status(), before):
                    time.sleep(_PAUSE)
            ended = time.monotonic()
            statuses = {node: nodes.client(node).status() for node in left}
            failed = {s.message for s in statuses.values() if s.phase == "failed"}
            if failed:
                raise RuntimeError(f"the fit failed: {failed}")
            found["seconds"] = ended - began
            found["after"] = ended - found.get("lost", began)
            found["results"] = {node: nodes.client(node).result() for node in left}
            if victim is not None:
                nodes.processes[victim].kill()
        return found

    def _all_up(self, nodes: LocalNetwork) -> None:
        for node in self.ids:
            while any(peer.state != "up" for peer in nodes.client(node).status().peers):
                time.sleep(_PAUSE)

    def _until_noticed(self, nodes: LocalNetwork, victim: str) -> float:
        """When the first neighbour says that the victim is not up."""
        neighbours = self.network.neighbours_of(victim)
        while True:
            for node in neighbours:
                with suppress(NodeUnreachable):
                    peers = {p.node: p.state for p in nodes.client(node).status().peers}
                    if peers[victim] != "up":
                        return time.monotonic()
            time.sleep(_PAUSE)


def _ended(status: pb.Status, before: int) -> bool:
    return status.fit > before and status.phase in ("done", "failed")


def difference(results: dict[str, Any], alone: dict[str, Any]) -> float:
    """The largest difference of any coefficient at any survivor, in the data's own units."""
    return max(
        abs(results[node]["coefficients"][name] - value)
        for node in results
        for name, value in alone[node]["coefficients"].items()
    )


def checks(repetitions: int, outer: int, seed: int = 0) -> Iterator[Check]:
    """All figures."""
    rng = np.random.default_rng(seed)
    for frozen in (False, True):
        what = "frozen" if frozen else "killed for good"
        worst = {"noticed": 0.0, "ratio": 0.0, "difference": 0.0}
        named = True
        for run in range(repetitions):
            with TemporaryDirectory(prefix="d", dir="/tmp") as folder:
                nine = Survivors(Path(folder), outer)
                usual = nine.run(None, 0.0)["seconds"]
                victim = str(rng.choice(VICTIMS))
                moment = float(rng.uniform(0.1, 0.6)) * usual
                found = nine.run(victim, moment, frozen)
                ratio = (found["after"] - PATIENCE) / usual
                differ = difference(found["results"], nine.alone(victim))
                named &= all(r["lost"] and r["lost"][0]["node"] == victim for r in found["results"].values())
                print(
                    f"{run + 1} {victim} {what} at {moment:.1f} of {usual:.1f} s: noticed after "
                    f"{found['noticed']:.2f} s; the others ended {found['after']:.1f} s later, which is "
                    f"patience + {ratio:.2f}x; coefficients differ by {differ:.1e}",
                    flush=True,
                )
                for name, value in (
                    ("noticed", found["noticed"]), ("ratio", ratio), ("difference", differ)
                ):  # fmt: skip
                    worst[name] = max(worst[name], value)
        yield Check(f"{what}: noticed after seconds", worst["noticed"], MOST_NOTICED)
        yield Check(f"{what}: (end - loss - patience) / undisturbed", worst["ratio"], MOST_TIME)
        yield Check(
            f"{what}: coefficients from those of the survivors alone", worst["difference"], MOST_DIFFERENCE
        )
        yield Check(f"{what}: every result names it", named, 1, at_most=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    chosen = parser(__doc__, repetitions=3).parse_args(argv)
    return conclude(checks(1 if chosen.tiny else chosen.repetitions, 20 if chosen.tiny else 150))


if __name__ == "__main__":
    raise SystemExit(main())
