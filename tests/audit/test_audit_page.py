"""The page of an audit in a browser, from predictions of a real classifier."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browser import CONTRAST, needs_browser, opened
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from calibrant.audit import audit
from calibrant.evaluation import Resampling
from calibrant.metrics.proportion import proportion

pytestmark = needs_browser

BROKEN = """() => [...document.querySelectorAll("tbody th")].flatMap((cell) => {
  const node = cell.firstChild, words = node?.nodeType === 3 ? [...node.textContent.matchAll(/\\S+/g)] : [];
  return words.filter((word) => {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    return range.getClientRects().length > 1;
  }).map((word) => word[0]);
})"""  # words in the names of rows that stand on two lines
CUT = "[...document.querySelectorAll('pre')].filter((each) => each.scrollWidth > each.clientWidth + 1).length"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = load_digits(return_X_y=True)
    model = GaussianNB(var_smoothing=0.1).fit(X[:900], y[:900])
    p = model.predict_proba(X[900:])
    table = {"label": y[900:], "probabilities": p, "camera": np.where(np.arange(len(p)) % 3, "north entrance", "south")}
    page = tmp_path_factory.mktemp("audit") / "audit.html"
    noise = np.random.default_rng(0).uniform(0, 16, (200, 64))
    far = {"inverted": {"probabilities": model.predict_proba(16 - X[:300])}}
    far["noise"] = {"probabilities": model.predict_proba(noise)}
    audit(table, ood=far, slices=["camera"], page=page, resampling=Resampling(resamples=20), name="digits")
    return page


def test_it_opens_at_a_tolerated_error_with_a_verdict(path: Path, tmp_path: Path) -> None:
    with opened(path) as visit:
        assert visit.page.locator("h1").text_content() == "Audit of digits"
        verdict = visit.page.locator("#verdict").text_content()
        start = r"Accept answers with a confidence of at least 0\.\d+: \d+ % of inputs, 9\d\.?\d* % of them right "
        limits = re.match(start + r"\(95 % interval: ([\d.]+) to ([\d.]+)\); hand the rest to", verdict)
        assert limits
        share, (low, high) = 100 * visit.number("accuracy"), map(float, limits.groups())
        expected = proportion(visit.number("coverage") * 897 * share / 100, visit.number("coverage") * 897)
        assert (low, high) == pytest.approx((100 * expected.low, 100 * expected.high), abs=0.051)
        under = visit.page.locator("#table td[data-key=accuracy] small").text_content()
        assert under == f"{low} to {high}"
        assert re.search(r"Of inverted, .* would be answered, of noise .*\.$", verdict)
        error = float(visit.page.locator("#error").input_value())
        assert error in (1, 2, 5, 10, 20)
        assert 100 * (1 - visit.number("accuracy")) <= error
        shown = float(visit.page.locator("#threshold").text_content().split("≥")[1])
        assert 0 < shown <= 1
        for word in ("All systems", "over seeds", "System"):
            assert word not in visit.page.locator("main").inner_text()
        assert visit.complaints == []
        assert visit.requests == [path.as_uri()]
    given = tmp_path / "given.html"
    audit({"confidence": [0.9, 0.8, 0.7, 0.6] * 50, "correct": [1, 1, 1, 0] * 50}, page=given, tolerated_error=0.0)
    with opened(given) as visit:
        assert visit.page.locator("#error").input_value() == "0"
        assert "75 % of inputs, 100 % of them right" in visit.page.locator("#verdict").text_content()


def test_the_verdict_says_whether_outliers_pass_its_threshold(tmp_path: Path) -> None:
    level = np.linspace(0.5, 1, 400)
    table = {"confidence": level, "correct": np.arange(400) % 10 < 8}
    far = {"photographs of the neighborhood, and maps": {"confidence": np.full(50, 0.999)}}
    far |= {"unsure": {"confidence": np.full(50, 0.3)}}
    page, how = tmp_path / "page.html", Resampling(resamples=20)
    audit(table, ood=far, page=page, resampling=how, remedies=False)
    with opened(page, viewport={"width": 390, "height": 844}) as visit:
        verdict = visit.page.locator("#verdict").text_content()
        assert verdict.endswith("This threshold does not keep photographs of the neighborhood, and maps out.")
        assert ", of unsure none. " in verdict
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    audit(table, ood={"unsure": far["unsure"]}, page=page, resampling=how, remedies=False)
    with opened(page) as visit:
        assert visit.page.locator("#verdict").text_content().endswith("Of unsure, none would be answered.")
    mixed = {"confidence": np.repeat([0.999, 0.3], [20, 30])}
    audit(table, ood={"outliers": mixed}, page=page, resampling=how, remedies=False)
    with opened(page) as visit:
        verdict = visit.page.locator("#verdict").text_content()
        assert verdict.endswith("It keeps outliers out only in part; a smaller coverage answers fewer.")
        text = visit.page.locator("body").inner_text()
        assert ", and are 50 outliers recognized?" in text
        assert "Outliers are told apart" in text


def test_it_does_not_open_where_the_few_surest_answers_happen_to_be_right(tmp_path: Path) -> None:
    level = np.linspace(1, 0.5, 2000)
    page = tmp_path / "page.html"
    for surest, rest, error in ((0, 0, ""), (800, 0, "10")):  # of 2,000 rows: wrong are 20 %, of the surest 8 %
        wrong = np.arange(2000) % 5 == 0
        wrong[:surest] = np.arange(surest) % 12 == 0
        wrong[:60] = rest
        audit({"confidence": level, "correct": ~wrong}, page=page, resampling=Resampling(resamples=20), remedies=False)
        with opened(page) as visit:
            assert visit.page.locator("#error").input_value() == error
            assert visit.number("coverage") >= (0.4 if error else 0.8)


def test_the_verdict_comes_first_and_the_page_has_one_threshold_and_one_thing_to_do(path: Path) -> None:
    with opened(path) as visit:
        page = visit.page
        order = "[...document.querySelectorAll('#main p, #main select, #main input, #main h2')].map((e) => e.id)"
        assert page.evaluate(order)[0] == "verdict"
        todo = page.locator("section:has(> h2:text-is('What to do'))")
        assert todo.locator("> p").count() == 1
        assert todo.locator("> p").text_content().startswith("Recalibrate by ")
        assert todo.locator("> ul > li").count() <= 3
        note = page.locator("#threshold-note").text_content()
        assert note.startswith("This threshold is for the confidence as it is in the table. Once you have recalibrated")
        seen = page.locator("main").inner_text()
        assert "A confidence threshold: " not in seen  # the others are folded
        assert "refinement" not in seen
        folded = page.locator("details.folded", has_text="What else was measured")
        assert "A confidence threshold: " in folded.text_content()
        heads = page.locator("details.folded", has_text="What helps against outliers").locator("thead th")
        told = " ".join(heads.all_text_contents())
        assert "inverted: outliers answered, of 300" in told
        assert "noise: outliers answered, of 200" in told
        assert [row for row in page.locator("dl.facts dt").all_text_contents() if row == "numpy"]


def test_what_only_a_screen_can_do_is_not_printed(path: Path) -> None:
    with opened(path) as visit:
        for there, media in ((True, "screen"), (False, "print")):
            visit.page.emulate_media(media=media)
            for hint in (".choices", "#ood", ".hint"):
                assert visit.page.locator(hint).first.is_visible() is there, hint


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_phone_and_desk_in_both_themes_with_everything_open(path: Path, scheme: str, width: int) -> None:
    with opened(path, viewport={"width": width, "height": 800}, color_scheme=scheme) as visit:
        page = visit.page
        page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        titles = page.locator("h2").all_text_contents()
        for title in ("Findings", "What to do", "Slices", "Classes", "Confusions", "What is not known"):
            assert title in titles
        assert page.evaluate(BROKEN) == []
        assert width > 390 or page.evaluate(CUT) == 0
        error = page.locator("[data-chart=wrong] text.name").text_content()
        assert float(error.removesuffix(" %")) == pytest.approx(100 * (1 - visit.number("accuracy")), abs=0.06)
        assert visit.complaints == []


def test_gains_unfold_by_keyboard_code_is_copied_and_it_prints(path: Path) -> None:
    with opened(path) as visit:
        summary = visit.page.locator("details.folded:has(table) summary").first
        assert not visit.page.locator("details.folded table").first.is_visible()
        summary.focus()
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("details.folded table").first.is_visible()
        visit.page.locator(".code .copy").first.click()
        assert visit.page.locator(".code .copy").first.text_content() == "Copied"
        assert visit.page.pdf(format="A4").startswith(b"%PDF-")
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate(CUT) == 0
        assert visit.complaints == []
