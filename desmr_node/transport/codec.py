"""Messages to bytes and back. Every check on foreign bytes is here: what `decode` returns is sound in form.

Any bytes give a message or a `PeerFault`, never anything else. A coefficient matrix travels as packed
doubles, either all of them or a bit map and the nonzero ones, whichever is shorter; both are lossless to the
last bit.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from desmr_node.core.agreement import FIRST_BINS
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.messages import (
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Message,
    Part,
    Record,
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.protocol.sums import MOST_MEMBERS
from desmr_node.transport import outline
from desmr_node.transport.wire import peer_pb2 as pb

_DOUBLE, _WORD, _BYTE = np.dtype("<f8"), np.dtype("<u8"), np.dtype(np.uint8)
_VECTOR_TAG = bytes([pb.Envelope.VECTOR_FIELD_NUMBER << 3 | 2])
#: Bit maps up to this size are unpacked once and remembered, at most 256 of them.
_REMEMBERED_BYTES = 512
_NODE_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
#: Longest sentence, feature name or setting a peer may send, in characters.
_LONGEST_TEXT = 4_096
_MOST_SETTINGS = 200
_LONGEST_RELEASE = 64
_LONGEST_SIGNATURE, _LONGEST_CERTIFICATE, _LONGEST_MASK_KEY = 256, 16_384, 32
_LARGEST_KEY = 2**31 - 1
_MOST_ROWS = 2**48
#: A hello is checked before the features it lists can be compared with ours.
_MOST_FEATURES = 1_000_000
#: For a candidate lambda, beside the votes: a histogram of residuals, losses and lengths.
_REPORT_WORDS = 2 * FIRST_BINS.size + 100


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message of this network can be at most: coefficients per vector, candidate lambdas, bytes."""

    order: int
    columns: int
    message_bytes: int

    @classmethod
    def of(cls, features: int, lambdas: int) -> "Limits":
        """For a network with so many features and candidates at once."""
        order = features + 1
        # The largest records: the Gram matrix (two words for each of its upper half) beside a few exact
        # vectors, or votes and histograms for every candidate.
        words = order * (order + 1) + 4 * 34 * order + (order + _REPORT_WORDS) * lambdas + 10_000
        return cls(order, lambdas, 8 * words + 64 * features + (1 << 21))


def encode(message: Message) -> bytes:
    """The bytes of a message, as `desmr.peer.v1.ExchangeRequest` (or Response: they are alike)."""
    match message:
        case Vector():
            return _encode_vector(message)
        case Flood():
            records = [_record(r) for r in message.records]
            body = pb.Envelope(flood=pb.Flood(fit=message.fit, number=message.number, records=records))
        case Hello():
            body = pb.Envelope(hello=_hello(message))
        case Reject(reason):
            body = pb.Envelope(reject=pb.Reject(reason=_sentence(reason)))
        case Ask(fit, number, missing, vectors):
            body = pb.Envelope(ask=pb.Ask(fit=fit, number=number, missing=missing, vectors=vectors))
        case Abort(fit, origin, reason):
            body = pb.Envelope(abort=pb.Abort(fit=fit, origin=origin, reason=_sentence(reason)))
        case Done(fit):
            body = pb.Envelope(done=pb.Done(fit=fit))
    return pb.ExchangeRequest(envelope=body).SerializeToString()


def decode(data: bytes, limits: Limits) -> Message:
    """The message, or `PeerFault` saying what is wrong with the bytes."""
    if len(data) > limits.message_bytes:
        raise PeerFault(f"sent {len(data)} bytes at once: at most {limits.message_bytes} make sense here")
    outline.require_sense(data, limits.order)
    try:
        envelope = pb.ExchangeRequest.FromString(data).envelope
    except DecodeError:
        raise PeerFault("sent bytes that are no message of this protocol") from None
    kind = envelope.WhichOneof("body")
    if kind == "vector":
        return _read_vector(envelope.vector, limits)
    if kind == "flood":
        return _read_flood(envelope.flood)
    if kind == "hello":
        return _read_hello(envelope.hello)
    if kind == "reject":
        return Reject(_text(envelope.reject.reason, "reason"))
    if kind == "ask":
        ask = envelope.ask
        if len(ask.missing) > MOST_MEMBERS:
            raise PeerFault("asked for more members than there can be")
        missing = tuple(_node_id(name) for name in ask.missing)
        return Ask(_key(ask.fit), _key(ask.number), missing, ask.vectors)
    if kind == "abort":
        abort = envelope.abort
        return Abort(_key(abort.fit), _node_id(abort.origin), _text(abort.reason, "reason"))
    if kind == "done":
        return Done(_key(envelope.done.fit))
    raise PeerFault("sent a message of no known kind")


