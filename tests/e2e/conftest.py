"""What the tests with real processes share."""

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder():
    """With a short path: that of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:
        yield Path(name)
