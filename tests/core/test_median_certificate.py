"""The certificate proves optimality from the arrays alone, and refuses to where there is none."""

import numpy as np
import pytest

from desmr_node.core.median import l1_quantile_certified
from desmr_node.core.median.problem import checked_problem


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((90, 12))
    return X, X[:, 0] * 2.0 - X[:, 1] + rng.standard_normal(90)


@pytest.mark.parametrize("free", [0, 1, 5, 12])
@pytest.mark.parametrize("quantile", [0.5, 0.8])
def test_dual_vector_is_feasible_and_tight(table, free, quantile):
    X, y = table
    lam = np.where(np.arange(12) < free, 0.0, 0.1)
    solution = l1_quantile_certified(X, y, lam, quantile)
    n = len(y)
    assert solution.dual.min() >= quantile - 1.0 - 1e-12
    assert solution.dual.max() <= quantile + 1e-12
    assert np.all(np.abs(X.T @ solution.dual) <= 0.5 * n * lam + 1e-10)
    assert 2.0 / n * y @ solution.dual == pytest.approx(solution.objective, rel=1e-11)


@pytest.mark.parametrize("free", [0, 1, 5])
def test_a_worse_point_has_a_gap_no_smaller_than_its_excess(table, free):
    X, y = table
    lam = np.where(np.arange(12) < free, 0.0, 0.1)
    best = l1_quantile_certified(X, y, lam)
    problem = checked_problem(X, y, lam, 0.5)
    rng = np.random.default_rng(0)
    for size in (1e-6, 1e-3, 0.1, 10.0):
        moved = best.coef + size * rng.standard_normal(12)
        for dual in (best.dual, rng.uniform(-2.0, 2.0, 90), np.zeros(90), np.sign(y - X @ moved) / 2.0):
            certificate = problem.certificate(moved, dual)
            excess = certificate.objective - best.objective
            assert excess > 0.0
            assert certificate.gap * certificate.objective >= excess * (1.0 - 1e-6)
            assert certificate.bound <= best.objective * (1.0 + 1e-12)


def test_the_right_coefficients_with_a_wrong_dual_are_not_proved(table):
    X, y = table
    problem = checked_problem(X, y, 0.1, 0.5)
    best = l1_quantile_certified(X, y, 0.1)
    assert problem.certificate(best.coef, 0.9 * best.dual).gap > 1e-2
    assert problem.certificate(best.coef, -best.dual).gap > 0.1


def test_equations_are_restored_where_the_penalty_is_zero(table):
    X, y = table
    problem = checked_problem(X, y, 0.0, 0.5)
    best = l1_quantile_certified(X, y, 0.0)
    certificate = problem.certificate(best.coef, best.dual + 1e-7 * np.sin(np.arange(90.0)))
    assert np.abs(X.T @ certificate.dual).max() <= 1e-12
    assert 0.0 <= certificate.gap <= 1e-5
    assert best.gap <= 1e-12


def test_tiny_penalties_do_not_spoil_the_bound(table):
    X, y = table
    lam = 10.0 ** np.linspace(-14, -1, 12)
    assert l1_quantile_certified(X, y, lam).gap <= 1e-11


def test_interpolation_has_a_gap_relative_to_the_response():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((10, 30)), 1e5 * rng.standard_normal(10)
    solution = l1_quantile_certified(X, y, 0.0)
    assert solution.objective <= 1e-10 * np.abs(y).mean()
    assert solution.optimal
    not_quite = checked_problem(X, y, 0.0, 0.5).certificate(solution.coef * 1.001, solution.dual)
    assert not_quite.gap > 1e-2


def test_an_answer_that_is_not_optimal_is_not_called_so(monkeypatch, table):
    from desmr_node.core.median import solve as solve_module

    X, y = table
    only = solve_module._Answer(np.zeros(12), np.zeros(90))
    monkeypatch.setattr(solve_module, "_strategies", lambda scaled, start: iter([lambda effort: only]))
    solution = l1_quantile_certified(X, y, 0.1)
    assert not solution.optimal
    assert solution.gap == pytest.approx(1.0)


def test_no_dual_vector_proves_too_much_where_penalties_are_tiny():
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((20, 60)), rng.standard_normal(20)
    lam = np.full(60, 1e-5)
    best = l1_quantile_certified(X, y, lam)
    problem = checked_problem(X, y, lam, 0.5)
    assert best.gap <= 1e-11
    for coef in (np.zeros(60), best.coef):
        for _ in range(20):
            certificate = problem.certificate(coef, rng.uniform(-1.0, 1.0, 20))
            assert certificate.bound <= best.objective * (1.0 + 1e-9)
