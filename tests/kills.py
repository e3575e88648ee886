"""Commands that are killed at a random moment and started again; run them undisturbed to compare.

A moment is the N-th time that the command creates, renames or removes a file of its own, or a share of the time that it
takes undisturbed. Both are drawn from a seed; the first kind can be repeated exactly. Before the second start the clock
is set back by a day.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from commands import TINY_OPTIONS, read_rows
from experiment_labs import TINY as TINY_LAB
from PIL import Image

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
PASSING = re.compile(r"\.lock$|^attempts$")
"""Names of locks and of notes on processes, which are no results."""
FEW = [*TINY_OPTIONS, "-o", "data.train=96", "-o", "data.test=50", "-o", "report.resamples=10"]
LAB_OPTIONS = [part for override in TINY_LAB for part in ("-o", override)]
PRELOADED = ["calibrant.cli", "calibrant.deploy.pipeline", "calibrant.deploy.reporting", "calibrant.audit",
             "calibrant.training.sweeps.sweep", "pyarrow.parquet", "kills"]  # fmt: skip

# All but the first write to `made` or `made.*` in their folder, which holds what `prepare` puts there.
COMMANDS: dict[str, list[str]] = {
    "run": ["train", *FEW, "-s", "FNN", "--out", "run"],
    "train": ["train", *FEW, "-o", "engine.checkpoint_steps=2", "-s", "SCBNN-OCM", "--out", "made"],
    "train trust": ["train", *FEW, "-s", "FNN", "--calibrator", "temperature", "--rule", "trust", "--out", "made"],
    "train dropout": ["train", *FEW, "-o", "posterior.family=mc_dropout", "-s", "SBNN", "--out", "made"],
    "sweep": ["sweep", "--data", "own.npz", "-p", "lambda=0.5,2", *FEW, "--out", "made"],
    "predict csv": ["predict", "run", "embedded", "--out", "made.csv"],
    "predict parquet": ["predict", "run", "embedded", "--probabilities", "--out", "made.parquet"],
    "evaluate": ["evaluate", "run", "--out", "made.csv"],
    "report": ["report", "run", "--out", "made.html"],
    "audit": ["audit", "predictions.csv", "--out", "made.html", "--write-calibrator", "made.json"],
    "calibrate": ["calibrate", "own_nets:make", "--data", "folder:photos?size=8", "--out", "made"],
    "demo": ["demo", "--seeds", "1", "--workers", "1", *FEW, "--out", "made"],
    "reproduce": ["reproduce", "reliability", *LAB_OPTIONS, "--seeds", "0", "--out", "made/results",
                  "--runs", "made/runs"],
}  # fmt: skip
NET = """from torch import nn

def make(classes=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, int(classes)))
"""


def prepare(folder: Path) -> Path:
    """What the commands read, but for the run: tables, images, a network."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savez(folder / "own.npz", x=rng.normal(size=(300, 8)).astype(np.float32), y=rng.integers(0, 3, 300))
    lines = [f"{c:.6f},{int(rng.random() < c - 0.3)}" for c in rng.beta(5, 1.5, 400)]
    (folder / "predictions.csv").write_text("\n".join(["confidence,correct", *lines]) + "\n")
    for number in range(80):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (8, 8, 3)) + 100 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "own_nets.py").write_text(NET)
    return folder


@dataclass(frozen=True)
class Undisturbed:
    """What a command leaves, how often it changes a file, and how long it takes."""

    files: dict[str, str]
    changes: int
    seconds: float


class Killer:
    """Starts commands in processes forked from one that has imported everything, each in a copy of `whole`."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.whole, self.folder = whole, folder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
        self._known: dict[str, Undisturbed] = {}

    def undisturbed(self, name: str) -> Undisturbed:
        """The result to compare with; the command runs once."""
        if name not in self._known:
            place, began = self._place(f"{name} undisturbed"), time.monotonic()
            self._finish(name, place)
            changes = int(place.with_suffix(".changes").read_text())
            self._known[name] = Undisturbed(snapshot(place), changes, time.monotonic() - began)
        return self._known[name]

    def check(self, name: str, seed: int) -> str:
        """Kill the command `name` at a moment drawn from `seed`, start it again, and compare; says when it died."""
        whole, draw = self.undisturbed(name), random.Random(f"{name} {seed}")
        place = self._place(f"{name} {seed}")
        change = draw.randint(1, whole.changes) if seed % 2 == 0 else None
        process = self._start(name, place, change)
        seconds = draw.random() * whole.seconds
        process.join(seconds if change is None else 300)
        process.kill()
        process.join()
        moment = f"{name}: after {seconds:.2f} s" if change is None else f"{name}: at change {change}"
        moment += f" (of {whole.seconds:.2f} s and {whole.changes} changes; exit code {process.exitcode})"
        _set_back_the_clock(place)
        self._finish(name, place)
        left = snapshot(place)
        different = sorted(path for path in {*left, *whole.files} if left.get(path) != whole.files.get(path))
        assert not different, f"{moment}: not the same after a second start: {different}"
        shutil.rmtree(place)
        return moment

    def _place(self, name: str) -> Path:
        if not (self.whole / "run").exists() and "run" in COMMANDS[name.rpartition(" ")[0]]:
            self._finish("run", self.whole)
        return Path(shutil.copytree(self.whole, self.folder / name.replace(" ", "-")))

    def _start(self, name: str, place: Path, change: int | None = None) -> Any:
        process = self.context.Process(target=_command, args=(COMMANDS[name], place, change))
        process.start()
        return process

    def _finish(self, name: str, place: Path) -> None:
        process = self._start(name, place)
        process.join(300)
        assert process.exitcode == 0, place.with_suffix(".log").read_text()


def _set_back_the_clock(place: Path) -> None:
    """By a day, as the second start sees it: what the first one left is from tomorrow."""
    tomorrow = time.time() + 86_400
    for path in place.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))


def snapshot(place: Path) -> dict[str, str]:
    """The SHA-256 of every file that a command made, by path; temporary ones, which are hidden, are leftovers."""
    tops = [top for pattern in ("made*", ".made*") for top in place.glob(pattern)]
    files = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    kept = [path for path in files if path.is_file() and not _passing(path.relative_to(place))]
    return {str(path.relative_to(place)): hashlib.sha256(_content(path)).hexdigest() for path in kept}


def _content(path: Path) -> bytes:
    """All bytes, but for how often the trials of a sweep were begun."""
    if path.name == "sweep.json":
        return re.sub(rb'"attempts": \d+', b"", path.read_bytes())
    if path.name == "sweep.csv":
        return json.dumps([{**row, "attempts": ""} for row in read_rows(path)]).encode()
    return path.read_bytes()


def _passing(path: Path) -> bool:
    return any(PASSING.search(part) for part in path.parts)


def _command(arguments: list[str], place: Path, change: int | None) -> None:
    """One command in this process, which ends with it."""
    os.setsid()
    os.chdir(place)
    sys.path.insert(0, str(place))
    sys.argv = ["calibrant", *arguments]
    with place.with_suffix(".log").open("ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    changes = _watch(place, change)
    from calibrant.cli import app, errors

    try:
        errors.run(app)
    finally:
        place.with_suffix(".changes").write_text(str(changes[0]))


def _watch(place: Path, change: int | None) -> list[int]:
    """Count the changes to files in `place`, and die at the given one."""
    count = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        else:
            path, written = (arguments or (None,))[0], event in CHANGES
        if written and isinstance(path, (str, Path)) and (not str(path).startswith("/") or place in Path(path).parents):
            count[0] += 1
            if count[0] == change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return count
