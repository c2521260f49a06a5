"""What leaves a node: every byte of a whole fit is recorded and searched for what must not be there."""

import struct

import numpy as np
import pytest
from scipy import stats

from desmr_node.core.contributions import Contribution
from desmr_node.core.rows import ArrayRows
from desmr_node.core.share import Sum
from desmr_node.core.spec import FitSpec
from desmr_node.protocol.fixed import pack
from desmr_node.protocol.messages import Ask, Done, Flood, Hello, Introduction, Part, Schema, Vector
from desmr_node.protocol.seal import CONFIRMED, Open, Sealed
from desmr_node.protocol.sealing import MaskKey
from desmr_node.runtime.signing import BareSigner
from desmr_node.runtime.simulation import Simulation
from desmr_node.runtime.worker import Worker
from desmr_node.transport import codec
from desmr_node.transport.simulated import SimulatedNetwork

NAMES = ["north", "south", "east", "west"]
EDGES = [("north", "east"), ("east", "south"), ("south", "west")]
FEATURES = 6
SPEC = FitSpec(outer=3, inner=5, lambdas=4, tolerance=0.0)
LIMITS = codec.Limits.of(FEATURES, SPEC.lambdas)


class Listening(Worker):
    """Remembers every contribution, as it was before it was packed and masked."""

    def __init__(self, *settings):
        super().__init__(*settings)
        self.contributed: list[Sum] = []
        self.pilot = None

    def compute(self, task):
        answer = super().compute(task)
        if isinstance(getattr(answer, "request", None), Sum):
            self.contributed.append(answer.request)
            if len(self.contributed) == 3:
                self.pilot = self.share.member.settled
        return answer


def is_confirmation(record):
    return np.array_equal(record.words, CONFIRMED)


class Recording:
    """A whole fit, with all that went over the wires."""

    def __init__(self, sealed):
        rng = np.random.default_rng(20)
        coef = np.sqrt(np.arange(1.0, FEATURES + 1)) * [1, 0, -1, 0, 0, 1]
        self.rows, workers, signers = {}, {}, {name: BareSigner() for name in NAMES}
        for name in NAMES:
            # Distinctive numbers: irrational, all 52 bits of the mantissa in use, none like another.
            X = np.pi * rng.standard_normal((int(rng.integers(41, 71)), FEATURES))
            y = X @ coef + np.e * rng.standard_t(2, len(X))
            self.rows[name] = X, y
            workers[name] = Listening(ArrayRows.checked(X, y, name), None, SPEC, 0)
        self.sent = []
        network = SimulatedNetwork(LIMITS, tap=lambda source, target, data: self.sent.append((source, data)))
        schema = Schema("y", tuple(f"x{k}" for k in range(FEATURES)))

        def seal(name, fit):
            return Sealed("simulation", name, fit, MaskKey.generate(), signers[name])

        run = Simulation(workers, EDGES, schema, network, seals=seal if sealed else Open)
        run.run()
        self.fit, self.workers = run.result(), workers
        self.messages = [(source, codec.decode(data, LIMITS)) for source, data in self.sent]
        self.bytes = b"\0".join(data for _, data in self.sent)

    def without_vectors(self):
        """All bytes but those of coefficient vectors, which are meant to be seen by neighbours."""
        pairs = zip(self.sent, self.messages, strict=True)
        return b"\0".join(data for (_, data), (_, message) in pairs if not isinstance(message, Vector))

    def parts(self, name):
        """One member's words of every sum, by number, as anybody can see them."""
        return {
            message.number: record.words
            for _, message in self.messages
            if isinstance(message, Flood)
            for record in message.records
            if isinstance(record, Part) and record.origin == name and not is_confirmation(record)
        }


@pytest.fixture(scope="module")
def sealed():
    return Recording(sealed=True)


@pytest.fixture(scope="module")
def unsealed():
    return Recording(sealed=False)


def patterns(numbers):
    """Doubles as 8-byte patterns in both byte orders. Zero is nobody's secret: a confirmation is zeros."""
    flat = np.unique(np.ravel(np.asarray(numbers, dtype=np.float64)))
    flat = flat[flat != 0.0]
    return [struct.pack(f"{order}d", number) for order in "<>" for number in flat]


def found(haystack, needles):
    """How many of the 8-byte patterns occur at any offset."""
    windows = set()
    for offset in range(8):
        whole = len(haystack[offset:]) // 8 * 8
        windows.update(np.frombuffer(haystack[offset : offset + whole], dtype="<u8").tolist())
    return sum(int.from_bytes(needle, "little") in windows for needle in needles)


# -- the kinds of messages -----------------------------------------------------------------------------------


def test_only_the_documented_kinds_are_sent(sealed):
    assert {type(message) for _, message in sealed.messages} == {Hello, Flood, Ask, Vector, Done}
    records = {
        (message.number == 0, type(record))
        for _, message in sealed.messages
        if isinstance(message, Flood)
        for record in message.records
    }
    assert records == {(True, Introduction), (False, Part)}


