"""Every hyperparameter that the text of the paper gives, with the sentence that gives it, in the profile `paper`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from calibrant.backbones import build
from calibrant.config.loading import Settings, load_settings
from calibrant.posteriors import MeanField
from calibrant.selective import Selector
from calibrant.studies import load_plan
from calibrant.training.selecting import build_selector

PAPER = load_settings("paper")
BACKBONE = PAPER.with_(*load_plan("paper").backbone.overrides)
Get = Callable[[Settings], Any]


def _bounds(settings: Settings) -> tuple[float | None, float | None, float]:
    """What would keep the updates of fine-tuning small."""
    stage = settings.finetune
    return stage.clip_norm.frequentist, stage.clip_norm.bayesian, stage.weight_decay


TEXT: list[tuple[str, Get, Any]] = [
    # V-A
    ("All experiments use the CIFAR-100 data set to generate ID samples", lambda s: s.data.source, "cifar100"),
    (
        "and the TinyImageNet (resized) data set to generate OOD samples",
        lambda s: s.data.uncertainty,
        "imagenet-resize",
    ),
    ("adopts the WideResNet-40-2 architecture", lambda s: s.backbone.name, "wrn-40-2"),
    (
        "the variational distribution is Gaussian with mean and diagonal covariance",
        lambda s: s.posterior.family,
        "mean_field",
    ),
    ("the regularizer is added to the loss", lambda s: s.calibration.replaces_cross_entropy, False),
    ("with number of bins M = 15", lambda s: s.report.bins, 15),
    (
        "we only visualize the bins that have number of samples no smaller than 100",
        lambda s: s.report.min_bin_count,
        100,
    ),
    # Appendix B1
    ("we use the SGD optimizer", lambda s: s.fit.optimizer, "sgd"),
    ("with momentum factor 0.9", lambda s: s.fit.momentum, 0.9),
    ("and train the model during 100 epochs", lambda s: s.fit.epochs, 100),
    ("decrease the learning rate by dividing its value", lambda s: s.fit.schedule, "step"),
    ("by a factor of 5", lambda s: s.fit.step_factor, 5),
    ("for every 30 epochs", lambda s: s.fit.step_every, 30),
    ("with initial learning rate 0.1", lambda s: s.fit.rate, 0.1),
    ("The minibatch size used for single SGD update is set to 128", lambda s: s.fit.batch_size, 128),
    ("no weight decay is given", lambda s: s.fit.weight_decay, 0.0),
    ("nor Nesterov's momentum for the fit", lambda s: s.fit.nesterov, False),
    ("nor a bound on the gradient", lambda s: (s.fit.clip_norm.frequentist, s.fit.clip_norm.bayesian), (None, None)),
    ("diagonal covariance matrix having each element as 0.001", lambda s: s.posterior.prior_std**2, 0.001),
    ("the initial deviation is not given: that of the prior", lambda s: s.posterior.init_std, None),
    ("for fair comparison, we use the same training policy", lambda s: s.fit.rho_rate, None),
    ("The hyperparamter beta for the free energy (11) is set to 0.00035", lambda s: s.posterior.beta, 0.00035),
    ("The ensemble size for Bayesian learning during training is set to 1", lambda s: s.posterior.draws, 1),
    ("while the ensemble size during testing is set to 20", lambda s: s.posterior.members, 20),
    (
        "chosen as the value in set {0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 3.0, ..., 10.0}",
        lambda s: s.calibration.grid,
        (0.2, 0.4, 0.6, 0.8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    ),
    ("preserving the accuracy drop no larger than 1.5 %", lambda s: s.calibration.max_accuracy_drop, 0.015),
    ("which result in the values of 4", lambda s: s.calibration.weight.frequentist, 4),
    ("and 0.8 respectively", lambda s: s.calibration.weight.bayesian, 0.8),
    ("We use weighted MMCE regularizer", lambda s: s.calibration.regularizer, "weighted_mmce"),
    ("kappa(r_i, r_j) = exp(-||r_i - r_j|| / 0.4)", lambda s: s.calibration.options, {"width": 0.4}),
    ("the regularizer depends on the same training data", lambda s: s.calibration.share, 0.0),
    ("45,000 examples and 5,000 examples", lambda s: (s.data.train, s.data.validation), (None, 5000)),
    ("the standard random flip", lambda s: s.augmentation.flip, True),
    ("and random crop augmentations", lambda s: s.augmentation.padding, 4),
    ("the validation data is split off the training set", lambda s: s.data.validation_from, "train"),
    ("of 10,000 images, 4,000 are left for the OOD test set", lambda s: 10_000 - s.data.uncertainty_size, 4000),
    # Appendix B2
    ("randomly choosing 6,000 input data from TinyImageNet", lambda s: s.data.uncertainty_size, 6000),
    ("During fine-tuning, SGD optimizer", lambda s: s.finetune.optimizer, "sgd"),
    ("with momentum factor of 0.9", lambda s: s.finetune.momentum, 0.9),
    ("is adopted during 10 epochs", lambda s: s.finetune.epochs, 10),
    ("each consisting 282 iterations", lambda s: math.ceil(s.finetune.examples_per_epoch / s.finetune.batch_size), 282),
    ("The initial learning rate is set to 0.001", lambda s: s.finetune.rate, 0.001),
    (
        "we update the learning rate for each iteration by following [outlier exposure]",
        lambda s: s.finetune.schedule,
        "cosine",
    ),
    ("its clipping and weight decay are not given", _bounds, (None, None, 0.0)),
    ("nor another rate of the log variances", lambda s: s.finetune.rho_rate, None),
    ("whose public code has Nesterov's momentum", lambda s: s.finetune.nesterov, True),
    ("and ends at a rate of 1e-6", lambda s: s.finetune.rate * s.finetune.final_fraction, 1e-6),
    ("we first sample 9,000 examples from D_tr", lambda s: s.finetune.examples_per_epoch, 9000),
    ("via sampling 32 examples", lambda s: s.finetune.batch_size, 32),
    ("we sample 64 examples among D_u with replacement", lambda s: s.finetune.outlier_batch_size, 64),
    ("gamma = 0.5", lambda s: s.finetune.gamma, 0.5),
    ("Other hyperparameters are the same", lambda s: (s.finetune.beta_factor, s.finetune.kl_examples), (1.0, None)),
    # Appendix A and IV-B2
    (
        "a kernel density estimator, an isolation forest, a one-class support vector machine, and a k-nearest neighbor"
        " distance",
        lambda s: s.outliers.scores,
        ("density", "forest", "svm", "neighbors"),
    ),
    ("the k-th smallest value in the set of distances", lambda s: s.outliers.neighbor_distance, "kth"),
    ("k is not given: that of Fisch et al. 2022", lambda s: s.outliers.neighbors, 8),
    ("T trees, which are not counted: scikit-learn's number", lambda s: s.outliers.trees, 100),
    ("the bandwidth parameter h > 0, not given: Scott's rule", lambda s: s.outliers.bandwidth, None),
    ("{z_i} for all i of the training inputs", lambda s: s.outliers.max_points, None),
    ("E_q[s(x | theta)], (38)", lambda s: s.outliers.average, "scores"),
    # Appendix B3
    ("selective MMCE, (33) and (39)", lambda s: (s.selector.objective, s.selector.variant), ("calibration", "paper")),
    ("64 neurons in each hidden layer", lambda s: s.selector.hidden, 64),
    ("we use Adam optimizer", lambda s: s.selector.optimizer, "adam"),
    ("with learning rate 0.001", lambda s: s.selector.rate, 0.001),
    ("and weight decay coefficient 10^-5", lambda s: s.selector.weight_decay, 1e-5),
    ("5 epochs, each epoch consisting 50,000 iterations", lambda s: s.selector.steps, 5 * 50_000),
    ("each iteration samples 32 examples among D_val", lambda s: s.selector.batch_size, 32),
    ("the objective is of the examples drawn, not of groups", lambda s: s.selector.group, None),
    ("all of D_val trains", lambda s: s.selector.holdout, 0.0),
    ("eta in (33) and (39) is set to 0.01", lambda s: s.selector.eta, 0.01),
    ("kappa(r_i, r_j) = exp(-||r_i - r_j|| / 0.2)", lambda s: s.selector.width, 0.2),
    ("it reads the confidence and the outlier scores", lambda s: s.selector.entropy, False),
    ("random flip and random crop augmentations during selector training", lambda s: s.selector.views, 8),
    ("tau controls the fraction of selected examples", lambda s: s.selector.threshold, "validation"),
    (
        "nothing of ours is added",
        lambda s: (s.selector.zeta, s.calibrator.name, s.rule.name),
        (0, "none", "confidence"),
    ),
    # Sec. V, III: the figures
    (
        "ID coverage rates ranging from 0.1 to 1",
        lambda s: load_plan("paper").coverages,
        tuple(i / 10 for i in range(1, 11)),
    ),
    ("changing lambda, in the set above", lambda s: load_plan("paper").lambdas, None),
    ("lambda is chosen on fits of full length", lambda s: load_plan("paper").selection_epochs, 1.0),
    ("our default choice of gamma = 0.5", lambda s: 0.5 in load_plan("paper").gammas, True),
    ("eta = 0.01 as the default choice for eta", lambda s: 0.01 in load_plan("paper").etas, True),
    ("all four base schemes", lambda s: load_plan("paper").schemes, ("FNN", "CFNN", "BNN", "CBNN")),
    ("with ID coverage rate as 40 %", lambda s: load_plan("paper").eta_coverage, 0.4),
    ("gamma = 0 recovers the original schemes", lambda s: 0 in load_plan("paper").gammas, True),
]
SUPPLEMENT: list[tuple[str, Get, Any]] = [
    ("a different backbone, namely ResNet-18", lambda s: s.backbone.name, "resnet-18"),
    ("CIFAR-10 as the ID", lambda s: s.data.source, "cifar10"),
    ("LSUN resized as the OOD data set", lambda s: s.data.uncertainty, "lsun-resize"),
    ("lambda = 10", lambda s: s.calibration.weight.frequentist, 10),
    ("and lambda = 4, respectively", lambda s: s.calibration.weight.bayesian, 4),
]


@pytest.mark.parametrize(("sentence", "get", "value"), TEXT, ids=lambda part: part if isinstance(part, str) else "")
def test_the_profile_has_what_the_text_says(sentence: str, get: Get, value: Any) -> None:
    assert get(PAPER) == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    ("sentence", "get", "value"), SUPPLEMENT, ids=lambda part: part if isinstance(part, str) else ""
)
def test_the_backbone_study_has_what_the_supplement_says(sentence: str, get: Get, value: Any) -> None:
    assert get(BACKBONE) == value
    assert BACKBONE.fit == PAPER.fit  # "we use the same settings as the experimental results in the main text"
    assert BACKBONE.finetune == PAPER.finetune
    assert BACKBONE.selector == PAPER.selector


def test_the_selector_has_three_layers_and_about_five_thousand_parameters() -> None:
    """ "a 3-layer feed-forward neural network with 64 neurons in each hidden layer"; its table has 0.005 M."""
    import torch

    selector: Selector = build_selector(PAPER.selector.model_copy(update={"steps": 1, "batch_size": None}), 0)
    confidence = torch.rand(20, generator=torch.Generator().manual_seed(0))
    selector.fit(confidence, torch.rand(20, 4, generator=torch.Generator().manual_seed(1)), confidence > 0.5)
    weights = [value for name, value in selector.state_dict().items() if value.ndim == 2 and value.shape[-1] in (5, 64)]
    assert [tuple(weight.shape) for weight in weights] == [(64, 5), (64, 64), (1, 64)]


def test_the_network_has_the_parameters_of_the_table() -> None:
    """FNN: 2.25 M, BNN: 4.5 M."""
    network = build(PAPER.backbone.name, (3, 32, 32), 100)
    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(2.25e6, rel=0.005)
    posterior = MeanField(network)  # BNN: 4.5 M, a mean and a variance for each weight
    assert sum(parameter.numel() for parameter in posterior.parameters()) == pytest.approx(4.5e6, rel=0.005)
