"""The image and the compose project on a real Docker engine; skipped, with the reason, where none answers.

`DESMR_TEST_BASE` names a base image; unless it does, the stand-in of `deploy/stand-in-base` is used, or the
Dockerfile's default where the stand-in cannot be made.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tests.containers.engine import ROOT, Project, docker, why_no_engine

_IMAGE, _STAND_IN = "desmr-node:test", "desmr-base:bookworm"


@pytest.fixture(scope="session", autouse=True)
def _engine():
    reason = why_no_engine()
    if reason:
        pytest.skip(reason)


def _base():
    chosen = os.environ.get("DESMR_TEST_BASE", "")
    if chosen:
        return chosen
    if docker("image", "inspect", _STAND_IN, check=False).returncode == 0:
        return _STAND_IN
    if shutil.which("debootstrap") and os.geteuid() == 0:
        subprocess.run([ROOT / "deploy" / "stand-in-base", _STAND_IN], check=True, timeout=600.0)
        return _STAND_IN
    return None


@pytest.fixture(scope="session")
def image(_engine):
    """The image of these sources, built from a wheelhouse; its name."""
    subprocess.run([sys.executable, ROOT / "deploy" / "wheelhouse.py"], check=True, timeout=300.0)
    base = _base()
    chosen = ["--build-arg", f"BASE={base}"] if base else []
    # No network: whatever the build needs is in the wheelhouse, or the build fails.
    docker(
        "build", "--network", "none", "-f", ROOT / "deploy" / "Dockerfile", "-t", _IMAGE, *chosen, ROOT,
        timeout=900.0,
    )  # fmt: skip
    return _IMAGE


@pytest.fixture
def project(image):
    """Make projects; the last one is taken down at the end."""
    made = []

    def make(**options):
        assert not made, "one project at a time"
        made.append(Project(image, **options).__enter__())
        return made[0]

    yield make
    for each in made:
        each.down()
