"""The inbox of vectors: what waits, what is matched, what is refused, and that it stays small."""

from random import Random

import numpy as np
import pytest

from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.messages import Vector
from desmr_node.protocol.rounds import Rounds


def vector(inner, outer=0, value=None, shape=(2, 1)):
    return Vector(1, outer, inner, np.full(shape, float(inner if value is None else value)))


def rounds(peers="bc", max_lag=0):
    return Rounds({peer: index + 1 for index, peer in enumerate(peers)}, max_lag)


def told(answer):
    """Newest value and matched pairs (own, theirs) per neighbour."""
    return {
        k: (newest[0, 0], [(own[0, 0], theirs[0, 0]) for own, theirs in answer.matched[k]])
        for k, newest in answer.newest.items()
    }


# -- lock-step -----------------------------------------------------------------------------------------------


def test_a_round_waits_for_all_neighbours():
    inbox = rounds()
    inbox.advance(vector(0))
    assert inbox.lacking() == ["b", "c"]
    assert inbox.receive("c", vector(0, value=30))
    assert inbox.lacking() == ["b"]
    assert inbox.receive("b", vector(0, value=20))
    assert inbox.lacking() == []
    assert told(inbox.neighbours_now()) == {1: (20, [(0, 20)]), 2: (30, [(0, 30)])}


def test_a_neighbour_a_round_ahead_is_heard_in_its_own_round():
    """b has sent its next vector before c's present one came."""
    inbox = rounds()
    inbox.advance(vector(0))
    inbox.receive("b", vector(0, value=20))
    inbox.receive("b", vector(1, value=21))
    inbox.receive("c", vector(0, value=30))
    assert told(inbox.neighbours_now()) == {1: (20, [(0, 20)]), 2: (30, [(0, 30)])}
    inbox.advance(vector(1))
    assert inbox.lacking() == ["c"]
    inbox.receive("c", vector(1, value=31))
    assert told(inbox.neighbours_now()) == {1: (21, [(1, 21)]), 2: (31, [(1, 31)])}


def test_early_vectors_open_the_next_outer_round():
    inbox = rounds("b")
    assert inbox.receive("b", vector(0, value=20))  # before our own first vector
    inbox.advance(vector(0))
    assert told(inbox.neighbours_now()) == {1: (20, [(0, 20)])}
    assert inbox.receive("b", vector(0, outer=1, value=25))  # while we still add up
    assert not inbox.receive("b", vector(0, outer=1, value=99))
    inbox.advance(vector(0, outer=1))
    assert told(inbox.neighbours_now()) == {1: (25, [(0, 25)])}


def test_duplicates_and_stale_vectors_are_not_news():
    inbox = rounds("b")
    inbox.advance(vector(0))
    assert inbox.receive("b", vector(0, value=20))
    assert not inbox.receive("b", vector(0, value=99))
    inbox.neighbours_now()
    inbox.advance(vector(1))
    assert not inbox.receive("b", vector(0, value=99))
    inbox.receive("b", vector(1, value=21))
    assert told(inbox.neighbours_now()) == {1: (21, [(1, 21)])}
    inbox.advance(vector(0, outer=1))
    assert not inbox.receive("b", vector(1, value=99))


@pytest.mark.parametrize(("outer", "inner"), [(0, 2), (0, 9), (1, 1), (2, 0), (3, 7)])
def test_beyond_the_window_is_the_peers_fault(outer, inner):
    inbox = rounds("b")
    inbox.advance(vector(0))
    with pytest.raises(PeerFault, match=rf"sent round \({outer}, {inner}\) while we are at \(0, 0\)"):
        inbox.receive("b", vector(inner, outer))


def test_before_the_first_round_only_its_vector_is_in_the_window():
    inbox = rounds("b")
    with pytest.raises(PeerFault, match=r"sent round \(0, 1\) while we are at \(-1, 0\)"):
        inbox.receive("b", vector(1))


def test_another_shape_is_the_peers_fault_and_found_later_if_it_comes_early():
    inbox = rounds("bc")
    inbox.receive("c", vector(0, shape=(3, 1)))
    inbox.advance(vector(0))
    assert inbox.misshapen() == ["c"]
    with pytest.raises(PeerFault, match=r"sent \(2, 2\) coefficients in round \(0, 0\) instead of \(2, 1\)"):
        inbox.receive("b", vector(0, shape=(2, 2)))


