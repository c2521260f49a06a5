"""What one member adds to each network sum. Only the totals are ever read, by anyone.

The sums of a fit, in order: `Moments`, `Spreads`, `Start`, one `Report` per outer round, `Ballot`, `Closing`.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from desmr_node.core.arrays import Matrix, Vector

#: |y - its local median|, by octave: 2**-128 to 2**128, zeros in the first bin.
RESPONSE_OCTAVES = 257


@dataclass(frozen=True, slots=True)
class Contribution:
    """Arrays that are summed over the network field by field."""

    @classmethod
    def total(cls, parts: list[Self]) -> Self:
        """The network sum, in ascending order of the nodes."""
        sums = {f.name: np.array(getattr(parts[0], f.name)) for f in fields(cls)}
        for part in parts[1:]:
            for name, total in sums.items():
                total += getattr(part, name)
        return cls(**sums)

    def numbers(self) -> int:
        """How many numbers a member sends."""
        return sum(int(np.size(getattr(self, f.name))) for f in fields(self))


@dataclass(frozen=True, slots=True)
class Moments(Contribution):
    """First look at the rows: their number, column sums, and the response's deviations by powers of two."""

    rows: Vector
    sums: Vector
    response_octaves: Vector


def response_octaves(y: Vector) -> Vector:
    """Histogram of |y - median of y| by powers of two."""
    deviations = np.abs(y - np.median(y))
    if not deviations.any():  # one row, or all alike: only its size is left to go by
        deviations = np.abs(y)
    _, exponent = np.frexp(deviations)
    code = np.where(deviations > 0, np.clip(exponent + RESPONSE_OCTAVES // 2, 1, RESPONSE_OCTAVES - 1), 0)
    return np.bincount(code, minlength=RESPONSE_OCTAVES).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Spreads(Contribution):
    """Sums of squares of each column about the agreed centre."""

    squares: Vector


@dataclass(frozen=True, slots=True)
class Start(Contribution):
    """Where the fit begins.

    ``variances`` is the diagonal of G and ``gram`` all of it (empty unless the metric is pooled), ``pilot``
    the member's pilot times its weight, ``counts`` the histogram of its |residuals|, ``linear`` the linear
    term of least squares (zero for the check loss).
    """

    variances: Vector
    gram: Matrix
    pilot: Vector
    counts: Vector
    linear: Vector


@dataclass(frozen=True, slots=True)
class Report(Contribution):
    """What an outer round did, for each of the L candidate lambdas.

    Means over rows: ``check`` loss and ``squares`` of the surrogate's residuals, both corrected for lack of
    consensus. Sums over members: ``votes`` (p, L) for a coefficient being nonzero, ``penalty`` now and
    ``penalty_before`` at the same level. Squared lengths in the norm of the fitted values: ``moved`` since
    the last settled fit, ``disagreement`` with the neighbours' mean and ``edges``, summed over the edges (the
    primal residual), ``changed`` in the last ADMM round (the dual residual). ``counts``: histograms of
    |residual|, one column per candidate.
    """

    check: Vector
    squares: Vector
    votes: Matrix
    penalty: Vector
    penalty_before: Vector
    moved: Vector
    disagreement: Vector
    edges: Vector
    changed: Vector
    counts: Matrix


@dataclass(frozen=True, slots=True)
class Ballot(Contribution):
    """Votes for the support of the settled fit, and the settled fit times the member's weight."""

    votes: Vector
    mean: Vector


@dataclass(frozen=True, slots=True)
class Closing(Contribution):
    """Loss of the members' mean on the agreed support, and of the common start: one model each."""

    loss: Vector
    loss_at_start: Vector


@dataclass(frozen=True, slots=True)
class Evaluation(Contribution):
    """Errors on the hold-out rows: their number, sum of absolute errors and of squares, in units of the
    response's scale.
    """

    count: Vector
    absolute: Vector
    squares: Vector
