"""The unit says what the README says, systemd understands it, and a node works under what it denies."""

import configparser
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from desmr_node import cli
from desmr_node.config import load_network
from desmr_node.runtime.census import free_ports
from desmr_node.runtime.setup import write_network

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "desmr-node.service"
#: The figure that `systemd-analyze security` may print at most; 10 is worst.
MOST_EXPOSURE = 1.5
ANALYZE = shutil.which("systemd-analyze")
_PR_SET_MDWE, _PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
_PROGRAM = "import sys; from desmr_node.cli import desmr_node; sys.exit(desmr_node())"


@pytest.fixture(scope="module")
def unit():
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_it_runs_the_daemon_as_a_user_without_privileges(unit):
    service = unit["Service"]
    assert service["ExecStart"] == "/opt/desmr/bin/desmr-node --config /etc/desmr/node.toml"
    assert service["User"] == service["Group"] == "desmr"
    assert (FOLDER / "sysusers.d" / "desmr.conf").read_text().splitlines()[-1].split()[:2] == ["u", "desmr"]
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    on = ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectHome", "LockPersonality")
    assert {service[key] for key in (*on, "MemoryDenyWriteExecute", "RestrictSUIDSGID")} == {"yes"}
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] == "desmr"
    assert service["LimitCORE"] == "0"


def test_it_starts_again_after_a_crash_and_not_after_a_mistake(unit):
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["WatchdogSec"] == "2min"
    assert service["Restart"] == "on-failure"
    left = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert left == {cli.CANNOT, cli.USAGE, cli.FAILED}
    assert cli.CRASHED not in left


def test_the_readme_names_the_units_paths(unit):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in ("/etc/desmr", "/srv/desmr", "/var/lib/desmr", "/opt/desmr/bin/desmr", "desmr-node.service"):
        assert path in text
        assert path in UNIT.read_text(encoding="utf-8") or path == "desmr-node.service"


def _analyze(*arguments):
    return subprocess.run(
        [ANALYZE, "--no-pager", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


if ANALYZE is not None:

    def _verified(folder, text):
        """What systemd has to say about a unit whose program exists."""
        path = folder / UNIT.name
        path.write_text(text.replace("/opt/desmr/bin/desmr-node", sys.executable))
        done = _analyze("verify", str(path))
        return done.returncode, done.stderr

    def test_systemd_understands_every_line(tmp_path):
        assert _verified(tmp_path, UNIT.read_text()) == (0, "")
        _, said = _verified(tmp_path, UNIT.read_text().replace("ProtectHome=", "ProtectHouse="))
        assert "Unknown key 'ProtectHouse'" in said

    def test_what_an_intruder_could_reach(tmp_path):
        def exposure(path):
            done = _analyze("security", "--offline=true", str(path))
            assert done.returncode == 0, done.stderr
            return float(re.search(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)[1])

        assert exposure(UNIT) <= MOST_EXPOSURE
        bare = tmp_path / UNIT.name
        bare.write_text(f"[Service]\nExecStart={sys.executable}\n")
        assert exposure(bare) > 9  # the figure is a figure of the unit


def _deny_write_and_execute():
    """As MemoryDenyWriteExecute= does; a kernel before 6.3 has no such call, and then nothing is denied."""
    ctypes.CDLL(None).prctl(_PR_SET_MDWE, _PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)


def test_two_nodes_fit_without_memory_that_can_be_written_and_run():
    """numpy, OpenBLAS, gRPC, uvloop and cryptography, all at work in a fit over TLS."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as name:
        folder = Path(name)
        nodes = dict(zip("ab", free_ports(2), strict=True))
        text = 'network = "n"\nautostart = true\nedges = [["a", "b"]]\n[data]\nresponse = "y"\n'
        for node, port in nodes.items():
            text += f'[[nodes]]\nid = "{node}"\naddress = "127.0.0.1:{port}"\ndata = "{node}.csv"\n'
            rows = [f"{k % 7},{k % 5},{2 * (k % 7) + (k * 7919) % 11 / 50}" for k in range(80)]
            (folder / f"{node}.csv").write_text("u,v,y\n" + "\n".join(rows) + "\n")
        (folder / "network.toml").write_text(text)
        paths = write_network(load_network(folder / "network.toml", environ={}), folder / "n")
        running = [
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, "--once", "--config", str(path)],
                preexec_fn=_deny_write_and_execute,  # inherited through the exec
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for path in paths.values()
        ]
        said = [process.communicate(timeout=60)[1] for process in running]
        assert [process.returncode for process in running] == [0, 0], said
        coefficients = json.loads((folder / "n" / "a" / "state" / "result.json").read_text())["coefficients"]
        assert coefficients["u"] == pytest.approx(2.0, abs=0.2)
