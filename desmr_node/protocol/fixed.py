"""Contributions as whole numbers mod 2^(64 W), which masks can hide and whose sum is exact in any order.

A number is one two's-complement integer of W 64-bit words, lowest first, in units of 2**exponent. Numbers
are added mod 2^(64 W), with carries from word to word (`Packing`). So uniform words are a uniform integer,
and a masked number is noise; and the words of a total are a function of the total alone: of how many members
it is made up, and of what, is not to be seen.

An exact total itself says too much: bits finer than the last place of all numbers but one are that one's
own. So a member may continue its numbers below their last place, down to the lowest bit, with bits only it
knows (a filler). Below the last place of its largest part, where it says nothing of the sum, a total is then
uniform.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from desmr_node.core.arrays import Vector
from desmr_node.core.contributions import (
    Ballot,
    Closing,
    Contribution,
    Evaluation,
    Moments,
    Report,
    Spreads,
    Start,
)
from desmr_node.errors import DesmrError

Words = NDArray[np.uint64]

WORD_BITS = 64
#: Bits between a member's largest number and the sign.
HEADROOM_BITS = 16
#: Most members whose numbers can be added: a total of these is still half the range away from wrapping.
MOST_MEMBERS = 2 ** (HEADROOM_BITS - 1)
#: The last place of a double is 53 bits below the exponent frexp gives, but never finer than 2^-1074.
_MANTISSA_BITS, _FINEST = sys.float_info.mant_dig, sys.float_info.min_exp - sys.float_info.mant_dig
_FILLER_BYTES = 32
_ONE = np.uint64(1)

C = TypeVar("C", bound=Contribution)


class RangeExceeded(DesmrError, ValueError):  # noqa: N818 - says what happened, which Error would not
    """A number that does not fit the format of its sum, or a total that cannot be one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-point format: an integer of ``words`` words, in units of 2**exponent.

    With ``saturate``, what is too large counts as the largest number instead of being refused.
    """

    exponent: int
    words: int
    saturate: bool = False

    @property
    def largest(self) -> float:
        """The largest number that can be encoded (every double, if the range is wider than that)."""
        bits = self.exponent + WORD_BITS * self.words - 1 - HEADROOM_BITS
        return math.ldexp(1.0, bits) if bits < sys.float_info.max_exp else sys.float_info.max

    def encode(self, values: Vector, what: str, noise: Words | None = None) -> Words:
        """Words (size, words) of the values, each rounded to 2**exponent, half to even.

        With ``noise``, uniform words of the same shape, they go on below the last place of each value: what
        is added is uniform on [-1/2, 1/2) of that place, in steps of 2**exponent. In units of one, whole
        numbers have no bits there, so counts stay exact.
        """
        admitted = self._admit(np.asarray(values, dtype=np.float64).ravel(), what)
        last_place = np.maximum(np.frexp(admitted)[1] - _MANTISSA_BITS, _FINEST)
        unit = np.maximum(last_place, self.exponent)
        # Rounds where the unit is coarser than the last place; elsewhere this is the mantissa itself.
        mantissa = np.rint(np.ldexp(admitted, -unit)).astype(np.int64)
        free = (unit - self.exponent).astype(np.int64)
        if noise is None:
            return _placed(mantissa, free, self.words)
        # Zero has no last place. It stays zero: it has no bits of its own to hide, and a total of nothing but
        # zeros must be zero. The largest number stays too: it may stand for any that is larger, and the
        # largest double must not round up to infinity.
        filled = np.where((admitted != 0) & (np.abs(admitted) < self.largest), free, 0)
        filler = noise & _below(filled, self.words)
        # The filler as a signed number: where its highest bit is set it is less by a unit of the last place.
        top = np.maximum(filled - 1, 0)
        highest = filler[np.arange(filled.size), top // WORD_BITS] >> (top % WORD_BITS).astype(np.uint64)
        mantissa -= (highest & _ONE).astype(np.int64)
        return _placed(mantissa, free, self.words) | filler

    def _admit(self, values: Vector, what: str) -> Vector:
        largest = self.largest
        if self.saturate:
            return np.clip(
                np.nan_to_num(values, nan=largest, posinf=largest, neginf=-largest), -largest, largest
            )
        fits = np.abs(values) <= largest  # false for NaN
        if not fits.all():
            first = int(np.argmin(fits))
            raise RangeExceeded(
                f"{what} does not fit its network sum: number {first} is {values[first]:.6g}, and it must be "
                f"finite and within +-{largest:.3g}: look for NaN, infinite or badly scaled data"
            )
        return values

    def decode(self, words: Words, members: int, what: str) -> Vector:
        """Totals (size,) from the sum mod 2^(64 words) of the words (size, words) of so many members.

        Rounded to the nearest double, so exact if the total is one; within one unit in the last place below
        the normal doubles.
        """
        if not 1 <= members <= MOST_MEMBERS:
            raise RangeExceeded(f"{members} members cannot form a sum: 1 to {MOST_MEMBERS} can")
        # With a mask that nobody takes off again a total is uniform. Then it passes with a chance of
        # members / 2^16, and k such totals with that to the power of k. (In a format that is wider than the
        # doubles it is less: what is larger than any of them does not pass either.) Totals that are wrong but
        # small cannot be told from right ones.
        if not _within(words, members << (WORD_BITS - 1 - HEADROOM_BITS)).all():
            raise RangeExceeded(
                f"the sum of {what} is out of range: a member's contribution or mask does not fit"
            )
        total = _rounded(words, self.exponent)
        if not np.isfinite(total).all():
            raise RangeExceeded(f"the sum of {what} is larger than any double: rescale the data")
        return total


def _below(bits: NDArray[np.int64], words: int) -> Words:
    """Masks (size, words) of so many of the lowest bits."""
    kept = np.clip(bits[:, None] - WORD_BITS * np.arange(words), 0, WORD_BITS)
    partial = (_ONE << (kept % WORD_BITS).astype(np.uint64)) - _ONE
    return np.where(kept == WORD_BITS, ~np.uint64(0), partial)


def _placed(mantissa: NDArray[np.int64], shift: NDArray[np.int64], words: int) -> Words:
    """The integers mantissa * 2**shift, which must fit, in so many words."""
    word, bit = np.divmod(shift, WORD_BITS)
    placed = np.where(np.arange(words) > word[:, None], (mantissa >> 63)[:, None], 0)
    placed[np.arange(word.size), word] = mantissa << bit
    (rows,) = np.nonzero(word + 1 < words)
    # By 64 - bit in two steps, for a shift by 64 is none.
    placed[rows, word[rows] + 1] = mantissa[rows] >> 1 >> (WORD_BITS - 1 - bit[rows])
    return placed.view(np.uint64)


def _within(words: Words, bound: int) -> NDArray[np.bool_]:
    """Whether each integer's size is at most bound * 2^(64 (words - 1))."""
    top = np.ascontiguousarray(words[:, -1]).view(np.int64)
    within: NDArray[np.bool_] = (top >= -bound) & (top <= bound)
    at_bound = top == bound
    within[at_bound] = ~words[at_bound, :-1].any(axis=1)
    return within


