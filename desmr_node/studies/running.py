"""Running a study: repetitions over cores or a dask cluster, from where the last run stopped."""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from desmr_node.core.method import METHOD
from desmr_node.errors import ConfigError
from desmr_node.studies.results import Cell, Key, Results, ResultsFile, Row, cell_key
from desmr_node.studies.study import Study

RESULTS, IDENTITY, LOCK = "results.csv", "study.json", ".lock"
#: Seconds to wait for a scheduler, and for its first worker.
_PATIENCE = 10

#: Called when a repetition is done: how many are, of how many.
Progress = Callable[[int, int], None]


def identity(study: Study) -> dict[str, Any]:
    """What results depend on beside cell and seed: those of another identity are not mixed with these."""
    return {
        "study": study.name,
        "release": release()[0],
        "method": METHOD,
        "columns": list(study.columns),
        "settings": json.loads(json.dumps(dict(study.settings))),
    }


@contextmanager
def opened(study: Study, path: Path, *, fresh: bool = False) -> "Iterator[Folder]":
    """The folder, for one run at a time: each writes the whole file when it begins and when it ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("w")
    except OSError as error:
        raise _unwritable(path, error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is at work in {path}: wait for it, or name another folder with --out"
            ) from None
        yield Folder(study, path, fresh=fresh)


class Folder:
    """Where a study's results are: opened by one run after another, each of which adds what is missing."""

    def __init__(self, study: Study, path: Path, *, fresh: bool = False) -> None:
        self.study, self.path = study, path
        self.file = ResultsFile(path / RESULTS, study.factors, study.columns)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if fresh:
                self._put_away()
            self._claim()
            self.done: dict[Key, list[Row]] = self.file.read()
            self.file.rewrite(self.done)  # without what a killed run left half-written
        except OSError as error:
            raise _unwritable(path, error) from None

    def _put_away(self) -> None:
        """Older results are kept under another name: a word on the command line should not cost an hour."""
        if (self.path / RESULTS).exists():
            (self.path / RESULTS).replace(self.path / f"{RESULTS}.old")
        (self.path / IDENTITY).unlink(missing_ok=True)

    def _claim(self) -> None:
        mine, note = identity(self.study), self.path / IDENTITY
        try:
            theirs = json.loads(note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            if (self.path / RESULTS).exists():
                raise ConfigError(
                    f"{self.path} holds a {RESULTS} without the {IDENTITY} that says where it is from: "
                    "name another folder with --out, or add --fresh to begin again"
                ) from None
            note.write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")
            return
        if theirs != mine:
            what = next((key for key in mine if mine[key] != _get(theirs, key)), "content")
            raise ConfigError(
                f"{self.path} holds results of another {what} than this run's: name another folder with "
                "--out, or add --fresh to begin again"
            )

    def add(self, key: Key, rows: list[Row]) -> None:
        """Keep a repetition, in memory and on disk."""
        self.done[key] = rows
        try:
            self.file.append(key, rows)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def finish(self, keys: Sequence[Key]) -> Results:
        """Sort results.csv, so that the same study gives the same file, and return what ``keys`` found."""
        order = {cell_key(cell): place for place, cell in enumerate(self.study.cells)}
        known = sorted(self.done, key=lambda key: (order.get(key[0], len(order)), key))
        try:
            self.file.rewrite({key: self.done[key] for key in known})
        except OSError as error:
            raise _unwritable(self.path, error) from None
        results = Results()
        for key in keys:
            results.add(key, self.done[key])
        return results


def _get(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, dict) else None


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written ({error.strerror or error}): name another folder with --out"
    )


def run(
    study: Study,
    folder: Folder,
    *,
    repetitions: int,
    seed: int = 0,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """All repetitions of all cells that the folder does not hold yet; then everything it holds of them.

    Repetition r has seed + r, in every cell.
    """
    wanted = [(cell, seed + r) for r in range(repetitions) for cell in study.cells]
    keys = [(cell_key(cell), s) for cell, s in wanted]
    missing = [task for task, key in zip(wanted, keys, strict=True) if key not in folder.done]
    done = len(wanted) - len(missing)
    if progress:
        progress(done, len(wanted))
    if missing:
        for cell, s, rows in _outcomes(study, missing, jobs, scheduler):
            folder.add((cell_key(cell), s), rows)
            done += 1
            if progress:
                progress(done, len(wanted))
    return folder.finish(keys)


def _work(run: Callable[[Cell, int], list[Row]], cell: Cell, seed: int) -> tuple[Cell, int, list[Row]]:
    """What is sent to another process: the function of a repetition, not the whole study."""
    return cell, seed, run(cell, seed)


def _outcomes(
    study: Study, tasks: Sequence[tuple[Cell, int]], jobs: int, scheduler: str | None
) -> Iterator[tuple[Cell, int, list[Row]]]:
    """In the order in which they are done."""
    if scheduler is None and jobs == 1:
        yield from (_work(study.run, cell, seed) for cell, seed in tasks)
        return
    joblib = require_joblib()
    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(_connected(scheduler))
            stack.enter_context(joblib.parallel_config(backend="dask", wait_for_workers_timeout=_PATIENCE))
            jobs = -1
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(joblib.delayed(_work)(study.run, cell, seed) for cell, seed in tasks)
        except Exception as error:
            if not isinstance(error, BrokenExecutor) and not type(error).__module__.startswith("distributed"):
                raise
            raise ConfigError(
                f"a process that computed was lost ({type(error).__name__}); what is done is kept, and the "
                "same command goes on from there; if memory ran out, add --jobs 1"
            ) from None


def require_joblib() -> Any:
    """The module, or a sentence about where to get it."""
    try:
        import joblib  # type: ignore[import-untyped]  # it ships no types
    except ImportError:
        raise ConfigError(
            "more than one job needs joblib, which is not installed: pip install 'desmr-node[studies]', "
            "or add --jobs 1"
        ) from None
    return joblib


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """A client of the dask cluster at an address, with workers that can do the work."""
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            "--scheduler needs dask, which is not installed: pip install 'desmr-node[dask]'"
        ) from None
    try:
        client = Client(address, timeout=_PATIENCE)  # type: ignore[no-untyped-call]  # it has no types
    except Exception as error:  # bad addresses raise all kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"no dask scheduler answers at {address} ({reason}): start one with `dask scheduler`, and name "
            "the address it prints, such as tcp://host:8786"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise ConfigError(
                f"the dask scheduler at {address} has no workers: start some with `dask worker {address}`"
            ) from None
        _require_same_release(client, address)
        if sum(client.ncores().values()) < 2:  # type: ignore[no-untyped-call]  # likewise
            raise ConfigError(
                f"the dask cluster at {address} has a single thread, which is no gain: add workers, or leave "
                "--scheduler out"
            )
        yield


def _require_same_release(client: Any, address: str) -> None:
    """Workers compute with the code they have: it has to be ours."""
    mine = release()
    try:
        theirs = client.run(release)
    except Exception as error:  # whatever unpickling or importing raised over there
        raise ConfigError(
            f"workers of {address} cannot import desmr_node.studies ({error}): install desmr-node {mine[0]} "
            "on them"
        ) from None
    for worker, other in theirs.items():
        if other != mine:
            raise ConfigError(
                f"worker {worker} has desmr-node {other[0]} (method {other[1]}), here it is {mine[0]} "
                f"(method {mine[1]}): install the same release"
            )


def release() -> tuple[str, int]:
    """Which code computes here."""
    return version("desmr-node"), METHOD
