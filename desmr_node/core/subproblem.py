"""The exact local update: min_b 1/2 b'Qb - q'b + sum_k w_k |b_k|, for many right-hand sides at once.

Block principal pivoting (Judice and Pires 1994, for complementarity problems with positive definite
matrices). A column's state is a sign pattern s. Given s, the coefficients on its support solve
Q_AA b_A = q_A - w_A s_A, a k x k Cholesky; the pattern is optimal if b_A has the signs s_A and no other
gradient exceeds its weight. Otherwise all offenders change sides at once, as long as their number keeps
falling; when it stops falling only the last one does (Murty's rule), which cannot cycle. Inside the consensus
loop each problem is a small perturbation of the last and its pattern rarely changes: a `Solver` remembers
the factors of the supports it met, and a column then costs two triangular solves. Nothing of size p x p is
formed per column.

A factor is a function of Q and the support alone, and every column is solved by itself: what is remembered
decides how long a solve takes and never, to the last bit, what it returns. Nor does the memory order of the
arguments.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from desmr_node.core.arrays import Indices, Mask, Matrix, Vector
from desmr_node.core.quadratic import Quadratic

#: Attempts that may go by without fewer offenders before Murty's rule takes over.
_PATIENCE = 4
#: After this many attempts a column is handed to coordinate descent, which stops at a looser tolerance.
_EXCHANGES = 300
_SWEEPS = 10_000
_DESCENT_SLACK = 1e4
#: A solver remembers p^2 / 8 numbers, or this many (128 KB) where that is more.
_REMEMBERED = 2**14

#: Minimisers, their gradients and the coordinates that violate optimality: (L, p) each.
_Attempt = tuple[Matrix, Matrix, Mask]


def optimality_violation(gradient: Matrix, B: Matrix, weights: Matrix) -> Matrix:
    """Distance of the (smooth) gradient from minus the subdifferential of the penalty, elementwise."""
    at_zero = np.maximum(np.abs(gradient) - weights, 0.0)
    return np.where(B != 0, np.abs(gradient + weights * np.sign(B)), at_zero)


def solve(Q: Quadratic, rhs: Matrix, weights: Matrix, start: Matrix, tolerance: float = 1e-12) -> Matrix:
    """`Solver.solve`, with nothing remembered."""
    return Solver(Q).solve(rhs, weights, start, tolerance)


class _Factor:
    """A support, the Cholesky factor of Q on it (None if there is none), and when it was last of use."""

    __slots__ = ("size", "support", "upper", "used")

    def __init__(self, Q: Quadratic, support: Indices) -> None:
        self.support, self.used = support, 0
        self.upper: Matrix | None = None
        if len(support):
            # The transpose of a C array is an F array, which LAPACK overwrites: no copy.
            upper, failed = dpotrf(Q.block(support).T, clean=0, overwrite_a=1)
            if not failed:  # else positive definite on paper, but not in floating point
                self.upper = upper
        self.size = Q.order + (0 if self.upper is None else len(support) ** 2)  # in numbers


class _Pattern:
    """The signs of a single column, and all that a solve needs as long as they stay the same."""

    __slots__ = ("bound", "columns", "factor", "floor", "shift", "sides")

    def __init__(self, Q: Quadratic, factor: _Factor, w: Vector, signs: Vector) -> None:
        on = factor.support
        self.factor, self.sides, self.shift = factor, signs[on], w[on] * signs[on]
        self.floor = np.where(self.sides == 0.0, -1.0, 0.0)  # a free coefficient may have either sign
        self.bound = w.copy()
        self.bound[on] = np.inf
        unit = np.zeros((Q.order, len(on)))
        unit[on, np.arange(len(on))] = 1.0
        self.columns = Q.apply(unit)

    def solve(self, q: Vector) -> Vector | None:
        """The minimiser's nonzeros; None if its signs are others."""
        assert self.factor.upper is not None
        b: Vector = dpotrs(self.factor.upper, q[self.factor.support] - self.shift)[0]
        # Counting is numpy's cheapest way to ask about all, and NaN counts for nothing.
        same_sides = np.count_nonzero(b * self.sides > self.floor) == len(b)
        if same_sides and np.count_nonzero(np.abs(self.columns @ b - q) <= self.bound) == len(q):
            return b
        return None


