"""Run everything a node may use, once: in the image's build, after `slim` and before anything is shipped."""

import csv
import importlib
import io
import os
import pkgutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from arro3.core import Table
from arro3.io import write_parquet
from scipy.optimize import linprog

import desmr_node
from desmr_node import simulate
from desmr_node.config import DataConfig
from desmr_node.data import open_rows

for module in pkgutil.walk_packages(desmr_node.__path__, "desmr_node."):
    importlib.import_module(module.name)

# The pilot's last resort.
assert linprog([1.0, 1.0], A_ub=[[-1.0, -1.0]], b_ub=[-1.0]).fun == 1.0

# A whole network.
rng = np.random.default_rng(0)
X = rng.standard_normal((3, 60, 5))
y = X @ [2.0, 0.0, -1.5, 0.0, 0.0] + 0.1 * rng.standard_cauchy((3, 60))
fit = simulate([(X[j], y[j]) for j in range(3)], [(0, 1), (1, 2)])
assert list(np.flatnonzero(fit.support)) == [0, 2], fit

# Tables in every format.
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    text = io.StringIO()
    csv.writer(text).writerows([["a", "y"], [0.1, 1.0], [0.2, 2.0]])
    (folder / "rows.csv").write_text(text.getvalue())
    np.savez(folder / "rows.npz", X=[[0.1], [0.2]], y=[1.0, 2.0], features=["a"])
    write_parquet(Table({"a": np.array([0.1, 0.2]), "y": np.array([1.0, 2.0])}), folder / "rows.parquet")
    for file in ("rows.csv", "rows.npz", "rows.parquet"):
        assert open_rows(DataConfig(response="y", file=folder / file), node="smoke").rows.count == 2

# The commands, as they are called.
for command in ("desmr", "desmr-node"):
    program = os.path.join(os.path.dirname(sys.executable), command)
    subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
