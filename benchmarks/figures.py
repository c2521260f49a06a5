"""What the figures share: a verdict on bounds, repetitions spread over the cores, the memory of a process."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from desmr_node.studies.study import Check

T = TypeVar("T")
U = TypeVar("U")


def conclude(checks: Iterable[Check]) -> int:
    """Print every check; the exit code is the number that fall short, capped at 1."""
    checks = list(checks)
    for check in checks:
        print(check)
    short = sum(not check.holds for check in checks)
    print(f"{len(checks) - short} of {len(checks)} bounds hold")
    return int(short > 0)


def repeat(task: Callable[[T], U], items: Sequence[T], jobs: int) -> list[U]:
    """`task` on every item, in order, on `jobs` processes (in this one if jobs is 1)."""
    if jobs == 1:
        return [task(item) for item in items]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(task, items))


def apart(task: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """The result of `task` in a fresh process, and the most memory it held at once, in MB (1e6 bytes).

    Memory is RssAnon of /proc, looked up every 2 ms from outside: everything allocated, the interpreter
    included, but not the pages of memory-mapped files, which the kernel takes back when it wants to.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, task, arguments))
    process.start()
    sender.close()
    peak = 0.0
    while not receiver.poll(0.002):
        peak = max(peak, anonymous_megabytes(process.pid))
    try:
        result: T = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{task.__name__} ended with exit code {process.exitcode}") from None
    process.join()
    return result, peak


def _answer(sender: Connection, task: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    sender.send(task(*arguments))


def anonymous_megabytes(pid: int | None) -> float:
    """What a process has allocated, in MB (1e6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return float(line.split()[1]) * 1024 / 1e6
    return 0.0  # no longer running


def parser(doc: str | None, repetitions: int | None = None) -> argparse.ArgumentParser:
    """The options figures have: all of them --tiny, those that repeat something two more."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tiny", action="store_true", help="a small variant, for the tests")
    if repetitions is not None:
        options.add_argument("--repetitions", type=int, default=repetitions, help="default %(default)s")
        options.add_argument("--jobs", type=int, default=2, help="processes, default %(default)s")
    return options
