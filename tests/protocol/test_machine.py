"""The machine, event by event: whole lists of effects on the main paths; what must never hang or crash."""

import copy
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from desmr_node.core.contributions import Closing
from desmr_node.core.share import Exchange, Sum
from desmr_node.protocol import events as ev
from desmr_node.protocol import machine
from desmr_node.protocol.faults import PeerFault
from desmr_node.protocol.machine import ASK_AFTER, ASK_AT_MOST, IN_A_FIT, RESTING, TABLE, Machine, Phase
from desmr_node.protocol.messages import (
    Abort,
    Ask,
    Done,
    Flood,
    Hello,
    Introduction,
    Message,
    Part,
    Reject,
    Schema,
    Standing,
    Vector,
)
from desmr_node.protocol.place import Place
from desmr_node.protocol.seal import Open

AHEAD = ": further ahead than it can be"
WORDS = 16  # of a Closing: two numbers of ten words

# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", get_args(ev.Event))
@pytest.mark.parametrize("phase", Phase)
def test_the_table_says_one_thing_for_every_event_in_every_phase(event, phase):
    handlers = [name for phases, name in TABLE[event].items() if phase in phases]
    assert len(handlers) == 1
    assert callable(getattr(Machine, handlers[0]))


def _in_phase(bench, phase):
    """Nodes a - b - c with b in the given phase, reached the honest way."""
    net = bench("abc", ["ab", "bc"]).up()
    reached = {
        Phase.IDLE: lambda: None,
        Phase.MEETING: lambda: (net.lose("b", "c"), net.call("b")),
        Phase.GATHERING: lambda: (net.call("b"), net.work("b")),
        Phase.COMPUTING: lambda: net.call().flow(idle="b") and _work_until(net, Phase.COMPUTING),
        Phase.SUMMING: lambda: (net.call().flow(idle="b"), _work_until(net, Phase.SUMMING)),
        Phase.EXCHANGING: lambda: (net.call().flow(idle="b"), _work_until(net, Phase.EXCHANGING)),
        Phase.DONE: lambda: net.call().flow(),
        Phase.FAILED: lambda: (net.call().flow(idle="b"), net.tell("b", ev.Stopped("enough")), net.flow()),
    }
    reached[phase]()
    assert net["b"].phase is phase
    return net


def _work_until(net, phase):
    for _ in range(20):
        if net["b"].phase is phase:
            return True
        if net.todo["b"]:
            net.work("b")
        else:
            net.flow(idle="abc")
            if net["b"].phase is not phase:
                net.flow(idle="b")
    return False


def _messages(fit):
    words = np.zeros(WORDS, dtype=np.uint64)
    hello = Hello("net", "a", 0, Schema("y", ("x",)), {"penalty": '"l1"'}, Standing())
    yield hello
    yield Hello("net", "a", 7, Schema("y", ("x",)), {"penalty": '"l1"'}, Standing(fit + 1, True))
    yield Hello("other", "a", 0, Schema("y", ("x",)), {}, Standing())
    yield Reject("no")
    yield Done(fit)
    for number in (max(fit - 1, 0), fit, fit + 1, 2**31 - 1):
        yield Abort(number, "c", "why not")
        yield Flood(number, 0, (Introduction("a", ("b",), b"", b"", b""),))
        yield Flood(number, 0, (Introduction("x", ("y",), b"", b"", b""),))
        yield Flood(number, 1, (Part("a", words, b""), Part("a", words + np.uint64(1), b"")))
        yield Flood(number, 1, (Part("stranger", words, b""),))
        yield Flood(number, 1, (Part("a", words[:3], b""),))
        yield Flood(number, 0, (Part("a", words, b""),))
        yield Flood(number, 9, ())
        yield Ask(number, 0, (), True)
        yield Ask(number, 1, ("a", "a", "stranger"), True)
        for outer, inner in ((0, 0), (0, 1), (1, 0), (5, 5)):
            yield Vector(number, outer, inner, np.ones((2, 1)))
            yield Vector(number, outer, inner, np.ones((3, 2)))


@pytest.mark.parametrize("phase", Phase)
def test_nothing_that_can_happen_breaks_a_machine(bench, phase):
    """Every event and every kind of message, sound or hostile, in every phase."""
    node = _in_phase(bench, phase)["b"]
    ticket, fit = node._ticket, node.fit
    happenings = [
        ev.Called(), ev.Enrolled(Open("b", fit + 1)), ev.Enrolled(Open("b", 77)),
        ev.Resumed(Place(fit + 1, Open("b", fit + 1).introduce(("a", "c"))), Open("b", fit + 1)),
        ev.Declined(fit + 1, "few"),
        ev.Connected("a"), ev.Lost("a", "gone"), ev.Garbled("a", "noise"), ev.Broken(ticket, "broke"),
        ev.Stopped("enough"), ev.Ticked(),
        ev.Broken(ticket - 1, "broke"), ev.Computed(ticket - 1, Exchange(0, 0, np.zeros((2, 1)))),
        ev.Computed(ticket, Exchange(0, 0, np.zeros((2, 1)))),
        ev.Computed(ticket, Sum(Closing(np.array([np.nan]), np.zeros(1)), bytes(32))),
        *(ev.Received("a", message) for message in _messages(fit)),
    ]  # fmt: skip
    assert {type(h) for h in happenings} == set(get_args(ev.Event))
    assert {type(m) for m in _messages(1)} == set(get_args(Message))
    for first in happenings:
        for second in (ev.Ticked(), ev.Called(), first):
            one = copy.deepcopy(node)
            effects = one.handle(first, 100.0) + one.handle(second, 200.0)
            assert all(isinstance(effect, ev.Effect) for effect in effects)
            assert one.phase is not Phase.FAILED or one.reason
            assert not (one.phase in RESTING and one.deadline() < float("inf"))


