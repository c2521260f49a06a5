"""The consensus step: its formula, its invariants, and its fixed point against the pooled problem."""

import itertools

import numpy as np
import pytest

from desmr_node.core.admm import Consensus, LocalObjective
from desmr_node.core.penalties import penalty, soft_threshold
from desmr_node.core.quadratic import Dense, Quadratic, Rows, Scaled, Sum

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)]
FORMS = list(itertools.product(["exact", "linearised"], ["pooled", "identity"]))


class Network:
    """Four nodes with quadratics of their own, stepped in lock-step."""

    def __init__(self, update: str, metric: str, *, few_rows: bool = False, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.m, self.p, self.lams = 4, 6, np.array([0.3, 0.05])
        rows = [4 if few_rows else 30] * self.m
        X = [rng.standard_normal((n, self.p)) * rng.uniform(0.5, 2, self.p) for n in rows]
        N = sum(rows)
        self.G = [x.T @ x / N for x in X]
        self.c = [rng.standard_normal(self.p) / self.m for _ in X]
        pooled = Dense(sum(self.G) / self.m + 0.01 * np.eye(self.p) / self.m)
        M: Quadratic = pooled if metric == "pooled" else Scaled(1 / self.m, self.p)
        self.neighbours = [sorted({k for e in EDGES for k in e if j in e} - {j}) for j in range(self.m)]
        self.weights = np.ones(self.p)
        self.weights[0] = 0.0
        self.nodes = []
        self.objectives = []
        l1 = penalty("l1")
        for j in range(self.m):
            quadratic: Quadratic = Rows(X[j] / np.sqrt(N)) if few_rows else Dense(self.G[j])
            degree = len(self.neighbours[j])
            self.nodes.append(Consensus.build(quadratic, M, 0.7, degree, update))
            slopes = self.weights[:, None] * self.lams / self.m
            self.objectives.append(LocalObjective(self.c[j], self.lams, self.weights, 1 / self.m, l1, slopes))
        self.B = [np.zeros((self.p, 2)) for _ in range(self.m)]
        self.u = [{k: np.zeros((self.p, 2)) for k in ks} for ks in self.neighbours]

    def round(self) -> None:
        sent = [b.copy() for b in self.B]
        for j, node in enumerate(self.nodes):
            for k in self.neighbours[j]:
                self.u[j][k] += node.tau * (sent[j] - sent[k])
            self.B[j] = node.step(
                sent[j],
                sum(sent[k] for k in self.neighbours[j]),
                sum(self.u[j].values()),
                self.objectives[j],
            )

    def pooled_solution(self) -> np.ndarray:
        """Coordinate descent on sum_j G_j, sum_j c_j with the whole penalty."""
        G, c = sum(self.G), sum(self.c)
        B = np.zeros((self.p, 2))
        for _ in range(2000):
            for i in range(self.p):
                z = c[i] - G[i] @ B + G[i, i] * B[i]
                B[i] = soft_threshold(z, self.weights[i] * self.lams) / G[i, i]
        return B


@pytest.mark.parametrize(("update", "metric"), FORMS)
@pytest.mark.parametrize("few_rows", [False, True])
def test_fixed_point_is_the_pooled_solution(update: str, metric: str, few_rows: bool) -> None:
    """Equations (update_p) and (update_beta_4), with the constants mended, for every form of the step."""
    network = Network(update, metric, few_rows=few_rows)
    for _ in range(300 if update == "exact" else 2500):
        network.round()
    pooled = network.pooled_solution()
    assert np.count_nonzero(pooled == 0) > 0  # the penalty is at work
    for B in network.B:
        np.testing.assert_allclose(B, pooled, atol=1e-6)


def test_linearised_identity_is_the_papers_update_with_omega_mended() -> None:
    """b <- S[omega (rho b - (G b - c) - p + tau sum_k (b_j + b_k))], omega = 1 / (2 tau d + rho)."""
    network = Network("linearised", "identity", seed=3)
    rng = np.random.default_rng(5)
    network.B = [rng.standard_normal((network.p, 2)) for _ in range(network.m)]
    before = [b.copy() for b in network.B]
    network.round()
    for j in range(network.m):
        ks = network.neighbours[j]
        tau = 0.7 / network.m  # the metric is I/m
        p_j = tau * sum(before[j] - before[k] for k in ks)
        rho = np.linalg.eigvalsh(network.G[j])[-1]
        omega = 1 / (2 * tau * len(ks) + rho)
        inside = rho * before[j] - (network.G[j] @ before[j] - network.c[j][:, None]) - p_j
        inside = omega * (inside + tau * sum(before[j] + before[k] for k in ks))
        threshold = omega * network.weights[:, None] * network.lams / network.m
        np.testing.assert_allclose(network.B[j], soft_threshold(inside, threshold), atol=1e-12)


def test_the_papers_printed_constants_miss_the_pooled_solution() -> None:
    """omega = 1/(tau d + rho) and threshold 2 lam omega do not solve the printed subproblem."""
    network = Network("linearised", "identity")
    m, tau = network.m, 0.7 / network.m
    B, P = np.zeros((m, network.p, 2)), np.zeros((m, network.p, 2))
    for _ in range(1000):
        new = B.copy()
        for j, ks in enumerate(network.neighbours):
            P[j] += tau * sum(B[j] - B[k] for k in ks)
            rho = np.linalg.eigvalsh(network.G[j])[-1]
            omega = 1 / (tau * len(ks) + rho)
            inside = rho * B[j] - (network.G[j] @ B[j] - network.c[j][:, None]) - P[j]
            inside = omega * (inside + tau * sum(B[j] + B[k] for k in ks))
            new[j] = soft_threshold(inside, 2 * omega * network.weights[:, None] * network.lams / m)
        B = np.clip(new, -1e6, 1e6)
    assert np.abs(B - network.pooled_solution()).max() > 0.01


def test_exact_update_solves_its_subproblem() -> None:
    network = Network("exact", "pooled", seed=7)
    for _ in range(3):
        network.round()
    before, duals = [b.copy() for b in network.B], [sum(u.values()) for u in network.u]
    network.round()
    for j, node in enumerate(network.nodes):
        ks = network.neighbours[j]
        dual = duals[j] + node.tau * sum(before[j] - before[k] for k in ks)
        M = node.metric.apply(np.eye(network.p))
        Q = network.G[j] + 2 * node.tau * len(ks) * M
        q = network.c[j][:, None] + M @ (node.tau * sum(before[j] + before[k] for k in ks) - dual)
        gradient = Q @ network.B[j] - q
        slope = network.weights[:, None] * network.lams / network.m
        moving = network.B[j] != 0
        np.testing.assert_allclose(gradient[moving], (-slope * np.sign(network.B[j]))[moving], atol=1e-10)
        assert np.all(np.abs(gradient[~moving]) <= np.broadcast_to(slope, gradient.shape)[~moving] + 1e-10)


@pytest.mark.parametrize(("update", "metric"), FORMS)
def test_duals_are_antisymmetric_so_their_sum_stays_zero(update: str, metric: str) -> None:
    network = Network(update, metric)
    for _ in range(25):
        network.round()
    for j, k in EDGES:
        np.testing.assert_allclose(network.u[j][k], -network.u[k][j], atol=1e-12)


@pytest.mark.parametrize("update", ["exact", "linearised"])
def test_a_node_alone_reaches_its_own_lasso(update: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 8))  # fewer rows than columns: only the proximal term makes it well posed
    G, c, lam = X.T @ X / 5, X.T @ rng.standard_normal(5) / 5, np.array([0.1])
    node = Consensus.build(Rows(X / np.sqrt(5)), Scaled(1.0, 8), 1.0, 0, update)
    slopes = np.full((8, 1), 0.1)
    objective = LocalObjective(c, lam, np.ones(8), 1.0, penalty("l1"), slopes)
    b, nothing = np.zeros((8, 1)), np.zeros((8, 1))
    for _ in range(5000):
        b = node.step(b, nothing, nothing, objective)
    gradient = (G @ b)[:, 0] - c
    active = b[:, 0] != 0
    assert active.any()
    np.testing.assert_allclose(gradient[active], -0.1 * np.sign(b[active, 0]), atol=1e-6)
    assert np.all(np.abs(gradient[~active]) <= 0.1 + 1e-6)


