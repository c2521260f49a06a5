"""What the members decide together: pure functions from network sums to decisions.

Every node holds the same totals and runs the same functions on them, so all come to the same scaling, the
same density, the same lambda and the same verdict on each outer round. A contribution is what one member
adds to a sum; only totals are ever read.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import numpy as np

from desmr_node.core import tuning
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.density import Bins, binned_density, paper_bandwidth, robust_scale, scale_bandwidth
from desmr_node.core.quadratic import Dense, Quadratic, Scaled
from desmr_node.core.scaling import Scaling
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DataError

#: |y - its local median|, by octave: 2**-128 to 2**128, zeros in the first bin.
_RESPONSE_OCTAVES = 257
#: Residuals of the pilots relative to the response's unit, before anything is known of them.
_FIRST_BINS = Bins(-28, 36)
#: Ridge of the pooled metric, relative to the mean variance of a column: duplicated columns stay invertible.
_METRIC_RIDGE = 0.01
#: A rejected step doubles the curvature; beyond this the step is too short to matter.
_MOST_DAMPING = 64.0
#: An objective counts as risen only beyond this part of what its own sampling error amounts to: below that
#: lies what the lack of consensus and the discreteness of the check loss explain.
_RISE = 0.5


class Contribution:
    """Arrays that are summed over the network field by field, in ascending order of the nodes."""

    __slots__ = ()

    @classmethod
    def total(cls, parts: list[Self]) -> Self:
        """The network sum."""
        sums = {f.name: np.sum([getattr(part, f.name) for part in parts], axis=0) for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**sums)

    def numbers(self) -> int:
        """How many numbers one member sends."""
        return sum(int(np.size(getattr(self, f.name))) for f in fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Moments(Contribution):
    """First look at the rows."""

    rows: Vector
    sums: Vector
    response_octaves: Vector

    @staticmethod
    def octaves(deviations: Vector) -> Vector:
        """Histogram of |y - local median| by powers of two."""
        _, exponent = np.frexp(deviations)
        half = _RESPONSE_OCTAVES // 2
        code = np.where(deviations > 0, np.clip(exponent + half, 1, _RESPONSE_OCTAVES - 1), 0)
        return np.bincount(code, minlength=_RESPONSE_OCTAVES).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Spreads(Contribution):
    """Sums of squares about the agreed centre, and about zero to tell a constant column from an empty one."""

    centred: Vector


@dataclass(frozen=True, slots=True)
class Start(Contribution):
    """Pooled metric, mean of the pilots, histogram of |pilot residual|, linear term of least squares."""

    gram: Matrix
    pilot: Vector
    counts: Vector
    linear: Vector


@dataclass(frozen=True, slots=True)
class Report(Contribution):
    """What an outer round did, for each of the L candidates.

    Means over rows (`check`, `squares`), sums over nodes (`votes` for each coefficient being nonzero, penalty before and after at the new
    level), squared lengths in the norm of the fitted values (`moved` since the last settled fit,
    `disagreement` with the neighbours' mean, `changed` in the last ADMM round), residual histograms.
    """

    check: Vector
    squares: Vector
    votes: Matrix
    penalty: Vector
    penalty_before: Vector
    moved: Vector
    disagreement: Vector
    changed: Vector
    counts: Matrix


@dataclass(frozen=True, slots=True)
class Closing(Contribution):
    """Votes for each coefficient being nonzero, and the objective of the result and of the mean pilot."""

    votes: Vector
    loss: Vector
    penalty: Vector
    loss_of_start: Vector


@dataclass(frozen=True, slots=True)
class Ground:
    """What the network agreed on before the first fit."""

    size: int
    total_rows: float
    scaling: Scaling

    def row_weight(self, rows: int, spec: FitSpec) -> float:
        """The weight of each of a member's rows: all rows alike, or all members alike."""
        return 1.0 / self.total_rows if spec.weights == "rows" else 1.0 / (self.size * rows)


def centre(moments: Moments, spec: FitSpec) -> Vector:
    """Column means to subtract: with an intercept they only move it; without one they would change the model."""
    if spec.intercept and spec.scaling == "network":
        return moments.sums / moments.rows
    return np.zeros_like(moments.sums)


def survey(moments: Moments, spreads: Spreads, size: int, spec: FitSpec) -> Ground:
    """Agree on the scaling; refuse a column nobody has."""
    total = float(moments.rows)
    middle = centre(moments, spec)
    empty = np.flatnonzero((spreads.centred == 0) & (middle == 0))
    if len(empty):
        which = ", ".join(map(str, empty[:8])) + (", ..." if len(empty) > 8 else "")
        raise DataError(
            f"column {which} is zero in every row of every node: remove it, it can have no coefficient"
        )
    spread = np.sqrt(spreads.centred / total)
    # A column that is constant on the whole network is the intercept's twin: leave it at zero spread's stand-in.
    spread = np.where(spread > 1e-12 * np.abs(middle), spread, np.maximum(np.abs(middle), 1e-300))
    if spec.scaling == "none":
        spread = np.ones_like(spread)
    return Ground(size, total, Scaling(middle, spread, _response_unit(moments), spec.intercept))


def _response_unit(moments: Moments) -> float:
    """A power of two near the median |y - local median|: dividing by it rounds nothing."""
    octaves = moments.response_octaves
    positive = octaves.copy()
    positive[0] = 0.0
    if not positive.any():
        return 1.0
    # Half of all rows, or of those that deviate at all if fewer than half do.
    source = octaves if octaves[0] < octaves.sum() / 2 else positive
    code = int(np.searchsorted(np.cumsum(source), source.sum() / 2))
    return float(np.ldexp(1.0, code - _RESPONSE_OCTAVES // 2))


def first_bins() -> Bins:
    """Bins for the pilots' residuals."""
    return _FIRST_BINS


def metric(start: Start, ground: Ground, spec: FitSpec) -> Quadratic:
    """The norm in which neighbours must agree, of the size of one member's curvature."""
    order = ground.scaling.order
    if spec.metric == "pooled":
        ridge = _METRIC_RIDGE * float(np.trace(start.gram)) / order
        return Dense((start.gram + ridge * np.eye(order)) / ground.size)
    mean_variance = 1.0 if spec.scaling == "network" else float(start.gram) / order
    return Scaled(mean_variance / ground.size, order)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the members have agreed to do in the next outer round."""

    outer: int
    lambdas: Vector
    density: float
    scale: float
    damping: float
    bins: Bins
    bandwidth: float = 0.0
    carry: tuple[int, ...] | None = None
    loss: float | None = None
    disagreement: float = 0.0

    def levels(self, spec: FitSpec) -> Vector:
        """Penalty levels for least squares: the check loss has curvature 2 f, divided out here."""
        if spec.loss == "squared":
            return self.lambdas
        return self.lambdas / (2.0 * self.density)

    def to_check_scale(self, spec: FitSpec) -> float:
        """What a penalty value of the surrogate must be multiplied by to stand beside the loss."""
        return 1.0 if spec.loss == "squared" else 2.0 * self.density


def first_plan(start: Start, ground: Ground, spec: FitSpec) -> Plan:
    """The first outer round: density from the pilots' residuals, lambdas from theory."""
    scale, density, h = _density(start.counts, _FIRST_BINS, 0, ground, spec)
    if spec.lambda_ != "bic":
        fixed = spec.lambda_ if spec.loss == "median" else spec.lambda_ / ground.scaling.unit
        lambdas = np.array([fixed])
    elif spec.loss == "median":
        columns = len(ground.scaling.spread)
        lambdas = tuning.check_grid(ground.total_rows, columns, spec.quantile, spec.lambdas, 2.0 if spec.penalty=='l1' else 4.0)
    else:
        largest = float(np.max(np.abs(start.linear * ground.scaling.penalised)))
        lambdas = tuning.squares_grid(max(largest, 1e-300), spec.lambdas)
    return Plan(0, lambdas, density, scale, 1.0, Bins.around(scale), h if spec.smoothing=='kernel' else 0.0)


def _density(counts: Vector, bins: Bins, outer: int, ground: Ground, spec: FitSpec) -> tuple[float, float, float]:
    """Agreed scale and density of the residuals."""
    if spec.loss == "squared":
        return 1.0, 1.0, 0.0
    scale = robust_scale(bins, counts)
    if spec.bandwidth == "paper" and spec.sparsity is not None:
        # The rule is for noise of unit scale in the data's own units.
        h = paper_bandwidth(outer, spec.sparsity, ground.total_rows / ground.size, ground.size) / ground.scaling.unit
    else:
        h = scale_bandwidth(scale, ground.total_rows)
    return scale, binned_density(bins, counts, h, scale), h


Outcome = Literal["continue", "converged", "rejected"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the totals of an outer round mean: which lambda, whether to keep the step, and what comes next.

    Lengths are in standard errors of the fit, the unit of `FitSpec.tolerance`.
    """

    outcome: Outcome
    chosen: int
    lambda_: float
    objective: float
    moved: float
    disagreement: float
    changed: float
    following: Plan


def judge(plan: Plan, report: Report, ground: Ground, spec: FitSpec) -> Verdict:
    """Choose lambda, accept or reject the step, say whether the fit has converged, plan the next round."""
    m, N = ground.size, ground.total_rows
    loss = report.check if spec.loss == "median" else report.squares / 2.0
    chosen = _choose(plan, report, ground, spec)
    scale_up = plan.to_check_scale(spec) / m
    objective = float(loss[chosen] + scale_up * report.penalty[chosen])
    standard_error = _standard_error(plan, report, chosen, ground, spec)
    moved, disagreement, changed = (
        float(np.sqrt(length[chosen])) / standard_error
        for length in (report.moved, report.disagreement, report.changed)
    )
    scale, density, h = _density(report.counts[:, chosen], plan.bins, plan.outer + 1, ground, spec)
    lambdas, carry = _candidates(plan.lambdas, chosen, max(moved, 10.0 * disagreement) <= 1.0)
    following = replace(
        plan,
        outer=plan.outer + 1,
        lambdas=lambdas,
        carry=carry,
        density=density,
        scale=scale,
        damping=max(1.0, plan.damping / 2.0),
        bins=Bins.around(scale),
        bandwidth=h if spec.smoothing=='kernel' else 0.0,
        loss=float(loss[chosen]),
        disagreement=disagreement,
    )
    outcome: Outcome = "continue"
    if plan.loss is not None:
        before = plan.loss + scale_up * float(report.penalty_before[chosen])
        noise = standard_error**2 * (plan.density if spec.loss == "median" else 0.5)
        allowed = _RISE * (1.0 + 40.0 * max(plan.disagreement, disagreement)) * noise
        if not objective <= before + allowed:
            damping = min(plan.damping * 2.0, _MOST_DAMPING)
            following = replace(plan, outer=plan.outer + 1, damping=damping, carry=None)
            outcome = "rejected"
    if outcome == "continue" and max(moved, disagreement, changed) <= spec.tolerance:
        outcome = "converged"
    return Verdict(
        outcome, chosen, float(plan.lambdas[chosen]), objective, moved, disagreement, changed, following
    )


def _choose(plan: Plan, report: Report, ground: Ground, spec: FitSpec) -> int:
    if len(plan.lambdas) == 1:
        return 0
    score = tuning.scores(
        spec.score if spec.loss == "median" else "bic-squares",
        check=report.check,
        squares=report.squares,
        df=np.count_nonzero(majority(report.votes, ground.size), axis=0),
        density=plan.density,
        quantile=spec.quantile,
        total_rows=ground.total_rows,
        columns=len(ground.scaling.spread),
    )
    return int(np.argmin(score))


def _standard_error(plan: Plan, report: Report, chosen: int, ground: Ground, spec: FitSpec) -> float:
    """Root mean square standard error of a fitted value: sqrt(df q(1-q) / N) / f, or sigma sqrt(df / N)."""
    df = max(1, np.count_nonzero(majority(report.votes[:, chosen], ground.size)))
    if spec.loss == "squared":
        noise = np.sqrt(report.squares[chosen])
    else:
        noise = np.sqrt(spec.quantile * (1.0 - spec.quantile)) / plan.density
    return max(float(noise * np.sqrt(df / ground.total_rows)), 1e-300)


def _candidates(lambdas: Vector, chosen: int, near: bool) -> tuple[Vector, tuple[int, ...]]:
    """The next round's lambdas, and the column of this round that each continues.

    Near the end only the chosen one goes on: messages shrink and the choice can no longer flicker. If the
    choice fell on the lower end, the best may lie beyond: the grid moves down by half its length.
    """
    count = len(lambdas)
    if near:
        return lambdas[[chosen]], (chosen,)
    if count > 1 and chosen == count - 1:
        move = count // 2
        ratio = (lambdas[-1] / lambdas[0]) ** (1.0 / (count - 1))
        return lambdas * ratio**move, tuple(min(i + move, count - 1) for i in range(count))
    return lambdas, tuple(range(count))


def majority(votes: Matrix, size: int) -> Mask:
    """The network's support: what more than half of the members hold to be nonzero."""
    return votes > size / 2.0
