"""Imports point one way. The source is read, not run, so a broken module cannot hide an arrow back."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "desmr_node"
#: Lowest first; a module may import from its own layer and from those before it.
LAYERS = (
    ("errors",),
    ("core",),
    ("datasets",),
    ("protocol",),
    ("transport",),
    ("runtime", "studies", "config", "data"),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
#: What would give the numbers a clock, a socket, a thread or an unseeded die.
NOT_IN_CORE = {"asyncio", "grpc", "logging", "random", "socket", "threading", "time"}


def _module_name(path, package):
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path, package):
    """(line, dotted name) of everything a file imports, anywhere in it, relative imports resolved.

    `from a import b` yields a.b: b may be a module, and if it is not, a.b has the layer of a all the same.
    """
    name = _module_name(path, package)
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield node.lineno, ".".join([*base, alias.name])
        elif isinstance(node, ast.Call):
            # importlib.import_module("...") and __import__("...") count as well
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and node.args:
                target = node.args[0]
                if isinstance(target, ast.Constant) and isinstance(target.value, str):
                    yield node.lineno, target.value


def _within(name, package):
    return name == package or name.startswith(package + ".")


def violations(package):
    """One sentence for every import that points the wrong way."""
    root = package.name
    found = []
    for path in sorted(package.rglob("*.py")):
        module = _module_name(path, package)
        parts = module.split(".")
        layer = parts[1] if len(parts) > 1 else None
        if layer is not None and layer not in RANK:
            found.append(f"{module}: {layer} has no layer: add it to LAYERS")
            continue
        for line, target in _imports(path, package):
            where = f"{module}:{line} imports {target}"
            if layer == "core" and target.split(".")[0] in NOT_IN_CORE:
                found.append(f"{where}: not in core")
            if not _within(target, root):
                continue
            aim = target.split(".")[1] if "." in target else None
            if layer is None:
                if aim == "cli":
                    found.append(f"{where}: the face of the package knows no command line")
            elif aim not in RANK:
                found.append(f"{where}: through the face of the package, which imports everything")
            elif RANK[aim] > RANK[layer]:
                found.append(f"{where}: {layer} is below {aim}")
            if _within(module, f"{root}.core.median") and not (
                _within(target, f"{root}.core.median") or _within(target, f"{root}.errors")
            ):
                found.append(f"{where}: the pilot stands alone")
    return found


def test_every_arrow_points_down():
    assert violations(PACKAGE) == []


def test_the_walk_sees_the_package():
    """A checker that finds no files or no imports would find no fault either."""
    paths = list(PACKAGE.rglob("*.py"))
    modules = {_module_name(path, PACKAGE) for path in paths}
    assert {"desmr_node", "desmr_node.errors", "desmr_node.core.median.solve"} <= modules
    assert "desmr_node.datasets.crime" in modules
    crime = {name for _, name in _imports(PACKAGE / "datasets" / "crime.py", PACKAGE)}
    assert {"csv", "numpy", "desmr_node.core.arrays.Matrix"} <= crime


def _plant(tmp_path, files):
    package = tmp_path / "desmr_node"
    tree = {
        "__init__.py": "from desmr_node.runtime import daemon\n",
        "errors.py": "",
        "core/__init__.py": "",
        "core/graph.py": "import numpy\nfrom desmr_node.core import arrays\n",
        "core/median/__init__.py": "from desmr_node.core.median import solve\n",
        "core/median/solve.py": "from desmr_node.errors import ConfigError\n",
        "runtime/__init__.py": "import asyncio, time\nfrom desmr_node import core, protocol\n",
        "runtime/daemon.py": "from .. import config\nfrom ..core.graph import Graph\n",
        "config.py": "from desmr_node.runtime import daemon\n",
        "cli/__init__.py": "from desmr_node import runtime\nimport desmr_node.studies.tables\n",
        **files,
    }
    for name, text in tree.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_a_lawful_tree_passes(tmp_path):
    assert violations(_plant(tmp_path, {})) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("core/a.py", "import desmr_node.protocol.machine", "core is below protocol"),
        ("core/a.py", "from desmr_node.datasets import load_crime", "core is below datasets"),
        ("core/a.py", "from desmr_node import runtime", "core is below runtime"),
        ("core/a.py", "from .. import transport", "core is below transport"),
        ("core/deep/a.py", "from ...protocol.sums import total", "core is below protocol"),
        ("core/a.py", "def f():\n    from desmr_node.cli import main\n", "core is below cli"),
        ("core/a.py", "if False:\n    import desmr_node.config\n", "core is below config"),
        (
            "core/a.py",
            "import importlib\nimportlib.import_module('desmr_node.protocol')\n",
            "core is below protocol",
        ),
        ("core/a.py", "import desmr_node", "through the face"),
        ("core/a.py", "from desmr_node import fit", "through the face"),
        ("errors.py", "from desmr_node.core import arrays", "errors is below core"),
        ("protocol/a.py", "from desmr_node.transport import codec", "protocol is below transport"),
        ("transport/a.py", "from desmr_node.config import NodeConfig", "transport is below config"),
        ("studies/a.py", "from desmr_node.cli import main", "studies is below cli"),
        ("__init__.py", "from desmr_node.cli import desmr", "knows no command line"),
        ("core/a.py", "import asyncio.tasks", "not in core"),
        ("core/a.py", "from time import monotonic", "not in core"),
        ("core/median/solve.py", "import random", "not in core"),
        ("core/median/solve.py", "from desmr_node.core.arrays import Matrix", "stands alone"),
        ("core/median/solve.py", "from ..penalties import Scad", "stands alone"),
        ("helpers.py", "", "has no layer"),
    ],
)
def test_a_planted_arrow_back_is_caught(tmp_path, file, text, complaint):
    found = violations(_plant(tmp_path, {file: text}))
    assert len(found) == 1
    assert complaint in found[0]


def test_numpy_random_is_not_the_module_random(tmp_path):
    package = _plant(tmp_path, {"core/a.py": "import numpy.random\nfrom numpy import random\n"})
    assert violations(package) == []
