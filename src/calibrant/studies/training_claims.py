"""What the paper claims of training: BNN, calibration regularization, confidence minimization and their weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from calibrant.studies.binned_estimates import overconfidence, share_above
from calibrant.studies.estimates import Estimate
from calibrant.studies.findings import HARDLY, NEARLY_ONE, Finding, between, named, spread, value
from calibrant.studies.lab import Lab
from calibrant.studies.pareto_study import FAMILIES, sweep
from calibrant.studies.plan import BASES
from calibrant.studies.study import first_ood, selective, trial, within_plan
from calibrant.studies.tradeoff_study import point


def _families(lab: Lab) -> list[tuple[str, str]]:
    """Schemes without and with the regularizer, where the plan runs both."""
    return [pair for pair in FAMILIES if len(within_plan(lab, pair)) == 2]


def fnn_overconfident(lab: Lab) -> Iterator[Finding]:
    """FNN is more confident than right."""
    yield Finding("mean confidence less accuracy, FNN", overconfidence(lab, trial(lab, "FNN")), low=0)


def bnn_ece(lab: Lab) -> Iterator[Finding]:
    """BNN has lower ECE."""
    yield Finding("ECE, FNN less BNN", between(lab, "FNN", "BNN", "ece"), low=0)


def cbnn_ece(lab: Lab) -> Iterator[Finding]:
    """CBNN has lower ECE than CFNN."""
    yield Finding("ECE, CFNN less CBNN", between(lab, "CFNN", "CBNN", "ece"), low=0)


def _reduction(lab: Lab, calibrated: str, plain: str, least: float) -> Finding:
    ratio = value(lab, trial(lab, calibrated), "ece") / value(lab, trial(lab, plain), "ece")
    return Finding(f"reduction of ECE, {plain} to {calibrated}", 1.0 - ratio, low=least, unit="%")


def lower_ece_f(lab: Lab) -> Iterator[Finding]:
    """Regularization lowers ECE by 20 %."""
    yield _reduction(lab, "CFNN", "FNN", 0.2)


def lower_ece_b(lab: Lab) -> Iterator[Finding]:
    """Regularization lowers ECE by 50 %."""
    yield _reduction(lab, "CBNN", "BNN", 0.5)


def acceptable_drop(lab: Lab) -> Iterator[Finding]:
    """With the chosen lambda the ECE is lower, and the accuracy by no more than the rule allows on validation data."""
    for plain, calibrated in _families(lab):
        if lab.chosen(calibrated):
            yield Finding(f"ECE, {calibrated} less {plain}", between(lab, calibrated, plain, "ece"), high=0)
            drop, most = between(lab, plain, calibrated, "accuracy"), lab.settings.calibration.max_accuracy_drop
            yield Finding(f"accuracy, {plain} less {calibrated}", drop, high=most)


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


def ocm_gains(lab: Lab) -> Iterator[Finding]:
    """OCM raises OOD detection, with and without the regularizer."""
    for base in within_plan(lab, BASES):
        gain = between(lab, f"{base}-OCM", base, "detection")
        yield Finding(f"OOD detection, {base}-OCM less {base}", gain, low=0)


def ocm_lowers_confidence(lab: Lab) -> Iterator[Finding]:
    """With OCM fewer outliers, and fewer than half of them, have a confidence in the upper half of its bins."""
    first = lab.settings.report.bins // 2
    for base in within_plan(lab, BASES):
        tuned, plain = trial(lab, f"{base}-OCM"), trial(lab, base)
        ood = first_ood(lab, plain)
        share = share_above(lab, tuned, ood, first)
        about = f"outliers with a confidence above {100 * first / lab.settings.report.bins:.0f} %, {base}-OCM"
        yield Finding(about, share, high=0.5, unit="%")
        yield Finding(f"{about} less {base}", share - share_above(lab, plain, ood, first), high=0)


def ocm_beats_scores(lab: Lab) -> Iterator[Finding]:
    """The confidence of FNN-OCM tells outliers apart better than MaxLogit and Energy of FNN do.

    Nothing where the records keep no draws of scores (`study.drawn`).
    """
    ood = first_ood(lab, trial(lab, "FNN"))
    tuned = value(lab, trial(lab, "FNN-OCM"), f"auroc:{ood}")
    for score, label in (("max_logit", "MaxLogit"), ("energy", "Energy")):
        other = lab.score_estimate(selective(trial(lab, "FNN")), score, f"auroc:{ood}")
        if other.draws.shape == tuned.draws.shape:
            yield Finding(f"AUROC, confidence of FNN-OCM less {label} of FNN", tuned - other, low=0)


def ocm_costs(lab: Lab) -> Iterator[Finding]:
    """OCM costs ID calibration."""
    for base in within_plan(lab, BASES):
        yield Finding(f"ECE, {base}-OCM less {base}", between(lab, f"{base}-OCM", base, "ece"), low=0)


def ocm_conservative(lab: Lab) -> Iterator[Finding]:
    """After OCM networks are less confident than right."""
    for base in within_plan(lab, BASES):
        found = overconfidence(lab, trial(lab, f"{base}-OCM"))
        yield Finding(f"mean confidence less accuracy, {base}-OCM", found, high=0)


def accuracy_at_level(lab: Lab) -> Iterator[Finding]:
    """At any level of OOD detection BNN-OCM is more accurate than FNN-OCM: at three, between points of the grid."""
    for place in (0.25, 0.5, 0.75):
        for what, difference in _at_level(lab, "BNN-OCM", "FNN-OCM", ("accuracy",), place):
            yield Finding(what, difference, low=0)


def regularizer_at_level(lab: Lab) -> Iterator[Finding]:
    """At one level of OOD detection the regularizer lowers the ECE and the accuracy of OCM schemes."""
    for plain, calibrated in _families(lab):
        for what, difference in _at_level(lab, f"{calibrated}-OCM", f"{plain}-OCM", ("accuracy", "ece")):
            yield Finding(what, difference, high=0)


def _at_level(
    lab: Lab, first: str, second: str, measures: Sequence[str], place: float = 0.5
) -> Iterator[tuple[str, Estimate]]:
    """`measures` of one scheme less those of another at one `place`, 0 to 1, in the OOD detection that both reach.

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
    level = low + place * (high - low)
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
    """OCM costs CFNN accuracy and ECE, and more of them than CBNN."""
    for measure in ("accuracy", "ece"):
        change = {s: between(lab, f"{s}-OCM", s, measure) for s in ("CFNN", "CBNN")}
        loss = change if measure == "ece" else {s: -one for s, one in change.items()}
        yield Finding(f"loss of {named(measure)} by OCM, CFNN", loss["CFNN"], low=0)
        yield Finding(f"loss of {named(measure)} by OCM, CFNN less CBNN", loss["CFNN"] - loss["CBNN"], low=0)
