"""Members that are lost in the middle of a fit, event by event: who goes on, who waits, who is let in."""

import numpy as np
import pytest

from desmr_node.protocol import events as ev
from desmr_node.protocol.lineage import Lineage
from desmr_node.protocol.machine import IN_A_FIT, Phase
from desmr_node.protocol.messages import Abort, Flood, Introduction, Vector

RING = ["ab", "bc", "cd", "de", "ea"]


def founders(*edges):
    names = sorted(set("".join(edges)))
    return {name: tuple(sorted(set("".join(e for e in edges if name in e)) - {name})) for name in names}


# -- who may go on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "lost", "obstacle"),
    [
        (RING, "b", ""),
        (RING, "bc", ""),
        (RING, "bcd", "2 of 5 members are no majority"),
        (RING, "be", "1 of 5 members are no majority"),  # a is cut off from the three that are left
        (["ab"], "b", "1 of 2 members are no majority"),
        (["ab", "bc", "ca"], "c", ""),
        (["ab", "ac", "ad"], "d", ""),
    ],
)
def test_a_majority_within_reach_may_go_on(edges, lost, obstacle):
    lineage = Lineage(1, founders(*edges)).without(lost, 1, 3)
    assert lineage.obstacle("a") == obstacle


def test_half_is_no_majority():
    lineage = Lineage(1, founders("ab", "bc", "cd"))
    assert not lineage.is_majority("ab")
    assert lineage.is_majority("abc")
    assert not lineage.is_majority(["a", "a", "a", "stranger", "another"])


def test_an_indispensable_member_is_not_left_out():
    lineage = Lineage(1, founders(*RING), frozenset("b")).without("b", 1, 0)
    assert lineage.obstacle("a") == "b must not be left out ([floors] indispensable)"


def test_what_is_known_of_the_lost():
    lineage = Lineage(1, founders(*RING)).without("b", 1, 3).without("bc", 2, 0)
    assert lineage.lost == {"b": (1, 3), "c": (2, 0)}  # when it was given up first
    again = lineage.again_with("b")
    assert (again.lost, again.readmitted) == ({"c": (2, 0)}, frozenset("b"))
    assert again.found("acde").lost == {}


# -- a ring of five, of which one is lost ------------------------------------------------------------------


def ring(bench, **setup):
    """Five in a ring, in the middle of a fit: e has yet to compute, so the others wait."""
    net = bench("abcde", RING, **({"patience": 60.0} | setup)).up().call().flow(idle="e")
    while net["a"].phase is not Phase.EXCHANGING:
        net.work("e")
        net.flow(idle="e")
    return net


def lose(net, name):
    """The node is gone for good: its streams break, and it does nothing more."""
    net.todo[name].clear()
    for one, other in net.edges:
        if name in (one, other):
            here = other if one == name else one
            net.wires[one, other].clear()
            net.wires[other, one].clear()
            net.tell(here, ev.Lost(name, "gone"))
    return net


def come_back(net, name):
    for one, other in net.edges:
        if name in (one, other):
            net.connect(one, other)
    net.flow()


def test_the_others_go_on_after_their_patience(bench):
    net = lose(ring(bench), "e")
    net.flow(idle="e")
    assert not net.kept
    net.tick(59.0)
    net.flow(idle="e")
    assert not net.kept
    said = net.tick(1.0)
    assert "report e has been away for 60 s (gone): going on without" in said
    net.flow(idle="e")
    assert net.kept == dict.fromkeys("abcd", (2, ("a", "b", "c", "d")))
    assert ("a", "report fit 2 goes on with fit 1 without e") in net.said
    assert [net[k].lost() for k in "abcd"] == 4 * [["e"]]
    assert net["a"].hello().standing.continues == 1


def test_the_next_fit_has_all_again(bench):
    net = lose(ring(bench), "e")
    net.tick(60.0)
    net.flow(idle="e")
    net.boot("e", incarnation=1)
    come_back(net, "e")
    net.call("b").flow()
    assert net.kept == dict.fromkeys("abcde", (3, tuple("abcde")))


def test_who_comes_back_in_time_is_waited_for_and_changes_nothing(bench):
    net = lose(ring(bench), "a")
    net.tick(30.0)
    come_back(net, "a")
    net.tick(45.0)
    net.flow()
    assert not [text for _, text in net.said if "without" in text]


def test_who_comes_back_while_the_others_go_on_is_let_in_once(bench):
    """e, cut off in fit 1, is back while the others gather for fit 2: they all do fit 3."""
    net = ring(bench)
    lose_edges(net, "e")
    net.tick(60.0)
    net.flow(idle="abcd")  # they know who is left, and have yet to compute
    assert {net[k].fit for k in "abcd"} == {2}
    net.todo["e"].clear()
    come_back(net, "e")
    assert net.kept == dict.fromkeys("abcde", (3, tuple("abcde")))
    assert net["a"].lost() == []
    assert net["a"].lineage.base == 1


def lose_edges(net, name):
    for one, other in net.edges:
        if name in (one, other):
            net.lose(one, other)


def test_the_second_time_it_stays_out(bench):
    net = ring(bench)
    lose_edges(net, "e")
    net.tick(60.0)
    net.flow(idle="abcd")
    for name in "abcd":  # what they were about to compute is of no use any more
        net.todo[name].clear()
    for one, other in (("d", "e"), ("e", "a")):
        net.connect(one, other)
    net.flow(idle="e")
    assert {net[k].fit for k in "abcde"} == {3}
    lose_edges(net, "e")
    net.tick(60.0)
    net.flow(idle="abcd")
    for one, other in (("d", "e"), ("e", "a")):
        net.connect(one, other)
    net.flow(idle="e")
    assert {net.kept[k] for k in "abcd"} == {(4, ("a", "b", "c", "d"))}
    net.tick(2.0)
    net.flow(idle="e")
    assert net["e"].phase is Phase.FAILED
    assert "went on without this member" in net["e"].reason


