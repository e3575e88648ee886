"""Run by two processes under torchrun: trains a whole chain, or one that rank 1 kills in the middle of an epoch."""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from calibrant.config.loading import load_settings
from calibrant.training import TrainingData, Workspace, open_data
from calibrant.training.distributed import gather_with_gradients
from calibrant.training.loop import Loop

OVERRIDES = (
    "fit.epochs=3",
    "fit.batch_size=16",
    "finetune.epochs=2",
    "finetune.batch_size=16",
    "finetune.outlier_batch_size=16",
    "backbone.name=cnn-2",
    "posterior.members=2",
    "engine.device=cpu",
    "engine.checkpoint_steps=2",
)


def workspace(out, *overrides):
    settings = load_settings("embedded", overrides=(*OVERRIDES, *overrides))
    data = open_data(settings.data, seed=0)
    some = torch.arange(101)
    parts = (data.train.subset(some), data.validation.subset(some))
    return Workspace(TrainingData(*parts, uncertainty=data.uncertainty.subset(some)), settings, out)


def kill_after(steps):
    update, done = Loop._update, [0]

    def counted(self, batch):
        update(self, batch)
        done[0] += 1
        if done[0] == steps and self.fabric.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    Loop._update = counted


def trained(out, *overrides):
    """Train CBNN-OCM; every rank writes what it ended with, the training loop's own copy included."""
    space, models = workspace(out, *overrides), []
    run = Loop.run

    def observed(self):
        rows = run(self)
        models.append((self.model, rows))
        return rows

    Loop.run = observed
    space.model("CBNN-OCM")
    Loop.run = run
    rank = space.fabric.global_rank
    record = [
        {"state": {n: v.double().flatten().tolist() for n, v in m.state_dict().items()}, "rows": r} for m, r in models
    ]
    Path(out, f"rank{rank}.json").write_text(json.dumps(record))
    space.fabric.barrier()
    return space


def gathered_gradient(fabric):
    """(averaged over ranks, of one process) gradients of a function of all ranks' rows."""

    def loss(rows):
        return ((rows[:, None] - rows).abs().exp().mean() * rows.square().sum()).log()

    inputs = torch.arange(8.0).reshape(2, 4) / 7 + 0.1
    weight = torch.tensor(0.7, requires_grad=True)
    loss(gather_with_gradients(weight * inputs[fabric.global_rank], fabric)).backward()
    torch.distributed.all_reduce(weight.grad)
    alone = torch.tensor(0.7, requires_grad=True)
    loss((alone * inputs).flatten()).backward()
    return float(weight.grad) / 2, float(alone.grad)


def main(mode, folder):
    whole, killed = Path(folder, "whole"), Path(folder, "killed")
    if mode == "first":
        fabric = trained(whole).fabric
        Path(folder, f"gradient{fabric.global_rank}.json").write_text(json.dumps(gathered_gradient(fabric)))
        trained(Path(folder, "gathered"), "calibration.gather=true")
        trained(Path(folder, "dropout"), "posterior.family=mc_dropout")
        for family in ("swag", "laplace"):
            trained(Path(folder, family), f"posterior.family={family}")
        trained(Path(folder, "ivon"), "posterior.family=ivon", "fit.clip_norm=1")
        trained(Path(folder, "networks"), "posterior.family=deep_ensemble", "posterior.options.size=2", "fit.epochs=1")
        kill_after(9)
    trained(killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
