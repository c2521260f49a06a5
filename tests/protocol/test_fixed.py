"""Fixed-point contributions, against fractions: exact sums in any order; what does not fit is found out."""

import math
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from desmr_node.core import contributions
from desmr_node.core.contributions import Ballot, Closing, Contribution, Evaluation, Moments, Report, Start
from desmr_node.errors import DesmrError
from desmr_node.protocol import fixed
from desmr_node.protocol.fixed import (
    BROAD,
    COUNT,
    EXACT,
    LENGTH,
    METRIC,
    MOST_MEMBERS,
    Fixed,
    RangeExceeded,
    pack,
    unpack,
    words_of,
)

FORMATS = {"count": COUNT, "metric": METRIC, "length": LENGTH, "broad": BROAD, "exact": EXACT}
MAX = np.finfo(np.float64).max
doubles = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


def _summed(form, rows):
    """The total of one array per member, through words."""
    words = np.zeros((np.size(rows[0]), form.words), dtype=np.uint64)
    for row in rows:
        words += form.encode(np.asarray(row, dtype=np.float64), "it")
    return form.decode(words, len(rows), "it")


def _exact(words, exponent):
    """The number a row of words stands for, by whole-number arithmetic."""
    return sum(int(d) * Fraction(2) ** (exponent + 48 * i) for i, d in enumerate(words.view(np.int64)))


def _quantised(value, form):
    """To the format's unit, half to even: what `round` does to a fraction."""
    unit = Fraction(2) ** form.exponent
    return round(Fraction(value) / unit) * unit


def _close(found, exact):
    return abs(Fraction(float(found)) - exact) <= Fraction(math.ulp(float(exact)))


@given(st.lists(doubles, min_size=1, max_size=20))
def test_every_double_is_encoded_to_its_last_bit(values):
    encoded = EXACT.encode(np.array(values), "it")
    assert [_exact(row, EXACT.exponent) for row in encoded] == [Fraction(v) for v in values]
    assert EXACT.decode(encoded, 1, "it").tolist() == values


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_encoding_rounds_half_to_even_to_the_unit(name, data):
    form = FORMATS[name]
    unit = math.ldexp(1.0, form.exponent)
    halves = st.integers(-(2**20), 2**20).map(lambda k: k * 0.5 * unit)  # ties, where the unit allows
    value = data.draw(halves | st.floats(-form.largest, form.largest))
    (encoded,) = form.encode(np.array([value]), "it")
    assert _exact(encoded, form.exponent) == _quantised(value, form)
    assert np.abs(encoded.view(np.int64)).max() <= 2**47


@given(st.lists(st.floats(-MAX / 64, MAX / 64), min_size=1, max_size=40))
def test_a_sum_of_wild_numbers_is_right_to_the_last_place(values):
    (total,) = _summed(EXACT, [[v] for v in values])
    assert abs(total - math.fsum(values)) <= math.ulp(math.fsum(values))
    assert _close(total, sum(map(Fraction, values)))


def _wild(rng, members, size):
    values = rng.standard_normal((members, size)) * 10.0 ** rng.integers(-300, 300, (members, size))
    tiny = rng.random((members, size)) < 0.2
    values[tiny] = rng.integers(-1000, 1000, int(tiny.sum())) * 5e-324
    for column in range(0, size - 1, 2):  # most of every other column cancels, nearly or wholly
        half = members // 2
        values[half : 2 * half, column] = -values[:half, column]
        if column % 4 == 0:
            values[half, column] *= 1.0 + 2.0**-52
    return values


@pytest.mark.parametrize("members", [1, 2, 9, 50])
def test_wild_magnitudes_and_cancellation(members):
    rng = np.random.default_rng(members)
    values = _wild(rng, members, 60)
    totals = _summed(EXACT, values)
    for total, column in zip(totals, values.T, strict=True):
        assert _close(total, sum(map(Fraction, column)))
        if column.any() and math.fsum(column) == 0:
            assert total == 0


@given(st.lists(st.integers(-(2**46), 2**46), min_size=1, max_size=40), st.integers(-1074, 900))
def test_a_total_that_is_a_double_is_exact(numbers, exponent):
    values = [math.ldexp(n, exponent) for n in numbers]
    assert all(Fraction(v) == n * Fraction(2) ** exponent for v, n in zip(values, numbers, strict=True))
    assert abs(sum(numbers)) < 2**53
    assert _summed(EXACT, [[v] for v in values]) == math.ldexp(sum(numbers), exponent)


