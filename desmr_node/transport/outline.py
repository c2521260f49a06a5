"""A look at the outline of a long message, before it is unpacked.

Protobuf makes an object of every field, and a field may have two bytes: a message of nothing but empty
records, or of one body that replaces another a million times, would take forty times its length in memory.
Honest long messages have one body, and few records in it. Short ones are not worth a look.
"""

from collections.abc import Iterator

from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.sums import MOST_MEMBERS
from desmr_node.transport.wire import peer_pb2 as pb

#: Bytes that are unpacked without a look: forty times as many do no harm.
_SHORT = 1 << 16
#: Bytes of a message that is neither a vector nor a flood, beside 64 for each feature: an Ask for all members
#: takes half of this.
_LONGEST_TALK = 1 << 19
#: Bytes of all introductions in a flood: senders bundle a megabyte.
_LONGEST_INTRODUCTIONS = (1 << 20) + (1 << 17)
#: A record has three fields; later releases may add some.
_MOST_FIELDS = 16

_NOT_OURS = "sent bytes that are no message of this protocol"
_BULKY = (pb.Envelope.VECTOR_FIELD_NUMBER, pb.Envelope.FLOOD_FIELD_NUMBER)


def require_sense(data: bytes, order: int) -> None:
    """`PeerFault` if unpacking a message of a network with so many coefficients would cost too much."""
    if len(data) <= _SHORT:
        return
    number, begin = _only_field(data, 0)
    if number != pb.ExchangeRequest.ENVELOPE_FIELD_NUMBER:
        raise PeerFault(_NOT_OURS)
    number, begin = _only_field(data, begin)
    if number == pb.Envelope.FLOOD_FIELD_NUMBER:
        _look_at_flood(data, begin)
    longest = _LONGEST_TALK + 64 * order
    if number not in _BULKY and len(data) > longest:
        raise PeerFault(
            f"sent {len(data)} bytes with too many features, settings or names: {longest} would do"
        )


def _only_field(data: bytes, start: int) -> tuple[int, int]:
    """Number and beginning of the one field that there may be."""
    number, begin, end = next(_fields(data, start, len(data)))
    if end != len(data):
        raise PeerFault(f"sent {len(data)} bytes that hold more than one message")
    return number, begin


def _look_at_flood(data: bytes, start: int) -> None:
    records = introductions = 0
    for number, begin, end in _fields(data, start, len(data), MOST_MEMBERS + _MOST_FIELDS):
        if number != pb.Flood.RECORDS_FIELD_NUMBER:
            continue
        records += 1
        if records > MOST_MEMBERS:
            raise PeerFault(f"sent over {MOST_MEMBERS} records at once: there cannot be as many members")
        for part, first, last in _fields(data, begin, end):
            if part == pb.Record.INTRODUCTION_FIELD_NUMBER:
                introductions += last - first
    if introductions > _LONGEST_INTRODUCTIONS:
        raise PeerFault(f"sent {introductions} bytes of introductions: {_LONGEST_INTRODUCTIONS} would do")


def _fields(data: bytes, at: int, end: int, most: int = _MOST_FIELDS) -> Iterator[tuple[int, int, int]]:
    """Number, beginning and end of each field, of which there may be so many."""
    while at < end:
        if most == 0:
            raise PeerFault(f"sent {len(data)} bytes in more fields than make sense")
        most -= 1
        tag, at = _varint(data, at)
        begin = at
        match tag & 7:  # the wire type
            case 2:
                length, begin = _varint(data, at)
                at = begin + length
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case _:
                raise PeerFault(_NOT_OURS)
        if at > end:
            raise PeerFault(_NOT_OURS)
        yield tag >> 3, begin, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for k, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value, at + k + 1
    raise PeerFault(_NOT_OURS)
