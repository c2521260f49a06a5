"""The figures in small: each runs as it would in full, and the numbers it measures are looked at."""

import os

import numpy as np
import pytest

from benchmarks import __main__ as all_figures
from benchmarks import (
    consensus,
    crime,
    edge_force,
    figures,
    inner_loop,
    round_time,
    scale,
    sizing,
    soak,
    studies,
    subgradient,
    wire_bytes,
)
from desmr_node.core.subproblem import optimality_violation
from desmr_node.studies import liars


def by_name(checks):
    return {check.name: check.measured for check in checks}


# -- what they share ---------------------------------------------------------------------------------------


def test_a_bound_that_is_missed_is_said_and_exits_with_1(capsys):
    checks = [figures.Check("fast", 2.0, 1.0), figures.Check("found", 0.5, 0.5, at_most=False)]
    assert figures.conclude(checks) == 1
    printed = capsys.readouterr().out
    assert "SHORT" in printed
    assert "1 of 2 bounds hold" in printed
    assert figures.conclude(checks[1:]) == 0


@pytest.mark.parametrize("measured", [float("nan"), float("inf")])
def test_no_bound_holds_for_a_number_that_is_none(measured):
    assert not figures.Check("broken", measured, 1.0).holds


def test_nan_does_not_pass_a_lower_bound():
    assert not figures.Check("broken", float("nan"), 1.0, at_most=False).holds


def test_memory_of_a_process_counts_what_it_allocates_and_not_what_it_maps(tmp_path):
    np.save(tmp_path / "ones.npy", np.ones(15_000_000))
    numpy, pause = "__import__('numpy')", "__import__('time').sleep(0.2)"
    held = f"({numpy}.ones(15_000_000), {pause})[1]"
    read = f"(x := {numpy}.load({str(tmp_path / 'ones.npy')!r}, 'r'), x.sum(), {pause})[1]"
    _, idle = figures.apart(eval, pause)
    _, holding = figures.apart(eval, held)
    total, reading = figures.apart(eval, read)
    assert total == 15_000_000
    assert 119 < holding - idle < 140
    assert reading - idle < 20


def test_a_process_that_dies_is_an_error():
    with pytest.raises(RuntimeError, match="exit code 3"):
        figures.apart(os._exit, 3)


def test_all_figures_run_even_after_one_falls_short(capsys):
    seen = []

    def figure(code):
        def run(argv):
            seen.append(argv)
            if code is None:
                raise ArithmeticError("broken")
            return code

        return run

    three = {"first": figure(None), "second": figure(1), "third": figure(0)}
    assert all_figures.main(["--tiny"], three) == 1
    assert seen == [["--tiny"]] * 3
    printed, trouble = capsys.readouterr()
    verdicts = [line.split()[:2] for line in printed.splitlines()[-3:]]
    assert verdicts == [["first", "CRASH"], ["second", "SHORT"], ["third", "pass"]]
    assert "ArithmeticError: broken" in trouble
    assert all_figures.main([], {"first": figure(None)}) == 1
    assert all_figures.main([], {"second": figure(0)}) == 0
    assert seen[-1] == []


# -- the studies -------------------------------------------------------------------------------------------


def test_bounds_of_studies_print_with_their_names(capsys):
    studies.main(["--tiny"])  # one repetition: what holds for means of a hundred need not hold for it
    printed = capsys.readouterr().out
    assert "sparsity: normal, p_c = 0.3: l2-error, desmr-node / paper" in printed
    assert "sparsity: normal, p_c = 0.3: recall, as printed / paper" in printed
    assert "largest / smallest" not in printed  # of one graph there is nothing to compare
    assert printed.splitlines()[-1].endswith("bounds hold")


def test_step_rules_are_compared_on_the_same_designs(capsys):
    assert subgradient.main(["--tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("0.3 x 0.99^t")
    assert lines[1].endswith("used")
    assert float(lines[1].split()[3]) == pytest.approx(1.0, abs=0.1)  # it ends where the pooled fit is


# -- consensus ---------------------------------------------------------------------------------------------


def test_coordinate_descent_solves_an_ill_conditioned_problem():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 12)) * np.geomspace(1, 0.05, 12)
    Z[:, 1] = Z[:, 0] + 0.05 * Z[:, 1]
    G, c, weights = Z.T @ Z / 80, Z.T @ rng.standard_normal(80) / 80, np.full(12, 0.01)
    weights[3] = 0.0
    b, violation = consensus.coordinate_descent(G, c, weights)
    assert violation <= 1e-13
    assert optimality_violation(G @ b - c, b, weights).max() == pytest.approx(violation, abs=1e-16)
    assert 0 < np.count_nonzero(b) < 12


