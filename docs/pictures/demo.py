"""The README's picture, from what `calibrant demo --seeds 8` left behind: `python docs/pictures/demo.py [demo]`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from calibrant.evaluation import coverage_curves
from calibrant.report import ConfidenceHistogramDisplay, save_figure
from calibrant.report.display import percent_axis
from calibrant.report.style import GREEN, MUTED, PURPLE
from calibrant.runs.run import open_runs

SYSTEMS = {"FNN + temperature": "confidence, temperature-scaled", "SCBNN-OCM": "SCBNN-OCM", "FNN + trust": "trust"}
COLORS = {"FNN + temperature": MUTED, "SCBNN-OCM": PURPLE, "FNN + trust": GREEN}


def main(folder: Path) -> None:
    """Confidence and trust of digits and photographs, and how many photographs each system answers."""
    found = {name: [] for name in SYSTEMS}
    for run in open_runs(folder):
        for evaluation in run.evaluations():
            if evaluation.system in found:
                found[evaluation.system].append(evaluation)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
    for ax, name in zip(axes, ("FNN + temperature", "FNN + trust")):
        inside = np.concatenate([one.id.forecast for one in found[name]])
        outside = np.concatenate([one.ood["far"].forecast for one in found[name]])
        ConfidenceHistogramDisplay.from_confidences(inside, {"photographs": outside}, ax=ax)
        ax.set(title=SYSTEMS[name].capitalize(), xlabel=SYSTEMS[name].partition(",")[0].capitalize())
    for curve in coverage_curves([one for each in found.values() for one in each]):
        answered = curve.ood["far"]["ood_acceptance"].mean(0)
        name = SYSTEMS[curve.system].replace(", ", ",\n")
        axes[2].plot(curve.coverage.mean(0), answered, color=COLORS[curve.system], label=name)
    axes[2].set(xlabel="Digits answered", ylabel="Photographs answered", title="What is answered")
    percent_axis(axes[2].xaxis, axes[2].yaxis)
    axes[2].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    save_figure(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
