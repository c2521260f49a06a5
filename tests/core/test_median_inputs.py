"""What the pilot refuses, and that it says where and what to do."""

import numpy as np
import pytest

from desmr_node.core.median import (
    l1_quantile,
    l1_quantile_certified,
    l1_quantile_path,
    lambda_max,
    pilot,
    pivotal_lambda,
)
from desmr_node.errors import ConfigError, DataError

X = np.arange(12.0).reshape(4, 3)
y = np.array([1.0, -1.0, 2.0, 0.5])


def spoiled(array, where, value):
    copy = array.copy()
    copy[where] = value
    return copy


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize(
    "call",
    [
        lambda X, y: l1_quantile(X, y, 0.1),
        lambda X, y: l1_quantile_path(X, y, [0.1]),
        lambda X, y: lambda_max(X, y),
        lambda X, y: pilot(X, y, rng=np.random.default_rng(0)),
    ],
    ids=["l1_quantile", "path", "lambda_max", "pilot"],
)
def test_values_that_are_no_numbers_are_named_by_place(call, value):
    with pytest.raises(DataError, match=r"X is .* at row 2, column 1 .*remove the row"):
        call(spoiled(X, (2, 1), value), y)
    with pytest.raises(DataError, match=r"y is .* at row 3 .*remove the row"):
        call(X, spoiled(y, 3, value))


def test_pivotal_lambda_checks_its_rows():
    with pytest.raises(DataError, match="row 0, column 2"):
        pivotal_lambda(spoiled(X, (0, 2), np.nan), rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("rows", "response", "message"),
    [
        (np.zeros((0, 3)), np.zeros(0), "no rows"),
        (np.zeros(4), y, "pass a matrix"),
        (np.zeros((2, 2, 2)), y, "pass a matrix"),
        (X, y[:3], "one response per row"),
        (X, y[:, None], "one response per row"),
        (X.astype(complex), y, "real numbers"),
        ([["a", "b"]], [1.0], "real numbers"),
        ([[1.0, 2.0], [3.0]], [1.0, 2.0], "real numbers"),
    ],
)
def test_arrays_that_are_no_table(rows, response, message):
    with pytest.raises(DataError, match=message):
        l1_quantile(rows, response, 0.1)


@pytest.mark.parametrize(
    ("lam", "message"),
    [
        (-0.1, "lam is -0.1: penalties must be finite and not negative"),
        (np.nan, "lam is nan"),
        (np.inf, "lam is inf"),
        ([0.1, -2.0, 0.1], r"lam is -2.0 at column 1 \(from 0\)"),
        ([0.1, 0.1], r"shape \(2,\) but X has 3 columns"),
        ([[0.1, 0.1, 0.1]], "3 columns"),
        ("much", "not numeric"),
    ],
)
def test_penalties_that_cannot_be(lam, message):
    with pytest.raises(ConfigError, match=message):
        l1_quantile(X, y, lam)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.5, 2.0, np.nan])
def test_levels_outside_the_open_interval(quantile):
    for call in (
        lambda: l1_quantile(X, y, 0.1, quantile),
        lambda: lambda_max(X, y, quantile),
        lambda: pivotal_lambda(X, quantile, rng=np.random.default_rng(0)),
        lambda: pilot(X, y, quantile, rng=np.random.default_rng(0)),
    ):
        with pytest.raises(ConfigError, match="strictly between 0 and 1"):
            call()


@pytest.mark.parametrize("start", [np.zeros(2), np.full(3, np.nan)])
def test_starts_of_another_problem(start):
    with pytest.raises(ConfigError, match="start has to be 3 finite coefficients"):
        l1_quantile_certified(X, y, 0.1, start=start)


@pytest.mark.parametrize(
    ("lams", "message"),
    [([0.1, 0.2], "sort it"), ([0.1, -0.2], "not negative"), ([np.nan], "not negative"), (0.1, "sequence")],
)
def test_paths_that_are_none(lams, message):
    with pytest.raises(ConfigError, match=message):
        l1_quantile_path(X, y, lams)


def test_weights_of_the_wrong_length():
    rng = np.random.default_rng(0)
    for call in (
        lambda w: l1_quantile_path(X, y, [0.1], weights=w),
        lambda w: lambda_max(X, y, weights=w),
        lambda w: pivotal_lambda(X, rng=rng, weights=w),
        lambda w: pilot(X, y, weights=w, rng=rng),
    ):
        with pytest.raises(ConfigError, match="weights"):
            call([1.0, 1.0])
        with pytest.raises(ConfigError, match="weights"):
            call([1.0, 1.0, -1.0])


def test_lists_integers_and_single_precision_are_welcome():
    expected = l1_quantile(X, y, 0.1)
    np.testing.assert_allclose(l1_quantile(X.tolist(), y.tolist(), 0.1), expected)
    np.testing.assert_allclose(l1_quantile(X.astype(int), y, 0.1), expected)
    np.testing.assert_allclose(l1_quantile(X.astype(np.float32), y, 0.1), expected)
    np.testing.assert_allclose(l1_quantile(np.asfortranarray(X)[::1], y, [0.1] * 3), expected)
