"""What many members cost: layers in common run once, small batches in one pass, and writing them to a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.measure import Row, best_of, seconds
from calibrant import Ensemble, MeanField
from calibrant.backbones import build
from calibrant.backbones.resnet import resnet20
from calibrant.config.loading import load_settings
from calibrant.deploy import Predictor
from calibrant.training import Workspace, open_data

MEMBERS = 20
LAST_STAGE = ("groups.6.", "groups.7.", "groups.8.", "head.")


def _sampled(module: nn.Module, prefixes: tuple[str, ...] = ("",), members: int = MEMBERS) -> Ensemble:
    """Members that differ in the parameters whose names begin so, but for those of BatchNorm."""
    chosen = MeanField(
        module,
        init_std=0.01,
        bayesian=lambda name, owner: name.startswith(prefixes) and not isinstance(owner, nn.BatchNorm2d),
    )
    return chosen.sample(members).stored()


def _without_gradients(call: Callable[[Tensor], object], x: Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def work() -> None:
        call(x)

    return work


def _shared() -> Iterator[Row]:
    net, x = resnet20(10).eval(), torch.randn(128, 3, 32, 32)
    head, stage = _sampled(net, ("head.",)), _sampled(net, LAST_STAGE)
    trunk = nn.Sequential(net.stem, net.norm, nn.ReLU(), *net.groups[:6])
    last = nn.Sequential(*net.groups[6:], nn.AdaptiveAvgPool2d(1), nn.Flatten(), net.head)
    with torch.no_grad():
        entering = trunk(x)
    works = (_without_gradients(f, x) for f in (net, head, lambda x: head.predict([x]), stage))
    one, a, b, c, own = best_of(4, *works, _without_gradients(last, entering))
    what = f"{MEMBERS} members / one forward pass, Bayesian head, ResNet-20, batch 128"
    yield Row(what, a / one, 1.1, "lower", f"{a:.3f} s / {one:.3f} s")
    yield Row(what.replace("members /", "members by `predict` /"), b / one, 1.1, "lower", f"{b:.3f} s / {one:.3f} s")
    share = own / one
    wanted = one * (1 + (MEMBERS - 1) * share)
    what = f"{MEMBERS} members / (1 + {MEMBERS - 1} x its share), Bayesian last stage, ResNet-20, batch 128"
    yield Row(what, c / wanted, 1.05, "lower", f"{c:.2f} s / {wanted:.2f} s; share of the time {share:.3f}")


def _small_batches() -> Iterator[Row]:
    for name, shape, batch in (("mlp-64", (1, 8, 8), 1), ("cnn-16", (1, 8, 8), 1), ("resnet-20", (3, 32, 32), 1)):
        ensemble, x = _sampled(build(name, shape, 10).eval()), torch.rand(batch, *shape)
        apart = _sampled(ensemble.module)
        apart._batches = False
        a, b = best_of(20, _without_gradients(ensemble, x), _without_gradients(apart, x))
        what = f"{MEMBERS} members in one pass / one after another, {name}, batch {batch}"
        yield Row(what, a / b, 1.0, "lower", f"{1e3 * a:.2f} ms / {1e3 * b:.2f} ms")


def _export() -> Iterator[Row]:
    """Seconds of the processor, not ratios: what somebody waits for on a machine with nothing else to do."""
    net, x = resnet20(10).eval(), torch.rand(2, 3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decision.onnx"
        Predictor(_sampled(net, members=2)).export(path, x)  # imports
        few, many = (seconds(partial(Predictor(_sampled(net, members=n)).export, path, x)) for n in (5, MEMBERS))
    yield Row(f"seconds to write the ONNX file of {MEMBERS} members, ResNet-20", many, 60.0, "lower", f"{many:.1f} s")
    what = f"ONNX file of {MEMBERS} members / of 5, ResNet-20"
    yield Row(what, many / few, 2.0, "lower", f"{many:.1f} s / {few:.1f} s")


def _export_with_scores() -> Row:
    settings = load_settings("embedded")
    data = open_data(settings.data, settings.seed)
    workspace = Workspace(data, settings, progress=False)
    selection = workspace.selection("SCBNN-OCM")
    predictor = Predictor(workspace.ensemble("SCBNN-OCM"), outliers=selection.scorer, selector=selection.selector)
    inputs = data.test.inputs[:2]  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        taken = seconds(lambda: predictor.export(Path(folder) / "decision.onnx", inputs))
    what = f"seconds to write the ONNX file of the demo's SCBNN-OCM, {len(predictor.ensemble)} members with four scores"
    return Row(what, taken, 20.0, "lower", f"{taken:.1f} s")


def rows() -> Iterator[Row]:
    """The rows of this file."""
    yield from _shared()
    yield from _small_batches()
    yield from _export()
    yield _export_with_scores()
