"""Rows from files: the same bits from every format, bounded memory, and a sentence for every fault."""

import gzip
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import desmr_node.data
from desmr_node import data as data_module
from desmr_node.config import DataConfig
from desmr_node.core.rows import BLOCK_ROWS, ArrayRows
from desmr_node.data import FileRows, KeptRows, open_rows, parquet_source, plain_text
from desmr_node.errors import DataError

ENDINGS = (".csv", ".csv.gz", ".parquet", ".npz")


def _write(path, X, y, names=None):
    names = names or [f"x{k + 1}" for k in range(X.shape[1])]
    if path.name.endswith(".npz"):
        np.savez(path, X=X, y=y, features=np.array(names), response=np.array("y"))
    elif path.name.endswith(".parquet"):
        columns = dict(zip(names, np.ascontiguousarray(X.T), strict=True))
        pq.write_table(pa.table({**columns, "y": y}), path, row_group_size=5_000)
    else:
        lines = [",".join([*names, "y"])]
        lines += [",".join(map(repr, [*row, t])) for row, t in zip(X.tolist(), y.tolist(), strict=True)]
        text = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def _awkward(rng, shape):
    """Doubles with all 52 bits in use and exponents from denormal to huge."""
    bits = rng.integers(0, 2**52, shape, dtype=np.uint64)
    exponents = rng.integers(0, 1023 + 330, shape, dtype=np.uint64) << np.uint64(52)
    signs = rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(63)
    return (bits | exponents | signs).view(np.float64)


def _bytes(table):
    return b"".join(X.tobytes() + y.tobytes() for X, y in table.rows.blocks())


@pytest.fixture
def table(tmp_path):
    """A function that writes text to rows.csv and opens it."""

    def opened(text, **columns):
        path = tmp_path / "rows.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return open_rows(DataConfig(**{"file": path, "response": "y", **columns}), node="pacific")

    return opened


# --- bits and blocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_bytes", [0, 64 * 2**20])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_blocks_of_the_array(tmp_path, monkeypatch, ending, kept_bytes):
    monkeypatch.setattr(data_module, "KEPT_BYTES", kept_bytes)
    rng = np.random.default_rng(1)
    n, p = 2 * BLOCK_ROWS + 77, 3
    X, y = _awkward(rng, (n, p)), _awkward(rng, n)
    path = _write(tmp_path / f"rows{ending}", X, y)
    table = open_rows(DataConfig(file=path, response="y"))
    assert (table.features, table.response) == (("x1", "x2", "x3"), "y")
    assert isinstance(table.rows, FileRows if kept_bytes == 0 else KeptRows)
    assert (table.rows.count, table.rows.columns) == (n, p)
    for _ in range(2):  # re-readable
        expected = ArrayRows(X, y).blocks()
        for (A, b), (C, d) in zip(table.rows.blocks(), expected, strict=True):
            assert A.tobytes() == C.tobytes()
            assert b.tobytes() == d.tobytes()
            assert A.flags.c_contiguous
            assert A.dtype == b.dtype == np.float64


def test_csv_numbers_are_the_doubles_of_python(table):
    """Long decimals, halfway cases, denormals, and every spelling both sides accept."""
    rng = np.random.default_rng(2)
    cells = [repr(value) for value in _awkward(rng, 2000).tolist()]
    cells += [f"{value:.40g}" for value in _awkward(rng, 500).tolist()]
    cells += [f"{mantissa}e{exponent}" for mantissa, exponent in rng.integers(-300, 90, (500, 2)).tolist()]
    cells += [
        "9007199254740993",
        "9007199254740992.5",
        "2.2250738585072011e-308",
        "5e-324",
        "2e-324",
        "1e-400",
    ]
    cells += ["-0.0", "-0", "+1.5", "1.", ".5", "1E5", "1e+05", "007", " 2.5 ", '"3.5"', "0." + "1" * 500]
    opened = table("a,y\n" + "".join(f"{cell},0\n" for cell in cells))
    ((X, _),) = opened.rows.blocks()
    expected = np.array([float(cell.strip('"')) for cell in cells])
    assert X[:, 0].tobytes() == expected.tobytes()


