"""Decisions from totals: scaling, the plan of a round, and the verdict on it."""

from dataclasses import replace

import numpy as np
import pytest

from desmr_node import DataError, FitSpec
from desmr_node.core import agreement
from desmr_node.core.agreement import Ground, Plan
from desmr_node.core.contributions import (
    RESPONSE_OCTAVES,
    Ballot,
    Closing,
    Moments,
    Report,
    Spreads,
    Start,
    response_octaves,
)
from desmr_node.core.density import Bins
from desmr_node.core.graph import Graph
from desmr_node.core.scaling import Scaling

GROUND = Ground(4, 2.0, 400.0, Scaling(np.zeros(3), np.ones(3), 1.0, True))
BINS = Bins.around(1.0)
PAIR = Graph.from_edges(2, [(0, 1)])


def plan(lambdas: tuple[float, ...] = (0.4, 0.2, 0.1), **changes: object) -> Plan:
    made = Plan(2, np.array(lambdas), tuple(range(len(lambdas))), 0.4, 0.5, 1.0, BINS, 1.0, 0.0, 1e3)
    return replace(made, **changes)


def report(check: tuple[float, ...] = (1.2, 0.9, 0.9), **changes: object) -> Report:
    count = len(check)
    residuals = np.abs(np.random.default_rng(0).standard_normal((400, count)))
    made = Report(
        check=np.array(check),
        squares=np.array(check),
        votes=np.tile([[4.0], [4.0], [0.0], [1.0]], (1, count)),
        penalty=np.zeros(count),
        penalty_before=np.zeros(count),
        moved=np.full(count, 1.0),
        disagreement=np.zeros(count),
        edges=np.zeros(count),
        changed=np.zeros(count),
        counts=BINS.count(residuals).astype(float),
    )
    return replace(made, **changes)


def test_totals_add_up_field_by_field() -> None:
    parts = [Spreads(np.array([1.0, 2.0])), Spreads(np.array([3.0, 5.0]))]
    np.testing.assert_array_equal(Spreads.total(parts).squares, [4.0, 7.0])
    assert parts[0].numbers() == 2


def test_scaling_is_that_of_the_pooled_rows() -> None:
    rng = np.random.default_rng(0)
    X = [rng.normal(5, 3, (n, 2)) for n in (10, 40)]
    y = [rng.standard_normal(len(x)) for x in X]
    moments = Moments.total(
        [
            Moments(np.array(float(len(x))), x.sum(axis=0), response_octaves(t))
            for x, t in zip(X, y, strict=True)
        ]
    )
    centre = agreement.centre(moments, FitSpec())
    spreads = Spreads.total([Spreads(np.square(x - centre).sum(axis=0)) for x in X])
    scaling = agreement.survey(moments, spreads, PAIR, FitSpec()).scaling
    pooled = np.concatenate(X)
    np.testing.assert_allclose(scaling.centre, pooled.mean(axis=0))
    np.testing.assert_allclose(scaling.spread, pooled.std(axis=0))
    assert 0.25 < scaling.unit < 2.0


def test_an_empty_column_is_refused_and_a_constant_one_is_not() -> None:
    moments = Moments(np.array(10.0), np.array([0.0, 30.0]), response_octaves(np.arange(10.0)))
    with pytest.raises(DataError, match=r"column 0 is zero in every row of every node .* remove it"):
        agreement.survey(moments, Spreads(np.array([0.0, 0.0])), PAIR, FitSpec())
    scaling = agreement.survey(moments, Spreads(np.array([5.0, 0.0])), PAIR, FitSpec()).scaling
    assert np.all(scaling.spread > 0)


