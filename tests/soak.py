"""Train, predict, audit and draw the page over and over in one process; memory and open files must stay flat.

    make soak                          # 30 minutes
    python tests/soak.py --seconds 60

After the first rounds, in which modules are imported and caches fill, the resident memory of the rounds is fitted by a
line. The slope, less three standard errors, must be below `--slope` MB per round; the open files, threads and child
processes must be as many at the end as then.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from commands import TINY

from calibrant.audit import audit
from calibrant.config.loading import load_settings
from calibrant.deploy.pipeline import train_run
from calibrant.deploy.prediction_tables import predict_table
from calibrant.deploy.reporting import report_page
from calibrant.deploy.saving import load
from calibrant.evaluation import Resampling
from calibrant.runs.run import Run

WARM = 5
SMALL = (*TINY, "data.test=100", "report.resamples=20", "engine.device=cpu")


def once(folder: Path, seed: int) -> None:
    """One round, all files of which are removed."""
    settings = load_settings(overrides=[*SMALL, f"seed={seed}"])
    train_run(settings, ["SCBNN-OCM", "FNN"], folder / "run", progress=False)
    run = Run(folder / "run")
    predictor = load(run.predictor_path("SCBNN-OCM"))
    for name in ("p.csv", "p.parquet"):
        predict_table(predictor, "embedded", folder / name, batch_rows=200)
    report_page([run], folder / "run.html")
    rng = np.random.default_rng(seed)
    confidence = rng.beta(5, 1.5, 2000)
    lines = [f"{level:.6f},{int(rng.random() < level - 0.2)}" for level in confidence]
    (folder / "p2.csv").write_text("\n".join(["confidence,correct", *lines]) + "\n")
    audit(folder / "p2.csv", page=folder / "audit.html", resampling=Resampling(resamples=20))
    shutil.rmtree(folder / "run")


def state() -> tuple[float, int, int, int]:
    """Resident memory in MB, after what is free was given back; open files, threads, child processes."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return (
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
        len(children),
    )


def slope(values: list[float]) -> tuple[float, float]:
    """The least-squares slope per round, and its standard error."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    estimate = float(x @ np.asarray(values) / (x @ x))
    residual = np.asarray(values) - np.mean(values) - estimate * x
    return estimate, float(np.sqrt(residual @ residual / (len(values) - 2) / (x @ x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--slope", type=float, default=0.1, help="MB per round that memory may grow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    until, states = time.monotonic() + options.seconds, []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        while time.monotonic() < until or len(states) < 2 * WARM:
            once(Path(folder), len(states) % 3)
            states.append(state())
            if len(states) % 10 in (0, 1):
                memory, *rest = states[-1]
                print(f"round {len(states)}: {memory:.1f} MB; open files, threads, children: {rest}", flush=True)
    steady = states[WARM:]
    growth, error = slope([one[0] for one in steady])
    print(f"{len(states)} rounds; memory grows by {growth:.3f} MB per round (standard error {error:.3f});"
          f" open files, threads, children: {list(steady[0][1:])} then {list(steady[-1][1:])}")  # fmt: skip
    if growth - 3 * error > options.slope:
        raise SystemExit(f"memory grows by more than {options.slope} MB per round")
    if any(last > first for last, first in zip(steady[-1][1:], steady[0][1:])):
        raise SystemExit("open files, threads or child processes have grown in number")


if __name__ == "__main__":
    main()
