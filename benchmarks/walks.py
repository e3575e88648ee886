"""How far a stranger has to walk: the functions of ours that a command enters, and how often the walk changes rooms.

    python benchmarks/walks.py            # of the installed package
    PYTHONPATH=OLD/src python benchmarks/walks.py

Each walk runs in a process of its own, at a toy size, under a profiler that notes which function of the package calls
which. Following a call into another file is a hop, into another room (a top-level entry of the package) a crossing;
each pair of functions counts once. `functions` are all that are entered, `rooms` the rooms they live in.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

SMALL = ("fit.epochs=1", "finetune.epochs=1", "finetune.examples_per_epoch=64", "data.train=200", "posterior.members=2")
SMALL += ("backbone.name=mlp-8", "outliers.max_points=50", "selector.steps=5", "report.resamples=20")
STUDY = ("study.resamples=10", "study.coverages=[0.5,1]", "calibration.grid=[0.2]")
FIT = """
import numpy, calibrant
from torch import nn
rng = numpy.random.default_rng(0)
X = rng.normal(size=(200, 4)).astype("float32")
network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
classifier = calibrant.CalibratedClassifier(network, "SCBNN-OCM", epochs=1, members=2)
classifier.fit(X, (X[:, 0] > 0).astype(int), uncertainty=5 * X)
"""


def _options(values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in ("-o", value)]


def walks(folder: Path) -> dict[str, list[str]]:
    """The arguments of each command; the estimator's fit has none."""
    run, table = str(folder / "run"), folder / "predictions.csv"
    rows = [f"{i % 3},{i % 2},{0.5 + (i % 50) / 100}" for i in range(500)]
    table.write_text("\n".join(["label,predicted,confidence", *rows]))
    study = ["--out", str(folder / "results"), "--runs", str(folder / "runs"), *_options(SMALL + STUDY)]
    return {
        "train": ["train", "--scheme", "SCBNN-OCM", "--out", run, *_options(SMALL)],
        "predict": ["predict", run, "embedded:near", "--out", str(folder / "p.csv")],
        "reproduce": ["reproduce", "coverage", "--profile", "embedded", *study],
        "fit": [],
        "audit": ["audit", str(table), "--out", str(folder / "audit.html")],
    }


def trace(arguments: list[str]) -> list[list[str | None]]:
    """(caller, callee) as `file:function`, each pair once, in the order of the first call; the first caller is None."""
    import calibrant

    root = str(Path(calibrant.__file__).parent) + "/"
    calls: dict[tuple[str | None, str], None] = {}

    def ours(frame: FrameType | None) -> str | None:
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(root) and not code.co_name.startswith("<"):
                return f"{code.co_filename.removeprefix(root)}:{code.co_qualname}"
            frame = frame.f_back
        return None

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and not code.co_name.startswith("<"):
            calls.setdefault((ours(frame.f_back), f"{code.co_filename.removeprefix(root)}:{code.co_qualname}"))

    sys.argv = ["calibrant", *arguments]
    sys.setprofile(note)
    try:
        if arguments:
            from calibrant.cli import main

            main()
        else:
            exec(FIT, {})
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise
    finally:
        sys.setprofile(None)
    return [list(pair) for pair in calls]


def count(calls: list[list[str | None]]) -> dict[str, int]:
    """The length of a walk."""
    files = [[str(name).partition(":")[0] for name in pair] for pair in calls if None not in pair]
    rooms = [[file.partition("/")[0].removesuffix(".py") for file in pair] for pair in files]
    return {
        "functions": len({callee for _, callee in calls}),
        "hops": sum(caller != callee for caller, callee in files),
        "rooms": len({callee for _, callee in rooms}),
        "crossings": sum(caller != callee for caller, callee in rooms),
    }


def main() -> None:
    """Print one line per walk."""
    if len(sys.argv) > 1:
        print("\n" + json.dumps(trace(json.loads(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in walks(Path(folder)).items():
            command = [sys.executable, __file__, json.dumps(arguments)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            length = count(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name:10}", *(f"{what} {number:4}" for what, number in length.items()), flush=True)


if __name__ == "__main__":
    main()