@pytest.mark.parametrize("loss", ["squared", "median"])
def test_all_nodes_approach_the_pooled_optimum_geometrically(loss):
    got = consensus.approach(loss, "exact", "pooled", 120)
    assert got.violation <= 1e-12
    assert got.distances[0] > 0.05
    assert got.distances[59] < 0.01
    assert got.distances[119] < 3e-4
    assert got.first_close is None


def test_the_papers_update_is_far_from_it_after_as_many_rounds():
    assert consensus.approach("squared", "linearised", "identity", 120).distances[-1] > 0.03


def test_simulate_holds_what_the_figure_measured():
    driven = consensus.approach("squared", "exact", "pooled", 60).distances[-1]
    assert consensus.through_simulate(60) == pytest.approx(driven, rel=1e-6)


# -- crime -------------------------------------------------------------------------------------------------


def test_an_attacker_bends_least_squares_and_not_the_median():
    got = crime.split(0, "attacker", crime.GRID[3:4])
    for name in ("deSMR", "deSMR, no intercept"):
        rmse, mae = crime.PAPER["deSMR"]["attacker"]
        assert got.fits[name].rmse < rmse
        assert got.fits[name].mae < mae
        assert got.fits[name].variables > 5
    assert got.fits["deLR"].mae > 0.6
    assert got.pooled[0].mae < 0.45


def test_bounds_on_the_crime_data_compare_with_the_original_scenario():
    good, bad = crime.Outcome(0.6, 0.38, 20.0), crime.Outcome(0.63, 0.38, 20.0)
    means = {name: dict.fromkeys(crime.SCENARIOS, good) for name in crime.SPECS}
    assert sum(not check.holds for check in crime.bounds(means)) == 0
    means["deSMR"]["attacker"] = bad
    short = [check.name for check in crime.bounds(means) if not check.holds]
    assert short == ["attacker: RMSE", "attacker: RMSE over original"]


# -- members that lie --------------------------------------------------------------------------------------


def test_a_box_costs_nothing_where_nobody_lies_and_holds_a_liar(capsys):
    edge_force.main(["--tiny"])  # two repetitions: what holds for means of many need not hold for them
    lines = capsys.readouterr().out.splitlines()
    honest, crime_data, lied_to = (
        next(line for line in lines if line.startswith(name)) for name in ("sparsity", "crime", "sign-flip")
    )
    ratio, without, with_, left_out, accusations, excess, load = map(float, honest.split()[-7:])
    assert 0.9 < ratio < 1.1
    assert abs(with_ - without) <= 10
    assert (left_out, accusations) == (0, 0)
    assert 0.5 < load < excess < 20
    assert len(crime_data.split()[2:]) == 8  # RMSE and MAE
    assert lied_to.split()[-1] == "0"


def test_accusations_are_counted_whatever_becomes_of_them():
    """The study's liar, in a network that only reports: it is accused again and again."""
    infested = liars.Infested.draw({"attack": "two-faced", "liars": 1, "joined": "all"}, 0)
    counts = []
    for spec in (liars.SPECS[liars.BOXED], liars.SPECS[liars.DROPPED]):
        watch = edge_force.Watch()
        liar = infested.cast()[10]
        fit = edge_force.fitted(infested.datasets, infested.edges, spec, 0, watch, liar)
        counts.append(watch.accusations)
        assert watch.excess > 200
        assert fit.left_out == ((10,) if spec is liars.SPECS[liars.DROPPED] else ())
    assert counts[0] > counts[1] > 0


# -- inner loop --------------------------------------------------------------------------------------------


