"""Members that lie: accused by their neighbours, proven by two signatures, and left out of the fit."""

import numpy as np
import pytest

from desmr_node.core.force import Suspicion
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import Phase
from desmr_node.protocol.messages import Done, Flood, Part

RING = ["ab", "bc", "cd", "de", "ea"]
ROWS = 30


def ring(bench, **setup):
    """Five in a ring, in the middle of a fit: e has yet to compute, so the others wait."""
    net = bench("abcde", RING, **({"patience": 60.0} | setup)).up().call().flow(idle="e")
    while net["a"].phase is not Phase.EXCHANGING:
        net.work("e")
        net.flow(idle="e")
    return net


def places(net, here, *names):
    return frozenset(net[here].members.index(name) for name in names)


def suspecting(net, here, accused=(), uneasy=(), drop=True):
    """The node's worker answers what it was asked, and says what it holds of the neighbours."""
    task = net.todo[here].popleft()
    suspicion = Suspicion(
        places(net, here, *accused), frozenset(), places(net, here, *uneasy, *accused), drop
    )
    return net.tell(here, ev.Computed(task.ticket, next(net.scripts[here]), suspicion))


@pytest.fixture
def watched(bench):
    """Five in a ring whose members declare their rows, in the middle of a fit; all have a task to do."""
    return ring(bench, rows=ROWS)


def computing(net):
    """e has sent its vector, and its neighbours a and d are asked to compute."""
    net.work("e")
    net.flow(idle="abcde")
    assert net.todo["a"]
    assert net.todo["d"]
    return net


def test_who_is_accused_by_all_its_neighbours_is_left_out(watched):
    net = computing(watched)
    said = suspecting(net, "a", ["e"])
    assert "report e lies in what it sends: going on without" in said
    suspecting(net, "d", ["e"])
    net.flow(idle="e")
    assert net.kept == dict.fromkeys("abcd", (2, ("a", "b", "c", "d")))
    assert [net[k].lost() for k in "abcd"] == 4 * [["e"]]
    assert net["a"].lineage.condemned == {"e"}
    assert net["a"].suspicion_of("e") == "left out"


def test_a_neighbour_that_is_only_uneasy_believes_the_one_that_accuses(watched):
    net = computing(watched)
    suspecting(net, "d", uneasy=["e"])
    suspecting(net, "a", ["e"])
    net.flow(idle="e")
    assert ("d", "report c has found that e lies, and so have we") in net.said
    assert net.kept == dict.fromkeys("abcd", (2, ("a", "b", "c", "d")))


def test_an_accusation_that_nobody_shares_costs_the_edge_and_nothing_else(watched):
    """Or else a liar could have others left out."""
    net = computing(watched)
    suspecting(net, "a", ["e"])
    net.flow()
    assert net.kept == dict.fromkeys("abcde", (2, tuple("abcde")))
    graph = net["a"].roster.graph
    assert 4 not in graph.neighbours[0]
    assert graph.neighbours[4] == (3,)
    assert net["e"].lost() == []


def test_one_that_was_left_out_is_not_let_in_again_in_this_fit_but_in_the_next(watched):
    net = computing(watched)
    suspecting(net, "a", ["e"])
    suspecting(net, "d", ["e"])
    net.flow(idle="abcde")
    for one in "ad":
        net.lose(one, "e")
        net.connect(one, "e")
    net.flow()
    assert {net.kept[k] for k in "abcd"} == {(2, ("a", "b", "c", "d"))}
    net.tick(3.0)  # e asks what has become of the fit
    net.flow()
    assert net["e"].phase is Phase.FAILED
    net.call("b").flow()
    assert {net.kept[k] for k in "abcde"} == {(3, tuple("abcde"))}
    assert net["a"].suspicion_of("e") == ""


def test_only_to_report_changes_nothing(watched):
    net = computing(watched)
    said = suspecting(net, "a", ["e"], drop=False)
    assert "report e pulls harder than honest members do: it may be lying" in said
    assert net["a"].suspicion_of("e") == "accused"
    net.flow()
    assert net.kept == dict.fromkeys("abcde", (1, tuple("abcde")))


def test_what_is_left_must_be_a_majority(bench):
    net = bench("ab", ["ab"], rows=ROWS).up().call().flow(idle="ab")
    for name in "ab":
        net.work(name)
    net.flow(idle="ab")
    said = suspecting(net, "a", ["b"])
    assert any("b lies in what it sends, but stays: 1 of 2 members are no majority" in text for text in said)
    net.flow()
    assert net.kept == dict.fromkeys("ab", (1, ("a", "b")))


def test_two_signed_records_are_proof_for_everybody(bench):
    """b gets another record of e's than the rest; both travel on, and e is left out by all."""
    net = bench("abcde", RING, rows=ROWS).up().call().flow(idle="abcde")
    for name in "abcd":
        net.work(name)
    one, other = (Part("e", np.full(16, k, dtype=np.uint64), b"") for k in (1, 2))
    net.tell("b", ev.Received("a", Flood(1, 1, (one,))))
    said = net.tell("b", ev.Received("c", Flood(1, 1, (other,))))
    assert "report e signed two different records for sum 1: it lies or is ill: going on without" in said
    net.flow(idle="e")
    assert net.kept == dict.fromkeys("abcd", (2, ("a", "b", "c", "d")))
    proven = [name for name, text in net.said if "signed two different records" in text]
    assert set(proven) >= {"b", "a", "c"}


def test_members_that_do_not_declare_their_rows_are_named(bench):
    net = bench("ab", ["ab"], rows=ROWS)
    net.boot("b")
    net.up().call().flow()
    assert net["a"].phase is Phase.FAILED
    assert "b did not say with how many rows" in net["a"].reason


def test_declared_rows_reach_the_worker_in_the_order_of_members(bench):
    net = bench("ab", ["ab"])
    net.boot("a", rows=7)
    net.boot("b", rows=9)
    net.up().call().flow(idle="ab")
    assert net.todo["a"][0].answer.declared == net.todo["b"][0].answer.declared == (7, 9)


def test_a_fault_that_is_forgiven_does_not_shorten_the_patience(bench):
    """b garbles once and is back at once; much later its stream breaks: it has the whole patience again."""
    net = ring(bench)
    net.tell("a", ev.Garbled("b", "sent rubbish"))
    net.lose("a", "b")
    net.connect("a", "b")
    net.flow(idle="e")
    while net["a"].peers["b"].faulty:
        net.work("e")
        net.flow(idle="e")
    assert not net.kept
    net.now += 100.0
    net.lose("a", "b", "a cable")
    said = net.tell("a", ev.Ticked())
    assert not [text for text in said if "going on without" in text]
    assert net["a"].deadline() <= net.now + 60.0


def test_the_number_of_a_fit_has_a_window(bench):
    """The largest would leave no number for the next one."""
    net = bench("ab", ["ab"]).up()
    said = net.tell("a", ev.Received("b", Flood(2**31 - 1, 0, ())))
    assert any("speaks of fit 2147483647 while we are at 0" in text for text in said)
    net.lose("a", "b")
    net.connect("a", "b")
    net.flow()
    net.tell("a", ev.Received("b", Done(2**30)))
    net.lose("a", "b")
    net.connect("a", "b")
    net.call().flow()
    assert net.kept == dict.fromkeys("ab", (1, ("a", "b")))
