"""A million hostile inputs into the codec: each gives a sound message or the peer's fault, and nothing else.

`python -m benchmarks.codec_fuzz [--inputs 1000000] [--seed 0] [--jobs 2] [--tiny]`

Inputs are noise, and messages of every kind that were damaged: bits flipped, cut, spliced, lengths changed,
fields doubled, left out, renumbered or filled with what they should not hold, and now and then a long one
made to take as much memory as it can. A message that passes must keep the codec's promises: finite, within
the limits, and encoded again it decodes to the same bits. The same seed gives the same inputs.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.figures import Check, conclude, parser, repeat
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
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.transport import codec
from desmr_node.transport.wire import peer_pb2 as pb

LIMITS = codec.Limits.of(features=20, lambdas=5)
LARGEST_KEY = 2**31 - 1
#: Inputs made from one set of messages, and by one process at a time.
CHUNK = 10_000
#: One input in so many is long: up to the limit and a little beyond.
LONG_EVERY = 500
#: Processor time that one input may take, and by how much the process may grow.
MOST_MILLISECONDS, MOST_MEGABYTES = 100.0, 40.0
#: Longest sentence about a fault: it is logged.
LONGEST_FAULT = 500

# -- sound messages ------------------------------------------------------------------------------------------


def _name(rng: Generator) -> str:
    letters = rng.choice([*"abcdefghijklmnopqrstuvwxyz0123456789"], int(rng.integers(1, 12)))
    return "".join(letters)


def _names(rng: Generator) -> list[str]:
    return sorted({_name(rng) for _ in range(rng.integers(0, 8))})


def _key(rng: Generator) -> int:
    return int(rng.choice([0, 1, int(rng.integers(0, 1000)), LARGEST_KEY]))


def _hello(rng: Generator) -> Message:
    settings = {_name(rng): _name(rng) for _ in range(rng.integers(0, 6))}
    standing = Standing(_key(rng), bool(rng.integers(2)), _key(rng), _key(rng), bool(rng.integers(2)))
    schema = Schema(_name(rng), tuple(_names(rng)))
    incarnation = int(rng.integers(0, 2**63))
    return Hello(_name(rng), _name(rng), incarnation, schema, settings, standing, release="1.0")


def _vector(rng: Generator) -> Message:
    shape = int(rng.integers(1, LIMITS.order + 1)), int(rng.integers(1, LIMITS.columns + 1))
    B = np.where(rng.random(shape) < rng.random(), 0.0, rng.standard_normal(shape))
    return Vector(_key(rng), _key(rng), _key(rng), B)


def _introductions(rng: Generator) -> Message:
    records = []
    for origin in _names(rng):
        others = tuple(name for name in _names(rng) if name != origin)
        records.append(Introduction(origin, others, rng.bytes(32), rng.bytes(60), rng.bytes(70)))
    return Flood(_key(rng), 0, tuple(records))


def _parts(rng: Generator) -> Message:
    words = rng.integers(0, 2**64, int(rng.integers(1, 30)), dtype=np.uint64)
    return Flood(_key(rng), _key(rng), tuple(Part(name, words, rng.bytes(70)) for name in _names(rng)))


KINDS: dict[str, Callable[[Generator], Message]] = {
    "hello": _hello,
    "reject": lambda rng: Reject(_name(rng)),
    "vector": _vector,
    "introductions": _introductions,
    "sum": _parts,
    "ask": lambda rng: Ask(_key(rng), _key(rng), tuple(_names(rng)), bool(rng.integers(2))),
    "abort": lambda rng: Abort(_key(rng), _name(rng), _name(rng)),
    "done": lambda rng: Done(_key(rng)),
}

# -- fields: what a protobuf message is made of --------------------------------------------------------------


@dataclass(slots=True)
class Field:
    """A field as it stands in the bytes; one that holds a message is opened."""

    number: int
    wire: int
    value: Any  # an int, bytes, or a list of fields

    def bytes(self) -> bytes:
        """As it travels, every length right."""
        head = _varint(self.number << 3 | self.wire)
        if self.wire == 0:
            return head + _varint(self.value)
        content = b"".join(f.bytes() for f in self.value) if isinstance(self.value, list) else self.value
        return head + (_varint(len(content)) if self.wire == 2 else b"") + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def opened(data: bytes, descriptor: Any = pb.ExchangeRequest.DESCRIPTOR) -> list[Field]:
    """The fields of a sound message."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value: Any
            value, at = _read_varint(data, at)
        else:
            length, at = (8, at) if wire == 1 else _read_varint(data, at)
            value, at = data[at : at + length], at + length
            inner = descriptor.fields_by_number[number].message_type
            if inner is not None:
                value = opened(value, inner)
        fields.append(Field(number, wire, value))
    return fields


