"""The exact local update against plain coordinate descent, and its optimality conditions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg.lapack import dposv

from desmr_node.core import subproblem
from desmr_node.core.quadratic import Dense, Rows, Scaled, add
from desmr_node.core.subproblem import Solver, optimality_violation, solve


def _plain_coordinate_descent(Q, q, w, sweeps=20_000):
    """One column, one coordinate at a time, until nothing moves."""
    b = np.zeros(len(q))
    for _ in range(sweeps):
        moved = 0.0
        for i in range(len(q)):
            z = q[i] - Q[i] @ b + Q[i, i] * b[i]
            new = np.sign(z) * max(abs(z) - w[i], 0.0) / Q[i, i]
            moved = max(moved, abs(new - b[i]))
            b[i] = new
        if moved <= 1e-15 * np.abs(b).max():
            break
    return b


def _objective(Q, q, w, b):
    return 0.5 * b @ Q @ b - q @ b + w @ np.abs(b)


def _relative_violation(Q, rhs, w, B):
    """Violation of the optimality conditions over what rounding makes of them: 1 is the allowance."""
    violation = optimality_violation(Q @ B - rhs, B, w).max(axis=0)
    size = np.abs(rhs).max(axis=0) + w.max(axis=0) + np.abs(Q).sum(axis=1).max() * np.abs(B).max(axis=0)
    return np.max(violation / (1e-11 * size + 1e-290))


def _problem(seed, p, L, kind="plain"):
    rng = np.random.default_rng(seed)
    n = 2 * p + 3
    X = rng.standard_normal((n, p))
    ridge = 0.0
    if kind == "ill-conditioned":
        X = X @ np.diag(np.geomspace(1e-3, 1.0, p)) @ np.linalg.qr(rng.standard_normal((p, p)))[0]
        ridge = 1e-8
    elif kind == "duplicated":
        X = X[:, rng.integers(0, max(p // 2, 1), p)]
        ridge = 1e-3
    elif kind == "correlated":
        X = X + 3.0 * rng.standard_normal((n, 1))
    Q = X.T @ X / n + ridge * np.eye(p)
    rhs = X.T @ rng.standard_normal((n, L)) / n**0.5
    w = np.abs(rng.standard_normal((p, L))) * 0.5
    w[rng.random((p, L)) < 0.2] = 0.0
    return Q, rhs, w


KINDS = ["plain", "ill-conditioned", "duplicated", "correlated"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("L", [1, 7])
@pytest.mark.parametrize("p", [1, 2, 5, 12, 40])
def test_optimality_conditions_hold(p, L, kind):
    for seed in range(8):
        Q, rhs, w = _problem(seed, p, L, kind)
        B = solve(Dense(Q), rhs, w, np.zeros((p, L)))
        assert B.shape == (p, L)
        assert _relative_violation(Q, rhs, w, B) <= 1.0


@pytest.mark.parametrize("kind", ["plain", "duplicated", "correlated"])
@pytest.mark.parametrize("p", [1, 3, 8])
def test_same_as_plain_coordinate_descent(p, kind):
    for seed in range(5):
        Q, rhs, w = _problem(100 + seed, p, 3, kind)
        B = solve(Dense(Q), rhs, w, np.zeros((p, 3)))
        for column in range(3):
            slow = _plain_coordinate_descent(Q, rhs[:, column], w[:, column])
            np.testing.assert_allclose(B[:, column], slow, atol=1e-9 * (1 + np.abs(slow).max()))
            np.testing.assert_array_equal(B[:, column] == 0, slow == 0)


def test_ill_conditioned_is_no_worse_than_plain_coordinate_descent():
    """Coordinate descent crawls here; the objective is what can be compared."""
    for seed in range(3):
        Q, rhs, w = _problem(seed, 10, 1, "ill-conditioned")
        B = solve(Dense(Q), rhs, w, np.zeros((10, 1)))
        slow = _plain_coordinate_descent(Q, rhs[:, 0], w[:, 0], sweeps=300)
        assert _objective(Q, rhs[:, 0], w[:, 0], B[:, 0]) <= _objective(Q, rhs[:, 0], w[:, 0], slow) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_warm_start_and_cold_start_end_alike(kind):
    rng = np.random.default_rng(8)
    for seed in range(5):
        Q, rhs, w = _problem(seed, 15, 7, kind)
        cold = solve(Dense(Q), rhs, w, np.zeros((15, 7)))
        for start in (cold, -cold, rng.standard_normal((15, 7)), np.ones((15, 7)), 1e6 * cold):
            warm = solve(Dense(Q), rhs, w, start)
            np.testing.assert_array_equal(warm == 0, cold == 0)
            np.testing.assert_allclose(warm, cold, rtol=1e-7, atol=1e-9 * np.abs(cold).max())


def test_the_start_is_left_alone():
    Q, rhs, w = _problem(0, 6, 2)
    arrays = (rhs, w, np.ones((6, 2)))
    before = [a.copy() for a in arrays]
    solve(Dense(Q), *arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_no_weights_is_a_linear_system():
    Q, rhs, w = _problem(1, 9, 4)
    np.testing.assert_allclose(solve(Dense(Q), rhs, 0 * w, 0 * rhs), np.linalg.solve(Q, rhs), rtol=1e-9)


def test_free_coordinates_take_no_exchange(monkeypatch):
    """Whatever their signs: an unpenalised coefficient has no side to change."""
    monkeypatch.setattr(subproblem, "_EXCHANGES", 1)
    monkeypatch.setattr(subproblem, "_coordinate_descent", None)
    Q, rhs, w = _problem(1, 9, 4)
    B = solve(Dense(Q), rhs, 0 * w, np.zeros_like(rhs))
    assert (B < 0).any()
    assert (B > 0).any()


def test_a_coordinate_enters_as_soon_as_its_gradient_exceeds_its_weight():
    w = np.array([[1.0 - 1e-9, 1.0, 1.0 + 1e-9]])
    B = solve(Dense(np.array([[2.0]])), np.ones((1, 3)), w, np.zeros((1, 3)))
    np.testing.assert_allclose(B, [[0.5e-9, 0.0, 0.0]], atol=1e-15)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_zero_right_hand_side_gives_zero(weight):
    Q, rhs, _ = _problem(2, 9, 4)
    start = np.random.default_rng(0).standard_normal(rhs.shape)
    np.testing.assert_array_equal(solve(Dense(Q), 0 * rhs, np.full_like(rhs, weight), start), 0.0)


def test_large_weights_give_exact_zeros():
    Q, rhs, _ = _problem(3, 9, 4)
    w = np.abs(rhs).max() * np.ones_like(rhs)
    np.testing.assert_array_equal(solve(Dense(Q), rhs, w, np.ones_like(rhs)), 0.0)


def test_columns_do_not_mix():
    Q, rhs, w = _problem(4, 12, 7)
    together = solve(Dense(Q), rhs, w, np.zeros_like(rhs))
    for column in range(7):
        one = slice(column, column + 1)
        alone = solve(Dense(Q), rhs[:, one], w[:, one], np.zeros((12, 1)))
        np.testing.assert_array_equal(together[:, one], alone)


@pytest.mark.parametrize(("n", "p"), [(5, 20), (1, 6), (30, 8)])
def test_rows_serve_as_well_as_the_matrix(n, p):
    rng = np.random.default_rng(n)
    R = rng.standard_normal((n, p)) / n**0.5
    rhs, w = rng.standard_normal((p, 3)), np.full((p, 3), 0.2)
    Q = add(Rows(R), Scaled(1.0, p), 0.05)
    dense = R.T @ R + 0.05 * np.eye(p)
    B = solve(Q, rhs, w, np.zeros((p, 3)))
    np.testing.assert_allclose(B, solve(Dense(dense), rhs, w, np.zeros((p, 3))), rtol=1e-8, atol=1e-10)
    assert _relative_violation(dense, rhs, w, B) <= 1.0


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 10),
    st.sampled_from([1, 7]),
    st.integers(0, 10_000),
    st.integers(-8, 8),
    st.integers(-8, 8),
    st.sampled_from(KINDS),
)
def test_any_shape_at_any_scale(p, L, seed, rhs_power, Q_power, kind):
    Q, rhs, w = _problem(seed, p, L, kind)
    a, c = 10.0**Q_power, 10.0**rhs_power
    B = solve(Dense(a * Q), c * rhs, c * w, np.zeros((p, L)))
    assert _relative_violation(a * Q, c * rhs, c * w, B) <= 1.0
    plain = solve(Dense(Q), rhs, w, np.zeros((p, L)))
    np.testing.assert_allclose(B * a / c, plain, rtol=1e-5, atol=1e-6 * np.abs(plain).max())


@pytest.mark.parametrize("exchanges", [0, 1, 2])
@pytest.mark.parametrize("kind", ["plain", "duplicated", "correlated"])
def test_coordinate_descent_takes_over_where_exchanges_do_not_end(monkeypatch, kind, exchanges):
    for seed in range(3):
        Q, rhs, w = _problem(seed, 10, 7, kind)
        exact = solve(Dense(Q), rhs, w, np.zeros((10, 7)))
        with monkeypatch.context() as patch:
            patch.setattr(subproblem, "_EXCHANGES", exchanges)
            slow = solve(Dense(Q), rhs, w, np.zeros((10, 7)))
        assert _relative_violation(Q, rhs, w, slow) <= subproblem._DESCENT_SLACK
        np.testing.assert_allclose(slow, exact, atol=1e-4 * np.abs(exact).max())


def test_the_fallback_is_really_reached(monkeypatch):
    """And only by the columns that are still open."""
    Q, rhs, w = _problem(5, 10, 7, "correlated")
    handed_over = []
    descend = subproblem._coordinate_descent

    def watched(Q, rhs, *rest):
        handed_over.append(rhs.shape[1])
        return descend(Q, rhs, *rest)

    monkeypatch.setattr(subproblem, "_coordinate_descent", watched)
    rhs[:, 3:] = 0.0  # these are optimal at once
    w[:] = 0.4
    solve(Dense(Q), rhs, w, np.zeros((10, 7)))
    assert handed_over == []
    monkeypatch.setattr(subproblem, "_EXCHANGES", 1)
    solve(Dense(Q), rhs, w, np.zeros((10, 7)))
    assert handed_over == [3]


def test_single_exchanges_end_too(monkeypatch):
    """Murty's rule from the first exchange on: slower, never cycling, same answer."""
    monkeypatch.setattr(subproblem, "_PATIENCE", -1)
    monkeypatch.setattr(subproblem, "_EXCHANGES", 2000)
    monkeypatch.setattr(subproblem, "_coordinate_descent", None)
    for seed in range(4):
        Q, rhs, w = _problem(seed, 8, 3, "correlated")
        B = solve(Dense(Q), rhs, w, np.ones_like(rhs))
        assert _relative_violation(Q, rhs, w, B) <= 1.0


