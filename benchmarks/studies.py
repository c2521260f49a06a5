"""The bounds of the paper's studies, study by study: `desmr study` without its tables and pictures.

`python -m benchmarks.studies [NAME ...] [--repetitions 100] [--jobs 2] [--out DIR] [--tiny]`

With `--out` the folder of an earlier run, such as that of `make results`, only what is missing is run.
"""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Check, conclude, parser
from desmr_node.studies import STUDIES
from desmr_node.studies.running import opened, run
from desmr_node.studies.study import Study


def verdicts(study: Study, folder: Path, repetitions: int, jobs: int) -> list[Check]:
    """Run what the folder lacks; the bounds, each with the study's name before its own."""
    with opened(study, folder) as kept:
        results = run(study, kept, repetitions=repetitions, jobs=jobs)
    return [replace(check, name=f"{study.name}: {check.name}") for check in study.checks(results)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print every bound."""
    options = parser(__doc__, 100)
    options.add_argument("names", nargs="*", metavar="NAME", help="of studies; all if none is given")
    options.add_argument("--out", type=Path, metavar="DIR", help="a folder with one for each study")
    chosen = options.parse_args(argv)
    if unknown := [name for name in chosen.names if name not in STUDIES]:
        options.error(f"no study {unknown[0]!r}: choose from {', '.join(STUDIES)}")
    studies = [STUDIES[name] for name in chosen.names or STUDIES]
    if chosen.tiny:
        small = STUDIES["sparsity"]
        studies, chosen.repetitions = [replace(small, cells=small.cells[:1], part="one cell")], 1
    with tempfile.TemporaryDirectory() as folder:
        out = chosen.out or Path(folder)
        checks = []
        for study in studies:
            print(f"{study.name}: {study.title}, {chosen.repetitions} repetitions", flush=True)
            checks += verdicts(study, out / study.name, chosen.repetitions, chosen.jobs)
    return conclude(checks)


if __name__ == "__main__":
    raise SystemExit(main())
