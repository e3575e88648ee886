from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import CONTRAST, Visit, needs_browser, opened
from synthetic import evaluation

from calibrant import metrics
from calibrant.evaluation import Evaluation, Resampling, Row, summarize
from calibrant.predictions import Predictions
from calibrant.report import Certified, write_page

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


def selected(group: list[Evaluation], system: str, percent: int) -> list[metrics.SelectiveMetrics]:
    return [
        metrics.selective(one.id.confidence, one.id.correct, one.id.acceptance, coverage=percent / 100)
        for one in group
        if one.system == system
    ]


def check_numbers(visit: Visit, group: list[Evaluation], system: str, percent: int) -> None:
    """The table against the library's own measures, computed one seed at a time."""
    chosen = selected(group, system, percent)
    for key, name in (("coverage", "coverage"), ("accuracy", "accuracy"), ("ece", "calibration_error")):
        expected = np.mean([getattr(one, name) for one in chosen])
        assert visit.number(key, system) == pytest.approx(expected, abs=1e-6), key
    far = [
        metrics.ood_detection_at_coverage(
            one.id.confidence,
            one.ood["near"].confidence,
            one.id.acceptance,
            one.ood["near"].acceptance,
            coverage=percent / 100,
        )
        for one in group
        if one.system == system
    ]
    assert visit.number("ood_acceptance", system) == pytest.approx(np.mean([one.ood_coverage for one in far]), abs=1e-6)
    assert visit.number("system_rate", system) == pytest.approx(np.mean([one.system_rate for one in far]), abs=1e-6)


def verdict(visit: Visit) -> str:
    return str(visit.page.locator("#verdict").text_content())


