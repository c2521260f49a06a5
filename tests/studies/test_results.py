"""results.csv: what is written is read again, what is torn is dropped, what is foreign is refused."""

import numpy as np
import pytest

from desmr_node.errors import DataError
from desmr_node.studies.results import Results, ResultsFile, cell_key

CELL = {"noise": "cauchy", "n": 200}
OTHER = {"noise": "normal", "n": 200}
ROWS = [
    {"method": "a", "at": 1.0, "error": 0.1},
    {"method": "a", "at": 2.0, "error": 1 / 3},
    {"method": "b, quoted", "at": 0.0, "error": 2.0},
]


@pytest.fixture
def file(tmp_path):
    file = ResultsFile(tmp_path / "results.csv", ("noise", "n"), ("at", "error"))
    file.rewrite({})
    return file


def test_what_is_written_is_read_to_the_last_bit(file):
    file.append((cell_key(CELL), 3), ROWS)
    file.append((cell_key(OTHER), 0), ROWS[:1])
    assert file.read() == {(("cauchy", "200"), 3): ROWS, (("normal", "200"), 0): ROWS[:1]}


@pytest.mark.parametrize("lost", [1, 5, 20, 40, 70])
def test_a_torn_end_costs_only_the_last_repetition(file, lost):
    file.append((cell_key(CELL), 0), ROWS)
    file.append((cell_key(CELL), 1), ROWS)
    text = file.path.read_text()
    file.path.write_text(text[:-lost])
    assert list(file.read()) == [(cell_key(CELL), 0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:2], *lines[3:]],  # a line is missing
        lambda lines: [
            lines[0],
            *sorted(lines[1:], key=lambda line: line.split(",")[5]),
        ],  # as a spreadsheet would
        lambda lines: [*lines[:3], lines[3].replace("b, quoted", 'b"'), *lines[4:]],
        lambda lines: [*lines[:2], "cauchy,200,0,2,3,a,2.0,", *lines[3:]],  # a measure is missing
        lambda lines: [*lines[:2], lines[5], lines[3], *lines[4:]],  # lines of two repetitions
        lambda lines: [*lines[:2], "x" * 200_000, *lines[3:]],
    ],
)
def test_what_was_changed_by_hand_is_refused_not_thrown_away(file, change):
    file.append((cell_key(CELL), 0), ROWS)
    file.append((cell_key(CELL), 1), ROWS)
    changed = "\n".join(change(file.path.read_text().splitlines())) + "\n"
    file.path.write_text(changed)
    with pytest.raises(DataError, match=r"line \d+, does not continue the lines before it"):
        file.read()
    assert file.path.read_text() == changed


def test_no_file_is_no_results(tmp_path):
    assert ResultsFile(tmp_path / "none.csv", ("noise",), ("error",)).read() == {}


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00"])
def test_a_foreign_file_is_refused(file, content):
    file.path.write_bytes(content)
    with pytest.raises(DataError, match="--out"):
        file.read()


def test_results_by_cell_method_and_place():
    results = Results()
    results.add(
        (cell_key(CELL), 1), [{"method": "a", "at": 1.0, "error": 4.0}, {"method": "b", "error": 9.0}]
    )
    results.add(
        (cell_key(CELL), 0),
        [{"method": "a", "at": 1.0, "error": 2.0}, {"method": "a", "at": 2.0, "error": 1.0}],
    )
    np.testing.assert_array_equal(results.values(CELL, "a", "error", at=1.0), [2.0, 4.0])  # by seed
    assert results.mean(CELL, "a", "error", at=1.0) == 3.0
    assert np.isnan(results.mean(OTHER, "a", "error"))
    x, y = results.curve(CELL, "a", "at", "error")
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [3.0, 1.0])
    assert results.methods(CELL) == ["a", "b"]
    assert results.present([OTHER, CELL]) == [CELL]
    assert results.seeds == {0, 1}
