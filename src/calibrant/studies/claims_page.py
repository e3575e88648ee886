"""results/README.md: every claim, what was measured, the verdict and, written by hand in causes.yaml, the cause."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.config.loading import load_settings, read_yaml
from calibrant.data import Spec
from calibrant.files import write_bytes
from calibrant.studies import coverage_study, trust_study
from calibrant.studies.claims import CLAIMS, HARDLY, NEARLY_ONE
from calibrant.studies.findings import Claim, Finding, overall
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import load_plan
from calibrant.studies.study import EIGHT, first_ood, measured, temperature, trial
from calibrant.studies.study_table import Cell, StudyTable

CAUSES = "causes.yaml"


def write_claims(results: Path) -> Path:
    """Write README.md into the folder `results`, whose folders are labs; returns its path.

    `causes.yaml` beside it maps the key of a claim to a paragraph on why it fails, or `key@LAB` for one lab.
    """
    if not results.is_dir():
        raise InputError(f"{results} is not a folder; name the one that holds the folders of results")
    files = [path for pattern in ("*", "*/backbone") for path in sorted(results.glob(f"{pattern}/study.yaml"))]
    labs = {file.parent.relative_to(results).as_posix(): Lab.load(file.parent) for file in files}
    causes = _read_causes(results / CAUSES)
    parts = [_HEAD, *(_headline(name, lab) or _trust(name, lab) for name, lab in labs.items()), "## Claims\n", _RULE]
    parts += [_claim(claim, labs, causes) for claim in CLAIMS]
    path = results / "README.md"
    write_bytes(path, "\n".join(part for part in parts if part).encode())
    return path


_HEAD = """# Results

Made by `calibrant reproduce claims --from results` from the records in the folders beside this file; the tables and
figures in them by `calibrant reproduce all --from results/FOLDER`. Nothing here is written by hand but the causes,
which are in `causes.yaml`.
"""
_RULE = f"""A claim is a statement about numbers: that each lies above or below a bound. It **holds** where the whole
95 % interval is on the right side, **does not hold** where it is wholly on the wrong one, and otherwise **cannot be
told at this scale**; with several numbers it holds if all do, and does not hold if any does not. Differences and
ratios are paired: both systems are resampled on the same inputs. "Nearly 1" is taken as above {NEARLY_ONE:g};
"stable", "robust" and "hardly changes" as varying by less than {100 * HARDLY:g} points; "does not help" as by less
than 1 point. With one seed an interval tells how much the test inputs matter, not the training.
"""


def _read_causes(path: Path) -> Mapping[str, str]:
    if not path.is_file():
        return {}
    causes = read_yaml(path, "causes")
    known = {claim.key for claim in CLAIMS}
    wrong = [key for key in causes if str(key).partition("@")[0] not in known]
    if wrong:
        raise InputError(f"{path} names a claim {wrong[0]!r} that does not exist; there are {', '.join(sorted(known))}")
    return causes


def _claim(claim: Claim, labs: Mapping[str, Lab], causes: Mapping[str, str]) -> str:
    rows: list[dict[str, Cell]] = []
    verdicts = []
    for name, lab in labs.items():
        findings = _findings(claim, lab)
        if not findings:
            continue
        level = lab.settings.report.confidence_level
        found = [finding.verdict(level) for finding in findings]
        verdicts.append(f"{name}{_seeds(lab)}: **{overall(found)}**.")
        for finding, verdict in zip(findings, found):
            rows.append({"run": name, "what": finding.what, "measured": finding.text(level), "verdict": verdict})
    lines = [f"### {claim.text}\n", " ".join(verdicts) or "Not measured yet.", ""]
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
    if claim.cifar10_only and Spec.parse(lab.settings.data.source).kind != "cifar10":
        return []
    try:
        return list(claim.findings(lab))
    except MissingRecord:
        return []


def _headline(name: str, lab: Lab) -> str:
    """Every scheme at full and at half coverage, as far as they have been measured."""
    rows: list[dict[str, Cell]] = []
    try:
        plain = {scheme: trial(lab, scheme) for scheme in EIGHT}
        shown = {
            **{scheme: (one, 1.0) for scheme, one in plain.items()},
            "FNN + temperature": (temperature(plain["FNN"]), 1.0),
            **{f"{s}, half accepted": (coverage_study.systems(lab)[s], 0.5) for s in coverage_study.PAPER},
            "FNN + temperature + confidence, half accepted": (temperature(plain["FNN"]), 0.5),
        }
        ood = first_ood(lab, plain["FNN"])
        for label, (one, at) in shown.items():
            rows.append(
                {
                    "system": label,
                    "accuracy": measured(lab, one, "accuracy", at),
                    "ECE": measured(lab, one, "ece", at),
                    f"OOD detection, {ood}": measured(lab, one, f"detection:{ood}", at),
                    "whole system": measured(lab, one, f"system_rate:{ood}", at),
                }
            )
    except MissingRecord:
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
    return f"## {name}\n\n{about}\n\n{StudyTable(rows).markdown()}"


def _trust(name: str, lab: Lab) -> str:
    """The rules on somebody else's network, and whether the default meets its goals; "" where they are not measured."""
    try:
        table, goals, *_ = trust_study.STUDY.tables(lab)
    except MissingRecord:
        return ""
    data, network = lab.settings.data, lab.settings.backbone
    about = (
        f"{data.source}, {network.name} with the weights {network.weights}, which others trained on all training data;"
        f" D_u is {data.uncertainty}. Validation data is split off the test set. Made by `calibrant reproduce trust"
        f" --profile {lab.settings.profile} --weights {network.weights} --data DIR`; every coverage, share and kind of"
        f" outliers is in `{name}/trust/all.md`, how independent the numbers are in docs/trust.md."
    )
    left_out = ("ECE, 10 % outliers", "ECE, no outliers", "ID coverage")
    rows = [{column: cell for column, cell in row.items() if column not in left_out} for row in table.rows]
    shown = StudyTable(rows, note=table.note)
    return f"## {name}\n\n{about}\n\n{shown.markdown()}\n{goals.markdown()}"


def _options(lab: Lab) -> str:
    """The options that make of the profile what `lab` ran, but for the engine's and the grids."""
    profile, own = (_flat(one.model_dump(mode="json")) for one in (load_settings(lab.settings.profile), lab.settings))
    changed = [name for name in own if own[name] != profile.get(name) and not name.startswith("engine.")]
    options = [f"{name}={own[name]}" for name in changed]
    if lab.plan.studies != load_plan(lab.settings.profile).studies:
        options.append(f"study.studies=[{','.join(lab.plan.studies or ())}]")
    return "".join(f" -o {option}" for option in options)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found = {}
    for name, value in values.items():
        found.update(_flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value})
    return found
