"""A few thousand of the inputs that `benchmarks.codec_fuzz` throws a million of, and what it found."""

from itertools import islice

import numpy as np
import pytest

from benchmarks import codec_fuzz
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.messages import Ask, Done, Flood, Hello, Introduction, Part, Schema, Standing, Vector
from desmr_node.transport import codec
from desmr_node.transport.wire import peer_pb2 as pb

LIMITS = codec.Limits.of(features=100, lambdas=20)


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_message_or_the_peers_fault(seed):
    outcome = codec_fuzz.throw(seed, 3_000)
    assert outcome.wrong == []
    assert outcome.counts.total() == 3_000
    for kind in codec_fuzz.KINDS:
        assert outcome.counts[kind, "message"] > 30
        assert outcome.counts[kind, "fault"] > 100
    assert outcome.milliseconds < codec_fuzz.MOST_MILLISECONDS
    assert outcome.megabytes < codec_fuzz.MOST_MEGABYTES


def test_the_same_seed_gives_the_same_inputs():
    first, again, other = (list(islice(codec_fuzz.inputs(seed, 500), 500)) for seed in (7, 7, 8))
    assert first == again != other


def test_opened_and_closed_again():
    rng = np.random.default_rng(0)
    for make in codec_fuzz.KINDS.values():
        data = codec.encode(make(rng))
        assert b"".join(each.bytes() for each in codec_fuzz.opened(data)) == data


@pytest.mark.parametrize(
    ("message", "promise"),
    [
        (Vector(1, 1, 1, np.full((2, 1), np.inf)), "not finite doubles"),
        (Vector(1, 1, 1, np.ones((2, 9))), "beyond the limits"),
        (Vector(2**31, 1, 1, np.ones((2, 1))), "an absurd key"),
    ],
)
def test_a_codec_that_let_this_through_would_be_found_out(message, promise, monkeypatch):
    assert codec_fuzz.broken_promise(message, codec_fuzz.LIMITS) == promise
    monkeypatch.setattr(codec, "decode", lambda data, limits: message)
    outcome = codec_fuzz.Outcome()
    outcome.add("vector", b"anything")
    assert promise in outcome.wrong[0]


def test_another_exception_would_be_found_out(monkeypatch):
    def decode(data, limits):
        raise ValueError("oops")

    monkeypatch.setattr(codec, "decode", decode)
    outcome = codec_fuzz.Outcome()
    outcome.add("noise", b"\x01")
    assert outcome.wrong == ["noise: ValueError: oops: 01"]


# -- long messages are looked at before they are unpacked ----------------------------------------------------


def field(number, content):
    return codec_fuzz.Field(number, 2, content).bytes()


def body(kind, content):
    return field(1, field(pb.Envelope.DESCRIPTOR.fields_by_name[kind].number, content))


ROOM = LIMITS.message_bytes - 100
BLOWN_UP = {
    "bodies": (field(1, b"\x0a\x00\x12\x00" * (ROOM // 4)), "more than one message"),
    "envelopes": (b"\x0a\x02\x0a\x00" * (ROOM // 4), "more than one message"),
    "records": (body("flood", b"\x1a\x00" * (ROOM // 2)), "over 4096 records at once"),
    "bodies of a record": (body("flood", field(3, b"\x1a\x00\x22\x00" * (ROOM // 4))), "more fields than"),
    "neighbours": (body("flood", field(3, field(3, b"\x0a\x01b" * (ROOM // 3)))), "bytes of introductions"),
    "features": (body("hello", b"\x3a\x00" * (ROOM // 2)), "too many features, settings or names"),
    "asked for": (body("ask", b"\x1a\x00" * (ROOM // 2)), "too many features, settings or names"),
    "of another tag": (b"\x12" + body("vector", bytes(ROOM))[1:], "no message of this protocol"),
    "in a group": (body("flood", b"\x1b" * ROOM), "no message of this protocol"),
    "too short": (body("flood", bytes(ROOM))[:-1], "no message of this protocol"),
    "an endless number": (b"\xff" * ROOM, "no message of this protocol"),
}


@pytest.mark.parametrize("name", BLOWN_UP)
def test_what_would_take_many_times_its_length_in_memory(name, monkeypatch):
    """It is refused without being unpacked at all."""
    monkeypatch.setattr(codec, "pb", None)
    data, says = BLOWN_UP[name]
    assert len(data) <= LIMITS.message_bytes
    with pytest.raises(PeerFault, match=says):
        codec.decode(data, LIMITS)


NAMES = tuple(sorted(f"clinic-{k}" for k in range(4096)))


@pytest.mark.parametrize(
    "message",
    [
        Vector(1, 2, 3, np.ones((101, 20))),
        Flood(1, 2, tuple(Part(name, np.ones(60, dtype=np.uint64), bytes(70)) for name in NAMES)),
        Flood(1, 2, (Part("a", np.ones(250_000, dtype=np.uint64), bytes(70)),)),
        Flood(1, 0, (Introduction("a", NAMES, bytes(32), bytes(700), bytes(70)),)),
        Flood(1, 0, tuple(Introduction(n, NAMES[:9], bytes(9), bytes(9), bytes(9)) for n in NAMES[9:])),
        Ask(1, 2, NAMES, True),
        Hello(
            "n", "a", 1, Schema("y", tuple(f"x{k}" + "y" * 4000 for k in range(100))), {"a": "1"}, Standing()
        ),
        Done(1),
    ],
    ids=lambda message: f"{type(message).__name__}-{len(codec.encode(message))}",
)
def test_long_honest_messages_pass(message):
    data = codec.encode(message)
    assert codec_fuzz.bits(codec.decode(data, LIMITS)) == codec_fuzz.bits(message)