def test_response_unit_is_a_power_of_two_that_ignores_outliers_and_ties() -> None:
    y = np.concatenate([np.random.default_rng(0).normal(0, 300, 99), [1e30]])
    moments = Moments(np.array(100.0), np.ones(1), response_octaves(y))
    unit = agreement.survey(moments, Spreads(np.ones(1)), PAIR, FitSpec()).scaling.unit
    assert 128 <= unit <= 512
    assert np.log2(unit) == round(np.log2(unit))
    # Without any deviation the size of the response speaks; without a size, nothing does.
    for value, expected in ((7.0, 8.0), (0.0, 1.0)):
        constant = Moments(np.array(100.0), np.ones(1), response_octaves(np.full(100, value)))
        assert agreement.survey(constant, Spreads(np.ones(1)), PAIR, FitSpec()).scaling.unit == expected
    assert response_octaves(y).shape == (RESPONSE_OCTAVES,)


def test_row_weights_pool_rows_or_members() -> None:
    assert GROUND.row_weight(50, FitSpec()) == pytest.approx(1 / 400)
    assert GROUND.row_weight(50, FitSpec(weights="nodes")) == pytest.approx(1 / 200)


def test_metric_is_one_members_curvature() -> None:
    gram = np.array([[1.0, 0.5], [0.5, 3.0]])
    start = Start(np.array([1.0, 3.0]), gram, np.zeros(2), np.zeros(1), np.zeros(2))
    ground = Ground(4, 2.0, 10.0, Scaling(np.zeros(1), np.ones(1), 1.0, True))
    identity = agreement.metric(start, ground, FitSpec(metric="identity")).apply(np.eye(2))
    np.testing.assert_allclose(identity, 2.0 / 4 * np.eye(2))
    pooled = agreement.metric(start, ground, FitSpec()).apply(np.eye(2))
    np.testing.assert_allclose(pooled, (gram + 0.02 * np.eye(2)) / 4)


def test_the_best_score_wins_and_unsettled_candidates_pay() -> None:
    assert agreement.judge(plan(), report(), GROUND, FitSpec()).chosen == 1
    torn = report(disagreement=np.array([0.0, 5.0, 0.0]))
    assert agreement.judge(plan(), torn, GROUND, FitSpec()).chosen == 2


def test_support_takes_at_least_half_of_the_votes() -> None:
    np.testing.assert_array_equal(
        agreement.majority(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 4), [False, False, True, True, True]
    )
    assert agreement.judge(plan(), report(), GROUND, FitSpec()).nonzeros == 2


def test_a_step_uphill_is_rejected_and_shortened_then_taken() -> None:
    worse = report(check=(1.3, 1.3, 1.3))
    first = agreement.judge(plan(), worse, GROUND, FitSpec())
    assert first.outcome == "rejected"
    assert first.following.damping == 2.0
    assert first.following.loss == 1.0
    second = agreement.judge(first.following, worse, GROUND, FitSpec())
    assert second.outcome == "rejected"
    third = agreement.judge(second.following, worse, GROUND, FitSpec())
    assert third.outcome == "continue"


def test_nan_is_always_rejected() -> None:
    bad = report(check=(np.nan, np.nan, np.nan))
    for damping in (1.0, 4.0):
        assert agreement.judge(plan(damping=damping), bad, GROUND, FitSpec()).outcome == "rejected"
    assert agreement.judge(plan(loss=None), bad, GROUND, FitSpec()).outcome == "rejected"


def test_disagreement_excuses_a_rise() -> None:
    slightly = report(check=(1.01, 1.01, 1.01))
    assert agreement.judge(plan(), slightly, GROUND, FitSpec()).outcome == "rejected"
    assert agreement.judge(plan(disagreement=1.0), slightly, GROUND, FitSpec()).outcome == "continue"


def test_convergence_needs_movement_primal_and_dual_residual_below_tolerance() -> None:
    still = {"moved": np.zeros(3), "edges": np.zeros(3), "changed": np.zeros(3)}
    assert agreement.judge(plan(), report(**still), GROUND, FitSpec()).outcome == "converged"
    for name in still:
        restless = {**still, name: np.full(3, 1.0)}
        verdict = agreement.judge(plan(), report(**restless), GROUND, FitSpec())
        assert verdict.outcome == "continue", name


def test_lengths_are_in_standard_errors() -> None:
    """sqrt(df q (1-q) / N) / f = sqrt(2 / 4 / 400) / 0.4 for two nonzeros."""
    verdict = agreement.judge(plan(), report(), GROUND, FitSpec())
    assert verdict.moved == pytest.approx(1.0 / (np.sqrt(0.25 * 2 / 400) / 0.4))


