"""Is the pilot exact? Objectives on random and on nasty problems, beside SciPy's HiGHS on the same programme.

`python -m benchmarks.pilot_exactness [--tiny] [--problems N]`

Both solutions are evaluated by the same objective function; the excess of ours over HiGHS's is divided by
that objective, or by a thousandth of the objective at zero where the optimum is an interpolation. HiGHS
stops at a feasibility of 1e-7, so ours may be lower.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack

from desmr_node.core.median import l1_quantile_certified
from desmr_node.core.median.problem import SCALE_FLOOR, checked_problem

Floats = NDArray[np.float64]
BOUND = 1e-10


@dataclass(frozen=True, slots=True)
class Case:
    """One problem."""

    X: Floats
    y: Floats
    lam: Floats
    quantile: float


def _plain(rng: np.random.Generator, n: int, p: int, quantile: float = 0.5) -> Case:
    X = rng.standard_normal((n, p))
    b = np.where(np.arange(p) < 5, rng.standard_normal(p) * 3, 0.0)
    noise = rng.standard_cauchy(n) if rng.random() < 0.5 else rng.standard_normal(n)
    lam = np.full(p, 10 ** rng.uniform(-2.5, 0) * np.sqrt(np.log(p + 1) / n))
    return Case(X, X @ b + noise, lam, quantile)


def _size(rng: np.random.Generator) -> tuple[int, int]:
    return int(rng.integers(2, 150)), int(rng.integers(1, 60))


def random(rng: np.random.Generator) -> Case:
    """Gaussian columns, normal or Cauchy noise."""
    return _plain(rng, *_size(rng))


def other_quantiles(rng: np.random.Generator) -> Case:
    """Levels from 0.02 to 0.98."""
    return _plain(rng, *_size(rng), quantile=float(rng.uniform(0.02, 0.98)))


def wide(rng: np.random.Generator) -> Case:
    """Fewer rows than columns."""
    n = int(rng.integers(2, 60))
    return _plain(rng, n, n + int(rng.integers(1, 120)))


def one_row(rng: np.random.Generator) -> Case:
    """A single observation."""
    return _plain(rng, 1, int(rng.integers(1, 20)))


def ties(rng: np.random.Generator) -> Case:
    """Integers in X and y: residuals tie everywhere."""
    n, p = _size(rng)
    X = rng.integers(-2, 3, (n, p)).astype(float)
    y = rng.integers(-3, 4, n).astype(float)
    return Case(X, y, np.full(p, rng.integers(0, 5) / 8 * 4 / n), float(rng.choice([0.25, 0.5, 0.75])))


def integer_response(rng: np.random.Generator) -> Case:
    """Counts as response, an unpenalised intercept."""
    case = _plain(rng, *_size(rng))
    X = np.column_stack([np.ones(len(case.y)), case.X])
    return Case(X, rng.poisson(2.0, len(case.y)).astype(float), np.append(0.0, case.lam), 0.5)


def duplicated_rows(rng: np.random.Generator) -> Case:
    """Every row several times."""
    case = _plain(rng, *_size(rng))
    pick = rng.integers(0, max(1, len(case.y) // 3), len(case.y))
    return Case(case.X[pick], case.y[pick], case.lam, case.quantile)


def duplicated_columns(rng: np.random.Generator) -> Case:
    """Columns twice, or with the sign turned, some of them unpenalised."""
    case = _plain(rng, *_size(rng))
    X = np.hstack([case.X, case.X, -case.X[:, :1]])
    lam = np.concatenate([case.lam, case.lam, case.lam[:1]])
    return Case(X, case.y, lam * (rng.random(len(lam)) < 0.8), case.quantile)


def unpenalised(rng: np.random.Generator) -> Case:
    """A random half of the penalties is zero."""
    case = _plain(rng, *_size(rng))
    return Case(case.X, case.y, case.lam * (rng.random(len(case.lam)) < 0.5), case.quantile)


def no_penalty(rng: np.random.Generator) -> Case:
    """Plain quantile regression, or interpolation where p >= n."""
    case = _plain(rng, *_size(rng), quantile=float(rng.uniform(0.1, 0.9)))
    return Case(case.X, case.y, 0.0 * case.lam, case.quantile)


def constant_response(rng: np.random.Generator) -> Case:
    """Response 12 in every row, with or without an intercept."""
    case = _plain(rng, *_size(rng))
    X = case.X.copy()
    lam = case.lam.copy()
    if rng.random() < 0.5:
        X[:, 0], lam[0] = 1.0, 0.0
    return Case(X, np.full(len(case.y), 12.0), lam, case.quantile)


def zero_columns(rng: np.random.Generator) -> Case:
    """Columns of zeros and constant columns."""
    case = _plain(rng, *_size(rng))
    X = case.X * (rng.random(case.X.shape[1]) < 0.6)
    X[:, -1] = 3.0
    return Case(X, case.y, case.lam * (rng.random(len(case.lam)) < 0.7), case.quantile)


def wild_scales(rng: np.random.Generator) -> Case:
    """Columns from 1e-8 to 1e8, penalties to match; a response of any size."""
    case = _plain(rng, *_size(rng))
    scale = 10 ** rng.uniform(-8, 8, case.X.shape[1])
    size = 10 ** rng.uniform(-6, 6)
    return Case(case.X * scale, case.y * size, case.lam * scale, case.quantile)


def binary(rng: np.random.Generator) -> Case:
    """Sparse 0/1 columns and a 0/1 response with an intercept."""
    n, p = _size(rng)
    X = np.column_stack([np.ones(n), (rng.random((n, p)) < 0.15).astype(float)])
    lam = np.full(p + 1, rng.uniform(0, 0.1))
    lam[0] = 0.0
    return Case(X, (rng.random(n) < 0.4).astype(float), lam, 0.5)


def many_rows(rng: np.random.Generator) -> Case:
    """Enough rows to be sifted, an intercept, sometimes rounded responses."""
    case = _plain(rng, 12_000, 30)
    X = np.column_stack([np.ones(len(case.y)), case.X])
    y = np.round(case.y) if rng.random() < 0.4 else case.y
    return Case(X, y, np.append(0.0, case.lam), float(rng.choice([0.5, 0.9])))


def many_columns(rng: np.random.Generator) -> Case:
    """Enough columns to be generated, two of them unpenalised."""
    case = _plain(rng, 300, 800)
    lam = 3.0 * np.maximum(case.lam, 0.3 * np.sqrt(np.log(800) / 300))
    lam[[0, 400]] = 0.0
    return Case(case.X, case.y, lam, case.quantile)


KINDS: tuple[Callable[[np.random.Generator], Case], ...] = (
    random,
    other_quantiles,
    wide,
    one_row,
    ties,
    integer_response,
    duplicated_rows,
    duplicated_columns,
    unpenalised,
    no_penalty,
    constant_response,
    zero_columns,
    wild_scales,
    binary,
    many_rows,
    many_columns,
)


def highs(case: Case) -> Floats:
    """The same linear programme by HiGHS, columns and response scaled to unit size for its tolerances' sake.

    The primal, or the dual where there are so many rows that the primal takes half a minute.
    """
    n, p = case.X.shape
    scale = np.abs(case.X).max(axis=0)
    scale[scale == 0.0] = 1.0
    size = float(np.abs(case.y).max()) or 1.0
    X, y, mu, q = case.X / scale, case.y / size, 0.5 * n * case.lam / scale, case.quantile
    if n > 100 * p:
        both = np.vstack([X.T, -X.T])
        result = linprog(-y, A_ub=both, b_ub=np.append(mu, mu), bounds=(q - 1.0, q), method="highs")
        b = None if result.x is None else -result.ineqlin.marginals
    else:
        sparse, identity = csr_array(X), eye_array(n, format="csr")
        both = hstack([sparse, -sparse, identity, -identity], format="csc")
        cost = np.concatenate([mu, mu, np.full(n, q), np.full(n, 1.0 - q)])
        result = linprog(cost, A_eq=both, b_eq=y, method="highs")
        b = result.x
    if b is None:
        raise RuntimeError(f"HiGHS: {result.message}")
    return np.asarray((b[:p] - b[p : 2 * p]) / scale * size)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of one kind of problem: the worst excess over HiGHS, the best, and the worst certified gap."""

    kind: str
    problems: int
    worst_excess: float
    best_excess: float
    worst_gap: float

    @property
    def passed(self) -> bool:
        """Whether the objective and the certificate are within the bound."""
        return self.worst_excess <= BOUND and self.worst_gap <= BOUND


