"""The box on an edge's dual: every shortcut against the long way round, and what it promises of a liar."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import block_diag
from scipy.optimize import lsq_linear

from desmr_node import DataError, FitSpec, simulate
from desmr_node.core import force, reference
from desmr_node.core.admm import Consensus, LocalObjective
from desmr_node.core.contributions import Contribution, Report
from desmr_node.core.force import EdgeForce, Evidence, Suspicion, accused, doubted
from desmr_node.core.graph import Graph, penalty_parameter
from desmr_node.core.member import Member
from desmr_node.core.penalties import penalty
from desmr_node.core.quadratic import Dense, Scaled
from desmr_node.core.rows import ArrayRows
from desmr_node.core.share import Exchange, Finished, Neighbours, Share, Sum
from desmr_node.core.surrogate import linear_term
from desmr_node.datasets import crime_network, simulated_network
from desmr_node.datasets.liars import Liar
from desmr_node.studies.liars import Masquerade

TAU = 0.7
#: Whatever the codec lets through: any finite number, and the largest.
VECTORS = hnp.arrays(
    np.float64,
    (3, 2),
    elements=st.one_of(
        st.floats(-1e3, 1e3),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([1e300, -1.7e308]),
    ),
)


def metric(p=3, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4 * p, p)) * rng.uniform(0.5, 2.0, p)
    return Dense(1e3 * A.T @ A / (4 * p))


def boxes(flows=(1.0, 2.0), strength=3.0, quadratic=None):
    return EdgeForce(quadratic or metric(), np.array(flows), strength)


# -- one step ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VECTORS, VECTORS, VECTORS), min_size=1, max_size=4), st.booleans())
def test_a_dual_is_clipped_in_every_whitened_coordinate_and_the_vector_read_accordingly(rounds, first):
    """Element by element, with the inverse of the root; where nothing is clipped, to the last bit.

    In the first round the box is larger, and the dual forgets a part of what it was.
    """
    box = boxes()
    duals = box.open(0.1, np.zeros((2, 3, 2)), first=first)
    larger, leak = (force._FIRST_ROUND, force._LEAK) if first else (1.0, 1.0)
    for own, *theirs in rounds:
        own, theirs = np.clip(own, -1e9, 1e9), np.stack(theirs)  # what is one's own stays within reason
        before = duals
        duals, read = box.limit(duals, own, theirs, TAU)
        assert np.isfinite(duals).all()
        assert np.isfinite(read).all()
        for k, flow in enumerate((1.0, 2.0)):
            bound = larger * 3.0 * 0.1 * flow
            for column in range(2):
                with np.errstate(over="ignore"):
                    step = TAU * np.clip(own[:, column] - theirs[k, :, column], -1e100, 1e100)
                plain = (before[k, :, column] + step) / leak
                whitened = np.array([sum(box.root[i] * plain) for i in range(3)])
                inside = np.array([min(max(w, -bound), bound) for w in whitened])
                tight = 1e-9 * (1.0 + np.abs(whitened).max())
                if (np.abs(whitened) < bound - tight).all():
                    np.testing.assert_array_equal(duals[k, :, column], plain)
                    if not first:
                        np.testing.assert_array_equal(read[k, :, column], theirs[k, :, column])
                elif (np.abs(whitened) > bound + tight).any():
                    # Where a number is far out its neighbours' digits are lost in it: only signs are left.
                    if np.abs(whitened).max() < 1e6:
                        expected = np.linalg.solve(box.root, inside)
                        np.testing.assert_allclose(duals[k, :, column], expected, atol=1e-8)
                    gone = before[k, :, column] + TAU * (own[:, column] - read[k, :, column])
                    scale = 1.0 + np.abs(own[:, column]).max()
                    np.testing.assert_allclose(gone, duals[k, :, column], atol=1e-12 * scale)
                assert np.abs(box.root @ duals[k, :, column]).max() <= bound * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VECTORS, VECTORS), min_size=1, max_size=5), st.booleans())
def test_both_ends_of_an_edge_hold_the_same_dual_to_the_last_bit(rounds, apart):
    """Also if one end has other edges beside it, and takes this one by itself."""
    here, there = boxes((1.0, 2.0)), boxes((2.0, 0.5, 7.0))
    own = here.open(0.1, np.zeros((2, 3, 2)), first=True)
    other = there.open(0.1, np.zeros((3, 3, 2)), first=True)
    for mine, theirs in rounds:
        own, _ = here.limit(own, mine, np.stack([0.5 * mine, theirs]), TAU)
        if apart:
            edge = slice(0, 1)
            other[edge], _ = there.limit(other[edge], theirs, mine[None], TAU, edge)
        else:
            other, _ = there.limit(other, theirs, np.stack([mine, theirs, 0.0 * theirs]), TAU)
        np.testing.assert_array_equal(own[1], -other[0])
    assert [box.evidence()[i] for box, i in ((here, 1), (there, 0))] == [there.evidence()[0]] * 2


def test_edges_one_by_one_or_all_at_once():
    """A column that fits its box keeps its bits beside one that does not."""
    rng = np.random.default_rng(1)
    together, apart = boxes(), boxes()
    duals = together.open(0.1, np.zeros((2, 3, 2)), first=False)
    single = apart.open(0.1, np.zeros((2, 3, 2)), first=False)
    plain = np.zeros((2, 3, 2))
    for _ in range(3):
        own, theirs = rng.standard_normal((3, 2)) * [1e-5, 1.0], rng.standard_normal((2, 3, 2)) * [1e-5, 1.0]
        plain += TAU * (own - theirs)
        duals, read = together.limit(duals, own, theirs, TAU)
        for k in range(2):
            edge = slice(k, k + 1)
            single[edge], alone = apart.limit(single[edge], own, theirs[edge], TAU, edge)
            np.testing.assert_array_equal(alone[0], read[k])
    np.testing.assert_array_equal(single, duals)
    assert apart.evidence() == together.evidence()
    np.testing.assert_array_equal(duals[:, :, 0], plain[:, :, 0])
    assert np.abs(duals[:, :, 1] - plain[:, :, 1]).min(axis=1).max() > 0.01


def test_what_is_not_matched_yet_is_read_as_it_will_be_and_nothing_is_remembered():
    rng = np.random.default_rng(0)
    box, copy = boxes(), boxes()
    duals = box.open(0.1, np.zeros((2, 3, 2)), first=False)
    copy.open(0.1, np.zeros((2, 3, 2)), first=False)
    for _ in range(4):
        own, theirs = rng.standard_normal((3, 2)), rng.standard_normal((2, 3, 2))
        foreseen = box.foresee(duals, own, theirs, TAU)
        again = box.foresee(duals, own, theirs, TAU)
        duals, read = box.limit(duals, own, theirs, TAU)
        np.testing.assert_array_equal(foreseen, again)
        np.testing.assert_array_equal(foreseen, read)
        assert not np.array_equal(read, theirs)
    assert box.evidence() != copy.evidence()


def test_duals_that_are_carried_over_are_put_into_a_smaller_box():
    box = boxes()
    duals = box.open(1.0, np.zeros((2, 3, 2)), first=False)
    duals, _ = box.limit(duals, np.full((3, 2), 1e3), np.zeros((2, 3, 2)), TAU)
    wide = box.root @ duals
    np.testing.assert_allclose(np.abs(wide).max(axis=(1, 2)), [3.0, 6.0])
    smaller = box.open(0.2, duals[:, :, [0]], first=False)
    np.testing.assert_allclose(
        box.root @ smaller,
        np.clip(wide, *(s * 0.6 * np.r_[1.0, 2.0][:, None, None] for s in (-1, 1)))[:, :, [0]],
        atol=1e-12,
    )
    # What fits stays as it is; a box that is larger again gives nothing back.
    np.testing.assert_array_equal(box.open(0.3, smaller, first=False), smaller)


def test_the_first_round_has_a_larger_box():
    for first, size in ((True, force._FIRST_ROUND), (False, 1.0)):
        box = boxes((1.0,), 2.0, Scaled(1.0, 3))
        duals = box.open(0.1, np.zeros((1, 3, 1)), first=first)
        duals, _ = box.limit(duals, np.array([[9e9], [-9e9], [0.0]]), np.zeros((1, 3, 1)), TAU)
        np.testing.assert_allclose(duals[0, :, 0], [0.2 * size, -0.2 * size, 0.0])


def test_the_unit_follows_the_noise_down_and_only_so_far_up():
    box = boxes((1.0,), 1.0, Scaled(1.0, 2))
    seen = []
    for deviation in (1.0, 3.0, 50.0, 0.5, 3.0, 50.0):
        duals = box.open(deviation, np.zeros((1, 2, 1)), first=False)
        duals, _ = box.limit(duals, np.full((2, 1), 1e9), np.zeros((1, 2, 1)), TAU)
        seen.append(float(duals[0, 0, 0]))
    growth = force._MOST_GROWTH
    np.testing.assert_allclose(seen, [1.0, 3.0, growth, 0.5, 3.0, 0.5 * growth])
    assert box.least == 0.5


def test_gram_matrices_that_no_rows_can_give_are_an_error_in_words():
    with pytest.raises(DataError, match="one of them adds what no rows can give"):
        boxes(quadratic=Dense(np.diag([1.0, -1.0])))


# -- what the iteration ends with ----------------------------------------------------------------------------


class Path:
    """Members with quadratics of their own along a path, each edge in a box, an l1 penalty on top."""

    def __init__(self, form, strength, deviation=0.05, m=3, p=2, seed=0, edges=None):
        rng = np.random.default_rng(seed)
        X = [rng.standard_normal((20, p)) * rng.uniform(0.5, 2, p) for _ in range(m)]
        self.G = [x.T @ x / (20 * m) for x in X]
        self.c = [G @ rng.standard_normal(p) for G in self.G]
        self.graph = Graph.from_edges(m, edges or [(j, j + 1) for j in range(m - 1)])
        pooled = Dense((sum(self.G) + 0.01 * np.eye(p)) / m)
        self.metric = pooled if form == "pooled" else Scaled(1 / m, p)
        self.m, self.p, self.slope, self.tau = m, p, 0.05 / m, penalty_parameter(self.graph)
        self.bound = strength * deviation * self.graph.flows()
        self.boxes, self.nodes, self.objectives = [], [], []
        slopes, l1 = np.full((p, 1), self.slope), penalty("l1")
        for j, ks in enumerate(self.graph.neighbours):
            box = EdgeForce(self.metric, self.graph.flows()[j, list(ks)], strength)
            box.open(deviation, np.zeros((len(ks), p, 1)), first=False)
            self.boxes.append(box)
            self.nodes.append(Consensus.build(Dense(self.G[j]), self.metric, self.tau, len(ks), "exact"))
            self.objectives.append(LocalObjective(self.c[j], np.array([0.05]), np.ones(p), 1 / m, l1, slopes))
        self.B = [np.zeros((p, 1)) for _ in range(m)]
        self.duals = [np.zeros((len(ks), p, 1)) for ks in self.graph.neighbours]

    def rounds(self, count, told=lambda j, k: None):
        """`told` says what j hears of k if that is not the truth."""
        for _ in range(count):
            sent = list(self.B)
            for j, (box, node) in enumerate(zip(self.boxes, self.nodes, strict=True)):
                heard = [(told(j, k), k) for k in self.graph.neighbours[j]]
                theirs = np.stack([sent[k] if lie is None else lie for lie, k in heard])
                self.duals[j], read = box.limit(self.duals[j], sent[j], theirs, self.tau)
                self.B[j] = node.step(
                    sent[j], read.sum(axis=0), self.duals[j].sum(axis=0), self.objectives[j]
                )

    def tv_minimiser(self):
        """sum_j F_j + pen_j + sum over edges c |R (b_j - b_k)|_1, by its dual: least squares in a box.

        With G = H H' for all members together, v in the penalty's box and w in the edges', the minimiser is
        G^-1 (c - v - K'w), K the differences R (b_j - b_k), where |H^-1 (c - v - K'w)| is smallest.
        """
        m, p, R = self.m, self.p, self.boxes[0].root
        edges = [(j, k) for j, ks in enumerate(self.graph.neighbours) for k in ks if j < k]
        K = np.zeros((len(edges), p, m, p))
        for e, (j, k) in enumerate(edges):
            K[e, :, j], K[e, :, k] = R, -R
        K = K.reshape(-1, m * p)
        H, c = np.linalg.cholesky(block_diag(*self.G)), np.concatenate(self.c)
        most = np.r_[np.full(m * p, self.slope), np.repeat([self.bound[edge] for edge in edges], p)]
        forces = np.hstack([np.eye(m * p), K.T])
        found = lsq_linear(
            np.linalg.solve(H, forces), np.linalg.solve(H, c), (-most, most), method="bvls", tol=1e-14
        )
        assert found.success, found.message
        return np.linalg.solve(H @ H.T, c - forces @ found.x).reshape(m, p)


@pytest.mark.parametrize("form", ["pooled", "identity"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_box_ends_at_the_minimiser_with_total_variation(form, seed):
    network = Path(form, strength=0.5, seed=seed)
    network.rounds(2000)
    B = np.stack([b[:, 0] for b in network.B])
    np.testing.assert_allclose(B, network.tv_minimiser(), atol=1e-9)
    assert np.ptp(B, axis=0).max() > 0.1  # the box binds: members do not agree


@pytest.mark.parametrize("form", ["pooled", "identity"])
def test_a_box_that_honest_duals_fit_ends_at_the_pooled_minimiser(form):
    network = Path(form, strength=100.0)
    network.rounds(2000)
    G, c, slope = sum(network.G), sum(network.c), 3 * network.slope
    b = np.zeros(2)
    for _ in range(2000):
        for i in range(2):
            z = c[i] - G[i] @ b + G[i, i] * b[i]
            b[i] = np.sign(z) * max(abs(z) - slope, 0.0) / G[i, i]
    np.testing.assert_allclose(np.stack([B[:, 0] for B in network.B]), [b] * 3, atol=1e-9)
    np.testing.assert_allclose(network.tv_minimiser(), [b] * 3, atol=1e-9)


#: For the two coefficients of a `Path`.
LIES = hnp.arrays(
    np.float64,
    (2, 1),
    elements=st.one_of(
        st.floats(-9.0, 9.0),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([1e300, -1e300, 1e-300]),
    ),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(LIES, min_size=1, max_size=6), st.integers(1, 3))
def test_a_liar_moves_the_consensus_by_its_boxes_whatever_it_says(lies, degree):
    """|R db|_inf <= the sum over its edges of c / m, for the honest members' mean: without a penalty and with
    the same curvature everywhere that is an equation, (sum of G) db = -R' (sum of w)."""
    edges = [(0, 1), (1, 2), *((j, 3) for j in range(degree))]
    network = Path("pooled", strength=2.0, m=4, edges=edges)
    for j in range(3):
        network.nodes[j] = Consensus.build(
            network.metric, network.metric, network.tau, len(network.duals[j]), "exact"
        )
        network.objectives[j].slopes[:] = 0.0
    for lie in lies:  # another one to everybody, round for round
        network.rounds(3, lambda j, k: (-1.0) ** j * lie if k == 3 else None)  # noqa: B023
    network.rounds(250, lambda j, k: lies[-1] if k == 3 else None)
    alone = np.linalg.solve(network.metric.matrix, sum(network.c[:3]) / 3)
    moved = network.boxes[0].root @ (np.mean([network.B[j][:, 0] for j in range(3)], axis=0) - alone)
    assert np.isfinite(moved).all()
    assert np.abs(moved).max() <= network.bound[3].sum() / 3 * (1 + 1e-6)


