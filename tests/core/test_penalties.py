"""Penalties against dumb ones: a grid search for each proximal map, differences for each slope."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.core.penalties import L0, L1, Mcp, Scad, penalty, soft_threshold
from desmr_node.errors import ConfigError

PENALTIES = {"l1": L1(), "scad": Scad(), "mcp": Mcp(), "l0": L0()}
FOLDED = {**PENALTIES, "scad-2.2": Scad(2.2), "mcp-1.4": Mcp(1.4)}
#: Below, at and above gamma = 3 and a - 1 = 2.7, where the inner piece turns concave.
STEPS = [0.0, 0.01, 0.5, 1.0, 2.0, 2.7, 2.9, 3.0, 3.5, 8.0, 40.0]


def _cost(pen, b, z, step, lam):
    return 0.5 * (b - z) ** 2 + step * pen.value(np.asarray(b), lam)


def _grid_minimum(pen, z, step, lam):
    """Smallest prox objective over a fine grid that contains 0 and z; z is a 1-d array."""
    reach = np.abs(z).max() + 1.0
    grid = np.unique(np.concatenate([np.linspace(-reach, reach, 8001), [0.0], z]))
    return _cost(pen, grid[:, None], z[None, :], step, lam).min(axis=0)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", FOLDED)
def test_prox_beats_every_point_of_a_grid(name, step):
    pen = FOLDED[name]
    z = np.concatenate([np.linspace(-6.0, 6.0, 121), [0.999, 1.001, 2.7, 3.7]])
    for lam in (0.0, 0.3, 1.0, 1.5):
        b = pen.prox(z, step, lam)
        cost = _cost(pen, b, z, step, lam)
        assert np.all(cost <= _grid_minimum(pen, z, step, lam) + 1e-12), (lam, step)
        # and it is no fluke of a wrong value(): a minimiser never overshoots and never changes sign
        assert np.all(np.abs(b) <= np.abs(z) + 1e-12)
        assert np.all(b * z >= 0)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(FOLDED)),
    st.floats(-20, 20),
    st.floats(0, 30),
    st.floats(0, 5),
)
def test_prox_beats_a_grid_anywhere(name, z, step, lam):
    pen = FOLDED[name]
    z = np.array([z])
    cost = _cost(pen, pen.prox(z, step, lam), z, step, lam)
    assert cost[0] <= _grid_minimum(pen, z, step, lam)[0] + 1e-10 * (1.0 + cost[0])


@pytest.mark.parametrize("name", PENALTIES)
def test_step_zero_leaves_a_coordinate_free(name):
    z = np.array([-3.0, -0.1, 0.0, 1e-9, 0.7, 5.0])
    np.testing.assert_array_equal(PENALTIES[name].prox(z, 0.0, 1.0), z)
    # weights reach the prox as a step per row: a zero among ones frees that row only
    steps = np.array([[0.0], [1.0]])
    b = PENALTIES[name].prox(np.full((2, 3), 0.5), steps, np.array([1.0, 2.0, 4.0])[None, :])
    np.testing.assert_array_equal(b, [[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("name", PENALTIES)
def test_lambda_zero_is_no_penalty(name):
    pen, z = PENALTIES[name], np.array([-3.0, -1e-12, 0.0, 0.7, 5.0])
    np.testing.assert_array_equal(pen.value(z, 0.0), np.zeros(5))
    np.testing.assert_array_equal(pen.slope(z, 0.0), np.zeros(5))
    for step in STEPS:
        np.testing.assert_array_equal(pen.prox(z, step, 0.0), z)


@pytest.mark.parametrize("name", PENALTIES)
def test_scalar_and_array_levels_agree(name):
    pen = PENALTIES[name]
    z = np.random.default_rng(1).normal(scale=3.0, size=(7, 4))
    lams, steps = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.0, 0.2, 1.0, 2.7, 3.0, 5.0, 9.0])[:, None]
    prox = pen.prox(z, steps, lams[None, :])
    for k, lam in enumerate(lams):
        np.testing.assert_array_equal(pen.value(z, lams)[:, k], pen.value(z[:, k], float(lam)))
        np.testing.assert_array_equal(pen.slope(z, lams)[:, k], pen.slope(z[:, k], float(lam)))
        for i, step in enumerate(steps[:, 0]):
            assert prox[i, k] == pen.prox(z[i, k : k + 1], float(step), float(lam))[0]


@pytest.mark.parametrize("name", PENALTIES)
def test_arguments_broadcast_against_each_other(name):
    pen, z, lams = PENALTIES[name], np.linspace(-4.0, 4.0, 9), np.array([0.0, 0.5, 2.0])
    for method in (pen.value, pen.slope, lambda b, lam: pen.prox(b, 1.5, lam)):
        together = method(z[:, None], lams)
        assert together.shape == (9, 3)
        for k, lam in enumerate(lams):
            np.testing.assert_array_equal(together[:, k], method(z, lam))


@pytest.mark.parametrize("name", FOLDED)
def test_slope_is_the_derivative_of_the_value(name):
    """For l0 the derivative of the continuous penalty named in its docstring."""
    pen, eps = FOLDED[name], 1e-6
    t = np.linspace(0.003, 8.0, 777)
    value = (
        pen.value if not isinstance(pen, L0) else lambda b, lam: (lam**2 - np.maximum(lam - b, 0) ** 2) / 2
    )
    for lam in (0.2, 1.0, 1.7):
        difference = (value(t + eps, lam) - value(t - eps, lam)) / (2 * eps)
        np.testing.assert_allclose(pen.slope(t, lam), difference, atol=2e-6)
        np.testing.assert_array_equal(pen.slope(-t, lam), pen.slope(t, lam))
        assert np.all(pen.slope(t, lam) >= 0)


@pytest.mark.parametrize("name", ["l1", "scad", "mcp", "scad-2.2", "mcp-1.4"])
def test_the_linear_approximation_majorises_and_touches(name):
    pen = FOLDED[name]
    t, at = np.linspace(0.0, 9.0, 181)[:, None], np.linspace(0.0, 9.0, 61)[None, :]
    for lam in (0.0, 0.4, 1.3):
        line = pen.value(at, lam) + pen.slope(at, lam) * (t - at)
        assert np.all(pen.value(t, lam) <= line + 1e-12)
        touching = np.diagonal(pen.value(at.T, lam) - pen.value(at, lam) - pen.slope(at, lam) * (at.T - at))
        np.testing.assert_allclose(touching, 0.0, atol=1e-14)


@pytest.mark.parametrize("name", ["scad", "mcp", "l0"])
def test_large_coefficients_carry_no_bias(name):
    pen, z = PENALTIES[name], np.array([-9.0, 7.5])
    np.testing.assert_array_equal(pen.slope(z, 1.0), 0.0)
    np.testing.assert_array_equal(pen.prox(z, 1.0, 1.0), z)


@pytest.mark.parametrize("name", PENALTIES)
def test_unit_steps_zero_exactly_up_to_lambda(name):
    """What the table at the head of the module promises of every level."""
    lam = 0.8
    np.testing.assert_array_equal(PENALTIES[name].prox(np.array([-lam, -0.1, 0.0, 0.79, lam]), 1.0, lam), 0.0)
    assert np.all(PENALTIES[name].prox(np.array([-0.801, 0.801]), 1.0, lam) != 0.0)


def test_the_closed_forms_of_the_literature():
    """Fan and Li (2001), equation 2.8; Zhang (2010); unit step, lam = 1."""
    np.testing.assert_allclose(
        Scad().prox(np.array([1.5, 3.0, 4.0]), 1.0, 1.0), [0.5, (2.7 * 3 - 3.7) / 1.7, 4.0]
    )
    np.testing.assert_allclose(Mcp().prox(np.array([1.5, 2.5, 3.5]), 1.0, 1.0), [0.75, 2.25, 3.5])
    np.testing.assert_allclose(soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0), [-2.0, 0.0, 1.0])
    np.testing.assert_array_equal(L0().prox(np.array([1.9, -2.1]), 4.0, 1.0), [0.0, -2.1])


def test_penalties_are_found_by_name():
    for name, pen in PENALTIES.items():
        assert penalty(name) == pen
    with pytest.raises(ConfigError, match=r"'lasso' is unknown: choose one of l1, scad, mcp, l0"):
        penalty("lasso")