def test_violation_by_hand():
    gradient = np.array([[0.5, -0.5, -2.0, 1.0, 0.2]])
    B = np.array([[0.0, 1.0, 0.0, -1.0, 3.0]])
    w = np.array([[1.0, 0.5, 1.5, 0.25, 0.0]])
    np.testing.assert_allclose(optimality_violation(gradient, B, w), [[0.0, 0.0, 0.5, 0.75, 0.2]])


# -- what a solver remembers -------------------------------------------------------------------------------


def _drifting(seed, p, L, kind, length=25):
    """Problems that differ a little from one to the next; now and then a jump. Q comes first."""
    Q, rhs, w = _problem(seed, p, L, kind)
    rng = np.random.default_rng(1000 + seed)
    problems = []
    for t in range(length):
        rhs = rhs + (1.0 if t % 9 == 8 else 0.03) * rng.standard_normal(rhs.shape) * np.abs(rhs).mean()
        problems.append((rhs, w))
    return Dense((Q + Q.T) / 2), problems


@pytest.fixture
def factorisations(monkeypatch):
    """The orders of all blocks factorised so far."""
    seen = []
    factorise = subproblem.dpotrf

    def watched(block, **options):
        seen.append(len(block))
        return factorise(block, **options)

    monkeypatch.setattr(subproblem, "dpotrf", watched)
    return seen


