"""Real processes under attack while they fit: every kind of hostile connection once, and the same bits.

`python -m benchmarks.live_port` makes ten thousand connections, and measures.
"""

from benchmarks import hostile, live_port


def test_no_hostile_connection_disturbs_a_fit(folder):
    seen = live_port.run(folder, connections=120, fits=1, outer=15, warm_up=1)
    short = {check.name.split(",")[0] for check in live_port.bounds(seen, 120) if not check.holds}
    # How many can be made in the time, and what they cost, is for a machine that has nothing else to do.
    assert short <= {"hostile connections made while a fit ran", "time under attack / undisturbed"}
    assert len(seen.outcome.moments) > 30
    assert seen.outcome.ends.keys() == hostile.KINDS.keys()
    assert not any("NOT CONNECTED" in ends for ends in seen.outcome.ends.values())
    for kind in ("a member, no neighbour", "another network's", "neighbour: wrong method"):
        assert seen.outcome.ends[kind].keys() == {"call refused"}


def test_what_an_attack_changes_is_found():
    held = live_port.soak.Held(60_000_000, 26, 10, 10, 22)
    fit = live_port.Fit(10.0, {"east": {"intercept": 1.0}})
    outcome = hostile.Outcome(moments=[0.0] * 10)
    for kind in hostile.KINDS:
        outcome.add(kind, "hung up")
    calls, taken = 4, 7
    nodes = {"east": held}
    sound = live_port.Seen([fit], [fit], [1.2], outcome, nodes, {"east": 70.0}, nodes, calls, taken, 9, 0)

    def short(**changed):
        checks = live_port.bounds(sound._replace(**changed), 10)
        return [check.name.split(",")[0] for check in checks if not check.holds]

    assert short() == []
    other = fit._replace(results={"east": {"intercept": 1.0 + 2**-52}})
    assert short(attacked=[fit, other]) == ["fits with the bits of the first"]
    assert short(ratios=[1.2, 1.6, 1.7]) == ["time under attack / undisturbed"]
    assert short(peak={"east": 81.0}) == ["memory growth under attack"]
    assert short(after={"east": held._replace(memory=81_000_000)}) == ["memory growth afterwards"]
    assert short(after={"east": held._replace(tasks=23)}) == ["files"]
    assert short(refused=3.0) == ["calls that were refused"]
    assert short(faults=3.0) == ["a neighbour's faults"]
    assert short(tracebacks=1) == ["tracebacks in the logs"]
    assert short(outcome=hostile.Outcome([0.0] * 9, outcome.ends)) == [
        "hostile connections made while a fit ran"
    ]
