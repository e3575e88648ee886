"""How far a stranger has to walk: the files that a command leads through, and how often the walk changes rooms.

    python benchmarks/walks.py            # of the installed package
    PYTHONPATH=OLD/src python benchmarks/walks.py

Each walk runs in a process of its own, at a toy size, under a profiler that notes every function of the package when it
is first entered. `functions` are all that are entered, `hops` the files they lead to, in the order of the first visit,
`rooms` the top-level entries of the package among these, and `crossings` the places where one room follows another.
"""

from __future__ import annotations

import inspect
import itertools
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


def trace(arguments: list[str]) -> list[str]:
    """The functions that are entered, as `file:function`, in the order of the first call."""
    import calibrant

    root = str(Path(calibrant.__file__).parent) + "/"
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # not the body of a class
        if event == "call" and function and code.co_filename.startswith(root):
            entered.setdefault(f"{code.co_filename.removeprefix(root)}:{code.co_qualname}")

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
    return list(entered)


def count(functions: list[str]) -> dict[str, int]:
    """The length of a walk."""
    files = list(dict.fromkeys(name.partition(":")[0] for name in functions))
    rooms = [file.partition("/")[0].removesuffix(".py") for file in files]
    crossings = sum(one != other for one, other in itertools.pairwise(rooms))
    return {"functions": len(functions), "hops": len(files), "rooms": len(set(rooms)), "crossings": crossings}


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
