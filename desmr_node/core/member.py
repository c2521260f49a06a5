"""One member's share of a fit: everything it computes from its own rows, and nothing about a network.

A driver (the plain loop in `reference`, or a node's worker) carries contributions out to be summed over the
network, brings agreed quantities back in, and passes neighbours' coefficient vectors to `step`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from desmr_node.core import surrogate
from desmr_node.core.admm import Consensus, LocalObjective
from desmr_node.core.agreement import FIRST_BINS, Ground, Plan, Verdict
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.contributions import (
    Ballot,
    Closing,
    Evaluation,
    Moments,
    Report,
    Spreads,
    Start,
    response_octaves,
)
from desmr_node.core.force import EdgeForce, Evidence, Suspicion, accused, doubted, standing_out
from desmr_node.core.median import pilot
from desmr_node.core.penalties import penalty
from desmr_node.core.plausible import MOST_RESIDUAL
from desmr_node.core.quadratic import Quadratic
from desmr_node.core.rows import RowSource
from desmr_node.core.scaling import ScaledRows
from desmr_node.core.spec import FitSpec

#: Where a pilot would take long it is fitted to a sample: it only has to be near, not to be the answer.
PILOT_ROWS = 50_000
#: Residuals of all lambdas are held for at most this many rows at a time.
_PIECE = 4_096
#: A coefficient below this part of the penalty level is on its way to zero: the consensus loop takes it there
#: only in the limit, and which members have arrived is a matter of rounding.
_NEGLIGIBLE = 1e-3


#: Coefficients and intercept, in the data's units.
Model = tuple[Vector, float]
#: Per neighbour, pairs (own, theirs) of coefficient vectors of the same rounds.
Matched = Mapping[int, Sequence[tuple[Matrix, Matrix]]]


def _votes(B: Matrix, levels: Vector | float) -> Matrix:
    """1 for every coefficient this member holds to be nonzero, else 0."""
    return (np.abs(B) > _NEGLIGIBLE * np.asarray(levels)).astype(np.float64)


class Member:
    """A member's rows and the state of its fit.

    ``settled`` (p,) is its coefficient vector b_j after the last accepted outer round. ``B`` (p, L) holds the
    vectors of the current round, one per candidate lambda: what its neighbours receive. ``duals`` (d, p, L)
    are the edge duals u_jk and ``received`` the vectors of the last step, stacked in the order of
    ``neighbours``: an operation on a small array costs its call, so all edges share one. Sums over the stack
    run from the first to the last, on every machine. Names follow `core.admm`. ``initial``, if given, takes
    the place of the pilot.
    """

    rows: ScaledRows
    ground: Ground
    weight: float
    quadratic: Quadratic
    linear: Vector
    consensus: Consensus
    objective: LocalObjective
    plan: Plan
    start: Vector
    settled: Vector
    B: Matrix
    duals: Matrix
    received: Matrix

    def __init__(
        self,
        source: RowSource,
        spec: FitSpec,
        neighbours: tuple[int, ...],
        rng: np.random.Generator,
        initial: Model | None = None,
    ) -> None:
        self.source, self.spec, self.neighbours, self.rng = source, spec, neighbours, rng
        self.penalty = penalty(spec.penalty)
        self.initial = initial
        #: The first estimate once it is known, on the network's scale.
        self.pilot: Vector | None = None
        #: The boxes of the edges' duals, if they have any, and what they show of the neighbours.
        self.force: EdgeForce | None = None
        self.evidence: tuple[Evidence, ...] = ()
        self.doubts: frozenset[int] = frozenset()
        self.streaks: tuple[int, ...] = ()

    # -- before the first round ------------------------------------------------------------------------

    def moments(self) -> Moments:
        """Row count, column sums, octaves of the response: one pass."""
        sums = np.zeros(self.source.columns)
        responses = []
        for X, y in self.source.blocks():
            sums += X.sum(axis=0)
            responses.append(y)
        return Moments(np.array(float(self.source.count)), sums, response_octaves(np.concatenate(responses)))

    def spreads(self, centre: Vector) -> Spreads:
        """Sums of squares about the agreed centre: one pass."""
        squares = np.zeros(self.source.columns)
        for X, _ in self.source.blocks():
            squares += np.square(X - centre).sum(axis=0)
        return Spreads(squares)

    def prepare(self, ground: Ground) -> Start:
        """Scale the rows, form the quadratic in O(n p^2), fit the pilot."""
        self.ground = ground
        self.rows = ScaledRows(self.source, ground.scaling)
        self.weight = ground.row_weight(self.rows.count, self.spec)
        order = ground.scaling.order
        self.quadratic = surrogate.gram(self.rows.blocks(), self.rows.count, order, self.weight)
        counts = np.zeros(FIRST_BINS.size)
        if self.spec.loss == "squared":
            self.settled = np.zeros(order)
            self.linear = surrogate.linear_term_of_squares(self.rows.blocks(), order, self.weight)
        else:
            if self.pilot is None:
                self.pilot = self._first_estimate()
            self.settled = self.pilot
            self.linear = np.zeros(order)
            for Z, t in self.rows.blocks():
                counts += FIRST_BINS.count(np.abs(t - Z @ self.settled)[:, None])[:, 0]
        pooled = self.spec.metric == "pooled"
        return Start(
            variances=self.quadratic.diagonal(),
            gram=self.quadratic.apply(np.eye(order)) if pooled else np.zeros((0, 0)),
            pilot=self.weight * self.rows.count * self.settled,
            counts=counts * (self.weight * ground.total_rows),
            linear=self.linear,
        )

    def _first_estimate(self) -> Vector:
        """The pilot, unless another estimate was given."""
        scaling = self.ground.scaling
        if self.initial is not None:
            return scaling.from_data_units(*self.initial)
        Z, t = self.rows.sample(PILOT_ROWS, self.rng)
        return pilot(Z, t, self.spec.quantile, weights=scaling.penalised, rng=self.rng).coef

    def connect(self, metric: Quadratic, tau: float, start: Vector, flows: Vector) -> None:
        """Fix the consensus step; remember the network's common start. ``flows`` (d,) are `Graph.flows`."""
        self.start = start
        self.consensus = Consensus.build(self.quadratic, metric, tau, len(self.neighbours), self.spec.update)
        strength = self.spec.strength
        if strength is not None and self.neighbours:
            self.force = EdgeForce(metric, flows, strength)

    # -- an outer round ----------------------------------------------------------------------------------

    def open(self, plan: Plan) -> None:
        """New pseudo-responses at the settled fit, in O(n p); one column per candidate lambda."""
        self.plan = plan
        if plan.carry is None:
            shape = len(self.settled), len(plan.lambdas)
            self.kept_B = np.repeat(self.settled[:, None], shape[1], axis=1)
            self.kept_duals = np.zeros((len(self.neighbours), *shape))
        else:
            # Contiguous again: sums over an array's axis may round differently in another memory order.
            self.kept_B = np.ascontiguousarray(self.kept_B[:, plan.carry])
            self.kept_duals = np.ascontiguousarray(self.kept_duals[:, :, plan.carry])
        if self.spec.loss == "median":
            self.linear = surrogate.linear_term(self.rows.blocks(), self.settled, self.weight, self._pseudo())
        levels, weights = plan.levels(self.spec), self.ground.scaling.penalised
        share = 1.0 / (self.ground.size * plan.damping)
        # Pilots differ from member to member (of two twin columns each may hold another one): the first round
        # linearises the penalty at their common mean.
        reference = self.start if plan.carry is None else self.settled
        slopes = share * weights[:, None] * self.penalty.slope(reference[:, None], levels)
        self.objective = LocalObjective(self.linear, levels, weights, share, self.penalty, slopes)
        self.rewind()

    def rewind(self) -> None:
        """To the beginning of the outer round."""
        self.B = self.previous = self.kept_B
        self.received = np.repeat(self.kept_B[None], len(self.neighbours), axis=0)
        self.duals = self.kept_duals.copy()
        if self.force is not None:
            deviation = self.plan.noise(self.spec) / np.sqrt(self.ground.total_rows)
            self.duals = self.force.open(deviation, self.duals, first=self.plan.carry is None)

    def _pseudo(self) -> surrogate.Pseudo:
        return surrogate.Pseudo(
            self.plan.density * self.plan.damping, self.spec.quantile, self.plan.bandwidth
        )

    def match(self, pairs: Matched) -> None:
        """Update the edge duals from vectors that both ends held in the same round.

        An edge's two duals stay each other's negatives, and all duals add up to zero, as long as both ends
        apply the same rounds: late is fine, unmatched is not.
        """
        tau = self.consensus.tau
        for i, k in enumerate(self.neighbours):
            for own, theirs in pairs[k]:
                if self.force is None:
                    self.duals[i] += tau * (own - theirs)
                else:
                    edge = slice(i, i + 1)
                    self.duals[edge], _ = self.force.limit(self.duals[edge], own, theirs[None], tau, edge)

    def step(self, newest: Mapping[int, Matrix], matched: Matched) -> None:
        """One ADMM round from the neighbours' newest vectors; its cost does not depend on n.

        ``matched`` are the pairs that `match` has yet to see: in lock-step one of each neighbour, with its
        newest vector.
        """
        B, tau, force = self.B, self.consensus.tau, self.force
        if self.neighbours:
            self.received = np.concatenate([newest[k] for k in self.neighbours]).reshape(-1, *B.shape)
        lock_step = all(
            len(m := matched[k]) == 1 and m[0][0] is B and m[0][1] is newest[k] for k in self.neighbours
        )
        begin = self._begin(self.received) if force and self.plan.carry is None and B is self.kept_B else B
        if not lock_step:
            self.match(matched)
            if force:
                self.received = force.foresee(self.duals, B, self.received, tau)
        elif force:
            before = self.duals
            self.duals, self.received = force.limit(before, B, self.received, tau)
            if begin is not B:
                self.received = begin - (self.duals - before) / tau
        else:
            self.duals += tau * (B - self.received)
        self.previous = begin
        self.B = self.consensus.step(
            begin, np.add.reduce(self.received, axis=0), np.add.reduce(self.duals, axis=0), self.objective
        )

    def _begin(self, pilots: Matrix) -> Matrix:
        """Where the first round begins: at the pilot, or at the neighbours' if all of them are far away."""
        assert self.force is not None
        middle = self.force.astray(self.settled, pilots[:, :, 0])
        if middle is None:
            return self.B
        self.settled = middle
        self.linear = surrogate.linear_term(self.rows.blocks(), middle, self.weight, self._pseudo())
        self.objective = replace(self.objective, linear=self.linear)
        return np.repeat(middle[:, None], self.B.shape[1], axis=1)

    def report(self) -> Report:
        """What this round did, for every candidate: one pass, O(n p L)."""
        spec, plan = self.spec, self.plan
        pseudo = self._pseudo()
        count = self.B.shape[1]
        check, squares, counts = np.zeros(count), np.zeros(count), np.zeros((plan.bins.size, count))
        for Z, t in self._pieces():
            fitted = Z @ self.B
            residuals = t[:, None] - fitted
            if spec.loss == "median":
                judged = (
                    residuals if self.force is None else np.clip(residuals, -MOST_RESIDUAL, MOST_RESIDUAL)
                )
                check += surrogate.check_loss(judged, spec.quantile).sum(axis=0)
                counts += plan.bins.count(np.abs(residuals))
                if spec.score == "bic-squares":
                    target = surrogate.pseudo_responses(Z @ self.settled, t, pseudo)
                    squares += np.square(target[:, None] - fitted).sum(axis=0)
            else:
                squares += np.square(residuals).sum(axis=0)
        # Members that still disagree each fit their own rows better than the consensus will. The dual forces
        # price that in: to first order, loss plus force times coefficients is the loss at the consensus; and
        # since the forces of all members add up to zero, it is the loss itself once they agree.
        metric = self.consensus.metric
        tilt = np.sum(metric.apply(np.add.reduce(self.duals, axis=0)) * self.B, axis=0)
        levels, penalised = plan.levels(spec), self.ground.scaling.penalised
        edges, along = np.zeros(count), np.zeros(count)
        for theirs, dual in zip(self.received, self.duals, strict=True):
            difference = self.previous - theirs
            price = metric.apply(difference)
            edges += 0.5 * np.sum(difference * price, axis=0)  # each edge has two ends
            along += 0.5 * np.sum(dual * price, axis=0)
        if self.force is not None:  # the same sum, edge by edge: a liar's end of it is not in anybody's hands
            tilt = along
        gap, changed = np.zeros_like(self.B), self.B - self.previous
        if self.neighbours:
            gap = self.previous - np.add.reduce(self.received, axis=0) / len(self.neighbours)
        moved = self.B - self.settled[:, None]
        return Report(
            check=self.weight * check + plan.curvature(spec) * plan.damping * tilt,
            squares=self.weight * squares + 2.0 * tilt,
            votes=_votes(self.B, levels),
            penalty=penalised @ self.penalty.value(self.B, levels),
            penalty_before=penalised @ self.penalty.value(self.settled[:, None], levels),
            moved=np.sum(moved * self.quadratic.apply(moved), axis=0),
            disagreement=np.sum(gap * metric.apply(gap), axis=0),
            edges=edges,
            changed=np.sum(changed * metric.apply(changed), axis=0),
            counts=counts * (self.weight * self.ground.total_rows),
        )

    def _pieces(self) -> Iterator[tuple[Matrix, Vector]]:
        for Z, t in self.rows.blocks():
            for first in range(0, len(t), _PIECE):
                yield Z[first : first + _PIECE], t[first : first + _PIECE]

    def settle(self, verdict: Verdict) -> None:
        """Keep what the round did, or go back to where it began."""
        if verdict.outcome != "rejected":
            self.settled = self.B[:, verdict.chosen].copy()
            self.kept_B, self.kept_duals = self.B, self.duals

    def suspect(self, *, last: bool) -> Suspicion:
        """What the edges say of the neighbours after an outer round; ``last`` if none is to follow."""
        drop = self.spec.suspects == "drop"
        if self.force is None:
            return Suspicion(drop=drop)
        seen = self.evidence = self.force.evidence()
        self.streaks = standing_out(seen, self.streaks)
        if self.plan.carry is None:  # pilots may be far apart
            return Suspicion(drop=drop)
        before, self.doubts = self.doubts, doubted(seen)
        found = accused(seen, before, self.streaks, last=last)
        uneasy = {i for i, e in enumerate(seen) if e.uneasy or self.streaks[i] > 1}
        return Suspicion(self._places(found), self._places(self.doubts), self._places(uneasy), drop)

    def _places(self, edges: Iterable[int]) -> frozenset[int]:
        return frozenset(self.neighbours[i] for i in edges)

    # -- the end -----------------------------------------------------------------------------------------

    def vote(self, level: float) -> Ballot:
        """Which coefficients it holds to be nonzero, and its share of the members' mean."""
        return Ballot(_votes(self.settled, level), self.weight * self.rows.count * self.settled)

    def close(self, mean: Vector) -> Closing:
        """The loss on its rows of the members' mean and of the start."""
        loss = loss_at_start = 0.0
        for Z, t in self.rows.blocks():
            loss += self._loss(t - Z @ mean)
            loss_at_start += self._loss(t - Z @ self.start)
        return Closing(np.array(self.weight * loss), np.array(self.weight * loss_at_start))

    def penalty_value(self, b: Vector, level: float) -> float:
        """The penalty of a coefficient vector, on the scale of least squares."""
        return float(self.ground.scaling.penalised @ self.penalty.value(b, level))

    def _loss(self, residuals: Vector) -> float:
        if self.spec.loss == "median":
            return float(np.sum(surrogate.check_loss(residuals, self.spec.quantile)))
        return float(residuals @ residuals) / 2.0

    def restrict(self, b: Vector, support: Mask) -> Vector:
        """b on the support and zero off it; an intercept always stays."""
        return np.where(support | (self.ground.scaling.penalised == 0), b, 0.0)

    def evaluate(self, model: Model, holdout: RowSource | None) -> Evaluation:
        """Errors of the final model on rows that took no part in the fit."""
        coef, intercept = model
        count, absolute, squares = 0, 0.0, 0.0
        for X, y in holdout.blocks() if holdout is not None else ():
            errors = (y - X @ coef - intercept) / self.ground.scaling.unit
            count += len(y)
            absolute += float(np.abs(errors).sum())
            squares += float(errors @ errors)
        return Evaluation(np.array(float(count)), np.array(absolute), np.array(squares))

    def finish(self, support: Mask, keep_fit: bool) -> Model:
        """The final coefficients and intercept, in the data's units."""
        b = self.restrict(self.settled, support) if keep_fit else self.start
        return self.ground.scaling.to_data_units(b)
