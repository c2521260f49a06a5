"""A Docker engine and its Compose, as the figures and the tests of containers drive them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PROJECT = "desmrtest"
ROOT = Path(__file__).resolve().parents[1]
IMAGE, _STAND_IN = "desmr-node:test", "desmr-base:bookworm"
#: Laid over docker-compose.yml: a fit that takes a while, so that something can happen in the middle of it.
SLOW = ROOT / "benchmarks" / "slow.yml"
#: What `CENSUS_SUBNET` is here, so that a network brought up by hand is not in the way.
_SUBNET = "10.219.72"


def docker(
    *arguments: object, check: bool = True, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run `docker`; what it did and said."""
    command = ["docker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def why_no_engine() -> str | None:
    """What keeps these tests from running, if anything."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    try:
        answer = docker("version", "--format", "{{.Server.Version}}", check=False, timeout=20.0)
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    if answer.returncode != 0:
        return f"no Docker engine answers: {answer.stderr.strip()[:200]}"
    return None if compose_commands() else "neither docker compose nor docker-compose is installed"


def compose_commands() -> list[list[str]]:
    """Every Compose that is installed."""
    found = []
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, "version"], capture_output=True, timeout=30.0)
            found += [command] if done.returncode == 0 else []
    return found


def build_image() -> str:
    """The image of these sources, from a fresh wheelhouse if that can be had, without any network; its name.

    `CENSUS_BASE` names a base image; unless it does, the stand-in of `deploy/stand-in-base` is used, or
    the Dockerfile's default where the stand-in cannot be made.
    """
    carried_in = any((ROOT / "deploy" / "wheelhouse").glob("*.whl"))
    subprocess.run([sys.executable, ROOT / "deploy" / "wheelhouse.py"], check=not carried_in, timeout=300.0)
    base = _base()
    chosen = ["--build-arg", f"BASE={base}"] if base else []
    dockerfile = ROOT / "deploy" / "Dockerfile"
    docker("build", "--network", "none", "-f", dockerfile, "-t", IMAGE, *chosen, ROOT, timeout=900.0)
    return IMAGE


def _base() -> str | None:
    chosen = os.environ.get("CENSUS_BASE")
    if chosen:
        return chosen
    if docker("image", "inspect", _STAND_IN, check=False).returncode == 0:
        return _STAND_IN
    if shutil.which("debootstrap") and os.geteuid() == 0:
        subprocess.run([ROOT / "deploy" / "stand-in-base", _STAND_IN], check=True, timeout=600.0)
        return _STAND_IN
    return None


class Project:
    """docker-compose.yml as a project of its own, taken down with all its volumes at the end."""

    def __init__(
        self,
        image: str,
        *,
        profile: str | None = None,
        overlay: Path | None = None,
        command: Sequence[str] | None = None,
        **variables: str,
    ) -> None:
        self._command = [*(command or compose_commands()[0]), "-p", PROJECT]
        self._command += ["-f", str(ROOT / "docker-compose.yml")]
        self._command += ["-f", str(overlay)] if overlay else []
        self._command += ["--profile", profile] if profile else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DESMR_", "CENSUS_", "COMPOSE_"))}
        self.environ = kept | {"CENSUS_IMAGE": image, "CENSUS_SUBNET": _SUBNET, **variables}

    def __enter__(self) -> Project:
        self.down()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """Take everything away, volumes included."""
        self.compose("down", "--volumes", "--timeout", "3", "--remove-orphans", check=False)

    def compose(
        self, *arguments: str, check: bool = True, timeout: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run Compose on the project."""
        command = [*self._command, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=timeout
        )
        if check:
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done

    def container(self, service: str) -> str:
        """The id of a service's container, whether it runs or not."""
        labels = {"project": PROJECT, "service": service}
        filters = (f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items())
        found = docker("ps", "-aq", *filters).stdout.split()
        assert len(found) == 1, f"{service}: {found}"
        return found[0]

    def execute(self, service: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's container."""
        return docker("exec", self.container(service), *command, check=check)

    def wait_for_report(self, timeout: float = 180.0) -> tuple[int, str]:
        """Exit code and everything `report` said."""
        container = self.container("report")
        code = int(docker("wait", container, timeout=timeout).stdout)
        logs = docker("logs", container)
        return code, logs.stdout + logs.stderr

    def status(self, service: str) -> dict[str, Any]:
        """What a node says of itself."""
        done = self.execute(service, "desmr", "status", "unix:/admin/admin.sock", "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"phase": "unreachable"}

    def until(
        self, service: str, holds: Callable[[dict[str, Any]], bool], timeout: float = 60.0
    ) -> dict[str, Any]:
        """Ask until something holds of a node's status."""
        deadline = time.monotonic() + timeout
        while not holds(status := self.status(service)):
            assert time.monotonic() < deadline, status
        return status

    def result(self, service: str) -> dict[str, Any]:
        """A node's result.json without its traffic, which is the one thing that timing may change."""
        result = json.loads(self.execute(service, "cat", "/node/state/result.json").stdout)
        del result["bytes_sent"]
        return result

    def simulated(self, **variables: str) -> dict[str, dict[str, Any]]:
        """What `desmr simulate` makes of the very same files, in one process of the same image."""
        given = [part for pair in variables.items() for part in ("-e", "=".join(pair))]
        run = ("run", "--rm", "--no-deps", "-T", *given, "prepare")
        done = self.compose(*run, "desmr", "simulate", "/census/network.toml", "--json")
        return json.loads(done.stdout[done.stdout.index("{") :])["nodes"]

    def same_bits(self, members: Iterable[str], **variables: str) -> bool:
        """Whether every node's result is the simulation's, but for the number of the fit."""
        simulated = self.simulated(**variables)
        results = {node: self.result(node) for node in members}
        return results == {node: result | {"fit": results[node]["fit"]} for node, result in simulated.items()}
