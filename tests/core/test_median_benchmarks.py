"""The tiny variants of the pilot's benchmarks."""

import dataclasses

import pytest

from benchmarks import pilot_exactness, pilot_speed


@pytest.mark.parametrize("kind", pilot_exactness.KINDS, ids=lambda kind: kind.__name__)
def test_objective_equals_highs(kind):
    problems = 1 if kind.__name__.startswith("many") else 6
    comparison = pilot_exactness.compare(kind, problems, seed=1)
    assert comparison.worst_excess <= pilot_exactness.BOUND
    assert comparison.worst_gap <= pilot_exactness.BOUND


def test_the_comparison_notices_a_wrong_solution(monkeypatch):
    solve = pilot_exactness.l1_quantile_certified

    def slightly_off(*arguments):
        solution = solve(*arguments)
        return dataclasses.replace(solution, coef=0.999 * solution.coef)

    monkeypatch.setattr(pilot_exactness, "l1_quantile_certified", slightly_off)
    assert not pilot_exactness.compare(pilot_exactness.random, 3).passed


def test_speed_table_prints_a_verdict(capsys):
    # a loaded machine may be slow; the numbers must come out all the same
    assert pilot_speed.main(["--tiny"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * len(pilot_speed.TINY) + 1
    assert lines[-1] in ("PASS", "SHORT")


def test_speed_is_not_bought_with_the_objective():
    timing = pilot_speed.measure(pilot_speed.TINY[0], "cauchy")
    assert timing.excess <= 1e-10
    assert timing.gap <= 1e-10