@pytest.mark.parametrize("budget", [0, 300, 2**14])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("L", [1, 20])
def test_what_is_remembered_changes_no_bit(L, kind, budget):
    """A node that restarts with nothing remembered, at any point, goes on to the same bits."""
    for seed in range(3):
        Q, problems = _drifting(seed, 30, L, kind)
        old = Solver(Q)
        old.budget = budget
        start = np.zeros((30, L))
        for t, (rhs, w) in enumerate(problems):
            if t == 10:
                restarted = Solver(Q)
            got = old.solve(rhs, w, start)
            np.testing.assert_array_equal(got, solve(Q, rhs, w, start))
            if t >= 10:
                np.testing.assert_array_equal(got, restarted.solve(rhs, w, start))
            start = got


def test_what_is_remembered_changes_no_bit_where_there_is_no_factor(factorisations):
    """Twin columns without a ridge: least squares, every time."""
    rng = np.random.default_rng(3)
    X = np.round(8 * rng.standard_normal((40, 4)))  # whole numbers, so that the twins are exact
    Q = Dense(X[:, [0, 0, 1, 2, 3]].T @ X[:, [0, 0, 1, 2, 3]])
    rhs = Q.matrix @ rng.standard_normal((5, 2))
    solver = Solver(Q)
    first = solver.solve(rhs, 0 * rhs, 0 * rhs)
    np.testing.assert_allclose(Q.matrix @ first, rhs, rtol=1e-9)
    assert solver.held == 5  # no factor
    again = solver.solve(rhs, 0 * rhs, first)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, solve(Q, rhs, 0 * rhs, first))


