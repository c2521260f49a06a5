"""Totals that no rows could have given end the fit where members may lie; all others are believed."""

from dataclasses import replace

import numpy as np
import pytest

from desmr_node import FitSpec
from desmr_node.core import plausible, reference
from desmr_node.core.agreement import Ground
from desmr_node.core.contributions import Ballot, Contribution, Moments, Report, Start
from desmr_node.core.graph import Graph
from desmr_node.core.plausible import Implausible
from desmr_node.core.rows import ArrayRows
from desmr_node.core.scaling import Scaling

WARY = FitSpec(edge_force="auto", outer=2, inner=3)


@pytest.fixture(scope="module")
def totals():
    """Those of an honest fit of four members, by kind."""
    rng = np.random.default_rng(0)
    seen: dict[type[Contribution], Contribution] = {}

    class Watched(reference.Traffic):
        def total(self, parts):
            seen[type(parts[0])] = super().total(parts)
            return seen[type(parts[0])]

    X = rng.normal(size=(4, 30, 3))
    sources = [ArrayRows.checked(x, x[:, 0] + rng.standard_cauchy(30), "n") for x in X]
    graph = Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    traffic = Watched(graph, graph.diameter())
    prepared = reference.prepare(sources, graph, WARY, 0, None, traffic)
    reference._attempt(prepared, traffic, WARY, None, range(4))
    return seen


DECLARED = (30, 30, 30, 30)


def check(total):
    match total:
        case Moments():
            plausible.check_moments(total, DECLARED)
        case Start():
            plausible.check_start(total, 120.0)
        case Report():
            plausible.check_report(total, 120.0, 4)
        case Ballot():
            plausible.check_ballot(total, 4)


def test_honest_totals_are_believed(totals):
    for kind in (Moments, Start, Report, Ballot):
        check(totals[kind])


def moved(values, place, by):
    changed = np.array(values, dtype=np.float64)
    changed[place] += by
    return changed


@pytest.mark.parametrize(
    ("kind", "field", "place", "by", "said"),
    [
        (Moments, "rows", (), 1.0, "121 rows, and 120 were declared"),
        (Moments, "response_octaves", 3, 1.0, "histogram of responses"),
        (Moments, "response_octaves", 0, -1e3, "histogram of responses"),
        (Start, "variances", 1, -5.0, "a variance is negative"),
        (Start, "variances", 1, 0.5, "variances and Gram matrix do not agree"),
        (Start, "gram", (0, 1), 3.0, "a correlation is larger than one"),
        (Start, "counts", 7, 2.0, "pilots' residuals"),
        (Report, "counts", (7, 0), 2.0, "histogram of residuals"),
        (Report, "votes", (2, 0), 5.0, "more votes"),
        (Report, "votes", (2, 0), -9.0, "more votes"),
        (Report, "moved", 0, -1e6, "a length is negative"),
        (Ballot, "votes", 1, 9.0, "more votes"),
    ],
)
def test_what_cannot_be_is_refused(totals, kind, field, place, by, said):
    total = totals[kind]
    lie = replace(total, **{field: moved(getattr(total, field), place, by)})
    with pytest.raises(Implausible, match=said):
        check(lie)


def test_a_lie_within_a_histogram_is_not_seen(totals):
    """Said in docs/threat-model.md: a masked sum shows the total and nothing else."""
    counts = totals[Report].counts
    full, empty = int(np.argmax(counts[:, 0])), int(np.argmin(counts[:, 0]))
    check(replace(totals[Report], counts=moved(moved(counts, (full, 0), -1.0), (empty, 0), 1.0)))


def test_nobody_counts_for_more_than_ten_times_the_median():
    assert plausible.largest_count([10, 10, 10, 10_000]) == 100.0
    ground = Ground(4, 1.0, 130.0, Scaling(np.zeros(1), np.ones(1), 1.0, False), 100.0)
    spec = FitSpec()
    assert ground.row_weight(10, spec) == 1.0 / 130.0
    assert ground.row_weight(10_000, spec) * 10_000 == pytest.approx(100.0 / 130.0)


def test_a_member_of_many_rows_counts_less_among_possible_liars():
    """Its thousand rows have another slope; with every row counted they would win."""
    rng = np.random.default_rng(1)
    tables = []
    for rows, slope in ((20, 1.0), (20, 1.0), (20, 1.0), (20, 1.0), (2000, 5.0)):
        x = rng.normal(size=(rows, 1))
        tables.append(ArrayRows.checked(x, slope * x[:, 0] + 0.1 * rng.normal(size=rows), "n"))
    graph = Graph.from_edges(5, [(j, k) for j in range(5) for k in range(j)])
    fits = {
        force: reference.fit(tables, graph, FitSpec(edge_force=force, suspects="report", lambda_=0.0))
        for force in ("off", "auto")
    }
    assert fits["off"].coef[0, 0] > 4.5
    assert fits["auto"].coef[0, 0] < fits["off"].coef[0, 0]
