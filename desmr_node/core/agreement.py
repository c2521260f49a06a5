"""What the members decide together: pure functions from network sums to decisions.

Every node holds the same totals and runs the same functions on them, so all come to the same scaling, the
same density, the same lambda and the same verdict on each outer round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from desmr_node.core import plausible, tuning
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.contributions import RESPONSE_OCTAVES, Ballot, Closing, Moments, Report, Spreads, Start
from desmr_node.core.density import Bins, binned_density, paper_bandwidth, robust_scale, scale_bandwidth
from desmr_node.core.graph import Graph, penalty_parameter
from desmr_node.core.quadratic import Dense, Quadratic, Scaled
from desmr_node.core.scaling import Scaling
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DataError

#: Bins for the pilots' residuals, in units of the response, before anything is known of them.
FIRST_BINS = Bins(-28, 36)
#: Ridge of the pooled metric, relative to the mean variance of a column: duplicated columns stay invertible.
_METRIC_RIDGE = 0.01
#: A rejected step doubles the curvature of the surrogate. A step that is still uphill at a quarter of its
#: length is taken: what rises then is not the loss but the price of consensus (members that each held one of
#: two twin columns, say), and waiting would be for ever. `conclude` still guards the end.
_MOST_DAMPING = 4.0
#: By how much an objective may rise before the step is rejected, in units of its own sampling error, and
#: more per standard error by which neighbours disagree: an inner loop that has not ended is not a bad step.
_RISE, _RISE_PER_DISAGREEMENT = 0.5, 20.0
_DISAGREEMENT_PRICE = 4.0
#: By how much a fit among possible liars may be worse than its start: as if every coefficient were three
#: standard errors away.
_CHANCE = 9.0
_CREEPING = 0.02


@dataclass(frozen=True, slots=True)
class Ground:
    """What the network agreed on before anything was fitted."""

    size: int
    connectivity: float
    total_rows: float
    scaling: Scaling
    #: For how many rows a member counts at most; ``total_rows`` are those that count.
    most_rows: float = np.inf

    def row_weight(self, rows: int, spec: FitSpec) -> float:
        """The weight of each of a member's rows: all rows alike, or all members alike."""
        if spec.weights == "nodes":
            return 1.0 / (self.size * rows)
        weight = 1.0 / self.total_rows
        return weight if rows <= self.most_rows else weight * self.most_rows / rows


def centre(moments: Moments, spec: FitSpec) -> Vector:
    """Column means to subtract: with an intercept they only move it; without one they change the model."""
    if spec.intercept and spec.scaling == "network":
        return moments.sums / moments.rows
    return np.zeros_like(moments.sums)


def survey(
    moments: Moments, spreads: Spreads, graph: Graph, spec: FitSpec, declared: Sequence[int] = ()
) -> Ground:
    """Agree on the scaling; refuse a column nobody has. ``declared``: every member's rows, if known."""
    total = float(moments.rows)
    middle = centre(moments, spec)
    empty = np.flatnonzero((spreads.squares == 0) & (middle == 0))
    if len(empty):
        which = ", ".join(map(str, empty[:8])) + (", ..." if len(empty) > 8 else "")
        raise DataError(
            f"column {which} is zero in every row of every node and can have no coefficient: remove it"
        )
    if spec.scaling == "none":
        spread = np.ones_like(middle)
    else:
        spread = np.sqrt(spreads.squares / total)
        # Constant on the whole network, up to rounding: the intercept's twin. Any spread of its own size will
        # do, since what is left of it after centring is rounding.
        constant = spread <= 1e-12 * np.abs(middle)
        spread = np.where(constant, np.abs(middle), spread)
    most = plausible.largest_count(declared) if declared else np.inf
    return Ground(
        graph.size,
        graph.connectivity(),
        float(np.minimum(declared, most).sum()) if declared else total,
        Scaling(middle, spread, _response_unit(moments), spec.intercept),
        most,
    )


