"""Which synthetic outliers stand in best for real ones.

    python -m benchmarks.synthetic_outliers --data /data --weights cifar10_resnet20-12fca82f.th

For each network, the likelihood ratio outlier / ID is fitted by a logistic regression with nonnegative coefficients on
three detectors (k-NN distance of L2-normalized features, energy, GEN): validation data against each mixture of
synthetic outliers and, for comparison, against real outliers of all kinds but the one that is tested. No CIFAR-100,
Fashion-MNIST or letters, on which the study `trust` tests the chosen mixture, and none of its test images take part.
--data is the folder with CIFAR-10, LSUN_resize, Imagenet_resize and clinc150, --weights the ResNet-20 of
akamaster/pytorch_resnet_cifar10; without them, only what needs no download is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn import functional as F

from benchmarks.outlier_cases import Case, cifar10, cifar10_classes, clinc150, digits_images, table
from calibrant.data.synthetic import kind_of, synthesize
from calibrant.slots import lookup, names

COVERAGE, NEIGHBORS, GAMMA, PENALTY = 0.8, 10, 0.1, 1e-3


@torch.inference_mode()
def outputs(case: Case, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and features on the unit sphere."""
    logits, features = zip(*(case.network(batch) for batch in inputs.split(250)))
    return torch.cat(logits), F.normalize(torch.cat(features), dim=1)


def detectors(logits: Tensor, features: Tensor, neighbors: NearestNeighbors) -> np.ndarray:
    p = logits.softmax(1).double()
    gen = (p * (1 - p)).clamp(min=1e-12).pow(GAMMA).sum(1)
    return np.stack([neighbors.kneighbors(features.numpy())[0][:, -1], -logits.logsumexp(1).numpy(), gen.numpy()], 1)


def fit_ratio(inside: np.ndarray, outside: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Scores -> log of the likelihood ratio outlier / ID, coefficients nonnegative, both sides of equal weight."""
    center, scale = inside.mean(0), inside.std(0) + 1e-9

    def loss(w: np.ndarray) -> float:
        sides = [((side - center) / scale) @ w[1:] + w[0] for side in (inside, outside)]
        return float(
            np.logaddexp(0, sides[0]).mean() + np.logaddexp(0, -sides[1]).mean() + PENALTY * (w[1:] ** 2).sum()
        )

    w = minimize(loss, np.full(4, 0.1), bounds=[(None, None)] + [(0, None)] * 3, method="L-BFGS-B").x
    return lambda scores: ((scores - center) / scale) @ w[1:] + w[0]


def candidates(case: Case) -> Iterator[tuple[str, tuple[str, ...]]]:
    suited = [name for name in names("synthesizer") if lookup("synthesizer", name).kind == kind_of(case.test[0])]
    for size in range(1, len(suited) + 1):
        yield from ((" + ".join(mixture), mixture) for mixture in combinations(suited, size))


def measure(case: Case, seed: int) -> Iterator[tuple[str, str, float, float, float]]:
    """(mixture, kind of outliers, mean log-likelihood, AUROC, wrong answers at coverage 0.8 with half outliers)."""
    neighbors = NearestNeighbors(n_neighbors=NEIGHBORS).fit(outputs(case, case.train)[1].numpy())
    logits, features = outputs(case, case.validation[0])
    nll = lambda t: float(F.cross_entropy(logits / t, case.validation[1]))  # noqa: E731
    temperature = minimize_scalar(nll, bounds=(0.2, 10), method="bounded").x
    inside = detectors(logits, features, neighbors)
    test_logits, test_features = outputs(case, case.test[0])
    test, right = detectors(test_logits, test_features, neighbors), test_logits.argmax(1).eq(case.test[1]).numpy()
    real = {kind: outputs(case, inputs) for kind, inputs in case.outliers.items()}
    scores = {kind: detectors(*found, neighbors) for kind, found in real.items()}
    confidence = lambda z: (z / temperature).softmax(1).amax(1).numpy()  # noqa: E731
    ratios: dict[str, Any] = {"none: temperature scaling": None}
    for name, mixture in candidates(case):
        made = synthesize(*case.validation, kinds=mixture, count=max(len(inside), 300), seed=seed)
        ratios[name] = fit_ratio(inside, detectors(*outputs(case, made), neighbors))
    for kind, outside in scores.items():
        others = [found[:500] for other, found in scores.items() if other != kind]
        real_ratio = {"real outliers of the other kinds": fit_ratio(inside, np.concatenate(others))} if others else {}
        for name, ratio in (ratios | real_ratio).items():
            log_in, log_out = (np.zeros(len(s)) if ratio is None else ratio(s) for s in (test, outside))
            likelihood = -(np.logaddexp(0, log_in).mean() + np.logaddexp(0, -log_out).mean()) / 2
            trust_in, trust_out = (
                confidence(z) / (1 + np.exp(r)) for z, r in ((test_logits, log_in), (real[kind][0], log_out))
            )
            auroc = roc_auc_score([0] * len(test) + [1] * len(outside), -np.concatenate([trust_in, trust_out]))
            threshold = np.quantile(trust_in, 1 - COVERAGE)
            answered, outlying = trust_in >= threshold, (trust_out >= threshold).mean()
            wrong = (answered & ~right).mean() + outlying
            yield name, kind, likelihood, float(auroc), wrong / (answered.mean() + outlying)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the published image sets")
    parser.add_argument("--weights", help="checkpoint of the ResNet-20")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    makers: list[Callable[[int], Case]] = [lambda seed: digits_images([seed, seed + 3, seed + 6])]
    makers.append(lambda seed: table("digits as a table, MLP", load_digits(), [seed, seed + 3, seed + 6]))
    makers.append(lambda seed: table("wine, MLP", load_wine(), [seed % 3]))
    if chosen.data:
        makers += [lambda _, width=width: clinc150(Path(chosen.data) / "clinc150", width) for width in (3, 1)]
        makers.append(lambda _: cifar10_classes(chosen.data))
    if chosen.data and chosen.weights:
        makers.append(lambda _: cifar10(chosen.data, chosen.weights))
    averages: dict[str, dict[str, list[float]]] = {}
    for make in makers:
        rows: dict[str, list[tuple[str, float, float, float]]] = {}
        for seed in range(chosen.seeds):
            torch.manual_seed(seed)
            case = make(seed)
            for name, *numbers in measure(case, seed):
                rows.setdefault(name, []).append(tuple(numbers))  # type: ignore[arg-type]
        kinds = list(dict.fromkeys(row[0] for found in rows.values() for row in found))
        print(f"\n{case.name}\n\n| fitted to | log-likelihood | AUROC | wrong answers | {' | '.join(kinds)} |")
        print("|---|" + "---|" * (3 + len(kinds)))
        for name, found in rows.items():
            means = np.mean([row[1:] for row in found], 0)
            averages.setdefault(str(kind_of(case.test[0])), {}).setdefault(name, []).append(means[0])
            each = [100 * np.mean([row[3] for row in found if row[0] == kind]) for kind in kinds]
            cells = [f"{means[0]:.3f}", f"{means[1]:.3f}", f"{100 * means[2]:.1f}", *(f"{value:.1f}" for value in each)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for kind, found in averages.items():
        print(f"\n{kind}: log-likelihood, mean over networks\n")
        for name, values in sorted(found.items(), key=lambda item: -np.mean(item[1])):
            print(f"    {np.mean(values):.4f}  {name}")


if __name__ == "__main__":
    main()