@pytest.mark.parametrize("L", [1, 20])
def test_a_support_that_stays_is_factorised_once(L, factorisations):
    Q, problems = _drifting(0, 30, L, "plain")
    rhs, w = problems[0]
    solver = Solver(Q)
    B = solver.solve(rhs, w, np.zeros_like(rhs))
    assert factorisations
    factorisations.clear()
    for shrink in (1.0, 1.0 - 1e-9, 1.0 - 1e-8):
        B = solver.solve(shrink * rhs, w, B)
    assert factorisations == []
    solver.solve(rhs, w, np.zeros_like(rhs))  # the way there was not remembered, its end was
    assert len(factorisations) >= L


def test_columns_with_the_same_support_share_a_factor(factorisations):
    Q, problems = _drifting(1, 30, 1, "plain")
    rhs, w = (np.repeat(a, 20, axis=1) for a in problems[0])
    solver = Solver(Q)
    start = solve(Q, rhs, w, np.zeros_like(rhs))
    factorisations.clear()
    B = solver.solve(rhs, w, start)
    assert len(factorisations) == 1
    assert solver.held == np.count_nonzero((B[:, 0] != 0) | (w[:, 0] == 0)) ** 2 + 30


@pytest.mark.parametrize("budget", [0, 1000, 5000])
def test_the_budget_is_kept_and_put_to_use(budget, factorisations):
    """20 columns that would need three times the largest budget: some are remembered for good, not each
    until the next one pushes it out.
    """
    Q, problems = _drifting(2, 30, 20, "correlated")
    solver = Solver(Q)
    solver.budget = budget
    B = np.zeros_like(problems[0][0])
    for rhs, w in problems:
        B = solver.solve(rhs, w, B)
        assert solver.held == sum(30 + f.upper.size for f in solver._factors.values()) <= budget
    for _ in range(3):  # what was of use on the way here makes room
        solver.solve(rhs, w, B)
    supports = [mask.tobytes() for mask in ((B != 0) | (w == 0)).T]
    remembered = set(solver._factors)
    assert remembered <= set(supports)
    assert solver.held >= budget - (30 + 30**2)
    factorisations.clear()
    solver.solve(rhs, w, B)
    assert len(factorisations) == sum(support not in remembered for support in supports)
    assert set(solver._factors) == remembered