def compare(kind: Callable[[np.random.Generator], Case], problems: int, seed: int = 0) -> Comparison:
    """Solve `problems` problems of one kind both ways."""
    excesses, gaps = [], []
    for index in range(problems):
        case = kind(np.random.default_rng([seed, index]))
        problem = checked_problem(case.X, case.y, case.lam, case.quantile)
        ours = l1_quantile_certified(case.X, case.y, case.lam, case.quantile)
        theirs = problem.objective(highs(case))
        at_zero = problem.objective(np.zeros(len(case.lam)))
        excesses.append((problem.objective(ours.coef) - theirs) / max(theirs, SCALE_FLOOR * at_zero, 1e-300))
        gaps.append(ours.gap)
    return Comparison(kind.__name__, problems, max(excesses), min(excesses), max(gaps))


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per kind of problem; 1 if any misses the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tiny", action="store_true", help="one problem of each kind")
    parser.add_argument("--problems", type=int, default=208, help="problems in total, spread over the kinds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    each = 1 if options.tiny else -(-options.problems // len(KINDS))
    print(f"objective beside HiGHS and certified gap, both relative; bound {BOUND:g}")
    print(f"{'kind':20} {'problems':>8} {'worst excess':>13} {'best excess':>12} {'worst gap':>10}")
    passed = True
    for kind in KINDS:
        result = compare(kind, each, options.seed)
        passed &= result.passed
        print(
            f"{result.kind:20} {result.problems:8d} {result.worst_excess:13.1e} {result.best_excess:12.1e} "
            f"{result.worst_gap:10.1e}   {'PASS' if result.passed else 'SHORT'}",
            flush=True,
        )
    print(f"{each * len(KINDS)} problems: {'PASS' if passed else 'SHORT'}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
