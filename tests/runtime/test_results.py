"""A result outlives the process that found it."""

import json

import pytest

from desmr_node.errors import DataError
from desmr_node.runtime import results


def test_nothing_is_read_where_nothing_was_written(tmp_path):
    assert results.read(tmp_path, "clinics", "north") is None


def test_a_node_reads_its_own_result(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"network": "clinics", "node": "north", "fit": 3}))
    assert results.read(tmp_path, "clinics", "north") == {"network": "clinics", "node": "north", "fit": 3}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"network": "clinics", "node": "south", "fit": 3}', '{"network": "clinics"}'],
)
def test_a_damaged_or_foreign_result_is_named(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(DataError, match=r"result.json is damaged, or another node's: move it away"):
        results.read(tmp_path, "clinics", "north")