def test_what_is_not_in_the_table_is_our_bug(pair):
    with pytest.raises(KeyError):
        pair.tell("a", "an event of no known kind")


# -- a fit, event by event -----------------------------------------------------------------------------------


def test_a_fit_of_two_scripted(bench):
    net = bench("ab", ["ab"])
    assert net.tell("a", ev.Connected("b")) == ["to b: hello at fit 0"]
    assert net.tell("b", ev.Connected("a")) == ["to a: hello at fit 0"]
    assert net.tell("a", ev.Called()) == []
    assert net["a"].phase is Phase.MEETING
    assert net["a"].waiting_for() == ["b"]
    assert net.deliver("a", "b") == ["report a is up"]
    assert net.deliver("b", "a") == ["report b is up", "enrol in 1"]
    assert net.work("a") == ["report fit 1 begins", "to b: flood 1/0 a", "to b: ask 1/0 all"]
    assert net["a"].phase is Phase.GATHERING
    assert net["a"].waiting_for() == ["b"]
    assert net.deliver("a", "b") == ["enrol in 1"]  # not called, but heard of it
    assert net.deliver("a", "b") == ["to a: ask 1/0 all"]  # tell me more
    assert net.work("b") == ["report fit 1 begins", "to a: flood 1/0 b", "to a: ask 1/0 all"]
    assert net.deliver("b", "a") == ["to b: flood 1/0 a"]  # what b did not listen to before
    assert net.deliver("b", "a") == ["report members: a, b", "compute 1: begin as 0 of 2"]
    assert net["a"].phase is Phase.COMPUTING
    assert net.deliver("b", "a") == ["to b: flood 1/0 a+b"]
    assert net.deliver("a", "b") == ["report members: a, b", "compute 1: begin as 1 of 2"]
    assert net.work("a") == ["to b: flood 1/1 a"]
    assert net["a"].phase is Phase.SUMMING
    assert net.deliver("a", "b") == []
    assert net.deliver("a", "b") == []  # early: kept
    assert net.work("b") == ["to a: flood 1/1 b", "compute 2: total 195"]  # ord("a") + ord("b")
    assert net.deliver("b", "a") == ["compute 2: total 195"]
    assert net.work("a") == ["to b: vector 1 (0, 0)"]
    assert net["a"].phase is Phase.EXCHANGING
    assert net["a"].waiting_for() == ["b"]
    assert net.work("b") == ["to a: vector 1 (0, 0)"]
    assert net.deliver("b", "a") == ["compute 3: 1 says 98, 1 matched"]
    assert net.work("a") == ["to b: vector 1 (0, 1)"]
    assert net.deliver("a", "b") == ["compute 3: 0 says 97, 1 matched"]
    assert net.deliver("a", "b") == []  # a is a round ahead
    assert net.work("b") == ["to a: vector 1 (0, 1)", "compute 4: 0 says 197, 1 matched"]
    assert net.work("b") == ["to a: flood 1/2 b"]  # b is ahead now: it adds up while a still waits
    assert net.deliver("b", "a") == ["compute 4: 1 says 198, 1 matched"]
    assert net.deliver("b", "a") == []
    assert net.work("a") == ["to b: flood 1/2 a", "compute 5: total 2"]
    assert net.work("a") == ["to b: flood 1/3 a"]  # a holds the result, and says so
    assert net["a"].phase is Phase.SUMMING
    assert net.deliver("a", "b") == ["compute 5: total 2"]
    assert net.deliver("a", "b") == []
    kept = ["keep fit 1 of a, b", "report fit 1 is done: well"]
    assert net.work("b") == ["to a: flood 1/3 b", *kept, "to a: done 1"]  # both of two: a majority
    assert net["b"].phase is Phase.DONE
    assert not net["b"].finished_neighbours()
    assert net.deliver("b", "a") == [*kept, "to b: done 1"]
    assert net.deliver("b", "a") == []
    assert net.deliver("a", "b") == []
    assert net["a"].finished_neighbours()
    assert net["b"].finished_neighbours()
    assert not any(net.wires.values())


def test_one_node_without_neighbours(bench):
    net = bench("a", [])
    assert net.tell("a", ev.Called()) == ["enrol in 1"]
    assert net.work("a") == ["report fit 1 begins", "report members: a", "compute 1: begin as 0 of 1"]
    assert net.work("a") == ["compute 2: total 97"]
    assert net.work("a") == ["compute 3: "]  # no neighbours, nothing to wait for
    assert net.work("a") == ["compute 4: "]
    assert net.work("a") == ["compute 5: total 1"]
    assert net.work("a") == ["keep fit 1 of a", "report fit 1 is done: well"]
    assert net["a"].deadline() == float("inf")


