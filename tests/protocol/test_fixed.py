"""Fixed-point contributions, against fractions: exact sums in any order; what does not fit is found out."""

import hashlib
import math
from collections import Counter
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

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
    Packing,
    RangeExceeded,
    pack,
    packing_of,
    unpack,
    words_of,
)

FORMATS = {"count": COUNT, "metric": METRIC, "length": LENGTH, "broad": BROAD, "exact": EXACT}
MAX = np.finfo(np.float64).max
doubles = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)


def _summed(form, rows):
    """The total of one array per member, through words."""
    return form.decode(
        _added([form.encode(np.asarray(row, dtype=np.float64), "it") for row in rows]), len(rows), "it"
    )


def _added(encoded):
    """Sum of members' words (size, words)."""
    size, words = encoded[0].shape
    return Packing(((size, words),)).sum(w.ravel() for w in encoded).reshape(size, words)


def _numbers(words):
    """What each row of words stands for, in units of the format, as Python integers."""
    return [int.from_bytes(row.astype("<u8").tobytes(), "little", signed=True) for row in words]


def _words(numbers, width):
    """Python integers, taken mod 2^(64 width), as rows of words."""
    data = b"".join((n % 2 ** (64 * width)).to_bytes(8 * width, "little") for n in numbers)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(len(numbers), width)


def _exact(words, exponent):
    """The number a row of words stands for."""
    return _numbers(words[None])[0] * Fraction(2) ** exponent


def _bound(form):
    """A member's largest number, in units of the format."""
    return 2 ** (64 * form.words - 17)


def _quantised(value, form):
    """To the format's unit, half to even: what `round` does to a fraction."""
    unit = Fraction(2) ** form.exponent
    return round(Fraction(value) / unit) * unit


def _close(found, exact):
    return abs(Fraction(float(found)) - exact) <= Fraction(math.ulp(float(exact)))


@settings(deadline=None)
@given(st.lists(doubles, min_size=1, max_size=20))
def test_every_double_is_encoded_to_its_last_bit(values):
    encoded = EXACT.encode(np.array(values), "it")
    assert [_exact(row, EXACT.exponent) for row in encoded] == [Fraction(v) for v in values]
    assert EXACT.decode(encoded, 1, "it").tolist() == values


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(data=st.data())
def test_encoding_rounds_half_to_even_to_the_unit(name, data):
    form = FORMATS[name]
    unit = math.ldexp(1.0, form.exponent)
    halves = st.integers(-(2**20), 2**20).map(lambda k: k * 0.5 * unit)  # ties, where the unit allows
    value = data.draw(halves | st.floats(-form.largest, form.largest))
    (encoded,) = form.encode(np.array([value]), "it")
    assert _exact(encoded, form.exponent) == _quantised(value, form)
    assert abs(_numbers(encoded[None])[0]) <= _bound(form)


@settings(deadline=None)
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


@settings(deadline=None)
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
    reach = form.exponent + 64 * form.words - 18
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
    (number,) = _numbers(_added([_words([int(sign) * _bound(form)], form.words)] * 3))
    assert number == 3 * int(sign) * _bound(form)
    total = int(sign) * MOST_MEMBERS * _bound(form)
    if name == "exact":
        with pytest.raises(RangeExceeded, match="larger than any double"):
            form.decode(_words([total], form.words), MOST_MEMBERS, "it")
    else:
        (found,) = form.decode(_words([total], form.words), MOST_MEMBERS, "it")
        assert found == sign * MOST_MEMBERS * form.largest


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("members", [1, 2, 9, MOST_MEMBERS])
def test_a_total_may_reach_its_bound_and_not_go_beyond(name, members):
    form = FORMATS[name]
    bound = members * _bound(form)
    beyond = [bound + 1, -bound - 1, bound + 2 ** (64 * form.words - 63), -(2 ** (64 * form.words - 1))]
    for total in beyond:
        with pytest.raises(RangeExceeded, match="it is out of range"):
            form.decode(_words([0, total], form.words), members, "it")
    for total in (bound, -bound, bound - 1, 1 - bound):
        if name == "exact":
            with pytest.raises(RangeExceeded, match="larger than any double"):
                form.decode(_words([total], form.words), members, "it")
        else:
            (found,) = form.decode(_words([total], form.words), members, "it")
            assert _close(found, total * Fraction(2) ** form.exponent)


