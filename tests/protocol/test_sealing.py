"""Masks cancel bit for bit and look like noise; bad keys are refused; signed bytes say all and are unique."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from desmr_node.core.contributions import Start
from desmr_node.errors import DesmrError
from desmr_node.protocol.fixed import Packing, pack, packing_of
from desmr_node.protocol.sealing import KeyRefused, MaskKey, Masks, signing_bytes

CONTEXT = b"divisions/fit 1"


def _key(seed):
    return MaskKey(np.random.default_rng(seed).bytes(32))


def _network(ids, seed=0, context=CONTEXT):
    keys = {name: _key((seed, i)) for i, name in enumerate(ids)}
    publics = {name: key.public for name, key in keys.items()}
    return {name: Masks(name, key, context, publics) for name, key in keys.items()}


def _mask(masks, number, length, packing=None):
    """The bare mask: what zeros become."""
    packing = packing or Packing(((length, 1),))
    return masks.apply(number, np.zeros(length, dtype=np.uint64), packing)


# -- masks cancel ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=12, unique=True),
    runs=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=4),
    number=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_masked_words_add_up_to_the_plain_words(ids, runs, number, seed):
    rng = np.random.default_rng(seed)
    packing = Packing(tuple(runs))
    words = {name: rng.integers(0, 2**64, packing.length, dtype=np.uint64) for name in ids}
    masks = _network(ids, seed)
    masked = {name: masks[name].apply(number, words[name], packing) for name in ids}
    plain, total = (
        packing.sum(words[name] for name in ids),
        packing.sum(masked[name] for name in reversed(ids)),
    )
    assert total.tobytes() == plain.tobytes()
    if len(ids) > 1 and packing.length > 1:
        assert all(np.any(masked[name] != words[name]) for name in ids)


def test_masks_are_added_and_subtracted_with_carries():
    """Against Python's integers; word by word the masks would not cancel."""
    packing, ids = Packing(((50, 4),)), "abc"
    masks = _network(ids)
    pairs = {pair: _mask(_network_of(pair), 1, 200) for pair in ("ab", "ac", "bc")}

    def numbers(words):
        data = words.astype("<u8").tobytes()
        return [int.from_bytes(data[i : i + 32], "little") for i in range(0, len(data), 32)]

    streams = {pair: numbers(stream) for pair, stream in pairs.items()}
    plain = np.random.default_rng(14).integers(0, 2**64, 200, dtype=np.uint64)
    found = numbers(masks["b"].apply(1, plain, packing))
    expected = zip(numbers(plain), streams["bc"], streams["ab"], strict=True)
    assert found == [(n + plus - minus) % 2**256 for n, plus, minus in expected]
    assert not packing.sum(_mask(m, 1, 200, packing) for m in masks.values()).any()
    assert np.add.reduce([_mask(m, 1, 200, packing) for m in masks.values()]).any()


def _network_of(pair):
    """The masks of the first of two of the members of `_network("abc")`, had they been alone."""
    one, other = (_key((0, "abc".index(name))) for name in pair)
    return Masks(pair[0], one, CONTEXT, {pair[1]: other.public})


def test_words_that_do_not_fit_the_packing_are_not_masked():
    masks = _network("ab")["a"]
    for shape in (4, 6, (1, 5)):
        with pytest.raises(ValueError, match="in a packing of 5"):
            masks.apply(1, np.zeros(shape, dtype=np.uint64), Packing(((1, 5),)))


def test_a_lonely_member_has_no_mask():
    assert not _mask(Masks("a", _key(1), CONTEXT, {}), 0, 5).any()


def test_masks_depend_on_number_context_ids_and_keys():
    first = _mask(_network("abc")["b"], 1, 8)
    assert first.dtype == np.uint64
    assert np.array_equal(first, _mask(_network("abc")["b"], 1, 8))
    publics = {name: _key((0, i)).public for i, name in enumerate("abc")}
    others = [
        _mask(_network("abc")["b"], 2, 8),
        _mask(_network("abc", context=CONTEXT + b" again")["b"], 1, 8),
        _mask(_network("abc", seed=1)["b"], 1, 8),
        _mask(_network("xbc")["b"], 1, 8),  # the same keys under another name
        _mask(_network("ab")["b"], 1, 8),
        # one key replaced: the other pair's stream stays, the sum does not
        _mask(Masks("b", _key((0, 1)), CONTEXT, {**publics, "c": _key(99).public}), 1, 8),
    ]
    for one, other in itertools.combinations([first, *others], 2):
        assert not np.any(one == other)


def test_a_prefix_of_a_longer_mask_is_not_what_a_number_gives_twice():
    masks = _network("ab")["a"]
    assert np.array_equal(_mask(masks, 7, 10), _mask(masks, 7, 10))  # a record that is sent again
    with pytest.raises(ValueError, match="sum 7 was masked with 10 words"):
        _mask(masks, 7, 11)
    _mask(masks, 8, 11)


