"""Generators of the paper's simulated networks."""

import numpy as np
import pytest

from desmr_node.core.graph import Graph
from desmr_node.datasets.designs import NOISES, erdos_renyi, noise, simulated_network
from desmr_node.errors import ConfigError


def _rng(seed=0):
    return np.random.default_rng(seed)


def test_noise_names():
    assert NOISES == ("normal", "exponential", "cauchy", "t1")


#: Quartiles of each law.
QUARTILES = {
    "normal": [-0.67449, 0.0, 0.67449],
    "exponential": [np.log(4 / 3), np.log(2), np.log(4)],
    "cauchy": [-1.0, 0.0, 1.0],
    "t1": [-1.0, 0.0, 1.0],
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_has_the_quartiles_of_its_law(name):
    e = noise(name, 200_000, _rng(1))
    assert e.shape == (200_000,)
    np.testing.assert_allclose(np.quantile(e, [0.25, 0.5, 0.75]), QUARTILES[name], atol=0.015)


def test_unknown_noise_is_refused_with_the_choices():
    with pytest.raises(
        ConfigError, match=r"noise 'gauss' is unknown: choose one of normal, exponential, cauchy, t1"
    ):
        noise("gauss", 3, _rng())
    with pytest.raises(ConfigError, match="'gauss' is unknown"):
        simulated_network(_rng(), noise_name="gauss", n=5, p=3)


@pytest.mark.parametrize(
    ("m", "probability"), [(1, 0.3), (2, 0.5), (3, 0.4), (10, 0.3), (10, 0.15), (40, 0.1)]
)
def test_random_graphs_are_connected(m, probability):
    for seed in range(20):
        edges = erdos_renyi(m, probability, _rng(seed))
        assert Graph.from_edges(m, edges).edge_count == len(edges)
        assert all(j < k for j, k in edges)


def test_edges_come_with_the_asked_probability():
    """At 0.5 a draw is hardly ever refused, so the share of edges is that of one draw."""
    share = np.mean([len(erdos_renyi(15, 0.5, _rng(seed))) / 105 for seed in range(60)])
    assert share == pytest.approx(0.5, abs=0.03)
    assert len(erdos_renyi(6, 1.0, _rng())) == 15


def test_a_graph_that_is_never_connected_is_given_up():
    with pytest.raises(ConfigError, match=r"no connected graph of 3 nodes .* raise the probability 0\.0"):
        erdos_renyi(3, 0.0, _rng())


def test_defaults_are_the_paper():
    design = simulated_network(_rng())
    assert len(design.datasets) == 10
    assert all(X.shape == (200, 100) and y.shape == (200,) for X, y in design.datasets)
    np.testing.assert_array_equal(design.coef, [*range(1, 11), *[0] * 90])
    assert Graph.from_edges(10, design.edges).size == 10


@pytest.mark.parametrize("p", [1, 4, 10, 11])
def test_few_columns_keep_the_first_coefficients(p):
    design = simulated_network(_rng(), n=6, p=p, m=2, connection=0.9)
    np.testing.assert_array_equal(design.coef, [*range(1, min(p, 10) + 1), *[0] * (p - min(p, 10))])


@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.6])
def test_predictors_have_the_asked_covariance(correlation):
    design = simulated_network(_rng(2), m=2, n=60_000, p=5, connection=0.9, correlation=correlation)
    X = np.concatenate([X for X, _ in design.datasets])
    asked = [[correlation ** abs(i - j) for j in range(5)] for i in range(5)]
    np.testing.assert_allclose(np.cov(X.T), asked, atol=0.02)
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=0.02)


@pytest.mark.parametrize("name", NOISES)
def test_what_is_left_of_the_response_is_the_noise(name):
    design = simulated_network(_rng(3), noise_name=name, m=4, n=5000, p=12, connection=0.9)
    e = np.concatenate([y - X @ design.coef for X, y in design.datasets])
    np.testing.assert_allclose(np.quantile(e, [0.25, 0.5, 0.75]), QUARTILES[name], atol=0.05)


def test_members_are_different_and_a_seed_fixes_them():
    first, again, other = (simulated_network(_rng(seed), n=20, p=4) for seed in (5, 5, 6))
    assert first.edges == again.edges
    for (X, y), (X2, y2), (X3, _) in zip(first.datasets, again.datasets, other.datasets, strict=True):
        np.testing.assert_array_equal(X, X2)
        np.testing.assert_array_equal(y, y2)
        assert not np.array_equal(X, X3)
    assert not np.array_equal(first.datasets[0][0], first.datasets[1][0])


def test_members_that_differ_in_covariates_draw_a_covariance_each():
    design = simulated_network(_rng(2), m=12, n=4000, p=3, connection=0.5, heterogeneity="covariate")
    found = {(round(X[:, 0].var()), round(np.corrcoef(X.T)[0, 1], 1)) for X, _ in design.datasets}
    assert found == {(1, 0.1), (1, 0.3), (3, 0.1), (3, 0.3)}


def test_members_that_differ_in_noise_draw_a_kind_each():
    design = simulated_network(_rng(1), m=20, n=3000, p=3, connection=0.5, heterogeneity="noise")
    kinds = set()
    for X, y in design.datasets:
        e = y - X @ design.coef
        heavy, skewed = np.abs(e).max() > 50, e.min() >= 0
        kinds.add((bool(heavy), bool(skewed)))
    assert kinds == {(False, False), (False, True), (True, False)}


def test_alike_members_are_drawn_as_ever():
    """The stream of random numbers of the plain design is part of every published figure."""
    design = simulated_network(_rng(0), m=2, n=2, p=3, connection=1.0)
    again = _rng(0)
    erdos_renyi(2, 1.0, again)
    lags = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    X = again.standard_normal((2, 3)) @ np.linalg.cholesky(0.1**lags).T
    np.testing.assert_array_equal(design.datasets[0][0], X)