def test_near_the_end_only_the_chosen_lambda_goes_on() -> None:
    verdict = agreement.judge(plan(), report(moved=np.full(3, 1e-3)), GROUND, FitSpec(tolerance=0.0))
    assert verdict.following.carry == (1,)
    np.testing.assert_array_equal(verdict.following.lambdas, [0.2])


def test_a_choice_at_the_lower_end_moves_the_grid_down() -> None:
    verdict = agreement.judge(plan(), report(check=(1.2, 1.0, 0.8)), GROUND, FitSpec())
    assert verdict.chosen == 2
    np.testing.assert_allclose(verdict.following.lambdas, [0.2, 0.1, 0.05])
    assert verdict.following.carry == (1, 2, 2)


def test_levels_divide_out_the_curvature() -> None:
    np.testing.assert_allclose(plan().levels(FitSpec()), np.array([0.4, 0.2, 0.1]) / 0.8)
    np.testing.assert_allclose(plan().levels(FitSpec(loss="squared")), [0.4, 0.2, 0.1])


def test_the_end_is_never_worse_than_the_start() -> None:
    ballot = Ballot(np.array([4.0, 1.0]), np.zeros(2))
    closing = Closing(np.array(1.0), np.array(2.0))

    def end(start_penalty: float, settled: Plan | None, spec: FitSpec = FitSpec()) -> agreement.Result:  # noqa: B008
        return agreement.conclude(
            ballot, closing, 1.0, start_penalty, settled=settled, ground=GROUND, spec=spec
        )

    better = end(0.05, plan())
    assert (better.keep_fit, better.objective, better.start_objective) == (True, 2.0, 2.05)
    np.testing.assert_array_equal(better.support, [True, False])
    worse = end(-0.05, plan())
    assert not worse.keep_fit
    assert worse.objective == worse.start_objective == 1.95
    assert not end(0.05, None).keep_fit
    # Among possible liars the start may be a liar's: the fit has to be worse by more than chance.
    wary = FitSpec(edge_force="auto")
    chance = 9.0 * (0.25 / 0.4**2) / 400 * 0.8 / 2.0
    assert end(-0.9 * chance, plan(), wary).keep_fit
    assert not end(-1.1 * chance, plan(), wary).keep_fit


def test_small_steps_that_hardly_shrink_are_not_the_end() -> None:
    still = {"edges": np.zeros(3), "changed": np.zeros(3)}
    step = np.full(3, (0.3 * np.sqrt(0.25 * 2 / 400) / 0.4) ** 2)
    quick = agreement.judge(plan(moved=1.5), report(moved=step, **still), GROUND, FitSpec())
    slow = agreement.judge(plan(moved=0.33), report(moved=step, **still), GROUND, FitSpec())
    first = agreement.judge(plan(moved=np.inf), report(moved=step, **still), GROUND, FitSpec())
    assert (quick.outcome, slow.outcome, first.outcome) == ("converged", "continue", "continue")


def test_a_rejected_round_is_tried_again_from_the_same_columns() -> None:
    """Its columns were already carried over when it was opened."""
    moved_down = plan(carry=(1, 2, 2))
    again = agreement.judge(moved_down, report(check=(1.3, 1.3, 1.3)), GROUND, FitSpec()).following
    assert again.carry == (0, 1, 2)
    first = agreement.judge(plan(carry=None, loss=None), report(check=(np.nan,) * 3), GROUND, FitSpec())
    assert first.following.carry is None


def test_a_drift_along_a_path_is_not_agreement() -> None:
    """Equal small differences on every edge: each agrees with its neighbours' mean, the ends do not."""
    loose = replace(GROUND, connectivity=1e-4)
    drift = report(moved=np.zeros(3), edges=np.full(3, 1e-5))
    assert agreement.judge(plan(), drift, GROUND, FitSpec()).outcome == "converged"
    assert agreement.judge(plan(), drift, loose, FitSpec()).outcome == "continue"