# -- evidence ------------------------------------------------------------------------------------------------


def test_evidence_is_where_the_dual_would_be_and_where_it_is():
    """In units, at the worst lambda; of a hundred coordinates the third largest counts."""
    p, unit = 100, 0.1
    box = EdgeForce(Scaled(4.0, p), np.array([1.0, 2.0]), 3.0)
    duals = box.open(unit, np.zeros((2, p, 2)), first=False)
    rng = np.random.default_rng(0)
    total = np.zeros((2, p, 2))
    for _ in range(5):
        own, theirs = rng.standard_normal((p, 2)), rng.standard_normal((2, p, 2))
        duals, _ = box.limit(duals, own, theirs, TAU)
        total += 2.0 * TAU * (own - theirs)
    for k, seen in enumerate(box.evidence()):
        free = np.abs(total[k]) / (unit * (1.0, 2.0)[k])
        held = np.abs(2.0 * duals[k]) / (unit * (1.0, 2.0)[k])
        assert seen.excess == pytest.approx(max(sorted(free[:, c])[-3] for c in range(2)))
        assert seen.load == pytest.approx(max(np.sqrt(np.mean(held[:, c] ** 2)) for c in range(2)))
        assert seen.load <= 3.0 < seen.excess


@pytest.mark.parametrize(("p", "rank"), [(1, 1), (2, 2), (66, 2), (67, 3), (100, 3), (101, 4)])
def test_one_coordinate_alone_is_no_evidence_unless_it_is_the_only_one(p, rank):
    box = boxes((1.0,), 3.0, Scaled(1.0, p))
    duals = box.open(1.0, np.zeros((1, p, 1)), first=False)
    differ = np.arange(p, 0.0, -1.0)[:, None]
    box.limit(duals, differ, np.zeros((1, p, 1)), TAU)
    assert box.evidence()[0].excess == pytest.approx(TAU * (p - rank + 1))


