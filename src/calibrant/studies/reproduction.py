"""Run studies and draw what they found; drawing needs the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from calibrant.config.loading import load_settings
from calibrant.files import writable
from calibrant.slots import loaded_plugins
from calibrant.studies import planning
from calibrant.studies.jobs import run_jobs
from calibrant.studies.lab import Lab
from calibrant.studies.page import write_study_page
from calibrant.studies.plan import load_plan, split_overrides
from calibrant.studies.registry import STUDIES, pick
from calibrant.studies.study import Study, merged


def open_lab(
    profile: str,
    *,
    data: str | None = None,
    results: str | Path | None = None,
    runs: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Iterable[str] = (),
) -> Lab:
    """The lab of `profile`: data under the folder `data`, results and networks in the given folders."""
    of_settings, of_plan = split_overrides(overrides)
    if data is not None:
        of_settings.append(f"data.root={data}")
    if seeds is not None:
        of_plan.append(f"study.seeds={list(seeds)}")
    settings = load_settings(profile, overrides=of_settings).changed({"plugins": loaded_plugins()})
    where = Path(results or Path("results") / profile)
    return Lab(settings, load_plan(profile, of_plan), where, Path(runs or Path("runs") / profile))


def reproduce(lab: Lab, study: str, *, workers: int = 1) -> list[Path]:
    """Run `study`, or `"all"`, and draw it; returns the folders that were written."""
    chosen = pick(lab, study)
    for folder in filter(None, (lab.results, lab.runs)):
        writable(folder)
    labs = {one.name: one.within(lab) for one in chosen}
    for where in dict.fromkeys(inner.results for inner in labs.values()):
        group = [one for one in chosen if labs[one.name].results == where]
        run(labs[group[0].name], group, workers=workers)
    lab.save()
    return [draw(labs[one.name], one, lab.results) for one in chosen]


def run(lab: Lab, studies: Sequence[Study], *, workers: int = 1) -> None:
    """Make the records of `studies`: first the choices of lambda, then everything else, nothing twice."""
    lab.save()
    choices = [choice for one in studies for choice in one.choices(lab)]
    run_jobs(lab, planning.choice_jobs(lab, choices), workers=workers)
    run_jobs(lab, planning.trial_jobs(lab, merged(*(one.needs(lab) for one in studies))), workers=workers)
    for one in studies:
        one.prepare(lab)


def draw(lab: Lab, study: Study, out: Path) -> Path:
    """Write tables, figures and the page of `study` from the records of `lab` below `out`; returns the folder."""
    from calibrant.report.display import save_figure

    folder = out / study.name
    tables = study.tables(lab)
    for table in tables:
        table.write(folder)
    pictures = []
    for name, figure in study.figures(lab).items():
        for kind in ("png", "pdf"):
            save_figure(figure, folder / f"{name}.{kind}")
            figure.set_layout_engine("none")  # what was laid out for the first file stays so for the second
        pictures.append(folder / f"{name}.png")
    settings = lab.portable_settings() + "study:\n" + _indented(lab.plan_yaml())
    write_study_page(folder / "page.html", study.title, study.caption, pictures, tables, settings)
    return folder


def redraw(results: str | Path, study: str = "all", out: str | Path | None = None) -> list[Path]:
    """Draw `study` again from the folder `results`; with "all", every study that has been drawn there."""
    lab = Lab.load(results)
    chosen = pick(lab, study) if study != "all" else [s for s in STUDIES.values() if (lab.results / s.name).is_dir()]
    return [draw(one.within(lab), one, Path(out or lab.results)) for one in chosen]


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
