"""The whole fit: what it finds, what it refuses, what only looks bad, and what it promises at the end."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desmr_node import ConfigError, DataError, FitSpec, NetworkFit, l1_quantile, simulate
from desmr_node.core.member import Member
from desmr_node.core.share import Diverged
from desmr_node.datasets import simulated_network

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
TRUTH = np.array([2.0, -1.0, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0])


def network(seed: int = 0, n: int = 60, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Four nodes, eight columns, three of them at work."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4, n, 8))
    return X, X @ TRUTH + noise * rng.standard_normal((4, n))


def pairs(X: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(X, y, strict=True))


def sound(fit: NetworkFit) -> NetworkFit:
    """What holds of every fit."""
    for numbers in (fit.coef, fit.intercept, fit.objective, fit.pilot_objective, fit.lambda_):
        assert np.all(np.isfinite(numbers))
    assert fit.objective <= fit.pilot_objective
    assert np.all(fit.coef[:, ~fit.support] == 0)
    assert fit.rounds >= fit.admm_rounds == fit.history[-1].admm_rounds
    assert fit.bytes_sent > 0 or len(fit.coef) == 1
    assert ("not converged" in fit.message) or ("no step" in fit.message) or fit.converged
    return fit


# -- what it finds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["normal", "exponential", "cauchy", "t1"])
def test_default_matches_median_regression_that_knows_the_support(noise: str) -> None:
    design = simulated_network(np.random.default_rng(1), noise_name=noise, n=120, p=40)
    fit = sound(simulate(design.datasets, design.edges))
    assert fit.converged
    assert np.array_equal(fit.support, design.coef != 0)
    X = np.concatenate([X for X, _ in design.datasets])[:, :10]
    y = np.concatenate([y for _, y in design.datasets])
    oracle = l1_quantile(np.column_stack([np.ones(len(y)), X]), y, 0.0)[1:]
    error = np.linalg.norm(fit.coef - design.coef, axis=1).max()
    assert error < 1.3 * np.linalg.norm(oracle - design.coef[:10])


@pytest.mark.parametrize("quantile", [0.5, 0.25, 0.8])
def test_l1_fit_is_the_pooled_l1_quantile_regression(quantile: float) -> None:
    """Smoothed or not, the fixed point is the pooled estimate, up to a fraction of a standard error."""
    X, y = network(n=400)
    lam = 0.1
    Z = np.column_stack([np.ones(1600), X.reshape(-1, 8)])
    spread = X.reshape(-1, 8).std(axis=0)
    weights = lam * np.concatenate([[0.0], spread])
    pooled = l1_quantile(Z, y.ravel(), weights, quantile)
    for smoothing in ("kernel", "none"):
        spec = FitSpec(penalty="l1", lambda_=lam, quantile=quantile, smoothing=smoothing)
        fit = sound(simulate(pairs(X, y), RING, spec))
        assert np.abs(fit.coef - pooled[1:]).max() < 0.02
        assert np.abs(fit.intercept - pooled[0]).max() < 0.04


def test_squared_loss_is_the_pooled_lasso() -> None:
    X, y = network()
    spec = FitSpec(loss="squared", penalty="l1", lambda_=0.1, tolerance=1e-9, outer=60)
    fit = sound(simulate(pairs(X, y), RING, spec))
    assert fit.converged
    flat, response = X.reshape(-1, 8), y.ravel()
    Z = (flat - flat.mean(axis=0)) / flat.std(axis=0)
    residual = response - response.mean() - Z @ (fit.coef[0] * flat.std(axis=0))
    gradient = Z.T @ residual / len(Z)
    active = fit.coef[0] != 0
    np.testing.assert_allclose(gradient[active], 0.1 * np.sign(fit.coef[0][active]), atol=1e-7)
    assert np.all(np.abs(gradient[~active]) <= 0.1 + 1e-7)
    np.testing.assert_allclose(fit.coef, fit.coef[[0] * 4], atol=1e-7)


@pytest.mark.parametrize("update", ["exact", "linearised"])
@pytest.mark.parametrize("metric", ["pooled", "identity"])
@pytest.mark.parametrize("penalty", ["l1", "scad", "mcp", "l0"])
def test_every_form_finds_the_model(update: str, metric: str, penalty: str) -> None:
    X, y = network()
    spec = FitSpec(update=update, metric=metric, penalty=penalty)
    fit = sound(simulate(pairs(X, y), RING, spec))
    assert set(np.flatnonzero(TRUTH)) <= set(np.flatnonzero(fit.support))
    assert np.abs(fit.coef - TRUTH).max() < 0.3


@pytest.mark.parametrize("score", ["likelihood-ratio", "bic-squares", "bic-check"])
def test_every_score_finds_the_support(score: str) -> None:
    X, y = network(seed=3)
    fit = sound(simulate(pairs(X, y), RING, FitSpec(score=score)))
    assert np.array_equal(fit.support, TRUTH != 0)


def test_the_papers_algorithm_runs() -> None:
    X, y = network()
    spec = FitSpec(
        update="linearised",
        metric="identity",
        penalty="l1",
        outer=10,
        inner=50,
        tolerance=0.0,
        smoothing="none",
        bandwidth="paper",
        sparsity=3,
        intercept=False,
        scaling="none",
    )
    fit = sound(simulate(pairs(X, y), RING, spec))
    assert fit.admm_rounds == 500
    assert not fit.converged
    assert np.abs(fit.coef - TRUTH).max() < 0.3


def test_equal_node_weights_listen_to_the_small_node() -> None:
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 2)) for n in (300, 20)]
    y = [X[0] @ [1.0, 0.0] + rng.normal(0, 0.1, 300), X[1] @ [2.0, 0.0] + rng.normal(0, 0.1, 20)]
    data = list(zip(X, y, strict=True))
    by_rows = simulate(data, [(0, 1)], FitSpec(loss="squared", lambda_=0.01, penalty="l1"))
    by_nodes = simulate(data, [(0, 1)], FitSpec(loss="squared", lambda_=0.01, penalty="l1", weights="nodes"))
    assert by_rows.coef[0, 0] == pytest.approx(1.06, abs=0.04)
    assert by_nodes.coef[0, 0] == pytest.approx(1.5, abs=0.2)


def test_same_seed_same_bits() -> None:
    X, y = network()
    first, second = (simulate(pairs(X, y), RING, seed=5) for _ in range(2))
    assert first.coef.tobytes() == second.coef.tobytes()
    assert first.history == second.history


def test_nodes_and_rows_may_come_in_any_order() -> None:
    X, y = network()
    fit = simulate(pairs(X, y), RING)
    turned = simulate(pairs(X[::-1], y[::-1]), RING)
    np.testing.assert_allclose(turned.coef[::-1], fit.coef, atol=0.02)


# -- what it refuses ---------------------------------------------------------------------------------------


def _with(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_a_bad_number_is_named_by_node_row_and_column(value: float, shown: str) -> None:
    X, y = network()
    with pytest.raises(DataError, match=f"node 2: row 17, column 5 is {shown}: drop the row or fill"):
        simulate(pairs(_with(X, (2, 17, 5), value), y), RING)
    with pytest.raises(DataError, match=f"node 1: the response in row 3 is {shown}"):
        simulate(pairs(X, _with(y, (1, 3), value)), RING)


def test_different_columns_are_refused() -> None:
    X, y = network()
    data = pairs(X, y)
    data[3] = (X[3][:, :7], y[3])
    with pytest.raises(DataError, match=r"node 3 has 7 columns and node 0 has 8: .* same columns"):
        simulate(data, RING)


def test_a_column_nobody_has_is_refused() -> None:
    X, y = network()
    X[:, :, 4] = 0.0
    with pytest.raises(DataError, match="column 4 is zero in every row of every node"):
        simulate(pairs(X, y), RING)


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ([(0, 1), (2, 3)], "not connected: no path from node 0 to node 2, 3; add an edge"),
        ([*RING, (1, 1)], r"edge \(1, 1\) joins node 1 to itself: remove it"),
        ([*RING, (1, 9)], r"edge \(1, 9\) names a node outside 0..3"),
    ],
)
def test_a_bad_graph_is_refused(edges: list[tuple[int, int]], says: str) -> None:
    X, y = network()
    with pytest.raises(ConfigError, match=says):
        simulate(pairs(X, y), edges)


# -- what only looks bad -----------------------------------------------------------------------------------


def test_a_node_with_a_constant_response_cannot_bend_the_fit() -> None:
    """The paper's attacker: zero spread, hence bandwidth 0 and density infinity if it were believed."""
    design = simulated_network(np.random.default_rng(2), noise_name="normal", m=9, n=120, p=30)
    rng = np.random.default_rng(3)
    data = [*design.datasets, (rng.standard_normal((120, 30)), np.full(120, 12.0))]
    edges = [*design.edges, *((j, 9) for j in range(9))]
    clean = sound(simulate(design.datasets, design.edges))
    attacked = sound(simulate(data, edges))
    assert np.abs(attacked.coef - clean.coef[0]).max() < 0.25
    assert set(np.flatnonzero(design.coef)) <= set(np.flatnonzero(attacked.support))


