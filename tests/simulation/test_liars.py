"""Liars on a simulated network of real machines: left out, and the rest ends as if they had never been."""

import numpy as np
import pytest

from desmr_node import FitSpec
from desmr_node.core import reference
from desmr_node.core.graph import Graph
from desmr_node.core.rows import ArrayRows
from desmr_node.datasets import simulated_network
from desmr_node.protocol import events as ev
from desmr_node.protocol.machine import Phase
from desmr_node.runtime.liar import LyingMachine
from desmr_node.runtime.simulation import assemble

HONEST = 6
WARY = FitSpec(edge_force="auto")


@pytest.fixture(scope="module")
def design():
    return simulated_network(np.random.default_rng(3), noise_name="cauchy", m=HONEST + 1, n=150, p=20)


@pytest.fixture(scope="module")
def alone(design):
    """What the honest members end with by themselves: a ring with a chord."""
    sources = [ArrayRows.checked(X, y, "n") for X, y in design.datasets[:HONEST]]
    return reference.fit(sources, Graph.from_edges(HONEST, EDGES), WARY)


EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3)]
LIAR = f"{HONEST:06d}"


def infested(design, attack, spec=WARY):
    """The last member is joined to all others and lies."""
    network = assemble(design.datasets, EDGES + [(j, HONEST) for j in range(HONEST)], spec)
    network.machines[LIAR] = LyingMachine(network.machines[LIAR].setup, 0.0, attack)
    for name in network.machines:
        network.tell(name, ev.Called())
    while not network.at_rest() and network.step():
        pass
    return network


@pytest.mark.parametrize("attack", ["sign-flip", "constant", "noise", "two-faced", "small-bias", "drop-out"])
def test_a_liar_is_left_out_and_nothing_of_it_is_left(design, alone, attack):
    network = infested(design, attack)
    fit = network.result()
    assert fit.left_out == (HONEST,)
    np.testing.assert_allclose(fit.coef[:HONEST], alone.coef, rtol=0, atol=1e-10)
    assert np.isnan(fit.coef[HONEST]).all()
    assert network.machines[LIAR].phase is Phase.FAILED
    assert "went on without this member" in network.machines[LIAR].reason


def test_all_members_report_the_same_members_and_lambda(design):
    network = infested(design, "two-faced")
    keeps = [network.kept[name][-1] for name in network.machines if name != LIAR]
    assert {keep.members for keep in keeps} == {tuple(f"{j:06d}" for j in range(HONEST))}
    assert len({keep.fit.lambda_ for keep in keeps}) == 1
    assert {frozenset(keep.lineage.condemned) for keep in keeps} <= {frozenset({LIAR}), frozenset()}


def test_if_it_is_only_to_be_reported_the_liar_stays_and_is_bounded(design):
    network = infested(design, "sign-flip", WARY.model_copy(update={"suspects": "report"}))
    fit = network.result()
    assert fit.left_out == ()
    suspicions = {network.machines[f"{j:06d}"].suspicion_of(LIAR) for j in range(HONEST)}
    assert suspicions & {"accused", "doubted"}
    assert float(np.abs(fit.coef[:HONEST] - design.coef).max()) < 1.0


def test_honest_members_are_not_left_out(design):
    fit = assemble(design.datasets, design.edges, WARY)
    fit.run()
    assert fit.result().left_out == ()
