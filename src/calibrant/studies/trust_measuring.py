"""The records of the study `trust`: every system at every coverage, share of outliers and kind of outliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import InputError
from calibrant.config.dependence import key
from calibrant.config.schemes import Scheme
from calibrant.metrics.bins import bin_index
from calibrant.metrics.functional import Array, array, functional_of
from calibrant.metrics.outlier_stream import error_rate, stream_calibration_error, wrong_answers
from calibrant.predictions import Predictions
from calibrant.selective import estimate_share, threshold_for_coverage
from calibrant.studies.jobs import open_workspace
from calibrant.studies.lab import Lab
from calibrant.studies.measuring import entry, resamples
from calibrant.studies.study import trial, within_plan
from calibrant.studies.study_trial import StudyTrial
from calibrant.studies.trust_outputs import FITTING, scored_outputs, trust_parts
from calibrant.studies.trust_systems import Said, TrustSystem, by_selector, trust_systems

COVERAGES, SHARES = (0.5, 0.8, 0.95), (0.0, 0.1, 0.5)
UNSEEN = "unseen kinds"
BESIDE = ("imagenet-resize", "lsun-resize", "noise")  # sets that are reported but count as seen, beside the kind of D_u
SELECTORS = ("SFNN", "SCBNN-OCM")  # of the paper, which need the longest
DRAWN = BASELINE, DEFAULT = "temperature + confidence", "trust"  # what the figures show
POINTS = 250  # inputs of each kind in the figure


def wrong(share: float, kind: str) -> str:
    """The name of the measure: wrong answers among those given, with a share of outliers of the set `kind`."""
    return f"wrong_at_{round(100 * share)}" + (f":{kind}" if share else "")


def stream_ece(share: float, kind: str) -> str:
    """The name of the measure: ECE in the stream, with a share of outliers of the set `kind`."""
    return f"stream_ece_{round(100 * share)}" + (f":{kind}" if share else "")


def measure_systems(lab: Lab, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The content of every record of one seed, by the name of the system."""
    if lab.runs is None:
        raise InputError("the study `trust` needs a run directory")
    workspace = open_workspace(lab.settings.model_dump_json(), seed, lab.runs, None)
    parts = trust_parts(workspace)
    before = scored_outputs(workspace, parts, "FNN")
    after = scored_outputs(workspace, parts, "FNN-OCM")
    systems = dict(trust_systems(before, after))
    for name in within_plan(lab, SELECTORS):
        chosen = _with_lambda(lab, name)
        selection = workspace.with_settings(*chosen.overrides).selection(chosen.scheme)
        systems[name] = by_selector(parts.of(selection.predictions))
    for name, system in systems.items():
        drawn = name in DRAWN and seed == lab.seeds[0]
        stream = Stream(system, parts.ood, lab.plan.resamples, lab.settings.report.bins)
        yield name, {"system": name, **stream.record(drawn=drawn)}


def trust_digest(lab: Lab, seed: int) -> str:
    """What the records of one seed depend on, hashed: networks, the selectors that the plan runs, the resamples."""
    selectors = [_with_lambda(lab, name) for name in within_plan(lab, SELECTORS)]
    trials = [StudyTrial("FNN", seed), StudyTrial("FNN-OCM", seed), *(replace(one, seed=seed) for one in selectors)]
    about = {"resamples": lab.plan.resamples, "points": lab.settings.outliers.max_points, "drawn": lab.plan.drawn}
    return key({"trust": [lab.digest(one) for one in trials], "first": seed == lab.seeds[0], **about})


def _with_lambda(lab: Lab, name: str) -> StudyTrial:
    """The scheme `name` with the lambda that was chosen for it or, in a lab that chooses none, that of the settings."""
    scheme = Scheme.parse(name)
    chosen = not scheme.calibrated or lab.choice_path(str(scheme.base)).exists()
    return trial(lab, name) if chosen else StudyTrial(name, lab.seeds[0])


