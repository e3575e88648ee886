"""What it does to a selector if its validation data was trained on, as in the published code of the paper.

    python -m benchmarks.leaked_validation --data /data --weights cifar10_resnet20-12fca82f.th

The network was trained on all training images of CIFAR-10 by somebody else, so that each of them has leaked. A selector
is fitted to 5,000 images, of which none, nine tenths (the published code) or all are training images and the others
test images; the other half of the test images and LSUN (resized) say what it accepts. The last row is a threshold on
the confidence after temperature scaling, without a leak. Five divisions of the images: mean and standard deviation over
them. --data is the folder with CIFAR-10 and LSUN_resize, --weights the ResNet-20 of akamaster/pytorch_resnet_cifar10.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.outlier_cases import pretrained
from calibrant import Ensemble, Predictions
from calibrant.calibrators import TemperatureScaling
from calibrant.detectors import OutlierScores
from calibrant.metrics import expected_calibration_error
from calibrant.selective import Selector, Training

SIZE, REFERENCES, COVERAGES = 5000, 4000, (0.5, 0.8)
SCORES = ("density", "forest", "svm", "neighbors")


def scores_of(predictions: Predictions) -> Tensor:
    return torch.stack([torch.as_tensor(predictions.scores[name]) for name in SCORES], 1)


def part(predictions: Predictions, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence, scores and correctness of some rows."""
    correct = torch.as_tensor(predictions.predicted == predictions.labels)
    return torch.as_tensor(predictions.confidence)[rows], scores_of(predictions)[rows], correct[rows]


def accepted(ranking: Tensor, outliers: Tensor, confidence: Tensor, correct: Tensor) -> Iterator[float]:
    """Right answers, ECE and accepted outliers at each coverage; test data set the threshold, as in the code."""
    for coverage in COVERAGES:
        threshold = ranking.quantile(1 - coverage)
        kept = ranking >= threshold
        yield float(correct[kept].float().mean())
        yield float(expected_calibration_error(confidence[kept], correct[kept]))
        yield float((outliers >= threshold).float().mean())


def measures(
    trained: Predictions, tested: Predictions, outliers: Predictions, seed: int
) -> Iterator[tuple[str, list[float]]]:
    """What each rule does with half of the test images, and with outliers."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(tested), generator=generator)
    held, test = part(tested, order[:SIZE]), part(tested, order[SIZE:])
    leaked = part(trained, torch.randperm(len(trained), generator=generator)[:SIZE])
    for share in (0.0, 0.9, 1.0):
        count = round(share * SIZE)
        validation = [torch.cat([seen[:count], unseen[: SIZE - count]]) for seen, unseen in zip(leaked, held)]
        selector = Selector(eta=0.01, width=0.2, group=32, seed=seed, training=Training()).fit(*validation)
        ranking = selector.ranking(*test[:2])
        answered = selector.ranking(torch.as_tensor(outliers.confidence), scores_of(outliers))
        achieved = float((ranking >= selector.threshold(coverage=COVERAGES[0]).value).float().mean())
        right = float(validation[2].float().mean())
        yield f"{100 * share:g} %", [right, achieved, *accepted(ranking, answered, test[0], test[2])]
    temperature = TemperatureScaling().fit(tested.logits[:, order[:SIZE]], tested.labels[order[:SIZE]])
    scaled, confidence = (torch.as_tensor(temperature.calibrate(each).confidence) for each in (outliers, tested))
    validation_threshold = confidence[order[:SIZE]].quantile(1 - COVERAGES[0])
    confidence = confidence[order[SIZE:]]
    achieved = float((confidence >= validation_threshold).float().mean())
    right = float(held[2].float().mean())
    yield "temperature + confidence", [right, achieved, *accepted(confidence, scaled, confidence, test[2])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--seeds", type=int, default=5, help="divisions of the images, at least 2")
    chosen = parser.parse_args()
    if chosen.seeds < 2:
        parser.error("--seeds must be at least 2, because the standard deviation over them is printed")
    network, parts = pretrained(chosen.data, chosen.weights)

    def predict(*tensors: Tensor) -> Predictions:
        return Ensemble.of(network).predict(DataLoader(TensorDataset(*tensors), batch_size=250))

    drawn = torch.randperm(len(parts.train), generator=torch.Generator().manual_seed(0))
    references, seen = (parts.train.take(rows) for rows in drawn[: REFERENCES + 3 * SIZE].split([REFERENCES, 3 * SIZE]))
    both = [half.take(torch.arange(len(half))) for half in (parts.validation, parts.test)]
    unseen = tuple(torch.cat(pair) for pair in zip(*both))
    outliers = parts.uncertainty.take(torch.arange(4000))[0]
    scores = OutlierScores(SCORES).fit(predict(*references))
    predictions = [predict(*data).with_scores(scores) for data in (seen, unseen, (outliers,))]
    rows: dict[str, list[list[float]]] = {}
    for seed in range(chosen.seeds):
        for name, values in measures(*predictions, seed):
            rows.setdefault(name, []).append(values)
    at = " | ".join(f"right at {100 * coverage:g} % | ECE | LSUN accepted" for coverage in COVERAGES)
    print(f"| leaked | right in D_val | coverage by its threshold | {at} |\n|{9 * '---|'}")
    for name, by_seed in rows.items():
        spread = 100 * torch.tensor(by_seed, dtype=torch.float64)
        cells = [f"{mean:.1f} ± {std:.1f}" for mean, std in zip(spread.mean(0), spread.std(0))]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
