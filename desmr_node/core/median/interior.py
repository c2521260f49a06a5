"""Interior point on the bounded dual (Frisch-Newton with Mehrotra's predictor and corrector).

The penalty is treated as p more rows: -b_k with check loss mu_k |b_k|. All n + p dual variables v then live
in boxes lo < v < up; s = v - lo and t = up - v are the distances to the bounds, ws and wt the multipliers
of those bounds (the negative and positive parts of the residuals). One Newton step solves

    (X' Q1 X + Q2) db = rhs,      Q = diag(1 / (wt/t + ws/s)), split into rows Q1 and columns Q2,

with one symmetric product and one Cholesky factor, or its n x n Woodbury twin where p > n. The point is not
meant to be accurate: it shows which rows are interpolated and which coefficients are not zero, and the
simplex does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from desmr_node.core.median.problem import Floats, TiltedProblem

STEP_SHARE = 0.99995  # of the way to the nearest bound
SMALLEST_DISTANCE = 1e-300
# An unpenalised coefficient gets a penalty this small beside what its column could reach: the normal
# equations stay positive definite, and the simplex, which knows the true penalty, removes the difference.
PENALTY_FLOOR = 1e-7


@dataclass(frozen=True, slots=True)
class InteriorPoint:
    """A nearly optimal point.

    `row_weight` is large where a residual is close to zero, `active` marks the coefficients that look
    non-zero.
    """

    coef: Floats
    row_dual: Floats
    row_weight: Floats
    active: NDArray[np.bool_]
    iterations: int

    @property
    def finite(self) -> bool:
        """Whether the iteration ended in numbers that can be used."""
        return bool(np.isfinite(self.coef).all() and np.isfinite(self.row_weight).all())


class _NormalEquations:
    """X'Q1 X + Q2, factored; `usable` is False where it is not positive definite in float64."""

    __slots__ = ("_X", "_buffer", "_factor", "_inverse_q2", "_woodbury", "usable")

    def __init__(self, X: Floats) -> None:
        n, p = X.shape
        self._X = X
        self._woodbury = p > n
        self._buffer = np.empty_like(X)
        self._factor: Floats = np.empty((0, 0))
        self._inverse_q2: Floats = np.empty(0)
        self.usable = True

    def refresh(self, q1: Floats, q2: Floats) -> None:
        if self._woodbury:
            self._inverse_q2 = 1.0 / q2
            np.multiply(self._X, np.sqrt(self._inverse_q2), out=self._buffer)
            # BLAS reads the row-major buffer as its transpose
            H = blas.dsyrk(1.0, self._buffer.T, lower=1, trans=1)
            H.flat[:: len(H) + 1] += 1.0 / q1
        else:
            np.multiply(self._X, np.sqrt(q1)[:, None], out=self._buffer)
            H = blas.dsyrk(1.0, self._buffer.T, lower=1, trans=0)
            H.flat[:: len(H) + 1] += q2
        self._factor, info = lapack.dpotrf(H, lower=1, clean=0, overwrite_a=1)
        self.usable = info == 0

    def solve(self, rhs: Floats) -> Floats:
        solution: Floats
        if self._woodbury:
            u = self._inverse_q2 * rhs
            inner = lapack.dpotrs(self._factor, self._X @ u, lower=1)[0]
            solution = u - self._inverse_q2 * (self._X.T @ inner)
        else:
            solution = lapack.dpotrs(self._factor, rhs, lower=1)[0]
        return solution


@dataclass(slots=True)
class _State:
    """The iterate: coefficients b, dual v, multipliers wt and ws, distances s and t, dual residual rd."""

    b: Floats
    v: Floats
    wt: Floats
    ws: Floats
    s: Floats
    t: Floats
    rd: Floats

    @property
    def q(self) -> Floats:
        return np.asarray(1.0 / (self.wt / self.t + self.ws / self.s))

    @property
    def gap(self) -> float:
        return float(self.t @ self.wt + self.s @ self.ws)


def interior_point(
    problem: TiltedProblem, tolerance: float, start: Floats | None = None, limit: int = 50
) -> InteriorPoint:
    """Follow the central path until the gap per bound is `tolerance` times the typical residual."""
    with np.errstate(all="ignore"):
        return _follow_path(problem, tolerance, start, limit)


