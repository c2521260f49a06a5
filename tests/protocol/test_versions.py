"""Machines of different releases: each edge speaks its own version, and nobody is left guessing."""

from itertools import pairwise

import pytest

from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import Phase

ONE, ONE_TO_TWO, TWO_TO_THREE = (
    {"oldest_version": oldest, "version": newest} for oldest, newest in ((1, 1), (1, 2), (2, 3))
)


@pytest.fixture
def mixed(bench):
    """Nodes by name, joined in a line, of a release that speaks version 1 but for what is given."""

    def make(**setups):
        names = "".join(setups)
        net = bench(names, [one + other for one, other in pairwise(names)])
        for name, setup in setups.items():
            net.boot(name, **(ONE | {"method": 1} | setup))
        return net

    return make


def sentences(net, one, other):
    return net[one].peers[other].reason, net[other].peers[one].reason


@pytest.mark.parametrize("other", [ONE, ONE_TO_TWO], ids=["old", "new"])
def test_two_versions_in_one_fit(mixed, other):
    net = mixed(a=ONE, b=ONE_TO_TWO, c=other).up()
    assert net["a"].peers["b"].version == net["b"].peers["a"].version == 1
    assert net["b"].peers["c"].version == net["c"].peers["b"].version == other["version"]
    net.call("a").flow()
    assert net.all_in(Phase.DONE)


def test_a_network_can_span_three_versions_if_no_edge_does(mixed):
    net = mixed(a=ONE, b=ONE_TO_TWO, c=TWO_TO_THREE).up()
    assert {name: peer.version for name, peer in net["b"].peers.items()} == {"a": 1, "c": 2}
    net.call("c").flow()
    assert net.all_in(Phase.DONE)


@pytest.mark.parametrize("newer", ["a", "b"])
def test_two_versions_back_is_too_far(mixed, newer):
    older = "b" if newer == "a" else "a"
    net = mixed(**{name: TWO_TO_THREE if name == newer else ONE for name in "ab"}).up()
    assert {net[newer].peers[older].state, net[older].peers[newer].state} == {"refused"}
    assert {net[newer].peers[older].version, net[older].peers[newer].version} == {0}
    assert sentences(net, newer, older) == (
        f"{newer} speaks wire versions 2 to 3 and {older} 1 to 1: upgrade {older}",
        f"{older} speaks wire versions 1 to 1 and {newer} 2 to 3: upgrade {older}",
    )
    net.call("a")
    assert net["a"].phase is Phase.FAILED
    assert f"upgrade {older}" in net["a"].reason


def test_upgraded_while_the_other_runs(mixed):
    net = mixed(a=ONE, b=TWO_TO_THREE).up()
    assert net["b"].peers["a"].state == "refused"
    net.lose("a", "b")
    net.boot("a", **ONE_TO_TWO, method=1, incarnation=1)
    net.connect("a", "b")
    net.flow()
    assert net["b"].peers["a"].state == net["a"].peers["b"].state == "up"
    assert net["b"].peers["a"].version == net["a"].peers["b"].version == 2
    assert sentences(net, "a", "b") == ("", "")
    net.call("b").flow()
    assert net.all_in(Phase.DONE)


def test_no_version_is_spoken_with_who_is_away(mixed):
    net = mixed(a=ONE, b=ONE | {"release": "0.1.0"}).up()
    assert net["a"].peers["b"].version == 1
    net.lose("a", "b")
    assert (net["a"].peers["b"].version, net["a"].peers["b"].release) == (0, "0.1.0")


# -- settings ------------------------------------------------------------------------------------------------

DEFAULTS = {"penalty": '"l1"', "depth": "2"}


def test_a_new_setting_at_its_default(mixed):
    net = mixed(a=ONE, b=ONE_TO_TWO | {"settings": DEFAULTS, "defaults": DEFAULTS}).up()
    net.call("a").flow()
    assert net.all_in(Phase.DONE)


def test_a_new_setting_that_was_changed(mixed):
    """Neither end takes the other for up, not even for a moment: a fit would begin and fail."""
    settings = DEFAULTS | {"depth": "3"}
    net = mixed(a=ONE, b=ONE_TO_TWO | {"settings": settings, "defaults": DEFAULTS}).up()
    says = (
        "[fit] depth is 3 at b, and a runs an older release that does not know it: "
        "upgrade a, or set the default 2"
    )
    assert sentences(net, "a", "b") == (says, says)
    assert not [text for _, text in net.said if "is up" in text]


# -- methods -------------------------------------------------------------------------------------------------


def test_two_methods_never_share_a_fit(mixed):
    net = mixed(a={"method": 2}, b={"method": 1}, c={}).up()
    says = ": a fit needs the same at every member; upgrade b"
    assert sentences(net, "a", "b") == (
        f"a computes by method 2 and b by method 1{says}",
        f"b computes by method 1 and a by method 2{says}",
    )
    assert net["c"].peers["b"].state == "up"
    net.call("c").flow()
    assert {name: net[name].phase for name in "bc"} == {"b": Phase.FAILED, "c": Phase.FAILED}
    assert net["c"].reason == f"b: b computes by method 1 and a by method 2{says}"


# -- releases ------------------------------------------------------------------------------------------------


def test_a_release_is_told_where_it_is_not_ours(mixed):
    net = mixed(
        a=ONE | {"release": "0.1.0"}, b=ONE_TO_TWO | {"release": "0.2.0"}, c={"release": "0.2.0"}, d={}
    )
    net.up()
    told = [(name, text) for name, text in net.said if "is up" in text]
    assert told == [
        ("b", "report a is up (release 0.1.0, wire version 1; 0.2.0 here)"),
        ("a", "report b is up (release 0.2.0, wire version 1; 0.1.0 here)"),
        ("c", "report b is up"),
        ("b", "report c is up"),
        ("d", "report c is up (release 0.2.0, wire version 1; unnamed here)"),
        ("c", "report d is up (an unnamed release, wire version 1; 0.2.0 here)"),
    ]
    assert net["b"].peers["a"].release == "0.1.0"


def test_the_release_of_one_that_is_refused_is_known(mixed):
    net = mixed(a=ONE | {"release": "0.1.0"}, b=TWO_TO_THREE | {"release": "0.3.0"}).up()
    assert (net["a"].peers["b"].release, net["b"].peers["a"].release) == ("0.3.0", "0.1.0")


def test_a_hello_says_what_the_setup_does(mixed):
    setup = TWO_TO_THREE | {"release": "0.3.0", "method": 4, "defaults": {"depth": "2"}}
    net = mixed(a=setup, b={})
    (effect,) = net["a"].handle(ev.Connected("b"), 0.0)
    hello = effect.message
    assert {name: getattr(hello, name) for name in setup} == setup
