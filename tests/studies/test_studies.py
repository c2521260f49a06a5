"""Every study in small, with its tables and pictures; and the claims of the paper's text."""

from dataclasses import replace

import numpy as np
import pytest

from desmr_node import simulate
from desmr_node.cli.plots.study import draw
from desmr_node.datasets import simulated_network
from desmr_node.studies import (
    STUDIES,
    convergence,
    initial,
    iterations,
    methods,
    paper,
    rate,
    rounds,
    simulated,
    tables,
)
from desmr_node.studies.measures import accuracy, l2_error
from desmr_node.studies.methods import DEFAULT, METHODS, ORACLE, PRINTED, Problem
from desmr_node.studies.report import document, markdown
from desmr_node.studies.results import Results, cell_key
from desmr_node.studies.study import DotPlot

PAPER = {
    "heavy-tail": paper.HEAVY_TAIL,
    "heterogeneity": paper.HETEROGENEITY,
    "nodes": paper.NODES,
    "sparsity": paper.SPARSITY,
    "initial": paper.INITIAL,
    "crime": paper.CRIME,
}


def problem(seed=0, **settings):
    return Problem(simulated_network(np.random.default_rng(seed), **settings), seed)


# -- the catalogue -------------------------------------------------------------------------------------------


def test_the_names_are_those_people_ask_for():
    assert list(STUDIES)[:7] == [
        "iterations", "heavy-tail", "heterogeneity", "nodes", "sparsity", "initial", "crime"
    ]  # fmt: skip
    assert "rounds" in STUDIES


@pytest.mark.parametrize("name", PAPER)
def test_every_cell_stands_in_the_paper_and_the_other_way_round(name):
    assert {cell_key(cell) for cell in STUDIES[name].cells} == set(PAPER[name])


@pytest.mark.parametrize(
    ("table", "cell", "method", "measure", "figure"),
    [
        (paper.HEAVY_TAIL, ("cauchy", "200", "100"), "deLR", "recall", 0.836),
        (paper.HEAVY_TAIL, ("t1", "200", "200"), PRINTED, "precision", 0.997),
        (paper.HETEROGENEITY, ("noise", "200", "200"), "D-subGD", "l2_error", 268.0),
        (paper.HETEROGENEITY, ("covariate", "200", "200"), "Avg. MR", "f1", 0.0952),
        (paper.NODES, ("cauchy", "20"), "D-subGD", "l2_error", 0.900),
        (paper.SPARSITY, ("exponential", "0.8"), PRINTED, "precision", 0.955),
        (paper.INITIAL, ("t1", "lasso"), PRINTED, "l2_error", 6.61),
        (paper.CRIME, ("balanced",), "deLR", "mae", 0.745),
    ],
)
def test_figures_are_the_papers(table, cell, method, measure, figure):
    assert table[cell][method, measure] == figure


# -- one repetition of everything ----------------------------------------------------------------------------

#: A part of each study that takes a second or two, and shows all it can show.
SMALL = {
    "iterations": [{"noise": "normal", "T": 20}],
    "heavy-tail": [{"noise": "cauchy", "n": 100, "p": 100}],
    "heterogeneity": [{"differs": "covariate", "n": 100, "p": 100}],
    "nodes": [{"noise": "normal", "nodes": 5}],
    "sparsity": [{"noise": "t1", "p_c": 0.5}],
    "initial": [{"noise": "normal", "initial": "median"}, {"noise": "normal", "initial": "perturbed-0.5"}],
    "crime": [{"scenario": "original"}],
    "rounds": [{"noise": "exponential"}],
    "convergence": [{"p_c": 0.8}],
    "rate": [{"noise": "cauchy", "n": n} for n in (100, 200, 400)],
    "liars": [
        {"attack": "none", "liars": 0, "joined": "all"},
        {"attack": "sign-flip", "liars": 1, "joined": "all"},
        {"attack": "small-bias", "liars": 1, "joined": "2"},
    ],
}


