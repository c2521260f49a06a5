"""A finished fit as files: result.json for programs, coefficients.csv for people; the data's own units."""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from desmr_node.core.spec import FitSpec
from desmr_node.errors import DataError
from desmr_node.protocol.events import Keep
from desmr_node.protocol.messages import Schema
from desmr_node.runtime.files import replace_file


def document(
    kept: Keep,
    *,
    network: str,
    node: str,
    schema: Schema,
    spec: FitSpec,
    seed: int,
) -> dict[str, Any]:
    """Everything there is to say about a fit. Doubles print so that reading them gives the same bits."""
    fit, lineage = kept.fit, kept.lineage
    return {
        "network": network,
        "node": node,
        "fit": kept.number,
        "members": list(kept.members),
        "continues": None if lineage.base == kept.number else lineage.base,
        "lost": _lost(kept),
        "left_out": sorted(lineage.condemned - set(kept.members)),
        "consensus_residual": _plain(fit.history[-1].spread),
        "converged": fit.converged,
        "message": fit.message,
        "response": schema.response,
        "lambda": fit.lambda_,
        "intercept": fit.intercept,
        "coefficients": dict(zip(schema.features, map(float, fit.coef), strict=True)),
        "support": [name for name, kept in zip(schema.features, fit.support, strict=True) if kept],
        "scales": None
        if fit.scale is None
        else dict(zip(schema.features, map(float, fit.scale), strict=True)),
        "rows": fit.total_rows,
        "objective": fit.objective,
        "pilot_objective": fit.pilot_objective,
        "holdout": None if fit.errors is None else asdict(fit.errors),
        "rounds": fit.rounds,
        "admm_rounds": fit.admm_rounds,
        "history": [{k: _plain(v) for k, v in asdict(line).items()} for line in fit.history],
        "settings": {**spec.model_dump(), "seed": seed},
    }


def _lost(kept: Keep) -> list[dict[str, Any]]:
    """Members of the fit as it began that have no part in its end: in which fit and outer round each went."""
    lineage = kept.lineage
    gone = sorted(lineage.founders.keys() - set(kept.members))
    places = {name: lineage.lost.get(name, (kept.number, 0)) for name in gone}
    return [{"node": name, "fit": fit, "outer": outer} for name, (fit, outer) in places.items()]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder: Path, network: str, node: str) -> dict[str, Any] | None:
    """The last result, if there is one; raises `DataError` if the file is not what `write` wrote here."""
    path = folder / "result.json"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        if (result["network"], result["node"]) == (network, node) and int(result["fit"]) >= 1:
            return dict(result)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise DataError(
        f"{path} is damaged, or another node's: move it away (`desmr result` shows nothing until then)"
    )


def write(folder: Path, result: dict[str, Any]) -> None:
    """Write both files, each complete or not at all."""
    replace_file(folder / "result.json", (json.dumps(result, indent=1) + "\n").encode())
    replace_file(folder / "coefficients.csv", coefficients_csv(result).encode())


def coefficients_csv(result: Mapping[str, Any]) -> str:
    """The coefficients as a table, every digit kept."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["feature", "coefficient", "selected"])
    writer.writerow(["(intercept)", repr(result["intercept"]), ""])
    support = set(result["support"])
    for name, value in result["coefficients"].items():
        writer.writerow([name, repr(value), "yes" if name in support else "no"])
    return table.getvalue()
