"""Where the nodes of a picture go: as far apart as they are in hops, no box on another or on an edge.

Lengths are in points. The same network always gives the same places: nothing is random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import shortest_path

from desmr_node.core.arrays import Indices, Matrix, Vector
from desmr_node.core.graph import Graph

#: White space around a box, towards other boxes and towards edges that are not its own.
GAP = 9.0
#: What is seen of an edge between two boxes of the usual width; less, if the picture would become too wide.
_SEEN, _LEAST_SEEN = 60.0, 12.0
#: With more than this share of all possible edges, a circle is the clearest: no node can lie on an edge.
_DENSE = 0.6
#: Rounds of stress majorisation and of making room; both mostly end long before.
_MOST_ROUNDS = 500
#: With more edges than this the picture is a thicket, and nobody sees which edge crosses what.
_THICKET = 600


@dataclass(frozen=True, slots=True)
class Boxes:
    """Half widths and half heights of the nodes' boxes, (m, 2)."""

    half: Matrix

    def overlaps(self, places: Matrix, gap: float = 0.0) -> tuple[Indices, Indices, Matrix]:
        """Pairs (j, k) of boxes nearer than ``gap``, and by how much in x and in y."""
        j, k = np.triu_indices(len(places), 1)
        excess = self.half[j] + self.half[k] + gap - np.abs(places[j] - places[k])
        found = np.flatnonzero((excess > 1e-9).all(axis=1))
        return j[found], k[found], excess[found]

    def crossed(
        self, places: Matrix, edges: Indices, gap: float = 0.0
    ) -> tuple[Indices, Indices, Matrix, Vector]:
        """Boxes that an edge of others passes behind: (edge, box, way out as a unit vector, how far)."""
        a, b = places[edges[:, 0]], places[edges[:, 1]]
        along = b - a
        length = np.maximum(np.hypot(*along.T), 1e-9)
        normal = np.column_stack([-along[:, 1], along[:, 0]]) / length[:, None]
        offset = places[None] - a[:, None]  # (edges, nodes, 2)
        side = np.einsum("end,ed->en", offset, normal)
        depth = np.abs(normal) @ self.half.T + gap - np.abs(side)
        # Beyond its ends an edge is in nobody's way: compare the extents, as with two boxes.
        middle = np.abs(places[None] - ((a + b) / 2)[:, None])
        beside = (middle < self.half[None] + gap + np.abs(along / 2)[:, None]).all(axis=2)
        own = np.zeros_like(beside)
        own[np.arange(len(edges))[:, None], edges] = True
        e, n = np.nonzero(beside & ~own & (depth > 1e-9))
        out = normal[e] * np.where(side[e, n] >= 0, 1.0, -1.0)[:, None]
        return e, n, out, depth[e, n]


def place(graph: Graph, half: Matrix, listed: Sequence[int]) -> Matrix:
    """Centres of the boxes, (m, 2), y upwards; ``half`` are their half widths and heights.

    A layout is free to turn and to be mirrored. The long way of the network lies across the page, the node
    listed first is on the right and above; if it is at half height, those listed early are above.
    """
    if graph.size == 1:
        return np.zeros((1, 2))
    distances = np.asarray(shortest_path(graph.adjacency(), unweighted=True))
    edges = np.array([(j, k) for j, ks in enumerate(graph.neighbours) for k in ks if j < k])
    circle = _circle(listed)
    candidates = [circle]
    if len(edges) <= _DENSE * graph.size * (graph.size - 1) / 2 or graph.size < 4:
        candidates = [
            _relaxed(distances, distances.max() / 2 * circle),
            _relaxed(distances, _classical(distances) + 1e-3 * circle),  # the circle parts twins
        ]
    boxes = Boxes(half)
    best = None
    # The second must be clearly better than the first, which keeps the order of the list (think of a star).
    for candidate, handicap in zip(candidates, (1.0, 1.2), strict=False):
        x = _apart(_scaled(_oriented(candidate, listed), edges, boxes), edges, boxes)
        hidden = len(boxes.crossed(x, edges)[0])
        cost = (hidden, _crossings(x, edges), handicap * _misfit(distances, x))
        if best is None or cost < best[0]:
            best = cost, x
    assert best is not None
    places = best[1]
    return np.asarray(places - (places.max(axis=0) + places.min(axis=0)) / 2)


# --- the shape ------------------------------------------------------------------------------------------


def _circle(listed: Sequence[int]) -> Matrix:
    """A unit circle in the order of the list, clockwise from the top."""
    angles = np.empty(len(listed))
    angles[list(listed)] = 2 * np.pi * np.arange(len(listed)) / len(listed)
    return np.column_stack([np.sin(angles), np.cos(angles)])


def _classical(distances: Matrix) -> Matrix:
    """Classical scaling: the plane in which squared distances are kept best."""
    m = len(distances)
    centring = np.eye(m) - 1 / m
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)
    return np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))


