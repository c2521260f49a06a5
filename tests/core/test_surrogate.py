"""Check loss, score function and the node's quadratic, each against the equation it implements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from desmr_node.core.density import kernel
from desmr_node.core.quadratic import Dense, Rows
from desmr_node.core.surrogate import (
    Pseudo,
    check_loss,
    gram,
    linear_term,
    linear_term_of_squares,
    pseudo_responses,
    score_function,
)


@given(st.floats(-1e6, 1e6), st.floats(0.01, 0.99))
def test_check_loss_is_twice_rho(r: float, q: float) -> None:
    """rho_q(r) = r (q - 1{r <= 0}), section 1 of the paper."""
    rho = r * (q - (r <= 0))
    assert check_loss(np.array([r]), q)[0] == pytest.approx(2 * rho, rel=1e-12, abs=1e-9)


def test_pseudo_responses_are_equation_pseudo_y() -> None:
    """y~ = x'b - (1{y <= x'b} - 1/2) / f."""
    rng = np.random.default_rng(0)
    fitted, y = rng.standard_normal((2, 50))
    expected = fitted - ((y <= fitted) - 0.5) / 0.4
    np.testing.assert_allclose(pseudo_responses(fitted, y, Pseudo(0.4)), expected, rtol=1e-14)


def test_pseudo_responses_at_any_level() -> None:
    rng = np.random.default_rng(1)
    fitted, y = rng.standard_normal((2, 50))
    expected = fitted - ((y <= fitted) - 0.8) / 0.3
    np.testing.assert_allclose(pseudo_responses(fitted, y, Pseudo(0.3, 0.8)), expected, rtol=1e-14)


def test_a_perfect_fit_stays_put() -> None:
    """The paper's indicator would push every interpolated row by 1/(2f)."""
    y = np.array([1.0, -2.0, 1e6])
    for bandwidth in (0.0, 0.5):
        np.testing.assert_array_equal(pseudo_responses(y, y, Pseudo(0.1, 0.5, bandwidth)), y)


def test_rounding_is_no_evidence() -> None:
    y = np.array([3.0, 1e6])
    assert np.all(score_function(np.array([1e-12, -1e-6]), y, 0.5, 0.0) == 0)
    assert np.all(score_function(np.array([1e-6, -1.0]), y, 0.5, 0.0) == [0.5, -0.5])


def test_smoothed_score_is_the_jump_convolved_with_the_kernel() -> None:
    h, q = 0.7, 0.3
    for r in (-1.0, -0.5, -0.1, 0.0, 0.2, 0.69, 2.0):
        expected, _ = quad(
            lambda u, r=r: float(kernel(np.array([u]))[0]) * (q - (r - h * u < 0)),
            -1,
            1,
            points=[r / h],
            limit=200,
        )
        got = score_function(np.array([r]), np.zeros(1), q, h)[0]
        assert got == pytest.approx(expected, abs=1e-8)


def test_newton_direction_is_the_gradient_of_the_loss() -> None:
    """At b the surrogate's gradient G b - c equals the gradient of the check loss over 2 f."""
    rng = np.random.default_rng(2)
    Z, y, b = rng.standard_normal((80, 4)), rng.standard_normal(80), rng.standard_normal(4)
    pseudo = Pseudo(density=0.37, quantile=0.4, bandwidth=0.6)
    blocks = [(Z[:30], y[:30]), (Z[30:], y[30:])]
    surrogate_gradient = gram(blocks, 80, 4, 1 / 80).apply(b) - linear_term(blocks, b, 1 / 80, pseudo)

    def smoothed_loss(beta: np.ndarray) -> float:
        u = np.linspace(-1, 1, 4001)
        shifted = (y - Z @ beta)[:, None] - 0.6 * u
        return float(np.mean(np.trapezoid(kernel(u) * check_loss(shifted, 0.4), u, axis=1)))

    numeric = [(smoothed_loss(b + 1e-4 * e) - smoothed_loss(b - 1e-4 * e)) / 2e-4 for e in np.eye(4)]
    np.testing.assert_allclose(2 * 0.37 * surrogate_gradient, numeric, atol=1e-5)


@pytest.mark.parametrize("n", [3, 40])
def test_quadratic_by_blocks_equals_the_whole(n: int) -> None:
    rng = np.random.default_rng(n)
    Z, y = rng.standard_normal((n, 8)), rng.standard_normal(n)
    blocks = [(Z[: n // 2], y[: n // 2]), (Z[n // 2 :], y[n // 2 :])]
    G = gram(blocks, n, 8, 0.25)
    assert isinstance(G, Rows if n < 8 else Dense)
    np.testing.assert_allclose(G.apply(np.eye(8)), 0.25 * Z.T @ Z, atol=1e-12)
    np.testing.assert_allclose(linear_term_of_squares(blocks, 8, 0.25), 0.25 * Z.T @ y, atol=1e-12)