def _response_unit(moments: Moments) -> float:
    """A power of two near the median |y - local median|: dividing by it rounds nothing."""
    octaves = moments.response_octaves.copy()
    if octaves[0] >= octaves.sum() / 2:
        octaves[0] = 0.0  # most rows do not deviate at all: let the others speak
    if not octaves.any():
        return 1.0
    code = int(np.searchsorted(np.cumsum(octaves), octaves.sum() / 2))
    return float(np.ldexp(1.0, code - RESPONSE_OCTAVES // 2))


def metric(start: Start, ground: Ground, spec: FitSpec) -> Quadratic:
    """The norm in which neighbours must agree, of the size of one member's curvature."""
    order = ground.scaling.order
    mean_variance = float(start.variances.mean())
    if spec.metric == "identity":
        return Scaled(mean_variance / ground.size, order)
    return Dense((start.gram + _METRIC_RIDGE * mean_variance * np.eye(order)) / ground.size)


def pull(graph: Graph, spec: FitSpec) -> float:
    """tau, if it is left to us. In a box that binds, vectors that lag go in circles at the full value."""
    if spec.tau != "auto":
        return spec.tau
    tau = penalty_parameter(graph, spec.max_lag)
    if spec.strength is not None and spec.max_lag:
        return min(tau, penalty_parameter(graph) / 2.0)
    return tau


@dataclass(frozen=True, slots=True)
class Plan:
    """What the members have agreed to do in the next outer round.

    ``lambdas`` are the candidates and ``carry`` the column of the last round each continues (None in the
    first). ``density`` and ``bandwidth`` make the pseudo-responses (bandwidth 0: the paper's, unsmoothed),
    ``damping`` >= 1 shortens the step, ``bins`` sort the residuals for the next density. ``loss`` (None
    while there is no settled fit), ``disagreement`` and ``moved`` are those of the last accepted round.
    """

    outer: int
    lambdas: Vector
    carry: tuple[int, ...] | None
    density: float
    bandwidth: float
    damping: float
    bins: Bins
    loss: float | None
    disagreement: float
    moved: float

    def levels(self, spec: FitSpec) -> Vector:
        """Penalty levels for least squares: the check loss has curvature 2 f, which is divided out."""
        return self.lambdas / self.curvature(spec)

    def noise(self, spec: FitSpec) -> float:
        """Standard deviation of a pseudo-response of the check loss, sqrt(q (1 - q)) / f."""
        return float(np.sqrt(spec.quantile * (1.0 - spec.quantile)) / self.density)

    def curvature(self, spec: FitSpec) -> float:
        """The loss's second derivative, in units of that of least squares."""
        return 1.0 if spec.loss == "squared" else 2.0 * self.density


def first_plan(start: Start, ground: Ground, spec: FitSpec) -> Plan:
    """The first outer round: density from the pilots' residuals, lambdas from theory."""
    density, bandwidth, bins = _density(start.counts, FIRST_BINS, 0, ground, spec)
    if spec.lambda_ != "bic":
        lambdas = np.array([spec.lambda_ if spec.loss == "median" else spec.lambda_ / ground.scaling.unit])
    elif spec.loss == "median":
        lambdas = tuning.check_grid(
            ground.total_rows, len(ground.scaling.spread), spec.quantile, spec.penalty, spec.lambdas
        ) * np.sqrt(start.variances.mean())
    else:
        lambdas = tuning.squares_grid(start.linear[ground.scaling.penalised > 0], spec.lambdas)
    return Plan(0, lambdas, None, density, bandwidth, 1.0, bins, None, 0.0, np.inf)


def _density(
    counts: Vector, bins: Bins, outer: int, ground: Ground, spec: FitSpec
) -> tuple[float, float, Bins]:
    """Density of the residuals at zero, bandwidth of the pseudo-responses, bins for the next residuals."""
    if spec.loss == "squared":
        return 1.0, 0.0, bins
    scale = robust_scale(bins, counts)
    if spec.bandwidth == "paper" and spec.sparsity is not None:
        # The paper's rule is for noise of unit scale, in the data's own units.
        rows = ground.total_rows / ground.size
        h = paper_bandwidth(outer, spec.sparsity, rows, ground.size) / ground.scaling.unit
    else:
        h = scale_bandwidth(scale, ground.total_rows)
    density = binned_density(bins, counts, h, scale)
    return density, (h if spec.smoothing == "kernel" else 0.0), Bins.around(scale)


Outcome = Literal["continue", "converged", "rejected"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the totals of an outer round mean: which lambda, whether to keep the step, what comes next.

    Lengths are in standard errors of the fit, the unit of `FitSpec.tolerance`.
    """

    outcome: Outcome
    chosen: int
    lambda_: float
    objective: float
    nonzeros: int
    moved: float
    spread: float
    changed: float
    following: Plan


def judge(plan: Plan, report: Report, ground: Ground, spec: FitSpec) -> Verdict:
    """Choose lambda, accept or reject the step, say whether the fit has converged, plan the next round."""
    support = majority(report.votes, ground.size)
    chosen = _choose(plan, report, support, ground, spec)
    nonzeros = int(np.count_nonzero(support[:, chosen]))
    noise = float(_noise(plan, report, spec)[chosen])
    standard_error = max(noise * np.sqrt(max(nonzeros, 1) / ground.total_rows), 1e-300)
    moved, disagreement, changed, along_edges = (
        float(np.sqrt(max(lengths[chosen], 0.0)) / standard_error)
        for lengths in (report.moved, report.disagreement, report.changed, report.edges)
    )
    # Sum_j |b_j - mean|^2 <= sum over edges |b_j - b_k|^2 / connectivity: a slow drift along a path, small on
    # every edge, is seen for what it is.
    spread = along_edges / np.sqrt(ground.connectivity)
    loss = float(report.check[chosen] if spec.loss == "median" else report.squares[chosen] / 2.0)
    price = plan.curvature(spec) / ground.size
    objective = loss + price * float(report.penalty[chosen])
    lambdas, carry = _candidates(plan.lambdas, chosen, max(moved, 10.0 * disagreement) <= 1.0)
    density, bandwidth, bins = _density(report.counts[:, chosen], plan.bins, plan.outer + 1, ground, spec)
    following = Plan(
        outer=plan.outer + 1,
        lambdas=lambdas,
        carry=carry,
        density=density,
        bandwidth=bandwidth,
        damping=max(1.0, plan.damping / 2.0),
        bins=bins,
        loss=loss,
        disagreement=disagreement,
        moved=moved,
    )
    outcome: Outcome = "continue"
    before = np.inf if plan.loss is None else plan.loss + price * float(report.penalty_before[chosen])
    allowed = _RISE + _RISE_PER_DISAGREEMENT * max(plan.disagreement, disagreement)
    risen = objective > before + allowed * standard_error**2 * plan.curvature(spec) / 2.0
    if not np.isfinite(objective) or (risen and plan.damping < _MOST_DAMPING):
        outcome = "rejected"
        again = None if plan.carry is None else tuple(range(len(plan.lambdas)))
        following = replace(plan, outer=plan.outer + 1, carry=again, damping=2.0 * plan.damping)
    elif _arrived(_ahead(moved, plan.moved), moved, spread, changed, spec):
        outcome = "converged"
    return Verdict(
        outcome,
        chosen,
        float(plan.lambdas[chosen]),
        objective,
        nonzeros,
        moved,
        spread,
        changed,
        following,
    )


def _arrived(ahead: float, moved: float, spread: float, changed: float, spec: FitSpec) -> bool:
    """Whether what is left is below the tolerance, as far as the lengths of steps can tell.

    In the pooled metric all directions contract alike. In the other forms an ill-conditioned direction creeps
    long after the rest has settled, and only much shorter steps show how slowly.
    """
    creeps = spec.update == "linearised" or spec.metric == "identity"
    step = moved / _CREEPING if creeps else moved
    return max(ahead, step, spread, changed) <= spec.tolerance


def _ahead(moved: float, before: float) -> float:
    """How far the fit would still go if its steps kept shrinking as they did last: a geometric series.

    Small steps are not the end if each is nearly as long as the last.
    """
    if not np.isfinite(before):
        return 100.0 * moved  # nothing to compare with: only standing still counts
    ratio = min(moved / max(before, 1e-300), 0.99)
    return moved * ratio / (1.0 - ratio)


def _choose(plan: Plan, report: Report, support: Mask, ground: Ground, spec: FitSpec) -> int:
    if len(plan.lambdas) == 1:
        return 0
    score = tuning.scores(
        spec.score if spec.loss == "median" else "bic-squares",
        check=report.check,
        squares=report.squares,
        df=np.count_nonzero(support, axis=0),
        density=plan.density,
        quantile=spec.quantile,
        total_rows=ground.total_rows,
        columns=len(ground.scaling.spread),
    )
    # A candidate on which members still disagree would otherwise be judged by a model that nobody will hold:
    # let it pay what the disagreement amounts to as a chi-squared statistic, with a margin.
    unsettled = report.disagreement * ground.total_rows / np.square(_noise(plan, report, spec))
    return int(np.argmin(score + _DISAGREEMENT_PRICE * unsettled))


def _noise(plan: Plan, report: Report, spec: FitSpec) -> Vector:
    """Standard deviation of a (pseudo-)response, per candidate: sigma, or sqrt(q (1-q)) / f."""
    if spec.loss == "squared":
        return np.sqrt(np.maximum(report.squares, 1e-300))
    return np.full_like(report.check, plan.noise(spec))


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
    """The network's support: what at least half of the members hold to be nonzero."""
    return votes >= size / 2.0


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a fit: the network's support, the objective of the members' mean there, and of the start.

    If the fit is not at least as good as that mean (or no step was ever accepted), the mean is the result.
    """

    support: Mask
    objective: float
    start_objective: float
    keep_fit: bool


def conclude(
    ballot: Ballot,
    closing: Closing,
    penalty: float,
    start_penalty: float,
    *,
    settled: Plan | None,
    ground: Ground,
    spec: FitSpec,
) -> Result:
    """Decide between the fit and the start; penalties of the members' mean and of the start.

    ``settled`` is the plan of the last accepted round. The start is a mean, which a liar can move as it
    likes: among possible liars the fit has to be worse by more than chance, or it would be in their hands.
    """
    objective = float(closing.loss) + penalty
    start_objective = float(closing.loss_at_start) + start_penalty
    support = majority(ballot.votes, ground.size)
    allowed = 0.0
    if settled is not None and spec.strength is not None:
        df = max(int(np.count_nonzero(support)), 1)
        chance = settled.noise(spec) ** 2 * df / ground.total_rows * settled.curvature(spec) / 2.0
        allowed = _CHANCE * chance
    keep = settled is not None and objective <= start_objective + allowed
    return Result(support, objective if keep else start_objective, start_objective, keep)
