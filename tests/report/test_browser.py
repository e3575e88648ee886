from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import Visit, needs_browser, opened
from synthetic import evaluation

from calibrant import metrics
from calibrant.evaluation import Evaluation, Resampling, Row, summarize
from calibrant.report import write_page

pytestmark = needs_browser
SYSTEMS = ("FNN", "CBNN", "SCBNN-OCM")


@pytest.fixture(scope="module")
def group() -> list[Evaluation]:
    return [evaluation(name, seed, n=500) for name in SYSTEMS for seed in (0, 1)]


@pytest.fixture(scope="module")
def rows(group: list[Evaluation]) -> list[Row]:
    return summarize(group, resampling=Resampling(resamples=20))


@pytest.fixture(scope="module")
def path(group: list[Evaluation], rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = {"id": np.random.default_rng(0).integers(0, 256, size=(500, 8, 8), dtype=np.uint8)}
    folder = tmp_path_factory.mktemp("page")
    return write_page(folder / "page.html", group, title="A page", images=images, commands=["make"], summary=rows)


def check_numbers(visit: Visit, group: list[Evaluation], system: str, percent: int) -> None:
    """The tiles against the library's own measures, computed one seed at a time."""
    some = [one for one in group if one.system == system]
    chosen = [
        metrics.selective(one.id.confidence, one.id.correct, one.id.acceptance, coverage=percent / 100) for one in some
    ]
    assert visit.tile("coverage") == pytest.approx(np.mean([one.coverage for one in chosen]), abs=1e-6)
    assert visit.tile("accuracy") == pytest.approx(np.mean([one.accuracy for one in chosen]), abs=1e-6)
    assert visit.tile("ece") == pytest.approx(np.mean([one.calibration_error for one in chosen]), abs=1e-6)
    far = [
        metrics.ood_detection_at_coverage(
            one.id.confidence,
            one.ood["near"].confidence,
            one.id.acceptance,
            one.ood["near"].acceptance,
            coverage=percent / 100,
        )
        for one in some
    ]
    assert visit.tile("ood_acceptance") == pytest.approx(np.mean([one.ood_coverage for one in far]), abs=1e-6)
    assert visit.tile("system_rate") == pytest.approx(np.mean([one.system_rate for one in far]), abs=1e-6)


def test_the_slider_moves_numbers_that_are_the_librarys(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        page.locator("#system").select_option("SCBNN-OCM")
        assert visit.tile("coverage") == visit.tile("ood_acceptance") == 1  # at full coverage nothing is rejected
        for percent in (99, 70, 30):
            visit.move(percent)
            check_numbers(visit, group, "SCBNN-OCM", percent)
        shown = page.locator("#tiles dd[data-key=accuracy]").text_content()
        assert shown == f"{100 * visit.tile('accuracy'):.1f} %"
        page.wait_for_function("document.getElementById('reading').textContent.startsWith('At 30 % coverage')")
        before = page.locator("#reliability figure[data-key=FNN] small").text_content()
        page.locator("#reliability figure[data-key=FNN]").scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        drawn = page.locator("#reliability figure[data-key=FNN] svg").inner_html()
        visit.move(90)
        assert page.locator("#reliability figure[data-key=FNN] small").text_content() != before
        page.wait_for_function(
            "old => document.querySelector('#reliability figure[data-key=FNN] svg').innerHTML !== old", arg=drawn
        )
        page.locator("#system").select_option("FNN")
        page.wait_for_function("document.getElementById('reading').textContent.includes('FNN accepts 90')")
        check_numbers(visit, group, "FNN", 90)
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [path.as_uri()]


def test_the_diagrams_table_holds_the_librarys_bins(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        visit.move(50)
        visit.page.locator("details[data-table=reliability] summary").click()
        values = visit.page.eval_on_selector_all(
            "details[data-table=reliability] tbody tr",
            "trs => trs.filter(tr => tr.cells[0].textContent === 'CBNN')"
            ".map(tr => [...tr.querySelectorAll('[data-name]')].map(td => Number(td.dataset.value)))",
        )
        kept = [one.id.acceptance >= metrics.threshold_at_coverage(one.id.acceptance, 0.5) for one in group[2:4]]
        diagram = metrics.reliability_diagram(
            np.concatenate([one.id.confidence[k] for one, k in zip(group[2:4], kept)]),
            np.concatenate([one.id.correct[k] for one, k in zip(group[2:4], kept)]),
        )
        full = diagram.count > 0
        expected = np.stack([diagram.count, diagram.accuracy, diagram.confidence], axis=1)[full]
        np.testing.assert_allclose(values, expected, atol=1e-4)


def test_the_slider_answers_to_the_keyboard(path: Path) -> None:
    with opened(path) as visit:
        page = visit.page
        page.locator("#coverage").focus()
        for key, wanted in (("ArrowLeft", "99 %"), ("Home", "1 %"), ("End", "100 %"), ("PageDown", "90 %")):
            page.keyboard.press(key)
            page.wait_for_function("wanted => document.getElementById('wanted').textContent === wanted", arg=wanted)
            assert page.locator("#coverage").get_attribute("aria-valuetext") == wanted
        assert visit.complaints == []


def test_the_table_sorts_and_shows_the_chosen_rows(path: Path, rows: list[Row]) -> None:
    with opened(path) as visit:
        page = visit.page

        def visible() -> list[str]:
            return page.eval_on_selector_all(
                "#all tbody tr:not([hidden])", "trs => trs.map(tr => tr.cells[0].textContent)"
            )

        assert visible() == list(SYSTEMS)
        page.locator("[name=table-coverage][value='0.5']").check()
        page.locator("#ood").select_option("far")
        chosen = [row for row in rows if (row.wanted_coverage, row.ood) == (0.5, "far")]
        heading = page.get_by_role("button", name="Accuracy")
        for order, reverse in (("ascending", False), ("descending", True)):
            heading.click()
            expected = sorted(chosen, key=lambda row: row.accuracy.estimate, reverse=reverse)
            assert visible() == [row.system for row in expected]
            assert page.locator("#all th[aria-sort=" + order + "]").count() == 1
        page.keyboard.press("Enter")
        assert page.locator("#all th[aria-sort=ascending]").count() == 1


def test_systems_can_be_hidden_and_tables_downloaded(path: Path, tmp_path: Path, rows: list[Row]) -> None:
    with opened(path) as visit:
        page = visit.page
        assert page.locator("#reliability figure").count() == 3
        page.locator("#chips label", has_text="CBNN").first.click()
        page.wait_for_function("document.querySelectorAll('#reliability figure').length === 2")
        page.locator("#chips label", has_text="CBNN").first.click()
        page.wait_for_function("document.querySelectorAll('#reliability figure svg').length === 3")
        names = page.eval_on_selector_all("#reliability figure", "boxes => boxes.map(box => box.dataset.key)")
        assert names == list(SYSTEMS)
        with page.expect_download() as download:
            page.locator("[data-csv=table]").click()
        download.value.save_as(tmp_path / "table.csv")
        found = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
        assert [line["system"] for line in found] == [row.system for row in rows]
        assert [float(line["ece"]) for line in found] == [row.ece.estimate for row in rows]
        assert visit.complaints == []


def test_inputs_are_shown_with_their_pictures(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        page.locator("#system").select_option("FNN")
        visit.move(50)
        first = group[0].id
        kept = first.acceptance >= metrics.threshold_at_coverage(first.acceptance, 0.5)
        confident = first.confidence[kept & ~first.correct].max()
        page.wait_for_function(
            "text => document.querySelector('#mistake li').textContent.includes(text)",
            arg=f"confidence {100 * confident:.1f} %",
        )
        assert page.locator("#mistake img").count() == page.locator("#mistake li").count() == 8
        assert page.locator("#rejected li").count() == 8
        assert page.locator("#ood-examples li").count() == 8
        assert page.locator("#ood-examples img").count() == 0  # no pictures of these were given


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_changes_its_theme(path: Path, scheme: str) -> None:
    with opened(path, viewport={"width": 390, "height": 800}, color_scheme=scheme) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        paper = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(paper)
        assert before == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
        page.locator("#theme").click()
        assert page.evaluate(paper) != before
        named = "e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')"
        controls = "[...document.querySelectorAll('input, select, button')]"
        unlabeled = page.evaluate(f"{controls}.filter(e => !({named})).length")
        assert unlabeled == 0
        assert page.evaluate("[...document.querySelectorAll('.chart')].every(e => e.getAttribute('aria-label'))")


def test_a_system_without_ood_data_has_a_page_too(group: list[Evaluation], tmp_path: Path) -> None:
    one = replace(group[0], ood={})
    alone = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
    with opened(alone) as visit:
        visit.move(40)
        expected = metrics.selective(one.id.confidence, one.id.correct, coverage=0.4)
        assert visit.tile("ece") == pytest.approx(expected.calibration_error, abs=1e-6)
        assert visit.page.locator("#ood").count() == 0
        assert visit.complaints == []