def test_features_come_in_the_order_asked_for(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    for ending in ENDINGS:
        path = _write(tmp_path / f"rows{ending}", X, X[:, 0], ["a", "b", "c"])
        table = open_rows(DataConfig(file=path, response="y", features=("c", "a")))
        ((got, y),) = table.rows.blocks()
        assert table.features == ("c", "a")
        assert np.array_equal(got, X[:, [2, 0]])
        assert np.array_equal(y, X[:, 0])


def test_a_column_of_a_file_may_be_the_response(table):
    opened = table("a,target,b\n1,2,3\n", response="target")
    assert opened.features == ("a", "b")
    ((X, y),) = opened.rows.blocks()
    assert (X.tolist(), y.tolist()) == ([[1.0, 3.0]], [2.0])


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,y\n1,2\n3,4\n",
        "a,y\r\n1,2\r\n3,4\r\n",
        '\n"a","y"\n\n"1",2\n3,4',
        "a,y,note\n1,2,x\n3,4,\n",
        'note,a,y\n"two\nlines, quoted",1,2\n,3,4\n',
        "a,y\r1,2\r3,4\r",
        "note, a, y\n New York ,  1,\t2 \n, 3 ,4 ".replace(", a, y", ",a,y"),
        'note,a,y\n"x", 1, 2\n "y, 3, 4\n',
        "note,a,y\n\0,1,2\nø,3,4\n",
        ("note,a,y\n" + "x" * 10_000 + "\xf8,1,2\n,3,4\n").encode("latin-1"),
    ],
)
def test_common_dialects_of_csv(table, text):
    ((X, y),) = table(text, features=("a",)).rows.blocks()
    assert (X.tolist(), y.tolist()) == ([[1.0], [3.0]], [2.0, 4.0])


def test_quoted_line_breaks_do_not_shift_rows_in_a_long_file(table):
    """Long enough for several blocks of text, which must not be cut inside the quotes."""
    n = 20_000
    opened = table("note,a,y\n" + "".join(f'"7,7\n8,8\n",{i},{-i}\n' for i in range(n)), features=("a",))
    blocks = list(opened.rows.blocks())
    assert np.array_equal(np.concatenate([X[:, 0] for X, _ in blocks]), np.arange(n))
    assert np.array_equal(np.concatenate([y for _, y in blocks]), -np.arange(n))


def test_a_gzip_file_of_several_members_is_read_to_the_end(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n1,2\n") + gzip.compress(b"3,4\n"))
    assert open_rows(DataConfig(file=path, response="y")).rows.count == 2


def test_parquet_and_npz_numbers_of_other_types(tmp_path):
    columns = {
        "i": np.array([1, 2**53 + 1], dtype=np.int64),
        "s": np.array([0.1, 2.0], dtype=np.float32),
        "b": np.array([True, False]),
        "y": np.array([3, 250], dtype=np.uint8),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    ((X, y),) = open_rows(DataConfig(file=path, response="y")).rows.blocks()
    assert X.tolist() == [[1.0, float(np.float32(0.1)), 1.0], [float(2**53 + 1), 2.0, 0.0]]
    assert y.tolist() == [3.0, 250.0]
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, X=np.array([[1, 2], [3, 4]], dtype=">i4"), y=np.array([True, False]))
    ((X, y),) = open_rows(DataConfig(file=path, response="any")).rows.blocks()
    assert (X.tolist(), y.tolist()) == ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0])


