"""A study that takes no time: two cells, one method, errors that depend on cell and seed alone."""

from pathlib import Path

import pytest

from desmr_node.studies.study import Check, Study, Table


def quick(cell, seed):
    return [{"method": "m", "error": cell["k"] + seed / 10}]


def counting(cell, seed):
    """Leaves a file behind for every repetition that was really run."""
    Path(cell["folder"], f"{cell['k']}-{seed}").touch(exist_ok=False)
    return [{"method": "m", "error": float(seed)}]


def study_of(run=quick, cells=({"k": 1}, {"k": 2}), **settings):
    def tables(results):
        rows = tuple((str(cell["k"]), results.mean(cell, "m", "error")) for cell in cells)
        return [Table("T", ("k", "error"), rows)]

    return Study(
        name="quick",
        title="Quick",
        about="Nothing is assumed.",
        cells=tuple(cells),
        columns=("error",),
        run=run,
        tables=lambda r: [
            Table("T", ("k", "error"), tuple((str(c["k"]), r.mean(c, "m", "error")) for c in cells))
        ],
        checks=lambda r: [Check("mean", r.mean(cells[0], "m", "error"), 1.0)],
        pictures=lambda r: [],
        settings=settings,
    )


@pytest.fixture
def quick_study():
    return study_of
