"""What keeps two neighbours apart is said in words, the same facts on both sides."""

from dataclasses import fields, replace

import pytest

from desmr_node.protocol.greeting import differences, spoken
from desmr_node.protocol.machine import Setup
from desmr_node.protocol.messages import OLDEST_VERSION, VERSION, Hello, Schema, Standing

A = Hello(
    "divisions",
    "a",
    1,
    Schema("y", ("u", "v", "w")),
    {"penalty": '"scad"', "seed": "0"},
    Standing(),
    version=1,
    oldest_version=1,
    method=1,
)
B = replace(A, node="b", incarnation=2, standing=Standing(3, True, 1, 1))


def both(ours, theirs):
    return differences(ours, theirs, theirs.node), differences(theirs, ours, ours.node)


def test_who_fits_together_has_nothing_to_say():
    assert both(A, B) == ([], [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"network": "regions"}, ["the network is 'divisions' at a and 'regions' at b: correct one"]),
        (
            {"version": 3, "oldest_version": 2},
            ["a speaks wire versions 1 to 1 and b 2 to 3: upgrade a"],
        ),
        (
            {"method": 2},
            [
                "a computes by method 1 and b by method 2: a fit needs the same at every member; upgrade a",
            ],
        ),
        (  # a common wire version does not help, and what else differs is for after the upgrade
            {"version": 2, "method": 3, "settings": {}},
            [
                "a computes by method 1 and b by method 3: a fit needs the same at every member; upgrade a",
            ],
        ),
        ({"schema": Schema("z", ("u", "v", "w"))}, ["the response is 'y' at a and 'z' at b"]),
        ({"schema": Schema("y", ("u", "x", "w"))}, ["feature 2 is 'v' at a and 'x' at b"]),
        (
            {"schema": Schema("y", ("u", "w", "v"))},
            [
                "the features are in another order: feature 2 is 'v' at a and 'w' at b; "
                "list them in [data] features"
            ],
        ),
        ({"schema": Schema("y", ("u", "v"))}, ["a has 3 features and b 2 ('w' at one only)"]),
        ({"schema": Schema("y", ("u", "v", "w", "w"))}, ["a has 3 features and b 4"]),
        ({"settings": {"penalty": '"l1"', "seed": "0"}}, ['[fit] penalty is "scad" at a and "l1" at b']),
        ({"settings": {"penalty": '"scad"'}}, ["[fit] seed is 0 at a and unknown at b"]),
        (
            {"settings": {"penalty": '"scad"', "seed": "0", "tau": "1"}},
            ["[fit] tau is unknown at a and 1 at b"],
        ),
    ],
)
def test_a_difference_is_named(change, says):
    theirs = replace(B, **change)
    here, there = both(A, theirs)
    assert here == says
    assert len(there) == len(here)
    words = set(here[0].replace(":", "").replace(";", "").split())
    assert words == set(there[0].replace(":", "").replace(";", "").split())  # the same facts from there


def test_another_name_than_the_certificates():
    assert differences(A, replace(B, node="c"), "b") == [
        "b calls itself 'c': its certificate and its node id must be the same"
    ]


# -- versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "edge"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((1, 2), (1, 2), 2),
        ((1, 2), (2, 3), 2),
        ((1, 5), (2, 3), 3),
        ((1, 1), (2, 3), None),
        ((1, 2), (3, 4), None),
        ((0, 0), (1, 2), None),  # a hello without versions
        ((7, 1), (1, 2), None),  # nonsense
    ],
)
def test_an_edge_speaks_the_newest_version_of_both(ours, theirs, edge):
    here = replace(A, oldest_version=ours[0], version=ours[1])
    there = replace(B, oldest_version=theirs[0], version=theirs[1])
    assert spoken(here, there) == spoken(there, here) == edge
    found = both(here, there)
    if edge is not None:
        assert found == ([], [])
    else:
        older = "a" if ours[1] < theirs[1] else "b"
        for sentences in found:
            (sentence,) = sentences
            assert f"a speaks wire versions {ours[0]} to {ours[1]} " in sentence or (
                f" a {ours[0]} to {ours[1]}: " in sentence
            )
            assert f" {theirs[0]} to {theirs[1]}" in sentence
            assert sentence.endswith(f": upgrade {older}")


def test_one_version_back_is_spoken():
    assert max(1, VERSION - 1) == OLDEST_VERSION
    spoken_by_default = {f.name: f.default for f in fields(Hello) + fields(Setup) if "version" in f.name}
    assert spoken_by_default == {"version": VERSION, "oldest_version": OLDEST_VERSION}


#: A release whose fits have one setting more.
NEWER = replace(
    B, version=2, settings=A.settings | {"depth": "2"}, defaults=A.settings | {"depth": "2", "seed": "5"}
)


def test_a_setting_that_the_older_does_not_know_is_fine_at_its_default():
    assert both(A, NEWER) == ([], [])


def test_a_setting_that_the_older_does_not_know_and_that_was_changed():
    changed = replace(NEWER, settings=NEWER.settings | {"depth": "3"})
    says = [
        "[fit] depth is 3 at b, and a runs an older release that does not know it: "
        "upgrade a, or set the default 2"
    ]
    assert both(A, changed) == (says, says)


def test_a_default_that_is_not_known_is_not_assumed():
    silent = replace(NEWER, defaults={})
    says = ["[fit] depth is 2 at b, and a runs an older release that does not know it: upgrade a"]
    assert both(A, silent) == (says, says)


def test_only_the_newer_may_know_more():
    """A setting that a newer release has dropped matters: the older computes by it."""
    dropped = replace(NEWER, settings={"penalty": '"scad"'})
    assert both(A, dropped) == (
        ["[fit] seed is 0 at a and unknown at b"],
        ["[fit] seed is unknown at b and 0 at a"],
    )


def test_what_both_know_must_be_the_same_whatever_the_default():
    other = replace(NEWER, settings=NEWER.settings | {"seed": "5"})
    assert both(A, other)[0] == ["[fit] seed is 0 at a and 5 at b"]


def test_among_nodes_of_one_version_an_unknown_setting_is_refused():
    same = replace(NEWER, version=A.version)
    assert both(A, same) == (
        ["[fit] depth is unknown at a and 2 at b"],
        ["[fit] depth is 2 at b and unknown at a"],
    )


def test_releases_may_differ():
    assert both(replace(A, release="0.1.0"), replace(B, release="0.2.0")) == ([], [])


def test_many_differences_are_counted():
    names = tuple(f"x{k}" for k in range(100))
    others = tuple(f"z{k}" for k in range(100))
    found = differences(
        replace(A, schema=Schema("y", names)), replace(B, schema=Schema("z", others), settings={}), "b"
    )
    assert found == [
        "the response is 'y' at a and 'z' at b",
        "feature 1 is 'x0' at a and 'z0' at b",
        "feature 2 is 'x1' at a and 'z1' at b",
        "and 100 more differences",
    ]
