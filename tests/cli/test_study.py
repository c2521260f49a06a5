"""`desmr study`, as a person or a script runs it."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

ONE = ("study", "sparsity", "--only", "noise=normal", "p_c=0.5")


def test_the_list_names_every_study(desmr):
    code, out, _ = desmr("study", "list")
    assert code == 0
    for name in (
        "iterations",
        "heavy-tail",
        "heterogeneity",
        "nodes",
        "sparsity",
        "initial",
        "crime",
        "rounds",
    ):
        assert name in out
    code, out, _ = desmr("study", "list", "--json")
    assert json.loads(out)[1]["cells"][0] == {"noise": "normal", "n": 100, "p": 100}


def test_a_study_prints_its_table_and_fills_its_folder(desmr, tmp_path):
    code, out, err = desmr(*ONE, "--repetitions", 2, "--jobs", 1, "--out", tmp_path / "s")
    assert code == 0
    assert "paper" in out
    assert "0.176" in out  # the paper's figure of this cell
    assert "2 repetitions of 1 cell;" in out
    assert "bounds hold" in out
    assert "sparsity: 2 of 2 runs" in err
    files = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert files == [".lock", "results.csv", "sparsity.png", "sparsity.svg", "study.json", "table.md"]
    with (tmp_path / "s" / "results.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 8
    assert {row["seed"] for row in rows} == {"0", "1"}
    default = next(row for row in rows if row["method"] == "desmr-node")
    assert 0 < float(default["l2_error"]) < 0.176
    table = (tmp_path / "s" / "table.md").read_text()
    assert "seeds 0 to 1" in table
    assert "![" in table
    # Again: everything is there already, and the same file comes out.
    before = (tmp_path / "s" / "results.csv").read_bytes()
    code, again, _ = desmr(*ONE, "--repetitions", 2, "--jobs", 1, "--out", tmp_path / "s")
    assert (code, again) == (0, out)
    assert (tmp_path / "s" / "results.csv").read_bytes() == before


def test_json_is_one_object(desmr, tmp_path):
    code, out, _ = desmr(*ONE, "--repetitions", 1, "--seed", 4, "--jobs", 1, "--out", tmp_path, "--json")
    assert code == 0
    got = json.loads(out)
    assert got["study"] == "sparsity"
    assert got["seeds"] == [4, 4]
    assert got["tables"][0]["columns"][:3] == ["noise", "p_c", "paper"]
    assert got["tables"][0]["rows"][0][:3] == ["normal", "0.5", 0.176]
    assert {"name", "measured", "relation", "bound", "holds"} == set(got["bounds"][0])
    assert all(os.path.exists(path) for path in got["files"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("heavy",), "there is no study 'heavy': choose one of iterations, heavy-tail"),
        (("crime", "--only", "noise=normal"), "names nothing that crime varies"),
        (("crime", "--only", "scenario"), "give KEY=VALUE, with one of scenario for KEY"),
        (
            ("crime", "--only", "scenario=liar"),
            "crime has no such scenario, but original, balanced, ",
        ),
        (("heavy-tail", "--only", "n=100", "p=200"), "no cell of heavy-tail has all of these"),
    ],
)
def test_a_mistake_is_a_sentence(desmr, tmp_path, arguments, sentence):
    code, out, err = desmr("study", *arguments, "--out", tmp_path)
    assert (code, out) == (1, "")
    assert sentence in err


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_count_is_a_count(text, capsys):
    from desmr_node import cli

    with pytest.raises(SystemExit) as stop:
        cli.desmr(["study", "crime", f"--repetitions={text}"])
    assert stop.value.code == 2
    assert "give a whole number, 1 or more" in capsys.readouterr().err


def test_a_folder_of_another_study_is_refused(desmr, tmp_path):
    assert desmr(*ONE, "--repetitions", 1, "--jobs", 1, "--out", tmp_path)[0] == 0
    code, _, err = desmr("study", "nodes", "--repetitions", 1, "--out", tmp_path)
    assert code == 1
    assert "holds results of another study than this run's: name another folder with --out" in err


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """SIGINT in the middle, with two processes: a sentence, exit 130, and the rest later."""
    command = [
        sys.executable,
        "-c",
        "import sys; from desmr_node.cli import desmr; sys.exit(desmr(sys.argv[1:]))",
    ]
    command += [
        "study",
        "convergence",
        "--only",
        "p_c=0.8",
        "--repetitions",
        "40",
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    results = tmp_path / "results.csv"
    deadline = time.monotonic() + 60
    while not (results.exists() and results.read_text().count("\n") > 80):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "the same command goes on from there" in err
    done = int(err.split("interrupted; ")[1].split()[0])
    assert 1 <= done < 40
    command[command.index("40")] = str(done)
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"convergence: {done} of {done} runs" in again.stderr
