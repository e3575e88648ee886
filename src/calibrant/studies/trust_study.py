"""Which answers can be trusted: rules on one network, with outliers of kinds that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.metrics import Interval
from calibrant.studies.estimates import Estimate
from calibrant.studies.lab import Lab, MissingRecord, combine
from calibrant.studies.measuring import some_draws
from calibrant.studies.planning import Needs
from calibrant.studies.records import find_record, read_header, read_record, write_record
from calibrant.studies.study import Figures, Study, interval_note, within_plan
from calibrant.studies.study_figures import reliability_grid, rule_points
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.trust_measuring import (
    BASELINE,
    COVERAGES,
    DEFAULT,
    DRAWN,
    SELECTORS,
    SHARES,
    UNSEEN,
    measure_systems,
    stream_ece,
    trust_digest,
    wrong,
)

NAMES = (
    "confidence",
    BASELINE,
    "temperature + confidence after OCM",
    "SFNN",
    "SCBNN-OCM",
    "SIRC",
    DEFAULT,
    "trust, 20 outliers",
    "trust, synthetic outliers",
    "trust, share estimated",
    "trust, 10 % assumed",
    "trust, 50 % assumed",
    "trust, confidence after OCM",
    "trust, smaller confidence",
    "trust, chosen confidence",
)
AT = 0.8  # the ID coverage of the main table and of the claims
Records = Sequence[Mapping[str, Any]]  # of one system, one per seed


def record_path(lab: Lab, system: str, seed: int | None = None) -> Path:
    """The file of the record of `system`, by default with the first seed."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in system.partition(" (")[0].lower())
    return lab.results / "records" / f"trust_{slug}_seed-{lab.seeds[0] if seed is None else seed}.parquet"


def _prepare(lab: Lab) -> None:
    """Measure every system with every seed, but for seeds whose records are all there, of these settings."""
    for seed in lab.seeds:
        digest = trust_digest(lab, seed)
        if not _is_fresh(lab, seed, digest):
            for name, content in measure_systems(lab, seed):
                kept = content if lab.plan.drawn is None else _lightened(content)
                write_record(record_path(lab, name, seed), {"digest": digest, **kept})


def _is_fresh(lab: Lab, seed: int, digest: str) -> bool:
    expected = [name for name in NAMES if name not in SELECTORS or name in within_plan(lab, SELECTORS)]
    paths = [find_record(record_path(lab, name, seed)) for name in expected]
    return all(path is not None and read_header(path).get("digest") == digest for path in paths)


def _lightened(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with draws only at the coverage of the main table and claims, and of the ECE of the whole stream."""
    at = [
        one if one["wanted"] in (AT, 1.0) else {**one, "measures": some_draws(one["measures"], ())}
        for one in content["at"]
    ]
    return {**content, "at": at}


def records_of(lab: Lab, system: str) -> Records:
    """The records of one system, one per seed."""
    paths = [find_record(record_path(lab, system, seed)) for seed in lab.seeds]
    if None in paths:
        raise MissingRecord(f"{record_path(lab, system)} is missing: the study has not been run to its end")
    return [read_record(path) for path in paths if path is not None]


def estimate(records: Records, coverage: float, measure: str) -> Estimate:
    """A measure of the study, such as `wrong(0.5, UNSEEN)`: the mean over seeds."""
    at = [next(one for one in record["at"] if abs(one["wanted"] - coverage) < 1e-9) for record in records]
    return combine([dict(one["measures"][measure]) for one in at], (0.0, 1.0))


def _records(lab: Lab) -> dict[str, Records]:
    """The records by the name of the system, those that are there."""
    found = {}
    for name in NAMES:
        try:
            records = records_of(lab, name)
        except MissingRecord:
            if name in DRAWN:
                raise
            continue
        found[str(records[0]["system"])] = records
    return found


def _interval(lab: Lab, records: Records, coverage: float, measure: str) -> Interval:
    return estimate(records, coverage, measure).interval(lab.settings.report.confidence_level)


def _main_row(lab: Lab, name: str, records: Records, coverage: float) -> dict[str, Cell]:
    row: dict[str, Cell] = {"system": name}
    for share in reversed(SHARES):
        label = f"wrong, {round(100 * share)} % outliers" if share else "wrong, no outliers"
        row[label] = _interval(lab, records, coverage, wrong(share, UNSEEN))
    for share in reversed(SHARES):
        label = f"ECE, {round(100 * share)} % outliers" if share else "ECE, no outliers"
        row[label] = _interval(lab, records, 1.0, stream_ece(share, UNSEEN))
    row["ID coverage"] = _interval(lab, records, coverage, "coverage")
    at = [next(one for one in record["at"] if one["wanted"] == coverage) for record in records]
    for ood, size in records[0]["sizes"].items():
        if ood != "test":
            row[f"accepted of {size} {ood}"] = round(float(np.mean([one["accepted"][ood] for one in at])))
    return row


def _every_row(lab: Lab, name: str, records: Records) -> list[dict[str, Cell]]:
    rows = []
    kinds = [*(ood for ood in records[0]["sizes"] if ood != "test"), UNSEEN]
    for coverage in COVERAGES:
        for share in SHARES:
            for kind in kinds if share else [UNSEEN]:
                row: dict[str, Cell] = {"system": name, "coverage": coverage, "share": share}
                row["outliers"] = kind if share else "none"
                row["wrong"] = _interval(lab, records, coverage, wrong(share, kind))
                row["stream ECE"] = _interval(lab, records, 1.0, stream_ece(share, kind))
                rows.append(row)
    return rows


def _goal_rows(lab: Lab, records: Mapping[str, Records]) -> list[dict[str, Cell]]:
    """The goals for the default at coverage 0.8, each with its paired interval and whether it is met."""
    level = lab.settings.report.confidence_level
    rows: list[dict[str, Cell]] = []
    for name in (DEFAULT, "trust, 20 outliers", "trust, synthetic outliers", "trust, share estimated"):
        if name not in records:
            continue
        ours, base = records[name], records[BASELINE]
        for share in reversed(SHARES):
            pair = [estimate(one, AT, wrong(share, UNSEEN)) for one in (ours, base)]
            ratio, difference = (pair[0] / pair[1]).interval(level), (pair[0] - pair[1]).interval(level)
            met = ratio.estimate <= 0.75 if share == 0.5 else difference.low <= 0
            ece = _interval(lab, ours, 1.0, stream_ece(share, UNSEEN))
            goal = "at most 0.75 of the baseline's, ECE under 5 %" if share == 0.5 else "not worse beyond the interval"
            met = met and (share != 0.5 or ece.estimate < 0.05)
            row: dict[str, Cell] = {"system": name, "outliers": f"{round(100 * share)} %", "goal": goal}
            row["ratio of wrong answers"] = f"{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
            row["difference"], row["stream ECE"], row["met"] = difference, ece, "yes" if met else "no"
            rows.append(row)
    return rows


def _tables(lab: Lab) -> list[StudyTable]:
    records = _records(lab)
    first = records[DEFAULT][0]
    note = (
        f"Wrong answers among those given at an ID coverage of 80 % (threshold from validation data), and the ECE of"
        f" all inputs together, in streams with that share of outliers; an answer to an outlier is wrong. Outliers are"
        f" of kinds that nothing was fitted to, in equal parts: {', '.join(first['unseen'])}. Trust assumes the true"
        f" share unless said otherwise. {interval_note(lab)}"
    )
    shares = [
        {"stream": row["stream"], "true share": row["share"], "estimated": row["estimate"]}
        for row in first["estimates"]
    ]
    return [
        StudyTable([_main_row(lab, name, record, AT) for name, record in records.items()], note=note),
        StudyTable(_goal_rows(lab, records), "goals", "Against temperature scaling and a threshold on the confidence."),
        StudyTable([row for name, record in records.items() for row in _every_row(lab, name, record)], "all"),
        StudyTable(shares, "shares", "The share of outliers, estimated from the stream without labels by trust."),
    ]


def _figures(lab: Lab) -> Figures:
    records = _records(lab)
    first = {name: records[name][0] for name in DRAWN}
    diagrams = {name: record["diagram"] for name, record in first.items()}
    return {
        "figure": rule_points({name: record["points"] for name, record in first.items()}),
        "reliability": reliability_grid(
            diagrams,
            {name: record["diagram"]["right"] for name, record in first.items()},
            lab.settings.report.min_bin_count,
            width=3.0,
            x="Stated probability of being right",
        ),
    }


def _needs(lab: Lab) -> Needs:
    return {}


STUDY = Study(
    "trust",
    "Which answers can be trusted",
    "Rules on one network at equal coverage of the ID data, in streams with outliers that nothing was fitted to:"
    " where each accepts, at 80 % coverage, and reliability in a stream of which half are such outliers.",
    _needs,
    _tables,
    _figures,
    lambda lab: [],
    _prepare,
)
