"""results/README.md: every run, every claim with its verdict and, written by hand beside it, causes and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.config.loading import load_settings, read_yaml
from calibrant.data import Spec
from calibrant.files import write_bytes
from calibrant.studies import coverage_study, trust_study
from calibrant.studies.claims import CLAIMS, HARDLY, NEARLY_ONE
from calibrant.studies.findings import Claim, Finding, accepted, outliers_of, overall, verdicts, with_selector
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import load_plan
from calibrant.studies.study import EIGHT, first_ood, measured, plain, temperature, within_plan
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

CAUSES, TIMES = "causes.yaml", "times.yaml"


def write_claims(results: Path) -> Path:
    """Write README.md into the folder `results`, whose folders are labs; returns its path.

    `causes.yaml` beside it maps the key of a claim to a paragraph on why it fails, or `key@LAB` for one lab, and
    `times.yaml` a lab to a sentence on how long its run took, on how many cores.
    """
    if not results.is_dir():
        raise InputError(f"{results} is not a folder; name the one that holds the folders of results")
    files = [path for pattern in ("*", "*/backbone") for path in sorted(results.glob(f"{pattern}/study.yaml"))]
    labs = {file.parent.relative_to(results).as_posix(): Lab.load(file.parent) for file in files}
    causes = _read_notes(results / CAUSES, [claim.key for claim in CLAIMS], "claim")
    times = _read_notes(results / TIMES, list(labs), "run")
    runs = [_run(name, lab, times.get(name, "")) for name, lab in labs.items()]
    parts = [_HEAD, *runs, "## Claims\n", _RULE]
    parts += [_claim(claim, labs, causes) for claim in CLAIMS]
    path = results / "README.md"
    write_bytes(path, "\n".join(part for part in parts if part).encode())
    return path


_HEAD = """# Results

Made by `calibrant reproduce claims --from results` from the records in the folders beside this file; the tables and
figures in them by `calibrant reproduce all --from results/FOLDER`. Nothing here is written by hand but the causes and
the times, which are in `causes.yaml` and `times.yaml`.
"""
_RULE = f"""A claim is a statement about numbers: that each lies above or below a bound. A number **holds** where its
whole 95 % interval is on the right side, **does not hold** where it is wholly on the wrong one, and otherwise **cannot
be told at this scale**. A claim of several numbers holds if all do, which needs no correction, and does not hold if any
does not, which does: their p-values are adjusted by Holm's method, so that one number on the wrong side among many may
not be enough. Differences and ratios are paired: both systems are resampled on the same inputs. "Nearly 1" is taken as
above {NEARLY_ONE:g}; "stable", "robust", "similar" and "hardly changes" as within {100 * HARDLY:g} points; "does not
help" as by less than 1 point. With one seed an interval tells how much the test inputs matter, not the training.

