"""What is generated and committed is what its sources say."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wire_code_is_current():
    assert runpy.run_path(str(ROOT / "proto" / "generate.py"))["stale"]() == []


def test_a_change_in_a_proto_file_is_noticed(tmp_path):
    module = runpy.run_path(str(ROOT / "proto" / "generate.py"))
    fresh = module["generate"]()
    assert sorted(fresh) == ["admin_pb2.py", "admin_pb2.pyi", "peer_pb2.py", "peer_pb2.pyi"]
    changed = fresh["peer_pb2.pyi"].replace("mask_key", "mask_keys")
    assert module["_bare"](changed) != module["_bare"](fresh["peer_pb2.pyi"])


def test_the_reference_of_settings_is_current():
    page = runpy.run_path(str(ROOT / "docs" / "generate.py"))["page"]()
    assert page == (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert "| `fit.penalty` |" in page
