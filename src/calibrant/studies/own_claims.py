"""Questions that the paper leaves open, and our own claims: on rules, and on outliers that training never saw."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.studies.findings import Claim, Finding, accepted, better, named, told_accepted, value, with_selector
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.posteriors_study import one_network_each
from calibrant.studies.study import temperature, trial, within_plan
from calibrant.studies.study_trial import StudyTrial
from calibrant.studies.trust_measuring import BASELINE, DEFAULT, SHARES, UNSEEN, wrong
from calibrant.studies.trust_study import AT, estimate, records_of


def unseen_sets(lab: Lab) -> Iterator[Finding]:
    """OOD sets that training never saw are better detected after OCM; with rules, fewer answers are wrong."""
    yield from _measured(_unseen_schemes(lab))
    yield from _measured(_wrong_less(lab, "temperature + confidence after OCM", BASELINE, [UNSEEN]))
    yield from _measured(_wrong_less(lab, "trust, confidence after OCM", DEFAULT, [UNSEEN]))


def _measured(findings: Iterator[Finding]) -> list[Finding]:
    """All of `findings`; none where a record is missing."""
    try:
        return list(findings)
    except MissingRecord:
        return []


def _unseen_schemes(lab: Lab) -> Iterator[Finding]:
    for base in within_plan(lab, ("FNN", "CBNN")):
        tuned, plain = trial(lab, f"{base}-OCM"), trial(lab, base)
        for ood in lab.ood_sets(plain)[1:]:
            outliers = _accepted_of(lab, {f"{base}-OCM": tuned, base: plain}, ood)
            for measure, beside in (("detection", outliers), ("auroc", "")):
                gain = lab.estimate(tuned, f"{measure}:{ood}") - lab.estimate(plain, f"{measure}:{ood}")
                yield better(f"{named(measure)} of {ood}, {base}-OCM less {base}", gain, measure, beside)


def _accepted_of(lab: Lab, systems: dict[str, StudyTrial], ood: str) -> str:
    """How many of the set `ood` a threshold on the scaled confidence accepts; "" where that was not measured."""
    try:
        counts = {name: accepted(lab, temperature(one), AT, ood) for name, one in systems.items()}
    except MissingRecord:
        return ""
    told = ", ".join(f"{name} {count:,.0f}" for name, count in counts.items())
    return f"{told} of {lab.record(next(iter(systems.values())))['sizes'][ood]:,} at {100 * AT:g} %"


def beats_baselines(lab: Lab) -> Iterator[Finding]:
    """At half coverage SCBNN-OCM beats a temperature and a threshold on the confidence, on FNN and on CBNN-OCM."""
    ours = with_selector(lab, "SCBNN-OCM")
    for scheme in ("FNN", "CBNN-OCM"):
        other = temperature(trial(lab, scheme))
        name = f"{scheme} + temperature + confidence"
        for measure in ("accuracy", "ece", "system_rate"):
            gain = value(lab, ours, measure, 0.5) - value(lab, other, measure, 0.5)
            outliers = told_accepted(lab, {"SCBNN-OCM": ours, name: other}, 0.5) if measure == "system_rate" else ""
            yield better(f"{named(measure)} at 50 %, SCBNN-OCM less {name}", gain, measure, outliers)


def trust_beats_baseline(lab: Lab) -> Iterator[Finding]:
    """Fewer of the given answers are wrong with trust than with a temperature and a threshold on the confidence."""
    yield from _wrong_less(lab, DEFAULT, BASELINE, [_kind(lab), UNSEEN])


def trust_beats_selector(lab: Lab) -> Iterator[Finding]:
    """Fewer of the given answers are wrong with trust than with SCBNN-OCM."""
    yield from _wrong_less(lab, DEFAULT, "SCBNN-OCM", [_kind(lab), UNSEEN])


def _kind(lab: Lab) -> str:
    """The OOD set of the kind of D_u in the study `trust`."""
    return str(next(name for name in records_of(lab, DEFAULT)[0]["sizes"] if name != "test"))


def _wrong_less(lab: Lab, ours: str, other: str, kinds: list[str]) -> Iterator[Finding]:
    """The wrong answers of two systems of the study `trust` at equal coverage, with shares of outliers of `kinds`."""
    both = [records_of(lab, system) for system in (ours, other)]
    for kind in kinds:
        for share in reversed(SHARES[1:]):
            measure = wrong(share, kind)
            less, base = (estimate(records, AT, measure) for records in both)
            stream = f"{100 * share:g} % {kind if kind == UNSEEN else f'outliers of {kind}'}"
            yield better(f"wrong answers with {stream}, {ours} less {other}", less - base, measure)


OWN_CLAIMS = (
    Claim("unseen", "Open: does OCM help against outliers of kinds that training never saw?", unseen_sets),
    Claim(
        "baselines",
        "Open: does SCBNN-OCM beat temperature scaling plus confidence thresholding at equal coverage?",
        beats_baselines,
    ),
    Claim(
        "trust-baseline",
        "Ours: at equal coverage trust gives fewer wrong answers than a temperature plus confidence thresholding.",
        trust_beats_baseline,
    ),
    Claim(
        "trust-selector",
        "Ours: at equal coverage trust gives fewer wrong answers than SCBNN-OCM.",
        trust_beats_selector,
    ),
    Claim(
        "which-posterior",
        "Open: does mean field beat the other posteriors that cost about one network to train?",
        one_network_each,
    ),
)
