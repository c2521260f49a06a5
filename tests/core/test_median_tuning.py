"""The pivotal penalty and the pilot fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.core.median import l1_quantile, pilot, pivotal_lambda
from desmr_node.core.median.tuning import _scad_weight


def design(n, p, noise, rng, intercept=True):
    """The paper's: correlations 0.1^|j - k|, coefficients 1 ... 10, then zeros; an intercept of 5."""
    correlation = 0.1 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    X = rng.standard_normal((n, p)) @ np.linalg.cholesky(correlation).T
    coef = np.where(np.arange(p) < 10, np.arange(p) + 1.0, 0.0)
    y = X @ coef + (rng.standard_cauchy(n) if noise == "cauchy" else rng.standard_normal(n))
    if not intercept:
        return X, y, coef, np.ones(p)
    return np.column_stack([X, np.ones(n)]), y + 5.0, np.append(coef, 5.0), np.append(np.ones(p), 0.0)


# -- the pivotal penalty


@pytest.mark.parametrize("quantile", [0.5, 0.2])
def test_pivotal_penalty_covers_the_score_as_often_as_promised(quantile):
    rng = np.random.default_rng(5)
    n = 150
    X = rng.standard_normal((n, 30)) * np.linspace(0.5, 2.0, 30)
    weights = np.linspace(1.0, 3.0, 30)
    lam = pivotal_lambda(X, quantile, rng=rng, weights=weights, margin=1.0, confidence=0.9, draws=2000)
    # the score at the truth has this law whatever the noise is
    sign = np.where(rng.random((4000, n)) <= quantile, quantile - 1.0, quantile)
    largest = (np.abs(2.0 / n * sign @ X) / weights).max(axis=1)
    assert np.mean(largest <= lam) == pytest.approx(0.9, abs=0.025)


def test_under_pure_noise_the_full_penalty_selects_nothing_nine_times_in_ten():
    rng = np.random.default_rng(8)
    empty = 0
    for _ in range(60):
        X = np.column_stack([np.ones(80), rng.standard_normal((80, 20))])
        weights = np.append(0.0, np.ones(20))
        lam = pivotal_lambda(X, rng=rng, weights=weights, margin=1.0)
        empty += not l1_quantile(X, 7.0 + rng.standard_cauchy(80), lam * weights)[1:].any()
    assert 44 <= empty <= 60  # 0.9 * 60 = 54, and four standard deviations


def test_pivotal_penalty_shrinks_with_the_root_of_the_rows_also_when_it_samples():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((32_000, 20))
    small, large = (pivotal_lambda(X[:n], rng=rng) for n in (2000, 32_000))
    assert small / large == pytest.approx(4.0, rel=0.1)


def test_unpenalised_columns_are_projected_out():
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(200), 50.0 + rng.standard_normal((200, 10))])
    weights = np.append(0.0, np.ones(10))
    free = pivotal_lambda(X, rng=np.random.default_rng(0), weights=weights)
    centred = pivotal_lambda(X[:, 1:] - X[:, 1:].mean(axis=0), rng=np.random.default_rng(0))
    assert free == pytest.approx(centred, rel=1e-9)
    assert free < 0.1 * pivotal_lambda(X, rng=np.random.default_rng(0))
    assert pivotal_lambda(X, rng=rng, weights=np.zeros(11)) == 0.0
    # duplicated free columns, and free columns of zeros
    doubled = np.column_stack([X, np.ones(200), np.zeros(200)])
    again = pivotal_lambda(doubled, rng=np.random.default_rng(0), weights=np.append(weights, [0.0, 0.0]))
    assert again == pytest.approx(free, rel=1e-9)