def is_vector(data: bytes) -> bool:
    """Whether well-formed bytes hold a vector: a look at the tags, without reading them."""
    # Tag and length of the envelope, a length of up to five bytes, then the tag of the vector in it.
    at = 1
    while at < min(len(data) - 1, 5) and data[at] & 0x80:
        at += 1
    return data[at + 1 : at + 2] == _VECTOR_TAG


# -- vectors -------------------------------------------------------------------------------------------------


def _encode_vector(message: Vector) -> bytes:
    # Filled in place, since nested constructors copy: this is the one message sent every round.
    request = pb.ExchangeRequest()
    vector = request.envelope.vector
    vector.fit, vector.outer, vector.inner = message.fit, message.outer, message.inner
    vector.rows, vector.columns = message.B.shape
    flat = message.B.ravel(order="F").astype(_DOUBLE, copy=False)
    nonzero = flat.view(_WORD) != 0  # by its bits: -0.0 is not 0.0
    if 8 * np.count_nonzero(nonzero) + (flat.size + 7) // 8 < 8 * flat.size:
        vector.present = np.packbits(nonzero, bitorder="little").tobytes()
        flat = flat[nonzero]
    vector.values = flat.tobytes()
    return request.SerializeToString()


def _read_vector(vector: pb.Vector, limits: Limits) -> Vector:
    rows, columns, values, present = vector.rows, vector.columns, vector.values, vector.present
    if not (0 < rows <= limits.order and 0 < columns <= limits.columns):
        raise PeerFault(
            f"sent {rows} x {columns} coefficients: at most {limits.order} x {limits.columns} make sense"
        )
    if len(values) % 8:
        raise PeerFault("sent coefficients that are not whole doubles")
    size = rows * columns
    flat = given = np.frombuffer(values, _DOUBLE)
    if present:
        if len(present) != (size + 7) // 8:
            raise PeerFault("sent a bit map of the wrong length")
        if int.from_bytes(present, "little").bit_count() != len(given) or present[-1] >> ((size - 1) % 8 + 1):
            raise PeerFault("sent a bit map that does not match its coefficients")
        flat = np.zeros(size)
        flat[_positions(present) if len(present) <= _REMEMBERED_BYTES else _unpacked(present)] = given
    elif len(given) != size:
        raise PeerFault(f"sent {len(given)} coefficients instead of {size}")
    if np.count_nonzero(np.isfinite(given)) != len(given):
        raise PeerFault("sent coefficients that are not finite")
    if columns == 1:
        B = flat.reshape((rows, 1))
    else:
        B = np.ascontiguousarray(flat.reshape((rows, columns), order="F"))
    return Vector(_key(vector.fit), _key(vector.outer), _key(vector.inner), B)


