"""From a network to the model that is trained: input normalization inside, q(theta) around it for Bayesian schemes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from calibrant import InputError, backbones
from calibrant.adapters.calling import call
from calibrant.adapters.compiled import usable
from calibrant.adapters.outputs import logits_of
from calibrant.adapters.trees import move_to, tensors_in
from calibrant.backbones.normalization import Normalize
from calibrant.config.groups import DataSettings
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData, channel_statistics
from calibrant.slots import build, options_of
from calibrant.training.randomness import derive, seeded
from calibrant.training.training_data import Examples, class_count, input_shape


def fresh_model(
    train: Examples,
    scheme: Scheme,
    settings: Settings,
    statistics: tuple[Tensor, Tensor] | None,
    network: nn.Module | None = None,
) -> nn.Module:
    """The untrained model of `scheme`, around a copy of `network` or the backbone of the settings.

    Its weights are the same for all schemes.
    """
    fresh: Callable[[int], nn.Module] | bool = settings.backbone.weights is None and settings.fit.epochs > 0
    if network is not None:
        network = copy.deepcopy(usable(network))
    else:
        network = _backbone(train, settings, settings.seed)
        if settings.backbone.weights is not None:
            backbones.load_weights(network, settings.backbone.weights)
        elif fresh:
            fresh = partial(_member, train, settings, statistics)
    model = assemble(network, scheme, settings, statistics, fresh)
    if settings.engine.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def assemble(
    network: nn.Module,
    scheme: Scheme,
    settings: Settings,
    statistics: tuple[Tensor, Tensor] | None,
    fresh: Callable[[int], nn.Module] | bool = True,
) -> nn.Module:
    """The model of `scheme` around `network`: it takes raw inputs, normalized by `statistics` (mean, std) if given.

    A Bayesian scheme's is a posterior of the family in the settings, any other one's the network. `fresh` is where
    further networks of a family that has several start (`posteriors.deep_ensemble`).
    """
    model = _normalized(network, statistics)
    if not scheme.bayesian:
        return model
    with seeded(derive(settings.seed, "posterior")):
        return _posterior(model, settings, fresh)


def _backbone(train: Examples, settings: Settings, seed: int) -> nn.Module:
    """The backbone of the settings, untrained, as a run with `seed` starts from it."""
    with seeded(derive(seed, "network")):
        return backbones.build(settings.backbone.name, input_shape(train), class_count(train))


def _member(train: Examples, settings: Settings, statistics: tuple[Tensor, Tensor] | None, k: int) -> nn.Module:
    """The untrained network k of several: where an ordinary network of a run with the seed + k starts."""
    return _normalized(_backbone(train, settings, settings.seed + k), statistics)


def _normalized(network: nn.Module, statistics: tuple[Tensor, Tensor] | None) -> nn.Module:
    return network if statistics is None else Normalize(network, *statistics)


def _posterior(model: nn.Module, settings: Settings, fresh: Callable[[int], nn.Module] | bool) -> nn.Module:
    """The family's posterior of `model`; settings that are options of the family, too, are its defaults."""
    chosen = settings.posterior
    init_std = chosen.prior_std if chosen.init_std is None else chosen.init_std
    general = {"prior_std": chosen.prior_std, "init_std": init_std, "fuse": settings.engine.fuse, "fresh": fresh}
    known = options_of("posterior", chosen.family)
    options = {name: value for name, value in general.items() if name in known}
    posterior: nn.Module = build("posterior", chosen.family, {**options, **chosen.options}, model)
    return posterior


_SAMPLE = 2048  # examples of a data set that is read when needed


def input_statistics(data: Examples, settings: DataSettings) -> tuple[Tensor, Tensor] | None:
    """Mean and standard deviation of every channel; None for tokens or several inputs, 0 and 1 without `normalize`."""
    sample = data.inputs if isinstance(data, ArrayData) else data.take(torch.arange(min(_SAMPLE, len(data))))[0]
    if not isinstance(sample, Tensor) or not (sample.is_floating_point() or sample.dtype == torch.uint8):
        return None
    channels = sample.shape[1]
    if not settings.normalize:
        return torch.zeros(channels), torch.ones(channels)
    mean, std = channel_statistics(sample)
    return _given("mean", settings.mean, mean), _given("std", settings.std, std)


def _given(name: str, values: tuple[float, ...] | None, measured: Tensor) -> Tensor:
    if values is not None and len(values) != len(measured):
        raise InputError(f"data.{name} has {len(values)} numbers, but the inputs have {len(measured)} channels")
    return measured if values is None else torch.tensor(values).to(measured)


@torch.no_grad()
def check_outputs(model: nn.Module, data: Examples) -> None:
    """Refuse a network whose output does not fit the labels of `data`."""
    was_training, model = model.training, model.eval()
    inputs = move_to(data.take(torch.arange(min(2, len(data))))[0], next(model.parameters()).device)
    try:
        logits = logits_of(call(model, inputs), inputs)
    except RuntimeError as error:
        own = {value.dtype for value in model.parameters() if value.is_floating_point()}
        given = {value.dtype for value in tensors_in(inputs) if value.is_floating_point()}
        if not own or not given or own == given:
            raise
        kinds = [", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in some)) for some in (own, given)]
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"module has parameters in {kinds[0]} and does not take inputs in {kinds[1]}, in which networks are trained"
            f" here; pass module.float() ({reason})"
        ) from None
    finally:
        model.train(was_training)
    if logits.dim() != 2:
        raise InputError("module must return logits of shape (batch, classes)")
    outputs = logits.shape[1]
    known = isinstance(data, ArrayData) or data.classes is not None
    needed = class_count(data) if known else outputs
    if outputs < needed or (data.classes is not None and outputs != needed):
        raise InputError(
            f"module has {outputs} outputs, but the training data has {needed} classes; give its last layer {needed},"
            f" or name the classes of all {outputs} outputs in their order (data.classes, or --classes FILE)"
        )