@pytest.mark.parametrize("name", ["metric", "length", "broad", "exact"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_lowest_bit_decides_a_tie(name, sign):
    form = FORMATS[name]
    normal = max(2, -1074 - form.exponent)
    for shift in range(normal, min(64 * form.words - 90, 960 - form.exponent)):
        number = (2**53 + 1) << shift  # halfway between two doubles, of which the lower is even
        encoded = _words([sign * (number + d) for d in (-1, 0, 1)], form.words)
        units = form.decode(encoded, 1, "it") / math.ldexp(1.0, form.exponent + shift)
        assert units.tolist() == [sign * 2.0**53, sign * 2.0**53, sign * (2.0**53 + 2)]


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(data=st.data())
def test_decoding_rounds_to_the_nearest_double(name, data):
    form = FORMATS[name]
    bits = min(64 * form.words - 18, 1023 - form.exponent)  # no larger than all doubles
    halfway = st.integers(2**52, 2**53 - 1).map(lambda k: 2 * k + 1)  # between two doubles
    leading = data.draw(halfway | halfway.map(lambda k: -k) | st.integers(-(2**66), 2**66))
    below = data.draw(st.integers(-2, 2) | st.integers(-(2**64), 2**64))
    number = (leading << data.draw(st.integers(0, max(bits - 54, 0)))) + below
    number = max(min(number, 2**bits), -(2**bits))
    (found,) = form.decode(_words([number], form.words), 1, "it")
    exact = number * Fraction(2) ** form.exponent
    assert _close(found, exact)
    if abs(exact) >= Fraction(2) ** -1022:
        assert found == float(exact)  # Python rounds half to even
    assert math.copysign(1.0, found) == (-1.0 if number < 0 else 1.0)


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
def test_a_random_wrong_number_is_found_out(name):
    """What a mask that nobody takes off leaves: a uniform number."""
    form = FORMATS[name]
    rng = np.random.default_rng(11)
    encoded = form.encode(rng.integers(-100, 100, 30).astype(np.float64), "it")
    found, trials = 0, 400
    for _ in range(trials):
        words = encoded.copy()
        words[rng.integers(30)] = rng.integers(0, 2**64, form.words, dtype=np.uint64)
        try:
            form.decode(words, 9, "Start.gram")
        except RangeExceeded as error:
            assert "the sum of Start.gram is" in str(error)  # noqa: PT017
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
    found, expected = unpack(cls, packing_of(parts[0]).sum(words), parts[0], len(parts)), cls.total(parts)
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


@pytest.mark.parametrize("exponent", [-300, -3, 51, 600])
def test_the_gram_matrix_of_unscaled_columns(exponent):
    rng = np.random.default_rng(2)
    part = _start(rng, 5)
    scaled = Start(part.variances, np.ldexp(part.gram, exponent), part.pilot, part.counts, part.linear)
    gram = unpack(Start, pack(scaled, exponent), scaled, 1, exponent).gram
    assert np.array_equal(gram, np.ldexp(unpack(Start, pack(part), part, 1).gram, exponent))
    if exponent > 47:
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


# -- carries ------------------------------------------------------------------------------------------------

#: Numbers around which words overflow, and any others.
_edges = st.builds(
    lambda s, k, d: s * 2**k + d, st.sampled_from([-1, 0, 1]), st.integers(0, 320), st.integers(-2, 2)
)
_runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=4)


@settings(deadline=None)
@given(data=st.data(), runs=_runs, added=st.integers(0, 4), subtracted=st.integers(0, 4))
def test_sums_carry_from_word_to_word_and_not_from_number_to_number(data, runs, added, subtracted):
    packing = Packing(tuple(runs))
    widths = [width for count, width in runs for _ in range(count)]
    assert packing.length == sum(widths)
    numbers = st.lists(_edges | st.integers(-(2**320), 2**320), min_size=len(widths), max_size=len(widths))

    def vector(values):
        pairs = zip(values, widths, strict=True)
        return np.concatenate([np.zeros(0, np.uint64), *(_words([n], w).ravel() for n, w in pairs)])

    plus, minus = ([data.draw(numbers) for _ in range(many)] for many in (added, subtracted))
    zeros = [0] * len(widths)
    totals = [
        sum(p) - sum(m)
        for p, m in zip(zip(zeros, *plus, strict=True), zip(zeros, *minus, strict=True), strict=True)
    ]
    vectors = [vector(values) for values in plus + minus]
    kept = [v.copy() for v in vectors]
    found = packing.sum(vectors[:added], vectors[added:])
    assert found.tolist() == vector(totals).tolist()
    assert packing.sum(vectors[:added][::-1], vectors[added:][::-1]).tolist() == found.tolist()
    for v, before in zip(vectors, kept, strict=True):
        assert np.array_equal(v, before)
        assert packing.negated(v).tolist() == packing.sum((), (v,)).tolist()
        assert not packing.add(v, packing.negated(v)).any()
        assert packing.add(v, found).tolist() == packing.sum([found, v]).tolist()


@pytest.mark.parametrize(
    ("one", "other"), [(2**192 - 1, 1), (-1, 1), (-1, -1), (-(2**128), 2**64), (2**64 - 1, 1)]
)
def test_carries_run_through_all_words(one, other):
    packing = Packing(((1, 4),))
    found = packing.add(_words([one], 4).ravel(), _words([other], 4).ravel())
    assert _numbers(found[None]) == [one + other]
    assert _numbers(packing.negated(found)[None]) == [-one - other]


@pytest.mark.parametrize("name", FORMATS)
def test_the_words_of_a_total_are_a_function_of_the_total_alone(name):
    """Of one member or nine, of one sign or both: nobody can tell from the words."""
    form = FORMATS[name]
    rng = np.random.default_rng(12)
    total = np.ldexp(rng.integers(-(2**40), 2**40, 50).astype(np.float64), max(form.exponent, -20))
    alone = [total, *np.zeros((8, 50))]
    spread = [*np.ldexp(rng.integers(-(2**40), 2**40, (8, 50)).astype(np.float64), max(form.exponent, -20))]
    spread.append(total - np.sum(spread, axis=0))
    assert all(np.all(row != 0) for row in spread)
    one, other = (_added([form.encode(row, "it") for row in rows]) for rows in (alone, spread))
    assert one.tobytes() == other.tobytes() == form.encode(total, "it").tobytes()


@settings(deadline=None)
@given(data=st.data(), members=st.integers(2, 9))
def test_so_are_those_of_filled_numbers(data, members):
    """Whatever the fillers are: words that stand for the same sum are the same."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = rng.standard_cauchy((members, 4)) * 10.0 ** rng.integers(-9, 9, (members, 4))
    encoded = [EXACT.encode(row, "it", _noise(rng, 4, EXACT)) for row in values]
    numbers = [sum(column) for column in zip(*map(_numbers, encoded), strict=True)]
    assert _added(encoded).tobytes() == _words(numbers, EXACT.words).tobytes()


def test_a_packing_is_where_pack_puts_the_numbers():
    part = _report(np.random.default_rng(13), 4, 3)
    assert packing_of(part) == Packing(((6, 8), (12, 1), (6, 8), (12, 4), (192, 2)))
    assert packing_of(part).length == words_of(part) == pack(part).size
    flat = [np.ravel(getattr(part, name)) for name in fixed.layout(Report)]
    exponents = [form.exponent for form in fixed.layout(Report).values()]
    expected = [_quantised(v, Fixed(e, 1)) for row, e in zip(flat, exponents, strict=True) for v in row]
    units = [Fraction(2) ** e for row, e in zip(flat, exponents, strict=True) for _ in row]
    words, found, first = pack(part), [], 0
    for count, width in packing_of(part).runs:
        found += _numbers(words[first : first + count * width].reshape(count, width))
        first += count * width
    assert [n * u for n, u in zip(found, units, strict=True)] == expected


# -- fillers: what a total says of one member ---------------------------------------------------------------

WIDE = sorted(set(FORMATS) - {"count"})


def _filler(*seed):
    return np.random.default_rng(seed).bytes(32)


def _noise(rng, size, form):
    return rng.integers(0, 2**64, (size, form.words), dtype=np.uint64)


def test_without_a_filler_the_words_are_what_they_always_were():
    """Members of different versions must agree on them."""
    k = np.arange(1, 7.0)
    part = Start(k / 3, np.outer(1 / k, 1 / k), -1e5 / k, np.arange(64) / 7, 1e-300 * k)
    found = hashlib.sha256(pack(part, 1).astype("<u8").tobytes()).hexdigest()
    assert found == "f7023611863ac2cb647afbbf07094d5cf29a0487ddc329cc4f1a252f7d56aee8"
    assert np.array_equal(pack(part, 1), pack(part, 1, None))
    assert not np.array_equal(pack(part, 1), pack(part, 1, _filler(0)))


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(data=st.data())
def test_a_filled_number_is_off_by_half_a_unit_in_the_last_place(name, data):
    form = FORMATS[name]
    reach = math.frexp(form.largest)[1]
    powers = st.tuples(st.sampled_from([-1.0, 1.0]), st.integers(max(form.exponent - 3, -1074), reach - 1))
    value = data.draw(st.floats(-form.largest, form.largest) | powers.map(lambda p: math.ldexp(*p)))
    word = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
    noise = data.draw(st.lists(word, min_size=form.words, max_size=form.words))
    encoded = form.encode(np.array([value]), "it", np.array([noise], dtype=np.uint64))
    unit = Fraction(2) ** form.exponent
    off = _numbers(encoded)[0] * unit - Fraction(value)
    ulp = Fraction(math.ulp(value))
    if ulp <= unit or abs(value) in (0.0, form.largest):
        assert off == _quantised(value, form) - Fraction(value)
    else:
        assert -ulp / 2 <= off < ulp / 2
    assert abs(_numbers(encoded)[0]) <= _bound(form)  # or the sum of the most members might wrap
    assert abs(form.decode(encoded, 1, "it")[0] - value) <= max(ulp, unit)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_numbers_at_the_edge_of_the_range_stay_within_it(name, sign):
    form = FORMATS[name]
    rng = np.random.default_rng(21)
    below = np.nextafter(form.largest, 0.0)
    for value in (form.largest, below, np.nextafter(below, 0.0), form.largest / 2):
        encoded = form.encode(np.full(500, sign * value), "it", _noise(rng, 500, form))
        assert max(map(abs, _numbers(encoded))) <= _bound(form)
        found = form.decode(encoded, 1, "it")
        assert np.abs(found - sign * value).max() <= math.ulp(value)
        assert np.abs(found).max() <= form.largest


def test_zeros_and_saturated_numbers_are_not_filled():
    rng = np.random.default_rng(22)
    for form in FORMATS.values():
        assert not form.encode(np.array([0.0, -0.0]), "it", _noise(rng, 2, form)).any()
    wild = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, LENGTH.largest])
    filled = LENGTH.encode(wild, "it", _noise(rng, 6, LENGTH))
    assert np.array_equal(filled, LENGTH.encode(wild, "it"))


def test_counts_are_exact_under_a_filler():
    rng = np.random.default_rng(23)
    values = np.concatenate([np.arange(-50.0, 50.0), 2.0**47 - np.arange(50.0), -(2.0 ** np.arange(48))])
    filled = COUNT.encode(values, "it", _noise(rng, values.size, COUNT))
    assert np.array_equal(filled.view(np.int64)[:, 0], values)
    parts = [_report(rng, 30, 3) for _ in range(9)]
    words = packing_of(parts[0]).sum(pack(part, 0, _filler(23, i)) for i, part in enumerate(parts))
    assert np.array_equal(unpack(Report, words, parts[0], 9).votes, Report.total(parts).votes)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("members", [1, 2, 9, 50])
def test_a_filled_total_is_off_by_half_an_ulp_of_each_member(name, members):
    form = FORMATS[name]
    rng = np.random.default_rng((24, members))
    reach = min(form.exponent + 64 * form.words - 18, 1000)
    values = np.ldexp(
        rng.uniform(-1.0, 1.0, (members, 80)), rng.integers(max(form.exponent, -1073), reach, (members, 80))
    )
    values[:, 40:] = np.ldexp(rng.uniform(0.5, 1.0, (members, 40)), reach - 48)  # of one size and sign
    values[rng.random(values.shape) < 0.1] = 0.0
    words = _added([form.encode(row, "it", _noise(rng, 80, form)) for row in values])
    totals, unit = form.decode(words, members, "it"), Fraction(2) ** form.exponent
    for total, number, column in zip(totals, _numbers(words), values.T, strict=True):
        exact = sum(_quantised(v, form) for v in column)
        allowed = Fraction(members, 2) * Fraction(math.ulp(np.abs(column).max()))
        assert abs(number * unit - exact) <= allowed
        # Decoding rounds once more: by an ulp of the total, which is larger than any part's if they agree.
        assert abs(Fraction(total) - exact) <= allowed + Fraction(math.ulp(total))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_filled_contribution_there_and_back(name):
    rng = np.random.default_rng(25)
    parts = [_samples(rng)[name] for _ in range(9)]
    cls = type(parts[0])
    first, second = (
        [pack(part, 0, _filler(26, sequence, i)) for i, part in enumerate(parts)] for sequence in range(2)
    )
    again = [pack(part, 0, _filler(26, 0, i)) for i, part in enumerate(parts)]
    assert [w.tobytes() for w in first] == [w.tobytes() for w in again]
    assert {w.shape for w in first} == {(words_of(parts[0]),)}
    one, other = (unpack(cls, packing_of(parts[0]).sum(words), parts[0], 9) for words in (first, second))
    for field in fields(cls):
        values = np.array([getattr(part, field.name) for part in parts]).reshape(9, -1)
        exact = np.array([math.fsum(column) for column in values.T])
        unit = math.ldexp(1.0, fixed.layout(cls)[field.name].exponent)
        allowed = 4.5 * (unit + np.spacing(np.abs(values).max(axis=0))) + 2.0 * np.spacing(np.abs(exact))
        for found in (one, other):
            assert np.all(np.abs(getattr(found, field.name).ravel() - exact) <= allowed)


def test_each_key_gives_its_own_bits_below_the_last_place_and_no_others():
    part = Moments(np.array(17.0), 1e5 + np.arange(200) / 7, np.arange(257.0))
    plain, one, other = (
        pack(part, 0, key)[1:-257].reshape(200, EXACT.words) for key in (None, _filler(27, 1), _filler(27, 2))
    )
    place = (1088 - 36) // 64  # 2^-36, the last place of all these numbers, is bit 28 of this word
    assert not plain[:, :place].any()
    for low in (one[:, :place], other[:, :place], (one - other)[:, :place]):
        assert low.all()
    half = 2 ** (1088 - 36 - 1)
    for filled in (one, other):
        off = [f - p for f, p in zip(_numbers(filled), _numbers(plain), strict=True)]
        assert min(off) >= -half
        assert max(off) < half
        assert max(map(abs, off)) > half // 2
        assert min(off) < 0 < max(off)


@pytest.mark.parametrize("exponent", [0, 1, 11, 12, 13, 47, 48, 63, 64, 65, 80, 128, 129])
def test_the_filler_is_uniform_wherever_the_last_place_falls(exponent):
    form = Fixed(0, 4)
    size = 4096
    value = math.ldexp(-0.7, exponent + 53)
    noise = _noise(np.random.default_rng((28, exponent)), size, form)
    assert math.ulp(value) == 2.0**exponent
    off = np.array(_numbers(form.encode(np.full(size, value), "it", noise)), dtype=object) - int(value)
    steps = 2 ** min(exponent, 5)
    width = 2**exponent // steps
    bins = np.array([(int(e) + 2**exponent // 2) // width for e in off])
    if exponent == 0:
        assert not off.any()
    else:
        assert stats.chisquare(np.bincount(bins, minlength=steps)).pvalue > 1e-4
        low = np.array([int(e) % steps for e in off])  # and so are the lowest bits
        assert stats.chisquare(np.bincount(low, minlength=steps)).pvalue > 1e-4


SMALL = 5000
ULP_BITS = 1088 - 36  # the last place of numbers near 1e5, in units of the format


def _attacked(filled):
    """Eight members with column sums near 1e5, and one with k/100 in column k: the totals mod 2^-36."""
    rng = np.random.default_rng(29)
    k = np.arange(SMALL)
    columns = [*rng.uniform(7e4, 1.3e5, (8, SMALL)), k / 100]
    parts = [Moments(np.array(9.0), sums, np.zeros(0)) for sums in columns]
    keys = [_filler(30, i) if filled else None for i in range(9)]
    words = packing_of(parts[0]).sum(pack(part, 0, key) for part, key in zip(parts, keys, strict=True))
    return k, [total % 2**ULP_BITS for total in _numbers(words[1:].reshape(SMALL, EXACT.words))]


def _residues_of_small_numbers():
    return [int(Fraction(k / 100) * 2**1088) % 2**ULP_BITS for k in range(SMALL)]


def test_an_exact_total_gives_a_small_member_away():
    k, residues = _attacked(filled=False)
    table = _residues_of_small_numbers()
    assert residues == table  # whatever the other eight hold
    alike = Counter(table)
    candidates = [alike[r] for r in residues]
    assert np.mean(candidates) < 120  # of 5000
    remainders = {r: {j % 25 for j in range(SMALL) if table[j] == r} for r in alike}
    assert all(remainders[r] == {j % 25} for j, r in zip(k.tolist(), residues, strict=True))


def test_a_filled_total_does_not():
    k, residues = _attacked(filled=True)
    table = _residues_of_small_numbers()
    assert not set(table) & set(residues)
    # Noise, from the bits just below the last place down to the lowest, whatever k is.
    for shift in (ULP_BITS - 5, ULP_BITS - 11, ULP_BITS // 2, 43, 0):
        bits = np.array([(r >> shift) % 32 for r in residues])
        assert stats.chisquare(np.bincount(bits, minlength=32)).pvalue > 1e-4
        joint = np.zeros((25, 32))
        np.add.at(joint, (k % 25, bits), 1)
        assert stats.chi2_contingency(joint).pvalue > 1e-4
    # The nearest residue that some k has, which told k mod 25 without fail, is now right by luck only.
    fine = np.array([r >> (ULP_BITS - 40) for r in residues], dtype=np.int64)
    known = np.array([r >> (ULP_BITS - 40) for r in table], dtype=np.int64)
    distance = (fine[:, None] - known + 2**39) % 2**40 - 2**39
    guess = np.abs(distance).argmin(axis=1) % 25
    assert stats.binomtest(int(np.sum(guess == k % 25)), SMALL, 1 / 25).pvalue > 1e-4


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_filler_key_of_the_wrong_length_is_refused_and_not_shown(length):
    part = _start(np.random.default_rng(31), 2)
    key = _filler(31)[:length].ljust(length, b"x")
    with pytest.raises(ValueError, match=f"32 bytes long, not {length}") as caught:
        pack(part, 0, key)
    assert not key or repr(key) not in str(caught.value)


def _low_bits(members, holding, size=4000):
    """Totals of which only some members hold anything but zero: what their low bits look like."""
    rng = np.random.default_rng((32, holding))
    values = np.zeros((members, size))
    values[:holding] = rng.uniform(0.5, 1.0, (holding, size))
    return _added([METRIC.encode(row, "it", _noise(rng, size, METRIC)) for row in values])[:, 0] % 2048


def test_low_bits_of_a_total_do_not_tell_how_many_members_are_not_zero():
    for holding in (1, 2, 4, 8):  # 11 bits are below the last place: uniform, whoever has filled them
        counts = np.bincount((_low_bits(8, holding) // 64).astype(np.int64), minlength=32)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert not _low_bits(8, 0).any()
