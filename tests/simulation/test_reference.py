"""A network of machines computes what the plain loop over all members says, for every form of the method."""

import numpy as np
import pytest

from desmr_node import FitSpec, simulate
from desmr_node.core import reference
from desmr_node.core.fit import OuterRound
from desmr_node.runtime.simulation import check_inputs

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
PAPER = {
    "update": "linearised", "metric": "identity", "penalty": "l1", "outer": 4, "inner": 20, "tolerance": 0.0,
    "smoothing": "none", "bandwidth": "paper", "sparsity": 3, "intercept": False, "scaling": "none",
}  # fmt: skip


def rows(sizes=(50, 60, 40, 70), p=6, seed=0):
    rng = np.random.default_rng(seed)
    coef = np.r_[2.0, -1.0, 1.5, np.zeros(p - 3)]
    found = []
    for n in sizes:
        X = rng.standard_normal((n, p)) * np.geomspace(0.1, 10.0, p) + rng.normal(size=p)
        found.append((X, 3.0 + X @ coef + rng.standard_t(2, n)))
    return found


def numbers(history):
    """A history as a table; the last column is a truth value."""
    return np.array([[getattr(line, name) for name in OuterRound.__slots__] for line in history], dtype=float)


def compare(data, edges, spec, seed=0):
    sources, graph = check_inputs(data, edges, spec, seed)
    plain = reference.fit(sources, graph, spec, seed)
    fit = simulate(data, edges, spec, seed=seed)
    size = 1.0 + np.abs(plain.coef).max()
    np.testing.assert_allclose(fit.coef, plain.coef, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(fit.intercept, plain.intercept, rtol=0, atol=1e-10 * size)
    assert fit.lambda_ == pytest.approx(plain.lambda_, rel=1e-10)
    assert fit.objective == pytest.approx(plain.objective, rel=1e-10)
    assert fit.pilot_objective == pytest.approx(plain.pilot_objective, rel=1e-10)
    assert np.array_equal(fit.support, plain.support)
    assert (fit.converged, fit.message) == (plain.converged, plain.message)
    assert fit.admm_rounds == plain.admm_rounds
    # The machine meets its neighbours first, and evaluates and confirms at the end: three more floods.
    assert fit.rounds == plain.rounds + 3 * graph.diameter()
    np.testing.assert_allclose(numbers(fit.history), numbers(plain.history), rtol=1e-7, atol=1e-9)
    return fit


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"penalty": "l1"},
        {"penalty": "mcp"},
        {"penalty": "l0"},
        {"quantile": 0.25},
        {"quantile": 0.8, "penalty": "l1"},
        {"loss": "squared"},
        {"loss": "squared", "penalty": "l1", "lambda_": 0.1},
        {"lambda_": 0.05},
        {"lambda_": 0.0},
        {"update": "linearised"},
        {"metric": "identity"},
        {"update": "linearised", "metric": "identity"},
        {"scaling": "none"},
        {"weights": "nodes"},
        {"weights": "nodes", "loss": "squared"},
        {"intercept": False},
        {"score": "bic-squares"},
        {"score": "bic-check"},
        {"smoothing": "none"},
        {"tau": 0.3},
        {"lambdas": 2, "outer": 1, "inner": 1},
        PAPER,
    ],
    ids=str,
)
def test_every_form(settings):
    compare(rows(), RING, FitSpec(**settings))


@pytest.mark.parametrize("seed", [1, 17])
def test_the_pilots_random_numbers_are_the_same(seed):
    compare(rows(seed=seed), RING, FitSpec(), seed)


@pytest.mark.parametrize("metric", ["pooled", "identity"])
def test_more_columns_than_rows(metric):
    compare(rows((15, 12, 18, 20), p=30), RING, FitSpec(metric=metric, outer=6))


def test_one_node_and_two():
    compare(rows((60,)), [], FitSpec())
    compare(rows((60, 30)), [(0, 1)], FitSpec())


@pytest.mark.parametrize("unit", [1e-9, 1e7])
def test_any_unit_of_the_response(unit):
    data = [(X, unit * y) for X, y in rows()]
    sources, graph = check_inputs(data, RING, FitSpec(), 0)
    plain = reference.fit(sources, graph, FitSpec())
    np.testing.assert_allclose(simulate(data, RING).coef, plain.coef, rtol=1e-8, atol=1e-10 * unit)


def test_other_graphs():
    for edges in ([(0, 1), (1, 2), (2, 3)], [(0, 1), (0, 2), (0, 3)], [*RING, (0, 2), (1, 3)]):
        compare(rows(), edges, FitSpec())


def test_watching_sees_every_outer_round_and_changes_nothing():
    spec = FitSpec(outer=3, tolerance=0.0)
    sources, graph = check_inputs(rows(), RING, spec, 0)
    seen = []
    watched = reference.fit(
        sources, graph, spec, watch=lambda ms: seen.append([m.settled.copy() for m in ms])
    )
    assert len(seen) == len(watched.history) == 3
    plain = reference.fit(sources, graph, spec)
    np.testing.assert_array_equal(watched.coef, plain.coef)
    scaling = reference.prepare(sources, graph, spec).ground.scaling
    last = np.stack([scaling.to_data_units(b)[0] for b in seen[-1]])
    np.testing.assert_allclose(np.where(watched.support, last, 0.0), watched.coef, atol=1e-12)


def test_given_initials_take_the_place_of_the_pilots():
    spec = FitSpec()
    data = rows()
    sources, graph = check_inputs(data, RING, spec, 0)
    given = [(np.full(6, 0.5 * j), float(j)) for j in range(4)]
    prepared = reference.prepare(sources, graph, spec, initials=given)
    for member, (coef, intercept) in zip(prepared.members, given, strict=True):
        back = prepared.ground.scaling.to_data_units(member.settled)
        np.testing.assert_allclose(back[0], coef, atol=1e-12)
        assert back[1] == pytest.approx(intercept)
    # Poor ones cost rounds, not the answer.
    fit = reference.fit(sources, graph, spec, initials=given)
    plain = reference.fit(sources, graph, spec)
    assert fit.converged
    np.testing.assert_array_equal(fit.support, plain.support)
