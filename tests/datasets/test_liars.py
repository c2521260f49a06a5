"""What liars say: each attack from its meaning, and nothing that a codec would refuse."""

import numpy as np
import pytest

from desmr_node.datasets.liars import ATTACKS, MEANINGS, Liar

HEARD = [
    np.array([[1.0, 2.0], [3.0, 4.0]]),
    np.array([[3.0, 2.0], [-3.0, 4.0]]),
    np.array([[5.0, 8.0], [0.0, 1.0]]),
]
MEAN = np.array([[3.0, 4.0], [0.0, 3.0]])
HONEST = np.full((2, 2), 7.0)


def liar(attack, seed=0, coalition=0):
    found = Liar(attack, seed, coalition)
    found.hear(HEARD)
    return found


def test_every_attack_has_a_meaning():
    assert list(ATTACKS) == list(MEANINGS)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("sign-flip", -3.0 * MEAN),
        ("constant", np.full((2, 2), 100.0)),
        ("small-bias", MEAN + 0.1),
        ("hidden-bias", MEAN - 0.25 * np.std(HEARD, axis=0)),
        ("copy", HEARD[0]),
    ],
)
def test_what_everybody_is_told_alike(attack, said):
    for to in range(3):
        np.testing.assert_allclose(liar(attack).say(HONEST, to), said)


def test_two_faces():
    said = [liar("two-faced").say(HONEST, to) for to in range(4)]
    assert [np.unique(words).tolist() for words in said] == [[-50.0], [50.0], [-50.0], [50.0]]


def test_noise_is_another_for_everybody_and_in_every_round():
    said = liar("noise")
    words = np.array([said.say(np.zeros((30, 20)), to) for to in range(4)])
    assert words.std() == pytest.approx(10.0, rel=0.05)
    assert len(np.unique(words)) == words.size
    np.testing.assert_array_equal(liar("noise", 3).say(HONEST, 0), liar("noise", 3).say(HONEST, 0))
    assert not np.array_equal(liar("noise", 3).say(HONEST, 0), liar("noise", 4).say(HONEST, 0))


def test_drop_outs_are_zeros_in_half_of_the_rounds():
    said = liar("drop-out")
    words = [said.say(HONEST, 0) for _ in range(400)]
    zeros = sum(not word.any() for word in words)
    assert 160 < zeros < 240
    assert all(np.array_equal(word, MEAN) for word in words if word.any())


def test_a_replay_is_five_rounds_old():
    said = Liar("replay", 0)
    told = []
    for t in range(9):
        said.hear([np.full((2, 2), float(t))])
        told.append(said.say(HONEST, 0)[0, 0])
    assert told == [0, 0, 0, 0, 0, 1, 2, 3, 4]


def test_a_coalition_says_the_same_and_another_one_something_else():
    first, second = liar("collusion", 1, 7), liar("collusion", 2, 7)
    np.testing.assert_array_equal(first.say(HONEST, 0), second.say(HONEST, 3))
    np.testing.assert_array_equal(first.say(HONEST, 0), first.say(HONEST, 0))  # and again
    assert not np.array_equal(first.say(HONEST, 0), liar("collusion", 1, 8).say(HONEST, 0))


@pytest.mark.parametrize("attack", ATTACKS)
def test_whoever_has_heard_nothing_begins_with_what_is_honest_and_any_shape_will_do(attack):
    """Also when the number of lambdas changes in the middle of a fit."""
    said = Liar(attack, 0)
    for shape in ((2, 2), (2, 1), (2, 5)):
        for _ in range(7):
            words = said.say(np.ones(shape), 1)
            assert words.shape == shape
            assert words.flags.c_contiguous
            assert np.isfinite(words).all()
            said.hear([np.ones(shape), np.zeros(shape)])
