"""What Prometheus sees: round time, residuals, bytes and state per peer, refusals. Read off when scraped."""

import os
import resource
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

#: Seconds between two rounds beyond which something else than a round went on.
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """One registry per node: several may live in one process, in tests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Not the library's histogram: observing costs it as much as a third of a round's own work.
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0
        self.watch(self._rounds)
        self.faults = Counter(
            "desmr_peer_faults", "Times a neighbour broke the protocol", ["peer"], registry=self.registry
        )
        self.refused = Counter(
            "desmr_refused_streams", "Streams of strangers turned away", registry=self.registry
        )
        self._last_round: float | None = None
        self.round_seconds = 0.0

    def note_round(self, now: float | None) -> None:
        """An inner round begins; None: something else does, and the time until the next is no round's."""
        if now is not None and self._last_round is not None:
            self.round_seconds = now - self._last_round
            self._counts[bisect_left(_BUCKETS, self.round_seconds)] += 1
            self._sum += self.round_seconds
        self._last_round = now

    def _rounds(self) -> Iterator[Metric]:
        family = HistogramMetricFamily("desmr_round_seconds", "Time from one inner round to the next")
        edges = [*map(str, _BUCKETS), "+Inf"]
        buckets = list(zip(edges, map(float, accumulate(self._counts)), strict=True))
        family.add_metric([], buckets, self._sum)
        yield family

    def watch(self, collect: Callable[[], Iterator[Metric]]) -> None:
        """Add figures that are looked up only when somebody asks."""

        class Lookup(Collector):
            def collect(self) -> Iterator[Metric]:
                return collect()

        self.registry.register(Lookup())


def gauge(name: str, text: str, value: float) -> Metric:
    """A single figure."""
    return GaugeMetricFamily(name, text, value=value)


def per_peer(name: str, text: str, values: dict[str, float], *, counter: bool) -> Metric:
    """A figure for each neighbour."""
    family = (CounterMetricFamily if counter else GaugeMetricFamily)(name, text, labels=["peer"])
    for peer, value in values.items():
        family.add_metric([peer], value)
    return family


def memory_bytes() -> int:
    """Resident memory of this process, now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def open_files() -> int:
    """Files, sockets and pipes that this process has open, now."""
    return len(os.listdir("/proc/self/fd")) - 1  # but for the listing's own