def _relaxed(distances: Matrix, places: Matrix) -> Matrix:
    """Stress majorisation, sum (|x_j - x_k| - d_jk)^2 / d_jk^2: each round solves a convex majorant."""
    weights = _weights(distances)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    before = np.inf
    for _ in range(_MOST_ROUNDS):
        stress = _stress(distances, places)
        if stress >= before * (1 - 1e-6):
            break
        before = stress
        pull = -weights * distances / np.maximum(_lengths(places), 1e-9)
        np.fill_diagonal(pull, 0.0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        places = inverse @ pull @ places
    return places


def _weights(distances: Matrix) -> Matrix:
    one = np.eye(len(distances))
    return np.asarray(1.0 / (distances + one) ** 2 - one)


def _lengths(places: Matrix) -> Matrix:
    return np.asarray(np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)))


def _stress(distances: Matrix, places: Matrix) -> float:
    return float((_weights(distances) * (_lengths(places) - distances) ** 2).sum())


def _misfit(distances: Matrix, places: Matrix) -> float:
    """The stress at the best of all scales."""
    weights, lengths = _weights(distances), _lengths(places)
    scale = float((weights * distances * lengths).sum() / (weights * lengths**2).sum())
    return _stress(distances, scale * places)


def _oriented(places: Matrix, listed: Sequence[int]) -> Matrix:
    """Turned and mirrored by the rule of `place`."""
    places = places - places.mean(axis=0)
    _, (long, short), axes = np.linalg.svd(places, full_matrices=False)
    first = places[listed[0]]
    if short > 0.95 * long and np.hypot(*first) > 1e-9:  # as wide as high: the first node goes to the top
        up = first / np.hypot(*first)
        axes = np.array([[up[1], -up[0]], up])
    places = places @ axes.T
    right, above = places[listed[0]]
    if abs(above) < 0.1 * np.ptp(places[:, 1]):
        early = (len(listed) - 1) / 2 - np.arange(len(listed))
        above = early @ places[list(listed), 1]
    return places * [-1.0 if right < 0 else 1.0, -1.0 if above < 0 else 1.0]


# --- room for the boxes ---------------------------------------------------------------------------------


def _width(m: int) -> float:
    return 500.0 + 3.0 * min(m, 80)


def _scaled(places: Matrix, edges: Indices, boxes: Boxes) -> Matrix:
    """Edges of a comfortable length, or the whole as wide as the page if enough is seen of them then."""
    edge = max(float(np.hypot(*(places[edges[:, 0]] - places[edges[:, 1]]).T).mean()), 1e-9)
    page = _width(len(places)) / max(float(np.ptp(places[:, 0])), 1e-9)
    box = 2 * float(boxes.half[:, 0].mean())
    return places * min(max(page, (box + _LEAST_SEEN) / edge), (box + _SEEN) / edge)


def _apart(places: Matrix, edges: Indices, boxes: Boxes) -> Matrix:
    """Boxes pushed off each other and off the edges of others, a little at a time; wider if that fails."""
    places = places.copy()
    edges = edges if len(edges) <= _THICKET else edges[:0]
    for _ in range(_MOST_ROUNDS):
        j, k, excess = boxes.overlaps(places, GAP)
        e, n, out, depth = boxes.crossed(places, edges, GAP / 2)
        if not len(j) and not len(e):
            break
        shift = np.zeros_like(places)
        axis = np.argmin(excess, axis=1)  # the short way out
        pair = np.arange(len(j))
        sign = np.where(places[j, axis] >= places[k, axis], 1.0, -1.0)
        push = 0.5 * sign * excess[pair, axis]
        np.add.at(shift, (j, axis), push)
        np.add.at(shift, (k, axis), -push)
        step = 0.25 * depth[:, None] * out
        np.add.at(shift, n, step)
        np.add.at(shift, edges[e].ravel(), np.repeat(-step / 2, 2, axis=0))
        places += 0.5 * np.clip(shift, -20.0, 20.0)
    while len(boxes.overlaps(places, GAP / 2)[0]):
        places *= 1.05
    return places


def _crossings(places: Matrix, edges: Indices) -> int:
    """Pairs of edges that cross."""
    if len(edges) > _THICKET:
        return 0
    e, f = np.triu_indices(len(edges), 1)
    a, b, c, d = (places[edges[x, end]] for x in (e, f) for end in (0, 1))

    def turn(p: Matrix, q: Matrix, r: Matrix) -> Vector:
        u, v = q - p, r - p
        return np.asarray(np.sign(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]))

    cross = (turn(a, b, c) * turn(a, b, d) < 0) & (turn(c, d, a) * turn(c, d, b) < 0)
    shared = (edges[e][:, :, None] == edges[f][:, None, :]).any(axis=(1, 2))
    return int((cross & ~shared).sum())