class Stream:
    """One system in streams of ID test inputs and outliers, measured with its draws."""

    def __init__(self, system: TrustSystem, ood: tuple[str, ...], count: int, bins: int) -> None:
        self.system, self.parts, self.bins = system, system.parts, bins
        self.kinds: dict[str, tuple[str, ...]] = {name: (name,) for name in ood}
        self.unseen = tuple(name for name in ood[1:] if name not in BESIDE)
        self.kinds[UNSEEN] = self.unseen
        self.inside = resamples(len(self.parts["test"]), 0, count)
        self.outside = {n: resamples(len(self.parts[n]), 1 + position, count) for position, n in enumerate(ood)}

    def record(self, *, drawn: bool = True) -> dict[str, Any]:
        """All measures, the shares of outliers that trust estimates and, if it is `drawn`, what the figures show."""
        first = next(iter(self.kinds))
        figures = {"diagram": self._diagram(), "points": self._points(0.8)} if drawn else {}
        return {
            "sizes": {name: len(self.parts[name]) for name in ("test", *self.outside)},
            "unseen": list(self.unseen),
            "at": [self._at(first, coverage) for coverage in COVERAGES] + [self._overall()],
            **figures,
            "estimates": [] if self.system.trust is None else self._estimates(),
        }

    def _at(self, first: str, coverage: float) -> dict[str, Any]:
        """At the threshold of a wanted coverage; `accepted` counts for an assumed share of half."""
        accepted, test = self._accepted("test", 0.0, first, coverage), self.parts["test"]
        measures = {
            "coverage": entry(self.inside @ accepted / self.inside.sum(1)),
            wrong(0, ""): entry(functional_of(error_rate, test.correct).under(self.inside * accepted)),
        }
        for kind, names in self.kinds.items():
            for share in SHARES[1:]:
                own = self._accepted("test", share, kind, coverage)
                others = np.concatenate([self._accepted(name, share, kind, coverage) for name in names])
                measure = functional_of(wrong_answers, test.correct, own, others, share=share)
                measures[wrong(share, kind)] = entry(measure.under(self.inside, self._weights(names)))
        counts = {n: int(self._accepted(n, SHARES[-1], n, coverage).sum()) for n in self.outside}
        return {"wanted": coverage, "accepted": counts, "measures": measures}

    def _overall(self) -> dict[str, Any]:
        """The ECE of all inputs of a stream together."""
        correct, measures = self.parts["test"].correct, {}
        for kind, names in self.kinds.items():
            for share in SHARES if kind == UNSEEN else SHARES[1:]:
                own = self._said("test", share, kind).right
                others = torch.cat([self._said(name, share, kind).right for name in names])
                measure = functional_of(stream_calibration_error, own, correct, others, share=share, bins=self.bins)
                measures[stream_ece(share, kind)] = entry(measure.under(self.inside, self._weights(names)))
        return {"wanted": 1.0, "accepted": {n: len(self.parts[n]) for n in self.outside}, "measures": measures}

    def _weights(self, names: tuple[str, ...]) -> Array:
        """Of the inputs of several kinds, each of which counts the same."""
        return np.concatenate([self.outside[n] / len(self.parts[n]) for n in names], axis=1)

    def _assumed(self, share: float, kind: str) -> float:
        """The share of outliers that the rule assumes in a stream with a true `share` of outliers of `kind`."""
        if self.system.share == "estimated":
            return self._estimate(share, kind)
        return share if self.system.share is None else float(self.system.share)

    def _said(self, part: str, share: float, kind: str) -> Said:
        return self.system.say(self.parts[part], self._assumed(share, kind))

    def _accepted(self, part: str, share: float, kind: str, coverage: float) -> Array:
        """(N,) of 0 and 1."""
        threshold = threshold_for_coverage(self._said(FITTING, share, kind).acceptance, coverage)
        return array(self._said(part, share, kind).acceptance >= threshold.value)

    def _estimate(self, share: float, kind: str) -> float:
        """The share that trust estimates from an unlabeled stream of test inputs and outliers of `kind`."""
        trust = self.system.trust
        assert trust is not None
        stream = [trust.ratio(part.columns(trust.names)) for part in self._stream(share, kind)]
        return float(estimate_share(torch.cat(stream)))

    def _stream(self, share: float, kind: str) -> list[Predictions]:
        """As many test inputs and outliers, of each kind as many, as make up the share."""
        names = self.kinds[kind]
        each = min(len(self.parts[n]) for n in names)
        inside = len(self.parts["test"])
        outliers = min(each * len(names), round(inside * share / (1 - share)))
        inside = min(inside, round(outliers * (1 - share) / share)) if share else inside
        return [self.parts["test"][:inside], *(self.parts[n][: outliers // len(names)] for n in names)]

    def _estimates(self) -> list[dict[str, Any]]:
        return [
            {"stream": kind, "share": share, "estimate": round(self._estimate(share, kind), 4)}
            for kind in self.kinds
            for share in SHARES
        ]

    def _diagram(self) -> dict[str, Any]:
        """The reliability diagram of a stream of which half are unseen outliers; counts are of 10,000 inputs."""
        share, names = SHARES[-1], self.unseen
        inside, right = self._said("test", share, UNSEEN).right, self.parts["test"].correct
        levels = [inside, *(self._said(name, share, UNSEEN).right for name in names)]
        mass = [(1 - share) / len(inside)] + [share / len(names) / len(part) for part in levels[1:]]
        weights = np.concatenate([np.full(len(part), one) for part, one in zip(levels, mass)])
        level = torch.cat(levels)
        correct = np.concatenate([array(right), np.zeros(len(level) - len(inside))])
        place = bin_index(level, self.bins).cpu().numpy()
        total, sure, good = (np.bincount(place, weights * v, self.bins) for v in (1.0, array(level), correct))
        with np.errstate(invalid="ignore"):
            shown = {"confidence": sure / total, "accuracy": good / total}
        numbers = {k: [None if not np.isfinite(x) else round(float(x), 5) for x in v] for k, v in shown.items()}
        return {"count": np.rint(1e4 * total).astype(int).tolist(), **numbers, "right": round(float(good.sum()), 5)}

    def _points(self, coverage: float) -> dict[str, Any]:
        """Confidence, detector score and whether accepted, of some inputs of each kind, with half outliers assumed."""
        test, share = self.parts["test"], SHARES[-1]
        chosen = {"right": test.correct.nonzero()[:, 0], "wrong": (~test.correct).nonzero()[:, 0]}
        found = {name: ("test", index[:POINTS]) for name, index in chosen.items()}
        found |= {name: (name, torch.arange(min(POINTS, len(self.parts[name])))) for name in self.unseen}
        return {name: self._sample(part, index, share, coverage) for name, (part, index) in found.items()}

    def _sample(self, part: str, index: Tensor, share: float, coverage: float) -> dict[str, Any]:
        said, accepted = self.parts[part], self._accepted(part, share, UNSEEN, coverage)
        columns: Mapping[str, Any] = {"confidence": said.confidence[index]}
        if "knn" in said.scores:
            columns = {**columns, "score": said.scores["knn"][index]}
        numbers = {name: [round(float(x), 4) for x in value] for name, value in columns.items()}
        return {**numbers, "accepted": [int(accepted[i]) for i in index]}