@pytest.mark.parametrize("block", [1, 7, 64])
def test_a_csv_file_is_cut_anywhere(table, monkeypatch, block):
    """What is done to the text must not depend on where its blocks end."""
    monkeypatch.setattr(plain_text, "_BLOCK", block)
    cells = [" 1.5 ,New York,\t-2", '3,"a\n, b",4', "5 ,,6", "", "7,\0 é , 8"]
    for line_break in ("\n", "\r\n", "\r"):
        text = line_break.join(["\ufeffa,note,y", *cells])
        ((X, y),) = table(text, features=("a",)).rows.blocks()
        assert (X[:, 0].tolist(), y.tolist()) == ([1.5, 3.0, 5.0, 7.0], [-2.0, 4.0, 6.0, 8.0])


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_parquet_in_all_common_dresses(tmp_path, compression):
    rng = np.random.default_rng(7)
    n, p = BLOCK_ROWS + 5, 4
    X, y = _awkward(rng, (n, p)), _awkward(rng, n)
    X[:, 2] = np.round(rng.standard_normal(n), 1)  # few values: kept as a dictionary
    X[:, 3] = rng.standard_normal(n).astype(np.float16)
    columns = {"note": [f"{k} é" for k in range(n)], **{f"x{k}": X[:, k].copy() for k in range(3)}, "y": y}
    columns["x2"] = pa.array(columns["x2"]).dictionary_encode()
    columns["x3"] = X[:, 3].astype(np.float16)
    path = tmp_path / "rows.parquet"
    for version in ("1.0", "2.0"):
        options = {"data_page_version": version, "row_group_size": 5_000, "compression": compression}
        pq.write_table(pa.table(columns), path, data_page_size=2**14, **options)
        table = open_rows(DataConfig(file=path, response="y", features=tuple(f"x{k}" for k in range(p))))
        assert _bytes(table) == b"".join(A.tobytes() + b.tobytes() for A, b in ArrayRows(X, y).blocks())


def test_an_array_stored_by_columns_gives_the_same_blocks(tmp_path):
    X = np.arange(3.0 * BLOCK_ROWS + 6).reshape(-1, 3)
    y = X[:, 0].copy()
    np.savez(tmp_path / "c.npz", X=X, y=y)
    np.savez(tmp_path / "f.npz", X=np.asfortranarray(X), y=y)
    c, f = (open_rows(DataConfig(file=tmp_path / name, response="y")) for name in ("c.npz", "f.npz"))
    assert _bytes(c) == _bytes(f) == b"".join(A.tobytes() + b.tobytes() for A, b in ArrayRows(X, y).blocks())


# --- the holdout ----------------------------------------------------------------------------------------


