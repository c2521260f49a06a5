"""What METHOD stands for has not changed unnoticed. If a test fails here, by intent: raise METHOD, add a row.

Nodes of one method sum each other's words and decide from the totals, whatever their releases: so the words
of a contribution, its mask and what is signed are kept here to the bit, and a small fit to nine digits, which
leaves room for another BLAS but not for another rule.
"""

import hashlib

import numpy as np
import pytest

from desmr_node import FitSpec, simulate
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
from desmr_node.core.method import METHOD
from desmr_node.protocol.fixed import pack, packing_of
from desmr_node.protocol.messages import Introduction, Part
from desmr_node.protocol.sealing import MaskKey, Masks, signing_bytes

#: Method to digests of what its members exchange, and to what they end with.
EXCHANGED = {
    1: {
        "Moments": ["97d88f9c513ccdfd", "cafab2b00df039e8"],
        "Spreads": ["83edbdde24202b91", "f4dbe4ea992edfcc"],
        "Start": ["a92488e041a1395f", "f10d687ca55134db"],
        "Report": ["9fc09100ee1a81ae", "86003c955da1daa7"],
        "Ballot": ["caa5046ebf9dda27", "355db9882187037e"],
        "Closing": ["4323a18250322d51", "c4931970128589be"],
        "Evaluation": ["d30d94e7feb43c93", "18d981e4351d5696"],
        "mask": ["e6b54bb86256592a"],
        "signed": ["3f45b3d174cebfc2", "d157f2ab278f152f"],
    },
}
ENDED = {
    1: {
        "default": [50, 0.151777001061, 1.02896987464, 1.9871900885, 0, 0, -0.920262065565, 0, 0.43783753184],
        "l1": [
            38, 0.0352743165658, 1.01650975202, 1.93778610632, 0, 0.0468746726273, -0.87620016834,
            -0.0447364576558, 0.401202043774,
        ],
        "squared": [38, 2.55640627881, -0.348858923653, 0, 0, 1.19974274169, 0, 0, 0],
        "paper": [80, 0.105382652973, 0.996677445281, 1.824054282, 0, 0, -0.807207870356, 0, 0.360931371584],
    },
}  # fmt: skip
EXCHANGED[2] = EXCHANGED[1]
#: One flood more, across a diameter of two: all confirm that they hold the result.
ENDED[2] = {name: [rounds + 2, *model] for name, (rounds, *model) in ENDED[1].items()}


def numbers(*shape):
    """Doubles that are the same on every machine: no generator and no rounding is involved."""
    count = int(np.prod(shape, dtype=int))
    return np.array([(-1.0) ** k * (k + 1) / 1024 for k in range(count)]).reshape(shape)


def contributions():
    """One of every kind, small."""
    row = numbers(3)
    gram = np.array([[1.0, 0.5, -0.25], [0.5, 1.0, 0.125], [-0.25, 0.125, 1.0]])
    pair, counts = np.abs(numbers(2)), np.arange(4.0)
    return (
        Moments(np.array(9.0), row, counts),
        Spreads(np.abs(row)),
        Start(np.abs(row), gram, row, counts, row),
        Report(pair, pair, np.ones((3, 2)), pair, pair, pair, pair, pair, pair, np.ones((4, 2))),
        Ballot(np.ones(3), row),
        Closing(pair, pair),
        Evaluation(np.array(9.0), np.array(1.5), np.array(2.25)),
    )


def exchanged():
    """Digests: words with and without filler, words under a mask, the bytes that signatures cover."""
    found = {}
    for part in contributions():
        bare, filled = pack(part, gram_exponent=2), pack(part, gram_exponent=2, filler=bytes(range(32)))
        found[type(part).__name__] = [bare.tobytes(), filled.tobytes()]
    own, other = MaskKey(bytes(31) + b"\1"), MaskKey(bytes(31) + b"\2")
    part = contributions()[0]
    masks = Masks("a", own, b"net/7", {"b": other.public})
    masked = masks.apply(3, pack(part), packing_of(part))
    found["mask"] = [masked.tobytes()]
    records = Introduction("a", ("b", "c"), own.public, b"certificate", b""), Part("a", masked, b"")
    found["signed"] = [signing_bytes("net", 7, k, "a", record.content()) for k, record in enumerate(records)]
    return {
        name: [hashlib.sha256(data).hexdigest()[:16] for data in pieces] for name, pieces in found.items()
    }


def ended(spec):
    """A fit of three members, as numbers to compare."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((3, 60, 6))
    y = 1.0 + X @ [2.0, 0.0, 0.0, -1.0, 0.0, 0.5] + 0.5 * rng.standard_cauchy((3, 60))
    fit = simulate([(X[j], y[j]) for j in range(3)], [(0, 1), (1, 2)], spec)
    return [fit.rounds, fit.lambda_, fit.intercept[0], *fit.coef[0]]


FITS = {
    "default": FitSpec(),
    "l1": FitSpec(penalty="l1"),
    "squared": FitSpec(loss="squared"),
    "paper": FitSpec(
        update="linearised", metric="identity", penalty="l1", outer=3, inner=20, tolerance=0.0
    ),
}  # fmt: skip


def test_every_kind_of_contribution_is_kept():
    kinds = {type(part).__name__ for part in contributions()}
    assert kinds == {kind.__name__ for kind in Contribution.__subclasses__()}
    assert EXCHANGED[METHOD].keys() == kinds | {"mask", "signed"}


@pytest.mark.parametrize("name", EXCHANGED[METHOD])
def test_members_of_a_method_exchange_the_same_words(name):
    assert exchanged()[name] == EXCHANGED[METHOD][name]


@pytest.mark.parametrize("name", FITS)
def test_members_of_a_method_end_with_the_same_model(name):
    assert ended(FITS[name]) == pytest.approx(ENDED[METHOD][name], rel=1e-9, abs=1e-12)