def test_a_minority_pauses_and_goes_on_when_the_others_are_back(bench):
    """The path a - b - c: without b nobody has a majority, and all is as before once b is back."""
    net = bench("abc", ["ab", "bc"], patience=60.0).up().call().flow(idle="b")
    while net["a"].phase is not Phase.EXCHANGING:
        net.work("b")
        net.flow(idle="b")
    lose_edges(net, "b")
    net.tick(60.0)
    net.tick(1000.0)
    assert "1 of 3 members are no majority" in net["a"].paused
    assert net["a"].phase in IN_A_FIT
    come_back(net, "b")
    assert set(net.kept.values()) == {(1, ("a", "b", "c"))}
    assert not any(machine.paused for machine in net.machines.values())


def test_two_halves_cannot_both_go_on(bench):
    """a, b, c and d in a path: cut in the middle, both halves stand still until they are joined again."""
    net = bench("abcd", ["ab", "bc", "cd"], patience=60.0).up().call().flow(idle="b")
    net.work("b")
    net.lose("b", "c")
    net.flow()
    net.tick(60.0)
    net.flow()
    net.tick(600.0)
    net.flow()
    assert not net.kept
    net.connect("b", "c")
    net.flow()
    net.tick(60.0)
    net.flow()
    assert {members for _, members in net.kept.values()} == {("a", "b", "c", "d")}
    assert len({number for number, _ in net.kept.values()}) == 1


def test_an_indispensable_member_is_waited_for(bench):
    net = ring(bench, indispensable=True)
    lose_edges(net, "e")
    net.tick(60.0)
    net.flow(idle="e")
    assert not net.kept
    assert "must not be left out" in net["a"].paused
    come_back(net, "e")
    assert net.kept == dict.fromkeys("abcde", (1, tuple("abcde")))


def test_who_has_confirmed_does_not_go_on_with_others(bench):
    """Its confirmation may have made the result count, at somebody who is gone."""
    net = bench("abc", ["ab", "bc", "ca"], patience=60.0).up().call().flow(idle="b")
    while net["a"].phase is not Phase.DONE:
        net.work("b")
        net.flow(idle="b")
    heirs = Flood(2, 0, (Introduction("b", ("a",), b"", b"", b"", continues=1, lost=("c",)),))
    net.wires["a", "b"].clear()
    assert net.tell("a", ev.Received("b", heirs)) == ["to b: abort 2 by a: fit 1 has been completed at a"]


def test_heirs_of_a_fit_that_is_not_ours_are_told(bench):
    net = bench("abc", ["ab", "bc", "ca"]).up()
    heirs = Flood(2, 0, (Introduction("b", ("a",), b"", b"", b"", continues=1, lost=("c",)),))
    assert net.tell("a", ev.Received("b", heirs)) == ["to b: abort 2 by a: a has no place in fit 1"]
    assert net["a"].phase is Phase.IDLE


def test_a_stranger_among_the_heirs_ends_it(bench):
    net = lose(ring(bench), "e")
    net.tick(60.0)
    net.work("a")
    stranger = Introduction("x", ("b",), b"", b"", b"", continues=1, lost=("e",))
    b = Introduction("b", ("a", "x"), b"", b"", b"", continues=1, lost=("e",))
    net.tell("a", ev.Received("b", Flood(2, 0, (b, stranger))))
    for name, neighbours in (("c", "b"), ("d", "c")):
        record = Introduction(name, tuple(neighbours), b"", b"", b"", continues=1, lost=("e",))
        net.tell("a", ev.Received("b", Flood(2, 0, (record,))))
    assert net["a"].phase is Phase.FAILED
    assert net["a"].reason == "x was no member of fit 1, which is gone on with"


def test_who_was_left_out_cannot_disturb(bench):
    """e is back on the wire, and speaks of the fit that goes on without it."""
    net = lose(ring(bench), "e")
    net.tick(60.0)
    net.flow(idle="abcde")
    net.boot("e", incarnation=1)
    net.connect("d", "e")
    net.deliver("e", "d")
    for message in (
        Flood(2, 0, (Introduction("e", ("d",), b"", b"", b"", continues=1),)),
        Vector(2, 0, 0, np.ones((2, 1))),
        Abort(2, "e", "because"),
    ):
        assert net.tell("d", ev.Received("e", message)) == []
    net.wires["d", "e"].clear()
    net.flow(idle="e")
    assert {net.kept[k] for k in "abcd"} == {(2, ("a", "b", "c", "d"))}


# -- what is saved -----------------------------------------------------------------------------------------


def test_every_place_is_saved_before_anything_that_follows_from_it_is_sent(bench):
    net = bench("ab", ["ab"]).up().call().flow()
    said = [text for name, text in net.said if name == "a"]
    for sum_, saved in ((0, "save 1/0"), (1, "save 1/0"), (2, "save 1/1"), (3, "save 1/2")):
        first = next(k for k, text in enumerate(said) if text.startswith(f"to b: flood 1/{sum_}"))
        assert saved in said[:first]
    assert said.index("keep fit 1 of a, b") < said.index("save 1/2, finished") < said.index("to b: done 1")