def _unpacked(present: bytes) -> NDArray[np.intp]:
    """Where the bits are set."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(present, _BYTE), bitorder="little"))


#: A support rarely changes from one round to the next.
_positions = lru_cache(maxsize=256)(_unpacked)


# -- records -------------------------------------------------------------------------------------------------


def _record(record: Record) -> pb.Record:
    if isinstance(record, Part):
        return pb.Record(origin=record.origin, signature=record.signature, words=record.content())
    introduction = pb.Introduction(
        neighbours=record.neighbours,
        mask_key=record.mask_key,
        certificate=record.certificate,
        continues=record.continues,
        lost=record.lost,
        indispensable=record.indispensable,
        rows=record.rows,
    )
    return pb.Record(origin=record.origin, signature=record.signature, introduction=introduction)


def _read_flood(flood: pb.Flood) -> Flood:
    if len(flood.records) > MOST_MEMBERS:
        raise PeerFault(f"sent {len(flood.records)} records at once: there can be {MOST_MEMBERS} members")
    return Flood(_key(flood.fit), _key(flood.number), tuple(map(_read_record, flood.records)))


def _read_record(record: pb.Record) -> Record:
    origin = _node_id(record.origin)
    if len(record.signature) > _LONGEST_SIGNATURE:
        raise PeerFault(f"sent a record of {origin} with an overlong signature")
    kind = record.WhichOneof("body")
    if kind == "words":
        if len(record.words) % 8 or not record.words:
            raise PeerFault(f"sent a record of {origin} that is not made of whole words")
        words = np.frombuffer(record.words, dtype="<u8").astype(np.uint64, copy=False)
        return Part(origin, words, record.signature)
    if kind == "introduction":
        intro = record.introduction
        if max(len(intro.neighbours), len(intro.lost)) > MOST_MEMBERS:
            raise PeerFault(f"sent an introduction of {origin} that names more members than there can be")
        if len(intro.mask_key) > _LONGEST_MASK_KEY or len(intro.certificate) > _LONGEST_CERTIFICATE:
            raise PeerFault(f"sent an introduction of {origin} with overlong keys")
        names, lost = (tuple(map(_node_id, given)) for given in (intro.neighbours, intro.lost))
        for given in (names, lost):
            if list(given) != sorted(set(given)) or origin in given:
                raise PeerFault(
                    f"sent an introduction of {origin} whose neighbours are not a sorted set of others"
                )
        keys = intro.mask_key, intro.certificate, record.signature
        if intro.rows > _MOST_ROWS:
            raise PeerFault(f"sent an introduction of {origin} with {intro.rows} rows: nobody has so many")
        continues = _key(intro.continues)
        return Introduction(origin, names, *keys, continues, lost, intro.indispensable, intro.rows)
    raise PeerFault(f"sent a record of {origin} of no known kind")


# -- hello ---------------------------------------------------------------------------------------------------


def _hello(hello: Hello) -> pb.Hello:
    return pb.Hello(
        version=hello.version,
        oldest_version=hello.oldest_version,
        network=hello.network,
        node=hello.node,
        incarnation=hello.incarnation,
        response=hello.schema.response,
        features=hello.schema.features,
        settings=hello.settings,
        fit=hello.standing.fit,
        active=hello.standing.active,
        outer=hello.standing.outer,
        inner=hello.standing.inner,
        method=hello.method,
        release=_sentence(hello.release, _LONGEST_RELEASE),
        defaults=hello.defaults,
        finished=hello.standing.finished,
        continues=hello.standing.continues,
        closed=hello.standing.closed,
    )


def _read_hello(hello: pb.Hello) -> Hello:
    most = max(len(hello.settings), len(hello.defaults))
    if len(hello.features) > _MOST_FEATURES or most > _MOST_SETTINGS:
        raise PeerFault("said hello with too many features or settings")
    features = tuple(_text(name, "feature name") for name in hello.features)
    settings, defaults = (
        {_text(k, "setting"): _text(v, "setting") for k, v in given.items()}
        for given in (hello.settings, hello.defaults)
    )
    return Hello(
        network=_text(hello.network, "network"),
        node=_node_id(hello.node),
        incarnation=hello.incarnation,
        schema=Schema(_text(hello.response, "response"), features),
        settings=settings,
        standing=Standing(
            _key(hello.fit),
            hello.active,
            _key(hello.outer),
            _key(hello.inner),
            hello.finished,
            _key(hello.continues),
            hello.closed,
        ),
        version=_key(hello.version),
        oldest_version=_key(hello.oldest_version),
        method=_key(hello.method) or 1,  # nodes that do not say compute by the first
        release=_text(hello.release, "release", _LONGEST_RELEASE),
        defaults=defaults,
    )


# -- small things --------------------------------------------------------------------------------------------


def _key(number: int) -> int:
    if number > _LARGEST_KEY:
        raise PeerFault(f"sent {number} as the number of a fit, sum or round")
    return number


@lru_cache(maxsize=MOST_MEMBERS)
def _is_node_id(name: str) -> bool:
    return _NODE_ID.fullmatch(name) is not None


def _node_id(name: str) -> str:
    if not _is_node_id(name):
        raise PeerFault(f"sent {name[:80]!r} as a node id")
    return name


def _text(text: str, what: str, longest: int = _LONGEST_TEXT) -> str:
    if len(text) > longest or not text.isprintable():
        raise PeerFault(f"sent a {what} that is too long or has unprintable characters")
    return text


def _sentence(text: str, longest: int = _LONGEST_TEXT) -> str:
    """What `_text` lets through: a reason may quote whatever stood in a file."""
    return "".join(c if c.isprintable() else " " for c in text[:longest])


def size(message: Message) -> int:
    """How many bytes `encode` would make; records that were sized before are not encoded again."""
    if not isinstance(message, Flood):
        return len(encode(message))
    bare = pb.Flood(fit=message.fit, number=message.number).ByteSize()
    return _nested(_nested(bare + sum(_nested(_record_size(r)) for r in message.records)))


def _nested(length: int) -> int:
    """A message of this length inside another: its tag, its length as a varint, itself."""
    return 1 + max((length.bit_length() + 6) // 7, 1) + length


def _record_size(record: Record) -> int:
    if isinstance(record, Introduction):
        return _introduction_size(record)
    fixed = pb.Record(origin=record.origin, signature=record.signature).ByteSize()
    return int(fixed) + _nested(8 * len(record.words))


@lru_cache(maxsize=MOST_MEMBERS)
def _introduction_size(record: Introduction) -> int:
    return int(_record(record).ByteSize())
