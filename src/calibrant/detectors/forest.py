"""Isolation forest: s2, fitted by scikit-learn, walked as tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import checks
from calibrant.detectors.base import OutlierScore
from calibrant.slots import register


@register("detector", "forest")
class IsolationForestScore(OutlierScore):
    """s2 = 2^(-mean depth / c): the depth at which random splits isolate z, averaged over the trees.

    c is the mean depth of an unsuccessful search in a binary tree of `max_samples` points, the number each tree is
    grown on. The same as scikit-learn's `-score_samples`. All nodes of all trees are numbered through: `feature`,
    `threshold`, `depth` have shape (nodes,), `branches` (nodes, 2), `roots` (trees,); a leaf is its own child.
    """

    label = "isolation forest"
    padded = ("feature", "threshold", "branches", "depth")
    feature: Tensor
    threshold: Tensor
    branches: Tensor
    depth: Tensor
    roots: Tensor
    c: Tensor

    def __init__(self, *, trees: int = 100, max_samples: int = 256, **settings: Any) -> None:
        super().__init__(**settings)
        self.trees = int(checks.positive("trees", trees))
        self.max_samples = int(checks.positive("max_samples", max_samples))
        for name in ("threshold", "depth"):
            self.register_buffer(name, torch.empty(0))
        for name in ("feature", "roots"):
            self.register_buffer(name, torch.empty(0, dtype=torch.long))
        self.register_buffer("branches", torch.empty(0, 2, dtype=torch.long))
        self.register_buffer("c", torch.tensor(math.nan))

    def fit_points(self, points: Tensor) -> None:
        """Grow the trees and lay their nodes out as tensors."""
        from sklearn.ensemble import IsolationForest

        forest = IsolationForest(
            n_estimators=self.trees, max_samples=min(self.max_samples, len(points)), random_state=self.seed
        ).fit(points.to("cpu", torch.float32).numpy())
        trees = [estimator.tree_ for estimator in forest.estimators_]
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
        state = {
            "feature": np.concatenate([np.maximum(tree.feature, 0) for tree in trees]),
            "threshold": np.concatenate([round_down(tree.threshold) for tree in trees]),
            "branches": np.concatenate([_branches(tree) + start for tree, start in zip(trees, starts)]),
            "depth": np.concatenate([_depths(tree) for tree in trees]).astype(np.float32),
            "roots": starts,
            "c": average_depth(np.array(forest.max_samples_)).astype(np.float32),
        }
        for name, value in state.items():
            setattr(self, name, torch.as_tensor(value, device=points.device))

    def score_points(self, points: Tensor) -> Tensor:
        """Walk all trees at once, one level a step."""
        values = points.to(torch.float32)  # scikit-learn compares in float32
        node = self.roots.expand(points.shape[0], -1)
        for _ in range(math.ceil(math.log2(max(self.max_samples, 2)))):
            right = values.gather(1, self.feature[node]) > self.threshold[node]
            node = self.branches[node, right.long()]
        depth = self.depth[node].mean(1)
        # A forest grown on one point has c = 0 and isolates nothing; scikit-learn calls that 1/2.
        exponent = torch.where(self.c > 0, depth / self.c, torch.ones_like(depth))
        return torch.exp2(-exponent).to(points.dtype)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().config(), "trees": self.trees, "max_samples": self.max_samples}


def average_depth(count: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mean depth of an unsuccessful search among `count` points: 2 H(n - 1) - 2 (n - 1) / n, 0 for n <= 1.

    H(i) = ln i + Euler's constant, except that n = 2 gives 1.
    """
    n = np.maximum(count, 3).astype(np.float64)
    harmonic = np.log(n - 1) + np.euler_gamma
    return np.where(count <= 1, 0.0, np.where(count == 2, 1.0, 2 * harmonic - 2 * (n - 1) / n))


def round_down(threshold: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The largest float32 not above each float64 threshold: x > t decides the same for every float32 x."""
    nearest = threshold.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    rounded: np.ndarray[Any, Any] = np.where(nearest.astype(np.float64) > threshold, below, nearest)
    return rounded


def _branches(tree: Any) -> np.ndarray[Any, Any]:
    both = np.stack([tree.children_left, tree.children_right], 1)
    return np.asarray(np.where(both < 0, np.arange(tree.node_count)[:, None], both))


def _depths(tree: Any) -> np.ndarray[Any, Any]:
    """Depth of every node, plus what isolating the points that share it would have taken on average."""
    depth = np.zeros(tree.node_count)
    for node, (left, right) in enumerate(zip(tree.children_left, tree.children_right)):
        if left >= 0:  # parents are numbered before their children
            depth[[left, right]] = depth[node] + 1
    return np.asarray(depth + average_depth(tree.n_node_samples))
