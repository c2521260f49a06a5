"""Placeholder."""

from typing import Any


def add(commands: Any) -> None:
    """Nothing yet."""
