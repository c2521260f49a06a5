"""The density at zero: the paper's kernel, the histogram that stands for the rows, and floors under both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.core.density import (
    Bins,
    binned_density,
    kernel,
    kernel_density,
    kernel_distribution,
    paper_bandwidth,
    robust_scale,
    scale_bandwidth,
)

#: Gauss-Legendre with 12 nodes is exact up to degree 23.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def test_kernel_is_a_density_of_order_four():
    moments = [float(WEIGHTS @ (NODES**k * kernel(NODES))) for k in range(5)]
    np.testing.assert_allclose(moments[:4], [1.0, 0.0, 0.0, 0.0], atol=1e-14)
    assert abs(moments[4]) > 0.01


def test_kernel_is_the_polynomial_of_the_paper_and_zero_outside():
    u = np.linspace(-1.0, 1.0, 41)
    printed = -315 / 64 * u**6 + 735 / 64 * u**4 - 525 / 64 * u**2 + 105 / 64
    np.testing.assert_allclose(kernel(u), printed, atol=1e-13)
    np.testing.assert_array_equal(kernel(np.array([-np.inf, -1e200, -1.0, 1.0, 1.5, np.inf])), 0.0)


def test_kernel_distribution_is_the_integral_of_the_kernel():
    for u in np.linspace(-1.0, 1.0, 21):
        half = (u + 1.0) / 2.0
        integral = half * float(WEIGHTS @ kernel(half * (NODES + 1.0) - 1.0))
        assert kernel_distribution(np.array([u]))[0] == pytest.approx(integral, abs=1e-13)


def test_kernel_distribution_goes_from_zero_to_one():
    np.testing.assert_array_equal(kernel_distribution(np.array([-np.inf, -5.0, -1.0])), 0.0)
    np.testing.assert_array_equal(kernel_distribution(np.array([1.0, 5.0, np.inf])), 1.0)
    u = np.linspace(-1.2, 1.2, 101)
    np.testing.assert_allclose(kernel_distribution(u) + kernel_distribution(-u), 1.0, atol=1e-14)


def test_kernel_density_by_hand():
    r = np.array([0.0, 0.5, 3.0])
    by_hand = (105 / 64 + (105 - 525 / 4 + 735 / 16 - 315 / 64) / 64) / 3 / 2.0
    assert kernel_density(r * 2.0, 2.0) == pytest.approx(by_hand)


def _samples(name, size, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(size) if name == "normal" else rng.standard_cauchy(size)


def _counts(bins, residuals):
    return bins.count(np.abs(residuals)[:, None])[:, 0].astype(float)


@pytest.mark.parametrize("size", [2000, 40_000])
@pytest.mark.parametrize("unit", [1.0, 37.0, 1e-5])
@pytest.mark.parametrize("name", ["normal", "cauchy"])
def test_binned_density_is_close_to_the_rows(name, unit, size):
    for seed in range(3):
        r = unit * _samples(name, size, seed)
        bins = Bins.around(unit)
        scale = robust_scale(bins, _counts(bins, r))
        h = scale_bandwidth(scale, size)
        assert binned_density(bins, _counts(bins, r), h, scale) == pytest.approx(
            kernel_density(r, h), rel=0.015
        )


@pytest.mark.parametrize(("name", "density"), [("normal", 1 / np.sqrt(2 * np.pi)), ("cauchy", 1 / np.pi)])
def test_binned_density_is_close_to_the_truth(name, density):
    r = _samples(name, 200_000, 9)
    bins = Bins.around(1.0)
    counts = _counts(bins, r)
    scale = robust_scale(bins, counts)
    assert binned_density(bins, counts, scale_bandwidth(scale, len(r)), scale) == pytest.approx(
        density, rel=0.02
    )


@pytest.mark.parametrize("off", [-3, -2, 0, 2, 3])
def test_bins_serve_a_scale_known_within_a_factor_of_eight(off):
    """As `Bins.around` promises: the next scale is found again, and the density with it."""
    r = _samples("normal", 40_000, 3)
    bins = Bins.around(2.0**off)
    scale = robust_scale(bins, _counts(bins, r))
    assert scale == pytest.approx(1.0, rel=0.03)
    h = scale_bandwidth(scale, len(r))
    assert binned_density(bins, _counts(bins, r), h, scale) == pytest.approx(kernel_density(r, h), rel=0.03)


MAGNITUDES = st.one_of(
    st.floats(0.0, 1e300),
    st.floats(1e-3, 1e3),
    st.sampled_from([0.0, 5e-324, 1e-310, 2.2250738585072014e-308, 1.0, 2.0, 1.125, 1e308, np.inf]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(MAGNITUDES, min_size=0, max_size=30), st.integers(-40, 20), st.integers(1, 40))
def test_counts_are_those_of_digitize(values, lowest, octaves):
    bins = Bins(lowest, octaves)
    edges = bins.edges()
    # each edge itself and its neighbours among the floating-point numbers, where rounding would show
    values = np.concatenate([values, edges, np.nextafter(edges, 0.0), np.nextafter(edges, np.inf)])
    counts = bins.count(values[:, None])
    assert counts.shape == (bins.size, 1)
    expected = np.bincount(np.digitize(values, edges), minlength=bins.size)
    np.testing.assert_array_equal(counts[:, 0], expected)


def test_counts_are_those_of_histogram_column_by_column():
    rng = np.random.default_rng(2)
    table = np.abs(rng.standard_cauchy((500, 6))) * 10.0 ** np.arange(-3, 3)
    bins = Bins(-6, 10)
    edges = np.concatenate([[0.0], bins.edges(), [np.inf]])
    for layout in (table, np.asfortranarray(table), table[::-1], table[:, ::-1][:, ::-1]):
        counts = bins.count(layout)
        for column in range(6):
            np.testing.assert_array_equal(counts[:, column], np.histogram(table[:, column], edges)[0])
    np.testing.assert_array_equal(counts.sum(axis=0), 500)


def test_no_rows_count_as_nothing():
    assert Bins(-3, 4).count(np.empty((0, 2))).sum() == 0


def test_edges_ascend_by_eighths_of_an_octave():
    bins = Bins(-2, 3)
    edges = bins.edges()
    assert len(edges) == bins.size - 1 == 25
    np.testing.assert_array_equal(edges[:9], (1 + np.arange(9) / 8) / 4)
    assert edges[-1] == 2.0
    assert np.all(np.diff(edges) > 0)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1.0, 1e300, 1.7e308])
def test_bins_around_any_positive_scale_count_right(scale):
    bins = Bins.around(scale)
    edges = bins.edges()
    assert np.all(np.isfinite(edges))
    assert np.all(np.diff(edges) > 0)
    values = np.concatenate([edges, np.nextafter(edges, 0.0), [0.0, scale]])
    expected = np.bincount(np.digitize(values, edges), minlength=bins.size)
    np.testing.assert_array_equal(bins.count(values[:, None])[:, 0], expected)


@pytest.mark.parametrize(
    ("name", "truth"),
    [("normal", 1.0), ("cauchy", 1 / 0.6744897501960817)],
)
def test_robust_scale_is_near_the_truth(name, truth):
    """The median of |Cauchy| is 1."""
    for unit in (1.0, 3e-4, 900.0):
        bins = Bins.around(unit)
        assert robust_scale(bins, _counts(bins, unit * _samples(name, 50_000, 1))) == pytest.approx(
            unit * truth, rel=0.02
        )


def test_robust_scale_shrugs_at_a_tenth_of_absurd_rows():
    r = _samples("normal", 50_000, 1)
    r[:5000] = 1e12
    bins = Bins(-28, 36)
    assert 1.0 < robust_scale(bins, _counts(bins, r)) < 1.25


@pytest.mark.parametrize(
    "residuals",
    [
        np.full(200, 0.37),
        np.zeros(200),
        np.concatenate([np.zeros(100), np.linspace(0.5, 2.0, 100)]),
        np.concatenate([np.zeros(150), np.linspace(0.5, 2.0, 50)]),
        np.concatenate([np.zeros(199), [1.0]]),
        np.full(200, 1e200),
        np.full(200, 1e-200),
        np.array([0.0]),
        np.array([4.0]),
    ],
    ids=["equal", "zero", "half-zero", "mostly-zero", "all-but-one-zero", "huge", "tiny", "one-zero", "one"],
)
@pytest.mark.parametrize("bins", [Bins(-28, 36), Bins.around(1.0)], ids=["first", "around"])
def test_degenerate_residuals_give_finite_positive_answers(bins, residuals):
    """The attacker's node has residuals that are all equal: no spread, yet a bandwidth and a density."""
    for _ in range(400):  # as often as a long fit would ask, each scale choosing the next bins
        counts = _counts(bins, residuals)
        scale = robust_scale(bins, counts)
        h = scale_bandwidth(scale, len(residuals))
        density = binned_density(bins, counts, h, scale)
        assert 0 < scale < np.inf
        assert 0 < h < np.inf
        assert 0 < density < np.inf
        assert 0.05 * 0.999 <= density * scale <= 5.0 * 1.001
        bins = Bins.around(scale)