def _follow_path(problem: TiltedProblem, tolerance: float, start: Floats | None, limit: int) -> InteriorPoint:
    X, tilt = problem.X, problem.tilt
    n, p = X.shape
    mu = np.maximum(problem.mu, PENALTY_FLOOR * n)
    lo = np.concatenate([np.full(n, problem.quantile - 1.0), -mu])
    up = np.concatenate([np.full(n, problem.quantile), mu])
    b = np.zeros(p) if start is None else start.copy()
    r = np.concatenate([problem.y - X @ b, -b])
    # the scale of the stopping rule ignores outliers, so that heavy tails do not loosen it
    typical = max(float(np.median(np.abs(r[:n]))), 1e-12)
    slack = np.full(n + p, typical)
    slack[n:] = max(float(np.abs(b).mean()), typical / np.sqrt(p), 1e-12)
    # v starts at 0, where the dual residual is the tilt
    state = _State(
        b, np.zeros(n + p), np.maximum(r, 0.0) + slack, np.maximum(-r, 0.0) + slack, -lo, up.copy(), -tilt
    )
    bounds = 2.0 * (n + p)
    dual_tolerance = 1e-6 * max(float(np.abs(tilt).max()), 1.0) + 1e-9 * n
    equations = _NormalEquations(X)
    iteration = 0
    for iteration in range(limit):
        if iteration % 6 == 5:  # the running update of rd drifts
            state.rd = -(X.T @ state.v[:n]) - state.v[n:] - tilt
        gap = state.gap
        if gap <= tolerance * bounds * typical and np.abs(state.rd).max() <= dual_tolerance:
            break
        q = state.q
        equations.refresh(q[:n], q[n:])
        if not equations.usable:
            break
        _step(state, X, q, equations, gap / bounds, lo, up)
        if not np.isfinite(state.b[0]):
            break
    return _read_off(state, problem, n, iteration)


def _step(
    state: _State, X: Floats, q: Floats, equations: _NormalEquations, centre: float, lo: Floats, up: Floats
) -> None:
    s, t, ws, wt = state.s, state.t, state.ws, state.wt
    n = len(X)

    def direction(target_t: Floats, target_s: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        dv = q * (target_s / s - target_t / t)
        db = equations.solve(X.T @ dv[:n] + dv[n:] - state.rd)
        dv[:n] -= q[:n] * (X @ db)
        dv[n:] -= q[n:] * db
        return db, dv, (target_t + wt * dv) / t, (target_s - ws * dv) / s

    db, dv, dwt, dws = direction(-t * wt, -s * ws)
    dual = min(_longest(t, -dv), _longest(s, dv))
    primal = min(_longest(wt, dwt), _longest(ws, dws))
    if min(dual, primal) < 1.0:
        predicted = (t - dual * dv) @ (wt + primal * dwt) + (s + dual * dv) @ (ws + primal * dws)
        aim = (predicted / (centre * 2 * len(q))) ** 3 * centre
        db, dv, dwt, dws = direction(aim - t * wt + dv * dwt, aim - s * ws - dv * dws)
        dual = min(_longest(t, -dv), _longest(s, dv))
        primal = min(_longest(wt, dwt), _longest(ws, dws))
    state.b += primal * db
    state.wt += primal * dwt
    state.ws += primal * dws
    state.v += dual * dv
    state.rd *= 1.0 - dual
    state.s = np.maximum(state.v - lo, SMALLEST_DISTANCE)
    state.t = np.maximum(up - state.v, SMALLEST_DISTANCE)


def _longest(x: Floats, dx: Floats) -> float:
    """The longest step that keeps x + step dx positive, at most 1."""
    fastest = float((-dx / x).max())
    return 1.0 if fastest <= STEP_SHARE else STEP_SHARE / fastest


def _read_off(state: _State, problem: TiltedProblem, n: int, iterations: int) -> InteriorPoint:
    # a coefficient is off its kink if its dual variable is closer to a bound than its multiplier to zero
    to_bound = np.minimum(state.s[n:], state.t[n:]) / (state.s[n:] + state.t[n:])
    multiplier = np.maximum(state.wt[n:], state.ws[n:]) / (np.abs(state.b).max() + SMALLEST_DISTANCE)
    active = ((to_bound < multiplier) & (to_bound < 0.25)) | (problem.mu <= 0.0)
    return InteriorPoint(state.b, state.v[:n], state.q[:n], active, iterations)