@pytest.mark.parametrize("name", STUDIES)
def test_in_small(name, tmp_path):
    study = replace(STUDIES[name], cells=tuple(SMALL[name]), part="a part")
    results = Results()
    for cell in study.cells:
        rows = study.run(cell, 0)
        assert {key for row in rows for key in row} <= {"method", *study.columns}
        for row in rows:
            assert all(np.isfinite(value) for key, value in row.items() if key != "method"), row
        results.add((cell_key(cell), 0), rows)
    for table in study.tables(results):
        assert len(table.rows) >= 1
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert all(np.isfinite(check.measured) for check in study.checks(results))
    assert len(study.checks(results)) >= 2
    for picture in study.pictures(results):
        for path in draw(picture, tmp_path):
            assert path.stat().st_size > 5000
    text = markdown(study, results)
    assert f"# {study.title}" in text
    assert "nan" not in text
    assert document(study, results)["study"] == name
    if name in PAPER:
        printed = next(iter(PAPER[name][cell_key(study.cells[0])].values()))
        assert f"({tables.figure_text(printed)})" in text


@pytest.mark.parametrize("name", ["heavy-tail", "heterogeneity", "initial", "convergence", "rate"])
def test_a_repetition_is_the_same_every_time(name):
    cell = SMALL[name][0]
    assert STUDIES[name].run(cell, 3) == STUDIES[name].run(cell, 3)


def test_pictures_tell_every_method_by_its_mark():
    """Readable in black and white: of those that share a plot no two have the same marker and filling."""
    from desmr_node.cli.plots.study import _mark

    for group in (
        [*METHODS, "deSMR, paper", "Local MR, any lambda"],
        [initial.START, PRINTED, DEFAULT, initial.TO_THE_END, ORACLE, "deSMR, paper"],
        [*(f"as printed, T = {T}" for T in iterations.INNER), "desmr-node, T = 20"],
        [methods.SUBGRADIENT, PRINTED, DEFAULT, rounds.STOPPED],
    ):
        looks = [(_mark(name).marker, _mark(name).fill) for name in group]
        assert len(set(looks)) == len(looks), group


def test_a_dot_plot_shows_the_median_of_what_has_no_mean():
    results = Results()
    cell = {"noise": "normal", "p_c": 0.3}
    for seed, error in enumerate((1.0, 2.0, 300.0)):
        results.add((cell_key(cell), seed), [{"method": DEFAULT, "l2_error": error}])
    plot = tables.dot_plot(results, [cell], paper.SPARSITY, "l2_error", "x", "X")
    assert isinstance(plot, DotPlot)
    assert plot.points[0].values == (2.0,)
    assert plot.points[1].values == (0.178,)
    table = tables.all_methods(results, [cell], paper.SPARSITY, "l2_error")
    assert table.rows[0][-1] == "101, median 2.00"


# -- the methods ---------------------------------------------------------------------------------------------


def test_the_default_is_what_a_network_of_nodes_computes():
    """The studies take the plain loop for speed: the machines of `simulate` end with the same model."""
    small = problem(n=60, p=20, m=4, connection=0.7)
    fit = simulate(small.datasets, small.edges, methods.DEFAULT_SPEC, seed=0)
    np.testing.assert_allclose(methods.default(small).coef, fit.coef, atol=1e-9)
    np.testing.assert_array_equal(methods.default(small).support[0], fit.support)


def test_rounds_counts_what_the_network_counts():
    small = problem(n=60, p=20, m=4, connection=0.7)
    rows = rounds.trajectory(small, rounds.STOPPED, methods.DEFAULT_SPEC)
    fit = simulate(small.datasets, small.edges, methods.DEFAULT_SPEC, seed=0)
    assert len(rows) == len(fit.history)
    assert rows[-1]["rounds"] == fit.rounds
    assert rows[-1]["megabytes"] == pytest.approx(fit.bytes_sent / 1e6)
    assert rows[-1]["l2_error"] == pytest.approx(l2_error(fit.coef, small.truth))
    along = [row["megabytes"] for row in rows]
    assert along == sorted(along)
    assert along[0] > 0


def test_the_printed_algorithm_begins_at_the_local_fits():
    one = methods.PRINTED_SPEC.model_copy(update={"outer": 1, "inner": 1})
    small = problem(n=80, p=20, m=4, connection=0.7)
    from_truth = small.fit(one, np.tile(small.truth, (4, 1)))
    from_local = small.fit(one, small.local)
    assert l2_error(from_truth.coef, small.truth) < l2_error(from_local.coef, small.truth)


