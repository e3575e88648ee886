"""Class names that want to be code, through a trained image folder into every page."""

from __future__ import annotations

import csv
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import needs_browser, opened
from PIL import Image

from calibrant.audit import audit
from calibrant.config.loading import load_settings
from calibrant.deploy.demo import demo_page
from calibrant.deploy.pipeline import PRODUCTS, train_run
from calibrant.deploy.reporting import report_page
from calibrant.evaluation import Resampling
from calibrant.report.page.write import _json
from calibrant.runs.run import Run
from calibrant.studies.page import write_study_page
from calibrant.studies.study_table import StudyTable

CLASSES = sorted(
    (
        "<img src=x onerror=alert(1)>",
        "\"><svg onload='alert(2)'>",
        "'; alert(3); '",
        "{{ 7 * 7 }}{% raise %}",
        "<!--<script>alert(4)",
        "constructor",
        "__proto__",
        "=HYPERLINK(1)",
        "\u202egnp.\u2066x",
    )
)
OUTLIERS = "<script>alert(5)"
OPTIONS = ("fit.epochs=1", "backbone.name=mlp-8", "data.validation=30", "data.test=60", "report.resamples=5")


class Reader(HTMLParser):
    """All elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The page of a run on the folder, of an audit of what it predicted, and of the demo on the run."""
    root, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(0)
    for folder in (*(Path("data") / name for name in CLASSES), Path(OUTLIERS)):
        (root / folder).mkdir(parents=True)
        for number in range(16):
            Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8)).save(root / folder / f"{number}.png")
    data = (f"data.source=folder:{root / 'data'}", f"data.ood=['folder:{root / OUTLIERS}']")
    settings = load_settings(overrides=[*OPTIONS, *data])
    evaluation, *_ = train_run(settings, ["FNN"], root / "run", products=tuple(PRODUCTS), progress=False)
    with (root / "preds.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["confidence", "label", "predicted"])
        one = evaluation.id
        for level, label, predicted in zip(one.confidence, one.labels, one.predicted):
            lines.writerow([level, CLASSES[label], CLASSES[predicted]])
    audit(root / "preds.csv", page=root / "audit.html", resampling=Resampling(resamples=5))
    run = [Run(root / "run")]
    return [report_page(run, root / "run.html"), root / "audit.html", demo_page(run, root / "demo.html")]


def test_no_name_becomes_an_element_or_an_attribute(pages: list[Path]) -> None:
    for path in pages:
        text = path.read_text()
        found = Reader(text).tags
        assert [tag for tag, _ in found].count("script") == 2
        assert not [tag for tag, _ in found if tag in ("img", "svg", "iframe", "object")]
        assert not [name for _, attributes in found for name in attributes if name.startswith("on")]
        assert sum(_json(name)[1:-1] in text for name in CLASSES) > 4


def test_no_name_becomes_an_element_of_a_study_s_page(tmp_path: Path) -> None:
    figure = tmp_path / "a.png"
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(figure)
    rows = [{"model": name, name: name} for name in CLASSES]
    for text in (*CLASSES, OUTLIERS):
        write_study_page(tmp_path / "page.html", text, text, [figure], [StudyTable(rows, note=text)], text)
        found = Reader((tmp_path / "page.html").read_text()).tags
        assert not [tag for tag, _ in found if tag in ("script", "svg", "iframe", "object")]
        assert [tag for tag, _ in found].count("img") == 1  # the figure's
        assert not [name for _, attributes in found for name in attributes if name.startswith("on")]


@needs_browser[0]
@needs_browser[1]
def test_the_browser_shows_every_name_as_it_is_written(pages: list[Path], tmp_path: Path) -> None:
    dialogs: list[str] = []
    for path in pages:
        with opened(path) as visit:
            visit.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
            shown: set[str] = set()
            for percent in (100, 80, 60, 40, 20):
                visit.move(percent)
                shown.update(visit.page.locator(".examples b, .examples b + span").all_text_contents())
            named = {one.removeprefix("says ").removeprefix("is ") for one in shown if one.startswith(("says ", "is "))}
            assert named <= set(CLASSES)
            assert len(named) > 4
            visit.move(100)
            with visit.page.expect_download() as download:
                visit.page.locator("[data-csv=examples]").click()
            download.value.save_as(tmp_path / "examples.csv")
            cells = {cell for line in csv.reader((tmp_path / "examples.csv").read_text().splitlines()) for cell in line}
            assert not [cell for cell in cells if cell.startswith(("=", "@"))]
            assert dialogs == []
            assert visit.complaints == []
