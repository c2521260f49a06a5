"""Paths of penalties, and where they start."""

import numpy as np
import pytest

from desmr_node.core.median import l1_quantile, l1_quantile_path, lambda_max
from desmr_node.core.median.problem import checked_problem
from desmr_node.core.median.vertex import Vertex


def _table(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, p - 1))])
    return X, 3.0 + X[:, 1] - 2.0 * X[:, 2] + rng.standard_cauchy(n)


@pytest.mark.parametrize("quantile", [0.5, 0.3])
@pytest.mark.parametrize(("n", "p"), [(61, 20), (25, 50), (16_001, 21)])
def test_path_equals_separate_solves(n, p, quantile):  # odd n: the intercept alone is unique
    X, y = _table(n, p)
    weights = np.where(np.arange(p) == 0, 0.0, 1.0 + np.arange(p) % 3)
    lams = lambda_max(X, y, quantile, weights) * np.array([1.2, 0.8, 0.5, 0.5, 0.2, 0.05])
    path = l1_quantile_path(X, y, lams, quantile, weights)
    assert path.shape == (6, p)
    for lam, coef in zip(lams, path, strict=True):
        np.testing.assert_allclose(coef, l1_quantile(X, y, lam * weights, quantile), atol=1e-8)
    assert np.count_nonzero(path[0]) == 1
    np.testing.assert_allclose(path[2], path[3], atol=1e-13)


def test_path_down_to_no_penalty_at_all():
    X, y = _table(40, 6)
    path = l1_quantile_path(X, y, [0.1, 0.0])
    np.testing.assert_allclose(path[1], l1_quantile(X, y, 0.0), atol=1e-9)


def test_path_on_degenerate_rows_has_optimal_objectives():
    rng = np.random.default_rng(2)
    X, y = rng.integers(-1, 2, (50, 12)).astype(float), rng.integers(-2, 3, 50).astype(float)
    lams = [0.5, 0.25, 0.1, 0.0]
    for lam, coef in zip(lams, l1_quantile_path(X, y, lams), strict=True):
        problem = checked_problem(X, y, lam, 0.5)
        assert problem.objective(coef) == pytest.approx(problem.objective(l1_quantile(X, y, lam)), rel=1e-12)


def test_path_survives_a_lost_vertex(monkeypatch):
    X, y = _table(40, 10)
    expected = l1_quantile_path(X, y, [0.3, 0.1])
    solve = Vertex.solve
    monkeypatch.setattr(
        Vertex, "solve", lambda self, mu, limit: solve(self, mu, limit) and self.pivots % 2 == 0
    )
    np.testing.assert_allclose(l1_quantile_path(X, y, [0.3, 0.1]), expected, atol=1e-9)


def test_empty_path_zero_response_and_no_columns():
    X, y = _table(10, 4)
    assert l1_quantile_path(X, y, []).shape == (0, 4)
    assert not l1_quantile_path(X, 0.0 * y, [1.0, 0.0]).any()
    assert l1_quantile_path(np.zeros((3, 0)), [1.0, 2.0, 3.0], [1.0]).shape == (1, 0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_lambda_max_is_where_the_first_coefficient_appears(intercept, quantile):
    X, y = _table(80, 10, seed=4)
    weights = np.ones(10)
    weights[0] = 0.0 if intercept else 1.0
    top = lambda_max(X, y, quantile, weights)
    assert not l1_quantile(X, y, 1.000001 * top * weights, quantile)[1:].any()
    assert np.count_nonzero(l1_quantile(X, y, 0.9999 * top * weights, quantile)) == 1 + intercept


def test_lambda_max_without_anything_to_penalise():
    X, y = _table(10, 4)
    assert lambda_max(X, y, weights=np.zeros(4)) == 0.0
    assert lambda_max(np.zeros((10, 2)), y) == 0.0
    assert lambda_max(np.zeros((10, 0)), y) == 0.0
    assert lambda_max(X, 0.0 * y) == 0.0


def test_a_path_may_stop_at_a_number_of_nonzeros():
    X, y = _table(60, 20)
    lams = np.geomspace(0.5, 0.01, 12)
    whole = l1_quantile_path(X, y, lams)
    counts = np.count_nonzero(whole, axis=1)
    most = int(counts[6])
    short = l1_quantile_path(X, y, lams, most=most)
    np.testing.assert_array_equal(short, whole[: np.flatnonzero(counts > most)[0]])
    assert len(l1_quantile_path(X, y, [0.001, 0.0005], most=1)) == 1  # the first always counts