def test_the_holdout_has_the_columns_of_the_file(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,y\n1,2,3\n")
    (tmp_path / "later.csv").write_text("note,y,b,a\nx,30,20,10\n")
    data = DataConfig(file=tmp_path / "rows.csv", response="y", holdout=tmp_path / "later.csv")
    table = open_rows(data, "holdout")
    ((X, y),) = table.rows.blocks()
    assert (table.features, X.tolist(), y.tolist()) == (("a", "b"), [[10.0, 20.0]], [30.0])


def test_a_holdout_that_lacks_a_column_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("age,income,y\n1,2,3\n")
    (tmp_path / "later.csv").write_text("age,incme,y\n1,2,3\n")
    data = DataConfig(file=tmp_path / "rows.csv", response="y", holdout=tmp_path / "later.csv")
    with pytest.raises(
        DataError, match=r"later\.csv lacks the column 'income' of rows\.csv: did you mean 'incme'"
    ):
        open_rows(data, "holdout")
    with pytest.raises(DataError, match=r"set data\.holdout"):
        open_rows(data.model_copy(update={"holdout": None}), "holdout")


# --- memory and change ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_a_large_table_is_never_held_whole(tmp_path, monkeypatch, ending):
    """Python's and numpy's memory stays at a few blocks; the next test looks at the whole process."""
    monkeypatch.setattr(data_module, "KEPT_BYTES", 2**20)
    rng = np.random.default_rng(3)
    n, p = 8 * BLOCK_ROWS, 10
    path = _write(tmp_path / f"rows{ending}", rng.standard_normal((n, p)), rng.standard_normal(n))
    table = open_rows(DataConfig(file=path, response="y"))
    block = BLOCK_ROWS * (p + 1) * 8
    tracemalloc.start()
    try:
        for X, _ in table.rows.blocks():
            assert len(X) == BLOCK_ROWS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3.5 * block  # the one handed out, the one being filled, and a chunk of the file


_RESIDENT = """
import resource, sys
from pathlib import Path
from desmr_node import data
from desmr_node.config import DataConfig

def peak():
    return int(next(s for s in open("/proc/self/status") if s.startswith("VmHWM")).split()[1]) / 1024

data.KEPT_BYTES = 0
before = peak()
table = data.open_rows(DataConfig(file=Path(sys.argv[1]), response="y"))
assert sum(len(y) for _, y in table.rows.blocks()) == int(sys.argv[2])
# A child counts as it was before it became one as well: at least what the parent had.
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(peak() - before, max(0, child - before))
"""


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_resident_memory_does_not_follow_the_size_of_the_file(tmp_path, ending):
    rng = np.random.default_rng(4)
    path, n, p = tmp_path / f"rows{ending}", 20 * 2000 * 16, 20
    X = np.tile(rng.integers(0, 10, (2000, p + 1)), (n // 2000, 1))  # short cells: a small file of many rows
    names = [*(f"x{k}" for k in range(p)), "y"]
    if ending == ".parquet":
        columns = dict(zip(names, np.ascontiguousarray(X.T), strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=n)
    else:
        lines = "".join(",".join(map(str, row)) + "\n" for row in X[:2000].tolist())
        path.write_text(",".join(names) + "\n" + lines * (n // 2000))
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT, str(path), str(n)], capture_output=True, text=True, check=True
    )
    whole = n * (p + 1) * 8 / 2**20
    assert whole > 100
    assert all(float(grown) < 0.4 * whole for grown in done.stdout.split())


def test_arrow_is_imported_only_for_the_files_that_need_it(tmp_path):
    path = _write(tmp_path / "rows.npz", np.ones((3, 1)), np.ones(3))
    code = (
        "import sys; from pathlib import Path; from desmr_node.data import open_rows, DataConfig;"
        "table = open_rows(DataConfig(file=Path(sys.argv[1]), response='y'));"
        "print(table.rows.count, 'arro3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]


def test_kept_rows_outlive_their_file_and_cannot_be_written(table, tmp_path):
    opened = table("a,y\n1,2\n")
    (tmp_path / "rows.csv").unlink()
    ((X, y),) = opened.rows.blocks()
    assert (X.tolist(), y.tolist()) == ([[1.0]], [2.0])
    with pytest.raises(ValueError, match="read-only"):
        X[0, 0] = 7.0


def test_a_file_that_changes_under_the_node_is_refused(table, tmp_path, monkeypatch):
    monkeypatch.setattr(data_module, "KEPT_BYTES", 0)
    opened = table("a,y\n1,2\n")
    assert len(list(opened.rows.blocks())) == 1
    (tmp_path / "rows.csv").write_text("a,y\n1,2\n5,6\n")
    with pytest.raises(DataError, match=r"pacific: .*rows\.csv has changed since it was opened"):
        list(opened.rows.blocks())
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(DataError, match="does not exist"):
        list(opened.rows.blocks())


# --- faults ---------------------------------------------------------------------------------------------

_LONG = "a,y\n" + "1.5,2\n" * 40_000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty: write the names"),
        ("a,y\n", "has no rows"),
        ("y\n1\n", "no column beside the response 'y'"),
        ("a;y\n1;2\n", "not separated by commas ('a;y')"),
        ("a,a,y\n1,2,3\n", "two columns named 'a' (columns 1 and 2)"),
        (",a,y\n1,2,3\n", "column 1 has no name of its own"),
        ("a,b\n1,2\n", "has no column 'y', the response: its columns are 'a', 'b'"),
        ("a, y\n1,2\n", "has no column 'y', the response: did you mean ' y'?"),
        ("a,y\n1,2\nred,4\n", "column 'a', row 2 (line 3) is not a number ('red')"),
        ("a,y\n1,2\n\n1_000,4\n", "column 'a', row 2 (line 4) is not a number ('1_000')"),
        ("a,y\n0x10,2\n", "column 'a', row 1 (line 2) is not a number ('0x10')"),
        ("a,y\n1,2\n3,\n", "column 'y', row 2 (line 3) is missing ('')"),
        ("a,y\nNA,2\n", "column 'a', row 1 (line 2) is missing ('NA'): drop the row or fill the value"),
        ("a,y\n1,2\nnan,2\n", "column 'a', row 2 is nan: drop the row or fill the value"),
        ("a,y\n1,nan\nx,2\n", "column 'y', row 1 (line 2) is missing ('nan')"),
        ("a,y\n1,2\n1,-inf\n", "column 'y', row 2 is -inf"),
        ("a,y\n1e999,2\n", "column 'a', row 1 is inf"),
        ("a,y\n1,2\n-1e101,3\n", "column 'a', row 2 is -1e+101, above 1e+100"),
        ("a,y\n1,2\n3\n", "row 2 (line 3) has 1 cells and the header has 2"),
        ("a,y\n1,2\n3,4,5\n", "row 2 (line 3) has 3 cells and the header has 2"),
        (_LONG + "1,NA\n", "column 'y', row 40001 (line 40002) is missing ('NA')"),
        (_LONG + "inf,2\n", "column 'a', row 40001 is inf"),
        ("é,y\n1,2\n".encode("latin-1"), "is not UTF-8 text"),
        ("a,y\n1,é\n".encode("latin-1"), "is not UTF-8 text"),
    ],
)
def test_a_faulty_csv_file_is_refused(table, text, complaint):
    with pytest.raises(DataError) as error:
        table(text)
    assert complaint in str(error.value)
    assert str(error.value).startswith("pacific: /")
    assert "rows.csv" in str(error.value)


def test_a_missing_feature_names_the_nearest(table):
    with pytest.raises(DataError, match="has no column 'incme', a feature: did you mean 'income'"):
        table("income,y\n1,2\n", features=("incme",))


def test_a_row_index_may_stay_if_it_is_not_a_feature(table):
    assert table(",a,y\n0,2,3\n", features=("a",)).features == ("a",)


def test_the_largest_value_is_allowed(table):
    ((X, _),) = table("a,y\n1e100,-1e100\n").rows.blocks()
    assert X[0, 0] == 1e100


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            {"a": ["1.5", "x"], "y": [1.0, 2.0]},
            "column 'a' holds string, in row 1 '1.5': store it as float64",
        ),
        ({"a": [1.0, None], "y": [1.0, 2.0]}, "column 'a', row 2 is missing"),
        ({"a": [1.0, 2.0], "y": [1.0, float("nan")]}, "column 'y', row 2 is nan"),
        ({"a": [[1.0], [2.0]], "y": [1.0, 2.0]}, "column 'a' holds list, in row 1 [1.0]: store"),
        (
            {"a": pa.array([1, 2], pa.decimal128(5, 2)), "y": [1.0, 2.0]},
            "column 'a' holds decimal128(5, 2), in row 1 Decimal('1.00'): store it as float64",
        ),
        ({"a": pa.array([1, 2], pa.timestamp("s")), "y": [1.0, 2.0]}, "column 'a' holds timestamp"),
        ({"a": pa.nulls(2), "y": [1.0, 2.0]}, "column 'a' holds null, in row 1 None"),
        ({"y": [1.0]}, "no column beside the response"),
        ({"a": [1.0]}, "has no column 'y', the response"),
        ({"__index_level_0__": [1], "y": [1.0]}, "column 1 has no name of its own"),
        ({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}, "has no rows"),
        ({"a": pa.array([], pa.string()), "y": pa.array([], pa.float64())}, "column 'a' holds string"),
    ],
)
def test_a_faulty_parquet_file_is_refused(tmp_path, columns, complaint):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError) as error:
        open_rows(DataConfig(file=path, response="y"), node="pacific")
    assert complaint in str(error.value)
    assert str(error.value).startswith(f"pacific: {path}")


