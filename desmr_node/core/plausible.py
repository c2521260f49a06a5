"""What a total can be, if every member adds only what its rows can give: checked where members may lie.

Masked sums show nothing of a member but its part in the total. So a lie in a sum cannot be laid at anybody's
door; but a total that no rows could have given ends the fit, and within what is possible a liar's part is
bounded: by the numbers of rows that members declared when they joined, a histogram that has to add up to
them, votes of one each, losses cut off per row.
"""

from collections.abc import Sequence

import numpy as np

from desmr_node.core.arrays import Matrix, Vector
from desmr_node.core.contributions import Ballot, Moments, Report, Start
from desmr_node.errors import DesmrError

#: No member counts for more rows than this many times the median of what members declare.
MOST_OF_MEDIAN = 10.0
#: For how large a residual a row counts at most when lambdas are judged, in units of the response's spread.
#: The same in every round: losses of two rounds are compared.
MOST_RESIDUAL = 1024.0
#: Rounding of totals, relative to their size.
_ROUNDING = 1e-6


class Implausible(DesmrError):  # noqa: N818 - says what it is
    """A total that honest members cannot have added up to."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Implausible(
            f"{what}: a member adds to the network's sums what its rows cannot give; a masked sum does not "
            "say which, so begin again without those you trust least"
        )


def largest_count(declared: Sequence[int]) -> float:
    """For how many rows a member counts at most."""
    return MOST_OF_MEDIAN * float(np.median(declared))


def _is_count(values: Vector | Matrix, total: float) -> bool:
    """Counts of `total` rows, in each column."""
    sums = np.sum(values, axis=0)
    return bool(np.all(values >= -_ROUNDING * total) and np.allclose(sums, total, rtol=_ROUNDING, atol=0.0))


def check_moments(moments: Moments, declared: Sequence[int]) -> None:
    """As many rows as were declared, each with one response."""
    rows = float(sum(declared))
    _require(float(moments.rows) == rows, f"{float(moments.rows):.0f} rows, and {rows:.0f} were declared")
    _require(_is_count(moments.response_octaves, rows), "the histogram of responses does not count all rows")


def check_start(start: Start, rows: float) -> None:
    """Variances that can be, and every row's residual counted."""
    _require(bool(np.all(start.variances >= 0.0)), "a variance is negative")
    if start.gram.size:
        agree = np.allclose(np.diagonal(start.gram), start.variances, rtol=_ROUNDING, atol=_ROUNDING)
        _require(bool(agree), "variances and Gram matrix do not agree")
        bound = np.sqrt(np.outer(start.variances, start.variances)) * (1.0 + _ROUNDING) + _ROUNDING
        _require(bool(np.all(np.abs(start.gram) <= bound)), "a correlation is larger than one")
    _require(_is_count(start.counts, rows), "the histogram of the pilots' residuals does not count all rows")


def check_report(report: Report, rows: float, members: int) -> None:
    """Every row's residual counted, a vote for each member, no negative length."""
    _require(_is_count(report.counts, rows), "the histogram of residuals does not count all rows")
    _require(_are_votes(report.votes, members), "more votes for a coefficient than there are members")
    lengths = (report.penalty, report.moved, report.disagreement, report.edges, report.changed)
    _require(all(bool(np.all(length >= -_ROUNDING)) for length in lengths), "a length is negative")


def check_ballot(ballot: Ballot, members: int) -> None:
    """A vote for each member."""
    _require(_are_votes(ballot.votes, members), "more votes for a coefficient than there are members")


def _are_votes(votes: Vector | Matrix, members: int) -> bool:
    return bool(np.all(votes >= -_ROUNDING) and np.all(votes <= members + _ROUNDING))
