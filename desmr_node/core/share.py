"""One member's whole fit as a conversation: it asks for sums and exchanges, and is told the answers.

`begin` and `answer` each return the next request; whoever drives a `Share` (a node's machine, through its
worker) knows how to carry requests over a network and nothing of statistics. The story is that of
`reference.fit`, told from one member's chair. Between two requests all state is in plain attributes, and
`awaiting` names the method that will take the next answer. `progress` is what a share that starts again from
the same rows must be told to be where this one is, and `resume` takes it: the rest follows from the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import cast

import numpy as np

from desmr_node.core import agreement, plausible
from desmr_node.core.agreement import Ground, Plan, Result, Verdict
from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.contributions import (
    Ballot,
    Closing,
    Contribution,
    Evaluation,
    Moments,
    Report,
    Spreads,
    Start,
)
from desmr_node.core.fit import MemberFit, OuterRound
from desmr_node.core.force import Suspicion
from desmr_node.core.graph import Graph
from desmr_node.core.member import Matched, Member
from desmr_node.core.rows import RowSource
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DesmrError


class Diverged(DesmrError):  # noqa: N818 - says what happened
    """The consensus loop left the range of numbers; only settings far from the defaults can do that."""


# -- requests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sum:
    """Add this up over all members.

    ``filler`` is a key for the digits below a number's last bit, known to this member alone: without them,
    bits finer than anybody else's would stand in the total in the clear. ``gram_exponent`` is the binary
    order of magnitude of a Gram matrix.
    """

    part: Contribution
    filler: bytes
    gram_exponent: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """Give B to the neighbours, and theirs to me; answered by a `Neighbours`."""

    outer: int
    inner: int
    B: Matrix


@dataclass(frozen=True, slots=True)
class Drain:
    """Bring what is still unmatched of this outer round (with `max_lag` > 0); answered by a `Neighbours`."""

    outer: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The fit is over."""

    fit: MemberFit


Request = Sum | Exchange | Drain | Finished

# -- answers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The newest vector of each neighbour, and the pairs of vectors that have become matched."""

    newest: dict[int, Matrix]
    matched: Matched


