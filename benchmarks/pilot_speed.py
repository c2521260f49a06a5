"""How fast is the pilot? The same exact fit by scikit-learn's QuantileRegressor with HiGHS, in the same
process.

`python -m benchmarks.pilot_speed [--tiny]`

One BLAS thread, normal and Cauchy noise, ten true coefficients, penalty sqrt(log p / n). Times are medians
of runs that alternate between the two; trust the ratios. scikit-learn's `alpha` multiplies the check loss
without the factor 2, hence alpha = lam / 2.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import QuantileRegressor

from desmr_node.core.median import l1_quantile_certified
from desmr_node.core.median.problem import checked_problem

Floats = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    """A table, how often it is drawn, and the bound: a ratio, or seconds where the peer takes too long."""

    n: int
    p: int
    repeats: int
    ratio: float | None = None
    seconds: float | None = None


SIZES = (
    Size(200, 100, 15, ratio=4.0),
    Size(2_000, 100, 5, ratio=20.0),
    Size(20_000, 100, 1, ratio=150.0),
    Size(100_000, 200, 3, seconds=10.0),
)
TINY = (Size(60, 20, 3, ratio=1.0), Size(5_000, 20, 1, seconds=10.0))


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of both, and by how much our objective exceeds the peer's, relatively."""

    size: Size
    noise: str
    ours: float
    peer: float | None
    excess: float
    gap: float

    @property
    def ratio(self) -> float | None:
        """How many times faster than the peer."""
        return None if self.peer is None else self.peer / self.ours

    @property
    def passed(self) -> bool:
        """Fast enough, and not at the price of the objective."""
        fast = self.size.seconds is None or self.ours <= self.size.seconds
        if self.ratio is not None and self.size.ratio is not None:
            fast = self.ratio >= self.size.ratio
        return fast and self.excess <= 1e-10 and self.gap <= 1e-10


def table(n: int, p: int, noise: str, rng: np.random.Generator) -> tuple[Floats, Floats, float]:
    """Rows, response and penalty."""
    X = rng.standard_normal((n, p))
    coef = np.where(np.arange(p) < 10, np.arange(p) + 1.0, 0.0)
    error = rng.standard_cauchy(n) if noise == "cauchy" else rng.standard_normal(n)
    return X, X @ coef + error, float(np.sqrt(np.log(p) / n))


def measure(size: Size, noise: str) -> Timing:
    """Time both on the same tables, in turn."""
    ours, peers, excesses, gaps = [], [], [0.0], []
    for repeat in range(size.repeats):
        X, y, lam = table(size.n, size.p, noise, np.random.default_rng([repeat, size.n, size.p]))
        seconds, solution = _timed(partial(l1_quantile_certified, X, y, lam))
        ours.append(seconds)
        gaps.append(solution.gap)
        if size.ratio is not None:
            peer = QuantileRegressor(quantile=0.5, alpha=lam / 2, fit_intercept=False, solver="highs")
            seconds, fitted = _timed(partial(peer.fit, X, y))
            peers.append(seconds)
            theirs = checked_problem(X, y, lam, 0.5).objective(fitted.coef_)
            excesses.append((solution.objective - theirs) / theirs)
    peer_median = float(np.median(peers)) if peers else None
    return Timing(size, noise, float(np.median(ours)), peer_median, max(excesses), max(gaps))


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of times, ratios and bounds; 1 if any is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--tiny", action="store_true", help="small tables only, bounds that any machine meets"
    )
    options = parser.parse_args(argv)
    print(f"{'n':>7} {'p':>4} {'noise':7} {'ours s':>9} {'peer s':>9} {'ratio':>7}   {'bound':12} {'gap':>8}")
    passed = True
    for size in TINY if options.tiny else SIZES:
        for noise in ("normal", "cauchy"):
            timing = measure(size, noise)
            passed &= timing.passed
            print(_line(timing), flush=True)
    print("PASS" if passed else "SHORT")
    return 0 if passed else 1


def _line(timing: Timing) -> str:
    size = timing.size
    peer = "-" if timing.peer is None else f"{timing.peer:.4f}"
    ratio = "-" if timing.ratio is None else f"{timing.ratio:.1f}"
    bound = f">= {size.ratio:g}x" if size.ratio is not None else f"<= {size.seconds:g} s"
    verdict = "PASS" if timing.passed else "SHORT"
    return (
        f"{size.n:7d} {size.p:4d} {timing.noise:7} {timing.ours:9.4f} {peer:>9} {ratio:>7}   {bound:12} "
        f"{timing.gap:8.0e}   {verdict}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