def test_perturbation_leaves_the_zeros():
    truth = np.array([1.0, 0.0, -2.0])
    drawn = methods.perturbed(truth, 5000, 0.5, np.random.default_rng(0))
    assert not drawn[:, 1].any()
    assert drawn[:, 0].std() == pytest.approx(0.5, rel=0.05)
    assert drawn[:, 2].mean() == pytest.approx(-2.0, abs=0.05)


# -- the paper's claims, in small ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [PRINTED, DEFAULT])
def test_proposition_1_the_inner_loop_converges_linearly(method):
    small = problem(noise_name="cauchy", n=150, p=30, m=6, connection=0.5)
    gone = np.log10(convergence.distances(small, method, 100))
    gamma, determination, _ = convergence.fitted_rate(np.arange(101.0), gone)
    assert gamma < 0.95
    assert determination > 0.97
    assert gone[-1] < -3


def test_a_sublinear_sequence_is_no_straight_line():
    t = np.arange(101.0)
    _, determination, _ = convergence.fitted_rate(t, -2 * np.log10(1 + t))
    gamma, straight, _ = convergence.fitted_rate(t, t * np.log10(0.9))
    assert determination < 0.97
    assert straight == pytest.approx(1.0)
    assert gamma == pytest.approx(0.9)


def test_the_denser_the_graph_the_faster_the_inner_loop():
    rates = []
    for connection in (0.3, 0.9):
        small = problem(3, noise_name="cauchy", n=150, p=30, m=8, connection=connection)
        gone = np.log10(convergence.distances(small, DEFAULT, 60))
        rates.append(convergence.fitted_rate(np.arange(61.0), gone)[0])
    assert rates[1] < rates[0]


@pytest.mark.parametrize("method", [PRINTED, DEFAULT])
def test_ten_outer_rounds_suffice(method):
    small = problem(noise_name="cauchy", n=150, p=30, m=6, connection=0.5)
    errors = [row["l2_error"] for row in iterations.trajectory(small, method, 20)]
    assert len(errors) == iterations.OUTER
    limit = np.mean(errors[40:])
    assert abs(errors[9] / limit - 1) < 0.15
    assert abs(np.mean(errors[9:20]) / limit - 1) < 0.1


def test_theorem_3_the_error_falls_at_the_near_oracle_rate():
    sizes = (200, 600, 1800)
    found = {PRINTED: [], DEFAULT: [], ORACLE: []}
    for n in sizes:
        for name, errors in found.items():
            repeated = []
            for seed in range(4):
                small = problem(seed, noise_name="cauchy", n=n, p=30, m=5, connection=0.6)
                repeated.append(l2_error(METHODS[name](small).coef, small.truth))
            errors.append(np.mean(repeated))
    N = 5 * np.array(sizes, dtype=float)
    for name in (PRINTED, DEFAULT):
        # The constant settles with N, so a small range may look a little faster than the rate, never slower.
        assert 0.8 < rate.slope(np.array(found[name]), rate.theory(N)) < 1.5, name
    assert np.max(np.array(found[DEFAULT]) / found[ORACLE]) < 1.2


def test_theorem_2_the_support_is_recovered():
    for seed in range(4):
        small = problem(seed, noise_name="cauchy", n=200, p=50, m=6, connection=0.5)
        got = accuracy(methods.default(small), small.truth)
        assert (got["recall"], got["precision"]) == (1.0, 1.0)
        assert accuracy(methods.printed(small), small.truth)["recall"] == 1.0


def test_the_error_is_flat_in_the_density_of_the_graph():
    """The same rows on three graphs: only the graph may make a difference, and it makes none to speak of."""
    rows = simulated_network(np.random.default_rng(0), noise_name="cauchy", p=30)
    for method in (methods.printed, methods.default):
        errors = []
        for connection in simulated.CONNECTIONS:
            graph = simulated_network(np.random.default_rng(1), p=12, n=2, connection=connection).edges
            errors.append(l2_error(method(Problem(replace(rows, edges=graph), 0)).coef, rows.coef))
        assert max(errors) / min(errors) < 1.1
