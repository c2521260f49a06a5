"""Graphs: what is refused and how it is said, distances, and the rate that `contraction` predicts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.core.graph import Graph, contraction, penalty_parameter
from desmr_node.errors import ConfigError


def path(m):
    return Graph.from_edges(m, [(j, j + 1) for j in range(m - 1)])


def star(m):
    return Graph.from_edges(m, [(0, j) for j in range(1, m)])


def ring(m):
    return Graph.from_edges(m, [(j, (j + 1) % m) for j in range(m)])


def complete(m):
    return Graph.from_edges(m, itertools.combinations(range(m), 2))


@st.composite
def connected_edges(draw, largest=9):
    """A random tree and some more edges, in any order and direction, some twice."""
    m = draw(st.integers(1, largest))
    edges = [(j, draw(st.integers(0, j - 1))) for j in range(1, m)]
    if m > 1:
        pair = st.tuples(st.integers(0, m - 1), st.integers(0, m - 1)).filter(lambda e: e[0] != e[1])
        edges += draw(st.lists(pair, max_size=8))
    return m, draw(st.permutations(edges))


def _floyd_warshall(m, edges):
    distance = np.full((m, m), np.inf)
    np.fill_diagonal(distance, 0)
    for j, k in edges:
        distance[j, k] = distance[k, j] = 1
    for via in range(m):
        distance = np.minimum(distance, distance[:, via, None] + distance[None, via, :])
    return distance


@settings(max_examples=150, deadline=None)
@given(connected_edges())
def test_any_connected_list_of_edges(case):
    m, edges = case
    graph = Graph.from_edges(m, edges)
    undirected = {frozenset(edge) for edge in edges}
    assert graph.size == m
    assert graph.edge_count == len(undirected)
    assert graph.diameter() == _floyd_warshall(m, edges).max()
    for j, ks in enumerate(graph.neighbours):
        assert list(ks) == sorted(k for k in range(m) if frozenset((j, k)) in undirected)
    W = graph.adjacency()
    np.testing.assert_array_equal(W, W.T)
    assert {frozenset((int(j), int(k))) for j, k in np.argwhere(W)} == undirected
    assert set(np.unique(W)) <= {0.0, 1.0}


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=8))
def test_connected_is_what_floyd_warshall_says(m, pairs):
    edges = [(j, k) for j, k in pairs if j < m and k < m and j != k]
    if np.isfinite(_floyd_warshall(m, edges)).all():
        assert Graph.from_edges(m, edges).size == m
    else:
        with pytest.raises(ConfigError, match="not connected"):
            Graph.from_edges(m, edges)


def test_duplicate_edges_count_once():
    graph = Graph.from_edges(3, [(0, 1), (1, 0), (0, 1), [1, 2], (np.int64(2), np.int64(1))])
    assert graph == Graph.from_edges(3, [(0, 1), (1, 2)])
    assert graph.neighbours == ((1,), (0, 2), (1,))
    assert graph.edge_count == 2
    assert hash(graph) == hash(path(3))


@pytest.mark.parametrize(
    ("m", "edges", "message"),
    [
        (3, [(0, 1), (1, 1), (1, 2)], r"edge \(1, 1\) joins node 1 to itself: remove it"),
        (3, [(0, 1), (1, 3)], r"edge \(1, 3\) names a node outside 0\.\.2: there are 3 data sets"),
        (3, [(0, 1), (-1, 2)], r"edge \(-1, 2\) names a node outside 0\.\.2"),
        (3, [(0, 1, 2)], r"edge \(0, 1, 2\) must be a pair of whole numbers from 0 to 2"),
        (3, [(0, 1), (2,)], r"edge \(2,\) must be a pair of whole numbers from 0 to 2"),
        (4, [(0, 1), (2, 3)], r"no path from node 0 to node 2, 3; add an edge"),
        (2, [], r"no path from node 0 to node 1; add an edge"),
        (30, [(0, 1)], r"node 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.; add an edge"),
        (0, [], r"no node: give at least one data set"),
    ],
)
def test_a_bad_edge_is_named_with_its_remedy(m, edges, message):
    with pytest.raises(ConfigError, match=message):
        Graph.from_edges(m, edges)


@pytest.mark.parametrize("edge", [(0, 1.5), (0, "1"), ("a", "b"), (0, None)])
def test_an_end_that_is_no_node_number_is_refused(edge):
    with pytest.raises(ConfigError, match=r"edge .* must be a pair of whole numbers from 0 to 1"):
        Graph.from_edges(2, [edge])


def test_known_diameters():
    assert Graph.from_edges(1, []).diameter() == 0
    assert [path(5).diameter(), star(5).diameter(), complete(5).diameter(), ring(7).diameter()] == [
        4,
        2,
        1,
        3,
    ]


def _round(graph, tau, c, b, u):
    """The two updates of the docstring, as written."""
    W = graph.adjacency()
    D = np.diag(W.sum(axis=1))
    u = u + tau * (D - W) @ b
    return np.linalg.solve(np.eye(graph.size) + 2.0 * tau * D, c - u + tau * (D + W) @ b), u


def _measured_rate(graph, tau, rounds=1000):
    """Mean shrinkage of the error per round, after as many rounds to forget the start."""
    rng = np.random.default_rng(0)
    b, u = rng.standard_normal((2, graph.size))
    shrinkage = []
    for _ in range(2 * rounds):
        b, u = _round(graph, tau, 0.0, b, u - u.mean())
        size = np.linalg.norm([b, u])
        shrinkage.append(np.log(size))
        b, u = b / size, u / size
    return np.exp(np.mean(shrinkage[rounds:]))


GRAPHS = {
    "pair": path(2),
    "path": path(6),
    "star": star(6),
    "complete": complete(5),
    "ring": ring(7),
    "kite": Graph.from_edges(5, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)]),
}


@pytest.mark.parametrize("tau", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("name", GRAPHS)
def test_contraction_is_the_rate_of_the_iteration(name, tau):
    predicted = contraction(GRAPHS[name], tau)
    assert predicted < 1.0
    assert _measured_rate(GRAPHS[name], tau) == pytest.approx(predicted, abs=0.002)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_iteration_ends_at_the_mean(name):
    graph = GRAPHS[name]
    c = np.random.default_rng(1).standard_normal(graph.size)
    b, u = np.zeros((2, graph.size))
    tau = penalty_parameter(graph)
    for _ in range(400):
        b, u = _round(graph, tau, c, b, u)
    np.testing.assert_allclose(b, c.mean(), atol=1e-10)


def test_contraction_of_a_single_node_is_zero():
    assert contraction(Graph.from_edges(1, []), 0.7) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_edges(1, []),
        path(2),
        path(3),
        path(12),
        path(60),
        star(12),
        star(60),
        complete(12),
        ring(60),
    ],
    ids=lambda g: f"m{g.size}e{g.edge_count}",
)
def test_penalty_parameter_is_positive_short_and_repeatable(graph):
    tau = penalty_parameter(graph)
    assert tau > 0
    assert tau == penalty_parameter(Graph(graph.neighbours))
    assert tau == float(f"{tau:.1e}")
    assert contraction(graph, tau) < 1.0


@pytest.mark.parametrize(
    "graph",
    [path(2), path(8), path(40), star(20), complete(6), complete(45), ring(30), GRAPHS["kite"]],
    ids=lambda g: f"m{g.size}e{g.edge_count}",
)
def test_half_the_penalty_parameter_contracts_fastest(graph):
    """Against a scan ten times as wide as any of these optima; the grid's own step costs a few per cent."""
    scan = [contraction(graph, float(tau)) for tau in np.geomspace(1e-3, 100.0, 60)]
    best = -np.log(min(scan))
    assert -np.log(contraction(graph, penalty_parameter(graph) / 2.0)) >= 0.85 * best