def test_it_opens_with_a_verdict_at_a_sensible_operating_point(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        assert page.locator("#wanted").text_content() == "80 %"
        assert page.locator("#system").input_value() == "SCBNN-OCM"
        assert re.fullmatch(
            r"SCBNN-OCM answers \d\d % of inputs, \d\d % of them right \(95 % interval: [\d.]+ to [\d.]+\); hand the"
            r" rest to a person\. Of near, \d\d % would be answered, of far \d\d %\.",
            verdict(visit),
        )
        assert page.locator("#beside").text_content().startswith("FNN, asked for the same coverage, answers 80 % of")
        assert [page.locator("#table tbody th").all_text_contents()] == [["SCBNN-OCM", "FNN"]]
        for system in ("SCBNN-OCM", "FNN"):
            check_numbers(visit, group, system, 80)
        levels = [metrics.threshold_at_coverage(one.id.acceptance, 0.8) for one in group[4:]]
        copied = page.evaluate(
            "P => JSON.parse(P.textContent).systems[0].thresholds[79]", page.query_selector("#payload")
        )
        assert copied == pytest.approx(levels, rel=1e-12)
        shown = [float(one) for one in re.findall(r"(0\.\d+) \(seed", page.locator("#threshold").text_content())]
        assert shown == pytest.approx(levels, rel=1e-5)
        assert visit.complaints == []


def test_the_slider_moves_numbers_that_are_the_librarys(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        visit.move(100)
        assert visit.number("coverage") == visit.number("ood_acceptance") == 1  # at full coverage nothing is rejected
        assert verdict(visit).startswith("Answer all inputs: ")
        assert not page.locator("#threshold-row").is_visible()
        for percent in (99, 70, 30):
            visit.move(percent)
            check_numbers(visit, group, "SCBNN-OCM", percent)
            check_numbers(visit, group, "FNN", percent)
        accuracy = np.mean([one.accuracy for one in selected(group, "SCBNN-OCM", 30)])
        assert page.locator("#table tr.chosen td[data-key=accuracy]").text_content().startswith(f"{100 * accuracy:.1f}")
        assert f" {100 * accuracy:.0f} % of them right (" in verdict(visit)
        visit.until("document.getElementById('reading').textContent.startsWith('At 30 % coverage: SCBNN-OCM answers')")
        page.locator("#system").select_option("FNN")
        visit.until("document.querySelector('#table tr.chosen th').textContent === 'FNN'")
        check_numbers(visit, group, "FNN", 30)
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [path.as_uri()]


def test_the_operating_point_can_be_chosen_by_the_tolerated_error(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        grid = range(1, 101)
        errors = [1 - np.mean([one.accuracy for one in selected(group, "SCBNN-OCM", percent)]) for percent in grid]
        for tolerated in (0.2, 0.15, 0.3):
            best = max(percent for percent, error in zip(grid, errors) if error <= tolerated + 1e-9)
            page.locator("#error").fill(f"{100 * tolerated:g}")
            visit.until("best => document.getElementById('wanted').textContent === `${best} %`", best)
            assert 1 - visit.number("accuracy") <= tolerated + 1e-6
        page.locator("#error").fill("0")
        visit.until("document.getElementById('unreachable').textContent !== ''")
        assert page.locator("#unreachable").text_content() == "At no coverage are at most 0 % of the answers wrong."
        visit.move(60)
        assert page.locator("#error").input_value() == ""
        assert page.locator("#unreachable").text_content() == ""


def test_an_error_that_no_share_can_be_is_refused_in_a_sentence(path: Path) -> None:
    with opened(path) as visit:
        page, told = visit.page, visit.page.locator("#unreachable")
        for typed in ("200", "-3"):
            page.locator("#error").fill(typed)
            visit.until("document.getElementById('unreachable').textContent !== ''")
            assert told.text_content() == "The share of wrong answers must be a number from 0 to 100 %."
            assert told.get_attribute("role") == "alert"
            assert page.locator("#error").get_attribute("aria-invalid") == "true"
            assert page.locator("#wanted").text_content() == "80 %"
            page.locator("#error").fill("30")
            visit.until("document.getElementById('unreachable').textContent === ''")
            assert page.locator("#error").get_attribute("aria-invalid") == "false"
            visit.move(80)


def test_the_diagrams_table_holds_the_librarys_bins_and_wilsons_intervals(path: Path, group: list[Evaluation]) -> None:
    from scipy.stats import binomtest

    with opened(path) as visit:
        visit.page.locator("#system").select_option("CBNN")
        visit.move(50)
        visit.page.locator("details[data-table=reliability] summary").click()
        visit.until("document.querySelector('details[data-table=reliability] tbody tr [data-name]') !== null")
        values = np.array(
            visit.page.eval_on_selector_all(
                "details[data-table=reliability] tbody tr",
                "trs => trs.map(tr => [...tr.querySelectorAll('[data-name]')].map(td => Number(td.dataset.value)))",
            )
        )
        kept = [one.id.acceptance >= metrics.threshold_at_coverage(one.id.acceptance, 0.5) for one in group[2:4]]
        diagram = metrics.reliability_diagram(
            np.concatenate([one.id.confidence[k] for one, k in zip(group[2:4], kept)]),
            np.concatenate([one.id.correct[k] for one, k in zip(group[2:4], kept)]),
        )
        full = diagram.count > 0
        expected = np.stack([diagram.count, diagram.accuracy, diagram.confidence], axis=1)[full]
        np.testing.assert_allclose(values[:, [0, 1, 4]], expected, atol=1e-4)
        for count, accuracy, low, high, _ in values:
            if count % 2 == 0 and round(accuracy * count) % 2 == 0:  # two seeds saw the same inputs
                interval = binomtest(round(accuracy * count / 2), int(count / 2)).proportion_ci(method="wilson")
                assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_everything_answers_to_the_keyboard(path: Path) -> None:
    with opened(path) as visit:
        page = visit.page
        page.locator("#coverage").focus()
        for key, wanted in (("ArrowLeft", "79 %"), ("Home", "1 %"), ("End", "100 %"), ("PageDown", "90 %")):
            page.keyboard.press(key)
            visit.until("wanted => document.getElementById('wanted').textContent === wanted", wanted)
            assert page.locator("#coverage").get_attribute("aria-valuetext") == wanted
        chart = page.locator("[data-chart=wrong]")
        chart.focus()
        for _ in range(10):
            page.keyboard.press("ArrowLeft")
        assert chart.locator(".tip b").text_content() == "Coverage 80 %"
        assert chart.locator(".tip div").count() == 2
        page.keyboard.press("Enter")
        visit.until("document.getElementById('wanted').textContent === '80 %'")
        page.keyboard.press("Escape")
        assert not chart.locator(".tip").is_visible()
        assert visit.complaints == []


def test_the_rule_at_the_pointer_tells_all_values(path: Path, group: list[Evaluation]) -> None:
    with opened(path) as visit:
        page = visit.page
        chart = page.locator("[data-chart=ood_acceptance]")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
        told = chart.locator(".tip").inner_text().splitlines()
        percent = int(told[0].removeprefix("Coverage ").removesuffix(" %"))
        found = {line.rpartition(" %")[0].rpartition(" ")[0]: float(line.split()[-2]) for line in told[1:]}
        for system in ("SCBNN-OCM", "FNN"):
            some = [one for one in group if one.system == system]
            cuts = [metrics.threshold_at_coverage(one.id.acceptance, percent / 100) for one in some]
            share = np.mean([np.mean(one.ood["near"].acceptance >= cut) for one, cut in zip(some, cuts)])
            assert found[system] == pytest.approx(100 * share, abs=0.051)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 100)
        visit.until("p => document.getElementById('wanted').textContent === `${p} %`", percent)


def test_one_table_obeys_the_slider_shows_more_on_request_and_marks_the_best(path: Path, rows: list[Row]) -> None:
    with opened(path) as visit:
        page = visit.page

        def visible() -> list[str]:
            return list(page.locator("#table tbody th").all_text_contents())

        assert page.locator("input[type=radio]").count() == 0
        page.locator("#every-system").click()
        visit.until("document.querySelectorAll('#table tbody tr').length === 3")
        assert len(set(visible())) == 3
        page.locator("#ood").select_option("far")
        visit.move(50)
        chosen = [row for row in rows if (row.wanted_coverage, row.ood) == (0.5, "far")]
        heading = page.locator("#table thead").get_by_role("button", name="Accuracy")
        for order, reverse in (("ascending", False), ("descending", True)):
            heading.click()
            expected = sorted(chosen, key=lambda row: row.accuracy.estimate, reverse=reverse)
            assert visible() == [row.system for row in expected]
            assert page.locator("#table th[aria-sort=" + order + "]").count() == 1
        page.keyboard.press("Enter")
        assert page.locator("#table th[aria-sort=ascending]").count() == 1
        least = min(chosen, key=lambda row: row.ece.estimate)
        best = page.locator("#table td.best[data-key=ece]")
        assert float(best.get_attribute("data-value")) == pytest.approx(least.ece.estimate, abs=1e-6)
        assert f"{100 * least.ece.low:.1f} to {100 * least.ece.high:.1f}" in best.inner_text()
        visit.move(51)
        assert "to" not in page.locator("#table td.best[data-key=ece]").inner_text()  # no interval was computed there
        page.locator("#every-measure").check()
        visit.until("document.querySelector('#table td[data-key=aurc]')")
        row = next(row for row in rows if row.system == "FNN")
        assert visit.number("aurc", "FNN") == pytest.approx(row.aurc.estimate)


def test_systems_can_be_hidden_and_tables_downloaded(path: Path, tmp_path: Path, rows: list[Row]) -> None:
    with opened(path) as visit:
        page = visit.page
        chart = "document.querySelectorAll('[data-chart=wrong] path.line').length"
        assert page.evaluate(chart) == 2
        page.locator("#chips label", has_text="CBNN").last.click()
        visit.until(f"{chart} === 3")
        page.locator("#chips label", has_text="FNN").first.click()
        visit.until(f"{chart} === 2")
        assert page.locator("#table tbody th").all_text_contents() == ["SCBNN-OCM", "CBNN"]
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
        visit.until(
            "text => document.querySelector('#mistake li').textContent.includes(text)",
            f"confidence {100 * confident:.1f} %",
        )
        assert page.locator("#mistake img").count() == page.locator("#mistake li").count() == 8
        assert page.locator("#rejected li").count() == 8
        assert page.locator("#ood-examples li").count() == 8
        assert page.locator("#ood-examples img").count() == 0  # no pictures of these were given
        row = np.flatnonzero(kept & ~first.correct & (first.confidence == confident))[0]
        rank = np.mean(first.scores["density"] < first.scores["density"][row])
        assert f"density{100 * rank:.0f} %" in page.locator("#mistake li").first.text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_phone_and_desk_in_both_themes(path: Path, scheme: str, width: int) -> None:
    with opened(path, viewport={"width": width, "height": 800}, color_scheme=scheme) as visit:
        page = visit.page
        page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
        page.locator("#every-measure").check()
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('.bar').offsetHeight") <= 80
        assert page.evaluate("document.querySelector('#table').closest('.wide-table').hasAttribute('data-more')")
        labels = "[data-chart=wrong] text.name" if width > 390 else "figure:has([data-chart=wrong]) .line-key div"
        named_curves = " ".join(page.locator(labels).all_text_contents())  # beside the curves, or right below them
        systems = page.locator("#table tbody th").all_text_contents()
        assert len(systems) == 2
        assert all(system in named_curves for system in systems)
        assert page.evaluate(CONTRAST) == []
        paper = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(paper)
        assert before == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
        page.locator("#theme").click()
        assert page.evaluate(paper) != before
        assert page.evaluate(CONTRAST) == []
        named = "e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')"
        controls = "[...document.querySelectorAll('input, select, button')]"
        unlabeled = page.evaluate(f"{controls}.filter(e => !({named})).length")
        assert unlabeled == 0
        assert page.evaluate("[...document.querySelectorAll('.chart')].every(e => e.getAttribute('aria-label'))")
        assert visit.complaints == []


def test_it_prints_on_paper(path: Path) -> None:
    with opened(path, color_scheme="dark") as visit:
        content = visit.page.pdf(format="A4")
        assert content.startswith(b"%PDF-")
        assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 8
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not visit.page.locator(".bar").is_visible()
        assert visit.page.locator("#verdict").is_visible()
        assert visit.page.evaluate(CONTRAST) == []


def test_it_opens_at_the_certified_threshold_or_the_tolerated_error(group: list[Evaluation], tmp_path: Path) -> None:
    one = replace(group[0], ood={})
    rows = summarize([one], resampling=Resampling(resamples=20))
    level = float(np.sort(one.id.acceptance)[::-1][int(0.63 * 500) - 1])
    made = {"FNN": [Certified(level, "At most 5 % of the answers are wrong.")]}
    with opened(write_page(tmp_path / "p.html", [one], summary=rows, certificates=made)) as visit:
        assert visit.page.locator("#wanted").text_content() == "63 %"
        told = visit.page.locator("#certificate").text_content()
        assert told.startswith(f"Certificate: confidence ≥ {float(f'{level:.6g}'):g}")
        assert "At most 5 % of the answers are wrong." in told
        assert visit.page.locator("#certificate code").text_content() == repr(level)
        assert "nearest position" not in visit.page.locator("#certificate").text_content()  # 63 % is exactly there
    between = level + 1e-4 * (1 - level)
    made = {"FNN": [Certified(between, "At most 5 % of the answers are wrong.")]}
    with opened(write_page(tmp_path / "p.html", [one], summary=rows, certificates=made)) as visit:
        told = visit.page.locator("#certificate").text_content()
        shown = visit.page.locator("#threshold").text_content().removeprefix("confidence ≥ ")
        assert told.endswith(f" The numbers on this page are those at {shown}, the slider's nearest position.")
        visit.move(40)
        assert "nearest position" not in visit.page.locator("#certificate").text_content()
    with opened(write_page(tmp_path / "p.html", [one], summary=rows, tolerated_error=0.2)) as visit:
        best = max(p for p in range(1, 101) if 1 - selected([one], "FNN", p)[0].accuracy <= 0.2 + 1e-9)
        assert visit.page.locator("#wanted").text_content() == f"{best} %"
        assert visit.page.locator("#error").input_value() == "20"
    with opened(write_page(tmp_path / "p.html", [one], summary=rows, coverage=0.4)) as visit:
        assert visit.page.locator("#wanted").text_content() == "40 %"


def test_nearly_certain_answers_are_shown_as_they_are(tmp_path: Path) -> None:
    """All confidences in the last bin, some of them 1: no 100 % for less, a band, no detection, ticks that differ."""
    level, said = np.linspace(0.95, 0.99, 20_000), np.zeros(20_000, np.int64)
    level[:3], said[:3] = (0.99996, 1.0, 0.99999999), 1
    inside = Predictions(level, said, np.zeros(20_000, np.int64)).numpy()
    far = Predictions(level[:100], np.zeros(100, np.int64)).numpy()
    one = Evaluation("FNN", 0, inside, {"far": far})
    made = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
    with opened(made) as visit:
        page = visit.page
        visit.move(100)
        shown = " ".join(page.locator("#mistake li").all_text_contents())
        assert re.findall(r"confidence (.*?) %", shown) == ["100", "more than 99.9999", "99.996"]
        assert page.locator("#reliability .band").get_attribute("height") is not None
        assert float(page.locator("#reliability .band").get_attribute("height")) > 0
        assert np.isnan(visit.number("detection"))
        assert "one bin of confidence" in page.locator("#table-note").text_content()
        ticks = page.locator("[data-chart=wrong] text[text-anchor=end].tick").all_text_contents()
        assert len(ticks) == len(set(ticks)) > 2
        assert visit.complaints == []


CROSSED = """() => [...document.querySelectorAll("#curves .chart")].flatMap((chart) => {
  const box = chart.querySelector("text.name").getBBox(), line = chart.querySelector("path.line");
  return Array.from({ length: 2001 }, (_, i) => line.getPointAtLength((i / 2000) * line.getTotalLength()))
    .filter((p) => p.x > box.x && p.x < box.x + box.width && p.y > box.y + 2 && p.y < box.y + box.height - 2);
}).length"""


@pytest.mark.parametrize("width", [390, 1440])
def test_the_label_of_a_curve_stands_beside_it(group: list[Evaluation], tmp_path: Path, width: int) -> None:
    rows = summarize(group[:1], resampling=Resampling(resamples=20))
    with opened(
        write_page(tmp_path / "p.html", group[:1], summary=rows), viewport={"width": width, "height": 800}
    ) as visit:
        for percent in (97, 80, 50, 20):
            visit.move(percent)
            assert visit.page.evaluate(CROSSED) == 0, percent
        halo = "getComputedStyle(document.querySelector('#curves text.name'))"
        assert visit.page.evaluate(f"{halo}.paintOrder").startswith("stroke")
        assert visit.page.evaluate(f"{halo}.stroke") == visit.page.evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )


OVERLAPS = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  const boxes = [...chart.querySelectorAll("svg text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], i) => boxes.slice(i + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  ).map(([other]) => [name, other]));
})"""  # labels of a chart that cover each other


@pytest.mark.parametrize("width", [390, 1440])
def test_the_reliability_diagram_is_the_large_one_and_every_mark_has_a_name(
    group: list[Evaluation], tmp_path: Path, width: int
) -> None:
    one = group[0]
    rows = summarize([one], resampling=Resampling(resamples=20))
    made = write_page(tmp_path / "p.html", [one], summary=rows)
    with opened(made, viewport={"width": width, "height": 800}) as visit:
        page = visit.page
        large, small = (page.locator(f"#{name} svg").bounding_box() for name in ("reliability", "histogram"))
        if width == 1440:
            assert 1.2 * small["width"] < large["width"] < 1.1 * large["height"]
            assert abs(large["y"] - small["y"]) < 2
        keys = page.locator(".belief .key").all_inner_texts()
        assert [key.split("\n") for key in keys] in (
            [
                ["all inputs", "accepted", "95\u00a0% interval", "calibrated"],
                ["accepted", "outliers accepted", "rejected"],
            ],
            [["all inputsaccepted95\u00a0% intervalcalibrated"], ["acceptedoutliers acceptedrejected"]],
        )
        for percent in (95, 80, 40, 10):
            visit.move(percent)
            level = metrics.threshold_at_coverage(one.id.acceptance, percent / 100)
            shown = page.locator("#histogram text.name", has_text="threshold").text_content()
            assert float(shown.removeprefix("threshold ")) == pytest.approx(level, abs=0.006)
            line = page.locator("#histogram line.cursor")
            axis = [float(page.locator("#histogram line.grid").first.get_attribute(end)) for end in ("x1", "x2")]
            expected = axis[0] + level * (axis[1] - axis[0])
            assert float(line.get_attribute("x1")) == pytest.approx(expected, abs=0.5)
            assert page.evaluate(OVERLAPS) == [], percent
        assert visit.complaints == []


def test_the_threshold_that_is_copied_has_all_its_digits(group: list[Evaluation], tmp_path: Path) -> None:
    one = group[0]
    made = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
    with opened(made) as visit:
        visit.move(70)
        catch = "document.addEventListener('copy', () => (window.copied = document.activeElement.value))"
        visit.page.evaluate(catch)
        visit.page.locator("#copy").focus()
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("#copy").text_content() == "Copied"
        assert float(visit.page.evaluate("window.copied")) == metrics.threshold_at_coverage(one.id.acceptance, 0.7)
        visit.until("document.getElementById('copy').textContent === 'Copy the threshold'")


def test_a_threshold_is_drawn_over_confidence_only_where_it_is_one(path: Path) -> None:
    with opened(path) as visit:
        assert visit.page.locator("#system").input_value() == "SCBNN-OCM"  # a selector, and two seeds
        assert visit.page.locator("#histogram line.cursor").count() == 0


def test_bins_of_few_inputs_are_joined_by_a_pale_line(tmp_path: Path) -> None:
    for size, pale, plain in ((40, True, False), (4000, False, True)):
        one = replace(evaluation("FNN", n=size), ood={})
        level = np.linspace(0.5, 0.99, size)
        one = replace(one, id=Predictions(level, one.id.predicted, one.id.labels).numpy())
        made = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
        with opened(made) as visit:
            lines = visit.page.locator("#reliability path.line")
            classes = [lines.nth(i).get_attribute("class") for i in range(lines.count())]
            assert (any("sparse" in one for one in classes), "line main" in classes) == (pale, plain)


def test_a_dash_is_explained_only_where_there_is_one(group: list[Evaluation], tmp_path: Path) -> None:
    one = group[0]
    made = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
    with opened(made) as visit:
        note, dashes = visit.page.locator("#table-note"), visit.page.locator("#table td[data-value='']")
        visit.move(90)
        assert (dashes.count(), "A dash means" in note.text_content()) == (0, False)
        visit.move(2)
        assert dashes.count() > 0
        assert "A dash means undefined" in note.text_content()


def test_cards_fill_their_rows_and_long_names_do_not_stretch_them(tmp_path: Path) -> None:
    one = replace(evaluation("FNN", n=500), ood={})
    rows = summarize([one], resampling=Resampling(resamples=20))
    long = "a name that goes on and on " * 12
    images = {"id": np.random.default_rng(0).integers(0, 256, size=(500, 8, 8), dtype=np.uint8)}
    for width, columns in ((1440, 4), (390, 2)):
        made = write_page(tmp_path / "p.html", [one], summary=rows, classes=[long] * 10, images=images)
        with opened(made, viewport={"width": width, "height": 800}) as visit:
            boxes = [item.bounding_box() for item in visit.page.locator("#mistake li").all()]
            assert len({round(box["x"]) for box in boxes}) == columns
            assert len(boxes) % columns == 0
            assert max(box["height"] for box in boxes) < 320
            assert visit.page.locator("#mistake b").first.get_attribute("title").startswith("says a name that goes on")
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_system_without_ood_data_has_a_page_too(group: list[Evaluation], tmp_path: Path) -> None:
    one = replace(group[0], ood={})
    alone = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=Resampling(resamples=20)))
    with opened(alone) as visit:
        visit.move(40)
        expected = metrics.selective(one.id.confidence, one.id.correct, coverage=0.4)
        assert visit.number("ece") == pytest.approx(expected.calibration_error, abs=1e-6)
        assert re.fullmatch(
            r"Accept answers with a confidence of at least 0\.\d+: 40 % of inputs, \d\d % of them right \(95 %"
            r" interval: [\d.]+ to [\d.]+\); hand the rest to a person\.",
            verdict(visit),
        )
        for gone in ("#ood", "#system", "#chips", "#beside", "#every-system", "#table tbody th"):
            assert visit.page.locator(gone).count() == 0
        visible = visit.page.locator("body").inner_text()
        assert "systems" not in visible.lower()
        assert "seed" not in visible.lower()
        assert visit.complaints == []
