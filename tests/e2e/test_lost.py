"""Real processes, one of which is killed for good in the middle of a fit: the others go on, and say so.

`python -m benchmarks.lost` measures it, for frozen processes too.
"""

from benchmarks.lost import MOST_NOTICED, Survivors


def test_the_other_eight_end_with_the_answer_of_eight(folder):
    nine = Survivors(folder, outer=12, patience=1.5)
    found = nine.run("pacific", moment=0.7)
    assert found["noticed"] < MOST_NOTICED
    alone = nine.alone("pacific")
    for node, result in found["results"].items():
        assert result["members"] == sorted(set(nine.ids) - {"pacific"})
        assert (result["fit"], result["continues"]) == (2, 1)
        assert [lost["node"] for lost in result["lost"]] == ["pacific"]
        for key in ("coefficients", "lambda", "history", "holdout"):
            assert result[key] == alone[node][key]
    log = (folder / "mountain" / "node.log").read_text()
    assert "pacific has been away for 2 s" in log
    assert "fit 2 goes on with fit 1 without pacific" in log
    for node in nine.ids:
        assert "Traceback" not in (folder / node / "node.log").read_text()
