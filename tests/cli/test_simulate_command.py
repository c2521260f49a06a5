"""`desmr simulate`: the report, the documents, and what cannot be fitted."""

import json
import sys

import numpy as np
import pytest

from desmr_node import FitSpec, simulate


def test_the_report(network, desmr):
    code, out, err = desmr("simulate", network())
    assert (code, err) == (0, "")
    assert "y: SCAD-penalised median regression over 180 rows of 3 nodes" in out
    assert "2 of 4 features selected (--all shows the others)" in out
    lines = [line.split() for line in out.splitlines()]
    names = [line[0] for line in lines if len(line) == 3 and line[0] in ("(intercept)", "u", "v", "w", "z")]
    assert names == ["(intercept)", "u", "z"]  # by size
    assert "on 180 hold-out rows: RMSE" in out
    assert "converged in" in out
    assert "agreement: the same lambda and features at every node" in out
    assert "\x1b" not in out


def test_all_features(network, desmr):
    _, out, _ = desmr("simulate", network(), "--all")
    assert "2 of 4 features selected\n" in out
    assert any(line.split()[:3] == ["v", "+0", "no"] for line in out.splitlines())


def test_json_is_the_fit_of_the_library(network, desmr, tmp_path):
    """The file's network and the function's give the same bits: names do not matter, order does."""
    code, out, _ = desmr("simulate", network(tables="[fit]\nseed = 3\n"), "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["network"], list(told["nodes"])) == ("three", ["a", "b", "c"])
    tables = [np.loadtxt(tmp_path / f"{node}.csv", delimiter=",", skiprows=1) for node in "abc"]
    fit = simulate([(t[:, :4], t[:, 4]) for t in tables], [(0, 1), (1, 2)], FitSpec(), seed=3)
    for j, node in enumerate("abc"):
        document = told["nodes"][node]
        assert list(document["coefficients"].values()) == list(fit.coef[j])
        assert document["intercept"] == fit.intercept[j]
        assert document["lambda"] == fit.lambda_
        assert document["members"] == ["a", "b", "c"]


def test_the_scales_of_the_columns(network, desmr, tmp_path):
    """The standard deviations over the rows of all nodes, unless the network was told not to scale."""
    _, out, _ = desmr("simulate", network(), "--json")
    documents = json.loads(out)["nodes"]
    X = np.concatenate([np.loadtxt(tmp_path / f"{n}.csv", delimiter=",", skiprows=1)[:, :4] for n in "abc"])
    for document in documents.values():
        assert document["scales"] == documents["a"]["scales"]
    assert list(documents["a"]["scales"]) == ["u", "v", "w", "z"]
    assert list(documents["a"]["scales"].values()) == pytest.approx(X.std(axis=0), rel=1e-6)
    _, out, _ = desmr("simulate", network(tables='[fit]\nscaling = "none"\n'), "--json")
    assert json.loads(out)["nodes"]["a"]["scales"] is None


def test_out_writes_every_node(network, desmr, tmp_path):
    path = network()
    code, out, _ = desmr("simulate", path, "--out", tmp_path / "out")
    assert code == 0
    assert "written: result.json and coefficients.csv" in out
    _, out, _ = desmr("simulate", path, "--json")
    documents = json.loads(out)["nodes"]
    for node in "abc":
        assert json.loads((tmp_path / "out" / node / "result.json").read_text()) == documents[node]
        assert (tmp_path / "out" / node / "coefficients.csv").read_text().startswith("feature,coefficient")


def test_one_node_alone(desmr, network, edit):
    path = network(nodes=("a",))
    edit(path, 'edges = [["a", "b"], ["b", "c"]]', "")
    code, out, _ = desmr("simulate", path)
    assert code == 0
    assert "over 60 rows of 1 node\n" in out
    assert "agreement" not in out


def test_without_hold_out_rows(network, desmr, edit):
    path = network()
    for node in "abc":
        edit(path, f'holdout = "{node}.csv"', "")
    _, out, _ = desmr("simulate", path)
    assert "no hold-out rows" in out


def test_progress_on_a_terminal(network, desmr, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, err = desmr("simulate", network())
    assert code == 0
    assert err.splitlines()[0].startswith("outer round 1: lambda ")


def test_a_missing_table(network, desmr, tmp_path):
    path = network()
    (tmp_path / "b.csv").unlink()
    code, out, err = desmr("simulate", path)
    assert (code, out) == (1, "")
    assert f"desmr: b: {tmp_path}/b.csv does not exist" in err
    assert len(err.splitlines()) == 1


def test_columns_that_differ(network, desmr, tmp_path, edit):
    path = network()
    edit(tmp_path / "c.csv", "u,v,w,z,y", "u,v,w,zz,y")
    edit(path, 'holdout = "c.csv"', "")
    code, _, err = desmr("simulate", path)
    assert code == 1
    assert "feature 4 is 'z' at b and 'zz' at c: give every node the same columns" in err


@pytest.mark.parametrize(
    ("floor", "sentence"),
    [
        ("rows = 61", "a would decline: it holds 60 rows and [floors] rows is 61"),
        ("rows_per_variable = 20.0", "60 rows for 4 features and [floors] rows_per_variable is 20"),
    ],
)
def test_a_node_below_its_floor(network, desmr, floor, sentence):
    code, _, err = desmr("simulate", network(tables=f"[floors]\n{floor}\n"))
    assert code == 3
    assert "the fit failed" in err
    assert sentence in err


def test_a_folder_that_cannot_be_written(network, desmr, tmp_path):
    (tmp_path / "out").touch()
    code, _, err = desmr("simulate", network(), "--out", tmp_path / "out")
    assert code == 1
    assert "cannot be written (Not a directory): choose another folder" in err


def test_a_mistake_in_the_file(network, desmr):
    code, _, err = desmr("simulate", network(tables='[fit]\npenalty = "ridge"\n'))
    assert code == 1
    assert 'fit.penalty is "ridge": write' in err
