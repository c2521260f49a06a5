"""Floods: who is told what, when a set is complete, what is refused, and that totals are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desmr_node.protocol.faults import FitFailure, PeerFault
from desmr_node.protocol.fixed import Packing
from desmr_node.protocol.messages import Introduction, Part, same
from desmr_node.protocol.sums import MOST_MEMBERS, Flood, Roster, total


def intro(origin, neighbours, key=b""):
    return Introduction(origin, tuple(neighbours), key, b"", b"")


def part(origin, *words):
    return Part(origin, np.array(words, dtype=np.uint64), b"")


def roster(edges):
    links = {}
    for one, other in edges:
        links.setdefault(one, set()).add(other)
        links.setdefault(other, set()).add(one)
    return Roster({name: intro(name, sorted(others)) for name, others in links.items()})


PATH = roster(["ab", "bc", "cd"])


def origins(records):
    return "".join(record.origin for record in records)


# -- introductions -------------------------------------------------------------------------------------------


def test_a_set_is_complete_when_every_named_neighbour_is_in_it():
    flood = Flood(0, intro("a", "b"), "b", None)
    assert flood.missing() == ["b"]
    flood.keep(intro("b", "ac"))
    assert flood.missing() == ["c"]
    flood.keep(intro("c", "b"))
    assert flood.missing() == []


def test_introductions_go_to_everyone_who_is_not_known_to_hold_them():
    flood = Flood(0, intro("b", "ac"), "ac", None)
    assert origins(flood.news_for("a")) == "b"
    assert flood.news_for("a") == ()
    for record in flood.receive("c", [intro("d", "c"), intro("c", "bd")]):
        flood.keep(record)
    assert origins(flood.news_for("a")) == "cd"  # sorted
    assert origins(flood.news_for("c")) == "b"  # what c sent, it holds
    flood.forget("a")
    assert origins(flood.news_for("a")) == "bcd"


def test_what_is_known_is_not_news():
    flood = Flood(0, intro("a", "b"), "b", None)
    (fresh,) = flood.receive("b", [intro("b", "a")])
    flood.keep(fresh)
    assert flood.receive("b", [intro("b", "a"), intro("a", "b")]) == []


def test_more_members_than_there_can_be_are_refused():
    flood = Flood(0, intro("a", "b"), "b", None)
    with pytest.raises(PeerFault, match="more than 4096 members"):
        flood.receive("b", [intro(f"n{i}", ()) for i in range(MOST_MEMBERS)])


# -- parts ---------------------------------------------------------------------------------------------------


def test_parts_travel_along_a_shortest_path_tree():
    flood = Flood(3, part("b", 1), "ac", PATH)
    for record in flood.receive("c", [part("c", 2), part("d", 3)]):
        flood.keep(record)
    for record in flood.receive("a", [part("a", 4)]):
        flood.keep(record)
    assert origins(flood.news_for("a")) == "bcd"
    assert origins(flood.news_for("c")) == "ab"
    assert flood.missing() == []


def test_on_a_ring_no_record_crosses_an_edge_it_need_not():
    ring = roster(["ab", "bc", "cd", "ad"])
    sent = {
        (here, there): [origin for origin, peers in ring.relays(here).items() if there in peers]
        for here, there in ("ab", "ba", "bc", "cb", "cd", "dc", "ad", "da")
    }
    for target in "abcd":
        received = [origin for (_, there), origins_ in sent.items() if there == target for origin in origins_]
        assert sorted(received) == [name for name in "abcd" if name != target]  # each exactly once


def test_who_asks_gets_what_is_here_once():
    flood = Flood(3, part("b", 1), "ac", PATH)
    assert origins(flood.of(["b", "b", "x", "a", "b"])) == "b"


def test_a_strangers_record_and_one_of_the_wrong_kind_are_refused():
    flood = Flood(3, part("b", 1), "ac", PATH)
    with pytest.raises(PeerFault, match="a record of 'x', which is no member of this fit"):
        flood.receive("a", [part("x", 1)])
    with pytest.raises(PeerFault, match="wrong kind in sum 3"):
        flood.receive("a", [intro("a", "b")])
    with pytest.raises(PeerFault, match="wrong kind in sum 0"):
        Flood(0, intro("a", "b"), "b", None).receive("b", [part("b", 1)])


def test_two_different_records_name_their_origin():
    flood = Flood(3, part("b", 1), "ac", PATH)
    flood.keep(part("a", 5))
    flood.keep(part("a", 5))  # the same again is nothing
    assert len(flood.receive("c", [part("a", 6)])) == 1
    with pytest.raises(FitFailure, match="a signed two different records for sum 3"):
        flood.keep(part("a", 6))
    assert flood.records["a"].words == [5]


def test_sameness():
    assert same(part("a", 1, 2), part("a", 1, 2))
    assert not same(part("a", 1, 2), part("a", 1, 3))
    assert not same(part("a", 1), part("a", 1, 0))
    assert same(intro("a", "bc"), intro("a", "bc"))
    assert not same(intro("a", "bc"), intro("a", "b"))
    assert not same(intro("a", "bc"), intro("a", "bc", b"another key"))
    assert not same(intro("a", ()), part("a", 1))


# -- the roster ----------------------------------------------------------------------------------------------


def test_the_roster_is_sorted_and_knows_the_graph():
    assert PATH.names == ("a", "b", "c", "d")
    assert PATH.graph.neighbours == ((1,), (0, 2), (1, 3), (2,))


def test_one_sided_neighbours_and_members_from_nowhere_are_told():
    with pytest.raises(FitFailure, match="a lists b as its neighbour but b does not list a"):
        Roster({"a": intro("a", "b"), "b": intro("b", "")})
    islands = {"a": intro("a", ""), "x": intro("x", "y"), "y": intro("y", "x")}
    with pytest.raises(FitFailure, match="the members a, x, y are not connected"):
        Roster(islands)


# -- totals --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(*[st.integers(0, 2**64 - 1)] * 3), min_size=1))
def test_totals_are_exact_with_carries_in_any_order(words):
    """A number of one word, and one of two."""
    records = {name: part(name, *numbers) for name, numbers in words.items()}
    packing = Packing(((1, 1), (1, 2)))
    found = [int(w) for w in total(records, packing)]
    assert found[0] == sum(n[0] for n in words.values()) % 2**64
    assert found[1] + (found[2] << 64) == sum(n[1] + (n[2] << 64) for n in words.values()) % 2**128
    assert found == total(dict(reversed(records.items())), packing).tolist()


def test_a_part_of_another_length_names_its_origin():
    with pytest.raises(FitFailure, match="b contributed 2 words to a sum of 1: it runs another fit"):
        total({"a": part("a", 1), "b": part("b", 1, 2)}, Packing(((1, 1),)))


# -- floods of whole networks --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.randoms(use_true_random=False))
def test_on_any_graph_everybody_ends_with_every_record(size, random):
    names = [f"n{j}" for j in range(size)]
    edges = {(names[random.randrange(k)], names[k]) for k in range(1, size)}
    edges |= {(a, b) for a in names for b in names if a < b and random.random() < 0.2}
    links = {n: sorted({a if b == n else b for a, b in edges if n in (a, b)}) for n in names}
    introductions = {n: intro(n, links[n]) for n in names}
    everyone = Roster(introductions)
    floods = {n: Flood(0, introductions[n], links[n], None) for n in names}
    spread(floods, links, random)
    assert all(flood.missing() == [] and set(flood.records) == set(names) for flood in floods.values())
    floods = {n: Flood(1, part(n, j), links[n], everyone) for j, n in enumerate(names)}
    crossings = spread(floods, links, random)
    assert all(flood.missing() == [] for flood in floods.values())
    assert {int(total(flood.records, Packing(((1, 1),)))[0]) for flood in floods.values()} == {
        size * (size - 1) // 2
    }
    assert crossings == size * (size - 1)  # everybody gets every other's record exactly once


def spread(floods, links, random):
    crossings = 0
    moving = True
    while moving:
        moving = False
        for name in random.sample(sorted(floods), len(floods)):
            for peer in links[name]:
                news = floods[name].news_for(peer)
                crossings += len(news)
                for record in floods[peer].receive(name, news):
                    floods[peer].keep(record)
                moving = moving or bool(news)
    return crossings
