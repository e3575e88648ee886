"""The paper's claims as data, each with the numbers that decide it; `own_claims` holds ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from calibrant.studies import coverage_study, eta_study
from calibrant.studies.estimates import Estimate
from calibrant.studies.findings import (
    Claim,
    Finding,
    accepted,
    better,
    between,
    mean_of,
    named,
    outliers_of,
    spread,
    told_accepted,
    value,
    with_selector,
)
from calibrant.studies.lab import Lab
from calibrant.studies.own_claims import OWN_CLAIMS
from calibrant.studies.pareto_study import FAMILIES, sweep
from calibrant.studies.plan import BASES
from calibrant.studies.study import trial, within_plan
from calibrant.studies.study_trial import StudyTrial
from calibrant.studies.tradeoff_study import point

NEARLY_ONE, HARDLY = 0.95, 0.02  # what "nearly 1" and "hardly changes", "similar", "robust" are taken to mean
MEASURES = ("accuracy", "ece", "detection")
BAYESIAN = ("SBNN-OCM", "SCBNN-OCM")


def _families(lab: Lab) -> list[tuple[str, str]]:
    """Schemes without and with the regularizer, where the plan runs both."""
    return [pair for pair in FAMILIES if len(within_plan(lab, pair)) == 2]


def bnn_ece(lab: Lab) -> Iterator[Finding]:
    """BNN has lower ECE."""
    yield Finding("ECE, FNN less BNN", between(lab, "FNN", "BNN", "ece"), low=0)


def _reduction(lab: Lab, calibrated: str, plain: str, least: float) -> Finding:
    ratio = value(lab, trial(lab, calibrated), "ece") / value(lab, trial(lab, plain), "ece")
    return Finding(f"reduction of ECE, {plain} to {calibrated}", 1.0 - ratio, low=least, unit="%")


def lower_ece_f(lab: Lab) -> Iterator[Finding]:
    """Regularization lowers ECE by 20 %."""
    yield _reduction(lab, "CFNN", "FNN", 0.2)


def lower_ece_b(lab: Lab) -> Iterator[Finding]:
    """Regularization lowers ECE by 50 %."""
    yield _reduction(lab, "CBNN", "BNN", 0.5)


def no_ood_help(lab: Lab) -> Iterator[Finding]:
    """Regularization does not help OOD detection: by no more than a point."""
    for plain, calibrated in _families(lab):
        gain = between(lab, calibrated, plain, "detection")
        yield Finding(f"OOD detection, {calibrated} less {plain}", gain, high=0.01)


def ocm_nearly_one(lab: Lab) -> Iterator[Finding]:
    """OCM raises OOD detection to nearly 1."""
    for base in within_plan(lab, BASES):
        found = value(lab, trial(lab, f"{base}-OCM"), "detection")
        yield Finding(f"OOD detection, {base}-OCM", found, low=NEARLY_ONE, unit="%")


def ocm_costs(lab: Lab) -> Iterator[Finding]:
    """OCM costs ID calibration."""
    for base in within_plan(lab, BASES):
        yield Finding(f"ECE, {base}-OCM less {base}", between(lab, f"{base}-OCM", base, "ece"), low=0)


def accuracy_at_level(lab: Lab) -> Iterator[Finding]:
    """At one level of OOD detection BNN-OCM is more accurate than FNN-OCM: between the points of the gamma sweep."""
    for what, difference in _at_level(lab, "BNN-OCM", "FNN-OCM", ("accuracy",)):
        yield Finding(what, difference, low=0)


def regularizer_at_level(lab: Lab) -> Iterator[Finding]:
    """At one level of OOD detection the regularizer lowers the ECE and the accuracy of OCM schemes."""
    for plain, calibrated in _families(lab):
        for what, difference in _at_level(lab, f"{calibrated}-OCM", f"{plain}-OCM", ("accuracy", "ece")):
            yield Finding(what, difference, high=0)


def _at_level(lab: Lab, first: str, second: str, measures: Sequence[str]) -> Iterator[tuple[str, Estimate]]:
    """`measures` of one scheme less those of another in the middle of the OOD detection that both reach.

    Undefined where there is no level that both reach.
    """
    sweeps = {s: [point(lab, s, gamma) for gamma in lab.plan.gammas] for s in (first, second)}
    detection = {s: [value(lab, one, "detection") for one in trials] for s, trials in sweeps.items()}
    ranges = [(min(d.value for d in found), max(d.value for d in found)) for found in detection.values()]
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low > high:
        undefined = Estimate(math.nan, np.full(2, math.nan))
        yield from ((f"{named(one)} at one OOD detection, {first} less {second}", undefined) for one in measures)
        return
    level = (low + high) / 2
    for measure in measures:
        at = {
            s: _interpolated(detection[s], [value(lab, one, measure) for one in trials], level)
            for s, trials in sweeps.items()
        }
        yield f"{named(measure)} at OOD detection {100 * level:.1f} %, {first} less {second}", at[first] - at[second]


def _interpolated(x: Sequence[Estimate], y: Sequence[Estimate], at: float) -> Estimate:
    def one(xs: Sequence[float], ys: Sequence[float]) -> float:
        order = np.argsort(xs, kind="stable")
        return float(np.interp(at, np.array(xs)[order], np.array(ys)[order]))

    draws = [one([e.draws[b] for e in x], [e.draws[b] for e in y]) for b in range(len(x[0].draws))]
    return Estimate(one([e.value for e in x], [e.value for e in y]), np.array(draws), y[0].bounds)


def selective_beats(lab: Lab) -> Iterator[Finding]:
    """Below half coverage SCBNN-OCM beats SBNN-OCM in accuracy, ECE and OOD detection: means over these coverages."""
    low = [c for c in lab.plan.coverages if c < 0.5]
    for measure, (mean, outliers) in _over_coverages(lab, low).items():
        yield better(
            f"{named(measure)}, SCBNN-OCM less SBNN-OCM, mean over coverages below 50 %", mean, measure, outliers
        )


def selective_beats_cifar10(lab: Lab) -> Iterator[Finding]:
    """SCBNN-OCM beats SBNN-OCM in ECE and OOD detection, and its accuracy is similar: means over all coverages."""
    for measure, (mean, outliers) in _over_coverages(lab, [c for c in lab.plan.coverages if c < 1]).items():
        what = f"{named(measure)}, SCBNN-OCM less SBNN-OCM, mean over coverages below 100 %"
        if measure == "accuracy":
            yield Finding(what, mean, -HARDLY, HARDLY)
        else:
            yield better(what, mean, measure, outliers)


def _over_coverages(lab: Lab, coverages: Sequence[float]) -> dict[str, tuple[Estimate, str]]:
    """Each measure of SCBNN-OCM less that of SBNN-OCM, the mean over `coverages`, and the accepted outliers."""
    both = {name: with_selector(lab, name) for name in ("SCBNN-OCM", "SBNN-OCM")}
    ours, other = both.values()
    return {
        measure: (
            mean_of([value(lab, ours, measure, c) - value(lab, other, measure, c) for c in coverages]),
            told_accepted(lab, both, max(coverages)) if measure == "detection" else "",
        )
        for measure in MEASURES
    }


def compensates(lab: Lab) -> Iterator[Finding]:
    """At half coverage the ECE of SCBNN-OCM lies below that of CBNN-OCM and that of CBNN, before OCM."""
    ours = value(lab, with_selector(lab, "SCBNN-OCM"), "ece", 0.5)
    for scheme in ("CBNN-OCM", "CBNN"):
        difference = ours - value(lab, trial(lab, scheme), "ece")
        yield Finding(f"ECE, SCBNN-OCM at 50 % coverage less {scheme}", difference, high=0)


def against_fnn(lab: Lab) -> Iterator[Finding]:
    """At half coverage against FNN: +25 % accuracy, -20 % ECE, +50 % OOD detection, as ratios (points beside them)."""
    ours, fnn = with_selector(lab, "SCBNN-OCM"), trial(lab, "FNN")
    for measure, claimed in (("accuracy", 0.25), ("ece", -0.2), ("detection", 0.5)):
        new, old = value(lab, ours, measure, 0.5), value(lab, fnn, measure)
        change, points = new / old - 1.0, 100 * (new.value - old.value)
        beside = f" ({points:+.1f} points)" if math.isfinite(points) else ""
        what = f"change of {named(measure)}, SCBNN-OCM at 50 % coverage against FNN{beside}"
        low, high = (claimed, math.inf) if claimed > 0 else (-math.inf, claimed)
        outliers = told_accepted(lab, {"SCBNN-OCM": ours}, 0.5) if measure == "detection" else ""
        yield Finding(what, change, low, high, "%", outliers)


def bayesian_selectors(lab: Lab) -> Iterator[Finding]:
    """At the coverage of the study of eta, 40 %, SBNN-OCM and SCBNN-OCM are better than SFNN in every measure."""
    at = lab.plan.eta_coverage
    for name in within_plan(lab, BAYESIAN):
        both = {one: with_selector(lab, one) for one in (name, "SFNN")}
        for measure in MEASURES:
            gain = value(lab, both[name], measure, at) - value(lab, both["SFNN"], measure, at)
            outliers = told_accepted(lab, both, at) if measure == "detection" else ""
            yield better(f"{named(measure)} at {100 * at:g} % coverage, {name} less SFNN", gain, measure, outliers)


def robust_to_eta(lab: Lab) -> Iterator[Finding]:
    """Over eta each measure of the Bayesian selective schemes varies little, and less than that of SFNN."""
    at = lab.plan.eta_coverage
    sweeps = {scheme: [eta_study.point(lab, scheme, eta) for eta in lab.plan.etas] for scheme in coverage_study.PAPER}
    for measure in MEASURES:
        spreads = {s: spread([value(lab, one, measure, at) for one in trials]) for s, trials in sweeps.items()}
        for name in BAYESIAN:
            outliers = _accepted_over_eta(lab, sweeps, (name, "SFNN")) if measure == "detection" else ""
            own = f"spread of {named(measure)} over eta, {name}"
            yield Finding(own, spreads[name], high=HARDLY, outliers=outliers)
            less = f"spread of {named(measure)} over eta, SFNN less {name}"
            yield Finding(less, spreads["SFNN"] - spreads[name], low=0, outliers=outliers)


def _accepted_over_eta(lab: Lab, sweeps: Mapping[str, Sequence[StudyTrial]], names: Sequence[str]) -> str:
    """From the smallest to the largest eta, such as "SFNN 12 to 40 of 4,000"."""
    ends = {name: [accepted(lab, one, lab.plan.eta_coverage) for one in sweeps[name]] for name in names}
    told = ", ".join(f"{name} {found[0]:,.0f} to {found[-1]:,.0f}" for name, found in ends.items())
    return f"{told} of {outliers_of(lab, sweeps[names[0]][0]):,} from the least to the largest eta"


def bnn_better(lab: Lab) -> Iterator[Finding]:
    """BNN is slightly more accurate and better at OOD than FNN."""
    for measure in ("accuracy", "detection"):
        yield Finding(f"{named(measure)}, BNN less FNN", between(lab, "BNN", "FNN", measure), low=0)


def cbnn_sensitive(lab: Lab) -> Iterator[Finding]:
    """ECE varies more over lambda for CBNN than for CFNN, yet lies below that of BNN for most lambdas."""
    ece = {s: [value(lab, one, "ece") for one in sweep(lab, plain, s)[1:]] for plain, s in FAMILIES}
    difference = spread(ece["CBNN"]) - spread(ece["CFNN"])
    yield Finding("spread of ECE over lambda, CBNN less CFNN", difference, low=0)
    plain = value(lab, trial(lab, "BNN"), "ece")
    share = Estimate(
        float(np.mean([one.value < plain.value for one in ece["CBNN"]])),
        np.mean([one.draws < plain.draws for one in ece["CBNN"]], axis=0),
        (0.0, 1.0),
    )
    yield Finding("share of lambdas with ECE of CBNN below BNN", share, low=0.5, unit="%")


def stable_gamma(lab: Lab) -> Iterator[Finding]:
    """For gamma > 0.1 ECE, accuracy and OOD detection hardly change; one gamma alone says nothing about it."""
    gammas = [gamma for gamma in lab.plan.gammas if gamma > 0.1]
    if len(gammas) < 2:
        return
    for base in within_plan(lab, BASES):
        for measure in ("ece", "accuracy", "detection"):
            values = [value(lab, point(lab, f"{base}-OCM", gamma), measure) for gamma in gammas]
            yield Finding(f"spread of {named(measure)} over gamma > 0.1, {base}-OCM", spread(values), high=HARDLY)


def lambda_lowers_ece(lab: Lab) -> Iterator[Finding]:
    """The largest lambda has a lower ECE than lambda = 0."""
    for plain, calibrated in _families(lab):
        first, *_, last = (value(lab, one, "ece") for one in sweep(lab, plain, calibrated))
        yield Finding(f"ECE, {calibrated} at the largest lambda less {plain}", last - first, high=0)


def lambda_costs_accuracy(lab: Lab) -> Iterator[Finding]:
    """The largest lambda has a lower accuracy than lambda = 0."""
    for plain, calibrated in _families(lab):
        first, *_, last = (value(lab, one, "accuracy") for one in sweep(lab, plain, calibrated))
        yield Finding(f"accuracy, {calibrated} at the largest lambda less {plain}", last - first, high=0)


def accuracy_over_lambda(lab: Lab) -> Iterator[Finding]:
    """Accuracy hardly changes as lambda grows."""
    for plain, calibrated in _families(lab):
        accuracies = [value(lab, one, "accuracy") for one in sweep(lab, plain, calibrated)]
        yield Finding(f"spread of accuracy over lambda, {calibrated}", spread(accuracies), high=HARDLY)


def cbnn_balances(lab: Lab) -> Iterator[Finding]:
    """OCM costs CFNN more accuracy and ECE than CBNN."""
    for measure, sign in (("accuracy", -1.0), ("ece", 1.0)):
        loss = {s: between(lab, f"{s}-OCM", s, measure) for s in ("CFNN", "CBNN")}
        worse = loss["CFNN"] - loss["CBNN"]
        what = f"loss of {named(measure)} by OCM, CFNN less CBNN"
        yield Finding(what, worse if sign > 0 else -worse, low=0)


def at_seventy(lab: Lab) -> Iterator[Finding]:
    """At coverage 0.7 SCBNN-OCM reaches accuracy about 99 %, ECE under 1 %, OOD detection about 1."""
    one = with_selector(lab, "SCBNN-OCM")
    bounds = {"accuracy": (0.98, math.inf), "ece": (-math.inf, 0.01), "detection": (NEARLY_ONE, math.inf)}
    for measure, (low, high) in bounds.items():
        outliers = told_accepted(lab, {"SCBNN-OCM": one}, 0.7) if measure == "detection" else ""
        found = value(lab, one, measure, 0.7)
        yield Finding(f"{named(measure)}, SCBNN-OCM at 70 % coverage", found, low, high, "%", outliers)


CLAIMS = (
    Claim("bnn-ece", "BNN has lower ECE than FNN.", bnn_ece),
    Claim("bnn-better", "BNN is slightly more accurate and better at OOD detection than FNN.", bnn_better),
    Claim("ece-frequentist", "Calibration regularization lowers ECE by over 20 % (frequentist).", lower_ece_f),
    Claim("ece-bayesian", "Calibration regularization lowers ECE by 50 % (Bayesian).", lower_ece_b),
    Claim("lambda-ece", "Increasing lambda lowers ECE.", lambda_lowers_ece),
    Claim("lambda-accuracy", "Increasing lambda gradually costs accuracy.", lambda_costs_accuracy, "not on CIFAR-10"),
    Claim("no-ood-help", "Calibration regularization does not help OOD detection.", no_ood_help),
    Claim("ocm", "OCM raises the OOD detection probability to nearly 1, for all schemes.", ocm_nearly_one),
    Claim("ocm-costs", "OCM costs ID calibration.", ocm_costs),
    Claim("accuracy-at-level", "For a given OOD detection level BNN-OCM is more accurate.", accuracy_at_level),
    Claim(
        "regularizer-at-level",
        "For a given OOD detection level calibration regularization lowers ECE at the cost of accuracy.",
        regularizer_at_level,
    ),
    Claim(
        "selective",
        "Below 50 % coverage SCBNN-OCM beats SBNN-OCM in all three measures.",
        selective_beats,
        "not on CIFAR-10",
    ),
    Claim("compensates", "Selective calibration makes up for the ID calibration that OCM costs.", compensates),
    Claim(
        "against-fnn",
        "Against FNN, SCBNN-OCM at about 50 % coverage has +25 % accuracy, -20 % ECE, +50 % OOD detection.",
        against_fnn,
    ),
    Claim(
        "bayesian-selectors",
        "At 40 % coverage the Bayesian selective schemes beat SFNN in all three measures.",
        bayesian_selectors,
    ),
    Claim("eta", "Selective calibration is robust to eta, more so for Bayesian schemes.", robust_to_eta),
    Claim("lambda", "CBNN is more sensitive to lambda, yet better than BNN over a wide range.", cbnn_sensitive),
    Claim("gamma", "Results are stable for gamma > 0.1.", stable_gamma),
    Claim(
        "cifar10-accuracy",
        "On CIFAR-10 accuracy hardly changes as lambda grows.",
        accuracy_over_lambda,
        "on CIFAR-10",
    ),
    Claim(
        "cifar10-balance", "On CIFAR-10 CFNN-OCM deteriorates where CBNN-OCM balances.", cbnn_balances, "on CIFAR-10"
    ),
    Claim(
        "cifar10-selective",
        "On CIFAR-10 SCBNN-OCM beats SBNN-OCM in ECE and OOD detection at similar accuracy.",
        selective_beats_cifar10,
        "on CIFAR-10",
    ),
    Claim(
        "cifar10-coverage",
        "On CIFAR-10 at coverage 0.7 accuracy is about 99 %, ECE under 1 %, OOD detection about 1.",
        at_seventy,
        "on CIFAR-10",
    ),
    *OWN_CLAIMS,
)
