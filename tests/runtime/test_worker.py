"""The worker of a node whose fit is given up while a task waits for its thread."""

import numpy as np

from desmr_node.core.graph import Graph
from desmr_node.core.rows import ArrayRows
from desmr_node.core.share import Sum
from desmr_node.core.spec import FitSpec
from desmr_node.protocol import events as ev
from desmr_node.runtime.worker import Worker


def test_a_task_of_a_fit_that_was_given_up_is_told_so_and_breaks_nothing():
    rng = np.random.default_rng(0)
    rows = ArrayRows.checked(rng.normal(size=(30, 2)), rng.normal(size=30), "node 0")
    worker = Worker(rows, None, FitSpec(), 0)
    begun = worker.compute(ev.Compute(1, ev.Begin(Graph.from_edges(1, []), 0)))
    assert isinstance(begun.request, Sum)
    late = ev.Compute(2, begun.request.part)  # the answer to what it asked for
    worker.reset()  # the next attempt is enrolled before the thread takes the task
    told = worker.compute(late)
    assert isinstance(told, ev.Broken)
    assert told.ticket == 2
    assert worker.error is None
    again = worker.compute(ev.Compute(3, ev.Begin(Graph.from_edges(1, []), 0)))
    assert isinstance(again.request, Sum)