def test_a_coalition_short_of_one_honest_pair_sees_noise():
    """All but two of nine pool their keys: what is left on either of the two is their pair's stream."""
    ids = "abcdefghi"
    length = 4000
    masks = {name: _mask(network, 3, length) for name, network in _network(ids).items()}
    known = np.zeros(length, dtype=np.uint64)
    for name in ids[2:]:
        known += masks[name]
    assert np.array_equal(masks["a"] + masks["b"], np.zeros(length, dtype=np.uint64) - known)
    pair = _mask(_network("ab")["a"], 3, length)  # the same keys and names, so the same stream
    rest = Masks("a", _key((0, 0)), CONTEXT, {n: _key((0, i)).public for i, n in enumerate(ids) if n != "b"})
    assert np.array_equal(masks["a"] - _mask(rest, 3, length), pair)
    assert _looks_uniform(pair)


# -- masked words look like noise --------------------------------------------------------------------------

#: Below this a test rejects. Keys are fixed, so a pass stays a pass; about 140 p-values are taken per vector.
LEVEL = 1e-5
ORDER = 110
PACKING = packing_of(Start(*(np.zeros(n) for n in (ORDER, (ORDER, ORDER), ORDER, 64, ORDER))))
LENGTH = PACKING.length


def _byte_test(words):
    return stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue


def _bit_tests(words):
    """Each of the 64 positions: as many ones as zeros."""
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    z = (bits.sum(axis=0) - len(words) / 2) / np.sqrt(len(words) / 4)
    return 2 * stats.norm.sf(np.abs(z))


def _serial_tests(words):
    """Correlation of each word, and of each of its bits, with the next word's."""
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    series = np.column_stack([words.astype(np.float64) / 2.0**64 - 0.5, bits - 0.5])
    products = series[1:] * series[:-1]
    spread = np.sqrt(np.mean(np.square(products), axis=0))
    z = products.mean(axis=0) / spread * np.sqrt(len(products))
    return 2 * stats.norm.sf(np.abs(z))


def _uniform_p_values(words):
    words = np.ascontiguousarray(words)
    return {"bytes": _byte_test(words), "bits": _bit_tests(words).min(), "serial": _serial_tests(words).min()}


def _looks_uniform(words):
    return min(_uniform_p_values(words).values()) > LEVEL


def _two_sample_p_values(one, other):
    """Do two vectors look alike: their words by Kolmogorov-Smirnov, their bytes by a contingency table."""
    table = [np.bincount(w.view(np.uint8), minlength=256) for w in (one, other)]
    seen = np.array(table)[:, np.sum(table, axis=0) > 0]
    as_numbers = [w.astype(np.float64) for w in (one, other)]
    return {"words": stats.ks_2samp(*as_numbers).pvalue, "bytes": stats.chi2_contingency(seen).pvalue}


def _contribution(seed, scale):
    """A member's packed `Start`, the largest thing it ever sends."""
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((300, ORDER))
    gram = X.T @ X / 300
    counts = rng.integers(0, 99, 64).astype(np.float64)
    return pack(Start(np.diag(gram), gram, X.mean(axis=0), counts, gram[0]))


@pytest.mark.parametrize("name", list("abcdefghi"))
def test_a_masked_contribution_looks_uniform(name):
    words = _contribution(4, 1.0)
    assert words.shape == (LENGTH,)
    masked = _network("abcdefghi", seed=6)[name].apply(5, words, PACKING)
    assert _looks_uniform(masked), _uniform_p_values(masked)


def test_the_least_random_contribution_looks_uniform_too():
    """Two members and nothing but zeros: the bare stream of one pair."""
    for name, masks in _network("ab", seed=7).items():
        assert _looks_uniform(_mask(masks, 0, LENGTH, PACKING)), name


def test_the_same_tests_reject_the_plain_contribution():
    values = _uniform_p_values(_contribution(4, 1.0))
    assert max(values.values()) < LEVEL, values