OOD detection below full coverage is among the accepted inputs, and it is high, too, where most outliers are accepted
with little confidence; the number of accepted outliers therefore stands beside it. Two statements of the paper are not
judged: which lambda is best, because its values belong to another normalization of the loss (docs/conventions.md), and
that the confidence of BNN on outliers is about uniform.
"""


def _read_notes(path: Path, known: Sequence[str], what: str) -> Mapping[str, str]:
    """The notes in a file of ours, each on one of `known`, or on one at a place that stands behind an @."""
    if not path.is_file():
        return {}
    notes = read_yaml(path, path.stem)
    wrong = [key for key in notes if str(key).partition("@")[0] not in known]
    if wrong:
        raise InputError(
            f"{path} names a {what} {wrong[0]!r} that does not exist; there are {', '.join(sorted(known))}"
        )
    return notes


def _claim(claim: Claim, labs: Mapping[str, Lab], causes: Mapping[str, str]) -> str:
    rows: list[dict[str, Cell]] = []
    told = []
    for name, lab in labs.items():
        findings = _findings(claim, lab)
        if not findings:
            continue
        level = lab.settings.report.confidence_level
        found = verdicts(findings, level)
        told.append(f"{name}{_seeds(lab)}: **{overall(found)}**.")
        for finding, verdict in zip(findings, found):
            row: dict[str, Cell] = {"run": name, "what": finding.what, "measured": finding.text(level)}
            if any(one.outliers for one in findings):
                row["accepted outliers"] = finding.outliers
            rows.append({**row, "verdict": verdict})
    lines = [f"### {claim.text}\n", " ".join(told) or "Not measured yet.", ""]
    lines += [StudyTable(rows).markdown()] if rows else []
    for key, text in causes.items():
        about, _, lab_name = key.partition("@")
        if about == claim.key:
            lines.append(f"{f'In {lab_name}: ' if lab_name else ''}{text.strip()}\n")
    return "\n".join(lines)


def _seeds(lab: Lab) -> str:
    return "" if len(lab.seeds) == 1 else f" ({len(lab.seeds)} seeds)"


def _findings(claim: Claim, lab: Lab) -> list[Finding]:
    """What decides `claim` in `lab`; nothing where it does not apply or has not been measured."""
    on_cifar10 = Spec.parse(lab.settings.data.source).kind == "cifar10"
    if claim.where == ("not on CIFAR-10" if on_cifar10 else "on CIFAR-10"):
        return []
    try:
        return list(claim.findings(lab))
    except MissingRecord:
        return []


def _run(name: str, lab: Lab, time: str) -> str:
    """What was measured in `lab`, schemes, rules, or both, and how long it took."""
    told = "\n".join(part for part in (_headline(name, lab), _trust(name, lab)) if part)
    took = f"{time.strip()}\n\n" if time else ""
    return f"## {name}\n\n{took}{told}" if told else ""


def _headline(name: str, lab: Lab) -> str:
    """Every scheme at full and at half coverage, as far as they have been measured."""
    rows = [row for label, (one, at) in _shown(lab).items() if (row := _headline_row(lab, label, one, at))]
    if not rows:
        return ""
    data, seeds = lab.settings.data, ", ".join(map(str, lab.seeds))
    about = (
        f"{data.source} against {data.uncertainty or 'its own outliers'}, {lab.settings.backbone.name},"
        f" {data.train or 'all'} training examples, {lab.settings.fit.epochs} epochs and"
        f" {lab.settings.finetune.epochs} of fine-tuning,"
        f" {lab.settings.posterior.members} members, seeds {seeds}. Percent, with 95 % intervals. Made by"
        f" `calibrant reproduce all --profile {lab.settings.profile} --data DIR{_options(lab)}`; settings and grids in"
        f" `{name}/`."
    )
    return f"{about}\n\n{StudyTable(rows).markdown()}"


def _shown(lab: Lab) -> dict[str, tuple[StudyTrial, float]]:
    """The systems of the headline and the coverage of each; nothing where lambda is not chosen yet."""
    try:
        schemes, selectors = plain(lab, EIGHT), within_plan(lab, coverage_study.PAPER)
        scaled = temperature(schemes["FNN"])
        return {
            **{scheme: (one, 1.0) for scheme, one in schemes.items()},
            "FNN + temperature": (scaled, 1.0),
            **{f"{scheme}, half accepted": (with_selector(lab, scheme), 0.5) for scheme in selectors},
            "FNN + temperature + confidence, half accepted": (scaled, 0.5),
        }
    except MissingRecord:
        return {}


def _headline_row(lab: Lab, label: str, one: StudyTrial, at: float) -> dict[str, Cell]:
    """One system; nothing where it has not been measured."""
    try:
        ood = first_ood(lab, one)
        return {
            "system": label,
            "accuracy": measured(lab, one, "accuracy", at),
            "ECE": measured(lab, one, "ece", at),
            f"OOD detection, {ood}": measured(lab, one, f"detection:{ood}", at),
            f"accepted of {outliers_of(lab, one):,}": round(accepted(lab, one, at)),
            "whole system": measured(lab, one, f"system_rate:{ood}", at),
        }
    except MissingRecord:
        return {}


def _trust(name: str, lab: Lab) -> str:
    """The rules on somebody else's network, and whether the default meets its goals; "" where they are not measured."""
    try:
        table, goals, *_ = trust_study.STUDY.tables(lab)
    except MissingRecord:
        return ""
    data, network = lab.settings.data, lab.settings.backbone
    others = (
        f" with the weights {network.weights}, which others trained on all training data; D_u is {data.uncertainty}."
        " Validation data is split off the test set"
    )
    option = f" --weights {network.weights}" if network.weights else ""
    about = (
        f"Rules on one network: {data.source}, {network.name}{others if network.weights else ''}. Made by `calibrant"
        f" reproduce trust --profile {lab.settings.profile}{option} --data DIR`; every coverage, share and kind of"
        f" outliers is in `{name}/trust/all.md`, how independent the numbers are in docs/trust.md."
    )
    left_out = ("ECE, 10 % outliers", "ECE, no outliers", "ID coverage")
    rows = [{column: cell for column, cell in row.items() if column not in left_out} for row in table.rows]
    shown = StudyTable(rows, note=table.note)
    return f"{about}\n\n{shown.markdown()}\n{goals.markdown()}"


def _options(lab: Lab) -> str:
    """The options that make of the profile what `lab` ran, but for the engine's and the grids."""
    profile, own = (_flat(one.model_dump(mode="json")) for one in (load_settings(lab.settings.profile), lab.settings))
    changed = [name for name in own if own[name] != profile.get(name) and not name.startswith("engine.")]
    options = [f"{name}={own[name]}" for name in changed]
    plan = load_plan(lab.settings.profile)
    if lab.plan.schemes != plan.schemes:
        options.append(f"study.schemes=[{','.join(lab.plan.schemes)}]")
    if lab.plan.studies != plan.studies:
        options.append(f"study.studies=[{','.join(lab.plan.studies or ())}]")
    return "".join(f" -o {option}" for option in options)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found = {}
    for name, value in values.items():
        found.update(_flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value})
    return found
