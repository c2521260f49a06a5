"""The image: small, non-root, read-only, quick to start, and complete."""

import json
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from benchmarks.engine import docker
from desmr_node.cli.client import AdminClient, NodeUnreachable
from desmr_node.config import dump_toml

#: Bytes, and seconds from `docker start` until the node answers.
LARGEST, SLOWEST = 350e6, 3.0
_LOCKED = ("--read-only", "--security-opt", "no-new-privileges")


def run(image, *command, options=(), check=True):
    return docker("run", "--rm", "--network", "none", *_LOCKED, *options, image, *command, check=check)


def test_it_is_small(image):
    assert int(docker("image", "inspect", "--format", "{{.Size}}", image).stdout) < LARGEST


def test_nobody_is_root_and_nothing_can_be_written(image):
    assert run(image, "id", "-u").stdout.strip() == "10001"
    refused = run(image, "sh", "-c", "touch /x || touch /node/x || touch /opt/desmr/x", check=False)
    assert refused.returncode != 0
    assert "Read-only file system" in refused.stderr
    privileged = run(image, "find", "/", "-xdev", "-perm", "/6000", "-type", "f", options=("--user", "0"))
    assert privileged.stdout == ""


@pytest.mark.parametrize("program", ["gcc", "cc", "ld", "make", "pip", "pip3", "apt-get", "dpkg", "perl"])
def test_nothing_in_it_compiles_or_installs(image, program):
    assert run(image, "sh", "-c", f"command -v {program}", check=False).returncode != 0


def test_no_source_of_the_build_is_left(image):
    assert run(image, "sh", "-c", "ls -d /build", check=False).returncode != 0


@pytest.fixture
def folder(tmp_path):
    """A network of one node, whose files belong to the image's user, in a folder of the host."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    columns = {name: X[:, k] for k, name in enumerate("abc")} | {"y": 2 * X[:, 0] + rng.standard_cauchy(80)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", X=X, y=columns["y"], features=list("abc"))
    table = np.column_stack(list(columns.values()))
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
    (tmp_path / "state").mkdir()
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o644)
    return tmp_path


def write_config(folder, rows, **settings):
    document = {"network": "one", "node": "alone", **settings, "data": {"file": rows, "response": "y"}}
    (folder / "node.toml").write_text(dump_toml(document))


@pytest.mark.parametrize("rows", ["rows.csv", "rows.npz", "rows.parquet"])
def test_it_reads_every_kind_of_table(image, folder, rows):
    write_config(folder, rows)
    options = ("-v", f"{folder}:/node")
    found = json.loads(run(image, "desmr", "check", "/node/node.toml", "--json", options=options).stdout)
    assert found["ok"], found
    assert any("80 rows" in check["text"] for check in found["checks"]), found


def serves(address):
    with AdminClient(address, patience=2.0) as client, suppress(NodeUnreachable):
        return bool(client.status())
    return False


def test_it_starts_fits_and_stops_in_seconds(image, folder):
    write_config(folder, "rows.csv", autostart=True)
    made = docker("create", "--network", "none", *_LOCKED, "-v", f"{folder}:/node", image).stdout.strip()
    try:
        docker("start", made)
        began = time.monotonic()
        address = f"unix:{folder}/state/admin.sock"
        while not serves(address):  # a client of its own each time: a channel that failed takes a second off
            assert time.monotonic() - began < SLOWEST, docker("logs", made).stderr
            time.sleep(0.02)
        with AdminClient(address, patience=2.0) as client:
            *_, last = client.watch(until_end=True)
            assert last.phase == "done", last.message
            assert client.result()["support"] == ["a"]
        assert docker("exec", made, "desmr", "health", "/node/node.toml").stdout.startswith("serving")
        asked = time.monotonic()
        docker("stop", "--time", "10", made)
        assert time.monotonic() - asked < 5.0
        assert docker("inspect", "--format", "{{.State.ExitCode}}", made).stdout.strip() == "0"
    finally:
        docker("rm", "-f", made)