def test_any_graph_ends_done_with_one_number(bench):
    for edges in (["ab", "bc", "ca"], ["ab", "bc", "cd"], ["ab", "ac", "ad"], ["ab", "bc", "cd", "da", "ac"]):
        net = bench(sorted(set("".join(edges))), edges).up().call().flow()
        assert net.all_in(Phase.DONE)
        assert set(net.kept.values()) == {(1, tuple(net.machines))}


# -- calling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("callers", ["a", "d", "ad", "bc", "abcd"])
def test_one_fit_whoever_calls(path, callers):
    path.call(*callers).flow()
    assert set(path.kept.values()) == {(1, ("a", "b", "c", "d"))}


@pytest.mark.parametrize("order", ["abcd", "dcba", "badc"])
@pytest.mark.parametrize("history", [(5, 3, 0, 0), (0, 0, 9, 0), (1, 2, 3, 4), (7, 0, 0, 7)])
def test_nodes_with_different_histories_agree_on_a_number(bench, history, order):
    """Each proposes one more than it knows of; the largest wins, and no one is told of a failure."""
    net = bench("abcd", ["ab", "bc", "cd"])
    for name, fit in zip("abcd", history, strict=True):
        net[name].fit = fit
    net.call(*order).up()
    assert set(net.kept.values()) == {(max(history) + 1, ("a", "b", "c", "d"))}
    assert not [text for _, text in net.said if "fail" in text or "abort" in text]


def test_a_second_and_a_third_fit(path):
    for number, callers in ((1, "abcd"), (2, "b"), (3, "cd")):
        path.call(*callers).flow()
        assert set(path.kept.values()) == {(number, ("a", "b", "c", "d"))}
        assert path.all_in(Phase.DONE)
    assert not [text for _, text in path.said if "fail" in text or "abort" in text]


def test_a_fit_called_while_a_neighbour_still_finishes_the_last(path):
    """d is done with fit 1 and is called again; a has yet to compute, and needs what the others hold."""
    path.call().flow(idle="a")
    while path["b"].phase is not Phase.DONE:  # a does all but its last computation
        path.work("a")
        path.flow(idle="a")
    assert path["a"].phase is Phase.COMPUTING
    path.call("d")
    path.flow(idle="a")
    # c and d are free; b must not leave a behind, though it has heard of fit 2.
    assert {n: (m.phase, m.fit) for n, m in path.machines.items()} == {
        "a": (Phase.COMPUTING, 1),
        "b": (Phase.MEETING, 1),
        "c": (Phase.GATHERING, 2),
        "d": (Phase.GATHERING, 2),
    }
    path.flow()
    assert set(path.kept.values()) == {(2, ("a", "b", "c", "d"))}


def _all_but_b_done(bench):
    """A triangle of which a and c, a majority, are done, while b still computes."""
    net = bench("abc", ["ab", "bc", "ca"]).up().call().flow(idle="b")
    while net["a"].phase is not Phase.DONE:
        net.work("b")
        net.flow(idle="b")
    assert (net["b"].phase, net["c"].phase) == (Phase.COMPUTING, Phase.DONE)
    return net


def test_who_waits_for_the_next_fit_still_serves_the_last(bench):
    """a finishes and is called again; then b's edges break before it has what it lacks."""
    net = _all_but_b_done(bench)
    net.call("a")
    net.lose("a", "b")
    net.lose("b", "c")
    assert net["b"].phase in IN_A_FIT
    assert net["a"].phase is Phase.MEETING
    net.connect("a", "b")
    net.connect("b", "c")
    net.flow()
    assert set(net.kept.values()) == {(2, ("a", "b", "c"))}
    assert [text for name, text in net.said if name == "b" and "keep" in text] == [
        "keep fit 1 of a, b, c", "keep fit 2 of a, b, c"
    ]  # fmt: skip


def test_a_peer_that_answers_after_it_is_done_is_still_done(pair):
    pair.call().flow()
    pair.tell("b", ev.Received("a", Ask(1, 2, (), True)))
    said = [pair.deliver("b", "a") for _ in range(len(pair.wires["b", "a"]))]
    assert said  # the records of its last sum, and vectors
    assert pair["a"].finished_neighbours()
    pair.call("a").flow()
    assert pair.kept["b"] == (2, ("a", "b"))


# -- not taking part -----------------------------------------------------------------------------------------


def test_a_node_below_its_floors_calls_the_fit_off_everywhere(path):
    path.call("a").flow(still="c")
    assert path.tell("c", ev.Declined(1, "9 rows, fewer than 50")) == [
        "report fit failed: 9 rows, fewer than 50",
        "to b: abort 1 by c: 9 rows, fewer than 50",
        "to d: abort 1 by c: 9 rows, fewer than 50",
    ]
    path.todo["c"].clear()
    path.flow()
    assert path["a"].phase is path["b"].phase is path["c"].phase is Phase.FAILED
    assert path["a"].reason == path["b"].reason == "c: 9 rows, fewer than 50"
    assert path["d"].phase is Phase.IDLE  # never heard of it
    path.call("d").flow()  # the rows are there now
    assert set(path.kept.values()) == {(2, ("a", "b", "c", "d"))}


