from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from browser import needs_browser, opened
from commands import TINY_OPTIONS, Caller, call, read_rows, run, start

__all__ = ["call"]

from calibrant.config.schemes import Scheme
from calibrant.deploy.pipeline import PRODUCTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def demo(folder: Path) -> tuple[Path, str]:
    """All sixteen schemes and two seeds, one process at first, then one a seed: the folder and what was printed."""
    process = start("demo", *TINY_OPTIONS, "--workers", 1, cwd=folder)
    assert process.stderr is not None
    seen = next(line for line in process.stderr if "fine-tune" in line)
    assert seen.startswith("seed ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "calibrant: stopped; to resume: calibrant demo --resume --out demo"
    assert "Traceback" not in err
    before = {path: path.stat().st_mtime_ns for path in folder.glob("demo/seed-*/stages/*/result.json")}
    assert len(before) >= 4

    done = run("demo", "--resume", cwd=folder)
    root = folder / "demo"
    assert done.stdout.splitlines()[-1] == f"The page:  {(root / 'report.html').as_uri()}"
    assert before.items() <= {path: path.stat().st_mtime_ns for path in before}.items()
    return root, done.stdout


def test_the_demo_is_stopped_resumed_and_ends_with_a_table_and_a_page(call: Caller, demo: tuple[Path, str]) -> None:
    root, printed = demo
    rows = read_rows(root / "table.csv")
    assert len(rows) == 18 * 2 * 2
    assert {row["system"] for row in rows} == {*map(str, Scheme.all()), *PRODUCTS}
    assert {row["seeds"] for row in rows} == {"0 1"}
    assert all(row["accuracy_low"] and row["ece_low"] for row in rows)
    assert all(str(scheme) in printed for scheme in Scheme.all())
    for folder in ("seed-0", "seed-1"):
        assert len(list((root / folder / "predictors").iterdir())) == 18
    page = (root / "report.html").read_text()
    assert "<h1>What a network trained on digits does when it is shown photographs</h1>" in page
    lead = re.search(r'<p class="lead">(.*?)</p>', page)
    assert lead
    assert re.fullmatch(
        r"Asked to answer 80\s% of the digits, which it was trained for, a plain network with temperature scaling also"
        r" answers ([\d.]+\s%|none) of the photographs; the same network with trust answers ([\d.]+\s%|none) of them\.",
        lead[1],
    )
    assert '"shown":["FNN + trust","FNN + temperature"]' in page
    assert len(page) < 5_000_000

    found = json.loads(call("evaluate", root, "--scheme", "SBNN", "--json").out)
    assert found["rows"][0]["seeds"] == "0 1"
    assert float(next(r for r in rows if r["system"] == "SBNN")["ece"]) == found["rows"][0]["ece"]


@needs_browser[0]
@needs_browser[1]
def test_the_demos_page_opens_in_a_browser_with_what_trust_does_with_photographs(demo: tuple[Path, str]) -> None:
    with opened(demo[0] / "report.html", viewport={"width": 390, "height": 844}) as visit:
        page = visit.page
        verdict = page.locator("#verdict").text_content()
        assert re.fullmatch(
            r"FNN \+ trust answers [\d.]+ % of digits, [\d.]+ % of them right \(95 % interval: [\d.]+ to [\d.]+\);"
            r" hand the rest to a person\. Of photographs, .+ would be answered, of letters .+\.",
            verdict,
        )
        assert page.locator("#threshold").text_content().startswith("trust ≥ ")
        assert page.locator("#threshold-note").text_content().startswith("Trust is the probability that an answer is")
        assert page.locator("#beside").text_content().startswith("FNN + temperature, asked for the same coverage,")
        page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.complaints == []
