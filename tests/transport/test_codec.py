"""Messages survive the wire to the last bit; any foreign bytes give a message or the peer's fault."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from desmr_node.core.agreement import FIRST_BINS
from desmr_node.core.contributions import Moments, Report, Start
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.fixed import words_of
from desmr_node.protocol.messages import (
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Part,
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.transport import codec
from desmr_node.transport.wire import peer_pb2 as pb

LIMITS = codec.Limits(order=50, columns=20, message_bytes=1 << 20)

# -- there and back ------------------------------------------------------------------------------------------

keys = st.integers(0, 2**31 - 1)
ids = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
printable = st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"])
text = st.text(printable, max_size=30)
doubles = st.sampled_from([0.0, -0.0, 5e-324, -2.2e-308, 1.7e308, 1.0, np.pi]) | st.floats(
    allow_nan=False, allow_infinity=False
)
matrices = st.tuples(st.integers(1, 50), st.integers(1, 20)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=doubles, fill=st.just(0.0))
)
vectors = st.builds(Vector, keys, keys, keys, matrices)
introductions = st.builds(
    lambda origin, names, mask, certificate, signature, needed, rows: Introduction(
        origin, tuple(sorted(names - {origin})), mask, certificate, signature, indispensable=needed, rows=rows
    ),
    ids, st.frozensets(ids, max_size=5), st.binary(max_size=32), st.binary(max_size=99),
    st.binary(max_size=72), st.booleans(), st.integers(0, 2**48),
)  # fmt: skip
parts = st.builds(
    Part,
    ids,
    arrays(np.uint64, st.integers(1, 40), elements=st.integers(0, 2**64 - 1)),
    st.binary(max_size=72),
)
floods = st.builds(
    Flood, keys, keys, st.lists(introductions, max_size=4).map(tuple) | st.lists(parts, max_size=4).map(tuple)
)
standings = st.builds(Standing, keys, st.booleans(), keys, keys)
hellos = st.builds(
    Hello, text, ids, st.integers(0, 2**64 - 1),
    st.builds(Schema, text, st.lists(text, max_size=9).map(tuple)),
    st.dictionaries(text, text, max_size=9), standings, keys, keys, st.integers(1, 2**31 - 1),
    st.text(printable, max_size=64), st.dictionaries(text, text, max_size=9),
)  # fmt: skip
asks = st.builds(Ask, keys, keys, st.lists(ids, max_size=9).map(tuple), st.booleans())
aborts = st.builds(Abort, keys, ids, text)
messages = st.one_of(
    vectors, floods, hellos, asks, aborts, st.builds(Reject, text), st.builds(Done, keys)
)  # fmt: skip


def bits(message):
    """Everything in a message, arrays as bytes: equality that tells 0.0 from -0.0."""
    match message:
        case Vector(fit, outer, inner, B):
            return fit, outer, inner, B.shape, B.astype("<f8").tobytes()
        case Flood(fit, number, records):
            return fit, number, [(type(r), r.origin, r.content(), r.signature) for r in records]
    return message


@settings(max_examples=400, deadline=None)
@given(messages)
def test_there_and_back_to_the_last_bit(message):
    data = codec.encode(message)
    back = codec.decode(data, LIMITS)
    assert type(back) is type(message)
    assert bits(back) == bits(message)
    assert codec.size(message) == len(data)
    assert len(codec.encode(back)) == len(data)


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_is_not_meaning(order):
    B = np.random.default_rng(0).standard_normal((7, 3))
    back = codec.decode(codec.encode(Vector(1, 2, 3, np.asarray(B, order=order))), LIMITS)
    assert back.B.tobytes() == B.tobytes()
    assert back.B.shape == (7, 3)
    again = codec.decode(codec.encode(Vector(1, 2, 3, B[::2])), LIMITS)  # nor are strides
    assert np.array_equal(again.B, B[::2])


def test_a_sparse_matrix_travels_as_what_is_there():
    B = np.zeros((50, 20))
    B[3, 4], B[7, 0] = 1.5, -0.0
    sparse = codec.encode(Vector(1, 0, 0, B))
    dense = codec.encode(Vector(1, 0, 0, B + 1.0))
    overhead = 30
    assert len(sparse) <= 2 * 8 + 1000 // 8 + overhead  # -0.0 is there
    assert 8 * 1000 < len(dense) <= 8 * 1000 + overhead
    assert np.signbit(codec.decode(sparse, LIMITS).B[7, 0])


@pytest.mark.parametrize("zeros", range(0, 65, 4))
def test_the_shorter_form_is_chosen(zeros):
    """A bit map of 64 bits costs 8 bytes: it pays from the second zero on."""
    B = np.ones((8, 8))
    B.flat[:zeros] = 0.0
    envelope = pb.ExchangeRequest.FromString(codec.encode(Vector(1, 0, 0, B))).envelope.vector
    assert len(envelope.values) + len(envelope.present) == min(8 * 64, 8 * (64 - zeros) + 8)
    assert bool(envelope.present) == (zeros >= 2)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 127, 128, 2047, 2048, 262_143, 262_144])
def test_sizes_without_encoding(length):
    words = np.zeros(length, dtype=np.uint64)
    for signature in (b"", bytes(70), bytes(200)):
        for fit in (0, 1, 300):
            message = Flood(
                fit, 5, (Part("a", words, signature), Part("bb", words[: length // 2], signature))
            )
            assert codec.size(message) == len(codec.encode(message))
    assert codec.size(Flood(0, 0, ())) == len(codec.encode(Flood(0, 0, ())))


# -- what is refused -----------------------------------------------------------------------------------------


def wire(**body):
    return pb.ExchangeRequest(envelope=pb.Envelope(**body)).SerializeToString()


def vector(**changes):
    fields = {"fit": 1, "rows": 2, "columns": 2, "values": np.ones(4).tobytes()}
    return wire(vector=pb.Vector(**(fields | changes)))


def record(**changes):
    fields = {"origin": "a", "signature": b"s", "words": bytes(8)}
    return wire(flood=pb.Flood(fit=1, number=1, records=[pb.Record(**(fields | changes))]))


def introduction(**changes):
    fields = {"neighbours": ["b", "c"], "mask_key": bytes(32), "certificate": b"c"}
    body = pb.Introduction(**(fields | changes))
    return wire(flood=pb.Flood(records=[pb.Record(origin="a", introduction=body)]))


def hello(**changes):
    fields = {
        "version": 1,
        "oldest_version": 1,
        "network": "net",
        "node": "a",
        "response": "y",
        "features": ["x"],
    }
    return wire(hello=pb.Hello(**(fields | changes)))


def test_what_the_refused_are_made_from_is_sound():
    for data in (vector(), record(), introduction(), hello()):
        codec.decode(data, LIMITS)


BIG = 2**31
REFUSED = {
    "more rows than there are": (introduction(rows=2**48 + 1), "rows: nobody has so many"),
    "too large": (bytes((1 << 20) + 1), "sent 1048577 bytes at once: at most 1048576 make sense here"),
    "not protobuf": (b"\xff\xff\xff", "no message of this protocol"),
    "cut short": (vector()[:-3], "no message of this protocol"),
    "not utf-8": (record().replace(b"\n\x01a", b"\n\x01\xff"), "no message of this protocol"),
    "nothing": (b"", "of no known kind"),
    "an empty envelope": (wire(), "of no known kind"),
    "of the future": (b"\x0a\x04\xba\x06\x01\x00", "of no known kind"),
    "no rows": (vector(rows=0, values=b""), "sent 0 x 2 coefficients"),
    "no columns": (vector(columns=0, values=b""), "sent 2 x 0 coefficients"),
    "too many rows": (vector(rows=51), "sent 51 x 2 coefficients: at most 50 x 20 make sense"),
    "too many columns": (vector(columns=21), "sent 2 x 21 coefficients"),
    "huge": (vector(rows=10**9, columns=200, values=b""), "sent 1000000000 x 200 coefficients"),
    "part of a double": (vector(values=bytes(31)), "not whole doubles"),
    "too few": (vector(values=bytes(24)), "sent 3 coefficients instead of 4"),
    "too many": (vector(values=bytes(40)), "sent 5 coefficients instead of 4"),
    "NaN": (vector(values=np.array([1, 1, np.nan, 1.0]).tobytes()), "not finite"),
    "infinity": (vector(values=np.array([1, 1, -np.inf, 1.0]).tobytes()), "not finite"),
    "NaN, sparsely": (vector(values=np.array([np.nan]).tobytes(), present=b"\x01"), "not finite"),
    "a long bit map": (vector(values=bytes(8), present=b"\x01\x00"), "bit map of the wrong length"),
    "a bit map of too much": (vector(values=bytes(8), present=b"\x03"), "does not match its coefficients"),
    "a bit map of too little": (vector(values=bytes(16), present=b"\x01"), "does not match its coefficients"),
    "a bit map beyond the end": (vector(values=bytes(8), present=b"\x10"), "does not match its coefficients"),
    "a large fit": (vector(fit=BIG), "sent 2147483648 as the number of a fit, sum or round"),
    "a large outer": (vector(outer=BIG), "as the number"),
    "a large inner": (vector(inner=BIG), "as the number"),
    "a large sum": (wire(flood=pb.Flood(number=BIG)), "as the number"),
    "a large flood": (wire(flood=pb.Flood(fit=BIG)), "as the number"),
    "too many records": (wire(flood=pb.Flood(records=[pb.Record()] * 4097)), "4097 records at once"),
    "no origin": (record(origin=""), "sent '' as a node id"),
    "a loud origin": (record(origin="A"), "sent 'A' as a node id"),
    "a long origin": (record(origin="a" * 64), "as a node id"),
    "an origin with a newline": (record(origin="a\n"), r"sent 'a\\n' as a node id"),
    "a long signature": (record(signature=bytes(257)), "a record of a with an overlong signature"),
    "part of a word": (record(words=bytes(9)), "a record of a that is not made of whole words"),
    "no words": (record(words=b""), "not made of whole words"),
    "an empty record": (wire(flood=pb.Flood(records=[pb.Record(origin="a")])), "a record of a of no known"),
    "many neighbours": (introduction(neighbours=["b"] * 4097), "names more members than there can be"),
    "neighbours unsorted": (introduction(neighbours=["c", "b"]), "not a sorted set of others"),
    "a neighbour twice": (introduction(neighbours=["b", "b"]), "not a sorted set of others"),
    "its own neighbour": (introduction(neighbours=["a", "b"]), "not a sorted set of others"),
    "a loud neighbour": (introduction(neighbours=["B"]), "as a node id"),
    "a long mask key": (introduction(mask_key=bytes(33)), "overlong keys"),
    "a long certificate": (introduction(certificate=bytes(16_385)), "overlong keys"),
    "many settings": (hello(settings={str(i): "" for i in range(201)}), "too many features or settings"),
    "a long feature": (hello(features=["x" * 4097]), "a feature name that is too long or has unprintable"),
    "a feature with a bell": (hello(features=["x\a"]), "a feature name that is too long or has unprintable"),
    "a network with a newline": (hello(network="n\n"), "a network that is too long or has unprintable"),
    "a response with an escape": (hello(response="\x1b[2J"), "a response that is too long"),
    "a setting with a newline": (hello(settings={"a": "\n"}), "a setting that is too long"),
    "the name of a setting": (hello(settings={"\n": "a"}), "a setting that is too long"),
    "a nameless node": (hello(node=""), "as a node id"),
    "a large version": (hello(version=BIG), "as the number"),
    "a large oldest version": (hello(oldest_version=BIG), "as the number"),
    "a large method": (hello(method=BIG), "as the number"),
    "a long release": (hello(release="0" * 65), "a release that is too long or has unprintable"),
    "a release with an escape": (hello(release="\x1b[2J"), "a release that is too long or has unprintable"),
    "many defaults": (hello(defaults={str(i): "" for i in range(201)}), "too many features or settings"),
    "a default with a newline": (hello(defaults={"a": "\n"}), "a setting that is too long"),
    "the name of a default": (hello(defaults={"\n": "a"}), "a setting that is too long"),
    "a large standing": (hello(fit=BIG), "as the number"),
    "a long reject": (wire(reject=pb.Reject(reason="x" * 4097)), "a reason that is too long"),
    "a colourful reject": (wire(reject=pb.Reject(reason="\x1b[31m")), "a reason that is too long or has"),
    "many asked for": (wire(ask=pb.Ask(missing=["a"] * 4097)), "more members than there can be"),
    "a loud one asked for": (wire(ask=pb.Ask(missing=["A"])), "as a node id"),
    "a large ask": (wire(ask=pb.Ask(fit=BIG)), "as the number"),
    "a large asked sum": (wire(ask=pb.Ask(number=BIG)), "as the number"),
    "an abort by nobody": (wire(abort=pb.Abort(fit=1, reason="r")), "as a node id"),
    "an unprintable abort": (wire(abort=pb.Abort(origin="a", reason="\n")), "a reason that is too long"),
    "a large abort": (wire(abort=pb.Abort(fit=BIG, origin="a")), "as the number"),
    "a large done": (wire(done=pb.Done(fit=BIG)), "as the number"),
}  # fmt: skip


def test_a_hello_from_before_there_were_methods_and_releases():
    said = codec.decode(hello(), LIMITS)
    assert (said.method, said.release, said.defaults) == (1, "", {})


def test_an_odd_release_arrives_as_what_can_be_read():
    odd = replace(codec.decode(hello(), LIMITS), release="1.0\n+" + "x" * 99)
    assert codec.decode(codec.encode(odd), LIMITS).release == "1.0 +" + "x" * 59


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    data, says = REFUSED[name]
    with pytest.raises(PeerFault, match=says):
        codec.decode(data, LIMITS)


def test_too_many_features_are_refused():
    limits = codec.Limits(50, 20, 1 << 24)
    with pytest.raises(PeerFault, match="too many features"):
        codec.decode(hello(features=[""] * 1_000_001), limits)


@pytest.mark.parametrize(
    "reason", ["two\nlines", "a\tb\x1b[31m", "x" * 10_000, "lone \ud800 surrogate", "é·β fine"]
)
def test_a_reason_arrives_whatever_it_quotes(reason):
    """It may hold pieces of a file; it must not make us look like the one at fault."""
    shown = "".join(c if c.isprintable() else " " for c in reason)[:4096]
    assert codec.decode(codec.encode(Reject(reason)), LIMITS) == Reject(shown)
    assert codec.decode(codec.encode(Abort(1, "a", reason)), LIMITS) == Abort(1, "a", shown)


# -- any bytes -----------------------------------------------------------------------------------------------


def sound(data, limits=LIMITS):
    try:
        message = codec.decode(data, limits)
    except PeerFault as fault:
        text = str(fault)
        if not text.isprintable():
            raise AssertionError(f"an unprintable fault: {text!r}") from fault
        return False
    if isinstance(message, Vector):
        assert np.isfinite(message.B).all()
        assert message.B.dtype == np.float64
    codec.encode(message)
    return True


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_the_peers_fault(data):
    sound(data)


def test_mutated_messages_give_a_message_or_the_peers_fault():
    """Tens of thousands of real messages with bytes changed, cut, doubled or swapped."""
    rng = np.random.default_rng(0)
    real = [data for data, _ in REFUSED.values() if len(data) < 500]
    real += 3 * [wire(done=pb.Done(fit=1)), wire(reject=pb.Reject(reason="because")), record(words=bytes(80))]
    B = np.where(rng.random((9, 3)) < 0.5, 0.0, rng.standard_normal((9, 3)))
    real += [vector(), record(), introduction(), hello(settings={"a": "1"}), codec.encode(Vector(1, 2, 3, B))]
    real += [wire(ask=pb.Ask(fit=1, missing=["a", "b"])), wire(abort=pb.Abort(fit=1, origin="a", reason="r"))]
    passed = 0
    choices = rng.integers(0, 2**31, (30_000, 4))
    for kind, which, where, value in choices.tolist():
        data = bytearray(real[which % len(real)])
        at = where % (len(data) + 1)
        match kind % 5:
            case 0:
                data[at : at + 1] = bytes([value % 256])
            case 1:
                del data[at : at + 1 + value % 4]
            case 2:
                data[at:at] = data[: value % 20]
            case 3:
                data[at:at] = bytes([value % 256, (value >> 8) % 256])
            case 4:
                data = data[:at] + bytearray(real[value % len(real)])[at:]
        passed += sound(bytes(data))
    assert 1_000 < passed < 29_000  # both ends of the codec were at work


# -- memory --------------------------------------------------------------------------------------------------


def peak(data, limits):
    tracemalloc.start()
    sound(data, limits)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize(
    "data",
    [
        vector(rows=10**9, columns=200, values=b""),
        vector(rows=10**6, columns=200, values=b"", present=b"\x01"),
        vector(rows=2**32 - 1, columns=2**32 - 1, values=b""),
        record(words=bytes(8)),
        wire(ask=pb.Ask(missing=["a"] * 1000)),
    ],
)
def test_a_small_message_takes_little_memory(data):
    generous = codec.Limits(order=10**6, columns=200, message_bytes=10**9)
    assert peak(data, generous) < 200_000


def test_a_bit_map_pays_for_what_it_opens():
    """The worst case: nothing but zeros. A byte of the message opens eight doubles, no more."""
    generous = codec.Limits(order=10**6, columns=200, message_bytes=10**9)
    B = np.zeros((100_000, 1))
    data = codec.encode(Vector(1, 0, 0, B))
    assert len(data) < 13_000
    assert peak(data, generous) < 3 * 64 * len(data)


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [1, 5, 100, 1000])
@pytest.mark.parametrize("lambdas", [1, 20, 200])
def test_every_honest_message_is_within_the_limits(features, lambdas):
    limits = codec.Limits.of(features, lambdas)
    order, L, bins = features + 1, lambdas, FIRST_BINS.size
    row, square = np.zeros(order), np.broadcast_to(0.0, (order, order))
    candidate = np.zeros(L)
    largest = max(
        words_of(Moments(np.zeros(()), np.zeros(features), np.zeros(257))),
        words_of(Start(row, square, row, np.zeros(bins), row)),
        words_of(Report(candidate, candidate, np.broadcast_to(0.0, (order, L)), *[candidate] * 6,
                        np.broadcast_to(0.0, (bins, L)))),
    )  # fmt: skip
    assert 8 * largest + (1 << 20) + 1_000 < limits.message_bytes  # beside a full bundle of other records
    dense = codec.encode(Vector(2**31 - 1, 1, 1, np.ones((order, L))))
    assert codec.decode(dense, limits).B.shape == (order, L)