def _rounded(words: Words, exponent: int) -> Vector:
    """Integers in units of 2**exponent to doubles: whole-number operations and one rounding."""
    size, width = words.shape
    rows = np.arange(size)
    negative = words[:, -1] >> np.uint64(WORD_BITS - 1) != 0
    lowest = (words != 0).argmax(axis=1)  # of the words that are not zero; negation leaves it in place
    absolute = np.where(negative[:, None], ~words, words)
    absolute[rows, lowest] += negative
    absolute[np.arange(width) < lowest[:, None]] = 0
    highest = width - 1 - (absolute[:, ::-1] != 0).argmax(axis=1)
    high = absolute[rows, highest]
    low = np.where(highest > 0, absolute[rows, highest - 1], np.uint64(0))
    # Without the bit after the first, the first stays where it is when it becomes a double.
    length = np.frexp((high & ~(high >> _ONE)).astype(np.float64))[1]
    up = np.where(length > 0, WORD_BITS - length, 0).astype(np.uint64)
    # The first 64 bits; the last also tells that more follow. A double has 53, so there it decides ties only.
    leading = (high << up) | (low >> _ONE >> (np.uint64(WORD_BITS - 1) - up))
    leading |= ((low << up != 0) | ((lowest < highest - 1) & (high != 0))).astype(np.uint64)
    unit = exponent + WORD_BITS * highest - up.astype(np.int64)
    with np.errstate(over="ignore"):  # the caller looks for infinities
        total: Vector = np.ldexp(leading.astype(np.float64), unit)
    return np.where(negative, -total, total)


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the numbers are in a vector of words: runs of (how many numbers, words of each), in order."""

    runs: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """How many words there are."""
        return sum(count * words for count, words in self.runs)

    def sum(self, added: Iterable[Words], subtracted: Iterable[Words] = ()) -> Words:
        """All that is added less all that is subtracted, number by number mod 2^(64 words of the number)."""
        total = np.zeros(self.length, dtype=np.uint64)
        carries = np.zeros(self.length, dtype=np.uint64)  # out of each word, to be added to the next
        for vector in added:
            total += vector
            carries += total < vector
        negations = 0
        for vector in subtracted:  # -x is the complement of x plus one
            complement = ~vector
            total += complement
            carries += total < complement
            negations += 1
        first = 0
        for count, words in self.runs:
            last = first + count * words
            self._carry(
                total[first:last].reshape(count, words), carries[first:last].reshape(count, words), negations
            )
            first = last
        return total

    @staticmethod
    def _carry(numbers: Words, carries: Words, ones: int) -> None:
        """Add to each number so many ones and to each word the carries out of the one before, in place."""
        incoming = np.full(len(numbers), ones, dtype=np.uint64)
        for i in range(numbers.shape[1]):
            word = numbers[:, i]
            word += incoming
            incoming = carries[:, i] + (word < incoming)

    def add(self, one: Words, other: Words) -> Words:
        """The sum of two vectors."""
        return self.sum((one, other))

    def negated(self, vector: Words) -> Words:
        """What adds up to zero with the vector."""
        return self.sum((), (vector,))


#: Votes and rows: whole numbers to 1.4e14.
COUNT = Fixed(0, 1)
#: Numbers of ordinary size, of which very many are sent: 5e-20 to 1e14 in two words. The Gram matrix of
#: scaled columns is at most 1; histograms are weighted, so not whole when members, not rows, count alike.
METRIC = Fixed(-64, 2)
#: Squared lengths of steps: from next to nothing (4e-44) to a loop that diverges: "very far" (4e28) will do.
LENGTH = Fixed(-144, 4, saturate=True)
#: Losses and penalties in units of the response: 9e-78 to 9e71, whatever an outlier does to them.
BROAD = Fixed(-256, 8)
#: In the data's own units nothing can be said beforehand: every finite double, to its last bit.
EXACT = Fixed(-1088, 34)

_LAYOUTS: Mapping[type[Contribution], Mapping[str, Fixed]] = MappingProxyType(
    {
        Moments: {"rows": COUNT, "sums": EXACT, "response_octaves": COUNT},
        Spreads: {"squares": EXACT},
        Start: {"variances": EXACT, "gram": METRIC, "pilot": EXACT, "counts": METRIC, "linear": EXACT},
        Report: {
            "check": BROAD,
            "squares": BROAD,
            "votes": COUNT,
            "penalty": BROAD,
            "penalty_before": BROAD,
            "moved": LENGTH,
            "disagreement": LENGTH,
            "edges": LENGTH,
            "changed": LENGTH,
            "counts": METRIC,
        },
        Ballot: {"votes": COUNT, "mean": EXACT},
        Closing: {"loss": BROAD, "loss_at_start": BROAD},
        Evaluation: {"count": COUNT, "absolute": BROAD, "squares": BROAD},
    }
)
#: Symmetric matrices, sent as their upper triangles.
_SYMMETRIC = frozenset({"gram"})


def layout(contribution_type: type[Contribution]) -> Mapping[str, Fixed]:
    """The format of each field, in the order in which they are packed."""
    return _LAYOUTS[contribution_type]


def _formats(contribution_type: type[Contribution], gram_exponent: int) -> Iterator[tuple[str, Fixed]]:
    formats = layout(contribution_type)
    for field in fields(contribution_type):
        form = formats[field.name]
        if field.name in _SYMMETRIC:
            form = Fixed(form.exponent + gram_exponent, form.words, form.saturate)
        yield field.name, form


def _count(name: str, shape: tuple[int, ...]) -> int:
    """How many numbers of a field are sent."""
    return shape[0] * (shape[0] + 1) // 2 if name in _SYMMETRIC else math.prod(shape)


def packing_of(template: Contribution) -> Packing:
    """Where `pack` puts the numbers of a contribution of this shape."""
    runs: list[tuple[int, int]] = []
    for name, form in _formats(type(template), 0):
        count = _count(name, np.shape(getattr(template, name)))
        if runs and runs[-1][1] == form.words:
            count += runs.pop()[0]
        runs.append((count, form.words))
    return Packing(tuple(runs))


def words_of(template: Contribution) -> int:
    """How many words `pack` makes of a contribution of this shape."""
    return packing_of(template).length


def pack(contribution: Contribution, gram_exponent: int = 0, filler: bytes | None = None) -> Words:
    """All fields in order as one vector of words; the Gram matrix in units of 2**gram_exponent.

    ``filler`` is a secret key of 32 bytes that serves this contribution only: with it, numbers go on below
    their last place with bits no one else can tell, and the total is off by half a unit in the last place
    of each at most.
    """
    noise = None if filler is None else _keystream(filler, words_of(contribution))
    parts, first = [], 0
    for name, form in _formats(type(contribution), gram_exponent):
        values = np.asarray(getattr(contribution, name), dtype=np.float64)
        if name in _SYMMETRIC:
            values = values[np.triu_indices(len(values))]
        last = first + values.size * form.words
        own = None if noise is None else noise[first:last].reshape(-1, form.words)
        parts.append(form.encode(values, _title(type(contribution), name), own).ravel())
        first = last
    return np.concatenate(parts)


def _keystream(key: bytes, length: int) -> Words:
    """So many uniform words from a key that is used once."""
    if len(key) != _FILLER_BYTES:
        raise ValueError(f"a filler key is {_FILLER_BYTES} bytes long, not {len(key)}")
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(stream, dtype="<u8")


def unpack(cls: type[C], words: Words, template: C, members: int, gram_exponent: int = 0) -> C:
    """The total of so many members from the sum of their packed words; shapes as in the template."""
    if words.shape != (words_of(template),):
        raise ValueError(f"{words.shape} words for a {cls.__name__} that takes {words_of(template)}")
    totals, first = {}, 0
    for name, form in _formats(cls, gram_exponent):
        shape = np.shape(getattr(template, name))
        last = first + _count(name, shape) * form.words
        values = form.decode(words[first:last].reshape(-1, form.words), members, _title(cls, name))
        first = last
        if name in _SYMMETRIC:
            upper = np.triu_indices(shape[0])
            whole = np.zeros(shape)
            whole[upper] = values
            whole.T[upper] = values
            totals[name] = whole
        else:
            totals[name] = values.reshape(shape)
    return cls(**totals)


def _title(cls: type[Contribution], name: str) -> str:
    return f"{cls.__name__}.{name}"
