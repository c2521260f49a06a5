"""One member's share of a fit: everything it computes from its own rows, and nothing about a network.

A driver (the plain loop in `reference`, or a node's worker) carries contributions out to be summed over the
network, brings agreed quantities back in, and passes neighbours' coefficient vectors to `step`.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from desmr_node.core import surrogate
from desmr_node.core.admm import Consensus, LocalObjective
from desmr_node.core.agreement import Closing, Ground, Moments, Plan, Report, Spreads, Start, Verdict, first_bins
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.median import pilot
from desmr_node.core.penalties import penalty
from desmr_node.core.quadratic import Dense, Quadratic
from desmr_node.core.rows import RowSource
from desmr_node.core.scaling import ScaledRows
from desmr_node.core.spec import FitSpec

#: Where a pilot would take long it is fitted to a sample: it only has to be near, not to be the answer.
PILOT_ROWS = 50_000
#: Residuals of all lambdas are held for at most this many rows at a time.
_PIECE = 4_096


class Member:
    """A member's rows and the state of its fit.

    `settled` (p,) is its coefficient vector b_j after the last accepted outer round; `B` (p, L) the vectors
    of the current round, one per candidate lambda, and what its neighbours receive; `duals` the u_jk (p, L).
    """

    rows: ScaledRows
    ground: Ground
    weight: float
    quadratic: Quadratic
    consensus: Consensus
    objective: LocalObjective
    plan: Plan
    start: Vector
    settled: Vector
    kept: tuple[Matrix, dict[int, Matrix]]
    B: Matrix
    duals: dict[int, Matrix]

    def __init__(
        self, source: RowSource, spec: FitSpec, neighbours: tuple[int, ...], rng: np.random.Generator
    ) -> None:
        self.source, self.spec, self.neighbours, self.rng = source, spec, neighbours, rng
        self.penalty = penalty(spec.penalty)

    # -- before the first round ------------------------------------------------------------------------

    def moments(self) -> Moments:
        """Row count, column sums, octaves of the response."""
        sums = np.zeros(self.source.columns)
        responses = []
        for X, y in self.source.blocks():
            sums += X.sum(axis=0)
            responses.append(y)
        y = np.concatenate(responses)
        return Moments(np.array(float(self.source.count)), sums, Moments.octaves(np.abs(y - np.median(y))))

    def spreads(self, centre: Vector) -> Spreads:
        """Sums of squares about the agreed centre."""
        total = np.zeros(self.source.columns)
        for X, _ in self.source.blocks():
            total += np.square(X - centre).sum(axis=0)
        return Spreads(total)

    def prepare(self, ground: Ground) -> Start:
        """Scale the rows, form the quadratic, fit the pilot."""
        self.ground = ground
        self.rows = ScaledRows(self.source, ground.scaling)
        self.weight = ground.row_weight(self.rows.count, self.spec)
        order = ground.scaling.order
        self.quadratic = surrogate.gram(self.rows.blocks(), self.rows.count, order, self.weight)
        bins = first_bins()
        linear = np.zeros(order)
        if self.spec.loss == "squared":
            self.settled = np.zeros(order)
            linear = surrogate.linear_term_of_squares(self.rows.blocks(), order, self.weight)
            counts = np.zeros(bins.size)
        else:
            Z, t = self.rows.sample(PILOT_ROWS, self.rng)
            fit = pilot(Z, t, self.spec.quantile, weights=ground.scaling.penalised, rng=self.rng)
            self.settled = fit.coef
            counts = np.zeros(bins.size)
            for Z, t in self.rows.blocks():
                counts += bins.count(np.abs(t - Z @ fit.coef)[:, None])[:, 0]
            counts *= self.weight * ground.total_rows
        self.linear = linear
        gram = self.quadratic.apply(np.eye(order)) if self.spec.metric == "pooled" else np.sum(self.quadratic.diagonal())
        return Start(gram, self.weight * self.rows.count * self.settled, counts, linear)

    def connect(self, metric: Quadratic, tau: float, start: Vector) -> None:
        """Fix the consensus step; remember the network's common start."""
        self.start = start
        self.consensus = Consensus.build(self.quadratic, metric, tau, len(self.neighbours), self.spec.update)
        self.kept = self.settled[:, None], {k: np.zeros((self.quadratic.order, 1)) for k in self.neighbours}

    # -- an outer round ----------------------------------------------------------------------------------

    def open(self, plan: Plan) -> None:
        """New pseudo-responses at the settled fit; one column per candidate lambda."""
        self.plan = plan
        order, count = self.quadratic.order, len(plan.lambdas)
        if self.spec.loss == "median":
            self.linear = surrogate.linear_term(
                self.rows.blocks(), self.settled, plan.density * plan.damping, self.spec.quantile, self.weight, plan.bandwidth
            )
        levels, weights = plan.levels(self.spec), self.ground.scaling.penalised
        share = 1.0 / (self.ground.size * plan.damping)
        slopes = share * weights[:, None] * self.penalty.slope(self.settled[:, None], levels[None, :])
        self.objective = LocalObjective(self.linear, levels, weights, share, self.penalty, slopes)
        columns = list(plan.carry) if plan.carry is not None else [*range(self.kept[0].shape[1])] if self.kept[0].shape[1] == count else [0] * count
        self.B = self.kept[0][:, columns]
        self.duals = {k: u[:, columns] for k, u in self.kept[1].items()}
        self.previous = self.B
        self.neighbour_mean = self.B

    def step(self, received: Mapping[int, Matrix]) -> None:
        """One ADMM round from the neighbours' vectors of the same round."""
        neighbour_sum = np.zeros_like(self.B)
        dual_sum = np.zeros_like(self.B)
        for k in self.neighbours:
            neighbour_sum += received[k]
            self.duals[k] += self.consensus.tau * (self.B - received[k])
            dual_sum += self.duals[k]
        self.dual_sum = dual_sum
        self.previous = self.B
        self.neighbour_mean = neighbour_sum / len(self.neighbours) if self.neighbours else self.B
        self.B = self.consensus.step(self.B, neighbour_sum, dual_sum, self.objective)

    def report(self) -> Report:
        """What this round did, for every candidate."""
        spec, plan = self.spec, self.plan
        count = self.B.shape[1]
        check, squares, counts = np.zeros(count), np.zeros(count), np.zeros((plan.bins.size, count))
        target_density = plan.density * plan.damping
        for Z, t in self._pieces():
            fitted = Z @ self.B
            residuals = t[:, None] - fitted
            if spec.loss == "median":
                check += surrogate.check_loss(residuals, spec.quantile).sum(axis=0)
                counts += plan.bins.count(np.abs(residuals))
                if spec.score == "bic-squares":
                    target = surrogate.pseudo_responses(Z @ self.settled, t, target_density, spec.quantile)
                    residuals = target[:, None] - fitted
                    squares += np.square(residuals).sum(axis=0)
            else:
                squares += np.square(residuals).sum(axis=0)
        # Members that still disagree each fit their own rows better than the consensus will. The dual forces
        # price that in: to first order, loss plus force times coefficients is the loss at the consensus, and
        # since the forces of all members add up to zero, it is the loss itself once they agree.
        tilt = np.sum(self.consensus.metric.apply(self.dual_sum) * self.B, axis=0)
        check = self.weight * check + 2.0 * target_density * tilt
        squares = self.weight * squares + 2.0 * tilt
        level = plan.levels(spec)[None, :]
        weights = self.ground.scaling.penalised[:, None]
        metric = self.consensus.metric
        gap = self.previous - self.neighbour_mean
        changed = self.B - self.previous
        moved = self.B - self.settled[:, None]
        return Report(
            check=check,
            squares=squares,
            votes=(self.B != 0).astype(np.float64),
            penalty=np.sum(weights * self.penalty.value(self.B, level), axis=0),
            penalty_before=np.sum(weights * self.penalty.value(self.settled[:, None], level), axis=0),
            moved=np.sum(moved * self.quadratic.apply(moved), axis=0),
            disagreement=np.sum(gap * metric.apply(gap), axis=0),
            changed=np.sum(changed * metric.apply(changed), axis=0),
            counts=counts * (self.weight * self.ground.total_rows),
        )

    def _pieces(self) -> Iterator[tuple[Matrix, Vector]]:
        for Z, t in self.rows.blocks():
            for start in range(0, len(t), _PIECE):
                yield Z[start : start + _PIECE], t[start : start + _PIECE]

    def settle(self, verdict: Verdict) -> None:
        """Keep the chosen column, or fall back to the fit before this round."""
        if verdict.outcome == "rejected":
            return
        self.settled = self.B[:, verdict.chosen].copy()
        self.kept = self.B, self.duals

    # -- the end -----------------------------------------------------------------------------------------

    def close(self, plan: Plan, lambda_: float) -> Closing:
        """Vote on the support; the objective of the result and of the start."""
        loss, loss_of_start = 0.0, 0.0
        for Z, t in self.rows.blocks():
            loss += self._loss(t - Z @ self.settled)
            loss_of_start += self._loss(t - Z @ self.start)
        level = Plan(0, np.array([lambda_]), plan.density, plan.scale, plan.damping, plan.bins).levels(self.spec)
        penalty_value = self.ground.scaling.penalised @ self.penalty.value(self.settled, level)
        return Closing(
            votes=(self.settled != 0).astype(np.float64),
            loss=np.array(self.weight * loss),
            penalty=np.array(penalty_value),
            loss_of_start=np.array(self.weight * loss_of_start),
        )

    def _loss(self, residuals: Vector) -> float:
        if self.spec.loss == "median":
            return float(np.sum(surrogate.check_loss(residuals, self.spec.quantile)))
        return float(residuals @ residuals) / 2.0

    def finish(self, support: Mask) -> None:
        """Zero what the network does not hold to be nonzero; an intercept is always kept."""
        self.settled = np.where(support | (self.ground.scaling.penalised == 0), self.settled, 0.0)