def test_penalty_parameter_does_not_depend_on_names_of_nodes():
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 4), (4, 5)]
    names = [3, 5, 0, 2, 1, 4]
    renamed = [(names[j], names[k]) for j, k in edges]
    assert penalty_parameter(Graph.from_edges(6, edges)) == penalty_parameter(Graph.from_edges(6, renamed))


# -- without some of its edges -------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(connected_edges(), st.data())
def test_what_is_left_when_edges_are_cut(case, data):
    m, edges = case
    graph = Graph.from_edges(m, edges)
    cut = data.draw(st.lists(st.sampled_from(edges))) if edges else []
    rest = graph.without(cut)
    left = {frozenset(edge) for edge in edges} - {frozenset(edge) for edge in cut}
    assert {frozenset((j, k)) for j, ks in enumerate(rest.neighbours) for k in ks} == left
    assert all(list(ks) == sorted(ks) for ks in rest.neighbours)
    joined = np.isfinite(_floyd_warshall(m, [tuple(edge) for edge in left]))
    parts = {tuple(map(int, np.flatnonzero(row))) for row in joined}
    largest = rest.largest_part()
    assert largest in parts
    assert len(largest) == max(map(len, parts))
    part = rest.part(largest)
    assert part == Graph.from_edges(
        len(largest), [tuple(map(largest.index, edge)) for edge in left if edge <= set(largest)]
    )