def test_a_column_constant_at_one_node_or_everywhere() -> None:
    X, y = network()
    here = X.copy()
    here[1, :, 4] = 3.0
    assert np.abs(sound(simulate(pairs(here, y), RING)).coef - TRUTH).max() < 0.3
    everywhere = X.copy()
    everywhere[:, :, 4] = 3.0
    fit = sound(simulate(pairs(everywhere, y), RING))
    assert np.abs(fit.coef - TRUTH).max() < 0.3
    assert np.all(fit.coef[:, 4] == 0)
    fit = sound(simulate(pairs(everywhere, y + 6.0), RING, FitSpec(intercept=False)))
    assert fit.coef[0, 4] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("penalty", ["l1", "scad"])
def test_duplicated_columns_share_the_coefficient(penalty: str) -> None:
    X, y = network()
    X[:, :, 4] = X[:, :, 0]
    fit = sound(simulate(pairs(X, y), RING, FitSpec(penalty=penalty)))
    assert fit.converged
    assert fit.coef[:, 0] + fit.coef[:, 4] == pytest.approx([2.0] * 4, abs=0.3)
    assert fit.coef[:, 1] == pytest.approx([-1.0] * 4, abs=0.3)


def test_a_node_with_one_row() -> None:
    X, y = network()
    data = pairs(X, y)
    data[3] = (X[3][:1], y[3][:1])
    assert np.abs(sound(simulate(data, RING)).coef - TRUTH).max() < 0.3


