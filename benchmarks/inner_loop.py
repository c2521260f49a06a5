"""What a node with many rows costs: time per ADMM round, and memory while the surrogate is built.

`python -m benchmarks.inner_loop [--tiny]`

Rounds: two nodes of n rows each, 50 columns, 20 lambdas, n from a thousand to a million. The lambdas are the
same for all n and well above the noise, so that all sizes have the same supports and hence the same work.
"settled" is the median time of a node's round once nothing changes any more; "first ten" is the mean over
the rounds of a first outer round, which also exchange signs. Sizes take turns. Trust the ratios.

Memory: 2 million rows of 50 columns in .npy files, opened with mmap_mode="r" in a process of its own that
does all a node does with its rows in an outer round: check, moments, spreads, Gram matrix, pilot, linear
term, ten rounds, report. The peak is of anonymous memory (RssAnon, looked up from outside every 2 ms); pages
of the mapped files are the kernel's cache and do not count.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Check, apart, conclude, parser
from desmr_node import FitSpec
from desmr_node.core.graph import Graph
from desmr_node.core.reference import Prepared, lock_step, prepare
from desmr_node.core.rows import ArrayRows

Floats = NDArray[np.float64]

COLUMNS = 50
LAMBDAS = np.geomspace(0.8, 0.15, 20)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
TINY_SIZES = (500, 5_000, 20_000)
FILE_ROWS, TINY_FILE_ROWS = 2_000_000, 20_000
PAIR = Graph.from_edges(2, [(0, 1)])


def response(X: Floats, rng: np.random.Generator) -> Floats:
    """Ten coefficients 1 ... 10 and Cauchy noise."""
    return X[:, :10] @ np.arange(1.0, 11.0) + rng.standard_cauchy(len(X))


def pair(n: int) -> Prepared:
    """Two nodes with the same predictors and different noise, ready to exchange."""
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, COLUMNS))
    sources = [ArrayRows.checked(X, response(X, rng), f"node {j}") for j in range(2)]
    network = prepare(sources, PAIR, FitSpec())
    network.open(replace(network.plan, lambdas=LAMBDAS))
    return network


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one node's round, and the mean number of nonzeros of a column."""

    rows: int
    settled: float
    first_ten: float
    nonzeros: float


def timings(sizes: Sequence[int], rounds: int) -> list[Timing]:
    """Median over `rounds` rounds; the sizes take turns."""
    networks = {n: pair(n) for n in sizes}
    beginnings: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(max(rounds // 10, 3)):
        for n, network in networks.items():
            for member in network.members:  # back to the start, without another pass over the rows
                member.rewind()
            beginnings[n].append(_seconds(network, 10) / 10)
    for network in networks.values():
        _seconds(network, 200)
    settled: dict[int, list[float]] = {n: [] for n in sizes}
    for _ in range(rounds):
        for n, network in networks.items():
            settled[n].append(_seconds(network, 1))
    return [
        Timing(
            n,
            float(np.median(settled[n])),
            float(np.median(beginnings[n])),
            float(np.mean([np.count_nonzero(member.B, axis=0).mean() for member in network.members])),
        )
        for n, network in networks.items()
    ]


def _seconds(network: Prepared, rounds: int) -> float:
    """Time of `rounds` rounds of one node."""
    begin = time.perf_counter()
    for _ in range(rounds):
        lock_step(network.members)
    return (time.perf_counter() - begin) / len(network.members)


def write(directory: str, rows: int) -> None:
    """X.npy and y.npy, a block at a time."""
    rng = np.random.default_rng(rows)
    X = np.lib.format.open_memmap(
        Path(directory) / "X.npy", mode="w+", dtype=np.float64, shape=(rows, COLUMNS)
    )
    y = np.lib.format.open_memmap(Path(directory) / "y.npy", mode="w+", dtype=np.float64, shape=(rows,))
    for start in range(0, rows, 50_000):
        block = rng.standard_normal((min(50_000, rows - start), COLUMNS))
        X[start : start + len(block)] = block
        y[start : start + len(block)] = response(block, rng)
    X.flush()
    y.flush()


def build(directory: str) -> float:
    """An outer round of a node whose rows stay on disk; returns the seconds it took."""
    begin = time.perf_counter()
    X = np.load(Path(directory) / "X.npy", mmap_mode="r")
    y = np.load(Path(directory) / "y.npy", mmap_mode="r")
    network = prepare([ArrayRows.checked(X, y, "node 0")], Graph.from_edges(1, []), FitSpec())
    network.open(network.plan)
    for _ in range(10):
        lock_step(network.members)
    (member,) = network.members
    report = member.report()
    assert np.all(np.isfinite(report.check))
    assert member.B[:11, 0].any()
    return time.perf_counter() - begin


def nothing() -> None:
    """For the memory of the interpreter and its imports."""


def memory(rows: int) -> tuple[float, float, float]:
    """Peak in MB, that of the interpreter alone, and seconds."""
    with tempfile.TemporaryDirectory(prefix="desmr-rows-") as directory:
        apart(write, directory, rows)
        seconds, peak = apart(build, directory)
    _, idle = apart(nothing)
    return peak, idle, seconds


def run(sizes: Sequence[int], rounds: int, file_rows: int, ratio: float = 1.5) -> list[Check]:
    """Print the times by size, then the memory."""
    print(f"{'rows per node':>14}{'settled ms':>12}{'first ten ms':>14}{'nonzeros':>10}")
    times = timings(sizes, rounds)
    for timing in times:
        print(
            f"{timing.rows:>14,}{1e3 * timing.settled:>12.3f}{1e3 * timing.first_ten:>14.3f}"
            f"{timing.nonzeros:>10.2f}",
            flush=True,
        )
    settled = [timing.settled for timing in times]
    peak, idle, seconds = memory(file_rows)
    size = file_rows * (COLUMNS + 1) * 8 / 1e6
    print(
        f"surrogate of {file_rows:,} x {COLUMNS} rows ({size:.0f} MB on disk): {seconds:.1f} s, "
        f"peak {peak:.0f} MB anonymous, of which {idle:.0f} MB are the interpreter and its imports"
    )
    return [
        Check("time per round, slowest size over fastest", max(settled) / min(settled), ratio),
        Check("peak anonymous memory, MB", peak, 400.0),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print both and their bounds."""
    chosen = parser(__doc__).parse_args(argv)
    print(f"inner loop, {COLUMNS} columns, {len(LAMBDAS)} lambdas")
    if chosen.tiny:
        return conclude(run(TINY_SIZES, 100, TINY_FILE_ROWS, ratio=2.0))
    return conclude(run(SIZES, 500, FILE_ROWS))


if __name__ == "__main__":
    raise SystemExit(main())
