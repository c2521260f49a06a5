"""One node's consensus ADMM round, in its four forms: exact or linearised, identity or pooled metric.

The network minimises sum_j F_j(b_j) + pen_j(b_j) subject to b_j = b_k on every edge, with
F_j(b) = b'G_j b / 2 - c_j'b. Consensus is measured in a metric M: with edge duals u_jk = -u_kj in
coefficient units, forces p_j = M sum_k u_jk, d_j neighbours and penalty parameter tau,

    u_jk <- u_jk + tau (b_j - b_k)
    b_j  <- argmin_b  F_j(b) + pen_j(b) + p_j'b + tau sum_k || b - (b_j + b_k)/2 ||_M^2
          = argmin_b  b'Q_j b / 2 - q_j'b + pen_j(b),
    Q_j  = G_j + 2 tau d_j M,      q_j = c_j + M ( tau sum_k (b_j + b_k) - sum_k u_jk ).

*Exact* solves this to the end. *Linearised* takes one proximal gradient step with 1/omega >= the largest
eigenvalue of Q_j: for M = I that is the paper's update with omega = 1 / (2 tau d_j + rho_j) and threshold
omega lambda / m. (The paper prints omega = 1 / (tau d_j + rho_j) and threshold 2 lambda omega, which do not
solve the subproblem it prints: see docs/method.md.)

At a fixed point b_j = b_k on every edge and sum_j p_j = 0 (it starts there and every update preserves it),
so adding the nodes' optimality conditions gives that of the pooled problem.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.penalties import Penalty
from desmr_node.core.quadratic import Dense, Quadratic, add
from desmr_node.core.subproblem import Solver

#: A node without neighbours still needs a positive definite problem; a proximal term of this weight, which
#: vanishes at the fixed point, provides it.
_ALONE = 0.05
#: Up to this order (0.5 MB) Q_j is one matrix even where the quadratic is kept as rows: its submatrices are
#: then looked up, not computed.
_SMALL = 256


@dataclass(frozen=True, slots=True)
class LocalObjective:
    """A node's share of the pooled objective for one outer round.

    ``linear`` (p,) is c_j, ``levels`` (L,) the penalty levels, ``weights`` (p,) the penalty's weight on each
    coordinate (0 for the intercept), ``share`` the node's part of the penalty, 1/m. ``slopes`` (p, L) are
    the l1 weights that linearise the penalty at the round's start, share and weights multiplied in: the
    exact update needs a convex problem, the linearised one applies the penalty's own proximal map.
    """

    linear: Vector
    levels: Vector
    weights: Vector
    share: float
    penalty: Penalty
    slopes: Matrix


@dataclass(frozen=True, slots=True)
class Consensus:
    """What a node's update needs that does not change during a fit.

    The solver's memory does change, but no result depends on it: see `core.subproblem`.
    """

    metric: Quadratic
    tau: float
    degree: int
    update: Literal["exact", "linearised"]
    proximal: Quadratic
    curvature: float
    solver: Solver = field(repr=False, compare=False)

    @classmethod
    def build(
        cls,
        quadratic: Quadratic,
        metric: Quadratic,
        tau: float,
        degree: int,
        update: Literal["exact", "linearised"],
    ) -> "Consensus":
        """Form Q_j once, and the bound on its eigenvalues if the update needs one."""
        proximal = add(quadratic, metric, 2.0 * tau * degree if degree else _ALONE)
        if update == "exact" and proximal.order <= _SMALL and not isinstance(proximal, Dense):
            proximal = Dense(proximal.block(np.arange(proximal.order)))
        curvature = proximal.largest_eigenvalue() if update == "linearised" else 0.0
        return cls(metric, tau, degree, update, proximal, curvature, Solver(proximal))

    def step(self, own: Matrix, neighbour_sum: Matrix, dual_sum: Matrix, objective: LocalObjective) -> Matrix:
        """The node's new coefficients, (p, L), from everybody's vectors of the last round.

        Parameters
        ----------
        own : (p, L) b_j
        neighbour_sum : (p, L) sum over neighbours of b_k
        dual_sum : (p, L) sum over neighbours of u_jk, already updated with these vectors
        """
        own = np.ascontiguousarray(own)
        if self.degree:
            pull = self.tau * (self.degree * own + neighbour_sum) - dual_sum
        else:
            pull = _ALONE * own
        # In C order, whatever that of the arguments: products round differently in another.
        rhs = self.metric.apply(np.ascontiguousarray(pull))
        rhs += objective.linear[:, None]
        if self.update == "exact":
            return self.solver.solve(rhs, objective.slopes, own)
        omega = 1.0 / self.curvature
        z = own - omega * (self.proximal.apply(own) - rhs)
        step = omega * objective.share * objective.weights[:, None]
        return objective.penalty.prox(z, step, objective.levels[None, :])