def test_a_round_costs_the_same_for_many_rows():
    few, many = inner_loop.timings([500, 20_000], 60)
    assert few.nonzeros == pytest.approx(many.nonzeros, rel=0.1)
    assert few.nonzeros > 8
    # Forty times the rows; a pass over them alone would take ten times as long as a round.
    assert many.settled < 2.0 * few.settled
    assert many.first_ten < 4.0 * few.first_ten


def test_rows_on_disk_stay_there():
    peak, idle, _ = inner_loop.memory(400_000)
    assert idle > 10
    # 163 MB on disk; scaled all at once they would be another 163.
    assert peak - idle < 150


# -- scale -------------------------------------------------------------------------------------------------


def test_many_nodes_find_the_support():
    got, peak = figures.apart(scale.fit, scale.TINY_MANY[0])
    assert got.recall == 1.0
    assert got.precision >= 0.8
    assert got.error < 1.0
    assert peak < 200


@pytest.mark.parametrize("case", scale.TINY_WIDE, ids=str)
def test_more_columns_than_rows_form_no_matrix_per_lambda(case):
    # 20 lambdas: 20 matrices if each had its own.
    assert scale.round_megabytes(case) < 8 * case.matrix


def test_more_columns_than_rows_are_fitted():
    got = scale.fit(scale.TINY_WIDE[1])
    assert got.recall >= 0.9
    assert got.precision >= 0.7
    assert got.error < 3.0


# -- the network -------------------------------------------------------------------------------------------


def test_sparse_vectors_take_less_than_half_of_their_doubles(capsys):
    assert wire_bytes.main(["--tiny"]) == 0
    printed = capsys.readouterr().out
    assert "new-england           middle-atlantic" in printed
    assert "dense doubles against sent" in printed


def test_nine_daemons_and_the_bare_loop_are_timed_in_one_run(capsys):
    round_time.main(["--tiny"])  # too few rounds on a busy machine for the bound itself
    printed = capsys.readouterr().out.splitlines()
    ours, peer = (next(line for line in printed if line.startswith(name)) for name in ("desmr-node", "bare"))
    assert 0.1 < float(peer.split()[-3]) < float(ours.split()[-3]) * 10 < 1e4
    assert ours.split()[-1] == peer.split()[-1]  # bytes a message


def test_fit_after_fit_leaves_nothing_behind(capsys):
    soak.main(["--tiny"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("6 fits in ")
    short = {line.split(":")[0].strip() for line in printed if line.endswith("SHORT")}
    assert short <= {"threads"}  # gRPC's are still being started in the first fits
    for node in soak.NODES:
        line = next(line for line in printed if line.startswith(node))
        files, sockets, threads, tasks = map(int, line.split()[-4:])
        assert files > sockets >= 4
        assert threads > 1
        assert tasks > 4


def test_what_grows_or_changes_is_found():
    def seen(results=4, **grown):
        held = np.tile([60e6, 26, 10, 10, 22], (200, 1))
        for name, step in grown.items():
            held[:, soak.Held._fields.index(name)] += step * np.arange(200)
        return soak.Soak(dict.fromkeys(soak.NODES, held), [0.2] * 200, results, 1, 1)

    def short(run):
        names = [check.name for check in soak.bounds(run, 20, 20) if not check.holds]
        return {name.split(":")[-1].split(",")[0] for name in names}

    assert short(seen()) == set()
    assert short(seen(memory=15e3)) == set()  # 4.5 % of it in 180 fits
    assert short(seen(memory=20e3)) == {" memory"}
    assert short(seen(memory=-20e3)) == {" memory"}
    for name in ("files", "sockets", "threads", "tasks"):
        assert len(short(seen(**{name: 0.01}))) == 1
    assert short(seen(results=5)) == {"results that differ from the first"}


# -- sizing ------------------------------------------------------------------------------------------------


def test_sizing_in_small(capsys):
    """Three daemons: a node needs more in a fit than before it, and the line has a figure for each column."""
    assert sizing.main(["200,10,3,5"]) == 0
    head, _, line = capsys.readouterr().out.splitlines()
    columns, values = (text.strip("| ").split(" | ") for text in (head, line))
    found = dict(zip(columns, map(float, values), strict=True))
    assert found["peak MB"] > found["idle MB"] > 50
    assert found["ADMM rounds"] >= 10
    assert found["audit kB"] > 1
