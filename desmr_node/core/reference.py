"""The method as one plain loop over all members: what a network of nodes computes, without the network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from desmr_node.core import agreement
from desmr_node.core.agreement import Ground, Plan, Verdict
from desmr_node.core.arrays import Vector
from desmr_node.core.contributions import Contribution
from desmr_node.core.fit import MemberFit, NetworkFit, OuterRound
from desmr_node.core.graph import Graph
from desmr_node.core.member import Member, Model
from desmr_node.core.rows import RowSource
from desmr_node.core.spec import FitSpec

_C = TypeVar("_C", bound=Contribution)
#: One ADMM round of these members, whose places among all are given.
Exchange = Callable[[Sequence[Member], Sequence[int]], None]


@dataclass(slots=True)
class Traffic:
    """What the same fit would send: rounds of messages, and bytes of payload without framing."""

    graph: Graph
    diameter: int
    rounds: int = 0
    admm_rounds: int = 0
    bytes_sent: int = 0
    how: Exchange | None = None

    def total(self, parts: list[_C]) -> _C:
        """A network sum: every member's record is flooded over every edge, in `diameter` hops."""
        self.rounds += self.diameter
        self.bytes_sent += 8 * parts[0].numbers() * self.graph.size * 2 * self.graph.edge_count
        return type(parts[0]).total(parts)

    def exchange(self, members: Sequence[Member], places: Sequence[int]) -> None:
        """One ADMM round: vectors to all neighbours, dense or as (index, value), whichever is less."""
        for member in members:
            B = member.B
            self.bytes_sent += len(member.neighbours) * min(8 * B.size, 12 * int(np.count_nonzero(B)))
        if self.how is None:
            lock_step(members)
        else:
            self.how(members, places)
        self.rounds += 1
        self.admm_rounds += 1


def lock_step(members: Sequence[Member]) -> None:
    """All members take one ADMM round, each from its neighbours' vectors of the last one."""
    sent = [member.B for member in members]
    for member, B in zip(members, sent, strict=True):
        received = {k: sent[k] for k in member.neighbours}
        member.step(received, {k: [(B, received[k])] for k in member.neighbours})


@dataclass(frozen=True, slots=True)
class Prepared:
    """Members that know scaling, metric and pilots, and the first plan, which they have not opened yet."""

    members: list[Member]
    ground: Ground
    start: Vector
    plan: Plan

    def open(self, plan: Plan) -> None:
        """Begin an outer round at every member."""
        for member in self.members:
            member.open(plan)


def prepare(
    sources: Sequence[RowSource],
    graph: Graph,
    spec: FitSpec,
    seed: int = 0,
    initials: Sequence[Model] | None = None,
    traffic: Traffic | None = None,
) -> Prepared:
    """Everything before the first outer round. ``initials``, one per member, take the place of the pilots."""
    traffic = traffic or Traffic(graph, graph.diameter())
    streams = np.random.default_rng(seed).spawn(len(sources))
    members = [
        Member(rows, spec, graph.neighbours[j], streams[j], initials[j] if initials else None)
        for j, rows in enumerate(sources)
    ]
    moments = traffic.total([member.moments() for member in members])
    centre = agreement.centre(moments, spec)
    spreads = traffic.total([member.spreads(centre) for member in members])
    declared = [rows.count for rows in sources] if spec.strength is not None else []
    ground = agreement.survey(moments, spreads, graph, spec, declared)
    start = traffic.total([member.prepare(ground) for member in members])
    metric = agreement.metric(start, ground, spec)
    tau = agreement.pull(graph, spec)
    flows = graph.flows()
    for j, member in enumerate(members):
        member.connect(metric, tau, start.pilot, flows[j, list(member.neighbours)])
    return Prepared(members, ground, start.pilot, agreement.first_plan(start, ground, spec))


