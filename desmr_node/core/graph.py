"""The network as a graph: who may talk to whom, how far apart they are, and how hard to pull on an edge."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import index

import numpy as np

from desmr_node.core.arrays import Indices, Matrix
from desmr_node.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Graph:
    """A connected undirected graph without self-loops; node j's neighbours are in ascending order."""

    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def from_edges(cls, m: int, edges: Iterable[Sequence[int]]) -> "Graph":
        """Check the edges and build the graph; an edge may be listed in either or both directions."""
        found: list[set[int]] = [set() for _ in range(m)]
        for edge in edges:
            try:
                j, k = map(index, edge)
            except (TypeError, ValueError):
                raise ConfigError(
                    f"edge {edge!r} must be a pair of whole numbers from 0 to {m - 1}, two nodes: correct it"
                ) from None
            if not (0 <= j < m and 0 <= k < m):
                raise ConfigError(f"edge ({j}, {k}) names a node outside 0..{m - 1}: there are {m} data sets")
            if j == k:
                raise ConfigError(f"edge ({j}, {k}) joins node {j} to itself: remove it")
            found[j].add(k)
            found[k].add(j)
        graph = cls(tuple(tuple(sorted(ks)) for ks in found))
        graph._require_connected()
        return graph

    def _require_connected(self) -> None:
        if not self.neighbours:
            raise ConfigError("the network has no node: give at least one data set")
        reached = self._distances_from(0)
        stranded = [j for j in range(self.size) if j not in reached]
        if stranded:
            some = ", ".join(map(str, stranded[:8])) + (", ..." if len(stranded) > 8 else "")
            raise ConfigError(
                f"the network is not connected: no path from node 0 to node {some}; "
                "add an edge that joins the two parts"
            )

    def _distances_from(self, source: int) -> dict[int, int]:
        distance = {source: 0}
        frontier = [source]
        while frontier:
            reached = []
            for j in frontier:
                for k in self.neighbours[j]:
                    if k not in distance:
                        distance[k] = distance[j] + 1
                        reached.append(k)
            frontier = reached
        return distance

    def without(self, edges: Iterable[tuple[int, int]]) -> "Graph":
        """What is left when these edges are cut, connected or not."""
        cut = {frozenset(edge) for edge in edges}
        return Graph(
            tuple(
                tuple(k for k in ks if frozenset((j, k)) not in cut) for j, ks in enumerate(self.neighbours)
            )
        )

    def largest_part(self) -> tuple[int, ...]:
        """The nodes of its largest connected part, in ascending order."""
        parts, left = [], set(range(self.size))
        while left:
            part = self._distances_from(min(left)).keys()
            parts.append(tuple(sorted(part)))
            left -= part
        return max(parts, key=len)

    def part(self, nodes: Sequence[int]) -> "Graph":
        """The graph on some of the nodes, numbered anew."""
        number = {j: i for i, j in enumerate(nodes)}
        return Graph(tuple(tuple(number[k] for k in self.neighbours[j] if k in number) for j in nodes))

    @property
    def size(self) -> int:
        """Number of nodes, m."""
        return len(self.neighbours)

    @property
    def edge_count(self) -> int:
        """Number of undirected edges."""
        return sum(map(len, self.neighbours)) // 2

    @cache  # noqa: B019  a graph is a small frozen value; a simulated network asks once per node
    def diameter(self) -> int:
        """Hops after which a flooded record has reached everybody."""
        return max(max(self._distances_from(j).values()) for j in range(self.size))

    @cache  # noqa: B019  likewise
    def parents(self) -> Indices:
        """(m, m): [j, w] is from whom w gets what started at j: its smallest neighbour nearer to j."""
        parents = np.full((self.size, self.size), -1)
        for j in range(self.size):
            distance = self._distances_from(j)
            for w, ks in enumerate(self.neighbours):
                if w != j:
                    parents[j, w] = next(k for k in ks if distance[k] < distance[w])
        return parents

    @cache  # noqa: B019  likewise
    def connectivity(self) -> float:
        """Algebraic connectivity: the second smallest eigenvalue of the Laplacian (infinite for one node)."""
        if self.size == 1:
            return float("inf")
        W = self.adjacency()
        return float(np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W)[1])

    @cache  # noqa: B019  likewise
    def flows(self) -> Matrix:
        """(m, m): what an edge carries, as a standard deviation, when members are apart by one each.

        The duals of consensus are a flow that takes every member's deviation to all the others; the one that
        the iteration ends with is a potential's, u_jk = phi_j - phi_k with phi = L+ delta.
        """
        if self.size == 1:
            return np.zeros((1, 1))
        W = self.adjacency()
        inverse = np.linalg.pinv(np.diag(W.sum(axis=1)) - W, hermitian=True)
        flows: Matrix = W * np.linalg.norm(inverse[:, None, :] - inverse[None, :, :], axis=2)
        return flows

    def adjacency(self) -> Matrix:
        """The m x m 0/1 matrix W of the paper."""
        W = np.zeros((self.size, self.size))
        for j, ks in enumerate(self.neighbours):
            W[j, list(ks)] = 1.0
        return W


def contraction(graph: Graph, tau: float) -> float:
    """Asymptotic error factor of one consensus ADMM round when all nodes have the same curvature.

    With G_j = M the update decouples into one scalar problem per coordinate,

        u <- u + tau (D - W) b,      b <- (I + 2 tau D)^-1 (c - u + tau (D + W) b),

    a linear map on (b, u) whose eigenvalue 1 (sum of the duals, which is conserved) plays no part.
    """
    W = graph.adjacency()
    D = np.diag(W.sum(axis=1))
    m = graph.size
    inverse = np.diag(1.0 / (1.0 + 2.0 * tau * np.diag(D)))
    step = np.block([[inverse @ (2.0 * tau * W), -inverse], [tau * (D - W), np.eye(m)]])
    # The conserved mode is removed by deflating its left eigenvector (0, 1): sum(u) stays what it was.
    conserved = np.concatenate([np.zeros(m), np.ones(m)])
    fixed_point = np.concatenate([-np.ones(m), np.ones(m)]) / m
    return float(np.abs(np.linalg.eigvals(step - np.outer(fixed_point, conserved))).max())


@cache  # a simulated network asks once per node
def penalty_parameter(graph: Graph, max_lag: int = 0) -> float:
    """Twice the tau that contracts fastest in the homogeneous model of `contraction`, to two digits.

    Members whose curvatures differ want a firmer pull than the model says: on the crime data the distance to
    the pooled solution after 250 rounds is 1e-5 at the model's optimum, 6e-8 at twice that, 1e-9 at three
    times and 1e-7 at five times; on the simulated designs all but the last do equally well. Every node knows
    the whole graph after its first network sum, so all compute the same value; two digits are all the
    optimum is worth and keep the value independent of the linear algebra library.

    Vectors that lag want a softer pull: with max_lag = 2 the loop diverges at the lock-step value and
    converges at a quarter of it, with 3 it needs less than a sixth.
    """
    if graph.size == 1:
        return 1.0
    # Large networks: the eigenvalue problem is 2m x 2m and the optimum is flat, so a coarse search will do.
    # The optimum falls like 1/m for complete graphs and grows like m for paths.
    candidates = np.geomspace(0.002, 20.0, 81 if graph.size <= 50 else 25)
    rates = [contraction(graph, float(tau)) for tau in candidates]
    return float(f"{2.0 * candidates[int(np.argmin(rates))] / max(max_lag, 1) ** 2:.1e}")
