"""The README's picture, from what `make demo` left behind: `python docs/pictures/demo.py [demo]`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from calibrant.evaluation import Evaluation, coverage_curves
from calibrant.report import ConfidenceHistogramDisplay, save_figure


def main(folder: Path) -> None:
    """Confidence of FNN and of SCBNN-OCM on digits and photographs, and how well they are told apart."""
    seeds = sorted(folder.glob("seed-*"))
    found = {s: [Evaluation.load(seed / "evaluations" / f"{s}.npz") for seed in seeds] for s in ("FNN", "SCBNN-OCM")}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
    for ax, (system, runs) in zip(axes, found.items()):
        inside = np.concatenate([run.id.confidence for run in runs])
        outside = np.concatenate([run.ood["far"].confidence for run in runs])
        ConfidenceHistogramDisplay.from_confidences(inside, {"photographs": outside}, ax=ax)
        ax.set_title(f"{system}, digits and photographs")
    for curve in coverage_curves([run for runs in found.values() for run in runs]):
        axes[2].plot(100 * curve.coverage.mean(0), 100 * curve.ood["far"]["system_rate"].mean(0), label=curve.system)
    axes[2].set(xlabel="Digits answered, %", ylabel="Told apart, %", title="Digits and photographs, with abstention")
    axes[2].legend(frameon=False)
    save_figure(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
