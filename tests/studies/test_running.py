"""Running a study: what is there is not run again, order and number of processes change nothing."""

import os
import subprocess
import sys

import pytest

from desmr_node.errors import ConfigError, DataError
from desmr_node.studies import running
from desmr_node.studies.running import Folder, opened, run

from .conftest import counting


def test_results_do_not_depend_on_processes_or_order(quick_study, tmp_path):
    texts = []
    for jobs in (1, 2):
        folder = Folder(quick_study(), tmp_path / str(jobs))
        results = run(quick_study(), folder, repetitions=3, seed=5, jobs=jobs)
        assert results.mean({"k": 2}, "m", "error") == pytest.approx(2 + 0.6)
        texts.append((tmp_path / str(jobs) / "results.csv").read_bytes())
    assert texts[0] == texts[1]
    assert texts[0].decode().splitlines()[:2] == ["k,seed,line,of,method,error", "1,5,1,1,m,1.5"]


def test_a_second_run_adds_only_what_is_missing(quick_study, tmp_path):
    (tmp_path / "ran").mkdir()
    study = quick_study(counting, [{"k": k, "folder": str(tmp_path / "ran")} for k in (1, 2)])
    seen = []
    run(study, Folder(study, tmp_path / "out"), repetitions=2)
    assert len(os.listdir(tmp_path / "ran")) == 4
    again = Folder(study, tmp_path / "out")
    results = run(study, again, repetitions=3, progress=lambda done, of: seen.append((done, of)))
    assert len(os.listdir(tmp_path / "ran")) == 6  # a repetition that ran twice would have raised
    assert seen == [(4, 6), (5, 6), (6, 6)]
    assert results.seeds == {0, 1, 2}


def test_fewer_repetitions_than_there_are_keep_the_others(quick_study, tmp_path):
    study = quick_study()
    run(study, Folder(study, tmp_path), repetitions=4)
    results = run(study, Folder(study, tmp_path), repetitions=2)
    assert results.seeds == {0, 1}
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + 2 * 4


def test_what_a_killed_run_left_is_cleaned_up_and_run_again(quick_study, tmp_path):
    study = quick_study()
    run(study, Folder(study, tmp_path), repetitions=2)
    whole = (tmp_path / "results.csv").read_text()
    (tmp_path / "results.csv").write_text(whole[:-4])
    folder = Folder(study, tmp_path)
    assert len(folder.done) == 3
    run(study, folder, repetitions=2)
    assert (tmp_path / "results.csv").read_text() == whole


def test_an_interrupted_run_keeps_what_is_done(quick_study, tmp_path):
    def stop(done, of):
        if done == 2:
            raise KeyboardInterrupt

    study = quick_study()
    with pytest.raises(KeyboardInterrupt):
        run(study, Folder(study, tmp_path), repetitions=5, progress=stop)
    assert len(Folder(study, tmp_path).done) == 2


def test_two_runs_do_not_write_into_one_folder(quick_study, tmp_path):
    first, second = opened(quick_study(), tmp_path), opened(quick_study(), tmp_path)
    with first, pytest.raises(ConfigError, match="another run is at work"), second:
        pass
    with opened(quick_study(), tmp_path) as folder:
        assert folder.done == {}


def test_an_empty_note_is_no_claim(quick_study, tmp_path):
    (tmp_path / "study.json").write_text("")
    run(quick_study(), Folder(quick_study(), tmp_path), repetitions=1)
    assert len(Folder(quick_study(), tmp_path).done) == 2


def dying(cell, seed):
    os.kill(os.getpid(), 9)


def test_a_worker_that_is_killed_is_a_sentence(quick_study, tmp_path):
    study = quick_study(dying)
    with pytest.raises(ConfigError, match=r"was lost \(TerminatedWorkerError\); what is done is kept"):
        run(study, Folder(study, tmp_path), repetitions=1, jobs=2)


def test_results_of_other_settings_are_not_mixed(quick_study, tmp_path):
    Folder(quick_study(tau=1.0), tmp_path)
    Folder(quick_study(tau=1.0), tmp_path)
    with pytest.raises(ConfigError, match=r"another settings.*--fresh"):
        Folder(quick_study(tau=2.0), tmp_path)
    Folder(quick_study(tau=2.0), tmp_path, fresh=True)
    assert (tmp_path / "results.csv.old").exists()  # put away, not destroyed


def test_a_results_file_from_elsewhere_is_left_alone(quick_study, tmp_path):
    (tmp_path / "results.csv").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"study\.json.*--out"):
        Folder(quick_study(), tmp_path)
    assert (tmp_path / "results.csv").read_text() == "mine\n"
    (tmp_path / "b").mkdir()
    Folder(quick_study(), tmp_path / "b")
    (tmp_path / "b" / "results.csv").write_text("mine\n")
    with pytest.raises(DataError, match="no file of this study"):
        Folder(quick_study(), tmp_path / "b")


def test_a_folder_that_cannot_be_written_is_a_sentence(quick_study, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\)"):
        Folder(quick_study(), tmp_path / "file" / "out")


def test_a_full_disk_is_a_sentence_and_loses_nothing(quick_study, tmp_path):
    study = quick_study()
    folder = Folder(study, tmp_path)
    run(study, folder, repetitions=1)
    kept = folder.file.path
    folder.file.path = type(kept)("/dev/full")
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left on device\).*--out"):
        run(study, folder, repetitions=2)
    assert len(Folder(study, tmp_path).done) == 2


def test_no_scheduler_is_a_sentence(quick_study, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_PATIENCE", 1)
    with pytest.raises(ConfigError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        run(quick_study(), Folder(quick_study(), tmp_path), repetitions=1, scheduler="tcp://127.0.0.1:1")


CLUSTER = """
import sys
from distributed import LocalCluster
from desmr_node.studies import HEAVY_TAIL
from desmr_node.studies.running import Folder, run
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    study = replace(HEAVY_TAIL, cells=HEAVY_TAIL.cells[:1])
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        folder = Folder(HEAVY_TAIL, Path(sys.argv[1]))
        run(study, folder, repetitions=2, scheduler=cluster.scheduler_address)
        at_work = [name for name in cluster.scheduler.task_prefixes if "work" in name]
    print(len(folder.done), len(at_work))
"""


def test_a_dask_cluster_gives_the_same_file(tmp_path):
    """The engine has threads and loops of its own that outlive a test: it gets a process of its own."""
    from dataclasses import replace

    from desmr_node.studies import HEAVY_TAIL

    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    (tmp_path / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, tmp_path / "cluster.py", tmp_path / "dask"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "1"]  # two repetitions, by one kind of task of the scheduler's
    study = replace(HEAVY_TAIL, cells=HEAVY_TAIL.cells[:1])
    run(study, Folder(HEAVY_TAIL, tmp_path / "here"), repetitions=2)
    lines = [(tmp_path / where / "results.csv").read_text().splitlines() for where in ("dask", "here")]
    assert len(lines[0]) == len(lines[1]) == 1 + 2 * 8
    assert lines[0] == lines[1]
