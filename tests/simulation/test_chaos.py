"""Seeded schedules of everything that can go wrong: `benchmarks.schedules` runs ten thousand, here are some.

A failing seed runs again, and is shrunk, by `python -m benchmarks.schedules --replay SEED`.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import schedules
from benchmarks.schedules import Cut, Faults, Jump, Kill, Run, Schedule, failure, schedule, shrink
from desmr_node.protocol import events as ev
from desmr_node.protocol.lineage import Lineage
from desmr_node.protocol.machine import Machine


@pytest.mark.parametrize("block", range(10))
def test_whatever_happens_no_invariant_is_broken(block):
    broken = {
        seed: wrong for seed in range(30 * block, 30 * block + 30) if (wrong := failure(schedule(seed)))
    }
    assert not broken


def test_the_faults_are_real():
    """The seeds above lose messages, kill nodes, and make networks go on without some, pause and fail."""
    total = Counter()
    for seed in range(60):
        total += schedules.outcome(seed)[2]
    assert total["killed"] > 20
    assert total["lost messages"] > 500
    assert total["fits gone on with without somebody"] > 5
    assert total["done"] > 100
    assert min(total["failed"], total["paused"], total["down"]) > 0


# -- planted bugs: each is what a careless change might make of the machine, and is found ------------------


def found_by(seeds):
    """What goes wrong, seed by seed; a test looks on until it has seen enough."""
    return (wrong for seed in seeds if (wrong := failure(schedule(seed))))


def test_planted_a_result_that_counts_before_others_hold_it(monkeypatch):
    """Without confirmations, the one member that closed the last sum before it was lost has an answer of its
    own, and the others, who go on without it, have another.

    It takes a loss at the very last moment: one schedule in two thousand has one, 2428 is the first.
    """
    conclude = Machine._conclude_if_confirmed

    def too_soon(self, fit):
        monkeypatch.setattr(Lineage, "is_majority", lambda *_: True)
        conclude(self, fit)
        monkeypatch.setattr(Lineage, "is_majority", is_majority)

    is_majority = Lineage.is_majority
    monkeypatch.setattr(Machine, "_conclude_if_confirmed", too_soon)
    assert any("two answers" in wrong for wrong in found_by(range(2420, 2430)))


def test_planted_a_snapshot_that_is_saved_after_what_follows_from_it_is_sent(monkeypatch):
    handle = Machine.handle

    def late(self, event, now):
        effects = handle(self, event, now)
        return sorted(effects, key=lambda effect: isinstance(effect, ev.Save))

    monkeypatch.setattr(Machine, "handle", late)
    assert any(found_by(range(150)))


def test_planted_a_minority_that_goes_on(monkeypatch):
    monkeypatch.setattr(Lineage, "is_majority", lambda *_: True)
    assert any("two answers" in wrong or "minority" in wrong for wrong in found_by(range(300)))


# -- shrinking ---------------------------------------------------------------------------------------------


def test_a_schedule_is_shrunk_to_what_matters(monkeypatch):
    """The kill of b breaks it; everything else can go."""
    wrong = "b was killed"
    monkeypatch.setattr(
        schedules, "failure", lambda plan: wrong if any(isinstance(f, Kill) for f in plan.faults) else ""
    )
    kill = Kill("b", 1.0, 3, 2.0)
    faults = (Cut(("a",), 0.0, 1.0), kill, Jump("a", 1.0, 2.0), Cut(("b",), 2.0, 3.0))
    plan = Schedule(0, 0, Faults((0.0, 1.0), 0.1, 0.2), faults)
    assert shrink(plan) == Schedule(0, 0, Faults(), (kill,))


def test_a_seed_replays_to_the_same_end():
    plan = next(p for p in map(schedule, range(100)) if len(p.faults) > 3)
    ends = []
    for _ in range(2):
        run = Run(plan)
        run.go()
        ends.append((run.situation(), run.net.network.now, run.net.network.lost))
    assert ends[0] == ends[1]


def test_replay_tells_the_schedule(capsys):
    assert schedules.main(["--replay", "3"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seed 3: nodes")
    assert told.endswith("holds\n")


def test_a_broken_seed_is_told_and_shrunk(capsys, monkeypatch):
    monkeypatch.setattr(Lineage, "is_majority", lambda *_: True)
    seed = next(seed for seed in range(400) if failure(schedule(seed)))
    assert schedules.main(["--replay", str(seed)]) == 1
    told = capsys.readouterr().out
    assert "BROKEN InvariantError" in told
    small = shrink(schedule(seed))
    assert len(small.faults) <= len(schedule(seed).faults)
    assert not failure(replace(small, faults=()))


def test_clocks_do_jump():
    run = Run(Schedule(0, 0, Faults((0.0, 0.3)), (Jump("a", 0.5, 100.0),)))
    run.go()
    assert run.net.ahead == {"a": 100.0}
    assert np.isfinite(run.net.network.now)
