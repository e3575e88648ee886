"""What is committed under results/: tables and verdicts follow from the records."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from calibrant.config.loading import read_yaml
from calibrant.report.display import save_figure
from calibrant.studies import STUDIES, Lab, write_claims
from calibrant.studies.claims import CLAIMS
from calibrant.studies.plan import BASES
from calibrant.studies.records import find_record, read_header, read_record
from calibrant.studies.trust_measuring import trust_digest
from calibrant.studies.trust_study import NAMES, record_path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
LABS = sorted(path.parent for path in RESULTS.glob("*/study.yaml"))
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the source distribution holds no results")


@pytest.mark.parametrize("folder", LABS, ids=lambda path: path.name)
def test_tables_follow_from_the_records_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    lab, drawn = Lab.load(folder), 0
    for study in STUDIES.values():
        if not (folder / study.name).is_dir():
            continue
        for table in study.tables(study.within(lab)):
            table.write(tmp_path / study.name)
            for kind in ("csv", "md"):
                again = (tmp_path / study.name / f"{table.name}.{kind}").read_bytes()
                assert again == (folder / study.name / f"{table.name}.{kind}").read_bytes()
                drawn += 1
    assert drawn > 0


@pytest.mark.parametrize("folder", LABS, ids=lambda path: path.name)
def test_the_records_are_of_their_settings_so_that_a_run_goes_on_from_them(folder: Path) -> None:
    lab, seen = Lab.load(folder), 0
    for study in STUDIES.values():
        if (folder / study.name).is_dir():
            own = study.within(lab)
            for trial, coverages in study.needs(own).items():
                assert own.is_fresh(trial, coverages), trial.name
                seen += 1
    assert seen > 0 or (folder / "trust").is_dir()  # which is measured without trials


@pytest.mark.parametrize("folder", [lab for lab in LABS if (lab / "trust").is_dir()], ids=lambda path: path.name)
def test_the_records_of_trust_say_which_settings_they_are_of(folder: Path) -> None:
    lab = Lab.load(folder)
    for seed in lab.seeds:
        paths = [find_record(record_path(lab, name, seed)) for name in NAMES]
        kept = [path for path in paths if path is not None]
        assert len(kept) >= 10
        assert {read_header(path)["digest"] for path in kept} == {trust_digest(lab, seed)}


def test_the_verdicts_follow_from_the_records(tmp_path: Path) -> None:
    for folder in LABS:
        shutil.copytree(folder, tmp_path / folder.name)
    for notes in ("causes.yaml", "times.yaml"):
        shutil.copy(RESULTS / notes, tmp_path)
    assert write_claims(tmp_path).read_text() == (RESULTS / "README.md").read_text()


def test_the_front_page_shows_rows_and_figures_of_committed_runs() -> None:
    shown = _section((ROOT / "README.md").read_text(), "What it gives")
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    measured = (RESULTS / "README.md").read_text()
    known = {line for run in ("cifar10", "cifar100", "pretrained") for line in _section(measured, run).splitlines()}
    assert set(rows) <= known
    figures = re.findall(r"\]\((results/cifar10/[^)]+\.png)\)", shown)
    assert len(figures) == 2
    assert all((ROOT / figure).is_file() for figure in figures)


def _shown() -> set[str]:
    """The figures under results/ that the documents show."""
    documents = [ROOT / "README.md", RESULTS / "README.md", *(ROOT / "docs").glob("*.md")]
    links = [(file, link) for file in documents for link in re.findall(r"\]\(([^)]+\.png)\)", file.read_text())]
    paths = [(file.parent / link).resolve().relative_to(ROOT).as_posix() for file, link in links]
    return {path for path in paths if path.startswith("results/")}


def test_the_figures_that_documents_show_are_kept_and_no_others() -> None:
    assert all((ROOT / figure).is_file() for figure in _shown())
    kept = [line[1:] for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("!results/")]
    assert set(kept) == _shown()


def test_the_figures_that_are_kept_follow_from_the_records_byte_for_byte(tmp_path: Path) -> None:
    pinned = re.search(r"^matplotlib==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if pinned is None or version("matplotlib") != pinned[1]:
        pytest.skip("another version of Matplotlib may draw them otherwise")
    for figure in sorted(_shown()):
        _, folder, study, file = figure.split("/")
        lab = Lab.load(RESULTS / folder)
        drawn = STUDIES[study].figures(STUDIES[study].within(lab))
        save_figure(drawn[file.removesuffix(".png")], tmp_path / file)
        assert (tmp_path / file).read_bytes() == (ROOT / figure).read_bytes(), figure


def test_a_run_without_some_schemes_is_named_where_verdicts_begin() -> None:
    head = (RESULTS / "README.md").read_text().partition("\n| claim |")[0]
    for folder in LABS:
        some = set(Lab.load(folder).plan.schemes) < set(BASES)
        assert (f"`{folder.name}` has " in head) == some


def test_every_claim_that_fails_has_a_cause() -> None:
    glance = _section((RESULTS / "README.md").read_text(), "Verdicts at a glance")
    head, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in glance.splitlines() if line[:2] == "| ")
    keys = {claim.text: claim.key for claim in CLAIMS}
    causes = read_yaml(RESULTS / "causes.yaml", "causes")
    failed = [(keys[row[0]], run) for row in rows[1:] for run, cell in zip(head[1:], row[1:]) if cell == "no"]
    assert failed
    assert not [(key, run) for key, run in failed if key not in causes and f"{key}@{run}" not in causes]


def test_what_is_kept_is_light() -> None:
    drawn = (".png", ".pdf", ".html")
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    kept = [path for path in files if path.suffix not in drawn or path.relative_to(ROOT).as_posix() in _shown()]
    assert sum(path.stat().st_size for path in kept) < 14.5e6


def _section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_nothing_of_the_machine_is_in_the_results() -> None:
    for path in RESULTS.rglob("*"):
        if path.suffix in (".json", ".yaml", ".md", ".csv", ".html", ".parquet"):
            text = json.dumps(read_record(path)) if path.suffix == ".parquet" else path.read_text()
            assert not re.search(r"/(root|home|tmp|work)/", text), path
