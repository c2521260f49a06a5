"""All figures in turn, and a line for each at the end: `python -m benchmarks [--tiny]`."""

from __future__ import annotations

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import time
import traceback
from collections.abc import Callable, Mapping, Sequence

from benchmarks import (
    codec_fuzz,
    consensus,
    containers,
    crime,
    edge_force,
    inner_loop,
    killed,
    live_port,
    lost,
    pilot_exactness,
    pilot_speed,
    round_time,
    scale,
    schedules,
    soak,
    studies,
    subgradient,
    wire_bytes,
)
from benchmarks.figures import parser

Figure = Callable[[Sequence[str]], int]

FIGURES: dict[str, Figure] = {
    "pilot_exactness": pilot_exactness.main,
    "pilot_speed": pilot_speed.main,
    "consensus": consensus.main,
    "inner_loop": inner_loop.main,
    "scale": scale.main,
    "wire_bytes": wire_bytes.main,
    "codec_fuzz": codec_fuzz.main,
    "round_time": round_time.main,
    "soak": soak.main,
    "containers": containers.main,
    "schedules": schedules.main,
    "killed": killed.main,
    "lost": lost.main,
    "live_port": live_port.main,
    "crime": crime.main,
    "edge_force": edge_force.main,
    "subgradient": subgradient.main,
    "studies": studies.main,
}


def main(argv: Sequence[str] | None = None, figures: Mapping[str, Figure] | None = None) -> int:
    """Run them all, whatever becomes of one; 1 if any falls short or crashes."""
    chosen = parser(__doc__).parse_args(argv)
    passed_on = ["--tiny"] if chosen.tiny else []
    summary, short = [], False
    for name, figure in (figures or FIGURES).items():
        print(f"\n== {name}", flush=True)
        begin = time.perf_counter()
        try:
            verdict = "SHORT" if figure(passed_on) else "pass"
        except Exception:
            traceback.print_exc()
            verdict = "CRASH"
        short |= verdict != "pass"
        summary.append(f"{name:<28}{verdict:<8}{time.perf_counter() - begin:>7.0f} s")
    print("\n" + "\n".join(summary))
    return int(short)


if __name__ == "__main__":
    raise SystemExit(main())
