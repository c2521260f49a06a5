"""What a member says that lies about its coefficients: the attacks of `desmr study liars`.

A liar follows the protocol but for the vectors it sends, and knows what its neighbours said last. Poisoned
rows are another matter: see the attacker in `datasets.crime`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from desmr_node.core.arrays import Matrix

#: A vector of the old rounds that `replay` says again.
_OLD = 5
#: Part of a standard deviation of its neighbours' vectors by which `hidden-bias` stays beside their mean. For
#: one liar among eleven the rule of Baruch, Baruch and Goldberg (2019) gives zero: this is more.
_HIDDEN = 0.25


class Liar:
    """One lying member. ``coalition`` seeds what liars have agreed on between them."""

    def __init__(self, attack: str, seed: int, coalition: int = 0) -> None:
        self._say = ATTACKS[attack]
        self.rng = np.random.default_rng([seed, 1])
        self.coalition = coalition
        #: What the neighbours said last, the mean of it, and the means of the last rounds.
        self.heard: Sequence[Matrix] = ()
        self.mean: Matrix = np.zeros((0, 0))
        self.past: deque[Matrix] = deque(maxlen=_OLD)

    def hear(self, vectors: Sequence[Matrix]) -> None:
        """The neighbours' vectors of a round, in their order."""
        if self.past and self.past[-1].shape != vectors[0].shape:
            self.past.clear()
        self.heard, self.mean = vectors, np.mean(vectors, axis=0)
        self.past.append(self.mean)

    def say(self, honest: Matrix, to: int) -> Matrix:
        """What the neighbour in this place is told instead of the honest vector."""
        if self.mean.shape != honest.shape:  # nothing was heard yet, or of another number of lambdas
            self.heard, self.mean = (honest,), honest
            self.past.clear()
            self.past.append(honest)
        return np.ascontiguousarray(self._say(self, to))


def _noise(liar: Liar, to: int) -> Matrix:
    return liar.rng.normal(0.0, 10.0, liar.mean.shape)


def _two_faced(liar: Liar, to: int) -> Matrix:
    return np.full_like(liar.mean, 50.0 if to % 2 else -50.0)


def _drop_out(liar: Liar, to: int) -> Matrix:
    return liar.mean if liar.rng.random() < 0.5 else np.zeros_like(liar.mean)


def _collusion(liar: Liar, to: int) -> Matrix:
    model = np.random.default_rng([liar.coalition, 2]).normal(0.0, 3.0, (len(liar.mean), 1))
    return np.repeat(model, liar.mean.shape[1], axis=1)


#: Each from what the liar knows, and the place of the neighbour that is told.
ATTACKS: Mapping[str, Callable[[Liar, int], Matrix]] = {
    "sign-flip": lambda liar, to: -3.0 * liar.mean,
    "constant": lambda liar, to: np.full_like(liar.mean, 100.0),
    "noise": _noise,
    "two-faced": _two_faced,
    "small-bias": lambda liar, to: liar.mean + 0.1,
    "hidden-bias": lambda liar, to: liar.mean - _HIDDEN * np.std(liar.heard, axis=0),
    "replay": lambda liar, to: liar.past[0],
    "copy": lambda liar, to: liar.heard[0],
    "drop-out": _drop_out,
    "collusion": _collusion,
}
MEANINGS: Mapping[str, str] = {
    "sign-flip": "minus three times its neighbours' mean",
    "constant": "100 for every coefficient",
    "noise": "normal noise of deviation 10, another for everybody",
    "two-faced": "50 to every other neighbour, -50 to the rest",
    "small-bias": "the neighbours' mean, 0.1 added to every coefficient: four standard errors",
    "hidden-bias": "the neighbours' mean less a quarter of their standard deviation, in every coefficient",
    "replay": "the neighbours' mean of five rounds ago",
    "copy": "the vector of its first neighbour",
    "drop-out": "the neighbours' mean, or in half of the rounds zeros",
    "collusion": "a model that liars have agreed on, another one in every network",
}
