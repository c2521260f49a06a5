"""Real processes, killed by SIGKILL in the middle of a fit and started again: the bits of an undisturbed run.

`python -m benchmarks.killed` does it a hundred times.
"""

import numpy as np

from benchmarks.killed import Nine


def test_killed_divisions_take_up_their_places_again(folder):
    rng = np.random.default_rng(1)
    with Nine(folder) as nine:
        seconds = nine.undisturbed("pacific")
        for victim, caller, share in (("mountain", "pacific", 0.3), ("new-england", "mountain", 0.7)):
            assert nine.killed(victim, caller, share * seconds, float(rng.uniform(0.0, 1.0))) == []
        assert nine.resumed() >= 1
    for node in nine.ids:
        assert "Traceback" not in (folder / node / "node.log").read_text()
