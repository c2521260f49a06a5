"""Bytes that were once written are read for ever, and what is written today an older release can read.

`wire-v<N>.json` holds, for wire version N, a message of every kind as the codec wrote it when N was new, and
the schema it was written by: from that the tests build a decoder that knows nothing of what came later. A
file is never written again. When VERSION is raised, add the next one, by the codec as it is then:

    .venv/bin/python tests/transport/test_wire.py

A new field that older nodes may skip needs no new version and no new file: give it a value in `SAID` that
stands for "absent", as the first release's bytes have it.
"""

import json
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from google.protobuf import descriptor_pool, message_factory

from desmr_node.protocol.messages import (
    VERSION,
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Message,
    Part,
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.transport import codec
from desmr_node.transport.wire import peer_pb2 as pb

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("wire-v*.json"))
LIMITS = codec.Limits(order=9, columns=4, message_bytes=1 << 20)
_WORDS = np.array([0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF], dtype=np.uint64)

#: What was said, in the words of today.
SAID: dict[str, Message] = {
    "hello": Hello(
        network="divisions",
        node="new-england",
        incarnation=0xFEDCBA9876543210,
        schema=Schema("violentPerPop", ("age", "größe", "medIncome")),
        settings={"penalty": '"scad"', "lambda": '"bic"', "outer": "20", "sparsity": "null", "seed": "0"},
        standing=Standing(7, True, 3, 9),
        version=1,
        oldest_version=1,
        method=1,
    ),
    "hello of a node that knows no fit": Hello(
        network="n",
        node="a",
        incarnation=0,
        schema=Schema("y", ()),
        settings={},
        standing=Standing(),
        version=1,
        oldest_version=1,
        method=1,
    ),
    "reject": Reject("feature 17 is 'medIncome' here and 'größe' at pacific"),
    "vector, dense": Vector(7, 3, 9, np.array([[1.0, -2.5, 3e-300], [5e-324, -0.0, 1.7e308]])),
    "vector, sparse": Vector(7, 3, 0, np.array([[0, 0, -0.0, 0, 0], [0, 0, np.pi, 0, -1.0]]).T),
    "vector of zeros": Vector(1, 0, 0, np.zeros((3, 1))),
    "flood of introductions": Flood(
        7,
        0,
        (
            Introduction("a", ("b", "pacific"), bytes(range(32)), b"\x30\x82certificate", b"signature\x00"),
            Introduction("b", (), b"", b"", b""),
        ),
    ),
    "flood of parts": Flood(7, 12, (Part("a", _WORDS, b"signature\xff"), Part("b", _WORDS[1:], b""))),
    "ask": Ask(7, 12, ("mountain", "pacific"), True),
    "ask for everything": Ask(7, 0, (), False),
    "abort": Abort(7, "pacific", "stopped by the operator of pacific"),
    "done": Done(7),
}  # fmt: skip


def _bits(message):
    """Everything in a message, arrays as bytes: equality that tells 0.0 from -0.0."""
    match message:
        case Vector(fit, outer, inner, B):
            return fit, outer, inner, B.shape, B.astype("<f8").tobytes()
        case Flood(fit, number, records):
            return fit, number, [(type(r), r.origin, r.content(), r.signature) for r in records]
    return message


def _kept(path):
    return json.loads(path.read_text(encoding="utf-8"))


EVERY = pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, id=f"{path.stem} {name}")
        for path in FILES
        for name in _kept(path)["messages"]
    ],
)


def _decoder(kept):
    """`desmr.peer.v1.ExchangeRequest` as that version had it."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(bytes.fromhex(kept["schema"]))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("desmr.peer.v1.ExchangeRequest"))


def _read(decoder, data):
    """What an older node makes of the bytes: fields it does not know are skipped."""
    read = decoder.FromString(data)
    read.DiscardUnknownFields()
    return read


def test_every_kind_of_message_is_kept_for_every_version():
    assert {type(message) for message in SAID.values()} == set(get_args(Message))
    assert [path.name for path in FILES] == [f"wire-v{n}.json" for n in range(1, VERSION + 1)]
    assert _kept(FILES[-1])["messages"].keys() == SAID.keys()


@EVERY
def test_what_was_written_is_read(path, name):
    read = codec.decode(bytes.fromhex(_kept(path)["messages"][name]), LIMITS)
    assert type(read) is type(SAID[name])
    assert _bits(read) == _bits(SAID[name])


@EVERY
def test_what_is_written_reads_as_it_did(path, name):
    """Field by field, as a release of that version sees it: its own bytes and today's are the same to it."""
    kept = _kept(path)
    decoder = _decoder(kept)
    then = decoder.FromString(bytes.fromhex(kept["messages"][name]))
    assert then.envelope.WhichOneof("body") is not None
    assert _read(decoder, codec.encode(SAID[name])) == then


def test_the_decoder_of_a_version_is_not_todays():
    """A field that is renumbered, retyped or left out would be seen."""
    kept = _kept(FILES[0])
    decoder = _decoder(kept)
    assert decoder.DESCRIPTOR is not pb.ExchangeRequest.DESCRIPTOR
    body = pb.ExchangeRequest.FromString(bytes.fromhex(kept["messages"]["abort"]))
    body.envelope.abort.ClearField("origin")
    assert _read(decoder, body.SerializeToString()) != _read(
        decoder, bytes.fromhex(kept["messages"]["abort"])
    )


def _write():
    path = HERE / f"wire-v{VERSION}.json"
    if path.exists():
        raise SystemExit(f"{path} is there: bytes that were written stay as they are")
    document = {
        "about": f"What wire version {VERSION} wrote when it was new, as hex; test_wire.py says when a file "
        "is added. Never changed: nodes that speak this version are out there.",
        "version": VERSION,
        "schema": pb.DESCRIPTOR.serialized_pb.hex(),
        "messages": {name: codec.encode(message).hex() for name, message in SAID.items()},
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(_write())
