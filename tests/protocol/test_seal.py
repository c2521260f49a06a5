"""Real seals: what a relay cannot do, what an origin cannot deny, and that masks change no bit of a total."""

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from desmr_node.core.contributions import Closing
from desmr_node.protocol import events as ev
from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import Packing, pack, packing_of, unpack
from desmr_node.protocol.machine import Phase
from desmr_node.protocol.messages import Flood, Introduction, Part
from desmr_node.protocol.seal import Open, Sealed
from desmr_node.protocol.sealing import MaskKey
from desmr_node.protocol.sums import total

NETWORK = "net"


class Authority:
    """Knows whose key is whose: what a certificate authority would say."""

    def __init__(self):
        self.keys = {}

    def signer(self, name):
        signer = Signer(self)
        self.keys.setdefault(name, set()).add(signer.certificate)
        return signer


class Signer:
    def __init__(self, authority):
        self.authority = authority
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, data):
        return self._key.sign(data, ec.ECDSA(hashes.SHA256()))

    def verifier(self, origin, certificate):
        if certificate not in self.authority.keys.get(origin, ()):
            raise PeerFault(f"passed on an introduction of {origin} with another's certificate")
        key = load_der_public_key(certificate)

        def holds(data, signature):
            try:
                key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                return False
            return True

        return holds


def network(names="abc", fit=1, authority=None):
    """Seals of members who have all met."""
    authority = authority or Authority()
    seals = {name: Sealed(NETWORK, name, fit, MaskKey.generate(), authority.signer(name)) for name in names}
    introductions = {n: seal.introduce(tuple(k for k in names if k != n)) for n, seal in seals.items()}
    for name, seal in seals.items():
        for other, introduction in introductions.items():
            if other != name:
                seal.admit(introduction)
        seal.close(introductions)
    return seals, introductions


WORDS = np.arange(40, dtype=np.uint64)
PACKING = Packing(((5, 8),))


def changed(record, **fields):
    values = {name: getattr(record, name) for name in record.__slots__} | fields
    return type(record)(**values)


# -- parts ---------------------------------------------------------------------------------------------------


def test_an_honest_part_passes():
    seals, _ = network()
    seals["b"].check(5, seals["a"].part(5, WORDS, PACKING))


def test_a_tampered_part_is_the_relays_fault():
    seals, _ = network()
    good = seals["a"].part(5, WORDS, PACKING)
    words = good.words.copy()
    words[7] ^= np.uint64(1)
    bad = [
        changed(good, words=words),
        changed(good, words=good.words[:-1]),
        changed(good, signature=good.signature[:-1] + bytes([good.signature[-1] ^ 1])),
        changed(good, signature=b""),
        changed(good, origin="c"),
    ]
    for record in bad:
        with pytest.raises(PeerFault, match=f"a record of {record.origin} that {record.origin} did not sign"):
            seals["b"].check(5, record)


def test_a_part_signed_by_another_is_refused():
    seals, _ = network()
    theirs = seals["c"].part(5, WORDS, PACKING)
    with pytest.raises(PeerFault, match="a record of a that a did not sign"):
        seals["b"].check(5, changed(theirs, origin="a"))


def test_a_part_of_another_sum_or_fit_or_network_is_refused():
    authority = Authority()
    seals, _ = network(authority=authority)
    with pytest.raises(PeerFault):
        seals["b"].check(6, seals["a"].part(5, WORDS, PACKING))
    signer = seals["a"].signer
    for name, fit in ((NETWORK, 2), ("another", 1)):
        other = Sealed(name, "a", fit, MaskKey.generate(), signer)
        other.close({"a": other.introduce(())})
        with pytest.raises(PeerFault):
            seals["b"].check(5, other.part(5, WORDS, PACKING))


def test_nobody_speaks_for_one_who_was_never_introduced():
    seals, _ = network()
    with pytest.raises(PeerFault, match="a record of x that x did not sign"):
        seals["b"].check(5, Part("x", WORDS, b"signature"))


# -- introductions -------------------------------------------------------------------------------------------


def test_a_tampered_introduction_is_the_relays_fault():
    authority = Authority()
    a = Sealed(NETWORK, "a", 1, MaskKey.generate(), authority.signer("a"))
    b = Sealed(NETWORK, "b", 1, MaskKey.generate(), authority.signer("b"))
    good = a.introduce(("b", "c"))
    b.admit(good)
    for bad in (
        changed(good, neighbours=("b",)),
        changed(good, neighbours=("bc",)),
        changed(good, mask_key=MaskKey.generate().public),
        changed(good, signature=b""),
    ):
        with pytest.raises(PeerFault, match="an introduction of a that a did not sign"):
            b.admit(bad)
    with pytest.raises(PeerFault, match="of a with another's certificate"):
        b.admit(changed(good, certificate=b.signer.certificate))
    with pytest.raises(PeerFault, match="of c with another's certificate"):
        b.admit(changed(good, origin="c"))


def test_an_introduction_to_another_fit_is_refused():
    authority = Authority()
    signer = authority.signer("a")
    b = Sealed(NETWORK, "b", 2, MaskKey.generate(), authority.signer("b"))
    with pytest.raises(PeerFault, match="did not sign"):
        b.admit(Sealed(NETWORK, "a", 1, MaskKey.generate(), signer).introduce(("b",)))


