from __future__ import annotations

import json
import math
import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import evaluation

from calibrant.config.schemes import Scheme
from calibrant.evaluation import Resampling, summarize
from calibrant.files import RunError
from calibrant.metrics import Interval
from calibrant.metrics.proportion import proportion
from calibrant.report import Certified, Example, Section, pick_examples, write_page
from calibrant.report.page.examples import thumbnail
from calibrant.report.page.payload import MOST_EXAMPLES, coverage_grid, page_payload
from calibrant.report.page.sections import not_known
from calibrant.report.style import line_styles

EVIL = "</script><img src=x onerror=alert(1)>&\"'"
FAST = Resampling(resamples=20)


def payload(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    result: dict[str, Any] = json.loads(found[1])
    return result


def test_what_users_write_is_escaped_everywhere(tmp_path: Path) -> None:
    one = evaluation("FNN", n=60)
    evil = replace(one, system=EVIL, ood={EVIL: one.ood["near"]}, metadata={EVIL: EVIL})
    rows = summarize([evil], resampling=FAST)
    path = write_page(
        tmp_path / "p.html", [evil], title=EVIL, notes=[EVIL], settings={EVIL: EVIL}, commands=[EVIL],
        classes=[EVIL] * 10, summary=rows, lead=EVIL, names={"id": EVIL}, certificates={EVIL: [Certified(0.5, EVIL)]},
        sections=[Section(EVIL, [EVIL], [EVIL, EVIL], [(EVIL, (EVIL, EVIL))], EVIL)],
    )  # fmt: skip
    text = path.read_text()
    assert "<img src=x" not in text
    assert text.count("</script>") == 2
    assert payload(path)["systems"][0]["name"] == EVIL
    assert payload(path)["examples"][EVIL][0]["predicted"] == EVIL


def test_a_page_is_the_same_for_the_same_data_and_names_nothing_outside(tmp_path: Path) -> None:
    group = [evaluation(name, seed, n=60) for name in ("FNN", "SFNN") for seed in (0, 1)]
    rows = summarize(group, resampling=FAST)
    first, second = (write_page(tmp_path / name, group, summary=rows, commands=["make it"]) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert "default-src 'none'" in first.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?https?:""", first.read_text())
    assert payload(first)["table"] == json.loads(json.dumps([row.flat() for row in rows]))


def test_large_data_and_many_pictures_stay_under_five_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    group = [evaluation(f"system {number}", 0, n=1500) for number in range(16)]
    noise = rng.integers(0, 256, size=(1500, 3, 64, 64), dtype=np.uint8)
    rows = summarize(group, resampling=Resampling(resamples=2))
    path = write_page(tmp_path / "p.html", group, summary=rows, images={"id": noise, "near": noise, "far": noise})
    assert path.stat().st_size < 5_000_000
    assert payload(path)["thumbnails"]


def test_the_grid_is_coarser_for_many_systems_and_refuses_more_than_fit() -> None:
    assert len(coverage_grid(16, 2, 15)) == 100
    assert len(coverage_grid(100, 2, 15)) == 20
    assert coverage_grid(16, 2, 15)[-1] == 1.0
    with pytest.raises(ValueError, match="more than one page can show"):
        coverage_grid(10_000, 2, 15)


def test_examples_are_the_most_confident_at_every_position() -> None:
    one = evaluation("SFNN", n=150)
    grid = [position / 20 for position in range(1, 21)]
    pool = pick_examples(one, grid, shown=4)
    for coverage in grid:
        cut = -np.inf if coverage == 1 else np.sort(one.id.acceptance)[::-1][int(np.ceil(coverage * 150 - 1e-9)) - 1]
        accepted = one.id.acceptance >= cut
        for kind, expected in (("mistake", accepted & ~one.id.correct), ("rejected", ~accepted & one.id.correct)):
            best = sorted(one.id.confidence[expected].tolist(), reverse=True)[:4]
            inside = [
                e for e in pool if e.kind == kind and (e.share < coverage or coverage == 1) == (kind == "mistake")
            ]
            shown = sorted((e.confidence for e in inside), reverse=True)[:4]
            assert shown == pytest.approx(best), (coverage, kind)


def test_scores_of_examples_are_ranked_among_the_validation_inputs() -> None:
    one = evaluation("SFNN", n=80, validated=True)
    assert one.validation is not None
    for example in pick_examples(one, [0.5]):
        assert list(example.ranks) == ["selector", "density", "forest"]
        part = one.id if example.dataset == "id" else one.ood[example.dataset]
        for name, reference in (("selector", one.validation.selection), ("forest", one.validation.scores["forest"])):
            value = (part.selection if name == "selector" else part.scores[name])[example.row]
            assert example.ranks[name] == pytest.approx(np.mean(reference < value), abs=1e-4)


def test_a_page_about_one_system_says_nothing_about_several(tmp_path: Path) -> None:
    one = evaluation("FNN", n=60)
    alone = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=FAST)).read_text()
    static = alone.partition('id="payload"')[0]
    for words in ("ystems", "seed", 'id="system"', 'id="chips"', "<dt>Seeds"):
        assert words not in static, words
    group = [one, replace(one, seed=1), replace(one, system="BNN")]
    both = write_page(tmp_path / "q.html", group, summary=summarize(group, resampling=FAST)).read_text()
    assert all(words in both for words in ("ystems", "seed", 'id="system"', 'id="chips"', "<dt>Seeds"))


def test_the_system_that_the_page_is_about_comes_first_and_then_its_baseline(tmp_path: Path) -> None:
    group = [evaluation(name, n=60) for name in ("FNN", "BNN", "FNN + temperature", "FNN + trust")]
    rows = summarize(group, resampling=FAST)
    found = payload(write_page(tmp_path / "p.html", group, summary=rows, first=["FNN + trust", "FNN + temperature"]))
    assert found["shown"] == ["FNN + trust", "FNN + temperature"]
    assert [one["name"] for one in found["systems"]] == ["FNN + trust", "FNN + temperature", "FNN", "BNN"]
    found = payload(write_page(tmp_path / "p.html", group, summary=rows, names={"far": "photographs"}))
    assert found["shown"] == ["FNN + trust", "FNN"]
    assert found["ood"] == ["far", "near"]
    with pytest.raises(ValueError, match="first names 'CNN', of which there is no evaluation; there are FNN, BNN"):
        write_page(tmp_path / "p.html", group, summary=rows, first=["CNN"])


def test_sections_stand_in_their_places_with_their_tables(tmp_path: Path) -> None:
    one = evaluation("FNN", n=60)
    many = Section(
        "Slices", ["Worst first."], ["Slice", "Inputs", "Error"], [(f"s{i}", 1234, 0.25) for i in range(300)]
    )
    sections = [
        replace(many, place="groups"),
        Section("Remedies", code="calibrant audit preds.csv"),
        Section(
            "Unsaid", ["Nothing about hats."], ["a", "b"], [("x", None), ("y", ("1.5", "1 to 2"))], place="unknown"
        ),
    ]
    path = write_page(tmp_path / "p.html", [one], sections=sections, summary=summarize([one], resampling=FAST))
    text = path.read_text()
    order = [
        ">Remedies<",
        "Does the confidence mean",
        "Numbers at this operating point",
        ">Slices<",
        "Inputs to look at",
    ]
    places = [text.index(words) for words in [*order, "What is not known", ">Unsaid<", "How this was made"]]
    assert places == sorted(places)
    assert "s199<" in text
    assert "s200<" not in text
    assert "100 more rows are not shown." in text
    assert '<td class="number">1,234</td>' in text
    assert '<td class="number">1.5<small>1 to 2</small></td>' in text
    with pytest.raises(ValueError, match="rows of the section 'Slices' must have 3 cells, not 2"):
        write_page(path, [one], sections=[replace(many, rows=[("a", 1)])], summary=[])


def test_measures_without_an_interval_or_a_value_are_shown_by_a_dash(tmp_path: Path) -> None:
    one = replace(evaluation("FNN", n=60), ood={})
    rows = summarize([one], resampling=FAST)
    bare = [replace(row, measures=dict.fromkeys(row.measures, Interval(math.nan, math.nan, math.nan))) for row in rows]
    text = write_page(tmp_path / "p.html", [one], summary=bare).read_text()
    assert '<td class="number">–</td>' in text.partition("<noscript>")[2]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    few = evaluation("FNN", n=60)
    told = " ".join(not_known([few], {"near": "letters"}))
    for words in (
        "only 60 labeled inputs",
        "known for letters and far only",
        "on the same inputs that judge them",
    ):
        assert words in told
    many = [replace(evaluation("FNN", seed, n=1000, validated=True), ood={}) for seed in (0, 1)]
    assert not_known(many, {}) == [
        "No outliers were given, so it is not known how many inputs unlike these would be answered."
    ]


def test_the_share_that_is_right_has_wilsons_interval_and_several_seeds_widen_it() -> None:
    group = [evaluation("FNN", seed, n=400) for seed in (0, 1, 2)]
    limits = []
    for some in (group[:1], group):
        found = page_payload(some, line_styles(["FNN"]), bins=15, images={}, classes=None)["systems"][0]
        shares = [one.id.correct.mean() for one in some]
        expected = proportion(float(np.mean(shares)) * 400, 400)
        spread = 1.96 * np.std(shares, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
        low, high = found["right"][-1]
        assert low == pytest.approx(np.mean(shares) - np.hypot(np.mean(shares) - expected.low, spread), abs=2e-5)
        assert high == pytest.approx(np.mean(shares) + np.hypot(expected.high - np.mean(shares), spread), abs=2e-5)
        assert all(one is None or 0 <= one[0] <= one[1] <= 1 for one in found["right"])
        limits.append((low, high))
    assert limits[1][1] - limits[1][0] > limits[0][1] - limits[0][0]


def test_only_libraries_that_were_loaded_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = evaluation("FNN", n=60)
    rows = summarize([one], resampling=FAST)
    for loaded in (True, False):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "torch", types.ModuleType("torch"))
            if not loaded:
                patch.delitem(sys.modules, "torch")
            text = write_page(tmp_path / "p.html", [one], summary=rows).read_text()
        assert ("<dt>torch</dt>" in text) is loaded
        assert "<dt>numpy</dt>" in text


def test_captions_hold_for_charts_beside_and_below_each_other(tmp_path: Path) -> None:
    one = evaluation("FNN", n=60)
    text = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=FAST)).read_text()
    static = text.partition('id="payload"')[0].partition("<body>")[2]
    assert not re.search(r"\b(Left|Right):", static)


def test_a_page_is_written_without_any_library_for_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("altair", "vl_convert", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    one = evaluation("FNN", n=60)
    path = write_page(tmp_path / "p.html", [one], summary=summarize([one], resampling=FAST))
    assert path.stat().st_size < 300_000


def test_examples_name_classes_and_scores() -> None:
    pool = pick_examples(evaluation("SFNN", n=80), [0.5], classes=[f"class {c}" for c in range(10)])
    mistake = next(one for one in pool if one.kind == "mistake")
    assert mistake.label is not None
    assert mistake.label.startswith("class ")
    assert mistake.label != mistake.predicted
    assert list(mistake.scores) == ["selector", "density", "forest"]
    assert next(one for one in pool if one.kind == "ood").label is None


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (8, 8), (8, 8, 3), (3, 200, 100)])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_images_of_any_layout_become_small_pictures(shape: tuple[int, ...], kind: type) -> None:
    import base64
    import io

    from PIL import Image

    image = (np.random.default_rng(0).random(shape) * (255 if kind is np.uint8 else 1)).astype(kind)
    found = thumbnail(image)
    assert found is not None
    picture = Image.open(io.BytesIO(base64.b64decode(found.partition(",")[2])))
    assert max(picture.size) == (8 if 8 in shape else 64)


def test_a_row_of_a_table_has_no_picture() -> None:
    assert thumbnail(np.zeros(7)) is None
    assert thumbnail(np.zeros((7, 8, 9))) is None


def test_the_payload_rounds_but_does_not_invent() -> None:
    group = [evaluation("FNN", seed, n=90) for seed in (0, 1)]
    found = page_payload(group, line_styles(["FNN"]), bins=15, images={}, classes=None)["systems"][0]
    assert found["count"][-1] == [int(n) for n in np.sum([_counts(one.id.confidence) for one in group], axis=0)]
    assert found["measures"]["accuracy"][-1] == pytest.approx(
        np.mean([one.id.correct.mean() for one in group]), abs=1e-6
    )
    assert (
        found["ood"]["near"]["measures"]["detection"][0] is None
    )  # one percent of ninety inputs are fewer than thirty


def _counts(confidence: np.ndarray) -> np.ndarray:
    return np.histogram(np.ceil(confidence * 15) - 1, bins=np.arange(16) - 0.5)[0]


def test_rows_of_ones_own_are_shown_and_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    one = replace(evaluation("FNN", n=60), ood={})
    mine = [Example("mistake", "id", 7, "cat", "dog", 0.99, 0.1)]
    rows = summarize([one], resampling=FAST)
    path = write_page(tmp_path / "p.html", [one], examples={"FNN": mine}, summary=rows)
    assert payload(path)["examples"]["FNN"][0]["row"] == 7
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_page(tmp_path / "file" / "p.html", [one], summary=rows)


def test_every_one_of_many_systems_has_inputs_to_look_at() -> None:
    names = [str(scheme) for scheme in Scheme.all()]
    group = [evaluation(name, n=800) for name in names]
    examples = page_payload(group, line_styles(names), bins=15, images={}, classes=None)["examples"]
    assert sum(map(len, examples.values())) <= MOST_EXAMPLES
    for name in names:
        assert {one["kind"] for one in examples[name]} == {"mistake", "rejected", "ood"}, name