Answer = Contribution | Neighbours


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a share has come, as of the last network sum it was told. Nothing in it is a row.

    Totals of the sums so far (but of the outer rounds' reports, whose verdicts are in ``history``), the
    pilot, and the member's state: vectors and duals at the beginning of outer round ``plan``, and what it
    holds of its neighbours.
    """

    moments: Moments | None = None
    spreads: Spreads | None = None
    start: Start | None = None
    pilot: Vector | None = None
    plan: Plan | None = None
    settled: Vector | None = None
    vectors: Matrix | None = None
    duals: Matrix | None = None
    accepted: tuple[Plan, Verdict] | None = None
    history: tuple[OuterRound, ...] = ()
    closing: bool = False
    ballot: Ballot | None = None
    loss: Closing | None = None
    evaluation: Evaluation | None = None
    least_deviation: float = float("inf")
    doubts: tuple[int, ...] = ()
    streaks: tuple[int, ...] = ()


def rows_secret(source: RowSource) -> bytes:
    """A secret that only the holder of the rows can know, and that is the same in every run."""
    digest = sha256(b"desmr filler")
    for X, y in source.blocks():
        digest.update(np.ascontiguousarray(X).tobytes())
        digest.update(np.ascontiguousarray(y).tobytes())
    return digest.digest()


class Share:
    """A member of a fit, from its first look at the rows to its model.

    ``seed`` is the network's: each member draws its own stream from it by its place among the members.
    """

    member: Member
    ground: Ground
    plan: Plan
    kept: tuple[Matrix, Matrix]
    result: Result
    model: tuple[Vector, float]

    def __init__(self, source: RowSource, holdout: RowSource | None, spec: FitSpec, seed: int) -> None:
        self.source, self.holdout, self.spec, self.seed = source, holdout, spec, seed
        self.accepted: tuple[Plan, Verdict] | None = None
        self.history: list[OuterRound] = []
        self.moments: Moments | None = None
        self.spreads: Spreads | None = None
        self.totals: Start | None = None
        self.ballot: Ballot | None = None
        self.loss: Closing | None = None
        self.evaluation: Evaluation | None = None
        self.closing = False
        self.sums = 0
        self.inner = 0
        self.awaiting = ""
        self.stage = "waiting"
        #: What the last outer round showed of the neighbours.
        self.suspicion = Suspicion()

    def begin(self, graph: Graph, index: int, declared: Sequence[int] = ()) -> Request:
        """The network is known: look at the rows. ``declared``: how many every member says it has."""
        stream = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
        self.graph, self.index, self.declared = graph, index, tuple(declared)
        self.secret = rows_secret(self.source)
        self.member = Member(self.source, self.spec, graph.neighbours[index], stream)
        return self._sum("scaling", self.member.moments(), "_centre")

    def answer(self, answer: Answer) -> Request:
        """Take what was asked for, and say what comes next."""
        return cast(Request, getattr(self, self.awaiting)(answer))

    def progress(self) -> Progress:
        """Where the share stands, right after it was told a sum."""
        told = Progress(self.moments, self.spreads, self.totals)
        if self.spreads is not None:
            told = replace(told, pilot=self.member.pilot)
        if not self.history:
            return told
        member = self.member
        return replace(
            told,
            plan=self.plan,
            settled=member.settled,
            vectors=self.kept[0],
            duals=self.kept[1],
            accepted=self.accepted,
            history=tuple(self.history),
            closing=self.closing,
            ballot=self.ballot,
            loss=self.loss,
            evaluation=self.evaluation,
            least_deviation=member.force.least if member.force else float("inf"),
            doubts=tuple(sorted(member.doubts)),
            streaks=member.streaks,
        )

    def resume(self, graph: Graph, index: int, progress: Progress, declared: Sequence[int] = ()) -> Request:
        """Like `begin`, for a share that was there before: the request it made when `progress` was noted.

        The same steps are taken from the same totals, all but the pilot's and the finished outer rounds'.
        """
        request = self.begin(graph, index, declared)
        if progress.moments is None:
            return request
        request = self._centre(progress.moments)
        if progress.spreads is None:
            return request
        self.member.pilot = progress.pilot
        request = self._pilot(progress.spreads)
        if progress.start is None:
            return request
        request = self._connect(progress.start)
        if progress.plan is None:
            return request
        assert progress.settled is not None  # all of an outer round's state is there, or nothing
        assert progress.vectors is not None
        assert progress.duals is not None
        member = self.member
        member.settled, member.kept_B, member.kept_duals = (
            progress.settled,
            progress.vectors,
            progress.duals,
        )
        member.doubts, member.streaks = frozenset(progress.doubts), progress.streaks
        if member.force is not None:
            member.force.least = progress.least_deviation
        self.accepted, self.history = progress.accepted, list(progress.history)
        self.sums += len(self.history)
        if not progress.closing:
            return self._open(progress.plan)
        request = self._vote(progress.plan)
        if progress.ballot is not None:
            request = self._close(progress.ballot)
        if progress.loss is not None:
            request = self._evaluate(progress.loss)
        if progress.evaluation is not None:
            request = self._finish(progress.evaluation)
        return request

    def _sum(self, stage: str, part: Contribution, then: str, gram_exponent: int = 0) -> Sum:
        self.sums += 1
        self.stage, self.awaiting = stage, then
        return Sum(
            part, sha256(self.secret + bytes([self.sums % 256, self.sums // 256])).digest(), gram_exponent
        )

    # -- before the first round ------------------------------------------------------------------------

    @property
    def _wary(self) -> bool:
        """Whether members may lie, so that totals are looked at before they are believed."""
        return self.spec.strength is not None

    def _centre(self, moments: Moments) -> Request:
        if self._wary and self.declared:
            plausible.check_moments(moments, self.declared)
        self.moments = moments
        return self._sum("scaling", self.member.spreads(agreement.centre(moments, self.spec)), "_pilot")

    def _pilot(self, spreads: Spreads) -> Request:
        assert self.moments is not None  # the sum before this one
        self.spreads = spreads
        self.ground = agreement.survey(self.moments, spreads, self.graph, self.spec, self.declared)
        mean_square = spreads.squares / self.ground.total_rows / np.square(self.ground.scaling.spread)
        exponent = int(np.frexp(max(float(mean_square.max()), 1.0))[1])
        return self._sum("pilot", self.member.prepare(self.ground), "_connect", exponent)

    def _connect(self, start: Start) -> Request:
        spec, ground = self.spec, self.ground
        if self._wary:
            plausible.check_start(start, ground.total_rows)
        tau = agreement.pull(self.graph, spec)
        self.totals, self.start = start, start.pilot
        flows = self.graph.flows()[self.index, list(self.member.neighbours)]
        self.member.connect(agreement.metric(start, ground, spec), tau, start.pilot, flows)
        return self._open(agreement.first_plan(start, ground, spec))

    # -- rounds ----------------------------------------------------------------------------------------

    def _open(self, plan: Plan) -> Request:
        self.plan, self.inner = plan, 0
        if self.history:  # as they are before the round takes what it carries over
            self.kept = self.member.kept_B, self.member.kept_duals
        self.member.open(plan)
        return self._exchange()

    def _exchange(self) -> Exchange:
        B = self.member.B
        if np.count_nonzero(np.isfinite(B)) != B.size:
            raise Diverged(
                f"the consensus loop diverged in outer round {self.plan.outer + 1}: "
                'set tau = "auto", or update = "exact"'
            )
        self.stage, self.awaiting = "rounds", "_step"
        return Exchange(self.plan.outer, self.inner, B)

    def _step(self, neighbours: Neighbours) -> Request:
        self.member.step(neighbours.newest, neighbours.matched)
        self.inner += 1
        if self.inner < self.spec.inner:
            return self._exchange()
        if self.spec.max_lag > 0:
            self.awaiting = "_drain"
            return Drain(self.plan.outer)
        return self._report()

    def _drain(self, neighbours: Neighbours) -> Request:
        self.member.match(neighbours.matched)
        return self._report()

    def _report(self) -> Request:
        return self._sum("scoring", self.member.report(), "_judge")

    def _judge(self, report: Report) -> Request:
        if self._wary:
            plausible.check_report(report, self.ground.total_rows, self.ground.size)
        verdict = agreement.judge(self.plan, report, self.ground, self.spec)
        self.member.settle(verdict)
        rounds = (len(self.history) + 1) * self.spec.inner
        self.history.append(OuterRound.of(self.plan, verdict, rounds, self.ground, self.spec))
        if verdict.outcome != "rejected":
            self.accepted = self.plan, verdict
        over = verdict.outcome == "converged" or len(self.history) >= self.spec.outer
        self.suspicion = self.member.suspect(last=over)
        return self._vote(verdict.following) if over else self._open(verdict.following)

    # -- the end ---------------------------------------------------------------------------------------

    def _curvature(self) -> float:
        return (self.accepted[0] if self.accepted else self.plan).curvature(self.spec)

    def _lambda(self) -> float:
        return self.accepted[1].lambda_ if self.accepted else float(self.plan.lambdas[0])

    def _level(self) -> float:
        return self._lambda() / self._curvature()

    def _vote(self, plan: Plan) -> Request:
        self.plan, self.closing = plan, True
        self.kept = self.member.kept_B, self.member.kept_duals
        return self._sum("closing", self.member.vote(self._level()), "_close")

    def _close(self, ballot: Ballot) -> Request:
        if self._wary:
            plausible.check_ballot(ballot, self.ground.size)
        self.ballot = ballot
        support = agreement.majority(ballot.votes, self.ground.size)
        self.mean = self.member.restrict(ballot.mean, support)
        return self._sum("closing", self.member.close(self.mean), "_evaluate")

    def _evaluate(self, closing: Closing) -> Request:
        assert self.ballot is not None  # the sum before this one
        self.loss = closing
        penalty, start_penalty = (
            self._curvature() * self.member.penalty_value(b, self._level()) for b in (self.mean, self.start)
        )
        self.result = agreement.conclude(
            self.ballot,
            closing,
            penalty,
            start_penalty,
            settled=self.accepted[0] if self.accepted else None,
            ground=self.ground,
            spec=self.spec,
        )
        self.model = self.member.finish(self.result.support, self.result.keep_fit)
        return self._sum("evaluation", self.member.evaluate(self.model, self.holdout), "_finish")

    def _finish(self, evaluation: Evaluation) -> Request:
        self.stage, self.evaluation = "done", evaluation
        floods = 2 + self.sums  # introductions come before, confirmations after
        rounds = self.history[-1].admm_rounds + floods * self.graph.diameter()
        fit = MemberFit.of(
            model=self.model,
            lambda_=self._lambda(),
            history=self.history,
            result=self.result,
            verdict=self.accepted[1] if self.accepted else None,
            rounds=rounds,
            ground=self.ground,
            spec=self.spec,
            evaluation=evaluation,
        )
        return Finished(fit)