def test_a_copied_mask_key_ends_the_fit():
    authority = Authority()
    seals = {n: Sealed(NETWORK, n, 1, MaskKey.generate(), authority.signer(n)) for n in "abc"}
    seals["c"].key = seals["b"].key
    introductions = {n: seal.introduce(()) for n, seal in seals.items()}
    with pytest.raises(FitFailure, match="b and c announce the same mask key"):
        seals["a"].close(introductions)


# -- totals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_total_under_masks_is_the_total_in_the_open(size):
    names = "abcdefg"[:size]
    seals, _ = network(names)
    rng = np.random.default_rng(size)
    numbers = {n: Closing(rng.standard_cauchy(3), rng.normal(size=1)) for n in names}
    words = {n: pack(numbers[n], 0, rng.bytes(32)) for n in names}
    packing = packing_of(numbers["a"])
    masked = {n: seals[n].part(4, words[n], packing) for n in names}
    in_the_open = {n: Open(n, 1).part(4, words[n], packing) for n in names}
    if size > 1:
        assert not any(np.array_equal(masked[n].words, words[n]) for n in names)
    assert total(masked, packing).tobytes() == total(in_the_open, packing).tobytes()
    sums = unpack(Closing, total(masked, packing), numbers["a"], size)
    np.testing.assert_allclose(sums.loss, np.sum([c.loss for c in numbers.values()], axis=0), rtol=1e-12)


# -- in the machine ------------------------------------------------------------------------------------------


def sealed_bench(bench, authority, edges):
    names = sorted(set("".join(edges)))
    net = bench(names, edges)
    signers = {name: authority.signer(name) for name in names}

    def work(name, of=net.work):
        task = net.todo[name][0]
        if isinstance(task, ev.Enrol):
            net.todo[name].popleft()
            seal = Sealed(NETWORK, name, task.fit, MaskKey.generate(), signers[name])
            net.seals[name] = seal
            return net.tell(name, ev.Enrolled(seal))
        return of(name)

    net.work, net.seals, net.signers = work, {}, signers
    return net.up()


def test_a_sealed_fit_and_the_next(bench):
    net = sealed_bench(bench, Authority(), ["ab", "bc", "ca", "cd"])
    for number in (1, 2):
        net.call("d").flow()
        assert set(net.kept.values()) == {(number, ("a", "b", "c", "d"))}


def _tampering(net, change):
    """Relay c changes what it passes on of a's parts to d; true if it did."""

    def vanishes(source, target, message):
        if source == "c" and target == "d" and isinstance(message, Flood) and message.number == 1:
            wire = net.wires["c", "d"]
            records = tuple(change(r) if r.origin == "a" else r for r in message.records)
            wire[0] = Flood(message.fit, message.number, records)
        return False

    return vanishes


def test_a_relay_that_tampers_loses_its_edge_and_the_fit_goes_on(bench):
    net = sealed_bench(bench, Authority(), ["ab", "bc", "cd"])
    net.call().flow(vanishes=_tampering(net, lambda r: changed(r, words=r.words + np.uint64(1))))
    faults = [text for name, text in net.said if text.startswith("drop")]
    assert faults == ["drop c for its fault: c passed on a record of a that a did not sign"]
    net.lose("c", "d")
    net.connect("c", "d")  # from now on it behaves
    net.flow()
    assert set(net.kept.values()) == {(1, ("a", "b", "c", "d"))}


def test_an_origin_that_signs_two_parts_is_named_to_all(bench):
    net = sealed_bench(bench, Authority(), ["ab", "bc", "cd"])

    def lie(record):
        words = record.words + np.uint64(1)
        seal = net.seals["a"]
        return Part("a", words, seal.signer.sign(seal._place(1, "a", Part("a", words, b"").content())))

    def twice(source, target, message):
        if source == "c" and target == "d" and isinstance(message, Flood) and message.number == 1:
            doubled = [
                r
                for record in message.records
                for r in ((record, lie(record)) if record.origin == "a" else (record,))
            ]
            net.wires["c", "d"][0] = Flood(message.fit, message.number, tuple(doubled))
        return False  # fmt: skip

    net.call().flow(vanishes=twice)
    assert net.all_in(Phase.FAILED)
    assert net["d"].reason == "a signed two different records for sum 1: it lies or is ill"
    assert {net[k].reason for k in "abc"} == {f"d: {net['d'].reason}"}


def test_an_origin_with_two_certificates_is_named_too(bench):
    """Both are its own: whoever passes them on is not to blame."""
    authority = Authority()
    net = sealed_bench(bench, authority, ["ab", "bc"])
    other = Sealed(NETWORK, "a", 1, MaskKey.generate(), authority.signer("a"))
    net.call().flow(still="c")
    net.work("c")
    second = other.introduce(("b",))
    first = net["b"].flood.records["a"]
    assert isinstance(first, Introduction)
    net.tell("c", ev.Received("b", Flood(1, 0, (first, second))))
    assert net["c"].reason == "a signed two different records for sum 0: it lies or is ill"