def test_a_null_far_down_a_parquet_file_is_found(tmp_path):
    n = 3 * BLOCK_ROWS
    cells = [1.0] * n
    cells[n - 2] = None
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": cells, "y": [1.0] * n}), path, row_group_size=10_000)
    with pytest.raises(DataError, match=f"column 'a', row {n - 1} is missing"):
        open_rows(DataConfig(file=path, response="y"))


def test_twin_columns_of_a_parquet_file_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    one = pa.array([1.0])
    pq.write_table(pa.Table.from_arrays([one, one, one], names=["a", "a", "y"]), path)
    with pytest.raises(DataError, match="two columns named 'a'"):
        open_rows(DataConfig(file=path, response="y"))


@pytest.mark.parametrize(
    ("child", "complaint"),
    [
        ("import os; os.abort()", r"rows\.parquet is not Parquet \(damaged\): write the file anew"),
        ("import os, sys; print('[', flush=True); os.abort()", r"is not Parquet \(damaged\)"),
        ("import sys; sys.stderr.write('oh'); sys.exit(1)", r"is not Parquet \(oh\)"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "could not be read: SIGKILL ended the process that decodes it",
        ),
    ],
)
def test_a_decoder_that_dies_is_an_error_of_the_data(tmp_path, monkeypatch, child, complaint):
    (tmp_path / "child.py").write_text(child)
    path = _write(tmp_path / "rows.parquet", np.ones((3, 1)), np.ones(3))
    source = parquet_source.ParquetSource(path, "rows.parquet")
    monkeypatch.setattr(parquet_source, "_CHILD", tmp_path / "child.py")
    with pytest.raises(DataError, match=complaint):
        list(source.chunks(("x1", "y")))
    with pytest.raises(DataError, match=complaint):
        open_rows(DataConfig(file=path, response="y"))


