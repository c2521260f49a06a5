"""Every baseline against something dumber: HiGHS, scikit-learn, the definition."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, QuantileRegressor

from desmr_node.core.graph import Graph
from desmr_node.datasets import simulated_network
from desmr_node.studies import baselines
from desmr_node.studies.baselines import StepRule


@pytest.fixture(scope="module")
def design():
    return simulated_network(np.random.default_rng(3), noise_name="cauchy", m=4, n=60, p=20, connection=0.6)


def objective(X, y, b, lam):
    return np.abs(y - X @ b).mean() + lam * np.abs(b).sum()


def test_the_pooled_fit_is_the_optimum_that_highs_finds(design):
    X, y = baselines.stacked(design.datasets)
    fit = baselines.chosen(X, y)
    # scikit-learn's pinball loss is half of ours.
    peer = QuantileRegressor(quantile=0.5, alpha=fit.lambda_ / 2, fit_intercept=False, solver="highs")
    best = objective(X, y, peer.fit(X, y).coef_, fit.lambda_)
    assert objective(X, y, fit.coef, fit.lambda_) == pytest.approx(best, rel=1e-10)


def test_the_chosen_lambda_has_the_smallest_bic_of_the_path(design):
    X, y = design.datasets[0]
    n, p = X.shape
    fit = baselines.chosen(X, y)

    def bic(b):
        return n * np.log(np.abs(y - X @ b).mean()) + np.count_nonzero(b) * np.log(n * p)

    for factor in (0.5, 0.7, 1.4, 2.0):
        peer = QuantileRegressor(
            quantile=0.5, alpha=factor * fit.lambda_ / 2, fit_intercept=False, solver="highs"
        )
        other = peer.fit(X, y).coef_
        other[np.abs(other) < 1e-9] = 0.0
        assert bic(fit.coef) < bic(other) + 2.0  # the grid is coarse: a neighbour may be a little better


def test_an_intercept_is_fitted_and_not_penalised(design):
    X, y = design.datasets[2]
    with_constant = baselines.chosen(X, y + 100.0, intercept=True)
    same = baselines.chosen(X, y, intercept=True)
    assert with_constant.intercept == pytest.approx(same.intercept + 100.0)
    np.testing.assert_allclose(with_constant.coef, same.coef, atol=1e-8)
    peer = QuantileRegressor(quantile=0.5, alpha=same.lambda_ / 2, solver="highs").fit(X, y)
    loss = objective(X, y - same.intercept, same.coef, same.lambda_)
    assert loss == pytest.approx(objective(X, y - peer.intercept_, peer.coef_, same.lambda_), rel=1e-9)


def test_bic_without_restraint_interpolates_where_there_are_as_many_columns_as_rows():
    """The paper's Local MR column: F1 0.186 at n = p = 100 is the score of all variables at once."""
    design = simulated_network(np.random.default_rng(0), noise_name="cauchy", m=2, n=40, p=40, connection=1.0)
    X, y = design.datasets[0]
    free, held = baselines.interpolating(X, y), baselines.chosen(X, y).coef
    assert np.abs(y - X @ free).max() < 1e-6
    assert np.count_nonzero(free) == 40
    assert np.count_nonzero(held) <= 10
    assert np.linalg.norm(free - design.coef) > 3 * np.linalg.norm(held - design.coef)


def test_with_more_rows_than_columns_the_restraint_changes_nothing():
    design = simulated_network(
        np.random.default_rng(1), noise_name="normal", m=2, n=120, p=30, connection=1.0
    )
    X, y = design.datasets[1]
    np.testing.assert_array_equal(baselines.interpolating(X, y), baselines.chosen(X, y).coef)


def test_the_lasso_is_scikit_learns(design):
    X, y = design.datasets[1]
    b = baselines.lasso(X, y)
    # At the lambda that explains b: its largest correlation with the residuals.
    lam = np.abs(X.T @ (y - X @ b) / len(y)).max()
    peer = Lasso(alpha=lam, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(b, peer.coef_, atol=1e-6)


def test_the_oracle_is_told_the_support_and_nothing_else(design):
    b = baselines.told_the_support(design.datasets, design.coef)
    X, y = baselines.stacked(design.datasets)
    support = np.flatnonzero(design.coef)
    assert np.count_nonzero(b[design.coef == 0]) == 0
    peer = QuantileRegressor(quantile=0.5, alpha=0.0, solver="highs").fit(X[:, support], y)
    np.testing.assert_allclose(b[support], peer.coef_, atol=1e-7)


def test_metropolis_weights_are_doubly_stochastic_and_follow_the_edges():
    graph = Graph.from_edges(4, [(0, 1), (1, 2), (1, 3)])
    W = baselines.metropolis(graph)
    np.testing.assert_allclose(W.sum(axis=0), 1.0)
    np.testing.assert_allclose(W, W.T)
    assert W[0, 2] == 0.0
    assert W[0, 1] == pytest.approx(1 / 4)  # node 1 has three neighbours
    assert (np.diag(W) > 0).all()


def test_subgradients_end_at_the_pooled_optimum(design):
    X, y = baselines.stacked(design.datasets)
    pooled = baselines.chosen(X, y)
    graph = Graph.from_edges(4, design.edges)
    start = np.stack([baselines.chosen(*rows).coef for rows in design.datasets])
    seen = []
    rule = StepRule(first=1.0, decay=0.99)
    B = baselines.subgradient_descent(
        design.datasets, graph, start, pooled.lambda_, rule, 1500, lambda t, _: seen.append(t)
    )
    best = objective(X, y, pooled.coef, pooled.lambda_)
    for b in B:
        assert best <= objective(X, y, b, pooled.lambda_) < best * (1 + 1e-3)
    assert objective(X, y, start[0], pooled.lambda_) > best * 1.01
    assert seen == list(range(1, 1501))


def test_step_rules_are_what_they_say():
    np.testing.assert_allclose(StepRule(2.0).lengths(3), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(StepRule(2.0, power=1.0).lengths(3), [2.0, 1.0, 2.0 / 3.0])
    np.testing.assert_allclose(StepRule(2.0, decay=0.5).lengths(3), [2.0, 1.0, 0.5])