def test_fewer_rows_than_columns_everywhere() -> None:
    design = simulated_network(np.random.default_rng(4), m=6, n=40, p=60, connection=0.5)
    for update, metric in (("exact", "pooled"), ("exact", "identity"), ("linearised", "identity")):
        fit = sound(simulate(design.datasets, design.edges, FitSpec(update=update, metric=metric, outer=40)))
        assert np.linalg.norm(fit.coef - design.coef, axis=1).max() < 1.0


def test_ties_in_every_residual() -> None:
    X = np.random.default_rng(0).integers(0, 3, (4, 60, 8)).astype(float)
    fit = sound(simulate(pairs(X, X @ np.round(TRUTH)), RING))
    np.testing.assert_allclose(fit.coef, np.tile(np.round(TRUTH), (4, 1)), atol=1e-6)


def test_an_integer_response_and_integer_arrays() -> None:
    X, y = network()
    fit = sound(simulate(pairs(X, np.round(y).astype(int)), RING))
    assert np.abs(fit.coef - TRUTH).max() < 0.3


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_constant_response_everywhere(value: float) -> None:
    X, _ = network()
    fit = sound(simulate(pairs(X, np.full((4, 60), value)), RING))
    assert np.all(fit.coef == 0)
    np.testing.assert_allclose(fit.intercept, value)


def test_one_node_alone_and_two() -> None:
    X, y = network()
    assert np.abs(sound(simulate(pairs(X, y)[:1], [])).coef - TRUTH).max() < 0.4
    assert np.abs(sound(simulate(pairs(X, y)[:2], [(0, 1)])).coef - TRUTH).max() < 0.4