CALM, UNEASY, LOADED, FULL = Evidence(5, 1), Evidence(30, 1), Evidence(5, 6), Evidence(15, 10)
BESIDE, DOUBTFUL, WORSE, GLARING = Evidence(25, 8), Evidence(80, 2), Evidence(170, 9), Evidence(300, 10)


@pytest.mark.parametrize(
    ("seen", "doubtful", "uneasy"),
    [
        (CALM, False, False),
        (UNEASY, False, True),
        (LOADED, False, True),
        (FULL, False, True),  # a full box alone: a pull that is passed on
        (BESIDE, True, True),
        (DOUBTFUL, True, True),
        (GLARING, True, True),
    ],
)
def test_what_one_edge_shows(seen, doubtful, uneasy):
    assert (seen.doubtful, seen.uneasy) == (doubtful, uneasy)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], []),
        ([CALM, UNEASY, FULL], []),
        ([CALM, DOUBTFUL], [1]),
        ([DOUBTFUL, GLARING], [1]),  # next to the worst
        ([WORSE, GLARING, BESIDE], [0, 1]),
        ([BESIDE, CALM, BESIDE], [0, 2]),
    ],
)
def test_doubted_are_the_worst(seen, expected):
    assert doubted(seen) == set(expected)


@pytest.mark.parametrize(
    ("seen", "before", "last", "expected"),
    [
        ([CALM, GLARING, CALM], [], False, [1]),  # glaring: at once
        ([CALM, DOUBTFUL, CALM], [], False, []),  # once is not enough
        ([CALM, DOUBTFUL, CALM], [0], False, []),  # nor is doubt of another
        ([CALM, DOUBTFUL, CALM], [1], False, [1]),  # twice is
        ([CALM, DOUBTFUL, CALM], [], True, [1]),  # or once in the last round
        ([CALM, CALM, CALM], [1], True, []),  # and what is past is past
        ([GLARING, GLARING], [], False, []),  # at odds with most: the odd one itself
        ([GLARING, GLARING, CALM], [], False, []),
        ([GLARING, GLARING, CALM, CALM], [], False, [0, 1]),  # with half of them: not most
        ([GLARING, BESIDE, CALM], [1], False, [0]),  # a liar pulls its neighbours along
        ([GLARING], [0], True, []),  # a single neighbour's word against one's own
        ([], [], True, []),
    ],
)
def test_who_is_accused(seen, before, last, expected):
    assert accused(seen, frozenset(before), last=last) == set(expected)


