"""What makes a record safe to pass on: its mask hides the contribution, its signature names the origin."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import Packing
from desmr_node.protocol.messages import Introduction, Part, Record, Words
from desmr_node.protocol.sealing import KeyRefused, MaskKey, Masks, signing_bytes

#: The words of a confirmation.
CONFIRMED: Words = np.zeros(1, dtype=np.uint64)
#: Whether a signature over some bytes holds.
Verifier = Callable[[bytes, bytes], bool]


class Signer(Protocol):
    """The key of a node's certificate, and the means to judge others' certificates."""

    @property
    def certificate(self) -> bytes:
        """What others verify our signatures with."""

    def secret(self) -> bytes:
        """The key, if it lies in no file of its own; else nothing."""

    def sign(self, data: bytes) -> bytes:
        """Our signature."""

    def verifier(self, origin: str, certificate: bytes) -> Verifier:
        """A check of the origin's signatures; raises `PeerFault` if the certificate is not the origin's."""


class Seal(Protocol):
    """Makes this node's records for one fit, and checks those of others."""

    @property
    def fit(self) -> int:
        """The number of the fit."""

    def secrets(self) -> tuple[bytes, bytes]:
        """What a node that was killed needs to make this seal again."""

    def introduce(
        self,
        neighbours: tuple[str, ...],
        *,
        continues: int = 0,
        lost: tuple[str, ...] = (),
        indispensable: bool = False,
        rows: int = 0,
    ) -> Introduction:
        """Our record of flood 0."""

    def admit(self, introduction: Introduction) -> None:
        """Check another member's introduction; from now on its parts can be checked."""

    def close(self, introductions: Mapping[str, Record]) -> None:
        """The membership is complete: agree on masks with everybody."""

    def part(self, number: int, words: Words, packing: Packing) -> Part:
        """Our record of a sum."""

    def confirm(self, number: int) -> Part:
        """Our record that we hold the result: there is nothing in it to hide."""

    def check(self, number: int, part: Part) -> None:
        """Raise `PeerFault` unless the part is what its origin signed."""


class Sealed:
    """Masked and signed: what leaves a node."""

    def __init__(self, network: str, node: str, fit: int, key: MaskKey, signer: Signer) -> None:
        self.network, self.node, self.fit, self.key, self.signer = network, node, fit, key, signer
        self._verifiers: dict[str, Verifier] = {}
        self._masks: Masks | None = None

    def secrets(self) -> tuple[bytes, bytes]:
        """Mask key and, where there is no certificate, signing key: for the node's own snapshot only."""
        return self.key.private_bytes(), self.signer.secret()

    def introduce(
        self,
        neighbours: tuple[str, ...],
        *,
        continues: int = 0,
        lost: tuple[str, ...] = (),
        indispensable: bool = False,
        rows: int = 0,
    ) -> Introduction:
        """Our neighbours and keys, signed."""
        keys = self.key.public, self.signer.certificate, b""
        bare = Introduction(self.node, neighbours, *keys, continues, lost, indispensable, rows)
        return replace(bare, signature=self.signer.sign(self._place(0, self.node, bare.content())))

    def admit(self, introduction: Introduction) -> None:
        """The certificate is the origin's, the signature the certificate's."""
        origin = introduction.origin
        verifier = self.signer.verifier(origin, introduction.certificate)
        if not verifier(self._place(0, origin, introduction.content()), introduction.signature):
            raise PeerFault(f"passed on an introduction of {origin} that {origin} did not sign")
        self._verifiers.setdefault(origin, verifier)

    def close(self, introductions: Mapping[str, Record]) -> None:
        """One shared secret with every other member."""
        publics = {
            name: record.mask_key
            for name, record in introductions.items()
            if isinstance(record, Introduction)
        }
        context = f"{self.network}/{self.fit}".encode()
        try:
            self._masks = Masks(self.node, self.key, context, publics)
        except KeyRefused as error:
            raise FitFailure(str(error)) from None

    def part(self, number: int, words: Words, packing: Packing) -> Part:
        """The words under our masks, signed."""
        assert self._masks is not None  # sums follow the introductions
        masked = self._masks.apply(number, words, packing)
        bare = Part(self.node, masked, b"")
        return Part(self.node, masked, self.signer.sign(self._place(number, self.node, bare.content())))

    def confirm(self, number: int) -> Part:
        """Signed, for this place."""
        bare = Part(self.node, CONFIRMED, b"")
        return Part(self.node, CONFIRMED, self.signer.sign(self._place(number, self.node, bare.content())))

    def check(self, number: int, part: Part) -> None:
        """Signed by its origin, for this place."""
        verifier = self._verifiers.get(part.origin)
        if verifier is None or not verifier(self._place(number, part.origin, part.content()), part.signature):
            raise PeerFault(f"passed on a record of {part.origin} that {part.origin} did not sign")

    def _place(self, number: int, origin: str, content: bytes) -> bytes:
        return signing_bytes(self.network, self.fit, number, origin, content)


class Open:
    """Neither masked nor signed, for a network inside one process. Masks cancel, so the bits are the same."""

    def __init__(self, node: str, fit: int) -> None:
        self.node, self.fit = node, fit

    def secrets(self) -> tuple[bytes, bytes]:
        """None."""
        return b"", b""

    def introduce(
        self,
        neighbours: tuple[str, ...],
        *,
        continues: int = 0,
        lost: tuple[str, ...] = (),
        indispensable: bool = False,
        rows: int = 0,
    ) -> Introduction:
        """Our neighbours."""
        return Introduction(self.node, neighbours, b"", b"", b"", continues, lost, indispensable, rows)

    def admit(self, introduction: Introduction) -> None:
        """Nothing to check."""

    def close(self, introductions: Mapping[str, Record]) -> None:
        """Nothing to agree on."""

    def part(self, number: int, words: Words, packing: Packing) -> Part:
        """The words as they are."""
        return Part(self.node, words, b"")

    def confirm(self, number: int) -> Part:
        """As it is."""
        return Part(self.node, CONFIRMED, b"")

    def check(self, number: int, part: Part) -> None:
        """Nothing to check."""
