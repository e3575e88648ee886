"""What predictions of each family of posteriors cost in forward passes of one network.

The networks and members of the study `posteriors` on profile `micro`, trained on next to nothing and on random images,
because what predictions cost depends on neither. Processor time on one thread, in turns, the least of the rounds.
"""

from __future__ import annotations

import time

import torch

from calibrant.config.loading import load_settings
from calibrant.data import ArrayData
from calibrant.studies.plan import load_plan
from calibrant.training import TrainingData, Workspace
from calibrant.training.predicting import InOrder, predict

IMAGES, FEW, ROUNDS, REFERENCE = 1024, 64, 4, "deterministic"


def main() -> None:
    """Print seconds, and the ratio to one network, by family."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.rand(IMAGES, 3, 16, 16, generator=generator), torch.arange(IMAGES) % 10
    classes = tuple(map(str, range(10)))
    whole, few = ArrayData(images, labels, classes), ArrayData(images[:FEW], labels[:FEW], classes)
    settings, ensembles = load_settings("micro"), {}
    for name, changes in load_plan("micro").posteriors.systems.items():
        own = settings.with_(*changes, "fit.epochs=1", "fit.validate_every=0")
        ensembles[name] = Workspace(TrainingData(few, few), own, progress=False).ensemble("BNN")
    least = dict.fromkeys(ensembles, float("inf"))
    for _ in range(ROUNDS):
        for name, ensemble in ensembles.items():
            begun = time.process_time()
            predict(ensemble, InOrder(whole, settings.engine.predict_batch_size))
            least[name] = min(least[name], time.process_time() - begun)
    for name, seconds in least.items():
        print(
            f"{name:24} {len(ensembles[name])} members  {seconds:.3f} s  {seconds / least[REFERENCE]:.2f}", flush=True
        )


if __name__ == "__main__":
    main()