def test_columns_of_any_scale_give_the_same_fit_rescaled() -> None:
    X, y = network()
    fit = simulate(pairs(X, y), RING)
    scales = 10.0 ** np.array([-8, 8, -3, 5, 0, -6, 2, 7])
    rescaled = simulate(pairs(X * scales, y), RING)
    np.testing.assert_allclose(rescaled.coef * scales, fit.coef, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(rescaled.intercept, fit.intercept, atol=1e-8)
    assert rescaled.lambda_ == pytest.approx(fit.lambda_)


@pytest.mark.parametrize(("factor", "shift"), [(1e6, 0.0), (1e-9, 0.0), (3.0, 1e4)])
def test_the_response_may_have_any_unit(factor: float, shift: float) -> None:
    X, y = network()
    fit = simulate(pairs(X, y), RING)
    moved = sound(simulate(pairs(X, factor * y + shift), RING))
    np.testing.assert_allclose(moved.coef / factor, fit.coef, atol=2e-3)
    np.testing.assert_allclose((moved.intercept - shift) / factor, fit.intercept, atol=2e-3)


def test_wild_rows_do_not_bend_the_fit() -> None:
    X, y = network()
    clean = simulate(pairs(X, y), RING)
    poisoned = y.copy()
    poisoned[:, :6] = 1e12  # a tenth of every node
    assert np.abs(sound(simulate(pairs(X, poisoned), RING)).coef - clean.coef[0]).max() < 0.3


# -- what it promises at the end ---------------------------------------------------------------------------


def test_too_few_rounds_are_said_to_be_too_few() -> None:
    X, y = network()
    fit = sound(simulate(pairs(X, y), RING, FitSpec(outer=1, inner=1)))
    assert not fit.converged
    assert "not converged in 1 outer rounds (1 ADMM rounds)" in fit.message
    assert "raise outer or inner" in fit.message


def test_a_loop_that_leaves_the_numbers_is_called_off_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong inside the inner loop, no NaN leaves a node."""
    X, y = network()

    def nonsense(self: Member, newest: object, matched: object) -> None:
        self.B = np.full_like(self.B, np.nan)

    monkeypatch.setattr(Member, "step", nonsense)
    with pytest.raises(Diverged, match='diverged in outer round 1: set tau = "auto", or update = "exact"'):
        simulate(pairs(X, y), RING, FitSpec(outer=3))


def test_a_fit_that_got_worse_returns_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = network()

    def astray(self: Member, newest: object, matched: object) -> None:
        self.B = self.B + 50.0

    monkeypatch.setattr(Member, "step", astray)
    fit = simulate(pairs(X, y), RING, FitSpec(outer=6))
    assert fit.objective <= fit.pilot_objective
    assert np.abs(fit.coef - TRUTH).max() < 0.3


def test_messages_and_bytes_are_counted() -> None:
    X, y = network()
    fit = simulate(pairs(X, y), RING, FitSpec(lambda_=0.1, outer=2, inner=7, tolerance=0.0))
    assert fit.admm_rounds == 14
    # diameter 2: introductions and three sums first, one sum per outer round, three last,
    # and the confirmations
    assert fit.rounds == 14 + 2 * (1 + 3 + 2 + 3 + 1)
    assert fit.history[-1].candidates == 1


def test_the_example_in_the_docstring() -> None:
    import doctest

    import desmr_node.runtime.simulation as module

    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_long_path_of_members_that_differ_is_not_called_converged_too_soon() -> None:
    """Along a path of 20 a trend in the members' levels is small on every edge and large from end to end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 40, 2))
    y = X[..., 0] + rng.normal(size=(20, 40)) + 0.3 * (np.arange(20) - 9.5)[:, None]
    path = [(j, j + 1) for j in range(19)]
    hasty = sound(simulate(pairs(X, y), path, FitSpec(penalty="l1", lambda_=0.05, inner=1, outer=100)))
    assert not hasty.converged or np.ptp(hasty.intercept) < 0.3
    patient = sound(simulate(pairs(X, y), path, FitSpec(penalty="l1", lambda_=0.05, outer=100)))
    assert patient.converged
    assert np.ptp(patient.intercept) < 0.3


def test_slow_progress_is_not_taken_for_arrival() -> None:
    """Strongly correlated columns: the linearised update creeps."""
    rng = np.random.default_rng(1)
    data = []
    for _ in range(6):
        X = 0.1 * rng.normal(size=(100, 10)) + rng.normal(size=(100, 1))
        data.append((X, X @ np.r_[2.0, -2.0, 1.0, np.zeros(7)] + 0.3 * rng.normal(size=100)))
    path = [(j, j + 1) for j in range(5)]
    best = simulate(data, path, FitSpec(penalty="l1", lambda_=0.005, outer=100))
    assert best.converged
    for update, metric in (("exact", "identity"), ("linearised", "pooled"), ("linearised", "identity")):
        fit = simulate(data, path, FitSpec(penalty="l1", lambda_=0.005, update=update, metric=metric))
        assert not fit.converged or fit.objective < 1.01 * best.objective


def test_a_rejected_round_with_one_lambda_left() -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2, 10, 3))
    y = 2 * X[..., 0] + rng.standard_t(1, (2, 10))
    sound(simulate(pairs(X, y), [(0, 1)], FitSpec(quantile=0.05)))


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e8])
def test_one_row_nodes_in_any_unit(unit: float) -> None:
    rng = np.random.default_rng(0)
    data = [(X, unit * (X @ [3.0, 0.0])) for X in (rng.normal(size=(1, 2)) for _ in range(20))]
    fit = sound(simulate(data, [(0, j) for j in range(1, 20)], FitSpec(outer=60)))
    assert fit.coef[0, 0] / unit == pytest.approx(3.0, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"edges": [0, 1]}, ConfigError, "edge 0 must be a pair of whole numbers"),
        ({"edges": None}, ConfigError, "edges is a NoneType: pass a list of pairs"),
        ({"datasets": None}, DataError, "datasets is a NoneType: pass a list with a pair"),
        ({"datasets": [np.ones((3, 2))]}, DataError, "node 0: expected a pair"),
        ({"spec": {"penalty": "l1"}}, ConfigError, "spec is a dict: pass a FitSpec"),
        ({"seed": -1}, ConfigError, "seed is -1: pass a whole number, 0 or more"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], error: type[Exception], says: str) -> None:
    X, y = network()
    given_ = {"datasets": pairs(X, y), "edges": RING, **arguments}
    with pytest.raises(error, match=says):
        simulate(**given_)


