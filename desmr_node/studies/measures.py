"""How good an estimate is, when the truth is known: the paper's measures, a mean over nodes each."""

from dataclasses import dataclass

import numpy as np

from desmr_node.core.arrays import Mask, Matrix, Vector


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the nodes hold at the end: coefficients (m, p), and which of them each holds to be nonzero.

    ``rounds`` counts the rounds in which neighbours exchange vectors; 0 for a fit without a network.
    """

    coef: Matrix
    support: Mask
    rounds: int = 0

    @classmethod
    def exact(cls, coef: Matrix, rounds: int = 0) -> "Estimate":
        """An estimate with zeros of its own; one row for each node, or one for all."""
        coef = np.atleast_2d(coef)
        return cls(coef, coef != 0, rounds)


def l2_error(coef: Matrix, truth: Vector) -> float:
    """Mean over nodes of ||b_j - b*||: the paper writes a sum of squares, its tables hold this."""
    return float(np.linalg.norm(coef - truth, axis=1).mean())


def accuracy(estimate: Estimate, truth: Vector) -> dict[str, float]:
    """l2-error, recall, precision and F1-score, and the rounds it took."""
    true = truth != 0
    hits = np.count_nonzero(estimate.support & true, axis=1)
    found = np.count_nonzero(estimate.support, axis=1)
    return {
        "l2_error": l2_error(estimate.coef, truth),
        "recall": float(np.mean(hits / np.count_nonzero(true))),
        "precision": float(np.mean(hits / np.maximum(found, 1))),
        "f1": float(np.mean(2.0 * hits / (found + np.count_nonzero(true)))),
        "rounds": float(estimate.rounds),
    }
