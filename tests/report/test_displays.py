from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic import evaluation

from calibrant import metrics
from calibrant.config.schemes import Scheme
from calibrant.evaluation import Resampling, summarize
from calibrant.report import (
    ConfidenceHistogramDisplay,
    CoverageDisplay,
    Display,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TradeOffDisplay,
    line_styles,
    pareto,
)

ONE = evaluation("FNN", n=200)
GROUP = [evaluation(name, seed, n=200) for name in ("FNN", "SCBNN-OCM") for seed in (0, 1)]

MAKERS: dict[str, Callable[[], Display]] = {
    "reliability": lambda: ReliabilityDisplay.from_predictions(ONE.id.confidence, ONE.id.correct, name="FNN"),
    "histogram": lambda: ConfidenceHistogramDisplay.from_confidences(
        ONE.id.confidence, {name: out.confidence for name, out in ONE.ood.items()}
    ),
    "coverage": lambda: CoverageDisplay.from_evaluations(GROUP),
    "risk": lambda: RiskCoverageDisplay.from_predictions(ONE.id.acceptance, ONE.id.correct, name="FNN"),
    "tradeoff": lambda: TradeOffDisplay.from_rows(summarize(GROUP, resampling=Resampling(20))),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_display_saves_the_same_bytes_as_png_and_pdf(name: str, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        MAKERS[name]().save(tmp_path / folder / "x.png", tmp_path / folder / "x.pdf")
    for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        first, second = ((tmp_path / folder / f"x.{kind}").read_bytes() for folder in ("a", "b"))
        assert first.startswith(magic)
        assert first == second


def test_the_reliability_display_draws_what_was_measured() -> None:
    ax = Figure().subplots()
    display = ReliabilityDisplay.from_predictions(ONE.id.confidence, ONE.id.correct, bins=10, ax=ax)
    diagram = metrics.reliability_diagram(ONE.id.confidence, ONE.id.correct, bins=10)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    heights = [bar.get_height() for bar in ax.containers[0]]
    np.testing.assert_allclose(heights, diagram.accuracy[diagram.count > 0])
    counts = [bar.get_height() for bar in ax.child_axes[0].containers[0]]
    np.testing.assert_array_equal(counts, diagram.count)
    assert f"ECE {100 * diagram.calibration_error:.1f} %" in ax.get_legend().get_title().get_text()


def test_bins_with_few_inputs_are_left_out_on_request() -> None:
    display = ReliabilityDisplay.from_predictions(ONE.id.confidence, ONE.id.correct, min_count=20)
    shown = int((display.diagram.count >= 20).sum())
    assert 0 < shown < (display.diagram.count > 0).sum()
    assert len(display.ax_.containers[0]) == shown
    with pytest.raises(ValueError, match="min_count must be at least 1"):
        ReliabilityDisplay(display.diagram, min_count=0).plot()


def test_the_histogram_shows_shares_and_the_detection_probability() -> None:
    levels = {"near": ONE.ood["near"].confidence}
    display = ConfidenceHistogramDisplay.from_confidences(ONE.id.confidence, levels, bins=5)
    assert display.id_share.sum() == pytest.approx(1)
    expected = metrics.ood_detection_probability(ONE.id.confidence, levels["near"], bins=5)
    assert display.detection["near"] == pytest.approx(expected)
    label = display.ax_.get_legend().get_texts()[1].get_text()
    assert label == f"OOD near, detected {100 * expected:.1f} %"


def test_the_coverage_display_draws_the_mean_over_seeds() -> None:
    display = CoverageDisplay.from_evaluations(GROUP, coverages=[0.5, 1.0], measures=("accuracy", "system_rate"))
    assert len(display.ax_) == 2
    line = display.ax_[0].get_lines()[0]
    assert line.get_label() == "FNN"
    expected = np.mean([one.id.correct.mean() for one in GROUP[:2]])
    assert line.get_ydata()[1] == pytest.approx(expected)
    with pytest.raises(ValueError, match="ood must be one of near, far"):
        CoverageDisplay(display.curves, "nowhere").plot()
    with pytest.raises(ValueError, match="measures must be among"):
        CoverageDisplay(display.curves, measures=("speed",)).plot()
    with pytest.raises(ValueError, match="ax has 1 axes"):
        CoverageDisplay(display.curves).plot(ax=Figure().subplots())


def test_risk_curves_share_axes() -> None:
    first = RiskCoverageDisplay.from_predictions([0.9, 0.8, 0.1], [1, 0, 1], name="A")
    second = RiskCoverageDisplay.from_predictions([0.9, 0.8, 0.1], [1, 1, 0], name="B", ax=first.ax_)
    assert second.figure_ is first.figure_
    assert [line.get_ydata()[-1] for line in second.ax_.get_lines()] == pytest.approx([1 / 3, 1 / 3])
    assert second.ax_.get_ylim()[1] > 0.5


def test_the_front_holds_the_points_that_none_beats() -> None:
    rng = np.random.default_rng(0)
    accuracy, ece = rng.integers(0, 6, size=(2, 40)) / 10
    brute = [
        not any(
            accuracy[j] >= accuracy[i] and ece[j] <= ece[i] and (accuracy[j] > accuracy[i] or ece[j] < ece[i])
            for j in range(40)
        )
        for i in range(40)
    ]
    assert pareto(accuracy, ece).tolist() == brute


def test_a_trade_off_without_ood_data_has_no_color_bar() -> None:
    display = TradeOffDisplay.from_values([0.9, 0.8], [0.1, 0.05], names=["A", "B"])
    assert len(display.figure_.axes) == 1
    with pytest.raises(ValueError, match="names has 1 entries"):
        TradeOffDisplay.from_values([0.9, 0.8], [0.1, 0.05], names=["A"])
    with pytest.raises(ValueError, match="rows hold nothing at coverage"):
        TradeOffDisplay.from_rows([])


def test_every_scheme_looks_different() -> None:
    styles = line_styles([str(scheme) for scheme in Scheme.all()] + ["mine", "yours"])
    assert len(set(styles.values())) == 18


def test_wrong_paths_and_undrawn_displays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in \.png"):
        MAKERS["risk"]().save(tmp_path / "x.bmp")
    display = MAKERS["risk"]()
    assert isinstance(display, RiskCoverageDisplay)
    with pytest.raises(ValueError, match="not drawn yet"):
        RiskCoverageDisplay(display.curve).save(tmp_path / "x.png")