def test_nobody_to_wait_for():
    inbox = rounds("")
    inbox.advance(vector(0))
    assert inbox.lacking() == []
    assert told(inbox.neighbours_now()) == {}


# -- with a lag ----------------------------------------------------------------------------------------------


def test_with_a_lag_the_newest_serves_again_and_pairs_are_matched_late():
    inbox = rounds("b", max_lag=2)
    inbox.advance(vector(0))
    assert inbox.lacking() == ["b"]  # the first round waits always
    inbox.receive("b", vector(0, value=20))
    assert told(inbox.neighbours_now()) == {1: (20, [(0, 20)])}
    for inner in (1, 2):
        inbox.advance(vector(inner))
        assert inbox.lacking() == []
        assert told(inbox.neighbours_now()) == {1: (20, [])}
    inbox.advance(vector(3))
    assert inbox.lacking() == ["b"]
    inbox.receive("b", vector(1, value=21))
    inbox.receive("b", vector(2, value=22))
    assert told(inbox.neighbours_now()) == {1: (22, [(1, 21), (2, 22)])}
    assert inbox.lacking(drain=True) == ["b"]
    inbox.receive("b", vector(3, value=23))
    assert inbox.lacking(drain=True) == []
    assert told(inbox.neighbours_now()) == {1: (23, [(3, 23)])}


def test_a_gap_is_not_stepped_over():
    inbox = rounds("b", max_lag=1)
    inbox.advance(vector(0))
    inbox.receive("b", vector(0))
    inbox.neighbours_now()
    inbox.advance(vector(1))
    inbox.receive("b", vector(2))
    assert told(inbox.neighbours_now()) == {1: (0, [])}
    inbox.advance(vector(2))
    assert inbox.lacking() == ["b"]  # vector 1 is missing, though 2 is here
    assert inbox.lacking(drain=True) == ["b"]
    inbox.receive("b", vector(1))
    assert told(inbox.neighbours_now()) == {1: (2, [(1, 1), (2, 2)])}


def test_the_window_grows_with_the_lag():
    inbox = rounds("b", max_lag=2)
    inbox.advance(vector(0))
    assert inbox.receive("b", vector(3))
    with pytest.raises(PeerFault):
        inbox.receive("b", vector(4))


@pytest.mark.parametrize("max_lag", range(4))
@pytest.mark.parametrize("seed", range(25))
def test_two_inboxes_match_every_round_once_in_any_order_with_loss(max_lag, seed):
    """Vectors are lost, doubled and shuffled; what is retained makes good for all of it."""
    random = Random(seed)
    inner = random.randint(1, 12)
    names = "ab"
    boxes = {name: Rounds({other: 0}, max_lag) for name, other in zip(names, "ba", strict=True)}
    at = dict.fromkeys(names, 0)
    matched = {name: [] for name in names}
    flying = {name: [] for name in names}

    def send(name, v):
        target = "b" if name == "a" else "a"
        flying[target] += [v] * random.choice([0, 1, 1, 2])

    for name in names:
        boxes[name].advance(vector(0))
        send(name, vector(0))
    done = set()
    for _ in range(5_000):
        name = random.choice(names)
        other = "b" if name == "a" else "a"
        box = boxes[name]
        if flying[name] and random.random() < 0.6:
            box.receive(other, flying[name].pop(random.randrange(len(flying[name]))))
        elif random.random() < 0.1:
            for v in boxes[other].retained:  # asked for
                flying[name].append(v)
        last = at[name] == inner - 1
        if name not in done and not box.lacking() and not (last and box.lacking(drain=True)):
            answer = box.neighbours_now()
            matched[name] += [int(theirs[0, 0]) for _, theirs in answer.matched[0]]
            assert all(own[0, 0] == theirs[0, 0] for own, theirs in answer.matched[0])
            if max_lag == 0:
                assert answer.newest[0][0, 0] == at[name]
            if last:
                done.add(name)
            else:
                at[name] += 1
                box.advance(vector(at[name]))
                send(name, vector(at[name]))
        assert len(box.retained) <= inner
        assert len(box._received[other]) <= 2 * max_lag + 3
        assert len(box._own) <= 2 * max_lag + 2
        if len(done) == 2:
            break
    assert matched == {"a": list(range(inner)), "b": list(range(inner))}
