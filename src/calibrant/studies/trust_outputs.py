"""What the networks of the study `trust` say of every part of the data: calibrated confidences and detectors' scores.

The validation data is divided once, four fifths for fitting temperature and rules and one fifth for certificates. Of
the OOD test set of the kind of D_u, a quarter (at most 1,000) is for the rules, as much for certificates, and the rest
for testing, for all systems alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.data import ArrayData
from calibrant.data.synthetic import synthesize
from calibrant.detectors import OutlierScores
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.training import Workspace
from calibrant.training.predicting import InOrder, predict
from calibrant.training.randomness import derive
from calibrant.training.training_data import Examples

DETECTORS = ("knn", "energy", "gen")
SYNTHETIC, RULE, CERTIFICATE = "synthetic", "outliers for the rule", "outliers for the certificate"
FITTING, CERTIFYING = "validation", "validation for the certificate"


@dataclass(frozen=True)
class TrustParts:
    """The `examples` by part, the names of the `ood` test sets, and of which `rows` of which set each part consists."""

    examples: dict[str, Examples]
    ood: tuple[str, ...]
    rows: dict[str, tuple[str, Tensor | slice]]

    def of(self, predictions: Mapping[str, Predictions]) -> dict[str, Predictions]:
        """What was predicted of whole sets, by part; not of what was made for this study."""
        return {name: predictions[whole][index] for name, (whole, index) in self.rows.items()}


def trust_parts(workspace: Workspace) -> TrustParts:
    """The parts of the data of `workspace`; disjoint, and the same for every system."""
    data, seed = workspace.data, workspace.settings.seed
    if data.test is None or not data.ood or not isinstance(data.validation, ArrayData):
        raise InputError("the study `trust` needs a test set, OOD sets, and validation data in memory")
    if len(data.ood) < 2:
        raise InputError("the study `trust` needs OOD sets beside the one of the kind of D_u; name some in data.ood")
    order = _shuffled(len(data.validation), derive(seed, "trust", "validation"))
    cut = len(order) * 4 // 5
    kind, outliers = next(iter(data.ood.items()))
    drawn = _shuffled(len(outliers), derive(seed, "trust", "outliers"))
    part = min(1000, len(outliers) // 4)
    rows: dict[str, tuple[str, Tensor | slice]] = {
        FITTING: ("validation", order[:cut]),
        CERTIFYING: ("validation", order[cut:]),
        RULE: (kind, drawn[:part]),
        CERTIFICATE: (kind, drawn[part : 2 * part]),
        "test": ("test", slice(None)),
        **{name: (name, drawn[2 * part :] if name == kind else slice(None)) for name in data.ood},
    }
    whole = {"validation": data.validation, "test": data.test, **data.ood}
    examples = {
        name: whole[of] if isinstance(index, slice) else whole[of].subset(index) for name, (of, index) in rows.items()
    }
    validation = examples[FITTING]
    assert isinstance(validation, ArrayData)
    made = synthesize(validation.inputs, validation.labels, count=min(1000, cut), seed=derive(seed, "trust", "made"))
    return TrustParts({**examples, SYNTHETIC: ArrayData(made)}, tuple(data.ood), rows)


def scored_outputs(workspace: Workspace, parts: TrustParts, scheme: str) -> dict[str, Predictions]:
    """What the network of `scheme` says of every part, with a temperature and the scores of `DETECTORS`."""
    ensemble, settings = workspace.ensemble(scheme), workspace.settings
    train = workspace.data.train
    count = min(len(train), settings.outliers.max_points or len(train))
    chosen = train.subset(_shuffled(len(train), derive(settings.seed, "trust", "reference"))[:count])
    reference = _predict(workspace, ensemble, chosen, f"{scheme} on training data")
    scorer = OutlierScores(DETECTORS).fit(reference.features, reference.logits, reference.labels)
    found, scaling = {}, TemperatureScaling()
    for name, part in parts.examples.items():
        said = _predict(workspace, ensemble, part, f"{scheme} on {name}")
        if name == FITTING:
            scaling.fit(said.logits, said.labels)
        scores = dict(zip(DETECTORS, scorer.score(said.features, said.logits).unbind(1)))
        found[name] = replace(scaled(said, scaling), scores={**scores, "raw_confidence": said.confidence})
    return found


def scaled(said: Predictions, scaling: TemperatureScaling) -> Predictions:
    """`said` with its temperature, without logits and features."""
    return Predictions.from_probabilities(scaling.probabilities(said.logits), said.labels)


def _predict(workspace: Workspace, ensemble: Ensemble, part: Examples, about: str) -> Predictions:
    size, layer = workspace.settings.engine.predict_batch_size, workspace.settings.backbone.feature_layer
    return predict(ensemble, InOrder(part, size), layer, description=about, progress=workspace.progress)


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
