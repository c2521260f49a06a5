"""Quadratic forms against the matrices they stand for."""

import tracemalloc

import numpy as np
import pytest

from desmr_node.core.quadratic import Dense, Rows, Scaled, Sum, add

P = 7


def _gram(rng, rows=12):
    R = rng.standard_normal((rows, P))
    return R, R.T @ R


def _forms():
    """Every form and every sum of two, beside its matrix."""
    rng = np.random.default_rng(4)
    R, short = _gram(rng, rows=3)
    _, full = _gram(rng)
    basic = {
        "dense": (Dense(full), full),
        "rows": (Rows(R), short),
        "scaled": (Scaled(0.3, P), 0.3 * np.eye(P)),
    }
    forms = dict(basic)
    for (a, (first, A)), (b, (second, B)) in [(x, y) for x in basic.items() for y in basic.items()]:
        forms[f"Sum({a}, {b})"] = (Sum(first, second, 1.7), A + 1.7 * B)
        forms[f"add({a}, {b})"] = (add(first, second, 1.7), A + 1.7 * B)
    nested = add(add(Rows(R), Dense(full), 0.5), Scaled(2.0, P), 0.25)
    forms["nested"] = (nested, short + 0.5 * full + 0.5 * np.eye(P))
    return forms


FORMS = _forms()


@pytest.mark.parametrize("name", FORMS)
def test_form_agrees_with_its_matrix(name):
    Q, matrix = FORMS[name]
    rng = np.random.default_rng(5)
    assert Q.order == P
    for L in (1, 4):
        B = rng.standard_normal((P, L))
        np.testing.assert_allclose(Q.apply(B), matrix @ B, rtol=1e-12, atol=1e-12)
    for rows in (np.arange(P), np.array([5, 0, 3]), np.array([2]), np.array([], dtype=int)):
        np.testing.assert_allclose(Q.block(rows), matrix[np.ix_(rows, rows)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Q.diagonal(), np.diag(matrix), rtol=1e-12)


@pytest.mark.parametrize("name", FORMS)
def test_largest_eigenvalue_is_never_too_small(name):
    """The linearised update needs rho >= the largest eigenvalue; basic forms give it exactly."""
    Q, matrix = FORMS[name]
    largest = np.linalg.eigvalsh(matrix)[-1]
    assert Q.largest_eigenvalue() >= largest * (1 - 1e-12)
    if isinstance(Q, Dense | Rows | Scaled):
        assert Q.largest_eigenvalue() == pytest.approx(largest, rel=1e-12)
    else:  # Weyl's bound is at most twice too large
        assert Q.largest_eigenvalue() <= 2.0 * largest * (1 + 1e-12)


@pytest.mark.parametrize("rows", [1, 2, 30])
def test_rows_of_any_number(rows):
    R = np.random.default_rng(6).standard_normal((rows, P))
    assert Rows(R).largest_eigenvalue() == pytest.approx(np.linalg.eigvalsh(R.T @ R)[-1], rel=1e-12)


def test_order_one():
    assert Dense(np.array([[2.5]])).largest_eigenvalue() == 2.5
    assert Rows(np.array([[2.0]])).largest_eigenvalue() == 4.0
    assert Scaled(3.0, 1).block(np.array([0])).tolist() == [[3.0]]


@pytest.mark.parametrize("name", FORMS)
def test_results_are_the_callers_to_overwrite(name):
    Q, _ = FORMS[name]
    rows = np.arange(P)
    before = Q.apply(np.eye(P))
    Q.block(rows)[:] = np.nan
    Q.diagonal()[:] = np.nan
    Q.apply(np.eye(P))[:] = np.nan
    np.testing.assert_array_equal(Q.apply(np.eye(P)), before)


def test_add_forms_one_matrix_where_it_can_and_keeps_rows_apart():
    dense, rows, scaled = FORMS["dense"][0], FORMS["rows"][0], FORMS["scaled"][0]
    original = dense.matrix.copy()
    assert isinstance(add(dense, dense, 2.0), Dense)
    assert isinstance(add(dense, scaled, 2.0), Dense)
    assert isinstance(add(rows, scaled, 2.0), Sum)
    assert isinstance(add(rows, dense, 2.0), Sum)
    np.testing.assert_array_equal(dense.matrix, original)


@pytest.mark.parametrize("order", [199, 200, 450])
@pytest.mark.parametrize("L", [1, 5])
def test_a_large_matrix_times_few_rows(order, L):
    rng = np.random.default_rng(order)
    matrix = rng.standard_normal((order, order))
    matrix += matrix.T
    Q = Dense(matrix)
    for filled in (0, 1, 31, 32, 33, order // 3, order // 3 + 1, order):
        B = np.zeros((order, L))
        rows = rng.permutation(order)[:filled]
        B[rows] = rng.standard_normal((filled, L))
        np.testing.assert_allclose(Q.apply(B), matrix @ B, rtol=1e-12, atol=1e-11)
        np.testing.assert_array_equal(Q.block(rows), matrix[np.ix_(rows, rows)])


def test_a_product_with_few_rows_copies_little_of_the_matrix():
    Q, B = Dense(np.eye(1000)), np.zeros((1000, 3))
    B[::4] = 1.0
    tracemalloc.start()
    Q.apply(B)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * Q.matrix.nbytes


def test_what_is_not_a_number_is_not_lost():
    B = np.zeros((300, 2))
    B[7, 1] = np.nan
    product = Dense(np.ones((300, 300))).apply(B)
    assert np.all(product[:, 0] == 0)
    assert np.all(np.isnan(product[:, 1]))
