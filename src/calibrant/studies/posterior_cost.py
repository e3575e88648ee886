"""What the rows of the study `posteriors` cost: seconds and memory of a fit and of predictions, on one thread.

Seconds are of the processor. All rows are timed in turns on the same few images, and the least of the rounds counts:

    T(E) = a + b E,    seconds of a fit = (a + b E') N / n,

with T(1) and T(2) measured for n images; E' is the number of epochs of the row and N that of the training images. The
intercept a holds what a family does once, after training. Memory is the growth of a fresh process at its peak.
"""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from calibrant import InputError
from calibrant.config.dependence import key
from calibrant.config.loading import Settings
from calibrant.data import ArrayData
from calibrant.files import RunError, read_entries
from calibrant.studies.jobs import open_workspace
from calibrant.studies.lab import AGAIN, FORMAT, Lab, MissingRecord, write_compact
from calibrant.training import TrainingData, Workspace
from calibrant.training.predicting import InOrder, predict

COSTS = 2
"""Raised where a change of the code makes the measured costs others: 2 runs what members share once per batch."""
IMAGES, FEW = 1024, 16
SCHEME = "BNN"
Arrays = tuple[torch.Tensor, torch.Tensor]


def cost_path(lab: Lab) -> Path:
    """The file of the measurements."""
    return lab.results / "records" / "posterior-costs.json"


def read_costs(lab: Lab) -> dict[str, dict[str, float]]:
    """Seconds and memory in bytes by system."""
    if not cost_path(lab).is_file():
        raise MissingRecord(f"{cost_path(lab)} is missing: the study has not been run to its end")
    found = _read(lab)["systems"]
    if not all(
        isinstance(row, dict) and all(isinstance(one, int | float) for one in row.values()) for row in found.values()
    ):
        raise RunError(f"{cost_path(lab)} was altered (a cost is no number); {AGAIN}")
    return dict(found)


def _read(lab: Lab) -> dict[str, Any]:
    return read_entries(cost_path(lab), {"digest": str, "systems": dict}, AGAIN)


def measure_costs(lab: Lab) -> None:
    """Measure all rows, unless that is done already by code that costs the same."""
    plan = lab.plan.posteriors
    digest = key({"format": FORMAT, "costs": COSTS, "systems": {n: list(c) for n, c in plan.systems.items()}})
    if cost_path(lab).is_file() and _read(lab)["digest"] == digest:
        return
    if lab.runs is None:
        raise InputError("the study `posteriors` needs a run directory")
    whole = open_workspace(lab.settings.model_dump_json(), lab.seeds[0], lab.runs, False).data.train
    images = _images(whole)
    rows = {name: lab.settings.with_(*changes) for name, changes in plan.systems.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = _least([{n: _seconds(s, images, len(whole)) for n, s in rows.items()} for _ in range(_rounds(lab))])
    finally:
        torch.set_num_threads(threads)
    memory = {name: {kind: _growth(work, settings, images) for kind, work in _WORK.items()}
              for name, settings in rows.items()}  # fmt: skip
    content = {name: {**seconds[name], **memory[name]} for name in rows}
    write_compact(cost_path(lab), {"digest": digest, "images": len(images[0]), "systems": content})


def _rounds(lab: Lab) -> int:
    return 1 + lab.plan.posteriors.cost_rounds  # the first one also pays for what is done once in a process


def _images(data: Any) -> Arrays:
    inputs, labels = data.take(torch.arange(min(IMAGES, len(data))))
    return inputs, labels


def _space(settings: Settings, images: Arrays, *overrides: str, count: int = IMAGES) -> Workspace:
    classes = tuple(map(str, range(int(images[1].max()) + 1)))
    part = ArrayData(images[0][:count], images[1][:count], classes)
    few = ArrayData(images[0][:FEW], images[1][:FEW], classes)
    own = settings.with_("fit.validate_every=0", *overrides)
    return Workspace(TrainingData(part, few), own, None, progress=False)


def _seconds(settings: Settings, images: Arrays, size: int) -> dict[str, float]:
    """Of a whole fit, and of predicting a thousand images."""
    space = _space(settings, images, "fit.epochs=1")
    once = _timed(lambda: space.history(SCHEME))
    longer = _space(settings, images, "fit.epochs=2")
    each = max(_timed(lambda: longer.history(SCHEME)) - once, 0.0)
    whole = (once + each * (settings.fit.epochs - 1)) * size / len(images[0])
    ensemble, part = space.ensemble(SCHEME), InOrder(space.data.train, settings.engine.predict_batch_size)
    thousand = _timed(lambda: predict(ensemble, part)) * 1000 / len(images[0])
    return {"training_seconds": whole, "prediction_seconds": thousand}


def _timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _least(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {n: {k: round(min(one[n][k] for one in rounds), 4) for k in rounds[0][n]} for n in rounds[0]}


def _growth(work: Callable[[Settings, Arrays], None], settings: Settings, images: Arrays) -> int:
    """Bytes by which a fresh process grows while it does `work`."""
    with get_context("spawn").Pool(1) as pool:
        return int(pool.apply(_grown, (work, settings.model_dump_json(), images)))


def _grown(work: Callable[[Settings, Arrays], None], settings: str, images: Arrays) -> int:
    torch.set_num_threads(1)
    chosen = Settings.model_validate_json(settings)
    _predict(chosen.with_("posterior.family=deterministic"), images)  # loads what is loaded on first use
    before = _peak_since_now()
    work(chosen, images)
    return max(_peak() - before, 0)


def _peak_since_now() -> int:
    """Start the peak of this process's resident memory anew, where the system can; returns it in bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """The peak of this process's resident memory in bytes."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _train(settings: Settings, images: Arrays) -> None:
    _space(settings, images, "fit.epochs=1", count=IMAGES // 4).history(SCHEME)


def _predict(settings: Settings, images: Arrays) -> None:
    """Trained on next to nothing, so that the peak is that of predicting."""
    space = _space(settings, images, "fit.epochs=1", "fit.batch_size=4", count=FEW)
    predict(space.ensemble(SCHEME), InOrder(ArrayData(*images), settings.engine.predict_batch_size))


_WORK: Mapping[str, Callable[[Settings, Arrays], None]] = {"training_bytes": _train, "prediction_bytes": _predict}
