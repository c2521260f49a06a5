"""What the figures share: bounds that print themselves, and repetitions spread over the cores."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Check:
    """One measured number beside its bound."""

    name: str
    measured: float
    bound: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    def __str__(self) -> str:
        relation = "<=" if self.at_most else ">="
        verdict = "pass" if self.holds else "SHORT"
        return f"  {self.name:<58} {self.measured:>10.4g} {relation} {self.bound:<10.4g} {verdict}"


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


def parser(doc: str | None, repetitions: int) -> argparse.ArgumentParser:
    """The options every figure has."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--tiny", action="store_true", help="a small variant, for the tests")
    options.add_argument("--repetitions", type=int, default=repetitions, help="default %(default)s")
    options.add_argument("--jobs", type=int, default=2, help="processes, default %(default)s")
    return options