def test_randomness_comes_from_the_generator_alone():
    X = np.random.default_rng(0).standard_normal((50, 5))
    first, again, other = (pivotal_lambda(X, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


# -- the pilot


@pytest.mark.parametrize(
    ("n", "p", "noise", "bound"),
    [
        # design figures: 0.31, 0.42, 0.42, 0.81 without an intercept; with it and 15 draws a little room
        (200, 100, "normal", 0.36),
        (200, 100, "cauchy", 0.50),
        (100, 100, "normal", 0.52),
        (100, 100, "cauchy", 1.00),
        (50, 100, "normal", 1.30),
    ],
)
def test_error_on_the_design_of_the_paper(n, p, noise, bound):
    errors = []
    for seed in range(15):
        rng = np.random.default_rng([seed, n])
        X, y, truth, weights = design(n, p, noise, rng)
        errors.append(np.linalg.norm(pilot(X, y, weights=weights, rng=rng).coef - truth))
    assert np.mean(errors) <= bound


@pytest.mark.parametrize("noise", ["normal", "cauchy"])
def test_error_shrinks_with_the_root_of_the_rows(noise):
    errors = {}
    for n in (1000, 25_000):
        rng = np.random.default_rng(n)
        X, y, truth, weights = design(n, 50, noise, rng)
        errors[n] = np.linalg.norm(pilot(X, y, weights=weights, rng=rng).coef - truth)
    assert 2.5 <= errors[1000] / errors[25_000] <= 10.0  # 5 expected


@pytest.mark.parametrize("size", [1000.0, 1e-6, -1.0])
def test_equivariance_in_the_response(size):
    rng = np.random.default_rng(11)
    X, y, _, weights = design(120, 30, "cauchy", rng)
    once = pilot(X, y, weights=weights, rng=np.random.default_rng(0))
    scaled = pilot(X, size * y, weights=weights, rng=np.random.default_rng(0))
    np.testing.assert_allclose(scaled.coef, size * once.coef, rtol=1e-8, atol=1e-8 * abs(size))
    assert scaled.lambda_ == once.lambda_


def test_a_huge_column_does_not_blind_the_pilot_to_the_others():
    rng = np.random.default_rng(12)
    X, y, truth, weights = design(200, 40, "normal", rng)
    X[:, 39] *= 1e4
    assert np.linalg.norm(pilot(X, y, weights=weights, rng=rng).coef - truth) <= 0.6


def test_a_column_that_hardly_varies_here_gets_no_wild_coefficient():
    rng = np.random.default_rng(13)
    X, y, truth, weights = design(200, 40, "normal", rng)
    X[:, 20:40] *= 1e-6
    fitted = pilot(X, y, weights=weights, rng=rng).coef
    assert np.linalg.norm(fitted - truth) <= 0.6


def test_one_absurd_response_changes_next_to_nothing():
    rng = np.random.default_rng(15)
    X, y, _, weights = design(200, 40, "normal", rng)
    once = pilot(X, y, weights=weights, rng=np.random.default_rng(0)).coef
    y[7] = 1e15
    again = pilot(X, y, weights=weights, rng=np.random.default_rng(0)).coef
    assert np.linalg.norm(again - once) <= 0.2


def test_other_quantiles():
    rng = np.random.default_rng(14)
    X, y, truth, weights = design(1000, 40, "normal", rng)
    fitted = pilot(X, y, 0.75, weights=weights, rng=rng).coef
    np.testing.assert_allclose(fitted[-1], 5.0 + 0.6745, atol=0.25)
    assert np.linalg.norm((fitted - truth)[:-1]) <= 0.35


def test_one_row():
    X = np.array([[0.5, -2.0, 1.0]])
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(pilot(X, [3.0], weights=[1.0, 1.0, 0.0], rng=rng).coef, [0.0, 0.0, 3.0])
    assert not pilot(X, [3.0], rng=rng).coef.any()  # one row is no evidence


def test_constant_response_is_the_intercept():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((60, 8)), np.ones(60)])
    fitted = pilot(X, np.full(60, 12.0), weights=np.append(np.ones(8), 0.0), rng=rng)
    np.testing.assert_allclose(fitted.coef, np.append(np.zeros(8), 12.0), atol=1e-12)


@st.composite
def awkward_tables(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, p = draw(st.integers(1, 25)), draw(st.integers(0, 12))
    X = rng.standard_normal((n, p))
    if draw(st.booleans()):
        X = np.round(X)
    if p and draw(st.booleans()):
        X[:, rng.integers(p)] = 0.0
        X[:, rng.integers(p)] = 1.0
        X[:, rng.integers(p)] *= 1e7
        X[:, rng.integers(p)] = X[:, rng.integers(p)]
    y = draw(
        st.sampled_from([rng.standard_cauchy(n), np.full(n, 12.0), rng.poisson(1.0, n) * 1.0, np.zeros(n)])
    )
    if draw(st.booleans()):
        pick = rng.integers(0, n, n)
        X, y = X[pick], y[pick]
    if draw(st.booleans()):
        X = np.column_stack([X, np.ones(n)])
        return X, y, np.append(np.ones(p), 0.0)
    return X, y, np.ones(p)


@settings(max_examples=150, deadline=None)
@given(awkward_tables(), st.sampled_from([0.5, 0.5, 0.1]))
def test_always_an_answer_and_always_proved(table, quantile):
    X, y, weights = table
    fitted = pilot(X, y, quantile, weights=weights, rng=np.random.default_rng(0))
    assert fitted.coef.shape == weights.shape
    assert np.isfinite(fitted.coef).all()
    assert np.isfinite(fitted.lambda_)
    assert fitted.gap <= 1e-9


def test_scad_weight_is_the_derivative_of_scad():
    t, a = 0.7, 3.7

    def penalty(b):
        if b <= t:
            return t * b
        if b <= a * t:
            return (2 * a * t * b - b * b - t * t) / (2 * (a - 1))
        return t * t * (a + 1) / 2

    for b in (0.1, 0.5, 0.9, 1.5, 2.4, 2.7, 5.0):
        slope = (penalty(b + 1e-6) - penalty(b - 1e-6)) / 2e-6
        assert _scad_weight(np.array([-b]), np.array([t]))[0] * t == pytest.approx(slope, abs=1e-5)
    assert _scad_weight(np.zeros(1), np.zeros(1))[0] == 0.0


def test_pilot_on_many_columns_steps_to_columns_the_first_look_passes_over():
    """A SCAD step hands column generation a vertex that stands outside its first working set."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 2000))
    y = X[:, :10] @ np.arange(1.0, 11.0) + rng.standard_cauchy(200)
    found = pilot(X, y, weights=np.ones(2000), rng=np.random.default_rng(0))
    assert found.gap <= 1e-10
    assert set(range(3, 10)) <= set(np.flatnonzero(found.coef))
