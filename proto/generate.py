"""Write desmr_node/transport/wire from the .proto files (`make proto`), or check it is current (--check)."""

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
OUT = HERE.parent / "desmr_node" / "transport" / "wire"
SOURCES = ("desmr/peer/v1/peer.proto", "desmr/admin/v1/admin.proto")


def generate() -> dict[str, str]:
    """File name to content of everything protoc makes, without its version stamps."""
    with tempfile.TemporaryDirectory() as folder:
        standard = resources.files("grpc_tools") / "_proto"
        outputs = [f"--python_out={folder}", f"--pyi_out={folder}"]
        if protoc.main(["protoc", f"-I{HERE}", f"-I{standard}", *outputs, *SOURCES]) != 0:
            raise SystemExit("protoc refused the .proto files: see above")
        return {path.name: path.read_text() for path in sorted(Path(folder).rglob("*.py*"))}


def _bare(text: str) -> list[str]:
    """The lines that do not depend on which protoc made them."""
    return [
        line
        for line in text.splitlines()
        if not line.startswith("#") and "ersion" not in line and line.strip("',0123456789 )")
    ]


def stale() -> list[str]:
    """Committed files that differ from what the .proto files say."""
    return [
        name
        for name, text in generate().items()
        if not (OUT / name).exists() or _bare((OUT / name).read_text()) != _bare(text)
    ]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if behind := stale():
            raise SystemExit(f"{', '.join(behind)}: not what proto/ says; run `make proto`")
    else:
        for name, text in generate().items():
            (OUT / name).write_text(text)
