"""Masks that hide a member's contribution until all are added up, and the bytes a record's signature covers.

Each pair of members shares a key (X25519, then HKDF). For every sum both stretch it to the same pseudo-random
words (ChaCha20); the one with the smaller id adds them and the other subtracts them, number by number with
carries, so the masks of all members add up to zero and those of any fewer look like noise: uniform words are
uniform numbers mod 2^(64 words), whatever they are added to.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from desmr_node.errors import DesmrError
from desmr_node.protocol.fixed import Packing, Words

_KEY_BYTES = 32
_PRIME = 2**255 - 19


class KeyRefused(DesmrError, ValueError):  # noqa: N818 - says what happened, which Error would not
    """A mask key of another member that no honest member can have sent."""


class MaskKey:
    """A member's private mask key for one fit; shown by its public half only."""

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes) -> None:
        if len(private) != _KEY_BYTES:
            raise ValueError(f"a private mask key is {_KEY_BYTES} bytes long, not {len(private)}")
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key from the system's randomness: for a driver, never for the state machine."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    def private_bytes(self) -> bytes:
        """The key itself, for the node's own snapshot and nothing else."""
        return self._private.private_bytes_raw()

    def shared(self, public: bytes) -> bytes:
        """The secret shared with the owner of a public key."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public))

    def __repr__(self) -> str:
        return f"MaskKey(public={self.public.hex()})"


class Masks:
    """One member's masks for one fit.

    ``context`` names the network, the fit and whatever else must not share masks with it; ``publics`` are the
    public keys of all members by id, with or without our own.
    """

    __slots__ = ("_lengths", "_pairs")

    def __init__(self, own_id: str, key: MaskKey, context: bytes, publics: Mapping[str, bytes]) -> None:
        if publics.get(own_id, key.public) != key.public:
            raise KeyRefused(f"the mask key announced for {own_id} is not our own: someone uses our name")
        everyone = {**publics, own_id: key.public}
        _check(everyone)
        self._pairs = [
            (own_id < other, _pair_key(key, context, own_id, other, everyone[other]))
            for other in sorted(everyone)
            if other != own_id
        ]
        self._lengths: dict[int, int] = {}

    def apply(self, number: int, words: Words, packing: Packing) -> Words:
        """Our words of sum ``number`` under our masks.

        A number serves one contribution only: the difference of two under the same mask would be plain to
        see. So a sum that starts again has a new number.
        """
        length = packing.length
        if words.shape != (length,):
            raise ValueError(f"{words.shape} words to mask in a packing of {length}")
        if self._lengths.setdefault(number, length) != length:
            raise ValueError(
                f"sum {number} was masked with {self._lengths[number]} words and now has {length}"
            )
        added, subtracted = (self._streams(number, length, adds) for adds in (True, False))
        return packing.sum(chain((words,), added), subtracted)

    def _streams(self, number: int, length: int, adding: bool) -> Iterator[Words]:
        """The streams of the pairs in which we are the one that adds, or the one that subtracts."""
        # The first half is the block counter, which starts at zero.
        nonce = bytes(8) + number.to_bytes(8, "little")
        zeros = bytes(8 * length)
        for adds, pair_key in self._pairs:
            if adds == adding:
                stream = Cipher(algorithms.ChaCha20(pair_key, nonce), mode=None).encryptor().update(zeros)
                yield np.frombuffer(stream, dtype="<u8")


def _check(publics: Mapping[str, bytes]) -> None:
    """Refuse keys that are malformed, or held by two: a copied key cannot be its sender's own."""
    owners: dict[bytes, str] = {}
    for owner, public in sorted(publics.items()):
        # A second encoding of the same key would pass for another key.
        if len(public) != _KEY_BYTES or int.from_bytes(public, "little") >= _PRIME:
            raise KeyRefused(f"the mask key of {owner} is not an X25519 public key")
        if public in owners:
            raise KeyRefused(
                f"{owners[public]} and {owner} announce the same mask key: one copied the other's"
            )
        owners[public] = owner


def _pair_key(key: MaskKey, context: bytes, own_id: str, other: str, public: bytes) -> bytes:
    """The key of a pair, the same from both ends; bound to the fit, to both ids and to both public keys."""
    try:
        secret = key.shared(public)
    except ValueError as error:  # a point of small order: the secret is zero, which anyone could guess
        raise KeyRefused(f"the mask key of {other} gives no secret: it is a point of small order") from error
    (low, low_key), (high, high_key) = sorted([(own_id, key.public), (other, public)])
    info = _joined(b"desmr.mask.v1", context, low.encode(), high.encode(), low_key, high_key)
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=info).derive(secret)


def signing_bytes(network: str, fit: int, number: int, origin: str, payload: bytes) -> bytes:
    """What the origin of a record signs: all that places the payload, so that it cannot be used elsewhere."""
    place = network.encode(), fit.to_bytes(8, "little"), number.to_bytes(8, "little"), origin.encode()
    return _joined(b"desmr.record.v1", *place, payload)


def _joined(*parts: bytes) -> bytes:
    """Parts with their lengths before them: no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