# -- a member's beginning ------------------------------------------------------------------------------------


def test_a_pilot_far_away_gives_way_to_the_median_of_all():
    box = boxes((1.0, 2.0, 0.3), 3.0, Scaled(4.0, 5))
    box.open(0.1, np.zeros((3, 5, 1)), first=True)
    theirs = np.array([[1.0, 0, 0, 0, 0], [0.9, 0, 0, 0, 1.0], [1.2, 0, 0, 0.1, 0]])
    own = np.full(5, 1e300)
    np.testing.assert_array_equal(box.astray(own, theirs), np.median([*theirs, own], axis=0))
    far = force._ASTRAY * 0.1 / 2.0  # so many units of 0.1, in a metric of root 2
    assert box.astray(np.full(5, 0.99 * far), np.zeros((3, 5))) is None
    assert box.astray(np.full(5, 1.01 * far), np.zeros((3, 5))) is not None
    assert box.astray(own, theirs[:1]) is None  # who of the two is far away?


def poisoned(size, seed=2):
    """Nine members, and a tenth beside all of them whose rows follow another model of this size."""
    design = simulated_network(np.random.default_rng(seed), noise_name="normal", m=9, n=120, p=30)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((120, 30))
    data = [*design.datasets, (X, X @ (size * rng.standard_normal(30)))]
    return design, data, [*design.edges, *((j, 9) for j in range(9))]