def test_an_old_answer_to_enrol_is_ignored(pair):
    pair.call("a")
    assert pair.tell("a", ev.Stopped("changed my mind"))[0] == "report fit failed: changed my mind"
    for late in (ev.Declined(1, "few"), ev.Enrolled(Open("a", 1))):
        assert pair.tell("a", late) == []
    assert pair["a"].reason == "changed my mind"


def _newer(fit):
    return Flood(fit, 0, (Introduction("b", ("a",), b"", b"", b""),))


def test_the_answer_to_an_older_enrol_is_not_taken_for_the_newer_ones(pair):
    pair.call("a")
    assert pair.tell("a", ev.Received("b", _newer(5))) == ["enrol in 5"]
    assert pair.tell("a", ev.Declined(1, "few")) == []
    assert pair.tell("a", ev.Enrolled(Open("a", 1))) == []
    assert pair["a"].phase is Phase.MEETING
    assert pair.tell("a", ev.Enrolled(Open("a", 5)))[0] == "report fit 5 begins"


def test_the_end_of_an_older_fit_does_not_end_the_one_we_wait_for(pair):
    pair.call("a")
    pair.tell("a", ev.Received("b", _newer(5)))
    assert pair.tell("a", ev.Received("b", Abort(2, "b", "long ago"))) == []
    assert pair["a"].phase is Phase.MEETING
    assert pair.tell("a", ev.Received("b", Abort(5, "b", "this one")))[0] == "report fit failed: b: this one"


@pytest.mark.parametrize("network", ["pair", "path"])
def test_a_broken_worker_fails_the_fit_everywhere_with_its_reason(request, network):
    net = request.getfixturevalue(network)
    net.call().flow(idle="b")
    ticket = net.todo["b"].popleft().ticket
    net.tell("b", ev.Broken(ticket, "column 4 is zero everywhere"))
    net.flow()
    assert net.all_in(Phase.FAILED)
    assert net["b"].reason == "column 4 is zero everywhere"
    assert {net[k].reason for k in net.machines if k != "b"} == {"b: column 4 is zero everywhere"}


def test_a_contribution_that_does_not_fit_fails_the_fit_with_words(pair):
    pair.call().flow(idle="a")
    task = pair.todo["a"].popleft()
    pair.tell("a", ev.Computed(task.ticket, Sum(Closing(np.array([np.inf]), np.zeros(1)), bytes(32))))
    pair.flow()
    assert pair.all_in(Phase.FAILED)
    assert "Closing.loss does not fit its network sum" in pair["b"].reason


def test_members_whose_sums_differ_in_length_are_told(bench):
    def talk(name):
        yield Sum(Closing(np.zeros(1 if name == "a" else 2), np.zeros(1)), bytes(32))

    net = bench("ab", ["ab"], talk).up().call().flow()
    assert net.all_in(Phase.FAILED)
    assert "words to a sum of" in net["a"].reason


# -- stopping ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", [["ab", "bc", "cd"], ["ab", "bc", "cd", "da", "ac", "bd"]])
def test_a_stop_reaches_everybody_once(bench, edges):
    net = bench("abcd", edges).up().call().flow(idle="a")
    net.said.clear()
    net.tell("b", ev.Stopped("the operator said so"))
    net.flow(idle="a")
    assert net.all_in(Phase.FAILED)
    assert net["b"].reason == "the operator said so"
    assert {net[k].reason for k in "acd"} == {"b: the operator said so"}
    failures = [name for name, text in net.said if text.startswith("report fit failed")]
    assert sorted(failures) == list("abcd")
    aborts = [(name, text.split(":")[0]) for name, text in net.said if "abort" in text]
    assert len(aborts) == len(set(aborts))  # nobody is told twice by the same neighbour
    assert net.tell("a", ev.Received("b", Abort(1, "b", "the operator said so"))) == []


def test_after_a_failure_the_next_fit_can_be_called_by_anyone(path):
    for number, caller in enumerate("badc", 1):
        path.call(caller).flow(idle=caller)
        path.todo[caller].clear()
        path.tell(caller, ev.Stopped("enough"))
        path.flow()
        path.call(caller).flow()
        assert set(path.kept.values()) == {(2 * number, ("a", "b", "c", "d"))}


def test_a_stop_while_meeting_leaves_the_neighbours_last_fit_alone(bench):
    net = _all_but_b_done(bench)
    net.call("a")
    net.tell("a", ev.Stopped("not now"))
    net.flow()
    assert net["a"].phase is Phase.FAILED
    assert net.kept["b"] == (1, ("a", "b", "c"))


def test_work_for_a_fit_that_is_off_is_not_taken_for_the_next_ones(pair):
    pair.call().flow(idle="a")
    old = pair.todo["a"].popleft()
    pair.tell("a", ev.Stopped("again, please"))
    pair.call("a").flow(idle="a")
    assert pair["a"].phase is Phase.COMPUTING
    assert pair.tell("a", ev.Computed(old.ticket, Exchange(0, 0, np.zeros((2, 1))))) == []
    assert pair.tell("a", ev.Broken(old.ticket, "too late to matter")) == []
    pair.flow()
    assert pair.kept == {"a": (2, ("a", "b")), "b": (2, ("a", "b"))}


