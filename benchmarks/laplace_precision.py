"""Prior precisions of the Laplace approximation, compared on validation data; no test data is looked at.

    python -m benchmarks.laplace_precision --profile micro --data /data --runs runs/micro

Trains the network of `--profile` as FNN is, unless it is in `--runs` already, fits the last layer's Gaussian with each
precision, and prints accuracy, cross-entropy and ECE of the members on the validation data.
"""

from __future__ import annotations

import argparse
import copy

import torch

from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.metrics import expected_calibration_error, negative_log_likelihood
from calibrant.posteriors import Laplace
from calibrant.posteriors.ensemble import Ensemble
from calibrant.training import Workspace, open_data
from calibrant.training.passes import training_examples
from calibrant.training.predicting import InOrder, predict

PRECISIONS = (None, 1.0, 10.0, 100.0, 1000.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="micro")
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", default="runs/laplace-precision")
    parser.add_argument("--members", type=int, default=5)
    chosen = parser.parse_args()
    settings = load_settings(chosen.profile, overrides=[f"data.root={chosen.data}", "posterior.family=deterministic"])
    space = Workspace(open_data(settings.data, settings.seed), settings, chosen.runs)
    network = space.model("BNN").get_submodule("module")
    print("| prior precision | accuracy | cross-entropy | ECE |\n|---|---|---|---|")
    _print_row(space, "the network itself", Ensemble.of(network))
    for precision in PRECISIONS:
        posterior = Laplace(copy.deepcopy(network), prior_precision=precision)
        posterior.finish(training_examples(space.data, Scheme.parse("BNN"), settings, torch.device("cpu")))
        name = f"{precision:g}" if precision else f"marginal likelihood: {float(posterior.precision):.3g}"
        _print_row(space, name, posterior.sample(chosen.members))


def _print_row(space: Workspace, name: str, ensemble: Ensemble) -> None:
    said = predict(ensemble, InOrder(space.data.validation, space.settings.engine.predict_batch_size))
    loss = negative_log_likelihood(said.probabilities, said.labels)
    error = expected_calibration_error(said.confidence, said.correct)
    print(f"| {name} | {100 * said.correct.float().mean():.2f} | {loss:.4f} | {100 * error:.2f} |", flush=True)


if __name__ == "__main__":
    main()