def test_vectors_are_the_coefficients_of_the_rounds_and_no_more(sealed):
    vectors = [message for _, message in sealed.messages if isinstance(message, Vector)]
    assert len(vectors) == 2 * len(EDGES) * SPEC.outer * SPEC.inner
    assert {v.B.shape[0] for v in vectors} == {FEATURES + 1}


# -- rows ----------------------------------------------------------------------------------------------------


def test_no_number_of_any_row_is_in_the_bytes(sealed):
    for X, y in sealed.rows.values():
        assert found(sealed.bytes, patterns(X)) == 0
        assert found(sealed.bytes, patterns(y)) == 0


def test_a_number_that_is_there_would_be_found(sealed):
    """The search finds what was sent: a coefficient of a vector, and a planted response, at any offset."""
    vector = next(message for _, message in sealed.messages if isinstance(message, Vector))
    assert found(sealed.bytes, [struct.pack("<d", vector.B[0, 0])]) == 1
    _, y = sealed.rows["north"]
    for offset in range(9):
        for order in "<>":
            planted = sealed.bytes[: 1000 + offset] + struct.pack(f"{order}d", y[3]) + sealed.bytes[1000:]
            assert found(planted, patterns(y)) == 1


# -- one member's own statistics -----------------------------------------------------------------------------


def statistics(recording, name):
    """What a member alone knows of itself: all it contributes, its means, its pilot."""
    X, y = recording.rows[name]
    yield "means", np.r_[X.mean(axis=0), y.mean(), X.sum(axis=0), y.sum()]
    yield "pilot", recording.workers[name].pilot
    for request in recording.workers[name].contributed:
        for field in type(request.part).__slots__:
            values = np.ravel(getattr(request.part, field))
            # Counts and votes are small whole numbers, which occur everywhere; and so are zeros.
            yield f"{type(request.part).__name__}.{field}", values[values != np.round(values)]


@pytest.mark.parametrize("name", NAMES)
def test_no_statistic_of_one_member_is_in_the_bytes_as_a_double(sealed, name):
    haystack = sealed.without_vectors()
    for what, values in statistics(sealed, name):
        assert found(haystack, patterns(values)) == 0, what


def telling(request: Sum):
    """Words of a contribution that are neither zero nor one repeated everywhere: what would give it away."""
    words = pack(request.part, request.gram_exponent, request.filler)
    return [int(w).to_bytes(8, "little") for w in np.unique(words) if 2**20 < w < 2**64 - 2**20]


@pytest.mark.parametrize("name", NAMES)
def test_no_statistic_of_one_member_is_in_the_bytes_as_words(sealed, unsealed, name):
    masked, plain = sealed.without_vectors(), unsealed.without_vectors()
    for request in sealed.workers[name].contributed:
        assert isinstance(request.part, Contribution)
        words = telling(request)
        assert found(masked, words) == 0
        assert found(plain, words) == len(words)  # without masks, all of them are there to be found


@pytest.mark.parametrize("name", NAMES)
def test_a_members_row_count_is_not_in_its_part(sealed, unsealed, name):
    """The first word of the first sum is the number of rows."""
    rows = len(sealed.rows[name][1])
    assert unsealed.parts(name)[1][0] == rows
    assert sealed.parts(name)[1][0] != rows


def test_everybody_signs_and_masks_every_sum(sealed):
    sums = 3 + SPEC.outer + 3
    for name in NAMES:
        assert sorted(sealed.parts(name)) == list(range(1, sums + 1))


# -- masked words look like noise ----------------------------------------------------------------------------


def uniformity(parts):
    """The p-value of a chi-square test that all bytes of all words are equally likely."""
    counts = np.bincount(np.concatenate([words.view(np.uint8) for words in parts.values()]), minlength=256)
    return stats.chisquare(counts).pvalue


def agreement(parts):
    """The p-value of a test that each bit of a word is zero as often as one, over all 64 places together."""
    words = np.concatenate(list(parts.values()))
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0)
    score = np.square(ones - len(words) / 2) / (len(words) / 4)
    return stats.chi2(64).sf(score.sum())


@pytest.mark.parametrize("test", [uniformity, agreement])
@pytest.mark.parametrize("name", NAMES)
def test_masked_words_look_like_noise_and_unmasked_ones_do_not(sealed, unsealed, name, test):
    assert test(sealed.parts(name)) > 1e-6
    assert test(unsealed.parts(name)) < 1e-100


def test_masks_change_no_bit_of_the_fit(sealed, unsealed):
    assert sealed.fit.coef.tobytes() == unsealed.fit.coef.tobytes()
    assert sealed.fit.history == unsealed.fit.history


def test_two_fits_have_nothing_in_common_but_their_vectors(sealed):
    """The same rows again: not a word of any sum comes back."""
    again = Recording(sealed=True)
    for name in NAMES:
        first, second = sealed.parts(name), again.parts(name)
        assert not any(np.any(first[number] == second[number]) for number in first)