# -- neighbours that differ ----------------------------------------------------------------------------------


def _mismatched(bench):
    net = bench("abc", ["ab", "bc"])
    net.boot("b", schema=Schema("y", ("z",)))
    net.boot("c", schema=Schema("y", ("z",)))
    return net


def test_a_mismatch_is_told_on_both_sides_with_the_same_facts(bench):
    net = _mismatched(bench)
    net.connect("a", "b")
    mine = "feature 1 is 'x' at a and 'z' at b"
    theirs = "feature 1 is 'z' at b and 'x' at a"
    assert net.deliver("b", "a") == [f"to b: reject: {mine}", f"drop b: {mine}"]
    assert net.deliver("a", "b") == [f"to a: reject: {theirs}", f"drop a: {theirs}"]
    assert net.deliver("a", "b") == net.deliver("b", "a") == []  # both know already
    assert net["a"].peers["b"].reason == mine
    assert net["b"].peers["a"].reason == theirs
    assert net.tell("a", ev.Lost("b", "closed")) == []
    assert net["a"].peers["b"].reason == mine  # still the reason
    assert net.tell("a", ev.Called()) == [f"report fit failed: {mine}"]
    assert net.tell("b", ev.Called()) == [f"report fit failed: {theirs}"]


def test_only_one_end_may_see_the_difference(bench):
    net = bench("ab", ["ab"])
    net.call()
    net.connect("a", "b")
    net.deliver("a", "b")
    said = net.tell("b", ev.Received("a", Reject("b calls itself 'c'")))
    assert said == [
        "drop a: a refuses: b calls itself 'c'",
        "report fit failed: a refuses: b calls itself 'c'",
    ]


def test_a_refusal_somewhere_ends_the_fit_for_those_who_wait(bench):
    """c is set up like b; only a differs. c cannot know, and must not wait for ever."""
    net = _mismatched(bench)
    net.up()
    net.call("c").flow()
    assert net["b"].phase is net["c"].phase is Phase.FAILED
    assert net["c"].reason == "b: feature 1 is 'z' at b and 'x' at a"


def test_a_neighbour_that_refuses_in_mid_fit_ends_it_at_once(path):
    path.call().flow(idle="b")
    path.tell("b", ev.Received("c", Reject("[fit] penalty differs")))
    path.flow(idle="b")
    assert path["b"].reason == "c refuses: [fit] penalty differs"
    assert path["a"].reason == "b: c refuses: [fit] penalty differs"


def test_a_mended_neighbour_is_welcome(bench):
    net = _mismatched(bench)
    net.up()
    net.boot("a", schema=Schema("y", ("z",)), incarnation=1)
    net.up().call().flow()
    assert set(net.kept.values()) == {(1, ("a", "b", "c"))}


def test_before_its_hello_a_peer_is_told_nothing_and_heard_in_nothing(bench):
    net = bench("ab", ["ab"])
    net.tell("a", ev.Connected("b"))
    for message in _messages(1):
        if not isinstance(message, Hello | Reject):
            assert net.tell("a", ev.Received("b", message)) == []
    assert net["a"].fit == 0
    assert net["a"].phase is Phase.IDLE


# -- faults --------------------------------------------------------------------------------------------------


def _exchanging(net):
    """Both wait for the other's second vector (0, 1)."""
    net.call().flow(idle="ab")
    for _ in range(30):
        for name in "ab":
            if net[name].rounds.inner < 1 and net.todo[name]:
                net.work(name)
        if net["a"].rounds.inner == net["b"].rounds.inner == 1:
            break
        net.flow(idle="ab")
    for wire in net.wires.values():
        wire.clear()
    assert net["a"].phase is net["b"].phase is Phase.EXCHANGING
    return net


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Vector(1, 0, 3, np.ones((2, 1))), "sent round (0, 3) while we are at (0, 1)" + AHEAD),
        (Vector(1, 2, 0, np.ones((2, 1))), "sent round (2, 0) while we are at (0, 1)" + AHEAD),
        (Vector(1, 1, 1, np.ones((2, 1))), "sent round (1, 1) while we are at (0, 1)" + AHEAD),
        (Vector(1, 0, 1, np.ones((3, 1))), "sent (3, 1) coefficients in round (0, 1) instead of (2, 1)"),
        (Flood(1, 3, ()), "sent records of sum 3 while we are at 1"),
        (Flood(1, 1, (Part("x", np.zeros(1, np.uint64), b""),)),
         "sent a record of 'x', which is no member of this fit"),
        (Flood(1, 2, (Part("x", np.zeros(1, np.uint64), b""),)),
         "sent a record of 'x', which is no member of this fit"),
        (Flood(1, 1, (Introduction("b", ("a",), b"", b"", b""),)),
         "sent a record of the wrong kind in sum 1"),
    ],
)  # fmt: skip
def test_a_peers_fault_costs_it_its_edge_and_nothing_else(pair, message, says):
    _exchanging(pair)
    assert pair.tell("a", ev.Received("b", message)) == [f"drop b for its fault: b {says}"]
    assert pair["a"].phase is Phase.EXCHANGING
    assert pair["a"].peers["b"].state == "away"
    pair.lose("a", "b")
    pair.connect("a", "b")  # it was a slip: it is let in again, and all goes well
    pair.flow()
    assert pair.kept == {"a": (1, ("a", "b")), "b": (1, ("a", "b"))}


