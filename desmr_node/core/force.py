"""How hard one edge may pull: a box on its dual, and what the box sees of the neighbour at the other end.

Plain consensus gives a neighbour that lies all the force it wants: the dual u_jk adds up whatever differs.
Here each edge has a price, and the members minimise

    sum_j F_j(b_j) + pen_j(b_j)  +  sum over edges  c_jk || R (b_j - b_k) ||_1,       R'R = M,

an exact penalty (total variation over the graph): its dual w_jk = R u_jk lives in the box |w_jk| <= c_jk, and
as long as the duals of the constrained problem fit the box, both problems have the same solution. With the
duals of two rounds the update is that of `core.admm`, which is the primal-dual iteration of Condat and Vu:

    w_jk <- clip(w_jk + tau R (b_j - b_k), -c_jk, c_jk),

and a neighbour's vector is read as if it were the one that takes the dual just as far as it may go. Nothing
else changes, and nothing at all where nothing is clipped. Both ends clip alike, as the box is symmetric.

How large honest duals are is known beforehand. At the fit sum_k M u_jk = -(gradient of F_j), whose rows
psi(r) x / (f N) have the variance q (1 - q) / f^2 whatever the noise is, so R^-T times it is about normal,
of standard deviation sigma / sqrt(N) in every direction, sigma = sqrt(q (1 - q)) / f; and an edge carries
what the graph sends over it (`Graph.flows`). In these units honest duals were measured at 5 at most on data
drawn alike, 8 where members differ as the nine divisions do, 10 where they have other noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from desmr_node.core.arrays import Mask, Matrix, Vector
from desmr_node.core.quadratic import Quadratic
from desmr_node.errors import DataError

#: Half the side of the box, in standard deviations of an honest dual.
AUTO = 10.0
#: The first outer round takes all pilots to one place, and those of poisoned rows come from far away.
_FIRST_ROUND = 2.0
#: In the first steps of the first outer round a dual is divided by this: members come together from far away,
#: and who only says old things, or leans on the crowd, would keep what it gained. Later steps are exact. All
#: ten steps would cost honest fits up to a quarter more rounds, five cost none.
_LEAK, _LEAKING = 1.25, 5
#: The unit follows the agreed density, which falls when a liar drives the residuals apart: only so far.
_MOST_GROWTH = 8.0
#: A pilot this far from its neighbours' median (root mean square, in units) begins at that median instead.
_ASTRAY = 10.0
#: No difference is taken for larger than this: products of such numbers stay numbers.
_HUGE = 1e100

#: What an honest member's edges do not show after the first outer round: `excess` was measured at 101 at most
#: (for one round, on the worst of poisoned rows; without such rows at 7), `load` at 4.4. See
#: docs/decisions/0015-members-that-lie.md.
_GLARING_EXCESS, _DOUBTFUL_EXCESS, _DOUBTFUL_LOAD = 200.0, 75.0, 7.0
#: Enough to believe another member that has stronger evidence.
_UNEASY_EXCESS, _UNEASY_LOAD = 20.0, 5.0
#: A liar pulls honest neighbours along: next to it their edges look small.
_BESIDE_THE_WORST = 0.5
#: An edge that shows this, and twice as much as any other of its member, stands out. Of honest edges, those
#: of poisoned rows included, none did for more than three rounds in a row, the first one counted.
_NOTICED_EXCESS, _STANDS_OUT, _LONG_STREAK = 9.0, 2.0, 4
#: The part of the coordinates that must show an excess: one alone may be a constant that differs.
_SHARE = 0.03
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What a member holds of its neighbours after an outer round, by their places among the members.

    ``accused`` seem to lie, and are left out if ``drop`` says so; of ``doubted`` it is not sure, and of
    ``uneasy`` it would believe others.
    """

    accused: frozenset[int] = frozenset()
    doubted: frozenset[int] = frozenset()
    uneasy: frozenset[int] = frozenset()
    drop: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an edge shows at the end of an outer round, in standard deviations of an honest dual.

    ``excess`` is where the dual would be by now without the box, in the third percent of the coordinates that
    is furthest out; ``load`` the root mean square of where it is.
    """

    excess: float
    load: float

    @property
    def doubtful(self) -> bool:
        """More than honest members show. A full box alone is not: a pull that is passed on fills it, too."""
        beyond = self.load >= _DOUBTFUL_LOAD and self.excess >= _UNEASY_EXCESS
        return beyond or self.excess >= _DOUBTFUL_EXCESS

    @property
    def uneasy(self) -> bool:
        """Enough to believe others who have more."""
        return self.excess >= _UNEASY_EXCESS or self.load >= _UNEASY_LOAD


def standing_out(seen: Sequence[Evidence], streaks: Sequence[int]) -> tuple[int, ...]:
    """For how many rounds in a row each edge has shown far more than all others of this member."""
    largest = sorted((evidence.excess for evidence in seen), reverse=True)
    if len(largest) < 2:
        return (0,) * len(largest)  # nothing to compare with
    found = []
    for i, evidence in enumerate(seen):
        others = largest[1] if evidence.excess == largest[0] else largest[0]
        lonely = evidence.excess >= max(_NOTICED_EXCESS, _STANDS_OUT * others)
        found.append((streaks[i] if streaks else 0) + 1 if lonely else 0)
    return tuple(found)


def doubted(seen: Sequence[Evidence]) -> frozenset[int]:
    """The edges, by position, whose other ends seem to lie, as far as one outer round can tell."""
    worst = max((evidence.excess for evidence in seen), default=0.0)
    return frozenset(i for i, e in enumerate(seen) if e.doubtful and e.excess >= _BESIDE_THE_WORST * worst)


def accused(
    seen: Sequence[Evidence], before: frozenset[int], streaks: Sequence[int] = (), *, last: bool
) -> frozenset[int]:
    """Those who are held to lie: at once if it is glaring, else in two rounds or in the last one.

    Less is enough from one that has stood out alone ever since (``streaks``). Whoever is at odds with most of
    its neighbours may be the odd one itself, or may have been carried off by liars around it: it accuses
    nobody, but believes others (`Evidence.uneasy`).
    """
    found = {i for i in doubted(seen) if last or i in before or seen[i].excess >= _GLARING_EXCESS}
    found |= {i for i, streak in enumerate(streaks) if streak >= _LONG_STREAK - last}
    return frozenset(found) if 2 * len(found) <= len(seen) else frozenset()


def _change(own: Matrix, received: Matrix, tau: float) -> Matrix:
    """What the vectors add to the duals."""
    with np.errstate(over="ignore"):  # a finite number is all that the codec promises
        difference = own - received
    return tau * np.clip(difference, -_HUGE, _HUGE)


def _read(moved: Matrix, own: Matrix, received: Matrix, tau: float, out: Mask) -> Matrix:
    """Vectors that would have taken the duals just as far as they went."""
    return np.where(out, own - moved / tau, received) if out.any() else received


class EdgeForce:
    """The boxes of a member's edges, in the order of its neighbours: d edges, p coefficients, L lambdas."""

    def __init__(self, metric: Quadratic, flows: Vector, strength: float) -> None:
        try:
            self.root: Matrix = np.ascontiguousarray(cholesky(metric.block(np.arange(metric.order))))
        except np.linalg.LinAlgError:
            raise DataError(
                "the members' Gram matrices do not add up to a positive definite matrix: one of them adds "
                "what no rows can give, and a masked sum does not say which"
            ) from None
        self._flows, self._strength = flows[:, None, None], strength
        #: The smallest unit so far, which bounds later ones.
        self.least = np.inf
        self._unit = self._bound = np.zeros_like(self._flows)
        #: For how many steps each edge still leaks.
        self._leaking = np.zeros(len(flows), dtype=np.int64)
        #: The duals as they are in the box, and as they would be without it since the round began.
        self._whitened = self._free = np.zeros((len(flows), metric.order, 0))

    def open(self, deviation: float, duals: Matrix, *, first: bool) -> Matrix:
        """A new outer round: boxes for coefficients of this deviation, and the duals put into them."""
        self.least = min(self.least, deviation)
        self._unit = min(deviation, _MOST_GROWTH * self.least) * self._flows
        self._bound = self._strength * (_FIRST_ROUND if first else 1.0) * self._unit
        self._free = self.root @ duals
        self._leaking[:] = 0
        inside, self._whitened, _ = self._put(self._free, duals, _ALL)
        self._leaking[:] = _LEAKING if first else 0
        return inside

    def limit(
        self, duals: Matrix, own: Matrix, received: Matrix, tau: float, edges: slice = _ALL
    ) -> tuple[Matrix, Matrix]:
        """The duals after these vectors, (d, p, L) each, and the vectors as they may be read."""
        change = _change(own, received, tau)
        step = self.root @ change
        self._free[edges] += step
        after, self._whitened[edges], out = self._put(self._whitened[edges] + step, duals + change, edges)
        self._leaking[edges] -= 1
        return after, _read(after - duals, own, received, tau, out)

    def foresee(self, duals: Matrix, own: Matrix, received: Matrix, tau: float) -> Matrix:
        """Vectors whose round is not matched yet, read as if it were: for neighbours that lag."""
        change = _change(own, received, tau)
        after, _, out = self._put(self._whitened + self.root @ change, duals + change, _ALL)
        return _read(after - duals, own, received, tau, out)

    def _put(self, whitened: Matrix, duals: Matrix, edges: slice) -> tuple[Matrix, Matrix, Mask]:
        """Into the box: duals, the same whitened, and which columns were moved. Others keep their bits."""
        bound = self._bound[edges]
        leaks: Mask = (self._leaking[edges] > 0)[:, None, None]
        if leaks.any():
            factor = np.where(leaks, _LEAK, 1.0)
            whitened, duals = whitened / factor, duals / factor
        clipped = np.clip(whitened, -bound, bound)
        out: Mask = (clipped != whitened).any(axis=1, keepdims=True)
        if out.any():
            inside = np.stack([solve_triangular(self.root, w, check_finite=False) for w in clipped])
            duals = np.where(out, inside, duals)
        return duals, clipped, out | leaks

    def evidence(self) -> tuple[Evidence, ...]:
        """What each edge shows, at the worst of the lambdas."""
        free = np.abs(self._free) / self._unit
        rank = min(max(2, int(np.ceil(_SHARE * free.shape[1]))), free.shape[1])
        excess = np.sort(free, axis=1)[:, -rank].max(axis=1)
        load = np.sqrt(np.mean(np.square(self._whitened / self._unit), axis=1)).max(axis=1)
        return tuple(Evidence(float(e), float(w)) for e, w in zip(excess, load, strict=True))

    def astray(self, own: Vector, theirs: Matrix) -> Vector | None:
        """Where to begin instead of one's own pilot (p,), if that is far from all neighbours' (d, p).

        A surrogate is a quadratic: a pilot of poisoned rows would pull the first round by its distance, and
        the box would hold it where it is for long. From among the others the median's bounded pull counts.
        With a single neighbour nobody can tell which of the two is far away.
        """
        if len(theirs) < 2:
            return None
        middle: Vector = np.median(np.concatenate([theirs, own[None]]), axis=0)
        unit = float(np.max(self._unit / self._flows))
        away = self.root @ np.clip(own - middle, -_HUGE, _HUGE) / unit
        return middle if np.sqrt(np.mean(np.square(away))) > _ASTRAY else None