def test_the_next_quantile_speaks_where_half_is_zero():
    bins = Bins(-10, 14)
    r = np.concatenate([np.zeros(600), np.full(400, 1.15)])
    assert robust_scale(bins, _counts(bins, r)) == pytest.approx(1.0, rel=0.05)
    r = np.concatenate([np.zeros(900), np.full(100, 1.96)])
    assert robust_scale(bins, _counts(bins, r)) == pytest.approx(1.0, rel=0.05)


def test_a_poisoned_member_weighs_as_much_as_its_rows():
    """Counts add: n rows shift the total by n, whatever is in them, so the density moves by their share."""
    r = _samples("normal", 9000, 5)
    bins = Bins.around(1.0)
    clean, poison = _counts(bins, r), _counts(bins, np.full(1000, 1e9))
    scale = robust_scale(bins, clean)
    h = scale_bandwidth(scale, 9000)
    before = binned_density(bins, clean, h, scale)
    assert binned_density(bins, clean + poison, h, scale) == pytest.approx(0.9 * before, rel=1e-12)


@pytest.mark.parametrize("power", [-60, -3, 1, 17])
@pytest.mark.parametrize("name", ["normal", "cauchy"])
def test_powers_of_two_scale_exactly(name, power):
    r, unit = _samples(name, 1001, 7), 2.0**power
    small, large = Bins.around(0.8), Bins.around(0.8 * unit)
    counts = _counts(small, r)
    np.testing.assert_array_equal(_counts(large, r * unit), counts)
    scale = robust_scale(small, counts)
    assert robust_scale(large, counts) == scale * unit
    h = scale_bandwidth(scale, 1001)
    assert scale_bandwidth(scale * unit, 1001) == h * unit
    assert (
        binned_density(large, counts, h * unit, scale * unit)
        == binned_density(small, counts, h, scale) / unit
    )


def test_paper_bandwidth_by_hand():
    """Section 4.1: sqrt(s log n / n) + s^(-1/2) (c0 s^2 log n / m)^((v+1)/2), n = 200, s = m = 10."""
    log_n = 5.298317366548036
    rate = (10 * log_n / 200) ** 0.5
    base = 0.013 * 100 * log_n / 10
    for outer in (0, 1, 5):
        assert paper_bandwidth(outer, 10, 200, 10) == pytest.approx(
            rate + base ** ((outer + 1) / 2) / 10**0.5
        )
    assert paper_bandwidth(0, 1, np.e, 1, c0=0.25) == pytest.approx(np.e**-0.5 + 0.5)
    assert paper_bandwidth(0, 10, 200, 10) > paper_bandwidth(3, 10, 200, 10) > rate


def test_scale_bandwidth_by_hand():
    assert scale_bandwidth(2.0, 32.0) == pytest.approx(3.0)
    assert scale_bandwidth(1.0, 0.0) == scale_bandwidth(1.0, 2.0) == pytest.approx(3.0 / 2**0.2)
