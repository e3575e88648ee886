"""The table of docs/posterior.md: many members one after another and in one pass, in units of one forward pass."""

from __future__ import annotations

import torch

from benchmarks.measure import best_of
from benchmarks.members import _sampled, _without_gradients
from calibrant.backbones import build
from calibrant.posteriors import ensemble as running

NETWORKS = (("mlp-64", (1, 8, 8)), ("cnn-16", (1, 8, 8)), ("resnet-20", (3, 32, 32)))


def main() -> None:
    torch.set_num_threads(1)
    running.is_small = lambda x: True  # type: ignore[attr-defined]
    for name, shape in NETWORKS:
        net = build(name, shape, 10).eval()
        together, apart = _sampled(net), _sampled(net)
        apart._batches = False
        for batch in (1, 8, 32, 128):
            x = torch.rand(batch, *shape)
            one, a, b = best_of(
                3 if name == "resnet-20" else 10, *(_without_gradients(f, x) for f in (net, apart, together))
            )
            print(f"{name}, batch {batch}: {a / one:.1f} one after another, {b / one:.1f} in one pass", flush=True)


if __name__ == "__main__":
    main()