def _places(fields: list[Field]) -> Iterator[tuple[list[Field], int]]:
    """Every field there is, as the list it stands in and its index."""
    for k, each in enumerate(fields):
        yield fields, k
        if isinstance(each.value, list):
            yield from _places(each.value)


# -- damage --------------------------------------------------------------------------------------------------

_NUMBERS = (0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 10**9)
_DOUBLES = (np.nan, np.inf, -np.inf, 1.7976931348623157e308, -1.7e308, 5e-324, -0.0)
_TEXTS = (b"", b"\xff\xfe", b"A", b"a\n", b"\x1b[2J", b"x" * 5000, "é\u202e".encode(), b"\x00", b"-a")


def _pick(rng: Generator, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _flip(data: bytes, other: bytes, rng: Generator) -> bytes:
    damaged = bytearray(data)
    for at in rng.integers(0, 8 * len(data), int(rng.integers(1, 9))).tolist():
        damaged[at >> 3] ^= 1 << (at & 7)
    return bytes(damaged)


def _cut(data: bytes, other: bytes, rng: Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return _pick(rng, (data[:first], data[last:], data[:first] + data[last:]))


def _splice(data: bytes, other: bytes, rng: Generator) -> bytes:
    return data[: int(rng.integers(len(data) + 1))] + other[int(rng.integers(len(other) + 1)) :]


def _overwrite(data: bytes, other: bytes, rng: Generator) -> bytes:
    """A varint of any size in the place of some bytes: often a length, a tag or a number."""
    at, replaced = int(rng.integers(len(data))), int(rng.integers(0, 3))
    number = int(rng.integers(2 ** int(rng.integers(1, 63))))
    return data[:at] + _varint(_pick(rng, (number, *_NUMBERS))) + data[at + replaced :]


def _rework(data: bytes, other: bytes, rng: Generator) -> bytes:
    """Change fields; all lengths stay right, so that what lies behind them is reached."""
    fields = opened(data)
    for _ in range(rng.integers(1, 4)):
        places = list(_places(fields))
        if not places:
            break
        within, k = _pick(rng, places)
        _alter(within, k, opened(other), rng)
    return b"".join(each.bytes() for each in fields)


def _alter(within: list[Field], k: int, others: list[Field], rng: Generator) -> None:
    each = within[k]
    match int(rng.integers(8)):
        case 0:
            within[k:k] = [each] * int(_pick(rng, (1, 2, 5, 30)))
        case 1:
            del within[k]
        case 2:
            within[k] = Field(int(rng.integers(1, 20)), each.wire, each.value)
        case 3:
            within, j = _pick(rng, list(_places(others)) or [(within, k)])
            each.wire, each.value = within[j].wire, within[j].value
        case _:
            _refill(each, rng)


def _refill(each: Field, rng: Generator) -> None:
    """Another value, such as the field should not hold."""
    if each.wire == 0:
        each.value = _pick(rng, _NUMBERS)
    elif isinstance(each.value, list):
        each.value = each.value * int(rng.integers(0, 4))
    elif rng.integers(2) and len(each.value) >= 8:  # perhaps doubles
        doubles = np.frombuffer(each.value[: len(each.value) // 8 * 8]).copy()
        doubles[rng.integers(doubles.size)] = _pick(rng, _DOUBLES)
        each.value = doubles.tobytes()
    elif each.wire == 2:
        each.value = _pick(rng, (*_TEXTS, rng.bytes(int(rng.integers(0, 40))), each.value * 20))


DAMAGES = (_flip, _cut, _splice, _overwrite, _rework, _rework, _rework)


def _long(data: bytes, other: bytes, rng: Generator) -> bytes:
    """As many fields as there is room for, or as large: what is small on the wire and large in memory."""
    room = int(rng.integers(LIMITS.message_bytes // 50, LIMITS.message_bytes + 100))
    small: dict[int, list[Field]] = {  # by kind of message: fields that take two to ten bytes
        pb.Envelope.HELLO_FIELD_NUMBER: [Field(7, 2, b""), Field(7, 2, b"a"), Field(8, 2, b"\x0a\x01a")],
        pb.Envelope.VECTOR_FIELD_NUMBER: [Field(7, 2, b"\xff"), Field(6, 2, bytes(8))],
        pb.Envelope.FLOOD_FIELD_NUMBER: [Field(3, 2, b""), Field(3, 2, b"\x0a\x01a\x1a\x00\x22\x00")],
        pb.Envelope.ASK_FIELD_NUMBER: [Field(3, 2, b"a"), Field(3, 2, b"")],
    }
    number = _pick(rng, list(small))
    filler = _pick(rng, small[number]).bytes()
    names = Field(3, 2, b"\x0a\x01b" * (room // 3))  # all neighbours of one member
    record = Field(3, 2, b"\x0a\x01a" + names.bytes())
    bodies = (
        Field(number, 2, filler * (room // len(filler))).bytes(),
        Field(pb.Envelope.FLOOD_FIELD_NUMBER, 2, record.bytes()).bytes(),
        Field(number, 2, rng.bytes(room)).bytes(),
        b"\x0a\x00\x12\x00" * (room // 4),  # one body takes the place of another
    )
    envelope = Field(1, 2, _pick(rng, bodies)).bytes()
    return _pick(rng, (envelope, envelope[: len(envelope) // 2], b"\x0a\x02\x0a\x00" * (room // 4)))


def inputs(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """What is thrown at the codec, with the kind of message that it was made from."""
    rng = np.random.default_rng(seed)
    sound = {kind: [codec.encode(make(rng)) for _ in range(50)] for kind, make in KINDS.items()}
    everything = [data for pool in sound.values() for data in pool]
    kinds = [*KINDS, "noise"]
    for k in range(count):
        kind = kinds[k % len(kinds)]
        if kind == "noise":
            yield kind, rng.bytes(int(rng.integers(0, 200)))
            continue
        data, other = _pick(rng, sound[kind]), _pick(rng, everything)
        if k % LONG_EVERY == 0:
            yield kind, _long(data, other, rng)
        elif rng.integers(20) == 0:
            yield kind, data
        else:
            yield kind, _pick(rng, DAMAGES)(data, other, rng)


# -- what becomes of them ------------------------------------------------------------------------------------


def bits(message: Message) -> object:
    """Everything in a message, arrays as bytes: equality that tells 0.0 from -0.0."""
    match message:
        case Vector(fit, outer, inner, B):
            return fit, outer, inner, B.shape, B.astype("<f8").tobytes()
        case Flood(fit, number, records):
            return fit, number, [(type(r), r.origin, r.content(), r.signature) for r in records]
    return message


def broken_promise(message: Message, limits: codec.Limits) -> str:
    """Which promise of the codec a message breaks that it has let through; empty if none."""
    if isinstance(message, Vector):
        rows, columns = message.B.shape
        if not np.isfinite(message.B).all() or message.B.dtype != np.float64:
            return "not finite doubles"
        if not (0 < rows <= limits.order and 0 < columns <= limits.columns):
            return "beyond the limits"
        if not 0 <= max(message.fit, message.outer, message.inner) <= LARGEST_KEY:
            return "an absurd key"
    data = codec.encode(message)
    if codec.size(message) != len(data):
        return "another size than was said"
    if bits(codec.decode(data, limits)) != bits(message):
        return "another message after a second journey"
    return ""


@dataclass(slots=True)
class Outcome:
    """Of some inputs: how many came to what, by kind; the worst ones."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    milliseconds: float = 0.0
    megabytes: float = 0.0

    def add(self, kind: str, data: bytes, limits: codec.Limits = LIMITS) -> None:
        """Decode one input and judge what comes of it."""
        began = time.thread_time()
        verdict, trouble = "message", ""
        try:
            message = codec.decode(data, limits)
            self.milliseconds = max(self.milliseconds, 1e3 * (time.thread_time() - began))
            trouble = broken_promise(message, limits)
        except PeerFault as fault:
            self.milliseconds = max(self.milliseconds, 1e3 * (time.thread_time() - began))
            verdict, text = "fault", str(fault)
            self.reasons[re.sub(r"'.*?'|\d+", "#", text)] += 1
            if not text.isprintable() or len(text) > LONGEST_FAULT:
                trouble = f"a fault that cannot be logged: {text[:100]!r}"
        except Exception as error:  # whatever it is, it is what must not happen
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            verdict = "WRONG"
            self.wrong.append(f"{kind}: {trouble[:200]}: {data[:200].hex()}")
        self.counts[kind, verdict] += 1

    def merge(self, other: Outcome) -> None:
        """Add what another process saw."""
        self.counts += other.counts
        self.reasons += other.reasons
        self.wrong += other.wrong
        self.milliseconds = max(self.milliseconds, other.milliseconds)
        self.megabytes = max(self.megabytes, other.megabytes)


def _memory(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024 / 1e6
    raise LookupError(name)


def throw(seed: int, count: int) -> Outcome:
    """So many inputs, one after the other."""
    outcome = Outcome()
    thrown = inputs(seed, count)
    outcome.add(*next(thrown))  # loads what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _memory("VmRSS")
    for kind, data in thrown:
        outcome.add(kind, data)
    outcome.megabytes = _memory("VmHWM") - before
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Throw, count, judge."""
    arguments = parser(__doc__)
    arguments.add_argument("--inputs", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--jobs", type=int, default=2, help="processes, default %(default)s")
    chosen = arguments.parse_args(argv)
    count, jobs = (20_000, 1) if chosen.tiny else (chosen.inputs, chosen.jobs)
    chunks = max(count // CHUNK, 1)
    seeds = [chosen.seed * 1_000_000 + k for k in range(chunks)]
    total = Outcome()
    for outcome in repeat(partial(throw, count=count // chunks), seeds, jobs):
        total.merge(outcome)
    print(f"{'made from':<16}{'message':>10}{'fault':>10}{'else':>8}")
    for kind in (*KINDS, "noise"):
        found = [total.counts[kind, verdict] for verdict in ("message", "fault", "WRONG")]
        print(f"{kind:<16}{found[0]:>10}{found[1]:>10}{found[2]:>8}")
    print("most frequent faults:")
    for reason, times in total.reasons.most_common(8):
        print(f"  {times:>8}  {reason}")
    for line in total.wrong[:10]:
        print(line)
    thrown = total.counts.total()
    passed = sum(n for (_, verdict), n in total.counts.items() if verdict == "message")
    return conclude(
        [
            Check("inputs", thrown, count, at_most=False),
            Check("neither message nor fault", len(total.wrong), 0),
            Check("messages among them, share", passed / thrown, 0.1, at_most=False),
            Check("processor time of one input, ms", total.milliseconds, MOST_MILLISECONDS),
            Check("growth of the process, MB", total.megabytes, MOST_MEGABYTES),
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