def test_a_decoder_ends_with_its_reader(tmp_path):
    """Also in the middle of a table, and without a word about it."""
    rng = np.random.default_rng(8)
    n = 20 * BLOCK_ROWS
    path = _write(tmp_path / "rows.parquet", rng.standard_normal((n, 2)), np.ones(n))
    here = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    before = here.read_text().split()  # other tests may have left some, such as multiprocessing's
    chunks = parquet_source.ParquetSource(path, "rows.parquet").chunks(("x1", "y"))
    next(chunks)
    assert len(here.read_text().split()) == len(before) + 1
    chunks.close()
    assert here.read_text().split() == before


def test_a_parquet_file_with_a_torn_footer_is_told_quietly(tmp_path, capfd):
    path = _write(tmp_path / "rows.parquet", np.ones((3, 1)), np.ones(3))
    raw = bytearray(path.read_bytes())
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    raw[footer : footer + 12] = b"\xff" * 12
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"is not Parquet \([^`]+\): write the file anew"):
        open_rows(DataConfig(file=path, response="y"))
    assert capfd.readouterr() == ("", "")


_X, _Y = np.ones((2, 2)), np.ones(2)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"X": _X}, "has no array 'y'"),
        ({"y": _Y}, "has no array 'X'"),
        ({"X": _X, "y": np.ones(3)}, "X has shape (2, 2) and y (3,)"),
        ({"X": _Y, "y": _Y}, "X has shape (2,) and y (2,)"),
        ({"X": _X.astype(object), "y": _Y}, "X holds object values"),
        ({"X": _X.astype(complex), "y": _Y}, "X holds complex128 values"),
        ({"X": _X, "y": np.array(["1", "2"])}, "y holds <U1 values"),
        ({"X": _X[:0], "y": _Y[:0]}, "has no rows"),
        ({"X": _X[:, :0], "y": _Y}, "no column beside the response"),
        ({"X": np.array([[1.0, 2.0], [3.0, np.inf]]), "y": _Y}, "column 'x2', row 2 is inf"),
        ({"X": _X, "y": _Y, "features": np.array(["a"])}, "features has 1 names and X has 2 columns"),
        ({"X": _X, "y": _Y, "features": np.array(["a", "a"])}, "two columns named 'a'"),
        ({"X": _X, "y": _Y, "features": np.array([1, 2])}, "features holds int64 values"),
        ({"X": _X, "y": _Y, "features": np.array(["a", "b"], dtype=object)}, "features holds object values"),
        (
            {"X": _X, "y": _Y, "response": np.array("yy")},
            "has no column 'y', the response: did you mean 'yy'?",
        ),
    ],
)
def test_a_faulty_npz_file_is_refused(tmp_path, arrays, complaint):
    path = tmp_path / "rows.npz"
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(DataError) as error:
        open_rows(DataConfig(file=path, response="y"), node="pacific")
    assert complaint in str(error.value)
    assert str(error.value).startswith(f"pacific: {path}")