def test_the_budget_is_an_eighth_of_a_matrix_where_matrices_are_large():
    assert Solver(Scaled(1.0, 2000)).budget == 500_000
    assert Solver(Scaled(1.0, 100)).budget == 2**14


@pytest.mark.parametrize("L", [1, 7])
def test_memory_order_changes_no_bit(L):
    Q, problems = _drifting(3, 30, L, "correlated")
    rhs, w = problems[0]
    start = np.random.default_rng(0).standard_normal(rhs.shape)
    B = solve(Q, rhs, w, start)
    assert B.flags.c_contiguous
    wide = [np.repeat(a, 3, axis=0)[::3] for a in (rhs, w, start)]
    for arrays in (wide, [np.asfortranarray(a) for a in (rhs, w, start)], (rhs, np.asfortranarray(w), start)):
        other = solve(Q, *arrays)
        np.testing.assert_array_equal(other, B)
        assert other.flags.c_contiguous


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_one_cholesky_solve_on_its_support(kind):
    """To the last bit what LAPACK makes of the support the solver ends with."""
    for seed in range(5):
        Q, rhs, w = _problem(seed, 40, 7, kind)
        Q = (Q + Q.T) / 2
        B = solve(Dense(Q), rhs, w, np.zeros_like(rhs))
        for column in range(7):
            on = np.flatnonzero((B[:, column] != 0) | (w[:, column] == 0))
            target = rhs[on, column] - w[on, column] * np.sign(B[on, column])
            np.testing.assert_array_equal(B[on, column], dposv(Q[np.ix_(on, on)], target)[1])


def _dense(rng, order):
    X = rng.standard_normal((2 * order, order))
    return Dense(X.T @ X / len(X) + 0.1 * np.eye(order))


def test_a_single_column_whose_signs_stay_takes_the_short_way_to_the_same_bits():
    """Rounds that drift until signs change, as a consensus loop does; a solver that knows nothing agrees."""
    rng = np.random.default_rng(5)
    Q = _dense(rng, 40)
    w = np.full((40, 1), 0.6)
    w[0] = 0.0
    solver, b = Solver(Q), np.zeros((40, 1))
    q, drift = rng.standard_normal((40, 1)), 0.02 * rng.standard_normal((40, 1))
    short = 0
    for t in range(120):
        q = q + drift if t % 20 < 4 else q + 1e-4 * rng.standard_normal((40, 1))
        short += solver._pattern is not None
        fresh = Solver(Q).solve(q, w, b)
        b = solver.solve(q, w, b)
        assert np.array_equal(b, fresh)
    assert 20 < short < 120


def test_the_short_way_is_not_taken_with_other_weights_or_from_elsewhere():
    rng = np.random.default_rng(6)
    Q, q, w = _dense(rng, 20), rng.standard_normal((20, 1)), np.full((20, 1), 0.4)
    solver, b = Solver(Q), np.zeros((20, 1))
    for _ in range(4):
        b = solver.solve(q, w, b)
    assert solver._pattern is not None
    harder = 3.0 * w
    assert np.array_equal(solver.solve(q, harder, b), Solver(Q).solve(q, harder, b))
    for _ in range(4):
        b = solver.solve(q, w, b)
    elsewhere = np.zeros((20, 1))
    assert np.array_equal(solver.solve(-q, w, elsewhere), Solver(Q).solve(-q, w, elsewhere))