def test_edges_are_cut_whichever_way_they_are_named_and_strangers_do_not_matter():
    graph = path(4)
    assert graph.without([(2, 1)]).neighbours == ((1,), (0,), (3,), (2,))
    assert graph.without([(0, 3), (7, 8)]) == graph
    assert graph.without([(1, 2)]).largest_part() == (
        0,
        1,
    )  # of two that are as large, that of the first node
    assert graph.without([(0, 1)]).part((1, 2, 3)) == path(3)
    assert graph.without([(0, 1), (1, 2), (2, 3)]).largest_part() == (0,)


# -- what flows over an edge ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(connected_edges())
def test_flows_are_those_of_least_squares(case):
    """The smallest flow that takes every member's deviation from the mean away, by a dense solver."""
    m, edges = case
    graph = Graph.from_edges(m, edges)
    pairs = [(j, k) for j, ks in enumerate(graph.neighbours) for k in ks if j < k]
    incidence = np.zeros((m, len(pairs)))
    for e, (j, k) in enumerate(pairs):
        incidence[j, e], incidence[k, e] = 1.0, -1.0
    expected = np.zeros((m, m))
    if pairs:
        flow = np.linalg.lstsq(incidence, np.eye(m) - 1.0 / m, rcond=None)[0]  # (edges, m): of a unit at each
        for (j, k), row in zip(pairs, flow, strict=True):
            expected[j, k] = expected[k, j] = np.sqrt(np.sum(row**2))
    np.testing.assert_allclose(graph.flows(), expected, atol=1e-12)
    np.testing.assert_array_equal(graph.flows(), graph.flows().T)  # both ends have the same box, to the bit


def test_flows_are_deviations_of_the_duals_that_the_iteration_ends_with():
    graph, rng = GRAPHS["kite"], np.random.default_rng(0)
    tau, W = penalty_parameter(graph), graph.adjacency()
    D = np.diag(W.sum(axis=1))
    draws = 4000
    c = rng.standard_normal((graph.size, draws))
    b = u = np.zeros_like(c)
    duals = np.zeros((graph.size, graph.size, draws))
    for _ in range(300):
        duals += tau * W[:, :, None] * (b[:, None] - b[None, :])
        u = duals.sum(axis=1)
        b = np.linalg.solve(np.eye(graph.size) + 2.0 * tau * D, c - u + tau * (D + W) @ b)
    np.testing.assert_allclose(duals.std(axis=2), graph.flows(), rtol=0.05, atol=1e-9)


def test_known_flows():
    assert Graph.from_edges(1, []).flows().tolist() == [[0.0]]
    assert path(2).flows()[0, 1] == pytest.approx(np.sqrt(0.5))
    # Over edge j of a path goes what the first j + 1 members are apart from their share.
    ends = [np.sqrt(k * (1 - k / 6)) for k in range(1, 6)]
    np.testing.assert_allclose([path(6).flows()[j, j + 1] for j in range(5)], ends)
    np.testing.assert_allclose(complete(5).flows()[0, 1:], np.sqrt(2) / 5)
