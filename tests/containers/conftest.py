"""The image and the compose project on a real Docker engine; skipped, with the reason, where none answers."""

import pytest

from benchmarks.engine import Project, build_image, why_no_engine


@pytest.fixture(scope="session", autouse=True)
def _engine():
    reason = why_no_engine()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def image(_engine):
    """The image of these sources; its name."""
    return build_image()


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
