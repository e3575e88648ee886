"""q(theta): a Gaussian with diagonal covariance over the parameters of any module.

The module keeps its parameters, which become the means; beside each one that is Bayesian stands a log variance rho.
A forward pass draws theta = mean + exp(rho / 2) * noise and runs the module with it in place of its parameters, so no
layer has to be replaced and none has to be known.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from calibrant import InputError, checks
from calibrant.adapters.calling import called_with
from calibrant.posteriors.base import Posterior, TrainingContext
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import PosteriorMembers, parameter_key
from calibrant.posteriors.reparametrization import draw_all, gaussian_kl
from calibrant.posteriors.substitution import Substitution
from calibrant.slots import register

Predicate = Callable[[str, nn.Module], bool]

_NORMALIZATION = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_CHECKPOINTING = ("gradient_checkpointing", "grad_checkpointing")  # of transformers, and of timm


def not_normalization(name: str, module: nn.Module) -> bool:
    """The default predicate: every parameter is Bayesian but those of normalization layers."""
    return not isinstance(module, _NORMALIZATION)


@register("posterior", "mean_field")
class MeanField(Posterior):
    r"""q(theta) = N(mean, diag(exp(rho))) over the parameters of `module`, with prior N(prior_mean, prior_std^2 I).

    Args:
        module: any module; its parameters become the means, in place: training q trains the module, and nothing is held
            twice. `MeanField(copy.deepcopy(module))` leaves yours as it is. A trained network works at once.
        prior_std: standard deviation of the prior, sqrt(0.001) in the paper.
        prior_mean: a number, or "init" for a prior centered on the weights that the module has now.
        init_std: standard deviation that q starts from, one number for all parameters. If not given, each tensor has
            its own: a tenth of the root mean square of its entries, at least 0.001, which a trained network
            survives. Under SGD it moves little, so it is a hyperparameter; the paper trains from scratch with
            `prior_std`.
        bayesian: `bayesian(name, owner)` says whether the parameter `name` (as in `named_parameters`), which belongs
            to the submodule `owner`, is Bayesian. Parameters that do not require a gradient stay as they are.
        fuse: on a CPU and in float32, make the draw and its gradient one kernel in C each. None: where the kernels are
            built or a C compiler is there to build them, which takes a second, once per machine. True insists, and
            says what to do where they cannot be built; False does without. Elsewhere they are plain operations, which
            `torch.compile` fuses.

    Calling it runs the module on one fresh draw of theta, in `train()` and in `eval()` alike.

    >>> q = MeanField(nn.Linear(3, 2), prior_std=1.0)
    >>> bool(torch.equal(q(torch.ones(1, 3)), q(torch.ones(1, 3))))
    False
    >>> sum(p.numel() for p in q.parameters())
    16
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        prior_std: float = math.sqrt(0.001),
        prior_mean: float | Literal["init"] = 0.0,
        init_std: float | None = None,
        bayesian: Predicate = not_normalization,
        fuse: bool | None = None,
    ) -> None:
        super().__init__(module)
        module = self.module
        self.prior_std = checks.positive("prior_std", prior_std)
        self.init_std = None if init_std is None else checks.positive("init_std", init_std)
        if prior_mean != "init" and not math.isfinite(float(prior_mean)):
            raise InputError(f"prior_mean must be a finite number or 'init', not {prior_mean}")
        self.fuse = fuse
        self.rho = nn.ParameterDict()
        self._names = _chosen(module, bayesian)
        self._paths = [name.split(".") for name in self._names]
        self._rho_paths = [[parameter_key(name)] for name in self._names]
        parameters = dict(module.named_parameters())
        for name in self._names:
            std = _relative_std(parameters[name]) if self.init_std is None else self.init_std
            self.rho[parameter_key(name)] = nn.Parameter(torch.full_like(parameters[name], 2 * math.log(std)))
        self.prior_mean: float | Literal["init"] = "init" if prior_mean == "init" else float(prior_mean)
        if self.prior_mean == "init":
            for name in self._names:
                self.register_buffer(_prior_key(name), parameters[name].detach().clone())
        self._recomputing = [(p, name) for p in module.modules() for name in _CHECKPOINTING if hasattr(p, name)]
        self._kl_of_draw: tuple[Tensor, list[int], list[Any]] | None = None
        self._place: Substitution | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output at one draw of theta, as it is; a batch that is a mapping is passed by name."""
        args, kwargs = called_with(self.module, args, kwargs)
        if torch.is_grad_enabled() and any(p.training and getattr(p, name) for p, name in self._recomputing):
            raise InputError(
                "module recomputes layers in the backward pass (gradient checkpointing), which would run them on the"
                " means of q instead of the draw; turn it off, as model.gradient_checkpointing_disable() does"
            )
        means = self._means()
        theta, kl = draw_all(means, self._rhos(), self._prior_means(), self.prior_std, fuse=self.fuse)
        if kl is not None and kl.requires_grad:
            self._kl_of_draw = kl, self._versions(), [tensor.grad_fn for tensor in theta]
        drawn = dict(zip(self._names, theta))
        if torch.compiler.is_compiling():
            return functional_call(self.module, drawn, args, kwargs)
        if self._place is None or not self._place.replaces(dict(zip(self._names, means))):
            self._place = Substitution(self.module, self._names)
        return self._place(drawn, args, kwargs)

    def kl(self) -> Tensor:
        """KL(q || prior), the exact closed form, summed over all Bayesian parameters as they are now.

        The value does not depend on what was called before, but the cost does: a forward pass with gradients computes
        the KL in the same sweep over the parameters, and the first `kl()` after it returns that tensor; so call it once
        per step, after `forward`. It is computed anew on any further call, where gradients are off, after the draw was
        differentiated, and whenever a parameter was changed in between, by an optimizer or by `load_state_dict`. What
        autograd itself cannot see, a write through `.data`, is not noticed before the next forward pass. If the KL has
        a `backward()` of its own, call it after that of the loss.
        """
        held, self._kl_of_draw = self._kl_of_draw, None
        if held is not None and torch.is_grad_enabled() and held[1] == self._versions():
            kl, _, nodes = held
            if not any(getattr(node, "differentiated", False) for node in nodes):
                return kl
        terms = [
            gaussian_kl(mean, rho, prior, self.prior_std)
            for mean, rho, prior in zip(self._means(), self._rhos(), self._prior_means())
        ]
        return torch.stack(terms).sum()

    def parameter_groups(self, context: TrainingContext) -> list[dict[str, Any]]:
        """The log variances apart, at `rho_rate` and without decay, which would pull their deviations towards 1."""
        rhos = [rho for rho in self.rho.parameters() if rho.requires_grad]
        of_rho = {id(rho) for rho in rhos}
        (others,) = super().parameter_groups(context)
        others["params"] = [parameter for parameter in others["params"] if id(parameter) not in of_rho]
        of_spread = {"params": rhos, "lr": context.rho_rate or context.rate, "weight_decay": 0.0}
        return [others, of_spread] if rhos else [others]

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """`n` fixed members drawn from q as it is now; the same seed gives the same members on every device."""
        return Ensemble(copy.deepcopy(self.module), PosteriorMembers(self.standard_deviations(), n, seed))

    def mean_module(self) -> nn.Module:
        """An ordinary module at the posterior mean, independent of this one."""
        return copy.deepcopy(self.module)

    def standard_deviations(self) -> dict[str, Tensor]:
        """exp(rho / 2) by parameter name, detached."""
        return {name: torch.exp(0.5 * rho.detach()) for name, rho in zip(self._names, self._rhos())}

    def extra_repr(self) -> str:
        """What q and its prior are, for `print`."""
        size = sum(rho.numel() for rho in self._rhos())
        return f"bayesian={size}, prior_mean={self.prior_mean}, prior_std={self.prior_std:.4g}"

    def _means(self) -> list[Tensor]:
        return [_parameter_at(self.module, path) for path in self._paths]  # under `functional_call` no nn.Parameter

    def _rhos(self) -> list[Tensor]:
        return [_parameter_at(self.rho, path) for path in self._rho_paths]

    def _prior_means(self) -> list[Tensor | float]:
        if self.prior_mean == "init":
            return [self.get_buffer(_prior_key(name)) for name in self._names]
        return [self.prior_mean] * len(self._names)

    def _versions(self) -> list[int]:
        """What changes when a parameter is written, by an optimizer for example."""
        return [tensor._version for tensor in (*self._means(), *self._rhos())]

    def __getstate__(self) -> dict[str, Any]:
        """Without the last draw's KL, whose graph can neither be copied nor sent, and the places in this module."""
        return {**self.__dict__, "_kl_of_draw": None, "_place": None}


def _chosen(module: nn.Module, bayesian: Predicate) -> list[str]:
    """Names of the parameters that the predicate makes Bayesian, each shared parameter once."""
    names = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or not bayesian(name, module.get_submodule(name.rpartition(".")[0])):
            continue
        if not parameter.is_floating_point():
            raise InputError(f"module has the {parameter.dtype} parameter {name}, which cannot be Gaussian")
        names.append(name)
    if not names:
        raise InputError("bayesian leaves no parameter of module to be Bayesian: relax it, or use the module as it is")
    return names


def _parameter_at(module: nn.Module, path: list[str]) -> Tensor:
    """The parameter at a path, without the search of `getattr`, which small networks notice at every step."""
    *owners, name = path
    tables: Any = module
    for owner in owners:
        tables = tables._modules[owner]
    tensor: Tensor = tables._parameters[name]
    return tensor


def _relative_std(parameter: Tensor) -> float:
    """A tenth of the root mean square of the entries, at least 0.001: biases may be zero."""
    size, entries = max(parameter.numel(), 1), parameter.detach().cpu().double()  # which not every device has
    return max(0.1 * float(entries.norm()) / math.sqrt(size), 0.001)


def _prior_key(name: str) -> str:
    return "prior_mean/" + parameter_key(name)
