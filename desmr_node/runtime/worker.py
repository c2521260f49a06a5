"""The sole owner of the rows: carries a fit's computations out, one at a time."""

from desmr_node.core.rows import RowSource
from desmr_node.core.share import Request, Share
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DesmrError
from desmr_node.protocol import events as ev


class Worker:
    """A node's rows and, while a fit is under way, its share of it."""

    def __init__(self, rows: RowSource, holdout: RowSource | None, spec: FitSpec, seed: int) -> None:
        self._rows, self._holdout, self.spec, self.seed = rows, holdout, spec, seed
        self.share = Share(rows, holdout, spec, seed)

    def compute(self, task: ev.Compute) -> ev.Computed | ev.Broken:
        """Do what the machine asks; whatever the rows or settings do not allow is told, not raised."""
        try:
            return ev.Computed(task.ticket, self._next(task.answer))
        except DesmrError as error:
            return ev.Broken(task.ticket, str(error))

    def _next(self, answer: object) -> Request:
        if isinstance(answer, ev.Begin):
            self.share = Share(self._rows, self._holdout, self.spec, self.seed)
            return self.share.begin(answer.graph, answer.index)
        return self.share.answer(answer)  # type: ignore[arg-type]  # a Compute carries a Begin or an Answer
