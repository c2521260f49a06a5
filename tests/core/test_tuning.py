import numpy as np
import pytest

from desmr_node.core.tuning import check_grid, scores, squares_grid, universal_level


def test_universal_level_is_what_noise_reaches() -> None:
    """The largest of p scores of pure noise lies near the level, at any quantile."""
    rng = np.random.default_rng(0)
    n, p = 2000, 100
    for q in (0.5, 0.8):
        largest = []
        for _ in range(40):
            psi = np.where(rng.random(n) < q, q - 1.0, q)
            largest.append(np.abs(2 * psi @ rng.standard_normal((n, p)) / n).max())
        assert 0.75 < np.mean(largest) / universal_level(n, p, q) < 1.0


@pytest.mark.parametrize("penalty", ["l1", "scad", "mcp", "l0"])
@pytest.mark.parametrize("rows", [3, 50, 2000, 10**7])
def test_grid_decreases_and_never_exceeds_the_largest_useful_lambda(penalty: str, rows: float) -> None:
    grid = check_grid(rows, 100, 0.5, penalty, 20)
    assert len(grid) == 20
    assert np.all(np.diff(grid) < 0)
    assert grid[0] <= 1.0
    assert grid[-1] < universal_level(rows, 100, 0.5)


def test_squares_grid_starts_where_everything_is_zero() -> None:
    grid = squares_grid(np.array([0.2, -3.0, 1.0]), 5)
    assert grid[0] == pytest.approx(3.0)
    assert np.all(squares_grid(np.zeros(3), 4) > 0)


def _scores(rule: str, check: list[float], df: list[int]) -> np.ndarray:
    return scores(
        rule,
        check=np.array(check),
        squares=np.array(check) ** 2,
        df=np.array(df),
        density=0.4,
        quantile=0.5,
        total_rows=1000.0,
        columns=50,
    )


def test_likelihood_ratio_is_the_formula() -> None:
    """4 f sum|r| + df log N at the median."""
    expected = 4 * 0.4 * 1000 * np.array([1.0, 0.9]) + np.array([3, 5]) * np.log(1000)
    np.testing.assert_allclose(_scores("likelihood-ratio", [1.0, 0.9], [3, 5]), expected)


def test_likelihood_ratio_of_a_useless_variable_is_chi_squared() -> None:
    """Twice the log-likelihood ratio of one superfluous coefficient has mean 1 (Koenker and Machado)."""
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(300):
        x, e = rng.standard_normal((2, 400))
        slopes = np.linspace(-0.3, 0.3, 601)
        loss = np.abs(e[:, None] - x[:, None] * slopes).sum(axis=0)
        gains.append(4 * 0.3989 * (np.abs(e).sum() - loss.min()))
    assert np.mean(gains) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("rule", ["likelihood-ratio", "bic-squares", "bic-check"])
def test_every_score_prefers_fewer_variables_at_equal_loss_and_less_loss_at_equal_number(rule: str) -> None:
    assert np.argmin(_scores(rule, [1.0, 1.0], [4, 3])) == 1
    assert np.argmin(_scores(rule, [1.0, 0.8], [4, 4])) == 1
    assert np.all(np.isfinite(_scores(rule, [0.0, 1.0], [0, 1])))
