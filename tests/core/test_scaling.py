"""One scale for the network: there and back again, kept blocks, samples."""

import itertools

import numpy as np
import pytest

from desmr_node.core import rows as rows_module
from desmr_node.core import scaling as scaling_module
from desmr_node.core.rows import ArrayRows
from desmr_node.core.scaling import ScaledRows, Scaling

N, P = 50, 4


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)


def _data():
    rng = np.random.default_rng(0)
    return 3.0 * rng.standard_normal((N, P)) + np.arange(P), 100.0 * rng.standard_normal(N)


def _scaling(intercept):
    centre = np.array([0.1, 1.0, -2.0, 3.0]) if intercept else np.zeros(P)
    return Scaling(centre, np.array([1.0, 0.5, 20.0, 1e-3]), 40.0, intercept)


def _rows(intercept=True):
    X, y = _data()
    return ScaledRows(ArrayRows(X, y), _scaling(intercept))


def _whole(rows):
    blocks = list(rows.blocks())
    return np.concatenate([Z for Z, _ in blocks]), np.concatenate([t for _, t in blocks])


@pytest.mark.parametrize("intercept", [True, False])
def test_design_by_hand(intercept):
    X, _ = _data()
    scaling = _scaling(intercept)
    Z = scaling.design(X)
    assert Z.shape == (N, scaling.order) == (N, P + intercept)
    if intercept:
        np.testing.assert_array_equal(Z[:, 0], 1.0)
    np.testing.assert_array_equal(Z[:, int(intercept) :], (X - scaling.centre) / scaling.spread)


def test_only_the_intercept_is_free():
    np.testing.assert_array_equal(_scaling(True).penalised, [0.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(_scaling(False).penalised, [1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("intercept", [True, False])
def test_coefficients_go_there_and_back(intercept):
    scaling = _scaling(intercept)
    b = np.random.default_rng(1).standard_normal(scaling.order)
    coef, constant = scaling.to_data_units(b)
    assert coef.shape == (P,)
    assert isinstance(constant, float)
    np.testing.assert_allclose(scaling.from_data_units(coef, constant), b, rtol=1e-12)
    again, same = scaling.to_data_units(scaling.from_data_units(coef, constant))
    np.testing.assert_allclose(again, coef, rtol=1e-12)
    assert same == pytest.approx(constant, rel=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
def test_both_scales_predict_the_same(intercept):
    X, _ = _data()
    scaling = _scaling(intercept)
    b = np.random.default_rng(2).standard_normal(scaling.order)
    coef, constant = scaling.to_data_units(b)
    np.testing.assert_allclose(
        X @ coef + constant, scaling.unit * (scaling.design(X) @ b), rtol=1e-9, atol=1e-9
    )
    assert intercept or constant == 0.0


@pytest.mark.parametrize("keep", [0, 2**20], ids=["scaled-again", "kept"])
def test_blocks_are_the_scaled_rows_on_every_pass(monkeypatch, keep):
    monkeypatch.setattr(scaling_module, "_KEEP_BYTES", keep)
    X, y = _data()
    rows = _rows()
    assert rows.count == N
    for _ in range(3):
        assert [len(t) for _, t in rows.blocks()] == [16, 16, 16, 2]
        Z, t = _whole(rows)
        np.testing.assert_array_equal(Z, rows.scaling.design(X))
        np.testing.assert_array_equal(t, y / 40.0)


class _Counted:
    """A source that counts its passes."""

    def __init__(self):
        self.inner = ArrayRows(*_data())
        self.passes = 0

    @property
    def count(self):
        return self.inner.count

    @property
    def columns(self):
        return self.inner.columns

    def blocks(self):
        self.passes += 1
        yield from self.inner.blocks()


@pytest.mark.parametrize(("spare", "passes"), [(0, 1), (-1, 3)])
def test_small_designs_are_read_once_and_large_ones_each_time(monkeypatch, spare, passes):
    source = _Counted()
    rows = ScaledRows(source, _scaling(True))
    monkeypatch.setattr(scaling_module, "_KEEP_BYTES", N * (P + 1) * 8 + spare)
    for _ in range(3):
        _whole(rows)
    assert source.passes == passes


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_abandoned_pass_leaves_nothing_behind(taken):
    rows, complete = _rows(), _whole(_rows())
    iterator = rows.blocks()
    for _ in range(taken):
        next(iterator)
    iterator.close()
    for whole in (_whole(rows), _whole(rows)):
        np.testing.assert_array_equal(whole[0], complete[0])
        np.testing.assert_array_equal(whole[1], complete[1])


def test_two_passes_at_a_time_do_not_disturb_each_other():
    rows = _rows()
    pairs = list(zip(rows.blocks(), rows.blocks(), strict=True))
    assert [len(first[1]) for first, _ in pairs] == [16, 16, 16, 2]
    for (Z, t), (Z2, t2) in pairs:
        np.testing.assert_array_equal(Z, Z2)
        np.testing.assert_array_equal(t, t2)
    assert len(_whole(rows)[1]) == N


@pytest.mark.parametrize("keep", [0, 2**20], ids=["scaled-again", "kept"])
@pytest.mark.parametrize("limit", [1, 2, 17, 49])
def test_a_sample_is_ordered_without_replacement_and_of_the_right_size(monkeypatch, limit, keep):
    monkeypatch.setattr(scaling_module, "_KEEP_BYTES", keep)
    rows = _rows()
    Z_all, t_all = _whole(rows)
    position = {value: i for i, value in enumerate(t_all)}
    drawn = set()
    for seed in range(20):
        Z, t = rows.sample(limit, np.random.default_rng(seed))
        places = [position[value] for value in t]
        assert len(places) == limit
        assert all(a < b for a, b in itertools.pairwise(places))
        np.testing.assert_array_equal(Z, Z_all[places])
        drawn.update(places)
    # twenty draws of limit from 50 reach far: no block is left out
    assert len(drawn) >= min(N - 2, 8 * limit)


@pytest.mark.parametrize("limit", [50, 51, 10_000])
def test_a_large_enough_sample_is_everything(limit):
    rows = _rows()
    Z, t = rows.sample(limit, np.random.default_rng(0))
    np.testing.assert_array_equal(Z, _whole(rows)[0])
    np.testing.assert_array_equal(t, _whole(rows)[1])


def test_samples_repeat_with_the_seed():
    first, second = (_rows().sample(20, np.random.default_rng(3))[1] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, _rows().sample(20, np.random.default_rng(4))[1])


def test_one_block_is_sampled_too(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 1000)
    Z, t = _rows().sample(7, np.random.default_rng(0))
    assert Z.shape == (7, P + 1)
    assert t.shape == (7,)
