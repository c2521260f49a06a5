"""deploy/wheelhouse.py: what the image's build needs, or what was there before."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "wheelhouse.py"


@pytest.fixture
def wheelhouse(tmp_path, monkeypatch):
    """The script's functions, with a folder of the test's own that holds one wheel."""
    functions = runpy.run_path(str(SCRIPT))
    (tmp_path / "old-1-py3-none-any.whl").write_bytes(b"carried in")
    monkeypatch.setitem(functions["main"].__globals__, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["wheelhouse.py"])
    return functions


def test_what_cannot_be_fetched_leaves_the_folder_as_it_was(wheelhouse, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert wheelhouse["main"]() == 1
    assert "is as it was" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["old-1-py3-none-any.whl"]


def test_what_is_fetched_takes_the_place_of_what_was_there(wheelhouse, tmp_path, monkeypatch):
    def download(folder, python, machine):
        (folder / "new-1-py3-none-any.whl").write_bytes(b"fetched")
        return True

    monkeypatch.setitem(wheelhouse["main"].__globals__, "download", download)
    assert wheelhouse["main"]() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new-1-py3-none-any.whl"]


def test_it_asks_for_all_that_runs_and_builds_the_package_on_the_base(wheelhouse):
    asked = wheelhouse["requirements"]()
    assert any(name.startswith("numpy") for name in asked)
    assert any(name.startswith("hatchling") for name in asked)
    names = wheelhouse["platforms"]("aarch64")
    assert "manylinux_2_28_aarch64" in names
    assert "manylinux_2_37_aarch64" not in names
