"""The exact solver: degenerate data, every shape, every scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import pilot_exactness
from desmr_node.core.median import l1_quantile, l1_quantile_certified
from desmr_node.core.median import solve as solve_module
from desmr_node.core.median.problem import Effort, TiltedProblem, checked_problem
from desmr_node.core.median.vertex import Vertex


@st.composite
def problems(draw):
    """Small tables of few distinct values: ties, dependent columns and zero rows are the rule."""
    n, p = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    values = st.sampled_from([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 0.5])
    X = np.array(draw(st.lists(values, min_size=n * p, max_size=n * p))).reshape(n, p)
    y = np.array(draw(st.lists(values, min_size=n, max_size=n)))
    lam = np.array(draw(st.lists(st.sampled_from([0.0, 0.05, 0.25, 1.0, 10.0]), min_size=p, max_size=p)))
    column = 10.0 ** np.array(draw(st.lists(st.integers(-8, 8), min_size=p, max_size=p)))
    return (
        X * column,
        y * 10.0 ** draw(st.integers(-9, 9)),
        lam * column,
        draw(st.sampled_from([0.1, 0.5, 0.75])),
    )


@settings(max_examples=250, deadline=None)
@given(problems())
def test_any_small_table_is_solved_with_proof(problem):
    X, y, lam, quantile = problem
    solution = l1_quantile_certified(X, y, lam, quantile)
    assert solution.optimal
    assert solution.gap <= 1e-10
    reference = pilot_exactness.highs(pilot_exactness.Case(X, y, lam, quantile))
    checked = checked_problem(X, y, lam, quantile)
    scale = max(solution.objective, 1e-3 * checked.objective(np.zeros(len(lam))))
    assert solution.objective - checked.objective(reference) <= 1e-10 * scale


def _table(n, p, seed=0, noise="normal"):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    error = rng.standard_cauchy(n) if noise == "cauchy" else rng.standard_normal(n)
    return X, X[:, : min(p, 5)] @ np.arange(1.0, min(p, 5) + 1.0) + error


@pytest.mark.parametrize("noise", ["normal", "cauchy"])
@pytest.mark.parametrize(("n", "p"), [(200, 100), (60, 400), (2500, 60), (40_000, 20), (400, 700)])
def test_sizes_that_choose_each_strategy(n, p, noise):
    X, y = _table(n, p, noise=noise)
    assert l1_quantile_certified(X, y, np.sqrt(np.log(p) / n)).gap <= 1e-11


def test_the_objective_is_the_documented_one():
    X, y = _table(30, 4)
    lam, q = np.array([0.0, 0.1, 0.2, 0.3]), 0.3
    solution = l1_quantile_certified(X, y, lam, q)
    r = y - X @ solution.coef
    expected = np.mean(2.0 * np.where(r > 0, q * r, (q - 1) * r)) + np.sum(lam * np.abs(solution.coef))
    assert solution.objective == pytest.approx(expected, rel=1e-13)


def test_an_intercept_alone_is_the_sample_quantile():
    y = np.arange(101.0) ** 2
    for q in (0.1, 0.5, 0.9):
        fitted = l1_quantile(np.ones((101, 1)), y, 0.0, q)
        assert np.mean(y < fitted[0]) <= q <= np.mean(y <= fitted[0])


def test_as_many_residuals_are_zero_as_coefficients_are_not():
    X, y = _table(80, 30, noise="cauchy")
    b = l1_quantile(X, y, 0.1)
    zeros = np.count_nonzero(np.abs(y - X @ b) <= 1e-12 * np.abs(y).max())
    assert zeros == np.count_nonzero(b) > 0


def test_same_input_same_bits():
    for n, p in ((100, 40), (20_000, 30), (100, 400)):
        X, y = _table(n, p, noise="cauchy")
        assert l1_quantile(X, y, 0.05).tobytes() == l1_quantile(X.copy(order="F"), y, 0.05).tobytes()


def test_inputs_are_left_alone():
    X, y = _table(50, 10)
    X0, y0, lam = X.copy(), y.copy(), np.full(10, 0.1)
    X *= 1e6  # forces scaling
    before = X.copy()
    l1_quantile_certified(X, y, lam, start=np.ones(10))
    assert np.array_equal(X, before)
    assert np.array_equal(y, y0)
    assert np.array_equal(lam, np.full(10, 0.1))
    assert X0.shape == X.shape


def test_equivariance_in_response_and_columns():
    X, y = _table(120, 30)
    b = l1_quantile(X, y, 0.1)
    np.testing.assert_allclose(l1_quantile(X, 1000.0 * y, 0.1), 1000.0 * b, rtol=1e-9, atol=1e-9)
    scale = 10.0 ** np.linspace(-8, 8, 30)
    np.testing.assert_allclose(l1_quantile(X * scale, y, 0.1 * scale) * scale, b, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        l1_quantile(X, -y, 0.1, 0.3), -l1_quantile(X, y, 0.1, 0.7), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("n", [150, 20_000])
def test_a_start_changes_nothing_but_the_work(n):
    X, y = _table(n, 40)
    cold = l1_quantile_certified(X, y, 0.08)
    near = l1_quantile_certified(X, y, 0.1).coef
    for start in (near, cold.coef, np.zeros(40), 1e3 * np.ones(40)):
        warm = l1_quantile_certified(X, y, 0.08, start=start)
        assert warm.gap <= 1e-11
        np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-9)
    again = l1_quantile_certified(X, y, 0.08, start=cold.coef)
    assert again.interior_iterations + again.pivots < cold.interior_iterations


def test_a_huge_penalty_and_a_zero_response_give_zero():
    X, y = _table(20, 5)
    assert not l1_quantile(X, y, 1e90).any()
    assert not l1_quantile(X, 0.0 * y, 0.0).any()
    zero = l1_quantile_certified(X, 0.0 * y, 0.1)
    assert zero.optimal
    assert zero.gap == 0.0


def test_no_columns_give_an_empty_vector():
    solution = l1_quantile_certified(np.zeros((3, 0)), [1.0, 2.0, -3.0], 0.1)
    assert solution.coef.shape == (0,)
    assert solution.objective == pytest.approx(2.0)
    assert solution.gap == pytest.approx(0.0, abs=1e-15)


def test_extreme_values_within_the_allowed_range():
    X, y = _table(40, 6)
    for size in (1e90, 1e-90):
        solution = l1_quantile_certified(X, y * size, 0.1)
        assert solution.gap <= 1e-10
    y[3] = 1e14  # one wild row among ordinary ones
    assert l1_quantile_certified(X, y, 0.1).gap <= 1e-10
    X[5] *= 1e10  # and one of wild leverage
    assert l1_quantile_certified(X, y, 0.1).optimal


@pytest.mark.parametrize("name", ["generate_columns", "straighten", "from_zero", "from_highs"])
def test_each_strategy_is_exact_on_its_own(name):
    for kind in (pilot_exactness.ties, pilot_exactness.unpenalised, pilot_exactness.duplicated_columns):
        for seed in range(4):
            case = kind(np.random.default_rng(seed))
            problem = checked_problem(case.X, case.y, case.lam, case.quantile)
            scaling = solve_module.Scaling.of(problem)
            strategies = solve_module._strategies(scaling.apply(problem), None)
            chosen = next((s for s in strategies if s.__name__ == name), None)
            if chosen is None:
                continue  # fewer than two unpenalised columns: nothing to straighten
            answer = chosen(Effort())
            coef = scaling.outward(answer.coef, case.X.shape[1])
            assert problem.certificate(coef, answer.dual).gap <= 1e-10


def test_failing_strategies_are_replaced_by_the_next(monkeypatch):
    X, y = _table(50, 10)
    expected = l1_quantile(X, y, 0.1)

    class Nowhere:
        coef, dual = np.full(10, np.nan), np.zeros(50)

    monkeypatch.setattr(solve_module, "solve_columns", lambda *_: Nowhere)
    np.testing.assert_allclose(l1_quantile(X, y, 0.1), expected, atol=1e-10)
    monkeypatch.setattr(Vertex, "_descend", lambda self, last_pivot: False)
    solution = l1_quantile_certified(X, y, 0.1)
    assert solution.optimal  # HiGHS alone
    np.testing.assert_allclose(solution.coef, expected, atol=1e-6)


def test_a_singular_basis_is_repaired():
    X = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 3.0]])
    problem = TiltedProblem(X, np.array([1.0, 2.0, 3.0, 4.0]), np.full(3, 0.1), 0.5, np.zeros(3))
    vertex = Vertex(problem, [0, 1, 2], [0, 1, 2])
    assert len(vertex.basis) == 2
    assert vertex.solve(problem.mu, 100)


def test_a_polynomial_without_penalty_is_solved_as_far_as_float64_goes():
    rng = np.random.default_rng(0)
    X = np.vander(np.linspace(0.0, 1.0, 200), 12)
    y = np.sin(5.0 * X[:, -2]) + 0.1 * rng.standard_normal(200)
    raw = l1_quantile_certified(X, y, 0.0)
    Q = np.linalg.qr(X)[0] * np.sqrt(200)
    straight = l1_quantile_certified(Q, y, 0.0)
    assert straight.gap <= 1e-11
    assert raw.objective == pytest.approx(straight.objective, rel=1e-7)
    assert 0.0 <= raw.gap <= 1e-6


def test_many_ties_at_zero_and_wild_rows_among_many_rows():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(16_000), (rng.random((16_000, 20)) < 0.2).astype(float)])
    weights = np.append(0.0, np.ones(20))
    tied = X[:, 1] + np.where(rng.random(16_000) < 0.5, 0.0, rng.standard_normal(16_000))
    assert l1_quantile_certified(X, tied, 0.001 * weights).gap <= 1e-11
    assert l1_quantile_certified(X, np.full(16_000, 12.0), 0.001 * weights).gap <= 1e-11
    wild = rng.standard_cauchy((16_000, 20))
    y = wild[:, 0] + rng.standard_cauchy(16_000)
    assert l1_quantile_certified(wild, y, 0.01).gap <= 1e-10
