"""The nine divisions in containers: size and start of the image, every scenario, and each division killed.

`python -m benchmarks.containers [--tiny]`

Needs a Docker engine with Compose. "Same bits" compares every node's result with `desmr simulate` on the same
files, in one process of the same image. A division is killed while the fit exchanges vectors, and then
started again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import yaml

from benchmarks.engine import SLOW, Project, build_image, docker, why_no_engine
from benchmarks.figures import Check, conclude, parser
from desmr_node.datasets.crime import DIVISIONS
from desmr_node.runtime.census import ATTACKER, node_id

NODES = [node_id(name) for name in DIVISIONS]
#: The project's options for each scenario, and its members.
SCENARIOS: dict[str, tuple[dict[str, str], list[str]]] = {
    "original": ({}, NODES),
    "balanced": ({"SCENARIO": "balanced"}, NODES),
    "attacker": ({"profile": "attacker"}, [*NODES, ATTACKER]),
}
MOST_MEGABYTES, MOST_SECONDS, SLOWEST_START = 350.0, 180.0, 3.0


def scenario(image: str, name: str) -> Iterator[Check]:
    """From `up` to the end of the report, and what the nodes hold then."""
    options, members = SCENARIOS[name]
    with Project(image, **options) as network:  # type: ignore[arg-type]
        began = time.perf_counter()
        network.compose("up", "-d", "--no-build")
        code, said = network.wait_for_report()
        yield Check(f"{name}: seconds from up to the report's end", time.perf_counter() - began, MOST_SECONDS)
        print("\n".join(re.findall("^(?:scenario|this fit|paper|9 divisions).*", said, re.MULTILINE)))
        yield Check(f"{name}: exit code of the report", code, 0)
        yield Check(f"{name}: same bits as desmr simulate", network.same_bits(members), 1, at_most=False)


def killed(image: str, victim: str) -> Iterator[Check]:
    """A division is killed in mid-fit and started again."""
    settings = yaml.safe_load(SLOW.read_text(encoding="utf-8"))["x-slow"]["environment"]
    with Project(image, overlay=SLOW) as network:
        network.compose("up", "-d", "--no-build")
        network.until("mountain", lambda status: status["phase"] == "exchanging")
        docker("kill", network.container(victim))
        docker("start", network.container(victim))
        code, said = network.wait_for_report()
        print("\n".join(re.findall("^fit .* failed:.*", said, re.MULTILINE)))
        log = docker("logs", network.container(victim)).stderr
        yield Check(f"{victim} killed: it takes its place up again", "back in fit 1" in log, 1, at_most=False)
        yield Check(f"{victim} killed: exit code of the report", code, 0)
        same = network.same_bits(NODES, **settings)
        yield Check(f"{victim} killed: same bits as undisturbed", same, 1, at_most=False)


def start(image: str) -> Check:
    """Seconds from `docker start` of a division until its health check passes, asked again and again."""
    with Project(image) as network:
        network.compose("up", "-d", "--no-build")
        network.wait_for_report()
        container = network.container("pacific")
        docker("stop", container)
        began = time.perf_counter()
        docker("start", container)
        while network.execute("pacific", "desmr", "health", "unix:/admin/admin.sock", check=False).returncode:
            pass
        return Check("seconds from docker start to serving", time.perf_counter() - began, SLOWEST_START)


def checks(tiny: bool) -> Iterator[Check]:
    """All figures; with ``tiny``, one scenario and no division killed."""
    image = build_image()
    size = int(docker("image", "inspect", "--format", "{{.Size}}", image).stdout) / 1e6
    yield Check("megabytes of the image", size, MOST_MEGABYTES)
    yield start(image)
    for name in list(SCENARIOS)[: 1 if tiny else None]:
        yield from scenario(image, name)
    for victim in [] if tiny else NODES:
        yield from killed(image, victim)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    chosen = parser(__doc__).parse_args(argv)
    reason = why_no_engine()
    if reason:
        print(f"not measured: {reason}")
        return 1
    return conclude(checks(chosen.tiny))


if __name__ == "__main__":
    raise SystemExit(main())