def test_bytes_that_are_no_message_cost_the_edge(pair):
    _exchanging(pair)
    assert pair.tell("a", ev.Garbled("b", "sent noise")) == ["drop b for its fault: b sent noise"]
    assert pair["a"].peers["b"].state == "away"


def test_a_peer_that_comes_back_only_to_break_the_protocol_again_has_no_more_than_our_patience(bench):
    net = _exchanging(bench("ab", ["ab"], patience=60.0).up())
    for _ in range(8):
        net.tell("a", ev.Received("b", Vector(1, 0, 9, np.ones((2, 1)))))
        net.lose("a", "b")
        net.now += 10.0
        net.tell("a", ev.Ticked())
        if net["a"].paused:
            break
        net.connect("a", "b")
        net.deliver("b", "a")
    assert net.now == 60.0
    assert net["a"].paused.startswith("b has been away for 60 s")


def test_the_good_records_before_a_bad_one_count(pair):
    """The last missing introduction comes with a forged one: the membership is complete all the same."""

    class Strict(Open):
        def admit(self, introduction):
            if introduction.origin == "x":
                raise PeerFault("passed on an introduction of x that x did not sign")

    pair.call("a")
    pair.tell("a", ev.Enrolled(Strict("a", 1)))
    records = Introduction("b", ("a",), b"", b"", b""), Introduction("x", ("b",), b"", b"", b"")
    assert pair.tell("a", ev.Received("b", Flood(1, 0, records))) == [
        "drop b for its fault: b passed on an introduction of x that x did not sign",
        "report members: a, b",
        "compute 1: begin as 0 of 2",
    ]


def test_duplicates_stale_and_foreign_messages_are_ignored(pair):
    _exchanging(pair)
    first = pair["b"].rounds.retained[0]
    for message in (
        first,
        first,
        Vector(1, 0, 0, np.full((2, 1), 5.0)),  # another one for a round that is over
        Vector(9, 0, 1, first.B),
        Flood(1, 0, (Introduction("b", ("a",), b"", b"", b""),)),
        Flood(1, 1, ()),
        Abort(9, "b", "another fit"),
        Done(0),
    ):
        assert pair.tell("a", ev.Received("b", message)) == []
    pair.tell("a", ev.Ticked())
    pair.connect("a", "b")
    pair.flow()
    assert pair.kept["a"] == (1, ("a", "b"))


def test_the_same_record_twice_in_one_message_is_no_lie(pair):
    pair.call().flow(still="ab")
    pair.work("a")
    assert pair["a"].phase is Phase.GATHERING
    introduction = Introduction("b", ("a",), b"", b"", b"")
    said = pair.tell("a", ev.Received("b", Flood(1, 0, (introduction, introduction))))
    assert said == ["report members: a, b", "compute 1: begin as 0 of 2"]


def test_two_different_records_of_one_origin_fail_the_fit_and_name_it(path):
    path.call().flow(idle="a")
    path.work("a")
    lie = Part("d", np.ones(WORDS, dtype=np.uint64), b"")
    path.flow(idle="a")
    path.tell("b", ev.Received("c", Flood(1, 1, (lie,))))
    path.flow(idle="a")
    assert path.all_in(Phase.FAILED)
    assert path["b"].reason == "d signed two different records for sum 1: it lies or is ill"
    assert path["a"].reason == f"b: {path['b'].reason}"


def test_neighbours_that_do_not_list_each_other_are_told(pair):
    pair.call().flow(still="ab")
    pair.work("a")
    others = (Introduction("b", ("a", "c"), b"", b"", b""), Introduction("c", (), b"", b"", b""))
    pair.tell("a", ev.Received("b", Flood(1, 0, others)))
    assert pair["a"].phase is Phase.FAILED
    assert pair["a"].reason.startswith("b lists c as its neighbour but c does not list b: add it to [[neigh")


def test_members_out_of_nowhere_fail_the_fit_in_words(pair):
    pair.call().flow(still="ab")
    pair.work("a")
    others = [Introduction("b", ("a",), b"", b"", b"")]
    others += [Introduction("x", ("y",), b"", b"", b""), Introduction("y", ("x",), b"", b"", b"")]
    pair.tell("a", ev.Received("b", Flood(1, 0, tuple(others))))
    assert pair["a"].phase is Phase.FAILED
    assert "the members a, b, x, y are not connected" in pair["a"].reason


