"""Print the ratios as they come and write `results/bench.json`; of some groups alone, replace their rows in it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import torch

GROUPS = ("kernels", "posterior", "steps", "members", "training", "scaling", "selective", "audit")
TARGET = Path(__file__).resolve().parent.parent / "results" / "bench.json"


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - set(GROUPS)
    if unknown:
        sys.exit(f"no benchmark is called {sorted(unknown)[0]}; there are {', '.join(GROUPS)}")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    results = []
    print(f"{'what':<72} {'ratio':>8} {'goal':>8}")
    for group in wanted or GROUPS:
        for row in importlib.import_module(f"benchmarks.{group}").rows():
            results.append({"group": group, **row._asdict()})
            sign = {"lower": "<=", "higher": ">="}[row.better]
            goal = f"{sign} {row.goal:g}" if row.goal is not None else ""
            print(f"{row.name:<72} {row.ratio:>8.3g} {goal:>8}   {row.detail}", flush=True)
    TARGET.parent.mkdir(exist_ok=True)
    if wanted and TARGET.exists():
        results += [row for row in json.loads(TARGET.read_text()) if row["group"] not in wanted]
        results.sort(key=lambda row: GROUPS.index(row["group"]))
    TARGET.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {TARGET}")


if __name__ == "__main__":
    main(sys.argv[1:])
