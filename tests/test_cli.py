"""The two programs as a whole; each command of `desmr` has its own tests in tests/cli."""

import os
import subprocess
import sys

import pytest

from desmr_node import __version__, cli
from desmr_node.errors import ConfigError, DesmrError

COMMANDS = ("network", "check", "start", "stop", "status", "watch", "result", "health", "simulate")


def _stopped(command, *arguments):
    with pytest.raises(SystemExit) as stopped:
        command(list(arguments))
    return stopped.value.code


@pytest.mark.parametrize(("command", "name"), [(cli.desmr, "desmr"), (cli.desmr_node, "desmr-node")])
def test_version(command, name, capsys):
    assert _stopped(command, "--version") == 0
    assert capsys.readouterr().out.strip() == f"{name} {__version__}"


def test_help_lists_every_command(capsys):
    assert _stopped(cli.desmr, "--help") == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command} " in out


@pytest.mark.parametrize(
    "command", [[c] for c in COMMANDS] + [["network", step] for step in ("init", "add", "request", "sign")]
)
def test_help_teaches(command, capsys):
    assert _stopped(cli.desmr, *command, "--help") == 0
    out = capsys.readouterr().out
    if command != ["network"]:
        assert "example" in out
        assert f"desmr {' '.join(command)} " in out.split("example", 1)[1]


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        (cli.desmr, [], "the following arguments are required: COMMAND"),
        (cli.desmr, ["--nonsense"], "the following arguments are required: COMMAND"),
        (cli.desmr, ["nonsense"], "invalid choice: 'nonsense'"),
        (cli.desmr, ["status"], "the following arguments are required: ADDRESS"),
        (cli.desmr, ["status", "x:1", "--nonsense"], "unrecognized arguments: --nonsense"),
        (cli.desmr, ["result", "x:1", "--json", "--csv"], "not allowed with argument"),
        (cli.desmr_node, [], "the following arguments are required: --config"),
    ],
)
def test_wrong_usage_is_one_clear_line(command, arguments, sentence, capsys):
    assert _stopped(command, *arguments) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_the_daemon_refuses_in_one_line(capsys, tmp_path):
    assert cli.desmr_node(["--config", str(tmp_path / "node.toml")]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert f"desmr-node: {tmp_path}/node.toml does not exist" in err


@pytest.mark.parametrize(
    ("error", "code"), [(DesmrError("no"), 1), (ConfigError("no"), 1), (KeyboardInterrupt(), 130)]
)
def test_exit_codes(error, code, capsys):
    def command():
        raise error

    assert cli.run(command, "desmr") == code
    assert capsys.readouterr().err == ("desmr: no\n" if code == 1 else "")


def test_our_own_bugs_are_not_hidden():
    def command():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cli.run(command, "desmr")


def test_help_loads_nothing_heavy():
    """A person who asks for help should not wait for numpy."""
    program = (
        "import sys\nfrom desmr_node import cli\n"
        "try:\n    cli.desmr(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'grpc', 'rich', 'pydantic') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_reader_that_goes_away():
    """desmr ... | head: no traceback."""
    program = (
        "from desmr_node import cli\nraise SystemExit(cli.run(lambda: print('x' * 10**6) or 0, 'desmr'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 0


def test_output_that_cannot_be_written_is_a_sentence(tmp_path):
    program = (
        "import sys; from desmr_node.cli import desmr; sys.exit(desmr(['check', 'nowhere.toml', '--json']))"
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program.replace("nowhere.toml", str(_node_file(tmp_path)))],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "desmr: the output cannot be written (No space left on device)\n"


def _node_file(folder):
    (folder / "rows.csv").write_text("x,y\n" + "1,2\n2,3\n3,5\n")
    text = 'network = "n"\nnode = "a"\n[data]\nfile = "rows.csv"\nresponse = "y"\n'
    (folder / "node.toml").write_text(text)
    return folder / "node.toml"


def test_a_daemons_crash_is_not_a_users_mistake(tmp_path, monkeypatch, capsys):
    """A service manager starts a node that crashed (70) again, and leaves one that was told nonsense (1)."""
    _node_file(tmp_path)
    arguments = ["--config", str(tmp_path / "node.toml")]
    monkeypatch.setattr(cli, "_serve", lambda path, once: [][1])
    assert cli.desmr_node(arguments) == 70
    assert "IndexError" in capsys.readouterr().err
    monkeypatch.undo()
    assert cli.desmr_node(["--config", str(tmp_path / "nowhere.toml")]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_node_that_still_reads_its_rows_can_be_stopped(tmp_path):
    """Without a handler the first process of a container would ignore the signal, and fit, and be killed."""
    config = _node_file(tmp_path)
    (tmp_path / "rows.csv").unlink()
    os.mkfifo(tmp_path / "rows.csv")
    program = "import sys; from desmr_node.cli import desmr_node; sys.exit(desmr_node())"
    node = subprocess.Popen([sys.executable, "-c", program, "--config", str(config)], stderr=subprocess.PIPE)
    with open(tmp_path / "rows.csv", "w"):  # waits until the node opens it; there is nothing to read in it
        node.terminate()
        _, said = node.communicate(timeout=20)
    assert (node.returncode, said) == (0, b"")


def test_a_crash_does_not_wait_for_a_long_computation():
    program = (
        "import sys, time; from concurrent.futures import ThreadPoolExecutor\n"
        "from desmr_node import cli; from desmr_node.runtime.node import WORKER_THREAD\n"
        "def serve(path, once):\n"
        "    ThreadPoolExecutor(1, thread_name_prefix=WORKER_THREAD).submit(time.sleep, 60)\n"
        "    raise ArithmeticError('broken')\n"
        "cli._serve = serve; sys.exit(cli.desmr_node(['--config', 'x']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 70
    assert "ArithmeticError: broken" in ended.stderr