class Solver:
    """Solves problems with one Q; remembers the factors of recent supports, within a fixed budget.

    An array of weights must not be changed while it is in use: it is looked at once.
    """

    _w: Matrix
    _free: Mask

    def __init__(self, Q: Quadratic) -> None:
        self.Q = Q
        self.budget = max(_REMEMBERED, Q.order**2 // 8)
        #: Numbers held on account of past solves: never more than the budget.
        self.held = 0
        self._factors: dict[bytes, _Factor] = {}
        self._clock = self._tidied = 0
        self._weights: Matrix | None = None
        self._last: Matrix | None = None
        self._last_factor: _Factor | None = None
        self._pattern: _Pattern | None = None

    def solve(self, rhs: Matrix, weights: Matrix, start: Matrix, tolerance: float = 1e-12) -> Matrix:
        """Minimise each column's problem. Q must be positive definite.

        Parameters
        ----------
        rhs, weights, start : (p, L) arrays; weights nonnegative
        tolerance : largest violation of the optimality conditions, relative to the column's largest |rhs|

        Returns
        -------
        (p, L) array of minimisers, in C order.
        """
        pattern = self._pattern
        if pattern is not None and start is self._last and weights is self._weights:
            b = pattern.solve(rhs[:, 0])
            if b is not None:
                self._last = np.zeros(rhs.shape)
                self._last[pattern.factor.support, 0] = b
                return self._last
        self._pattern = None
        self._clock += 1
        # In here problems are rows, so that each is contiguous.
        q = np.ascontiguousarray(rhs.T)
        if weights is not self._weights:  # they stay the same for a whole outer round
            self._weights, self._w = weights, np.ascontiguousarray(weights.T)
            self._free = self._w <= 0.0
        w = self._w
        signs = np.sign(np.ascontiguousarray(start.T))
        signs[self._free] = 0.0  # a free coefficient is always on the support and has no side
        free = self._free
        B, gradient, offenders = self._attempt(q, w, free, signs, tolerance)
        if not np.count_nonzero(offenders):
            return self._settled(B, signs)
        result, left = B, np.arange(len(B))
        fewest, patience = np.full(len(B), np.inf), np.full(len(B), _PATIENCE)
        for _ in range(_EXCHANGES):
            count = offenders.sum(axis=1)
            open_ = np.flatnonzero(count)
            if len(open_) == 0:
                return np.ascontiguousarray(result.T)
            if len(open_) < len(left):
                left, count, fewest, patience = left[open_], count[open_], fewest[open_], patience[open_]
                q, w, free, signs = q[open_], w[open_], free[open_], signs[open_]
                gradient, offenders = gradient[open_], offenders[open_]
            patience = np.where(count < fewest, _PATIENCE, patience - 1)
            fewest = np.minimum(count, fewest)
            _change_sides(signs, gradient, offenders, one_at_a_time=patience < 0)
            B, gradient, offenders = self._attempt(q, w, free, signs, tolerance)
            result[left] = B
        slack = _DESCENT_SLACK * _slack(q, w, tolerance)
        result[left] = _coordinate_descent(self.Q, q.T, w.T, start.T[left].T, slack).T
        return np.ascontiguousarray(result.T)

    def _settled(self, B: Matrix, signs: Matrix) -> Matrix:
        """A first attempt held. If it is a single column's second in a row, be prepared for a third."""
        result = np.ascontiguousarray(B.T)
        if len(B) == 1:
            factor = self._factor((signs[0] != 0.0) | self._free[0])
            if (
                factor is self._last_factor
                and factor.upper is not None
                and len(factor.support) * len(B[0]) <= self.budget
                and np.array_equal(np.sign(B[0]) * ~self._free[0], signs[0])  # no exact zero on the support
            ):
                self._pattern = _Pattern(self.Q, factor, self._w[0], signs[0])
            self._last_factor, self._last = factor, result
        return result

    def _attempt(self, q: Matrix, w: Matrix, free: Mask, signs: Matrix, tolerance: float) -> _Attempt:
        """Minimisers with these signs on the support and zero off it, their gradients, and who offends."""
        target = q - w * signs
        support = signs.astype(np.bool_)
        support |= free
        B = np.zeros(q.shape)
        for row in range(len(q)):
            factor = self._factor(support[row])
            b, t, on = B[row], target[row], factor.support
            if factor.upper is not None:
                b[on] = dpotrs(factor.upper, t[on])[0]
            elif len(on):
                b[on] = np.linalg.lstsq(self.Q.block(on), t[on], rcond=None)[0]
        gradient = self.Q.apply(B.T).T - q
        # An exact zero on the support is optimal too, and is no longer counted as nonzero by anyone.
        leaving = B * signs < 0.0
        offenders = leaving | ((np.abs(gradient) > w) & ~support)
        if np.count_nonzero(offenders):  # seldom: only now is the allowance for rounding worth its while
            slack = _slack(q, w, tolerance)[:, None]
            offenders = leaving | ((np.abs(gradient) > w + slack) & ~support)
            for on in support[offenders.any(axis=1)]:
                self._drop(on)  # it hardly ever comes back, and the next one needs the room
        return B, gradient, offenders

    def _factor(self, on: Mask) -> _Factor:
        """Of Q on this support."""
        key = on.tobytes()
        factor = self._factors.get(key)
        if factor is None:
            factor = _Factor(self.Q, on.nonzero()[0])
            if self.held + factor.size > self.budget:
                self._tidy()
            if self.held + factor.size <= self.budget:
                self._factors[key] = factor
                self.held += factor.size
        factor.used = self._clock
        return factor

    def _drop(self, on: Mask) -> None:
        factor = self._factors.pop(on.tobytes(), None)
        if factor is not None:
            self.held -= factor.size

    def _tidy(self) -> None:
        """Once in a solve: keep only what this one and the last one used.

        Every column comes by in every solve: to drop the oldest would be to drop each just before its turn.
        """
        if self._tidied < self._clock:
            self._tidied = self._clock
            self._factors = {key: f for key, f in self._factors.items() if f.used >= self._clock - 1}
            self.held = sum(f.size for f in self._factors.values())


def _change_sides(signs: Matrix, gradient: Matrix, offenders: Mask, one_at_a_time: Mask) -> None:
    """Offenders leave the support or enter it, in place; by Murty's rule only a row's last one."""
    if one_at_a_time.any():
        places = np.arange(offenders.shape[1])
        last = places[-1] - np.argmax(offenders[:, ::-1], axis=1)
        offenders = offenders & (~one_at_a_time[:, None] | (places == last[:, None]))
    signs[offenders] = np.where(signs[offenders] != 0.0, 0.0, -np.sign(gradient[offenders]))


def _slack(q: Matrix, w: Matrix, tolerance: float) -> Vector:
    """What rounding may add to a gradient, for each row."""
    slack: Vector = tolerance * np.maximum(np.abs(q), w).max(axis=1) + 1e-300
    return slack


def _coordinate_descent(Q: Quadratic, rhs: Matrix, weights: Matrix, start: Matrix, slack: Vector) -> Matrix:
    """The slow and sure way, all columns at a time."""
    B = start.copy()
    rows = np.arange(len(B))
    H = Q.block(rows)
    gradient = H @ B - rhs
    for _ in range(_SWEEPS):
        for i in rows:
            z = B[i] - gradient[i] / H[i, i]
            threshold = weights[i] / H[i, i]
            step = z - np.clip(z, -threshold, threshold) - B[i]
            if step.any():
                B[i] += step
                gradient += H[:, i, None] * step
        if np.all(optimality_violation(gradient, B, weights).max(axis=0) <= slack):
            break
    return B