def test_numbers_that_cannot_be_squared_are_refused() -> None:
    X, y = network()
    with pytest.raises(DataError, match=r"node 1: a value in rows 0 to 59 exceeds 1e\+100"):
        simulate(pairs(_with(X, (1, 2, 3), 1e160), y), RING)


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 30), st.integers(1, 12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    SHAPES,
    st.integers(0, 10_000),
    st.sampled_from(["normal", "integer", "constant", "huge", "tiny", "half constant"]),
    st.sampled_from(["median", "squared"]),
    st.sampled_from(["l1", "scad", "mcp", "l0"]),
    st.sampled_from(
        [("exact", "pooled"), ("exact", "identity"), ("linearised", "identity"), ("linearised", "pooled")]
    ),
    st.sampled_from(["bic", 0.0, 0.05, 3.0]),
    st.booleans(),
)
def test_no_data_breaks_it(
    shape: tuple[int, int, int],
    seed: int,
    kind: str,
    loss: str,
    penalty: str,
    form: tuple[str, str],
    lambda_: float | str,
    intercept: bool,
) -> None:
    m, n, p = shape
    rng = np.random.default_rng(seed)
    data = []
    for j in range(m):
        rows = max(1, int(rng.integers(1, n + 1)))
        X = rng.standard_normal((rows, p)) * 10.0 ** rng.integers(-8, 9, p)
        if kind == "integer":
            X = np.round(2 * rng.standard_normal((rows, p))) + (rng.random(p) < 0.2)
        y = {
            "normal": lambda r=rows: rng.standard_normal(r),
            "integer": lambda r=rows: rng.integers(-2, 3, r).astype(float),
            "constant": lambda r=rows: np.full(r, 3.0),
            "huge": lambda r=rows: 1e12 * rng.standard_cauchy(r),
            "tiny": lambda r=rows: 1e-12 * rng.standard_normal(r),
            "half constant": lambda r=rows, j=j: np.full(r, 12.0) if j % 2 else rng.standard_normal(r),
        }[kind]()
        data.append((X, y))
    if np.any(np.all(np.concatenate([X for X, _ in data]) == 0, axis=0)):
        return
    spec = FitSpec(
        loss=loss,
        penalty=penalty,
        update=form[0],
        metric=form[1],
        lambda_=lambda_,
        intercept=intercept,
        outer=6,
    )
    sound(simulate(data, [(j, j + 1) for j in range(m - 1)], spec))


def test_rows_of_another_width_cannot_be_predicted():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    fit = simulate([(X, X[:, 0])], [])
    assert fit.predict(X).shape == (30,)
    for rows in (X[:, :2], X[None], np.float64(1.0)):
        with pytest.raises(DataError, match="and the model 3 features: give as many columns"):
            fit.predict(rows)