def sources_of(data):
    return [ArrayRows.checked(X, y, f"node {j}") for j, (X, y) in enumerate(data)]


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_poisoned_rows_begin_where_their_neighbours_are(size):
    """One round takes the member to its neighbours' median, and its linear term is the one of there."""
    _, data, edges = poisoned(size)
    graph, spec = Graph.from_edges(10, edges), FitSpec(edge_force="auto")
    prepared = reference.prepare(sources_of(data), graph, spec)
    pilots = np.stack([member.settled for member in prepared.members])
    prepared.open(prepared.plan)
    reference.lock_step(prepared.members)
    median = np.median(pilots, axis=0)
    far = prepared.members[9]
    np.testing.assert_array_equal(far.settled, median)
    assert np.abs(pilots[9] - median).max() > 1.0
    expected = linear_term(far.rows.blocks(), median, far.weight, far._pseudo())
    np.testing.assert_array_equal(far.objective.linear, expected)
    assert np.abs(far.B - median[:, None]).max() < 0.01 * np.abs(pilots[9] - median).max()
    for member, pilot in zip(prepared.members[:9], pilots, strict=False):
        np.testing.assert_array_equal(member.settled, pilot)  # nobody else gives way


@pytest.mark.parametrize("size", [12.0, 1e3, 1e6])
def test_poisoned_rows_do_not_cost_the_others_their_neighbour(size):
    """A tenth of the rows may be bad: they are outvoted, and who holds them has not lied."""
    design, data, edges = poisoned(size)
    sources, graph = sources_of(data), Graph.from_edges(10, edges)
    boxed = reference.fit(sources, graph, FitSpec(edge_force="auto"))
    plain = reference.fit(sources, graph, FitSpec())
    assert boxed.left_out == ()
    assert boxed.converged
    errors = [np.linalg.norm(fit.coef - design.coef, axis=1).max() for fit in (boxed, plain)]
    assert errors[0] <= 1.05 * errors[1]
    assert boxed.admm_rounds <= plain.admm_rounds


# -- whole fits ----------------------------------------------------------------------------------------------


def design_of(seed=1, **settings):
    return simulated_network(np.random.default_rng(seed), n=100, p=30, **settings)


