"""The sole owner of the rows: carries a fit's computations out, one at a time."""

from desmr_node.core.rows import RowSource
from desmr_node.core.share import Neighbours, Progress, Request, Share, rows_secret
from desmr_node.core.spec import FitSpec
from desmr_node.errors import DesmrError
from desmr_node.protocol import events as ev

#: Multiplications that take about a millisecond.
_QUICK = 2_000_000


class Superseded(DesmrError):  # noqa: N818 - says what it is
    """A task whose fit was given up while it waited for its thread: nobody waits for the answer."""


class Worker:
    """A node's rows and, while a fit is under way, its share of it."""

    def __init__(self, rows: RowSource, holdout: RowSource | None, spec: FitSpec, seed: int) -> None:
        self._rows, self._holdout, self.spec, self.seed = rows, holdout, spec, seed
        self.reset()
        #: How far the share of a node that was killed had come.
        self.resumed = Progress()
        #: What broke the present fit, if this worker did.
        self.error: DesmrError | None = None

    def reset(self) -> None:
        """A new fit: nothing is known of it yet."""
        self.share = Share(self._rows, self._holdout, self.spec, self.seed)

    def anew(self) -> "Worker":
        """The worker of a process that was started again: the same rows, and no memory."""
        return Worker(self._rows, self._holdout, self.spec, self.seed)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._rows.count

    def rows_secret(self) -> bytes:
        """What only the holder of the rows can know, and is another one as soon as a row is."""
        return rows_secret(self._rows)

    def is_quick(self, task: ev.Compute) -> bool:
        """Whether the task takes milliseconds: not worth a thread, whose hand-over costs more than a step."""
        if not isinstance(task.answer, Neighbours):
            return False
        share = self.share
        order, candidates = share.member.B.shape
        if order * order * candidates > _QUICK:
            return False
        closes = share.inner + 1 >= self.spec.inner  # the round's last step passes over the rows as well
        return not closes or self._rows.count * order * candidates <= _QUICK

    def compute(self, task: ev.Compute) -> ev.Computed | ev.Broken:
        """Do what the machine asks; whatever the rows or settings do not allow is told, not raised."""
        try:
            return ev.Computed(task.ticket, self._next(task.answer), self.share.suspicion)
        except Superseded as error:
            return ev.Broken(task.ticket, str(error))
        except DesmrError as error:
            self.error = error
            return ev.Broken(task.ticket, str(error))

    def _next(self, answer: object) -> Request:
        if not isinstance(answer, ev.Begin) and not self.share.awaiting:
            raise Superseded(f"the fit that this belongs to was given up: {type(answer).__name__}")
        if isinstance(answer, ev.Begin):
            self.error = None
            self.reset()
            if answer.again:
                return self.share.resume(answer.graph, answer.index, self.resumed, answer.declared)
            return self.share.begin(answer.graph, answer.index, answer.declared)
        return self.share.answer(answer)  # type: ignore[arg-type]  # a Compute carries a Begin or an Answer
