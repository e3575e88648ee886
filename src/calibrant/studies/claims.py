"""The paper's claims as data, each with the numbers that decide it; and two questions that the paper leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from calibrant.studies import coverage_study, eta_study
from calibrant.studies.estimates import Estimate
from calibrant.studies.findings import Claim, Finding, between, mean_of, spread, value
from calibrant.studies.lab import Lab
from calibrant.studies.pareto_study import FAMILIES, sweep
from calibrant.studies.study import BASES, temperature, trial
from calibrant.studies.tradeoff_study import point

NEARLY_ONE, HARDLY = 0.95, 0.02  # what "nearly 1" and "hardly changes", "stable", "robust" are taken to mean


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
    for plain, calibrated in FAMILIES:
        gain = between(lab, calibrated, plain, "detection")
        yield Finding(f"OOD detection, {calibrated} less {plain}", gain, high=0.01)


def ocm_nearly_one(lab: Lab) -> Iterator[Finding]:
    """OCM raises OOD detection to nearly 1."""
    for base in BASES:
        found = value(lab, trial(lab, f"{base}-OCM"), "detection")
        yield Finding(f"OOD detection, {base}-OCM", found, low=NEARLY_ONE, unit="%")


def ocm_costs(lab: Lab) -> Iterator[Finding]:
    """OCM costs ID calibration."""
    for base in BASES:
        yield Finding(f"ECE, {base}-OCM less {base}", between(lab, f"{base}-OCM", base, "ece"), low=0)


def accuracy_at_level(lab: Lab) -> Iterator[Finding]:
    """At one level of OOD detection BNN-OCM is more accurate than FNN-OCM: between the points of the gamma sweep."""
    sweeps = {s: [point(lab, s, gamma) for gamma in lab.plan.gammas] for s in ("FNN-OCM", "BNN-OCM")}
    detection = {s: [value(lab, one, "detection") for one in trials] for s, trials in sweeps.items()}
    accuracy = {s: [value(lab, one, "accuracy") for one in trials] for s, trials in sweeps.items()}
    ranges = [(min(d.value for d in found), max(d.value for d in found)) for found in detection.values()]
    level = (max(low for low, _ in ranges) + min(high for _, high in ranges)) / 2
    at = {s: _interpolated(detection[s], accuracy[s], level) for s in sweeps}
    what = f"accuracy at OOD detection {100 * level:.1f} %, BNN-OCM less FNN-OCM"
    yield Finding(what, at["BNN-OCM"] - at["FNN-OCM"], low=0)


def _interpolated(x: Sequence[Estimate], y: Sequence[Estimate], at: float) -> Estimate:
    def one(xs: Sequence[float], ys: Sequence[float]) -> float:
        order = np.argsort(xs, kind="stable")
        return float(np.interp(at, np.array(xs)[order], np.array(ys)[order]))

    draws = [one([e.draws[b] for e in x], [e.draws[b] for e in y]) for b in range(len(x[0].draws))]
    return Estimate(one([e.value for e in x], [e.value for e in y]), np.array(draws))


def _better(what: str, gain: Estimate, measure: str) -> Finding:
    """The claim that a system is better in `measure` by `gain`: of the ECE, less is better."""
    return Finding(what, gain, high=0) if measure == "ece" else Finding(what, gain, low=0)


def selective_beats(lab: Lab) -> Iterator[Finding]:
    """Below half coverage SCBNN-OCM beats SBNN-OCM in accuracy, ECE and OOD detection: means over these coverages."""
    systems = coverage_study.systems(lab)
    ours, other = systems["SCBNN-OCM"], systems["SBNN-OCM"]
    low = [c for c in lab.plan.coverages if c < 0.5]
    for measure in ("accuracy", "ece", "detection"):
        mean = mean_of([value(lab, ours, measure, c) - value(lab, other, measure, c) for c in low])
        yield _better(f"{measure}, SCBNN-OCM less SBNN-OCM, mean over coverages below 50 %", mean, measure)


def against_fnn(lab: Lab) -> Iterator[Finding]:
    """At half coverage against FNN: +25 % accuracy, -20 % ECE, +50 % OOD detection, as ratios (points beside them)."""
    ours, fnn = coverage_study.systems(lab)["SCBNN-OCM"], trial(lab, "FNN")
    for measure, claimed in (("accuracy", 0.25), ("ece", -0.2), ("detection", 0.5)):
        new, old = value(lab, ours, measure, 0.5), value(lab, fnn, measure)
        change, points = new / old - 1.0, 100 * (new.value - old.value)
        beside = f" ({points:+.1f} points)" if math.isfinite(points) else ""
        what = f"change of {measure}, SCBNN-OCM at 50 % coverage against FNN{beside}"
        low, high = (claimed, math.inf) if claimed > 0 else (-math.inf, claimed)
        yield Finding(what, change, low, high, "%")


def robust_to_eta(lab: Lab) -> Iterator[Finding]:
    """Over eta the ECE of the Bayesian selective schemes varies little, and less than that of SFNN."""
    spreads = {
        scheme: spread(
            [value(lab, eta_study.point(lab, scheme, e), "ece", lab.plan.eta_coverage) for e in lab.plan.etas]
        )
        for scheme in coverage_study.PAPER
    }
    for scheme in ("SBNN-OCM", "SCBNN-OCM"):
        yield Finding(f"spread of ECE over eta, {scheme}", spreads[scheme], high=HARDLY)
        yield Finding(f"spread of ECE over eta, SFNN less {scheme}", spreads["SFNN"] - spreads[scheme], low=0)


def bnn_better(lab: Lab) -> Iterator[Finding]:
    """BNN is slightly more accurate and better at OOD than FNN."""
    for measure in ("accuracy", "detection"):
        yield Finding(f"{measure}, BNN less FNN", between(lab, "BNN", "FNN", measure), low=0)


def cbnn_sensitive(lab: Lab) -> Iterator[Finding]:
    """ECE varies more over lambda for CBNN than for CFNN, yet lies below that of BNN for most lambdas."""
    ece = {s: [value(lab, one, "ece") for one in sweep(lab, plain, s)[1:]] for plain, s in FAMILIES}
    difference = spread(ece["CBNN"]) - spread(ece["CFNN"])
    yield Finding("spread of ECE over lambda, CBNN less CFNN", difference, low=0)
    plain = value(lab, trial(lab, "BNN"), "ece")
    share = Estimate(
        float(np.mean([one.value < plain.value for one in ece["CBNN"]])),
        np.mean([one.draws < plain.draws for one in ece["CBNN"]], axis=0),
    )
    yield Finding("share of lambdas with ECE of CBNN below BNN", share, low=0.5, unit="%")


def stable_gamma(lab: Lab) -> Iterator[Finding]:
    """For gamma > 0.1 ECE, accuracy and OOD detection hardly change; one gamma alone says nothing about it."""
    gammas = [gamma for gamma in lab.plan.gammas if gamma > 0.1]
    if len(gammas) < 2:
        return
    for base in BASES:
        for measure in ("ece", "accuracy", "detection"):
            values = [value(lab, point(lab, f"{base}-OCM", gamma), measure) for gamma in gammas]
            yield Finding(f"spread of {measure} over gamma > 0.1, {base}-OCM", spread(values), high=HARDLY)


def accuracy_over_lambda(lab: Lab) -> Iterator[Finding]:
    """Accuracy hardly changes as lambda grows."""
    for plain, calibrated in FAMILIES:
        accuracies = [value(lab, one, "accuracy") for one in sweep(lab, plain, calibrated)]
        yield Finding(f"spread of accuracy over lambda, {calibrated}", spread(accuracies), high=HARDLY)


def cbnn_balances(lab: Lab) -> Iterator[Finding]:
    """OCM costs CFNN more accuracy and ECE than CBNN."""
    for measure, sign in (("accuracy", -1.0), ("ece", 1.0)):
        loss = {s: between(lab, f"{s}-OCM", s, measure) for s in ("CFNN", "CBNN")}
        worse = loss["CFNN"] - loss["CBNN"]
        what = f"loss of {measure} by OCM, CFNN less CBNN"
        yield Finding(what, worse if sign > 0 else -worse, low=0)


def at_seventy(lab: Lab) -> Iterator[Finding]:
    """At coverage 0.7 SCBNN-OCM reaches accuracy about 99 %, ECE under 1 %, OOD detection about 1."""
    one = coverage_study.systems(lab)["SCBNN-OCM"]
    bounds = {"accuracy": (0.98, math.inf), "ece": (-math.inf, 0.01), "detection": (NEARLY_ONE, math.inf)}
    for measure, (low, high) in bounds.items():
        yield Finding(f"{measure}, SCBNN-OCM at 70 % coverage", value(lab, one, measure, 0.7), low, high, "%")


def unseen_sets(lab: Lab) -> Iterator[Finding]:
    """OOD detection of the sets that training never saw rises with OCM."""
    for base in ("FNN", "CBNN"):
        tuned, plain = trial(lab, f"{base}-OCM"), trial(lab, base)
        for ood in lab.ood_sets(plain)[1:]:
            gain = lab.estimate(tuned, f"detection:{ood}") - lab.estimate(plain, f"detection:{ood}")
            yield Finding(f"OOD detection of {ood}, {base}-OCM less {base}", gain, low=0)


def beats_baselines(lab: Lab) -> Iterator[Finding]:
    """At half coverage SCBNN-OCM beats a temperature and a threshold on the confidence, on FNN and on CBNN-OCM."""
    ours = coverage_study.systems(lab)["SCBNN-OCM"]
    for scheme in ("FNN", "CBNN-OCM"):
        other = temperature(trial(lab, scheme))
        for measure in ("accuracy", "ece", "system_rate"):
            gain = value(lab, ours, measure, 0.5) - value(lab, other, measure, 0.5)
            yield _better(f"{measure} at 50 %, SCBNN-OCM less {scheme} + temperature + confidence", gain, measure)


CLAIMS = (
    Claim("bnn-ece", "BNN has lower ECE than FNN.", bnn_ece),
    Claim("bnn-better", "BNN is slightly more accurate and better at OOD detection than FNN.", bnn_better),
    Claim("ece-frequentist", "Calibration regularization lowers ECE by over 20 % (frequentist).", lower_ece_f),
    Claim("ece-bayesian", "Calibration regularization lowers ECE by 50 % (Bayesian).", lower_ece_b),
    Claim("no-ood-help", "Calibration regularization does not help OOD detection.", no_ood_help),
    Claim("ocm", "OCM raises the OOD detection probability to nearly 1, for all schemes.", ocm_nearly_one),
    Claim("ocm-costs", "OCM costs ID calibration.", ocm_costs),
    Claim("accuracy-at-level", "For a given OOD detection level BNN-OCM is more accurate.", accuracy_at_level),
    Claim("selective", "Below 50 % coverage SCBNN-OCM beats SBNN-OCM in all three measures.", selective_beats),
    Claim(
        "against-fnn",
        "Against FNN, SCBNN-OCM at about 50 % coverage has +25 % accuracy, -20 % ECE, +50 % OOD detection.",
        against_fnn,
    ),
    Claim("eta", "Selective calibration is robust to eta, more so for Bayesian schemes.", robust_to_eta),
    Claim("lambda", "CBNN is more sensitive to lambda, yet better than BNN over a wide range.", cbnn_sensitive),
    Claim("gamma", "Results are stable for gamma > 0.1.", stable_gamma),
    Claim("cifar10-accuracy", "On CIFAR-10 accuracy hardly changes as lambda grows.", accuracy_over_lambda, True),
    Claim("cifar10-balance", "On CIFAR-10 CFNN-OCM deteriorates where CBNN-OCM balances.", cbnn_balances, True),
    Claim(
        "cifar10-coverage",
        "On CIFAR-10 at coverage 0.7 accuracy is about 99 %, ECE under 1 %, OOD detection about 1.",
        at_seventy,
        True,
    ),
    Claim("unseen", "Open: does the OOD gain carry over to OOD sets that training never saw?", unseen_sets),
    Claim(
        "baselines",
        "Open: does SCBNN-OCM beat temperature scaling plus confidence thresholding at equal coverage?",
        beats_baselines,
    ),
)
