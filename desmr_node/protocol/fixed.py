"""Contributions as integers mod 2^64, which masks can hide and whose sum is exact in any order.

A number is a row of W digits to the base 2^48, one 64-bit word each, lowest first: it is the sum over i of
d_i 2^(exponent + 48 i). Digits are signed and balanced, |d_i| <= 2^47, so the words of 2^15 members can be
added mod 2^64 without a carry and without wrapping. Balanced, because the total of each digit is visible:
digits that all took their number's sign would tell how many members hold a positive one.

An exact total says too much: bits finer than the last place of all numbers but one are that one's own. So a
member may continue its numbers below their last place, down to the lowest digit, with digits only it knows
(a filler). Below the last place of its largest part, where it says nothing of the sum, a total is then noise.
What is left to see: the totals of the digits themselves, before carrying. Filled digits are uniform, so their
spread tells about how many members hold anything but zero.
"""

import math
import sys
from collections.abc import Iterator, Mapping
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

BASE_BITS = 48
#: Most members whose digits can be added: 2^15 * 2^47 is far enough from 2^63 for the carries as well.
MOST_MEMBERS = 2**15
_LARGEST_DIGIT = 2 ** (BASE_BITS - 1)
#: The last place of a double is 53 bits below the exponent frexp gives, but never finer than 2^-1074.
_MANTISSA_BITS, _FINEST = sys.float_info.mant_dig, sys.float_info.min_exp - sys.float_info.mant_dig
_FILLER_BYTES = 32
#: Digits from here up are added at a smaller scale: 2^1024 less a little passes through 2^1024 on the way.
_HIGH, _SCALED_DOWN = 900, 256

C = TypeVar("C", bound=Contribution)