def test_a_box_that_nothing_reaches_changes_no_bit_of_a_round():
    """All but the first, in which duals forget."""
    design = design_of(noise_name="cauchy")
    sources, graph = sources_of(design.datasets), Graph.from_edges(10, design.edges)
    plans = []
    for strength in ("off", 1e9):
        spec = FitSpec(lambda_=0.05, edge_force=strength)
        prepared = reference.prepare(sources, graph, spec)
        if not plans:
            plans = [prepared.plan, replace(prepared.plan, outer=1, carry=(0,))]
        for member in prepared.members:  # without the first round
            member.kept_B = np.repeat(member.settled[:, None], 1, axis=1)
            member.kept_duals = np.zeros((len(member.neighbours), len(member.settled), 1))
        prepared.open(plans[1])
        for _ in range(10):
            reference.lock_step(prepared.members)
        plans.append([(member.B, member.duals, member.received) for member in prepared.members])
    for plain, boxed in zip(*plans[2:], strict=True):
        for here, there in zip(plain, boxed, strict=True):
            assert here.tobytes() == there.tobytes()


@pytest.mark.parametrize("settings", [{}, {"metric": "identity"}], ids=str)
def test_a_box_that_nothing_reaches_ends_where_plain_consensus_does(settings):
    design = design_of(noise_name="cauchy")
    sources, graph = sources_of(design.datasets), Graph.from_edges(10, design.edges)
    spec = FitSpec(penalty="l1", lambda_=0.05, outer=12, inner=60, tolerance=0.0, **settings)
    fits = [
        reference.fit(sources, graph, spec.model_copy(update={"edge_force": strength}))
        for strength in ("off", 1e9, "auto")
    ]
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coef, fits[0].coef, atol=1e-5)
        assert fit.objective == pytest.approx(fits[0].objective, rel=1e-6)


def test_honest_members_are_not_accused_and_end_where_they_would():
    errors = []
    for drawn in (
        {"noise_name": "normal"},
        {"noise_name": "cauchy"},
        {"noise_name": "t1", "connection": 0.8},
        {"heterogeneity": "covariate"},
        {"heterogeneity": "noise"},
        {"m": 5, "connection": 1.0},
    ):
        design = design_of(**drawn)
        sources, graph = sources_of(design.datasets), Graph.from_edges(len(design.datasets), design.edges)
        plain, boxed = (reference.fit(sources, graph, FitSpec(edge_force=force)) for force in ("off", "auto"))
        assert boxed.left_out == ()
        assert boxed.converged
        assert boxed.admm_rounds <= plain.admm_rounds + 20
        errors.append([np.linalg.norm(fit.coef - design.coef, axis=1).mean() for fit in (boxed, plain)])
    boxed_error, plain_error = np.mean(errors, axis=0)
    assert boxed_error <= 1.1 * plain_error


def test_the_nine_divisions_are_not_accused():
    network = crime_network("original", np.random.default_rng(0))
    sources, graph = sources_of(network.datasets), Graph.from_edges(9, network.edges)
    spec = FitSpec(penalty="l1", scaling="none", edge_force="auto")
    doubts = set()

    def look(members):
        for j, member in enumerate(members):
            if member.plan.carry is not None:
                doubts.update((j, i) for i in doubted(member.force.evidence()))

    fit = reference.fit(sources, graph, spec, watch=look)
    assert fit.left_out == ()
    assert doubts == set()


@pytest.mark.parametrize("attack", ["sign-flip", "noise", "two-faced", "drop-out"])
def test_a_liar_is_left_out_and_the_others_end_as_if_it_had_never_been(attack):
    """To the bit: what is left begins again."""
    design = design_of(noise_name="cauchy")
    X, y = design_of(seed=9).datasets[0]
    edges = [*design.edges, *((j, 10) for j in range(10))]
    sources = sources_of([*design.datasets, (X, y)])
    spec = FitSpec(edge_force="auto")
    fit = reference.fit(
        sources, Graph.from_edges(11, edges), spec, exchange=Masquerade({10: Liar(attack, 0)})
    )
    alone = reference.fit(sources[:10], Graph.from_edges(10, design.edges), spec)
    assert fit.left_out == (10,)
    assert np.isnan(fit.coef[10]).all()
    assert fit.coef[:10].tobytes() == alone.coef.tobytes()
    assert fit.history[-1].admm_rounds > alone.history[-1].admm_rounds  # what it took to see it


