"""What results/README.md says of each run: how it was made, its headline table, and the rules on its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.config.loading import load_settings
from calibrant.studies import coverage_study, trust_study
from calibrant.studies.findings import accepted, outliers_of, with_selector
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import load_plan
from calibrant.studies.study import EIGHT, first_ood, measured, plain, temperature, within_plan
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

_NOTE = (
    "Of a system that answers half of the inputs, accuracy, ECE and OOD detection are of what it accepts (– where fewer"
    " than 30 outliers or ID inputs are accepted); the next column says how many outliers that are. For the whole"
    " system a rejected outlier counts as detected, a rejected ID input as an error."
)


def run_section(name: str, lab: Lab, time: str) -> str:
    """What was measured in `lab`, schemes, rules, or both, and how long it took; "" where nothing was."""
    told = "\n".join(part for part in (_headline(name, lab), _trust(name, lab)) if part)
    took = f"{time.strip()}\n\n" if time else ""
    return f"## {name}\n\n{took}{told}" if told else ""


def folded(title: str, text: str) -> str:
    """`text`, to be unfolded by a click on `title` where Markdown is rendered."""
    return f"<details><summary>{title}</summary>\n\n{text}\n</details>\n"


def _headline(name: str, lab: Lab) -> str:
    """Every scheme at full and at half coverage, as far as they have been measured."""
    rows = [row for label, (one, at) in _shown(lab).items() if (row := _headline_row(lab, label, one, at))]
    if not rows:
        return ""
    data, fit = lab.settings.data, lab.settings.fit
    seeds = f"seed{'s' if len(lab.seeds) > 1 else ''} {', '.join(map(str, lab.seeds))}"
    examples = f"{data.train:,}" if data.train else "all"
    outliers = f"`{data.uncertainty}`" if data.uncertainty else "those of the ID data"
    about = (
        f"**The paper's schemes.** ID data `{data.source}`, {examples} training examples; outliers {outliers};"
        f" network `{lab.settings.backbone.name}`; {fit.epochs} epochs and {lab.settings.finetune.epochs} of"
        f" fine-tuning; {lab.settings.posterior.members} members; {seeds}. Percent, with 95 % intervals. Made by"
        f" `calibrant reproduce all --profile {lab.settings.profile} --data DIR{_options(lab)}`; settings and grids are"
        f" in `{name}/`."
    )
    return f"{about}\n\n{StudyTable(rows, note=_NOTE).markdown()}"


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
    """The rules on one network, and whether the default meets its goals; "" where they are not measured."""
    try:
        table, goals, *_ = trust_study.STUDY.tables(lab)
    except MissingRecord:
        return ""
    data, network = lab.settings.data, lab.settings.backbone
    others = (
        f" Its weights are `{network.weights}`, which others trained on all training data, so validation data is split"
        f" off the test set; D_u is `{data.uncertainty}`."
    )
    option = f" --weights {network.weights}" if network.weights else ""
    about = (
        f"**Rules on one network**, `{network.name}` on `{data.source}`.{others if network.weights else ''} Made by"
        f" `calibrant reproduce trust --profile {lab.settings.profile}{option} --data DIR`. Every coverage, share and"
        f" kind of outliers is in `{name}/trust/all.md`, how independent the numbers are in docs/trust.md."
    )
    left_out = ("ECE, 10 % outliers", "ECE, no outliers", "ID coverage")
    rows = [{column: cell for column, cell in row.items() if column not in left_out} for row in table.rows]
    shown = StudyTable(rows, note=table.note)
    return f"{about}\n\n{shown.markdown()}\n{folded('Whether trust meets its goals', goals.markdown())}"


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
