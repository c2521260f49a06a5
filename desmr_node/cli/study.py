"""`desmr study`: the paper's tables and figure, run again, beside the paper's numbers."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desmr_node.cli import plots
from desmr_node.cli.divisions import seed

if TYPE_CHECKING:
    from desmr_node.studies.results import Results
    from desmr_node.studies.running import Progress
    from desmr_node.studies.study import Study

_DESCRIPTION = """\
Run one of the paper's studies, or one of ours: every method on simulated data with a known truth (`crime`: on
the packaged crime table), many times, and print the result beside the paper's figures.

In the folder --out: results.csv, a line for every method in every repetition; table.md, all tables with the
paper's figures and ratios, and which bounds hold; pictures as PNG and SVG. A run that is interrupted goes on
from results.csv when it is started again."""
_EXAMPLES = """\
examples:
  desmr study list
  desmr study heavy-tail --repetitions 10    a first look; later, 90 more: the same with --repetitions 100
  desmr study heavy-tail --only noise=cauchy n=200    a part of it
  desmr study crime --json | jq '.bounds[] | select(.holds | not)'
  desmr study nodes --scheduler tcp://10.0.0.1:8786    on the workers of a dask cluster"""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "study",
        help="the paper's tables and figure, run again",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="which study, or `list` to see them all")
    parser.add_argument(
        "--repetitions", type=_positive, default=100, metavar="R", help="of every cell (default: 100)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the first repetition (default: 0)")
    parser.add_argument(
        "--jobs", type=_positive, metavar="J", help="processes (default: one for each core of this machine)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on the dask cluster with its scheduler here instead"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="KEY=VALUE",
        default=[],
        help="only the cells that have all these values",
    )
    parser.add_argument("--out", metavar="DIR", help="folder for the results (default: desmr-study/NAME)")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there already")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=_run)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: give a whole number, 1 or more")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    from desmr_node.studies import STUDIES

    if arguments.name == "list":
        return _list(arguments.json)
    if arguments.name not in STUDIES:
        from desmr_node.errors import ConfigError

        raise ConfigError(f"there is no study {arguments.name!r}: choose one of {', '.join(STUDIES)}")
    whole = STUDIES[arguments.name]
    study = replace(whole, cells=_chosen(whole, arguments.only), part=", ".join(arguments.only))
    out = Path(arguments.out or Path("desmr-study") / study.name)
    results = _results(whole, study, arguments, out)
    written = _write(study, results, out)
    if arguments.json:
        from desmr_node.studies.report import document

        found = document(study, results) | {"files": [str(path) for path in written]}
        print(json.dumps(found))
    else:
        _show(study, results, written)
    return 0


def _list(as_json: bool) -> int:
    from desmr_node.cli import render
    from desmr_node.studies import STUDIES

    if as_json:
        print(
            json.dumps([{"name": s.name, "title": s.title, "cells": list(s.cells)} for s in STUDIES.values()])
        )
        return 0
    rows = [[s.name, s.title, f"{len(s.cells)} by {', '.join(s.factors)}"] for s in STUDIES.values()]
    columns: dict[str, render.Side] = {"study": "left", "what": "left", "cells": "left"}
    render.show(render.table(columns, rows))
    return 0


def _chosen(study: "Study", only: list[str]) -> tuple[Any, ...]:
    """The cells that have all the values asked for."""
    from desmr_node.errors import ConfigError

    cells = study.cells
    for pair in only:
        key, equals, value = pair.partition("=")
        known = list(dict.fromkeys(str(cell.get(key)) for cell in study.cells))
        if not equals or key not in study.factors:
            keys = ", ".join(study.factors)
            raise ConfigError(
                f"--only {pair!r} names nothing that {study.name} varies: give KEY=VALUE, with one of "
                f"{keys} for KEY"
            )
        if value not in known:
            raise ConfigError(f"--only {pair!r}: {study.name} has no such {key}, but {', '.join(known)}")
        cells = tuple(cell for cell in cells if str(cell[key]) == value)
    if not cells:
        raise ConfigError(f"--only {' '.join(only)}: no cell of {study.name} has all of these; ask for fewer")
    return cells


def _results(whole: "Study", study: "Study", arguments: argparse.Namespace, out: Path) -> "Results":
    from desmr_node.studies.running import RESULTS, opened, require_joblib, run

    jobs = arguments.jobs or _cores()
    if jobs > 1 or arguments.scheduler:
        require_joblib()  # first: its remedy brings matplotlib as well
    plots.check_folder(out)
    # What ends the processes of a run is Ctrl-C's way out; left to itself, SIGTERM would leave them behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with opened(whole, out, fresh=arguments.fresh) as folder:
        try:
            with _progress(study.name) as progress:
                return run(
                    study,
                    folder,
                    repetitions=arguments.repetitions,
                    seed=arguments.seed,
                    jobs=jobs,
                    scheduler=arguments.scheduler,
                    progress=progress,
                )
        except KeyboardInterrupt:
            print(
                f"desmr: interrupted; {len(folder.done)} runs are in {out / RESULTS}, and the same command "
                "goes on from there",
                file=sys.stderr,
            )
            raise


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _progress(name: str) -> "Iterator[Progress]":
    """A bar on a terminal; elsewhere a line for every tenth."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from desmr_node.cli.render import console

    if sys.stderr.isatty():
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    told = -1

    def tell(done: int, of: int) -> None:
        nonlocal told
        if (tenth := 10 * done // of) > told:
            told = tenth
            with suppress(OSError):  # nobody listens any more: that is no reason to stop
                print(f"{name}: {done} of {of} runs", file=sys.stderr, flush=True)

    yield tell


def _write(study: "Study", results: "Results", out: Path) -> list[Path]:
    """table.md and the pictures; all files of the folder."""
    from desmr_node.cli.plots.study import draw
    from desmr_node.errors import ConfigError
    from desmr_node.studies.report import markdown
    from desmr_node.studies.running import RESULTS

    pictures = [draw(picture, out) for picture in study.pictures(results)]
    table = out / "table.md"
    try:
        text = markdown(study, results, pictures=[svg.name for _, svg in pictures])
        table.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{table} cannot be written ({error.strerror}): name another folder with --out"
        ) from None
    return [out / RESULTS, table, *(path for pair in pictures for path in pair)]


def _show(study: "Study", results: "Results", written: list[Path]) -> None:
    from desmr_node.cli import render
    from desmr_node.studies import report

    first, *others = study.tables(results)
    columns: dict[str, render.Side] = {}
    for title, value in zip(first.columns, first.rows[0], strict=True):
        # Two columns may have one title: a table's are keys here.
        columns[title if title not in columns else f"{title} "] = (
            "left" if isinstance(value, str) else "right"
        )
    checks = study.checks(results)
    short = [str(check).strip() for check in checks if not check.holds]
    render.show(
        study.title,
        *([f"Only {study.part}."] if study.part else []),
        "",
        first.title,
        render.table(columns, [[report.shown(value) for value in row] for row in first.rows]),
        *first.notes,
        "",
        f"{report.counted(len(results.seeds), 'repetition')} of "
        f"{report.counted(len(results.present(study.cells)), 'cell')}; {report.verdict(checks)}"
        f"{':' if short else '.'}",
        *short,
        "",
        *([f"In table.md also: {'; '.join(table.title for table in others)}."] if others else []),
        f"Files: {', '.join(map(str, written))}",
    )
