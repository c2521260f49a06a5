"""Fit a whole network in one process: the statistician's entry point."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from desmr_node.core import reference
from desmr_node.core.fit import NetworkFit
from desmr_node.core.graph import Graph
from desmr_node.core.rows import ArrayRows
from desmr_node.core.spec import FitSpec
from desmr_node.errors import ConfigError, DataError

_DEFAULT = FitSpec()


def simulate(
    datasets: Sequence[tuple[ArrayLike, ArrayLike]],
    edges: Iterable[Sequence[int]],
    spec: FitSpec = _DEFAULT,
    *,
    seed: int = 0,
) -> NetworkFit:
    """Fit one sparse model over rows held by several nodes, as the nodes of a network would.

    Parameters
    ----------
    datasets : one ``(X, y)`` per node: X is (n_j, p), y is (n_j,); arrays of any kind, memory-mapped included
    edges : pairs of node indices; the graph must be connected
    spec : what to fit and how; the default is a SCAD-penalised median regression with lambda chosen
    seed : of the random numbers that scale the pilots' penalty; the same seed gives the same fit

    Returns
    -------
    NetworkFit, in the data's own units.

    Raises
    ------
    DataError, ConfigError
        Naming the node, row, column or setting, and what to do about it.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((3, 80, 5))
    >>> y = X @ [2.0, 0.0, 0.0, -1.0, 0.0] + rng.standard_cauchy((3, 80))
    >>> fit = simulate([(X[j], y[j]) for j in range(3)], [(0, 1), (1, 2)])
    >>> fit.converged, np.flatnonzero(fit.support)
    (True, array([0, 3]))
    """
    if not isinstance(spec, FitSpec):
        raise ConfigError(f"spec is a {type(spec).__name__}: pass a FitSpec, e.g. FitSpec(penalty='l1')")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed is {seed!r}: pass a whole number, 0 or more")
    if not isinstance(datasets, Sequence):
        raise DataError(f"datasets is a {type(datasets).__name__}: pass a list with a pair (X, y) per node")
    sources = []
    for j, pair in enumerate(datasets):
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise DataError(f"node {j}: expected a pair (X, y), got {type(pair).__name__}")
        sources.append(ArrayRows.checked(pair[0], pair[1], f"node {j}"))
    if not isinstance(edges, Iterable):
        raise ConfigError(f"edges is a {type(edges).__name__}: pass a list of pairs of node numbers")
    graph = Graph.from_edges(len(sources), edges)
    for j, rows in enumerate(sources):
        if rows.columns != sources[0].columns:
            raise DataError(
                f"node {j} has {rows.columns} columns and node 0 has {sources[0].columns}: "
                "all nodes must have the same columns in the same order"
            )
    return reference.fit(sources, graph, spec, int(seed))