@pytest.mark.parametrize("attack", ["sign-flip", "constant", "two-faced"])
def test_who_is_only_reported_takes_nobody_far(attack):
    design = design_of(noise_name="normal")
    X, y = design_of(seed=9).datasets[0]
    sources = sources_of([*design.datasets, (X, y)])
    graph = Graph.from_edges(11, [*design.edges, *((j, 10) for j in range(10))])

    def error(spec):
        """Of the worst honest member after the last round, whatever the end would make of it."""
        worst = []

        def look(members):
            coef = [member.ground.scaling.to_data_units(member.settled)[0] for member in members[:10]]
            worst.append(np.linalg.norm(np.array(coef) - design.coef, axis=1).max())

        lies = Masquerade({10: Liar(attack, 0)})
        assert reference.fit(sources, graph, spec, exchange=lies, watch=look).left_out == ()
        return worst[-1]

    boxed = error(FitSpec(edge_force=5.0, suspects="report", lambda_=0.05, outer=8))
    with np.errstate(all="ignore"):
        plain = error(FitSpec(lambda_=0.05, outer=8))
    assert boxed < 4.0
    assert plain > 10.0 * boxed


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1.0, -7.0, 1e5, 1e150, -1e300, 1.7e308]), min_size=1, max_size=5)
)
def test_no_number_that_is_sent_takes_the_fit_out_of_the_numbers(said):
    design = simulated_network(np.random.default_rng(0), m=4, n=60, p=8, connection=1.0)
    sources = sources_of(design.datasets)
    spec = FitSpec(edge_force="auto", suspects="report", lambda_=0.05, outer=3)
    rounds = iter(range(10**6))

    def exchange(members, places):
        sent = [member.B for member in members]
        sent[3] = np.full_like(sent[3], said[next(rounds) % len(said)])
        for j, member in enumerate(members):
            if j != 3:
                received = {k: sent[k] for k in member.neighbours}
                member.step(received, {k: [(sent[j], received[k])] for k in member.neighbours})
        members[3].previous = members[3].B

    fit = reference.fit(sources, Graph.from_edges(4, design.edges), spec, exchange=exchange)
    assert np.isfinite(fit.coef).all()
    assert np.abs(fit.coef[:3] - design.coef).max() < 2.0


@pytest.mark.parametrize(
    ("held", "cut", "left_out"),
    [
        ({0: Suspicion(accused=frozenset({1}))}, [(0, 1)], ()),  # the others still know it
        (
            {0: Suspicion(accused=frozenset({4})), 2: Suspicion(uneasy=frozenset({1, 4}))},
            [(0, 4), (2, 4)],
            (),
        ),
        ({j: Suspicion(accused=frozenset({4})) for j in (0, 2, 3)}, [(0, 4), (2, 4), (3, 4)], (4,)),
        ({j: Suspicion(uneasy=frozenset({4})) for j in (0, 2, 3)}, [], ()),  # nobody has accused it
        ({0: Suspicion(accused=frozenset({1, 3, 4}))}, [(0, 1), (0, 3), (0, 4)], (0,)),
        ({j: Suspicion(accused=frozenset(range(5)) - {j}) for j in range(5)}, [], ()),  # no majority is left
    ],
)
def test_what_is_said_of_members_cuts_edges_and_what_is_left_begins_again(held, cut, left_out, monkeypatch):
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (2, 4), (3, 4)]
    design = simulated_network(np.random.default_rng(0), m=5, n=60, p=8, connection=1.0)
    sources, spec = sources_of(design.datasets), FitSpec(edge_force="auto", lambda_=0.05)
    graph = Graph.from_edges(5, edges)
    rest = graph.without(cut)
    alone = reference.fit(
        [rows for j, rows in enumerate(sources) if j not in left_out], rest.part(rest.largest_part()), spec
    )
    members = iter(range(10**6))

    def suspect(self, *, last):
        return held.get(j, Suspicion()) if (j := next(members)) < 5 else Suspicion()  # in the first round

    monkeypatch.setattr(Member, "suspect", suspect)
    fit = reference.fit(sources, graph, spec)
    assert fit.left_out == left_out
    kept = [j for j in range(5) if j not in left_out]
    assert fit.coef[kept].tobytes() == alone.coef.tobytes()


# -- late, and killed ----------------------------------------------------------------------------------------


def test_neighbours_may_lag():
    design = design_of(noise_name="normal", connection=0.6)
    spec = FitSpec(edge_force="auto", lambda_=0.1, tolerance=0.05)
    on_time = simulate(design.datasets, design.edges, spec)
    for lag in (1, 2):
        late = simulate(design.datasets, design.edges, spec.model_copy(update={"max_lag": lag}))
        assert late.converged
        assert late.left_out == ()
        np.testing.assert_allclose(late.coef, on_time.coef, atol=0.02)


def test_who_lags_in_a_box_that_binds_ends_at_the_same_minimiser():
    """Half of the vectors a round late: what is not matched yet must be read in the box, too."""
    design = simulated_network(np.random.default_rng(3), m=4, n=40, p=3, connection=1.0)
    sources = sources_of([(X, y + 3.0 * j * X[:, 0]) for j, (X, y) in enumerate(design.datasets)])
    graph = Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (0, 2)])
    spec = FitSpec(edge_force=2.0, lambda_=0.05, max_lag=1, penalty="l1")
    on_time, late = (reference.prepare(sources, graph, spec) for _ in range(2))
    for prepared in (on_time, late):
        prepared.open(prepared.plan)
    sent = []
    for t in range(1500):
        reference.lock_step(on_time.members)
        sent.append([member.B for member in late.members])
        for j, member in enumerate(late.members):
            newest, matched = {}, {}
            for k in member.neighbours:
                lags = (j + k) % 2
                now, first = max(t - lags, 0), max(t - lags, 0) if t != lags else t
                newest[k] = sent[now][k]
                matched[k] = [(sent[s][j], sent[s][k]) for s in range(first, now + 1)]
            member.step(newest, matched)
    for member, same in zip(late.members, on_time.members, strict=True):
        np.testing.assert_allclose(member.B, same.B, atol=1e-6)
    assert np.abs(on_time.members[0].B - on_time.members[3].B).max() > 0.1