# -- restarts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(4))
def test_a_peer_restarted_in_mid_fit_ends_it_and_the_next_one_goes_well(path, steps):
    """Wherever the fit has got to: nobody waits for a place that is lost."""
    path.call().flow(idle="b")
    for _ in range(steps):
        if path.todo["b"]:
            path.work("b")
        path.flow(idle="b")
    assert path["a"].phase in IN_A_FIT
    path.todo["b"].clear()
    path.boot("b", incarnation=1)
    for other in "ac":
        path.lose("b", other)
    for other in "ac":
        path.connect("b", other)
    path.flow()
    assert {path[k].phase for k in "acd"} == {Phase.FAILED}
    assert path["b"].phase in RESTING
    assert any("b was restarted in the middle of the fit" in path[k].reason for k in "ac")
    path.call("d").flow()
    assert set(path.kept.values()) == {(2, ("a", "b", "c", "d"))}


def test_a_peer_restarted_between_fits_is_nothing_special(path):
    path.call().flow()
    path.boot("b", incarnation=1)
    path.connect("a", "b")
    path.connect("b", "c")
    # Nothing of the old fit, in which the new b has no part.
    assert path.deliver("b", "a") == ["report b is up", "to b: done 1"]
    path.flow()
    assert path["b"].phase is Phase.IDLE
    path.call("b").flow()
    assert set(path.kept.values()) == {(2, ("a", "b", "c", "d"))}


def test_a_new_stream_in_mid_fit_brings_back_what_was_lost(path):
    path.call()
    for _ in range(400):
        ready = [pair for pair, wire in path.wires.items() if wire]
        for pair in ready[:1]:
            path.deliver(*pair)
        for name in "abcd":
            if path.todo[name]:
                path.work(name)
        path.lose("b", "c")
        path.connect("b", "c")
        path.deliver("b", "c")
        path.deliver("c", "b")
        path.flow(idle="abcd") if _ % 3 == 0 else None
        if path.all_in(Phase.DONE):
            break
    assert set(path.kept.values()) == {(1, ("a", "b", "c", "d"))}


def test_a_stream_made_anew_before_the_loss_of_the_old_was_noticed(pair):
    _exchanging(pair)
    assert pair.connect("a", "b") == ["to b: hello at fit 1, active", "to a: hello at fit 1, active"]
    assert pair["a"].peers["b"].state == "connected"
    pair.flow()
    assert pair.kept["a"] == (1, ("a", "b"))


def test_who_missed_the_end_of_a_failed_fit_learns_of_it(path):
    path.call().flow(idle="a")
    path.lose("a", "b")
    path.tell("b", ev.Stopped("enough"))
    path.flow(idle="a")
    assert path["a"].phase is Phase.COMPUTING
    path.connect("a", "b")
    path.flow(idle="a")
    assert path["a"].phase is Phase.FAILED
    assert path["a"].reason == "b: enough"


def test_who_missed_that_the_others_failed_and_began_anew_joins_them(path):
    """a is cut off in fit 1; the others fail, and are called again: a must not wait in fit 1 for ever."""
    path.call().flow(idle="a")
    path.lose("a", "b")
    path.tell("b", ev.Stopped("enough"))
    path.flow(idle="a")
    path.call("b")
    path.connect("a", "b")
    path.flow()
    assert set(path.kept.values()) == {(2, ("a", "b", "c", "d"))}


# -- time ----------------------------------------------------------------------------------------------------


def test_silence_is_asked_about_ever_more_rarely(pair):
    _exchanging(pair)
    times = []
    for _ in range(8):
        deadline = pair["a"].deadline()
        times.append(deadline - pair.now)
        pair.now = deadline
        assert pair.tell("a", ev.Ticked()) == ["to b: ask 1/1 all and vectors"]
    assert times == [ASK_AFTER, 4.0, 8.0, 16.0, ASK_AT_MOST, ASK_AT_MOST, ASK_AT_MOST, ASK_AT_MOST]
    assert pair.deliver("a", "b") == ["to a: flood 1/1 a+b", "to a: vector 1 (0, 0)", "to a: vector 1 (0, 1)"]
    pair.tick(0.0)  # b has something to ask, too
    pair.flow()
    assert pair.kept["a"] == (1, ("a", "b"))


def test_an_early_tick_does_nothing(pair):
    _exchanging(pair)
    assert pair.tell("a", ev.Ticked()) == []


def test_a_lost_record_is_asked_of_all_neighbours(path):
    def vanishes(source, target, message):
        return source == "b" and target == "c" and isinstance(message, Flood) and message.number == 1

    path.call().flow(vanishes=vanishes)
    assert path["c"].waiting_for() == path["d"].waiting_for() == ["a", "b"]
    said = path.tick(ASK_AFTER)
    assert "to b: ask 1/1 a+b" in said
    assert "to d: ask 1/1 a+b" in said
    path.flow()
    assert set(path.kept.values()) == {(1, ("a", "b", "c", "d"))}


def test_patience_ends_with_the_peers_name_and_reason(bench):
    net = _exchanging(bench("ab", ["ab"], patience=60.0).up())
    net.now = 0.1  # 0.1 + 60 - 0.1 is less than 60 in floating point for many such times
    net.lose("a", "b", "connection reset")
    assert net["a"].deadline() <= 60.1
    net.now = 60.1 - 1e-6
    assert not [text for text in net.tell("a", ev.Ticked()) if "fail" in text]
    net.now = 60.1
    assert net.tell("a", ev.Ticked()) == [
        "report fit 1 pauses: b has been away for 60 s (connection reset), and 1 of 2 members are no "
        "majority: waiting until it is back"
    ]
    assert net["a"].deadline() > net.now