class RangeExceeded(DesmrError, ValueError):  # noqa: N818 - says what happened, which Error would not
    """A number that does not fit the format of its sum, or a total that cannot be one."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-point format: ``words`` digits, the lowest in units of 2**exponent.

    With ``saturate``, what is too large counts as the largest number instead of being refused.
    """

    exponent: int
    words: int
    saturate: bool = False

    @property
    def largest(self) -> float:
        """The largest number that can be encoded (every double, if the range is wider than that)."""
        bits = self.exponent + BASE_BITS * self.words - 1
        return math.ldexp(1.0, bits) if bits < sys.float_info.max_exp else sys.float_info.max

    def encode(self, values: Vector, what: str, noise: Words | None = None) -> Words:
        """Digits (size, words) of the values, each rounded to 2**exponent, half to even.

        With ``noise``, uniform words of the same shape, they go on below the last place of each value.
        """
        admitted = rest = self._admit(np.asarray(values, dtype=np.float64).ravel(), what)
        digits = np.empty((rest.size, self.words), dtype=np.int64)
        for i in reversed(range(self.words)):
            unit = self.exponent + BASE_BITS * i
            # Each step is exact, for the remainder of a division to the nearest is a double; the last rounds.
            scaled = np.ldexp(rest, -unit)
            digit = np.rint(scaled)
            digits[:, i] = digit
            rest = np.where(digit != 0, np.ldexp(scaled - digit, unit), rest)
        if noise is not None:
            self._fill(digits, admitted, noise)
        return digits.view(np.uint64)

    def _fill(self, digits: NDArray[np.int64], values: Vector, noise: Words) -> None:
        """Add to each number what is uniform on (-1/2, 1/2] of its last place, in steps of 2**exponent.

        Whole numbers of one word have no digits below their last place, so counts stay exact.
        """
        last_place = np.maximum(np.frexp(values)[1] - _MANTISSA_BITS, _FINEST)
        # Zero has no last place. It stays zero: it has no bits of its own to hide, and a total of nothing but
        # zeros must be zero. The largest number stays too: it may stand for any that is larger, and the
        # largest double must not round up to infinity.
        filled = (values != 0) & (np.abs(values) < self.largest)
        free = np.where(filled, last_place - self.exponent, 0).astype(np.int64)
        bits = np.clip(free[:, None] - BASE_BITS * np.arange(self.words), 0, BASE_BITS)
        digits -= noise.astype(np.int64) & ((np.int64(1) << bits) - 1)
        (rows,) = np.nonzero(free > 0)
        half = free[rows] - 1
        digits[rows, half // BASE_BITS] += np.int64(1) << half % BASE_BITS
        _carry(digits)

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
        """Totals (size,) from the sum mod 2^64 of the words (size, words) of so many members.

        Within one unit in the last place, and exact if the total is a double.
        """
        if not 1 <= members <= MOST_MEMBERS:
            raise RangeExceeded(f"{members} members cannot form a sum: 1 to {MOST_MEMBERS} can")
        digits = np.ascontiguousarray(words, dtype=np.uint64).view(np.int64)
        bound = members * _LARGEST_DIGIT
        if digits.size and (digits.min() < -bound or digits.max() > bound):
            raise RangeExceeded(
                f"the sum of {what} is out of range: a member's contribution or mask does not fit"
            )
        total = _rounded(_carried(digits), self.exponent)
        if not np.isfinite(total).all():
            raise RangeExceeded(f"the sum of {what} is larger than any double: rescale the data")
        return total


def _carried(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same numbers in balanced digits, with one more at the top: every digit is exact as a double."""
    size, words = digits.shape
    carried = np.zeros((size, words + 1), dtype=np.int64)
    carried[:, :words] = digits
    _carry(carried)
    return carried


def _carry(digits: NDArray[np.int64]) -> None:
    """Balance all digits but the top one, in place."""
    for i in range(digits.shape[1] - 1):
        carry = (digits[:, i] + _LARGEST_DIGIT) >> BASE_BITS
        digits[:, i] -= carry << BASE_BITS
        digits[:, i + 1] += carry


def _rounded(digits: NDArray[np.int64], exponent: int) -> Vector:
    """Balanced digits to doubles, added from the top down: at most two additions round, by 0.75 ulp."""
    size, words = digits.shape
    high = max(0, -((exponent - _HIGH) // BASE_BITS))
    shift = np.where(digits[:, high:].any(axis=1), _SCALED_DOWN, 0)
    total = np.zeros(size)
    for i in reversed(range(words)):
        total += np.ldexp(digits[:, i].astype(np.float64), exponent + BASE_BITS * i - shift)
    with np.errstate(over="ignore"):  # the caller looks for infinities
        return np.ldexp(total, shift)


#: Votes and rows: whole numbers to 1.4e14.
COUNT = Fixed(0, 1)
#: Numbers of ordinary size, of which very many are sent: 5e-20 to 2e9 in two words. The Gram matrix of scaled
#: columns is at most 1; histograms are weighted, so not whole when members rather than rows count alike.
METRIC = Fixed(-64, 2)
#: Squared lengths of steps: from next to nothing (4e-44) to a loop that diverges: "very far" (4e28) will do.
LENGTH = Fixed(-144, 5, saturate=True)
#: Losses and penalties in units of the response: 6e-73 to 9e71, whatever an outlier does to them.
BROAD = Fixed(-240, 10)
#: In the data's own units nothing can be said beforehand: every finite double, to its last bit.
EXACT = Fixed(-1074, 44)

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


def words_of(template: Contribution) -> int:
    """How many words `pack` makes of a contribution of this shape."""
    return sum(
        _count(name, np.shape(getattr(template, name))) * form.words
        for name, form in _formats(type(template), 0)
    )


def pack(contribution: Contribution, gram_exponent: int = 0, filler: bytes | None = None) -> Words:
    """All fields in order as one vector of words; the Gram matrix in units of 2**gram_exponent.

    ``filler`` is a secret key of 32 bytes that serves this contribution only: with it, numbers go on below
    their last place with digits no one else can tell, and the total is off by half a unit in the last place
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
    """The total of so many members from the sum mod 2^64 of their packed words; shapes as in the template."""
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
