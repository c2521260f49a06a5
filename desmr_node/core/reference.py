"""The method as one plain loop over all members: what a network of nodes computes, without the network."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from desmr_node.core import agreement
from desmr_node.core.agreement import Closing, Contribution, Moments, Report, Spreads, Start
from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.graph import Graph, penalty_parameter
from desmr_node.core.member import Member
from desmr_node.core.penalties import penalty
from desmr_node.core.rows import RowSource
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DataError


@dataclass(frozen=True, slots=True)
class OuterRound:
    """One line of a fit's history; lengths in standard errors of the fit."""

    outer: int
    admm_rounds: int
    lambda_: float
    density: float
    objective: float
    moved: float
    disagreement: float
    nonzeros: float
    accepted: bool


@dataclass(frozen=True, slots=True)
class NetworkFit:
    """The fitted model at every node, in the data's own units."""

    coef: Matrix
    intercept: Vector
    lambda_: float
    rounds: int
    bytes_sent: int
    history: tuple[OuterRound, ...]
    support: Mask
    converged: bool
    message: str
    objective: float
    pilot_objective: float
    admm_rounds: int


@dataclass(slots=True)
class _Traffic:
    graph: Graph
    rounds: int = 0
    admm_rounds: int = 0
    bytes_sent: int = 0

    def sum(self, contribution: Contribution) -> None:
        self.rounds += max(self.graph.diameter(), 1)
        self.bytes_sent += 8 * contribution.numbers() * self.graph.size * 2 * self.graph.edge_count

    def exchange(self, members: Sequence[Member]) -> None:
        self.rounds += 1
        self.admm_rounds += 1
        for member in members:
            dense, sparse = 8 * member.B.size, 12 * np.count_nonzero(member.B)
            self.bytes_sent += len(member.neighbours) * int(min(dense, sparse))


def fit(sources: Sequence[RowSource], graph: Graph, spec: FitSpec, seed: int) -> NetworkFit:
    streams = np.random.default_rng(seed).spawn(len(sources))
    members = [Member(s, spec, graph.neighbours[j], streams[j]) for j, s in enumerate(sources)]
    traffic = _Traffic(graph)

    def total(parts):
        traffic.sum(parts[0])
        return type(parts[0]).total(parts)

    moments = total([member.moments() for member in members])
    middle = agreement.centre(moments, spec)
    spreads = total([member.spreads(middle) for member in members])
    ground = agreement.survey(moments, spreads, graph.size, spec)
    start = total([member.prepare(ground) for member in members])
    metric = agreement.metric(start, ground, spec)
    tau = penalty_parameter(graph) if spec.tau == "auto" else spec.tau
    for member in members:
        member.connect(metric, tau, start.pilot)

    plan = agreement.first_plan(start, ground, spec)
    history = []
    converged = False
    kept = None
    for outer in range(spec.outer):
        for member in members:
            member.open(plan)
        for _ in range(spec.inner):
            sent = [member.B for member in members]
            for member in members:
                member.step({k: sent[k] for k in member.neighbours})
            traffic.exchange(members)
        report = total([member.report() for member in members])
        verdict = agreement.judge(plan, report, ground, spec)
        for member in members:
            member.settle(verdict)
        history.append(OuterRound(outer+1, traffic.admm_rounds, verdict.lambda_, plan.density*plan.damping, verdict.objective, verdict.moved,
                                  verdict.disagreement, float(agreement.majority(report.votes[:,verdict.chosen],graph.size).sum()), verdict.outcome != "rejected"))
        if verdict.outcome != "rejected" or kept is None: kept = (plan, verdict.lambda_)
        plan = verdict.following
        if verdict.outcome == "converged":
            converged = True
            break
    kplan, klam = kept
    closing = total([member.close(kplan, klam) for member in members])
    support = agreement.majority(closing.votes, graph.size)
    objective = float(closing.loss + kplan.to_check_scale(spec)*closing.penalty/graph.size)
    for member in members: member.finish(support)
    out = [ground.scaling.to_data_units(member.settled) for member in members]
    return NetworkFit(np.stack([c for c,_ in out]), np.array([i for _,i in out]), klam, traffic.rounds, traffic.bytes_sent, tuple(history),
        support, converged, "", objective, 0.0, traffic.admm_rounds)
