"""A network file as a simulation: its daemons' machines, rows and settings in one process; same bits."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from desmr_node.config import FloorsConfig, NetworkConfig
from desmr_node.core.fit import MemberFit, OuterRound
from desmr_node.data import Table, open_rows
from desmr_node.errors import ConfigError, DataError, DesmrError
from desmr_node.protocol.events import Keep
from desmr_node.protocol.greeting import differences
from desmr_node.protocol.machine import Phase
from desmr_node.protocol.messages import Hello, Schema, Standing
from desmr_node.runtime import results
from desmr_node.runtime.settings import settings_of
from desmr_node.runtime.simulation import Simulation
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec
from desmr_node.transport.simulated import Change, Delivery, SimulatedNetwork

#: Told of every outer round as it ends.
Progress = Callable[[OuterRound], None]


class FitFailed(DesmrError):  # noqa: N818 - what happened, as the machine's Phase.FAILED
    """The network began the fit and could not end it; the reason it gave."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the nodes' models are apart: largest difference of a coefficient, and all else alike or not."""

    coefficient: float
    intercept: float
    alike: bool

    @classmethod
    def of(cls, fits: dict[str, MemberFit]) -> "Agreement":
        """Over all nodes."""
        first, *others = fits.values()
        return cls(
            coefficient=float(np.max(np.ptp([fit.coef for fit in fits.values()], axis=0))),
            intercept=float(np.ptp([fit.intercept for fit in fits.values()])),
            alike=all(
                fit.lambda_ == first.lambda_ and np.array_equal(fit.support, first.support) for fit in others
            ),
        )


@dataclass(frozen=True, slots=True)
class SimulatedFit:
    """What every node of the network would hold, and the bytes that all sent together."""

    network: NetworkConfig
    schema: Schema
    kept: dict[str, Keep]
    bytes_sent: int

    @property
    def fits(self) -> dict[str, MemberFit]:
        """Each node's fit."""
        return {node: kept.fit for node, kept in self.kept.items()}

    def documents(self) -> dict[str, dict[str, Any]]:
        """Each node's result.json."""
        network = self.network
        return {
            node: results.document(
                kept,
                network=network.network,
                node=node,
                schema=self.schema,
                spec=network.fit,
                seed=network.seed,
            )
            for node, kept in self.kept.items()
        }

    def write(self, folder: str | Path) -> list[Path]:
        """Write each node's result.json and coefficients.csv to a folder of its own; the folders."""
        folders = []
        for node, document in self.documents().items():
            here = Path(folder, node)
            try:
                here.mkdir(parents=True, exist_ok=True)
                results.write(here, document)
            except OSError as error:
                raise ConfigError(
                    f"{error.filename or here} cannot be written ({os.strerror(error.errno or 0)}): "
                    "choose another folder"
                ) from None
            folders.append(here)
        return folders


def simulate_network(network: NetworkConfig, progress: Progress | None = None) -> dict[str, MemberFit]:
    """Each node's fit, as its daemon would end with it."""
    return run_network(network, progress).fits


def run_network(network: NetworkConfig, progress: Progress | None = None) -> SimulatedFit:
    """Fit the network in this process; raises `FitFailed` with the reason the daemons would give."""
    tables = {node: open_rows(network.data_of(node), node=node) for node in network.ids}
    schema = _common_schema(network, tables)
    for node, table in tables.items():
        declined = _below_floor(network.floors, table)
        if declined is not None:
            raise FitFailed(f"{node} would decline: {declined}")
    workers = {}
    for node, table in tables.items():
        data = network.data_of(node)
        holdout = open_rows(data, "holdout", node=node).rows if data.holdout else None
        workers[node] = Worker(table.rows, holdout, network.fit, network.seed)
    limits = codec.Limits.of(len(schema.features), network.fit.lambdas)
    edges = sorted({(min(edge), max(edge)) for edge in network.edges})
    simulation = _Reporting(workers, edges, schema, SimulatedNetwork(limits), progress)
    simulation.run()
    simulation.report()
    for node, machine in simulation.machines.items():
        if machine.phase is not Phase.DONE:
            raise FitFailed(machine.reason or f"{node} is still {machine.phase.value}")
    kept = {node: simulation.kept[node][-1] for node in network.ids}
    return SimulatedFit(network, schema, kept, simulation.network.bytes_sent)


class _Reporting(Simulation):
    """A simulation that tells of each outer round once."""

    def __init__(
        self,
        nodes: dict[str, Worker],
        edges: list[tuple[str, str]],
        schema: Schema,
        network: SimulatedNetwork,
        progress: Progress | None,
    ) -> None:
        super().__init__(nodes, edges, schema, network)
        self._first, self._progress, self._told = min(nodes), progress, 0

    def happen(self, happening: Delivery | Change) -> None:
        super().happen(happening)
        self.report()

    def report(self) -> None:
        """Tell what is new."""
        history = self.workers[self._first].share.history
        if self._progress is not None and len(history) > self._told:
            for line in history[self._told :]:
                self._progress(line)
            self._told = len(history)


def _common_schema(network: NetworkConfig, tables: dict[str, Table]) -> Schema:
    """What the daemons would find out when they greet each other."""
    settings = settings_of(network.fit, network.seed)
    hellos = {
        node: Hello(network.network, node, 0, Schema(table.response, table.features), settings, Standing())
        for node, table in tables.items()
    }

    def found() -> Iterator[str]:
        for one, other in sorted({(min(edge), max(edge)) for edge in network.edges}):
            yield from differences(hellos[one], hellos[other], other)

    sentences = list(found())
    if sentences:
        raise DataError("; ".join(sentences) + ": give every node the same columns")
    return hellos[network.ids[0]].schema


def _below_floor(floors: FloorsConfig, table: Table) -> str | None:
    rows, features = table.rows.count, len(table.features)
    if rows < floors.rows:
        return f"it holds {rows} rows and [floors] rows is {floors.rows}"
    if rows < floors.rows_per_variable * features:
        return (
            f"it holds {rows} rows for {features} features and [floors] rows_per_variable is "
            f"{floors.rows_per_variable:g}"
        )
    return None