@pytest.mark.parametrize("name", ["metric", "broad", "length"])
def test_narrower_formats_add_up_to_the_sum_of_rounded_numbers(name):
    form = FORMATS[name]
    rng = np.random.default_rng(3)
    reach = form.exponent + 48 * form.words - 2
    values = np.ldexp(rng.uniform(-1.0, 1.0, (11, 80)), rng.integers(form.exponent - 60, reach, (11, 80)))
    for total, column in zip(_summed(form, values), values.T, strict=True):
        assert _close(total, sum(_quantised(v, form) for v in column))


def test_order_does_not_matter():
    rng = np.random.default_rng(5)
    values = _wild(rng, 12, 40)
    totals = _summed(EXACT, values)
    for _ in range(5):
        again = _summed(EXACT, rng.permutation(values))
        assert again.tobytes() == totals.tobytes()
    shuffled = [sum(rng.permutation(column)) for column in values.T]
    assert np.any(totals != shuffled)  # plain addition does depend on it


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_most_members_with_the_largest_numbers_do_not_wrap(name, sign):
    form = FORMATS[name]
    # Every digit of such a total is as large as it can be.
    full = sum(Fraction(2**47) * Fraction(2) ** (form.exponent + 48 * i) for i in range(form.words))
    digits = np.full((1, form.words), int(sign) * 2**47 * MOST_MEMBERS, dtype=np.int64)
    if name == "exact":
        with pytest.raises(RangeExceeded, match="larger than any double"):
            form.decode(digits.view(np.uint64), MOST_MEMBERS, "it")
    else:
        assert _close(
            form.decode(digits.view(np.uint64), MOST_MEMBERS, "it")[0], int(sign) * MOST_MEMBERS * full
        )


def test_the_largest_doubles():
    assert _summed(EXACT, [[MAX, -MAX]]).tolist() == [MAX, -MAX]
    assert _summed(EXACT, [[MAX], [MAX], [-MAX]]).tolist() == [MAX]  # on the way it would overflow
    with pytest.raises(RangeExceeded, match="larger than any double"):
        _summed(EXACT, [[MAX], [MAX]])


@pytest.mark.parametrize("name", ["count", "metric", "broad"])
def test_what_does_not_fit_is_refused_by_name(name):
    form = FORMATS[name]
    form.encode(np.array([form.largest, -form.largest]), "it")
    for bad in (np.nextafter(form.largest, np.inf), -2.0 * form.largest, np.inf, -np.inf, np.nan):
        with pytest.raises(RangeExceeded, match=r"Report\.check .* number 2 .*within") as caught:
            form.encode(np.array([0.0, 1.0, bad]), "Report.check")
        assert f"{form.largest:.3g}" in str(caught.value)
    assert issubclass(RangeExceeded, DesmrError)


def test_every_double_fits_the_exact_format_but_no_nan():
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(RangeExceeded):
            EXACT.encode(np.array([bad]), "it")


def test_saturation():
    top = LENGTH.largest
    assert top == 2.0**95
    wild = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, 3.0])
    assert LENGTH.decode(LENGTH.encode(wild, "it"), 1, "it").tolist() == [top, -top, top, top, -top, 3.0]
    assert _summed(LENGTH, [[np.inf]] * 7).tolist() == [7 * top]


@pytest.mark.parametrize("name", FORMATS)
def test_a_random_wrong_word_is_found_out(name):
    form = FORMATS[name]
    rng = np.random.default_rng(11)
    encoded = form.encode(rng.integers(-100, 100, 30).astype(np.float64), "it")
    found, trials = 0, 400
    for _ in range(trials):
        words = encoded.copy()
        row, word = rng.integers(30), rng.integers(form.words)
        words[row, word : word + 1] += rng.integers(0, 2**64, 1, dtype=np.uint64)
        try:
            form.decode(words, 9, "Start.gram")
        except RangeExceeded as error:
            assert "the sum of Start.gram is out of range: a member's" in str(error)  # noqa: PT017
            found += 1
    assert found >= trials - 2  # one in 7000 happens to fit


@pytest.mark.parametrize("members", [0, -1, MOST_MEMBERS + 1])
def test_the_number_of_members_is_checked(members):
    with pytest.raises(RangeExceeded, match="members"):
        COUNT.decode(np.zeros((1, 1), dtype=np.uint64), members, "it")


# -- whole contributions -----------------------------------------------------------------------------------


def _start(rng, order, pooled=True):
    A = rng.standard_normal((order + 3, order))
    gram = A.T @ A / (order + 3) if pooled else np.zeros((0, 0))
    gram = (gram + gram.T) / 2
    return Start(
        variances=np.square(A).mean(axis=0),
        gram=gram,
        pilot=rng.standard_normal(order),
        counts=rng.integers(0, 50, 64) * 0.7,
        linear=np.zeros(order),
    )


