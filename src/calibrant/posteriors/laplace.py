r"""The Laplace approximation of the last layer (Kristiadi et al. 2020, "Being Bayesian, Even Just a Bit, Fixes
Overconfidence in ReLU Networks", ICML; Daxberger et al. 2021, "Laplace Redux", NeurIPS).

After training, q(w) = N(w*, (H + delta I)^-1) over the weights w of the last linear layer, bias included; w* are the
trained ones. For its input phi (with a 1 for the bias) and the probabilities p of an example, the generalized
Gauss-Newton Hessian of the cross-entropy, which here is the Hessian, is

    H = sum_n (diag(p_n) - p_n p_n^T) (x) phi_n phi_n^T,

and its Kronecker approximation 1/N sum_n (diag(p_n) - p_n p_n^T) (x) sum_n phi_n phi_n^T. The precision delta of the
prior N(0, I / delta) maximizes the marginal likelihood

    log p(data) = const - delta |w*|^2 / 2 + 1/2 sum_i log( delta / (delta + h_i) ),

h_i being the eigenvalues of H (MacKay 1992, "The Evidence Framework Applied to Classification Networks").
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant import InputError, checks
from calibrant.adapters.calling import call
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.outputs import as_classes, raw_logits
from calibrant.adapters.unpacking import split_batch
from calibrant.posteriors.deterministic import Deterministic
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.members import StoredMembers, check_count, cpu_normal, member_generator
from calibrant.slots import register

FULL = 2048  # weights up to which the full Hessian is the default


@register("posterior", "laplace")
class Laplace(Deterministic):
    """A Gaussian over the weights of the last layer, fitted after training by `finish`; no divergence.

    Training is that of the network itself. The members share everything before the last layer. Before `finish` all
    members are the network as it is; while a network is trained further, they have the covariance that was fitted last.

    Args:
        module: a network whose logits a linear layer gives.
        prior_precision: delta; None chooses it by the marginal likelihood, whenever `finish` is called.
        hessian: "full" or "kronecker"; None takes the full one for layers of at most 2048 weights.
        layer: the name of the last layer; None: the last linear layer in the order of `module.named_modules()`.

    >>> q = Laplace(nn.Linear(3, 2), prior_precision=4.0)
    >>> q.finish([torch.zeros(5, 3)])  # says nothing about the weights: the prior, but for the bias
    >>> q.covariance().diagonal().sqrt()[:3]
    tensor([0.5000, 0.5000, 0.5000])
    """

    precision: Tensor

    def __init__(
        self,
        module: nn.Module,
        *,
        prior_precision: float | None = None,
        hessian: Literal["full", "kronecker"] | None = None,
        layer: str | None = None,
    ) -> None:
        super().__init__(module)
        if hessian not in (None, "full", "kronecker"):
            raise InputError(f"hessian must be full, kronecker or null, not {hessian!r}")
        self.prior_precision = None if prior_precision is None else checks.positive("prior_precision", prior_precision)
        self._layer = _last_linear(self.module, layer)
        self._check_weights()
        weights = self._weights()
        self.hessian = hessian or ("full" if weights.numel() <= FULL else "kronecker")
        sizes = [weights.numel()] if self.hessian == "full" else list(weights.shape)
        # Frozen parameters rather than buffers: DDP sends all buffers at every step.
        self.bases = nn.ParameterList(nn.Parameter(weights.new_zeros(s, s), requires_grad=False) for s in sizes)
        self.std = nn.Parameter(weights.new_zeros(sizes), requires_grad=False)
        self.register_buffer("precision", weights.new_zeros(()))  # delta, as it was used

    @torch.no_grad()
    def finish(self, batches: Iterable[Any]) -> None:
        """Fit the covariance at the weights as they are now to all training examples, read once from `batches`."""
        was_training = self.module.training
        self.module.eval()
        factors = self._curvature(batches)
        self.module.train(was_training)
        values, bases = zip(*map(torch.linalg.eigh, factors))
        eigenvalues = (values[0] if len(values) == 1 else torch.outer(*values)).clamp_min(0)
        given, weights = self.prior_precision, self._weights().to(eigenvalues)
        delta = best_precision(eigenvalues, weights) if given is None else torch.as_tensor(given).to(eigenvalues)
        self.precision.copy_(delta)
        self.std.copy_((eigenvalues + delta).rsqrt())
        for kept, basis in zip(self.bases, bases):
            kept.copy_(basis)

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """`n` members with a last layer of their own each; the same seed gives the same members on every device."""
        check_count(n)
        drawn = torch.stack([self._draw(member_generator(seed, k)) for k in range(n)])
        linear, prefix = self._linear(), f"{self._layer}." if self._layer else ""
        stacked = {f"{prefix}weight": drawn[..., : linear.in_features].contiguous()}
        if linear.bias is not None:
            stacked[f"{prefix}bias"] = drawn[..., -1].contiguous()
        return Ensemble(copy.deepcopy(self.module), StoredMembers(stacked, n))

    def covariance(self) -> Tensor:
        """(H + delta I)^-1 as a matrix over the C (D + 1) weights: by class, the bias after the D weights of each."""
        bases = [basis.detach() for basis in self.bases]
        basis: Tensor = bases[0] if len(bases) == 1 else torch.kron(*bases)
        return torch.matmul(basis * self.std.detach().flatten().square(), basis.T)

    def _draw(self, generator: torch.Generator) -> Tensor:
        """The last layer's weights (C, D + 1)."""
        noise = cpu_normal(self.std.shape, generator).to(self.std)
        drawn = self.bases[0] @ (self.std * noise)
        if len(self.bases) == 2:
            drawn = drawn @ self.bases[1].T
        weights = self._weights()
        return torch.add(weights, drawn.view_as(weights))

    def _curvature(self, batches: Iterable[Any]) -> list[Tensor]:
        """H (C D', C D'), or its Kronecker factors (C, C), divided by N, and (D', D'); D' = D + 1 with a bias."""
        tap, count, sums = FeatureTap(self.module, self._layer), 0, list[Tensor]()
        for batch in batches:
            inputs = split_batch(batch)[0]
            with tap:
                logits = raw_logits(call(self.module, inputs))
                features = tap.take(logits)
            phi, spread = self._checked(features, logits)
            own = [_full(phi, spread)] if self.hessian == "full" else [spread.sum(0), phi.T @ phi]
            sums = [total + part for total, part in zip(sums, own)] if sums else own
            count += len(phi)
        if not count:
            raise InputError("batches must hold the training examples, but there are none")
        return [sums[0] / count, sums[1]] if self.hessian == "kronecker" else sums

    def _checked(self, features: Tensor | None, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Phi (B, D') and diag(p) - p p^T (B, C, C), refused if the layer does not give the logits."""
        linear, p = self._linear(), as_classes(logits).softmax(-1)
        again = None if features is None else as_classes(F.linear(features, linear.weight, linear.bias)).softmax(-1)
        if features is None or again is None or again.shape != p.shape or not torch.allclose(again, p, atol=1e-3):
            remedy = "name the linear layer that does by the option layer"
            raise InputError(f"the layer {self._layer!r} does not give the logits of the module; {remedy}")
        device = torch.device("cpu") if features.device.type == "mps" else features.device
        phi, p = (value.to(device, torch.float64) for value in (features, p))
        phi = phi if linear.bias is None else F.pad(phi, (0, 1), value=1.0)
        spread = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        return phi, spread[:, -linear.out_features :, -linear.out_features :]  # one logit: of the second class

    def _check_weights(self) -> None:
        """Refuse a last layer without weights of its own, in whose place members could not put theirs."""
        linear = self._linear()
        if "weight" not in linear._parameters:
            raise InputError(
                f"the layer {self._layer!r} computes its weight from other parameters, so it cannot be drawn; make it"
                " an ordinary one first: torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight')"
            )
        own = {id(parameter) for parameter in linear.parameters()}
        for name, other in self.module.named_modules():
            if other is not linear and any(id(parameter) in own for parameter in other.parameters(recurse=False)):
                raise InputError(
                    f"the layer {self._layer!r} shares a parameter with {name!r}, so it cannot be drawn by itself; give"
                    " it one of its own first: layer.weight = nn.Parameter(layer.weight.detach().clone())"
                )

    def _linear(self) -> nn.Linear:
        linear = self.module.get_submodule(self._layer)
        assert isinstance(linear, nn.Linear)
        return linear

    def _weights(self) -> Tensor:
        """(C, D') the weights of the last layer, the bias as the last column."""
        linear = self._linear()
        parts = [linear.weight] if linear.bias is None else [linear.weight, linear.bias[:, None]]
        return torch.cat([part.detach() for part in parts], 1)


def best_precision(eigenvalues: Tensor, weights: Tensor) -> Tensor:
    r"""The precision delta of the prior that maximizes the marginal likelihood, a scalar.

    At the maximum delta |w|^2 = gamma(delta) = sum_i h_i / (h_i + delta), the number of weights that the data
    determines. The left side grows in delta and the right one falls, so there is one solution, found by bisection.

    >>> best_precision(torch.tensor([1e9, 1e9]), torch.tensor([1.0, 1.0]))
    tensor(1.)
    """
    norm = weights.square().sum().clamp_min(torch.finfo(weights.dtype).tiny ** 0.5)
    high = (eigenvalues.numel() / norm).log()  # gamma is at most the number of weights
    low = high - 60.0
    for _ in range(100):
        middle = (low + high) / 2
        above = middle.exp() * norm > (eigenvalues / (eigenvalues + middle.exp())).sum()
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return high.exp()


def _full(phi: Tensor, spread: Tensor) -> Tensor:
    """The sum over examples of `spread` (C, C) (x) phi phi^T, as a matrix (C D', C D')."""
    rows = [phi.T @ (spread[:, c, :, None] * phi[:, None, :]).flatten(1) for c in range(spread.shape[1])]
    return torch.cat(rows)


def _last_linear(module: nn.Module, layer: str | None) -> str:
    """The name of the last linear layer, or of the one called `layer`, inside a wrapper or not."""
    names = [name for name, found in module.named_modules() if isinstance(found, nn.Linear)]
    if not names:
        raise InputError("module has no nn.Linear, whose weights the Laplace approximation draws")
    chosen = names if layer is None else [name for name in names if f".{name}".endswith(f".{layer}")]
    if not chosen:
        raise InputError(f"layer {layer!r} is not a linear layer of the module; it has {', '.join(names)}")
    return str(chosen[-1])
