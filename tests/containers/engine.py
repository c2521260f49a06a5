"""A Docker engine and its Compose, as the tests drive them."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

PROJECT = "desmrtest"
ROOT = Path(__file__).resolve().parents[2]
#: What `DESMR_SUBNET` is here, so that a network brought up by hand is not in the way.
_SUBNET = "10.219.72"


def docker(*arguments, check=True, timeout=300.0):
    """Run `docker`; what it did and said."""
    command = ["docker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


def why_no_engine():
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


def compose_commands():
    """Every Compose that is installed."""
    found = []
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, "version"], capture_output=True, timeout=30.0)
            found += [command] if done.returncode == 0 else []
    return found


class Project:
    """docker-compose.yml as a project of its own, taken down with all its volumes at the end."""

    def __init__(self, image, *, profile=None, overlay=None, command=None, **variables):
        self._command = [*(command or compose_commands()[0]), "-p", PROJECT]
        self._command += ["-f", str(ROOT / "docker-compose.yml")]
        self._command += ["-f", str(overlay)] if overlay else []
        self._command += ["--profile", profile] if profile else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DESMR_", "COMPOSE_"))}
        self.environ = kept | {"DESMR_IMAGE": image, "DESMR_SUBNET": _SUBNET, **variables}

    def __enter__(self):
        self.down()
        return self

    def __exit__(self, *_):
        self.down()

    def down(self):
        self.compose("down", "--volumes", "--timeout", "3", "--remove-orphans", check=False)

    def compose(self, *arguments, check=True, timeout=300.0):
        command = [*self._command, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=timeout
        )
        if check:
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done

    def container(self, service):
        """The id of a service's container, whether it runs or not."""
        labels = {"project": PROJECT, "service": service}
        filters = (f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items())
        found = docker("ps", "-aq", *filters).stdout.split()
        assert len(found) == 1, f"{service}: {found}"
        return found[0]

    def execute(self, service, *command, check=True):
        return docker("exec", self.container(service), *command, check=check)

    def wait_for_report(self, timeout=180.0):
        """Exit code and everything `report` said."""
        container = self.container("report")
        code = int(docker("wait", container, timeout=timeout).stdout)
        logs = docker("logs", container)
        return code, logs.stdout + logs.stderr

    def status(self, service):
        done = self.execute(service, "desmr", "status", "unix:/admin/admin.sock", "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"phase": "unreachable"}

    def until(self, service, holds, timeout=60.0):
        """Ask until something holds of a node's status."""
        deadline = time.monotonic() + timeout
        while not holds(status := self.status(service)):
            assert time.monotonic() < deadline, status
        return status

    def result(self, service):
        """A node's result.json without its traffic, which is the one thing that timing may change."""
        result = json.loads(self.execute(service, "cat", "/node/state/result.json").stdout)
        del result["bytes_sent"]
        return result

    def simulated(self, **variables):
        """What `desmr simulate` makes of the very same files, in one process of the same image."""
        given = [part for pair in variables.items() for part in ("-e", "=".join(pair))]
        run = ("run", "--rm", "--no-deps", "-T", *given, "prepare")
        done = self.compose(*run, "desmr", "simulate", "/census/network.toml", "--json")
        return json.loads(done.stdout[done.stdout.index("{") :])["nodes"]
