"""The page of a study in a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser import CONTRAST, needs_browser, opened
from PIL import Image

from calibrant.metrics import Interval
from calibrant.studies.page import write_study_page
from calibrant.studies.study_table import Cell, StudyTable

pytestmark = needs_browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_phone_and_desk_in_both_themes(tmp_path: Path, scheme: str, width: int) -> None:
    figure, path = tmp_path / "figure.png", tmp_path / "page.html"
    Image.fromarray(np.full((40, 2000), 200, np.uint8)).save(figure)
    row: dict[str, Cell] = {"system": "FNN", **{f"measure {i}": Interval(0.5, 0.4, 0.6) for i in range(20)}}
    write_study_page(path, "A study", "What it shows.", [figure], [StudyTable([row], note="In percent.")], "a: 1")
    with opened(path, ready="main", viewport={"width": width, "height": 800}, color_scheme=scheme) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert dark is (scheme == "dark")
        table = page.locator(".wide")
        assert table.evaluate("box => box.scrollWidth > box.clientWidth")
        assert table.evaluate("box => getComputedStyle(box).backgroundAttachment.includes('local')")  # the scroll cue
        table.focus()
        page.keyboard.press("ArrowRight")
        visit.until("document.querySelector('.wide').scrollLeft > 0")
        assert page.locator("img").get_attribute("alt") == "figure: What it shows."
        assert visit.complaints == []