class Conversation:
    """All members' shares, with whatever they ask for."""

    def __init__(self, design, spec, seed=0):
        self.sources, self.spec, self.seed = sources_of(design.datasets), spec, seed
        self.graph = Graph.from_edges(len(self.sources), design.edges)
        self.shares = [Share(rows, None, spec, seed) for rows in self.sources]
        self.asked = [share.begin(self.graph, j) for j, share in enumerate(self.shares)]
        self.sums, self.suspicions = 0, []

    def to_the_end(self, killed=lambda sums: None):
        """After every sum `killed` says which share begins again from what it had noted."""
        while not isinstance(self.asked[0], Finished):
            if isinstance(self.asked[0], Sum):
                parts: list[Contribution] = [request.part for request in self.asked]
                total = type(parts[0]).total(parts)
                answers = [total] * len(parts)
            else:
                assert all(isinstance(request, Exchange) for request in self.asked)
                sent = [request.B for request in self.asked]
                heard = [{k: sent[k] for k in ks} for ks in self.graph.neighbours]
                answers = [
                    Neighbours(newest, {k: [(own, B)] for k, B in newest.items()})
                    for own, newest in zip(sent, heard, strict=True)
                ]
            summed = isinstance(self.asked[0], Sum)
            self.asked = [share.answer(a) for share, a in zip(self.shares, answers, strict=True)]
            if summed:
                self.sums += 1
                if isinstance(total, Report):
                    self.suspicions.append([share.suspicion for share in self.shares])
                if (j := killed(self.sums)) is not None:
                    noted = self.shares[j].progress()
                    self.shares[j] = Share(self.sources[j], None, self.spec, self.seed)
                    self.asked[j] = self.shares[j].resume(self.graph, j, noted)
        return [request.fit for request in self.asked]


@pytest.mark.parametrize("settings", [{}, {"edge_force": 1.0, "outer": 6, "tolerance": 0.0}], ids=str)
def test_a_share_that_begins_again_ends_with_the_same_bits(settings, monkeypatch):
    """Killed after every sum in turn; also in boxes so small that they bind. Doubts come easily, and pilots
    fit few rows too well, so that the unit would rise."""
    monkeypatch.setattr(force, "_DOUBTFUL_EXCESS", 1.5)
    design = simulated_network(np.random.default_rng(4), noise_name="normal", m=4, n=20, p=12, connection=1.0)
    spec = FitSpec(**{"edge_force": "auto", "lambdas": 5, "suspects": "report"} | settings)
    whole = Conversation(design, spec)
    undisturbed = whole.to_the_end()
    plain = reference.fit(whole.sources, whole.graph, spec)
    np.testing.assert_allclose([fit.coef for fit in undisturbed], plain.coef, atol=1e-10)
    doubts = [[share.doubted for share in shares] for shares in whole.suspicions]
    assert any(any(round_) for round_ in doubts)
    share = whole.shares[0]
    now = share.plan.noise(spec) / np.sqrt(share.ground.total_rows)
    assert share.progress().least_deviation < 0.9 * now
    for j in range(4):
        killed = Conversation(design, spec)
        fits = killed.to_the_end(lambda sums: (sums + j) % 4)  # noqa: B023
        assert killed.sums == whole.sums
        for fit, same in zip(fits, undisturbed, strict=True):
            assert fit.coef.tobytes() == same.coef.tobytes()
            assert fit.history == same.history
        for share, one in zip(killed.shares, whole.shares, strict=True):
            assert share.progress().least_deviation == one.progress().least_deviation
        assert killed.suspicions == whole.suspicions


def test_the_smallest_unit_so_far_is_remembered():
    design = simulated_network(np.random.default_rng(4), m=3, n=40, p=5, connection=1.0)
    talk = Conversation(design, FitSpec(edge_force="auto", lambda_=0.05))
    noted = []
    talk.to_the_end(lambda sums: noted.append(talk.shares[1].progress()))
    middle = next(progress for progress in noted if progress.history)
    again = Share(talk.sources[1], None, talk.spec, 0)
    again.resume(talk.graph, 1, replace(middle, least_deviation=1e-5))
    assert again.progress().least_deviation == 1e-5