def test_a_tick_at_the_deadline_always_moves_it(bench):
    """Start plus patience minus start may be less than patience in floating point."""
    starts = [0.1 * k for k in range(60)]
    assert any((start + 0.7) - start < 0.7 for start in starts)
    for start in starts:
        net = _exchanging(bench("ab", ["ab"], patience=0.7).up())
        net.now = start
        net.lose("a", "b")
        net.now = start + 0.7
        net.tell("a", ev.Ticked())
        assert net["a"].paused


def test_patience_without_end(bench):
    net = bench("ab", ["ab"], patience=float("inf")).call("a")
    assert net["a"].deadline() == float("inf")
    net.tick(1e9)
    assert net["a"].phase is Phase.MEETING
    net.up()
    assert net.kept["a"] == (1, ("a", "b"))
    net = _exchanging(bench("ab", ["ab"], patience=float("inf")).up())
    net.lose("a", "b")
    for _ in range(50):
        net.now = net["a"].deadline()
        assert net.tell("a", ev.Ticked()) == []
    assert net["a"].phase is Phase.EXCHANGING


def test_patience_while_meeting_counts_from_the_call(bench):
    net = bench("ab", ["ab"], patience=60.0)
    net.now = 1000.0
    net.call("a")
    assert net["a"].deadline() == 1060.0
    assert net.tick(60.0) == ["report fit failed: b has been away for 60 s (not connected yet)"]


def test_a_fit_that_waits_for_somebody_absent_ends_for_all_who_heard_of_it(bench):
    net = bench("abcd", ["ab", "bc", "cd"], patience=60.0)
    for one, other in (("a", "b"), ("b", "c")):
        net.connect(one, other)
    net.flow()
    net.call("a").flow()
    assert net["a"].phase is Phase.GATHERING
    net.tick(60.0)
    net.flow()
    assert {net[k].phase for k in "abc"} == {Phase.FAILED}
    assert net["a"].reason == "c: d has been away for 60 s (not connected yet)"


# -- bundles -------------------------------------------------------------------------------------------------


def test_records_travel_in_bundles_of_bounded_size(bench, monkeypatch):
    monkeypatch.setattr(machine, "_BUNDLE", 2 * 8 * WORDS + 10)  # two parts
    leaves = "bcdefgh"
    net = bench("a" + leaves, ["a" + leaf for leaf in leaves]).up().call()
    net.flow(idle="a").flow()  # all others' parts wait for a
    assert set(net.kept.values()) == {(1, ("a", *leaves))}
    bundles = [text.split()[-1] for name, text in net.said if name == "a" and "flood 1/1 " in text]
    assert max(len(bundle.split("+")) for bundle in bundles) == 2


# -- with a lag ----------------------------------------------------------------------------------------------


def _matched(net, name):
    said = [text for who, text in net.said if who == name and "matched" in text]
    return sum(int(text.split(", ")[1].split()[0]) for text in said)


def test_with_a_lag_rounds_go_on_without_the_neighbour(lagging):
    lagging.call().flow(idle="b")
    while lagging["b"].rounds.inner < 0 or not lagging["b"].rounds.retained:
        lagging.work("b")
        lagging.flow(idle="b")
    assert lagging["b"].rounds.inner == 0
    assert lagging["a"].rounds.inner == 3  # two further than in lock-step
    lagging.flow()
    assert _matched(lagging, "a") == _matched(lagging, "b") == 5


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {4}, {1, 2}, {2, 3, 4}])
def test_with_a_lag_a_lost_vector_is_asked_for_and_every_pair_matched(lagging, gone):
    def vanishes(source, target, message):
        return source == "b" and isinstance(message, Vector) and message.inner in gone

    lagging.call().flow(vanishes=vanishes)
    assert lagging["a"].phase is Phase.EXCHANGING
    assert lagging["a"].waiting_for() == ["b"]
    for _ in range(3):
        lagging.tick(ASK_AT_MOST)
        lagging.flow()
    assert lagging.kept == {"a": (1, ("a", "b")), "b": (1, ("a", "b"))}
    assert _matched(lagging, "a") == _matched(lagging, "b") == 5


def test_a_refusal_is_news_until_the_next_attempt_fails_otherwise(bench):
    bench = bench("ab", ["ab"])
    bench["b"].handle(ev.Connected("a"), 0.0)
    other = replace(bench["a"].hello(), network="elsewhere")
    bench["b"].handle(ev.Received("a", other), 0.0)
    bench["b"].handle(ev.Lost("a", "a closed the stream"), 0.0)
    assert bench["b"].peers["a"].state == "refused"
    assert "elsewhere" in bench["b"].peers["a"].reason
    bench["b"].handle(ev.Lost("a", "a refuses connections"), 1.0)
    assert (bench["b"].peers["a"].state, bench["b"].peers["a"].reason) == ("away", "a refuses connections")