@pytest.mark.parametrize("few_rows", [False, True])
@pytest.mark.parametrize(("update", "metric"), FORMS)
def test_a_node_built_anew_goes_on_to_the_same_bits(update: str, metric: str, few_rows: bool) -> None:
    network = Network(update, metric, few_rows=few_rows)
    restarting = Network(update, metric, few_rows=few_rows)
    for _ in range(40):
        network.round()
        restarting.nodes = Network(update, metric, few_rows=few_rows).nodes
        restarting.round()
        np.testing.assert_array_equal(network.B, restarting.B)


@pytest.mark.parametrize(("update", "metric"), FORMS)
def test_memory_order_changes_no_bit(update: str, metric: str) -> None:
    network = Network(update, metric)
    for _ in range(3):
        network.round()
    rng = np.random.default_rng(0)
    arrays = [network.B[0], *rng.standard_normal((2, network.p, 2))]
    node, objective = network.nodes[0], network.objectives[0]
    expected = node.step(*arrays, objective)
    for orders in itertools.product("CF", repeat=3):
        got = node.step(*[np.array(a, order=o) for a, o in zip(arrays, orders, strict=True)], objective)
        np.testing.assert_array_equal(got, expected)
        assert got.flags.c_contiguous


def test_a_small_exact_problem_is_one_matrix_and_a_large_one_keeps_its_rows() -> None:
    rng = np.random.default_rng(1)
    for order, form in ((20, Dense), (300, Sum)):
        R = rng.standard_normal((4, order))
        M = Dense(np.eye(order) + 0.5)
        node = Consensus.build(Rows(R), M, 0.7, 2, "exact")
        assert isinstance(node.proximal, form)
        B = rng.standard_normal((order, 2))
        np.testing.assert_allclose(node.proximal.apply(B), R.T @ R @ B + 2.8 * M.matrix @ B, rtol=1e-10)
        assert isinstance(Consensus.build(Rows(R), M, 0.7, 2, "linearised").proximal, Sum)