def fit(
    sources: Sequence[RowSource],
    graph: Graph,
    spec: FitSpec,
    seed: int = 0,
    *,
    initials: Sequence[Model] | None = None,
    watch: Callable[[Sequence[Member]], None] | None = None,
    exchange: Exchange | None = None,
) -> NetworkFit:
    """Fit one model over the rows of all members.

    ``initials`` as in `prepare`; ``watch`` is shown the members at the end of every outer round, when they
    have settled. ``exchange`` takes the place of `lock_step`: it is told which of ``sources`` a member has.

    Edges to members that are accused of lying are cut, and what is left begins again if it is the majority.
    """
    traffic = Traffic(graph, graph.diameter(), how=exchange)
    places = tuple(range(graph.size))
    while True:
        few = [sources[j] for j in places]
        given = None if initials is None else [initials[j] for j in places]
        prepared = prepare(few, graph, spec, seed, given, traffic)
        ended = _attempt(prepared, traffic, spec, watch, places)
        if isinstance(ended, Graph):
            left = ended.largest_part()
            graph, places = ended.part(left), tuple(places[j] for j in left)
            traffic.graph, traffic.diameter = graph, graph.diameter()
            continue
        fits = dict(zip(places, ended, strict=True))
        return NetworkFit.gather([fits.get(j) for j in range(len(sources))], traffic.bytes_sent)


def _attempt(
    prepared: Prepared,
    traffic: Traffic,
    spec: FitSpec,
    watch: Callable[[Sequence[Member]], None] | None,
    places: Sequence[int],
) -> list[MemberFit] | Graph:
    """The members' fits; or the graph that is left when somebody is to be left out."""
    members, ground, plan = prepared.members, prepared.ground, prepared.plan
    accepted: tuple[Plan, Verdict] | None = None
    history: list[OuterRound] = []
    while True:
        prepared.open(plan)
        for _ in range(spec.inner):
            traffic.exchange(members, places)
        report = traffic.total([member.report() for member in members])
        verdict = agreement.judge(plan, report, ground, spec)
        for member in members:
            member.settle(verdict)
        if watch:
            watch(members)
        history.append(OuterRound.of(plan, verdict, traffic.admm_rounds, ground, spec))
        if verdict.outcome != "rejected":
            accepted = plan, verdict
        plan = verdict.following
        over = verdict.outcome == "converged" or len(history) >= spec.outer
        held = [member.suspect(last=over) for member in members]
        accused = frozenset[int]().union(*(suspicion.accused for suspicion in held))
        cut = {(j, k) for j, own in enumerate(held) for k in own.accused | (own.uneasy & accused)}
        rest = traffic.graph.without(cut)
        if cut and spec.suspects == "drop" and 2 * len(rest.largest_part()) > len(members):
            return rest
        if over:
            return _close(members, traffic, ground, spec, prepared.start, plan, accepted, history)


def _close(
    members: list[Member],
    traffic: Traffic,
    ground: Ground,
    spec: FitSpec,
    start: Vector,
    last: Plan,
    accepted: tuple[Plan, Verdict] | None,
    history: list[OuterRound],
) -> list[MemberFit]:
    """Agree on the support, and on whether the fit is better than its start."""
    settled_plan = accepted[0] if accepted else last
    curvature = settled_plan.curvature(spec)
    lambda_ = accepted[1].lambda_ if accepted else float(last.lambdas[0])
    level = lambda_ / curvature
    ballot = traffic.total([member.vote(level) for member in members])
    any_member = members[0]
    mean = any_member.restrict(ballot.mean, agreement.majority(ballot.votes, ground.size))
    closing = traffic.total([member.close(mean) for member in members])
    penalties = [curvature * any_member.penalty_value(b, level) for b in (mean, start)]
    result = agreement.conclude(
        ballot, closing, *penalties, settled=accepted[0] if accepted else None, ground=ground, spec=spec
    )
    return [
        MemberFit.of(
            model=member.finish(result.support, result.keep_fit),
            lambda_=lambda_,
            history=history,
            result=result,
            verdict=accepted[1] if accepted else None,
            rounds=traffic.rounds,
            ground=ground,
            spec=spec,
        )
        for member in members
    ]