def test_a_large_array_stored_by_columns_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(data_module, "KEPT_BYTES", 16)
    np.savez(tmp_path / "rows.npz", X=np.asfortranarray(_X), y=_Y)
    with pytest.raises(DataError, match=r"np\.ascontiguousarray"):
        open_rows(DataConfig(file=tmp_path / "rows.npz", response="y"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_that_cannot_be_read_are_refused(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    data = DataConfig(file=path, response="y")
    with pytest.raises(DataError, match="does not exist: correct the path"):
        open_rows(data)
    path.mkdir()
    with pytest.raises(DataError, match=r"is a folder|cannot be read|is not Parquet"):
        open_rows(data)


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet", ".npz"])
def test_a_file_cut_short_is_refused(tmp_path, ending):
    rng = np.random.default_rng(5)
    path = _write(tmp_path / f"rows{ending}", rng.standard_normal((20_000, 2)), rng.standard_normal(20_000))
    raw = path.read_bytes()
    for length in (0, 100, len(raw) // 2, len(raw) - 9):
        path.write_bytes(raw[:length])
        with pytest.raises(DataError, match=r"rows\."):
            open_rows(DataConfig(file=path, response="y"))


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet", ".npz"])
def test_flipped_bytes_are_an_error_of_the_data_or_harmless(tmp_path, ending):
    """Nothing but a DataError, wherever the damage is."""
    rng = np.random.default_rng(6)
    path = _write(tmp_path / f"rows{ending}", rng.standard_normal((300, 2)), rng.standard_normal(300))
    raw = path.read_bytes()
    refused = 0
    for place in rng.integers(0, len(raw), 50 if ending == ".parquet" else 150):  # a process for each
        damaged = bytearray(raw)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            open_rows(DataConfig(file=path, response="y"))
        except DataError:
            refused += 1
    assert refused > 0


def test_an_unknown_ending_is_refused(tmp_path):
    (tmp_path / "rows.xlsx").write_text("a")
    with pytest.raises(DataError, match=r"unknown kind: give a file ending in \.csv"):
        open_rows(DataConfig(file=tmp_path / "rows.xlsx", response="y"))


def test_a_file_that_is_replaced_between_its_header_and_its_rows_is_refused(tmp_path, monkeypatch):
    """Columns that changed places would be read under each other's names."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n1,2,3\n")
    look = desmr_node.data._features

    def replaced(source, data):
        path.write_text("b,a,y\n10,20,30\n")
        return look(source, data)

    monkeypatch.setattr(desmr_node.data, "_features", replaced)
    with pytest.raises(DataError, match="has changed since it was opened"):
        open_rows(DataConfig(file=path, response="y"))
