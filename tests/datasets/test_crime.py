"""The crime table as packaged, its map of divisions, and the paper's three scenarios."""

import csv
import gzip
from importlib import resources

import numpy as np
import pytest

from desmr_node.core.graph import Graph
from desmr_node.datasets.crime import BORDERS, DIVISIONS, OUTLIER_RESPONSE, crime_network, load_crime
from desmr_node.errors import ConfigError

ROWS = {
    "New England": 258,
    "Middle Atlantic": 358,
    "East North Central": 217,
    "West North Central": 87,
    "South Atlantic": 262,
    "East South Central": 122,
    "West South Central": 239,
    "Mountain": 98,
    "Pacific": 352,
}
TRAIN = 1594  # four fifths of 1993


def test_shapes_and_division_counts():
    table = load_crime()
    assert table.X.shape == (1993, 100)
    assert table.y.shape == table.division.shape == (1993,)
    assert dict(zip(DIVISIONS, np.bincount(table.division).tolist(), strict=True)) == ROWS
    assert sum(ROWS.values()) == 1993


def test_values_are_usable_as_they_are():
    table = load_crime()
    assert np.isfinite(table.X).all()
    assert np.isfinite(table.y).all()
    assert np.all(table.X.std(axis=0) > 0)
    assert np.linalg.matrix_rank((table.X - table.X.mean(axis=0)) / table.X.std(axis=0)) == 100
    assert np.all(table.y >= 0)


def test_features_are_named_once_each():
    features = load_crime().features
    assert len(features) == len(set(features)) == 100
    assert {"population", "PctKids2Par", "PctPersDenseHous"} <= set(features)
    # the response, other crime totals and what the README says was dropped
    assert not {"ViolentCrimesPerPop", "murders", "OwnOccQrange", "RentQrange", "state", "division"} & set(
        features
    )


def test_columns_are_those_of_the_file():
    packed = resources.files("desmr_node.datasets") / "communities-crime.csv.gz"
    with packed.open("rb") as raw, gzip.open(raw, "rt", newline="") as lines:
        first = next(csv.DictReader(lines))
    table = load_crime()
    assert first["division"] == DIVISIONS[table.division[0]]
    assert float(first["ViolentCrimesPerPop"]) == table.y[0]
    assert [float(first[name]) for name in table.features] == table.X[0].tolist()


def test_the_shared_table_cannot_be_spoiled():
    assert load_crime() is load_crime()
    for array in (load_crime().X, load_crime().y, load_crime().division):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_map_of_divisions():
    graph = Graph.from_edges(len(DIVISIONS), BORDERS)
    assert len(BORDERS) == graph.edge_count == 13
    assert graph.diameter() == 5
    pacific, new_england = DIVISIONS.index("Pacific"), DIVISIONS.index("New England")
    assert graph.neighbours[pacific] == (DIVISIONS.index("Mountain"),)
    assert graph.neighbours[new_england] == (DIVISIONS.index("Middle Atlantic"),)


def _network(scenario, seed=0):
    return crime_network(scenario, np.random.default_rng(seed))


def _sorted_rows(parts):
    table = np.concatenate([np.column_stack([X, y]) for X, y in parts])
    return table[np.lexsort(table.T)]


def test_original_is_a_split_of_the_scaled_table():
    network = _network("original")
    assert len(network.datasets) == 9
    assert network.edges == BORDERS
    assert sum(len(y) for _, y in network.datasets) == TRAIN
    assert network.test[0].shape == (1993 - TRAIN, 100)
    table = load_crime()
    X = (table.X - table.X.mean(axis=0)) / table.X.std(axis=0, ddof=1)
    y = (table.y - table.y.mean()) / table.y.std(ddof=1)
    np.testing.assert_array_equal(_sorted_rows([*network.datasets, network.test]), _sorted_rows([(X, y)]))
    whole = _sorted_rows([*network.datasets, network.test])
    np.testing.assert_allclose(whole.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(whole.std(axis=0, ddof=1), 1.0)


def test_members_hold_rows_of_their_own_division():
    table = load_crime()
    y = (table.y - table.y.mean()) / table.y.std(ddof=1)
    X = (table.X - table.X.mean(axis=0)) / table.X.std(axis=0, ddof=1)
    for j, (X_j, y_j) in enumerate(_network("original").datasets):
        own = {
            (*row, value) for row, value in zip(X[table.division == j], y[table.division == j], strict=True)
        }
        assert {(*row, value) for row, value in zip(X_j, y_j, strict=True)} <= own
        assert 0.65 * len(own) < len(y_j) < 0.95 * len(own)


def test_the_scaled_response_peaks_at_about_seven():
    """So an injected response of 12 is almost twice the largest genuine one."""
    network = _network("original")
    peak = max(max(y.max() for _, y in network.datasets), network.test[1].max())
    assert peak == pytest.approx(6.97, abs=0.01)
    assert 1.7 < OUTLIER_RESPONSE / peak < 2.0


def test_balanced_adds_one_row_in_nine_to_every_division():
    clean, dirty = _network("original"), _network("balanced")
    assert dirty.edges == BORDERS
    for (X, y), (X2, y2) in zip(clean.datasets, dirty.datasets, strict=True):
        n = len(y)
        assert len(y2) == len(X2) == n + round(n / 9)
        np.testing.assert_array_equal(X2[:n], X)
        np.testing.assert_array_equal(y2[:n], y)
        np.testing.assert_array_equal(y2[n:], 12.0)
    np.testing.assert_array_equal(dirty.test[1], clean.test[1])


def test_the_attacker_is_a_tenth_member_joined_to_all():
    clean, dirty = _network("original"), _network("attacker")
    assert len(dirty.datasets) == 10
    X, y = dirty.datasets[9]
    assert X.shape == (round(TRAIN / 9), 100) == (177, 100)
    np.testing.assert_array_equal(y, 12.0)
    assert dirty.edges[:13] == BORDERS
    assert dirty.edges[13:] == tuple((j, 9) for j in range(9))
    assert Graph.from_edges(10, dirty.edges).diameter() == 2
    for (_, honest), (_, same) in zip(clean.datasets, dirty.datasets[:9], strict=True):
        np.testing.assert_array_equal(honest, same)


def test_injected_predictors_are_standard_normal():
    X, _ = _network("attacker").datasets[9]
    assert abs(X.mean()) < 0.03
    assert X.std() == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("scenario", ["original", "balanced", "attacker"])
def test_a_seed_fixes_the_network(scenario):
    first, again, other = _network(scenario, 3), _network(scenario, 3), _network(scenario, 4)
    for (X, y), (X2, y2) in zip(first.datasets, again.datasets, strict=True):
        np.testing.assert_array_equal(X, X2)
        np.testing.assert_array_equal(y, y2)
    np.testing.assert_array_equal(first.test[0], again.test[0])
    assert not np.array_equal(first.test[1], other.test[1])


def test_an_unknown_scenario_is_refused():
    with pytest.raises(
        ConfigError, match=r"'atacker' is unknown: choose one of original, balanced, attacker"
    ):
        _network("atacker")
