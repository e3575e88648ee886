"""One-class support vector machine: -s3, by Nystroem features by default, exactly on request."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.detectors.base import OutlierScore, subsample
from calibrant.detectors.distances import ReferencePoints
from calibrant.slots import register

_SMALLEST, _LARGEST, _SUBSAMPLE = 64, 2048, 2000


@register("detector", "svm")
class OneClassSVMScore(OutlierScore):
    """-s3 = rho - sum_i alpha_i exp(-gamma ||z - z_i||^2), with alpha >= 0 summing to 1 in the exact solution.

    By default the kernel is approximated by Nystroem features on `components` reference points, and the linear
    machine fitted by scikit-learn's `SGDOneClassSVM`; the sum then runs over the components. `components="auto"`
    doubles their number from 64 until, on a subsample of at most 2,000 points, the ranks correlate to `target` with
    those of the exact machine: `components_` and `rank_correlation_` report the outcome. `exact=True` runs libsvm on
    all points, whose decision function is s3 times nu N. `gamma` is by default 1 / (D times the variance).
    """

    label = "one-class SVM"
    padded = ("coefficients", "vectors.points", "vectors.norms")
    coefficients: Tensor
    rho: Tensor
    gamma_: Tensor
    rank_correlation_: Tensor

    def __init__(
        self,
        *,
        exact: bool = False,
        components: int | Literal["auto"] = "auto",
        target: float = 0.995,
        nu: float = 0.5,
        gamma: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if not 0 < nu <= 1:
            raise InputError(f"nu must lie in (0, 1], not {nu}")
        if not 0 < target < 1:
            raise InputError(f"target must lie in (0, 1), not {target}")
        self.exact, self.nu, self.target = exact, nu, target
        self.components = components if components == "auto" else int(checks.positive("components", components))
        self.gamma = None if gamma is None else checks.positive("gamma", gamma)
        self.vectors = ReferencePoints()
        self.register_buffer("coefficients", torch.empty(0))
        for name in ("rho", "gamma_", "rank_correlation_"):
            self.register_buffer(name, torch.tensor(math.nan))

    @property
    def components_(self) -> int:
        """The number of kernel terms: Nystroem components, or support vectors of the exact machine."""
        return max(self.coefficients.shape[0], self.vectors.points.shape[0])

    def fit_points(self, points: Tensor) -> None:
        """Fit the machine and keep it as kernel terms."""
        variance = float(points.var(correction=0))
        gamma = 1 / (points.shape[1] * (variance if variance > 0 else 1.0)) if self.gamma is None else self.gamma
        data, correlation = points.double().cpu(), math.nan
        if self.exact or len(data) <= _SMALLEST:
            machine, correlation = fit_exact(data, gamma, self.nu), 1.0
        else:
            count = self.components
            if count == "auto":
                count, correlation = choose_components(data, gamma, self.nu, self.target, self.seed)
            machine = fit_nystroem(data, gamma, self.nu, min(count, len(data)), self.seed)
        vectors, coefficients, rho = machine
        self.vectors.fit(vectors.to(points))
        self.coefficients = coefficients.to(points)
        self.rho = points.new_tensor(rho)
        self.gamma_, self.rank_correlation_ = points.new_tensor(gamma), points.new_tensor(correlation)

    def score_points(self, points: Tensor) -> Tensor:
        """Rho - sum_i coefficient_i exp(-gamma d_i^2), block by block."""
        total = self.rho.expand(points.shape[0])
        for start in range(0, self.components_, self.block_size):
            stop = min(start + self.block_size, self.components_)
            kernel = (self.vectors.squared_distances(points, start, stop) * -self.gamma_).exp()
            total = total - kernel @ self.coefficients[start:stop]
        return total

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {name: getattr(self, name) for name in ("exact", "components", "target", "nu", "gamma")}
        return {**super().config(), **own}


Machine = tuple[Tensor, Tensor, float]  # vectors (m, D), coefficients (m,), rho


def fit_exact(points: Tensor, gamma: float, nu: float) -> Machine:
    """Libsvm's solution; its coefficients sum to nu N, ours to 1."""
    from sklearn.svm import OneClassSVM

    with _numpy_seed(0):
        machine = OneClassSVM(nu=nu, gamma=gamma).fit(points.numpy())
    scale = nu * len(points)
    coefficients = torch.from_numpy(machine.dual_coef_.ravel().copy()) / scale
    return torch.from_numpy(machine.support_vectors_), coefficients, float(machine.offset_[0]) / scale


def fit_nystroem(points: Tensor, gamma: float, nu: float, components: int, seed: int) -> Machine:
    """The linear machine on phi(z) = K(z, L) U S^(-1/2), where K(L, L) = U S U^T on `components` random points L.

    Directions with S below 1e-6 of the largest are left out: they hold rounding only.
    """
    from sklearn.linear_model import SGDOneClassSVM

    landmarks = subsample(points, components, seed)
    spectrum, basis = torch.linalg.eigh(_kernel(landmarks, landmarks, gamma))
    kept = spectrum > 1e-6 * spectrum[-1]
    whiten = basis[:, kept] / spectrum[kept].sqrt()
    machine = SGDOneClassSVM(nu=nu, random_state=seed, tol=1e-5, average=True)
    with _numpy_seed(seed):
        machine.fit((_kernel(points, landmarks, gamma) @ whiten).numpy())
    return landmarks, whiten @ torch.from_numpy(machine.coef_), float(machine.offset_[0])


def choose_components(points: Tensor, gamma: float, nu: float, target: float, seed: int) -> tuple[int, float]:
    """The first of 64, 128, ... components whose ranks on a subsample agree with the exact machine's, and how well."""
    sample = subsample(points, _SUBSAMPLE, seed)
    wanted = _evaluate(fit_exact(sample, gamma, nu), sample, gamma)
    components = _SMALLEST
    while True:
        components = min(components, len(sample))
        found = _evaluate(fit_nystroem(sample, gamma, nu, components, seed), sample, gamma)
        correlation = rank_correlation(wanted, found)
        if correlation >= target or components >= min(_LARGEST, len(sample)):
            return components, correlation
        components *= 2


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's rank correlation; 1 where one side does not vary, for then there is no order to miss."""
    from scipy.stats import rankdata

    first, second = rankdata(a.numpy()), rankdata(b.numpy())
    if first.std() == 0 or second.std() == 0:
        return 1.0
    return float(np.corrcoef(first, second)[0, 1])


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Both machines draw from numpy's global state, whatever `random_state` says: give them one, put the old back."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def _kernel(a: Tensor, b: Tensor, gamma: float) -> Tensor:
    return (ReferencePoints().fit(b).squared_distances(a, 0, len(b)) * -gamma).exp()


def _evaluate(machine: Machine, points: Tensor, gamma: float) -> Tensor:
    vectors, coefficients, rho = machine
    return _kernel(points, vectors, gamma) @ coefficients - rho
