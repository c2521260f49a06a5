"""Bytes on the wire of a default fit of the crime data, edge by edge, and what sparse coding saves.

`python -m benchmarks.wire_bytes [--tiny]`

The whole network in one process, every message encoded as a daemon would send it. "vectors" are coefficient
vectors, "sums" the flooded records of network sums (introductions included), "other" hellos and the like.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.figures import Check, conclude, parser
from desmr_node import FitSpec
from desmr_node.core.rows import ArrayRows
from desmr_node.datasets import crime_network
from desmr_node.datasets.crime import DIVISIONS
from desmr_node.protocol.messages import Flood, Schema, Vector
from desmr_node.protocol.seal import Sealed
from desmr_node.protocol.sealing import MaskKey
from desmr_node.runtime.census import node_id
from desmr_node.runtime.signing import BareSigner
from desmr_node.runtime.simulation import Simulation
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec
from desmr_node.transport.simulated import SimulatedNetwork

LEAST_SAVING = 2.0


@dataclass(slots=True)
class Tally:
    """Bytes by (edge, kind), and of each outer round's vectors as sent and as dense doubles."""

    limits: codec.Limits
    by_edge: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    sent: Counter[int] = field(default_factory=Counter)
    dense: Counter[int] = field(default_factory=Counter)
    messages: int = 0

    def tap(self, source: str, target: str, data: bytes) -> None:
        """Note one message."""
        message = codec.decode(data, self.limits)
        kind = {Vector: "vectors", Flood: "sums"}.get(type(message), "other")
        self.by_edge.setdefault((source, target), Counter())[kind] += len(data)
        self.messages += 1
        if isinstance(message, Vector):
            self.sent[message.outer] += len(data)
            self.dense[message.outer] += 8 * message.B.size


def measure(spec: FitSpec, members: int = len(DIVISIONS)) -> tuple[Tally, Simulation]:
    """A fit, counted."""
    network = crime_network("original", np.random.default_rng(0))
    ids = [node_id(name) for name in DIVISIONS][:members]
    edges = [(ids[a], ids[b]) for a, b in network.edges if max(a, b) < members]
    features = network.datasets[0][0].shape[1]
    limits = codec.Limits.of(features, spec.lambdas)
    tally = Tally(limits)
    workers = {name: Worker(ArrayRows(*network.datasets[j]), None, spec, 0) for j, name in enumerate(ids)}
    schema = Schema("violentPerPop", tuple(f"x{k}" for k in range(features)))
    simulation = Simulation(
        workers,
        edges,
        schema,
        SimulatedNetwork(limits, tap=tally.tap),
        seals=lambda node, fit: Sealed("crime", node, fit, MaskKey.generate(), BareSigner()),
    )
    simulation.run()
    return tally, simulation


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, compare."""
    chosen = parser(__doc__).parse_args(argv)
    spec, members = (FitSpec(outer=2, inner=2), 4) if chosen.tiny else (FitSpec(), len(DIVISIONS))
    tally, simulation = measure(spec, members)
    fit = simulation.result()
    print(f"{fit.message}; {fit.support.sum()} of {len(fit.support)} variables\n")
    print(f"{'from':22}{'to':22}{'vectors, kB':>12}{'sums, kB':>10}{'other, kB':>11}{'all, kB':>9}")
    for (source, target), kinds in sorted(tally.by_edge.items()):
        sizes = [kinds[kind] / 1e3 for kind in ("vectors", "sums", "other")]
        print(f"{source:22}{target:22}{sizes[0]:>12.1f}{sizes[1]:>10.1f}{sizes[2]:>11.1f}{sum(sizes):>9.1f}")
    total = sum(sum(kinds.values()) for kinds in tally.by_edge.values())
    print(f"{'all edges':44}{total / 1e3:>42.1f} kB in {tally.messages} messages\n")
    print(f"{'outer round':>12}{'vectors, kB':>13}{'as doubles, kB':>16}{'ratio':>8}")
    for outer, dense in sorted(tally.dense.items()):
        sent = tally.sent[outer]
        print(f"{outer + 1:>12}{sent / 1e3:>13.1f}{dense / 1e3:>16.1f}{dense / sent:>8.2f}")
    last = max(tally.dense)
    saving = tally.dense[last] / tally.sent[last]
    return conclude(
        [Check("dense doubles against sent, last outer round", saving, LEAST_SAVING, at_most=False)]
    )


if __name__ == "__main__":
    raise SystemExit(main())