def _report(rng, p, L):
    def positive():
        return np.square(rng.standard_normal(L))

    return Report(
        check=positive(),
        squares=positive(),
        votes=rng.integers(0, 2, (p, L)).astype(np.float64),
        penalty=positive(),
        penalty_before=positive(),
        moved=1e-20 * positive(),
        disagreement=1e-9 * positive(),
        edges=positive(),
        changed=positive(),
        counts=rng.integers(0, 40, (64, L)).astype(np.float64),
    )


def _samples(rng):
    scalar = rng.standard_normal
    return {
        "moments": Moments(np.array(17.0), 1e9 * scalar(5), rng.integers(0, 9, 257).astype(np.float64)),
        "moments without columns": Moments(np.array(17.0), np.zeros(0), np.zeros(257)),
        "spreads": contributions.Spreads(np.square(scalar(5))),
        "start": _start(rng, 6),
        "start of one column": _start(rng, 1),
        "start, not pooled": _start(rng, 6, pooled=False),
        "report": _report(rng, 4, 3),
        "report of one lambda": _report(rng, 4, 1),
        "ballot": Ballot(rng.integers(0, 2, 5).astype(np.float64), scalar(5)),
        "closing": Closing(np.array(scalar()), np.array(scalar())),
        "evaluation": Evaluation(np.array(12.0), np.array(3.5), np.array(2.25)),
    }


SAMPLES = sorted(_samples(np.random.default_rng(0)))


def test_every_contribution_has_a_format_for_every_field():
    classes = [c for c in vars(contributions).values() if isinstance(c, type) and issubclass(c, Contribution)]
    assert len(classes) >= 8
    for cls in set(classes) - {Contribution}:
        assert list(fixed.layout(cls)) == [f.name for f in fields(cls)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_contribution_there_and_back(name):
    rng = np.random.default_rng(7)
    parts = [_samples(rng)[name] for _ in range(9)]
    words = [pack(part) for part in parts]
    assert {w.shape for w in words} == {(words_of(parts[0]),)}
    assert {w.dtype for w in words} == {np.dtype(np.uint64)}
    cls = type(parts[0])
    found, expected = unpack(cls, np.add.reduce(words), parts[0], len(parts)), cls.total(parts)
    assert type(found) is cls
    for field in fields(cls):
        total, plain = getattr(found, field.name), getattr(expected, field.name)
        assert total.shape == plain.shape
        assert total.dtype == np.float64
        np.testing.assert_allclose(total, plain, rtol=1e-13, atol=1e-15 if field.name != "moved" else 1e-35)


def test_the_gram_matrix_travels_as_its_upper_triangle():
    rng = np.random.default_rng(1)
    part = _start(rng, 20)
    assert words_of(part) == 3 * 20 * EXACT.words + 2 * 64 + 2 * 210
    gram = unpack(Start, pack(part), part, 1).gram
    assert np.array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, part.gram, rtol=0, atol=2.0**-65)


@pytest.mark.parametrize("exponent", [-300, -3, 41, 600])
def test_the_gram_matrix_of_unscaled_columns(exponent):
    rng = np.random.default_rng(2)
    part = _start(rng, 5)
    scaled = Start(part.variances, np.ldexp(part.gram, exponent), part.pilot, part.counts, part.linear)
    gram = unpack(Start, pack(scaled, exponent), scaled, 1, exponent).gram
    assert np.array_equal(gram, np.ldexp(unpack(Start, pack(part), part, 1).gram, exponent))
    if exponent > 31:
        with pytest.raises(RangeExceeded, match=r"Start\.gram"):
            pack(scaled)


def test_a_vector_of_the_wrong_length_is_not_unpacked():
    part = _start(np.random.default_rng(3), 4)
    for words in (pack(part)[:-1], np.append(pack(part), np.uint64(0)), pack(part)[None]):
        with pytest.raises(ValueError, match="words for a Start"):
            unpack(Start, words, part, 1)


def test_a_wrong_word_names_the_field():
    part = _report(np.random.default_rng(4), 3, 2)
    words = pack(part)
    words[-1] ^= np.uint64(1 << 62)
    with pytest.raises(RangeExceeded, match=r"the sum of Report\.counts is out of range"):
        unpack(Report, words, part, 9)


def test_small_numbers_leave_the_upper_digits_alone():
    """The total of each digit is visible: digits must not say how many members hold a negative number."""
    both = Fixed(-64, 4).encode(np.array([1e-6, -1e-6, 1.0, -1.0]), "it")
    assert not both[:2, 2:].any()
    low = [METRIC.encode(np.full(1, 0.1 + 1e-4 * k), "it").view(np.int64)[0, 0] for k in range(1000)]
    assert abs(np.mean(np.sign(low))) < 0.15  # signs of low digits of a thousand positive numbers
