"""UCI Communities and Crime: nine census divisions, their borders, and the paper's three scenarios.

Data: "Communities and Crime Unnormalized", M. Redmond, UCI, doi 10.24432/C5PC8X, CC BY 4.0 (see README.md
beside this file for what was changed).
"""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, get_args

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.errors import ConfigError

DIVISIONS = (
    "New England",
    "Middle Atlantic",
    "East North Central",
    "West North Central",
    "South Atlantic",
    "East South Central",
    "West South Central",
    "Mountain",
    "Pacific",
)
#: Divisions that share a state border.
BORDERS = (
    (0, 1), (1, 2), (1, 4), (2, 3), (2, 4), (2, 5), (3, 5),
    (3, 6), (3, 7), (4, 5), (5, 6), (6, 7), (7, 8),
)  # fmt: skip
#: The response of an injected row, almost twice the largest one (the response has mean 0 and deviation 1).
OUTLIER_RESPONSE = 12.0

Scenario = Literal["original", "balanced", "attacker", "liar"]


@dataclass(frozen=True, slots=True)
class CrimeTable:
    """1993 communities: predictors and response as published, and each community's division."""

    X: Matrix
    y: Vector
    division: np.ndarray
    features: tuple[str, ...]


@cache
def load_crime() -> CrimeTable:
    """Read the packaged table."""
    packed = resources.files("desmr_node.datasets") / "communities-crime.csv.gz"
    with resources.as_file(packed) as path, gzip.open(path, "rt", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        table = list(reader)
    values = np.array([[float(cell) for cell in row[2:]] for row in table])
    division = np.array([DIVISIONS.index(row[0]) for row in table])
    # Every caller gets the same arrays.
    values.setflags(write=False)
    division.setflags(write=False)
    return CrimeTable(values[:, :-1], values[:, -1], division, tuple(header[2:-1]))


@dataclass(frozen=True, slots=True)
class CrimeNetwork:
    """Training rows of each member, the edges between them, and the rows held out for testing.

    ``test_division`` says whose each held-out row is, as an index into `DIVISIONS`.
    """

    datasets: list[tuple[Matrix, Vector]]
    edges: tuple[tuple[int, int], ...]
    test: tuple[Matrix, Vector]
    test_division: np.ndarray


def crime_network(scenario: Scenario, rng: np.random.Generator) -> CrimeNetwork:
    """A random 80/20 split in a scenario, the paper's or ours, all variables scaled to mean 0, deviation 1.

    "balanced" adds to every division one injected row per nine of its own; "attacker" adds a tenth member,
    joined to all nine, with one injected row per nine of the whole. Injected predictors are standard normal.
    "liar" adds a tenth member in the same place, as many rows of the table as a division has, with responses
    that were dealt out anew: it is in what it says that it lies (`datasets.liars`).
    """
    if scenario not in get_args(Scenario):
        raise ConfigError(f"scenario {scenario!r} is unknown: choose one of {', '.join(get_args(Scenario))}")
    table = load_crime()
    X = (table.X - table.X.mean(axis=0)) / table.X.std(axis=0, ddof=1)
    y = (table.y - table.y.mean()) / table.y.std(ddof=1)
    order = rng.permutation(len(y))
    train, test = np.split(order, [round(0.8 * len(y))])
    datasets = []
    for j in range(len(DIVISIONS)):
        rows = np.sort(train[table.division[train] == j])
        datasets.append((X[rows], y[rows]))
    edges: tuple[tuple[int, int], ...] = BORDERS
    if scenario == "balanced":
        datasets = [_append(rows, _injected(round(len(rows[1]) / 9), X.shape[1], rng)) for rows in datasets]
    elif scenario == "attacker":
        datasets.append(_injected(round(len(train) / 9), X.shape[1], rng))
        edges += tuple((j, len(DIVISIONS)) for j in range(len(DIVISIONS)))
    elif scenario == "liar":
        rows = rng.choice(train, len(train) // len(DIVISIONS), replace=False)
        datasets.append((X[rows], y[rng.permutation(rows)]))
        edges += tuple((j, len(DIVISIONS)) for j in range(len(DIVISIONS)))
    test = np.sort(test)
    return CrimeNetwork(datasets, edges, (X[test], y[test]), table.division[test])


def _injected(rows: int, columns: int, rng: np.random.Generator) -> tuple[Matrix, Vector]:
    return rng.standard_normal((rows, columns)), np.full(rows, OUTLIER_RESPONSE)


def _append(rows: tuple[Matrix, Vector], more: tuple[Matrix, Vector]) -> tuple[Matrix, Vector]:
    return np.concatenate([rows[0], more[0]]), np.concatenate([rows[1], more[1]])
