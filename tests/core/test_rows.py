"""Rows: what is refused and where the message points, what is accepted, and reading in blocks."""

import numpy as np
import pytest

from desmr_node.core import rows as rows_module
from desmr_node.core.rows import ArrayRows
from desmr_node.errors import DataError


def _table(n=40, p=3):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, p)), rng.standard_normal(n)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros(3), np.zeros(3), r"^Ohio: X must be a table .* and y a vector, got 1 and 1 dimensions"),
        (np.zeros((3, 2)), np.zeros((3, 1)), r"^Ohio: .* got 2 and 2 dimensions"),
        (np.zeros((2, 2, 2)), np.zeros(2), r"^Ohio: .* got 3 and 1 dimensions"),
        (np.zeros((3, 2)), np.zeros(4), r"^Ohio: X has 3 rows and y has 4: they must be as many"),
        (np.zeros((0, 2)), np.zeros(0), r"^Ohio has no rows: leave it out of the network or give it data"),
        (np.zeros((3, 0)), np.zeros(3), r"^Ohio: X has no columns: give at least one predictor"),
        (np.array([["1", "2"]]), [1.0], r"^Ohio: X holds <U1 values: convert them to numbers first"),
        (np.array([[1, 2]], dtype=object), [1.0], r"^Ohio: X holds object values: convert"),
        ([[1.0]], np.array([1.0], dtype=object), r"^Ohio: y holds object values: convert"),
        ([[1.0 + 1j]], [1.0], r"^Ohio: X holds complex128 values: convert"),
        ([[1.0]], np.array(["2020-01-01"], dtype="M8[D]"), r"^Ohio: y holds datetime64\[D\] values: convert"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(X, y, message):
    with pytest.raises(DataError, match=message):
        ArrayRows.checked(X, y, "Ohio")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 16, 39])
def test_a_bad_cell_is_named_with_row_and_column(monkeypatch, bad, place):
    """Row numbers count from the start of the table, not of the block."""
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)
    X, y = _table()
    X[place, 2] = bad
    with pytest.raises(
        DataError, match=rf"^Utah: row {place}, column 2 is {bad}: drop the row or fill the value"
    ):
        ArrayRows.checked(X, y, "Utah")
    X, y = _table()
    y[place] = bad
    with pytest.raises(
        DataError, match=rf"^Utah: the response in row {place} is {bad}: drop the row or fill"
    ):
        ArrayRows.checked(X, y, "Utah")


def test_the_first_of_several_bad_cells_is_named():
    X, y = _table()
    X[7, 1] = X[7, 2] = X[30, 0] = np.nan
    with pytest.raises(DataError, match="row 7, column 1 is nan"):
        ArrayRows.checked(X, y, "Utah")


def test_infinities_that_cancel_are_found():
    X, y = _table()
    X[3, 0], X[4, 0] = np.inf, -np.inf
    with pytest.raises(DataError, match="row 3, column 0 is inf"):
        ArrayRows.checked(X, y, "Utah")
    X, y = _table()
    X[3, 0], y[9] = np.inf, -np.inf
    with pytest.raises(DataError, match="response in row 9 is -inf"):
        ArrayRows.checked(X, y, "Utah")


def test_huge_finite_values_are_refused_as_such():
    """Their sum overflows, which must neither warn nor be taken for a bad cell."""
    X, y = np.full((4, 2), 1.7e308), np.full(4, -1.7e308)
    with pytest.raises(DataError, match=r"a: a value in rows 0 to 3 exceeds 1e\+100"):
        ArrayRows.checked(X, y, "a")
    assert ArrayRows.checked(X * 1e-209, y * 1e-209, "a").count == 4


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8", "?", "f2", "f4", ">f8", ">i4"])
def test_any_kind_of_number_is_read_as_float64(dtype):
    X = (np.arange(12).reshape(6, 2) % 3).astype(dtype)
    y = np.array([0, 1, 1, 0, 1, 0]).astype(dtype)
    rows = ArrayRows.checked(X, y, "a")
    ((Z, t),) = rows.blocks()
    assert Z.dtype == t.dtype == np.dtype(np.float64)
    np.testing.assert_array_equal(Z, X.astype(float))
    np.testing.assert_array_equal(t, y.astype(float))


def test_lists_are_accepted():
    rows = ArrayRows.checked([[1, 2], [3, 4], [5, 6]], [True, False, True], "a")
    assert (rows.count, rows.columns) == (3, 2)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 32, 40])
def test_blocks_are_the_rows_in_order_and_can_be_read_again(monkeypatch, n):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)
    X, y = _table(n)
    rows = ArrayRows.checked(X, y, "a")
    for _ in range(2):
        blocks = list(rows.blocks())
        assert [len(t) for _, t in blocks] == [16] * (n // 16) + ([n % 16] if n % 16 else [])
        np.testing.assert_array_equal(np.concatenate([Z for Z, _ in blocks]), X)
        np.testing.assert_array_equal(np.concatenate([t for _, t in blocks]), y)


class _Watched(np.memmap):
    """A memmap that records how it is sliced."""

    asked: list

    def __getitem__(self, key):
        part = super().__getitem__(key)
        if isinstance(key, slice):
            self.asked.append(key)
        return part


def test_a_memmap_is_read_block_by_block(monkeypatch, tmp_path):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)
    X, y = _table()
    X.astype("f4").tofile(tmp_path / "X.bin")
    mapped = _Watched(tmp_path / "X.bin", dtype="f4", mode="r", shape=X.shape)
    mapped.asked = []
    rows = ArrayRows.checked(mapped, y, "a")
    assert rows.X is mapped
    assert [(s.start, s.stop) for s in mapped.asked] == [(0, 16), (16, 32), (32, 48)]
    blocks = list(rows.blocks())
    np.testing.assert_array_equal(np.concatenate([Z for Z, _ in blocks]), X.astype("f4"))
    assert all(Z.dtype == np.float64 for Z, _ in blocks)


def test_a_bad_cell_of_a_memmap_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", 16)
    X, y = _table()
    X[33, 1] = np.nan
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype="f8", mode="r", shape=X.shape)
    with pytest.raises(DataError, match="b: row 33, column 1 is nan"):
        ArrayRows.checked(mapped, y, "b")


def test_masked_values_and_ragged_lists_are_refused() -> None:
    masked = np.ma.masked_array(np.ones((3, 2)), mask=[[0, 0], [0, 1], [0, 0]])
    with pytest.raises(DataError, match="node 4: X has masked values"):
        ArrayRows.checked(masked, np.ones(3), "node 4")
    with pytest.raises(DataError, match="node 4: X is ragged"):
        ArrayRows.checked([[1.0, 2.0], [3.0]], [1.0, 2.0], "node 4")
    unmasked = np.ma.masked_array(np.ones((3, 2)))
    assert ArrayRows.checked(unmasked, np.ones(3), "node 4").count == 3
