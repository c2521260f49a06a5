"""What keeps two neighbours apart is said in words, the same facts on both sides."""

from dataclasses import replace

import pytest

from desmr_node.protocol.greeting import differences
from desmr_node.protocol.messages import Hello, Schema, Standing

A = Hello("divisions", "a", 1, Schema("y", ("u", "v", "w")), {"penalty": '"scad"', "seed": "0"}, Standing())
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
            ["a speaks protocol versions 1 to 1 and b 2 to 3: upgrade the older"],
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


def test_versions_that_overlap_get_along():
    assert both(replace(A, version=3), replace(B, version=2)) == ([], [])


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