def test_the_tests_see_one_loaded_bit_and_one_repeated_word():
    masked = _network("abc", seed=6)["a"].apply(5, _contribution(4, 1.0), PACKING)
    loaded = masked | (np.arange(LENGTH) % 10 == 0).astype(np.uint64)  # a tenth of the lowest bits set
    assert _uniform_p_values(loaded)["bits"] < LEVEL
    assert _uniform_p_values(np.repeat(masked[: LENGTH // 2], 2))["serial"] < LEVEL
    assert _uniform_p_values(masked & np.uint64(0xFFFFFFFFFFFFFF7F))["bytes"] < LEVEL


def test_two_contributions_under_different_keys_look_alike():
    small, large = _contribution(8, 0.01), _contribution(9, 30.0)
    plain = _two_sample_p_values(small, large)
    assert max(plain.values()) < LEVEL, plain
    masked = _two_sample_p_values(
        _network("abc", seed=10)["a"].apply(1, small, PACKING),
        _network("abc", seed=11)["a"].apply(1, large, PACKING),
    )
    assert min(masked.values()) > LEVEL, masked


def test_sums_of_one_fit_and_masks_of_two_members_are_not_alike_in_any_place():
    masks = _network("abc", seed=12)
    numbers = (0, 1, 256, 2**32, 2**63)
    vectors = [_mask(m, number, LENGTH, PACKING) for m in masks.values() for number in numbers]
    for one, other in itertools.combinations(vectors, 2):
        assert np.count_nonzero(one == other) == 0
        difference = _bit_tests(np.ascontiguousarray(one ^ other))
        assert difference.min() > LEVEL


# -- keys --------------------------------------------------------------------------------------------------


def test_generated_keys_differ_and_come_back_from_their_bytes():
    one, other = MaskKey.generate(), MaskKey.generate()
    assert one.public != other.public
    assert MaskKey(one.private_bytes()).public == one.public


def test_x25519_test_vector():
    """RFC 7748, section 6.1."""
    alice = MaskKey(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert alice.shared(bob).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_a_private_key_is_never_shown():
    private = np.random.default_rng(13).bytes(32)
    key = MaskKey(private)
    shown = f"{key!r} {key!s} {key} {Masks('a', key, CONTEXT, {})!r}"
    assert key.public.hex() in shown
    assert private.hex() not in shown
    assert repr(private) not in shown
    with pytest.raises(ValueError, match="32 bytes") as caught:
        MaskKey(private[:-1])
    assert private[:-1].hex() not in str(caught.value)


#: All points of small order on the curve: whatever the other's key, the shared secret is zero.
SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (325606250916557431795983626356110631294008115727848805560023387167927233504).to_bytes(32, "little"),
    (39382357235489614581723060781553021112529911719440698176882885853963445705823).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
]


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_a_key_of_small_order_is_refused(public):
    with pytest.raises(KeyRefused, match="mask key of pacific gives no secret"):
        Masks("mountain", _key(1), CONTEXT, {"pacific": public})
    assert issubclass(KeyRefused, DesmrError)


@pytest.mark.parametrize(
    "public",
    [
        b"",
        bytes(31),
        bytes(33),
        (2**255 - 19).to_bytes(32, "little"),
        (2**255 + 9).to_bytes(32, "little"),  # the base point, spelled otherwise
    ],
)
def test_a_malformed_key_is_refused(public):
    with pytest.raises(KeyRefused, match="mask key of pacific is not an X25519 public key"):
        Masks("mountain", _key(1), CONTEXT, {"pacific": public})


def test_a_copied_key_is_refused():
    own, other = _key(1), _key(2).public
    with pytest.raises(KeyRefused, match="b and c announce the same"):
        Masks("a", own, CONTEXT, {"b": other, "c": other})
    with pytest.raises(KeyRefused, match="a and b announce the same"):
        Masks("a", own, CONTEXT, {"b": own.public})
    with pytest.raises(KeyRefused, match="someone uses our name"):
        Masks("a", own, CONTEXT, {"a": other})


def test_our_own_key_may_be_in_the_list_or_not():
    publics = {"b": _key(2).public, "c": _key(3).public}
    own = _key(1)
    one = Masks("a", own, CONTEXT, publics)
    other = Masks("a", own, CONTEXT, {"a": own.public, **publics})
    assert np.array_equal(_mask(one, 1, 9), _mask(other, 1, 9))


# -- signed bytes ------------------------------------------------------------------------------------------


def test_signed_bytes_are_fixed():
    """Members of different versions must agree on them."""
    assert signing_bytes("net", 1, 258, "é", b"\x00\xff") == (
        b"\x0f" + bytes(7) + b"desmr.record.v1"
        b"\x03" + bytes(7) + b"net"
        b"\x08" + bytes(7) + b"\x01" + bytes(7) + b"\x08" + bytes(7) + b"\x02\x01" + bytes(6) + b"\x02"
        + bytes(7) + "é".encode() + b"\x02" + bytes(7) + b"\x00\xff"
    )  # fmt: skip


place = st.tuples(
    st.text("ab\x00\x01", max_size=3),
    st.integers(0, 2),
    st.integers(0, 2),
    st.text("ab\x00\x01", max_size=3),
    st.binary(max_size=3),
)


@given(place, place)
def test_different_records_have_different_bytes(one, other):
    assert (signing_bytes(*one) == signing_bytes(*other)) == (one == other)


def test_moving_a_letter_from_one_field_to_the_next_changes_the_bytes():
    assert signing_bytes("ab", 0, 0, "c", b"d") != signing_bytes("a", 0, 0, "bc", b"d")
    assert signing_bytes("ab", 0, 0, "c", b"d") != signing_bytes("ab", 0, 0, "cd", b"")
