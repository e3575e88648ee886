"""results/README.md: the verdicts at a glance, every run, and every claim with its numbers and, by hand, its causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant import InputError
from calibrant.config.loading import read_yaml
from calibrant.data import Spec
from calibrant.files import write_bytes
from calibrant.studies.claims import CLAIMS
from calibrant.studies.findings import HARDLY, NEARLY_ONE, Claim, Finding, Verdict, overall, verdicts
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import BASES
from calibrant.studies.run_sections import folded, run_section
from calibrant.studies.study_table import Cell, StudyTable

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
    judged = {claim.key: _judged(claim, labs) for claim in CLAIMS}
    runs = [run_section(name, lab, times.get(name, "")) for name, lab in labs.items()]
    parts = [_HEAD, _glance(labs, judged), *runs, "## Claims\n", _RULE]
    parts += [_claim(claim, labs, judged[claim.key], causes) for claim in CLAIMS]
    path = results / "README.md"
    write_bytes(path, "\n".join(part for part in parts if part).encode())
    return path


_HEAD = """# Results

Made by `calibrant reproduce claims --from results` from the records in the folders beside this file; the tables and
figures in them by `calibrant reproduce all --from results/FOLDER`. Nothing here is written by hand but the causes and
the times, which are in `causes.yaml` and `times.yaml`.
"""
_GLANCE = """## Verdicts at a glance

**yes**: the claim holds. **no**: it does not hold. **?**: it cannot be told at this scale. Empty: it was not
measured in that run, or is not about its data. The numbers, and why a claim fails, are below, under
[Claims](#claims).
"""
_WORDS: Mapping[Verdict, str] = {"holds": "yes", "does not hold": "no", "cannot be told at this scale": "?"}
_RULE = f"""A claim is a statement about numbers: each lies above or below a bound. A number **holds** where its
whole 95 % interval is on the right side of the bound, it **does not hold** where the interval is wholly on the
wrong side, and otherwise it **cannot be told at this scale**. A claim about several numbers holds if all of them
do; this needs no correction. It does not hold if any of them does not; this does, because with many numbers one is
on the wrong side by chance. Their p-values are therefore adjusted by Holm's method first. Differences and ratios
are paired: both systems are resampled on the same inputs. With one seed an interval tells how much the test inputs
matter, not the training.

The paper's words are read as follows: "nearly 1" is above {NEARLY_ONE:g}, "about 99 %" above 98 %; "stable",
"robust", "similar" and "hardly changes" mean within {100 * HARDLY:g} points, "does not help" by less than 1 point;
"below 50 %" is the mean over the coverages below 50 %; the confidence on outliers is "low" if fewer than half of
them, and fewer than before, have one in the upper half of the bins.

OOD detection below full coverage is among the accepted inputs. It is also high where most outliers are accepted, if
with little confidence, so the number of accepted outliers stands beside it. Three statements of the paper are not
judged: which lambda is best, because its values belong to another normalization of the loss (docs/conventions.md);
that the confidence of BNN on outliers is about uniform, for which it gives no number; and that rejection gains more
on CIFAR-10 than on CIFAR-100, which compares data sets. Its table of parameters and FLOPs is held against ours in
the study `cost`.
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


@dataclass(frozen=True)
class _Judged:
    """A claim in one run."""

    findings: Sequence[Finding]
    verdicts: Sequence[Verdict]

    @property
    def overall(self) -> Verdict:
        return overall(self.verdicts)


def _judged(claim: Claim, labs: Mapping[str, Lab]) -> dict[str, _Judged]:
    """By run; without those that the claim is not about, or that have not measured it."""
    found = {name: _findings(claim, lab) for name, lab in labs.items()}
    level = {name: lab.settings.report.confidence_level for name, lab in labs.items()}
    return {name: _Judged(each, verdicts(each, level[name])) for name, each in found.items() if each}


def _glance(labs: Mapping[str, Lab], judged: Mapping[str, Mapping[str, _Judged]]) -> str:
    rows = []
    for claim in CLAIMS:
        row: dict[str, Cell] = {"claim": claim.text}
        for name in labs:
            one = judged[claim.key].get(name)
            row[name] = _WORDS[one.overall] if one else ""
        rows.append(row)
    return f"{_GLANCE}{_some_schemes(labs)}\n{StudyTable(rows).markdown()}"


def _some_schemes(labs: Mapping[str, Lab]) -> str:
    """Which runs have not all base schemes, so that a claim about more is judged by those."""
    told = [
        f"\nOf the base schemes, `{name}` has {_listed(lab.plan.schemes)} alone, and what is built on them; claims"
        " about more are judged by those.\n"
        for name, lab in labs.items()
        if set(lab.plan.schemes) < set(BASES)
    ]
    return "".join(told)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _claim(claim: Claim, labs: Mapping[str, Lab], judged: Mapping[str, _Judged], causes: Mapping[str, str]) -> str:
    """One claim: where the paper makes it, its verdicts, their causes, and the numbers, folded up."""
    told = [f"{name}{_seeds(labs[name])}: **{one.overall}**." for name, one in judged.items()]
    said = f"({claim.said}) " if claim.said else ""
    lines = [f"### {claim.text}\n", said + (" ".join(told) or "Not measured yet."), ""]
    for key, text in causes.items():
        about, _, lab_name = key.partition("@")
        if about == claim.key:
            lines.append(f"{f'In {lab_name}: ' if lab_name else ''}{text.strip()}\n")
    rows = [row for name, one in judged.items() for row in _finding_rows(name, labs[name], one)]
    return "\n".join([*lines, folded("The numbers", StudyTable(rows).markdown())] if rows else lines)


def _finding_rows(name: str, lab: Lab, one: _Judged) -> list[dict[str, Cell]]:
    level, rows = lab.settings.report.confidence_level, []
    for finding, verdict in zip(one.findings, one.verdicts):
        row: dict[str, Cell] = {"run": name, "what": finding.what, "measured": finding.text(level)}
        if any(each.outliers for each in one.findings):
            row["accepted outliers"] = finding.outliers
        rows.append({**row, "verdict": verdict})
    return rows


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
