"""Every setting in its group, with what it may be and what it is.

Loss weights are in the one convention of this library, means over the batch:
`CE + (beta / N) KL + lambda E + gamma C`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from calibrant import InputError
from calibrant.config.values import (
    ByFamily,
    CalibratorName,
    Count,
    DetectorName,
    Fraction,
    Group,
    NonNegative,
    ObjectiveName,
    Options,
    Positive,
    PosteriorName,
    Precision,
    RegularizerName,
)
from calibrant.slots import names

# Of both training stages, which differ in the defaults.
Epochs = Annotated[int, Field(ge=0, description="passes over the training data; 0: the network stays as it is")]
BatchSize = Annotated[int, Field(ge=1, description="ID examples per step, of all ranks together")]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, description="learning rate: the first, or the highest")]
Nesterov = Annotated[bool, Field(description="look ahead along the momentum")]
Schedule = Annotated[
    Literal["step", "cosine", "one-cycle", "constant"],
    Field(description="of the rate: step, cosine, one-cycle, constant"),
]
FinalFraction = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="cosine, one-cycle: the last rate over the first or highest")
]


class DataSettings(Group):
    """Where the examples come from and how they are split."""

    source: str = Field(default="embedded", description="ID data: a name, or name:PATH")
    uncertainty: str | None = Field(
        default=None, description="D_u for OCM; null: what the source itself brings, if any"
    )
    ood: tuple[str, ...] = Field(default=(), description="OOD test sets beside the ones that the source itself brings")
    root: str | None = Field(default=None, description="folder in which sources without a PATH are looked for")
    train: Count | None = Field(default=None, description="training examples to use, drawn by the seed; null: all")
    validation: Count | Annotated[float, Field(gt=0, lt=1)] = Field(
        default=5000, description="held out of the training set: a number of examples, or a fraction"
    )
    test: Count | Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="number of test examples to use; of a source without a test part, to hold out"
    )
    test_source: str | None = Field(
        default=None, description="labeled test data of its own; null: what the source brings, or a part of it"
    )
    classes: tuple[str, ...] | None = Field(
        default=None, description="class names in the order of the network's outputs; null: as the source has them"
    )
    uncertainty_size: Count | Annotated[float, Field(gt=0, lt=1)] = Field(
        default=6000, description="D_u's share where one OOD set is split into D_u and a test set"
    )
    splits: str | None = Field(default=None, description="JSON file that splits the ID data, in place of the seed")
    uncertainty_splits: str | None = Field(default=None, description="JSON file that splits the D_u source")
    validation_from: Literal["train", "test"] = Field(
        default="train",
        description="part that the validation data is held out of; test for a network that was trained on all of train",
    )
    mean: tuple[float, ...] | None = Field(
        default=None, description="of each channel, for normalization; null: of the training data"
    )
    std: tuple[Positive, ...] | None = Field(
        default=None, description="of each channel, for normalization; null: of the training data"
    )
    normalize: bool = Field(default=True, description="standardize inputs channel by channel, inside the saved model")


class AugmentationSettings(Group):
    """Random crop and flip of training images, in batches on the device."""

    padding: int = Field(
        default=4, ge=0, description="pixels added to each side before a crop of the old size; 0: none"
    )
    flip: bool = Field(default=True, description="mirror an image with probability 1/2")


class BackboneSettings(Group):
    """The network."""

    name: str = Field(
        default="wrn-40-2", description="wrn-DEPTH-WIDTH, resnet[a]-DEPTH[-WIDTH], cnn-WIDTH[-DEPTH], mlp-HIDDEN-..."
    )
    weights: str | None = Field(
        default=None, description="checkpoint to start from: a safetensors file or what torch.save wrote; null: none"
    )
    feature_layer: str | None = Field(
        default=None, description="whose input are the features; null: the last linear layer"
    )


class PosteriorSettings(Group):
    """q(theta) of Bayesian schemes."""

    family: PosteriorName = Field(default="mean_field", description=f"of q: {', '.join(names('posterior'))}")
    options: Options = Field(default_factory=dict, description="keywords of the family")
    beta: NonNegative = Field(default=0.00035, description="temperature: the KL term is weighted beta / N")
    prior_std: Positive = Field(default=0.001**0.5, description="of every weight, under the prior")
    init_std: Positive | None = Field(default=None, description="of every weight, before training; null: prior_std")
    draws: Count = Field(default=1, description="draws of theta per training step")
    members: Count = Field(default=20, description="members of the ensemble at test time")
    validation_members: Count = Field(default=1, description="members that the per-epoch validation uses")


class CalibrationSettings(Group):
    """lambda E, and the rule that selects lambda."""

    regularizer: RegularizerName = Field(
        default="weighted_mmce",
        description=f"E: {', '.join(names('regularizer'))}",
    )
    options: Options = Field(default_factory=dict, description="keywords of the regularizer")
    weight: ByFamily = Field(default=ByFamily(frequentist=4.0, bayesian=0.8), description="lambda, of C* schemes")
    replaces_cross_entropy: bool = Field(default=False, description="train on E alone, as for the focal loss")
    share: Fraction = Field(
        default=0.0,
        description="part of the training data kept for the regularizer alone; 0: the regularizer reuses the training"
        " batch",
    )
    gather: bool = Field(
        default=False, description="evaluate the regularizer on the batches of all ranks, with gradients"
    )
    grid: tuple[Positive, ...] = Field(
        default=(0.2, 0.4, 0.6, 0.8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), description="values of lambda that are tried"
    )
    max_accuracy_drop: NonNegative = Field(
        default=0.015, description="against lambda = 0, as a fraction, on validation data"
    )


class CalibratorSettings(Group):
    """What is fitted to validation data after training, between the network and the selector."""

    name: CalibratorName = Field(default="none", description=f"calibrator: {', '.join(names('calibrator'))}")
    options: Options = Field(default_factory=dict, description="keywords of the calibrator")


class OptimizerSettings(Group):
    """What the two training stages have in common."""

    epochs: Epochs
    batch_size: BatchSize
    optimizer: Literal["sgd", "adam"] = Field(default="sgd", description="sgd, adam")
    rate: Rate
    rho_rate: Positive | None = Field(default=None, description="rate of the log variances; null: the same rate")
    momentum: Fraction = Field(default=0.9, description="of sgd")
    nesterov: Nesterov = False
    weight_decay: NonNegative = Field(default=0.0, description="L2 penalty on weights, or on their means")
    clip_norm: ByFamily = Field(
        default=ByFamily(frequentist=None, bayesian=None), description="largest norm of a gradient; null: any"
    )
    schedule: Schedule
    step_every: Count = Field(default=30, description="step: epochs between two divisions")
    step_factor: Positive = Field(default=5.0, description="step: divisor")
    final_fraction: FinalFraction = 0.0
    warmup: Fraction = Field(default=0.3, description="one-cycle: part of the steps spent rising")
    extra_step: bool = Field(
        default=False, description="advance the schedule once more per epoch, before its first update"
    )
    validate_every: int = Field(default=1, ge=0, description="epochs between validations; 0: only after the last")


class FitSettings(OptimizerSettings):
    """Cross-entropy or free energy, + lambda E."""

    epochs: Epochs = 100
    batch_size: BatchSize = 128
    rate: Rate = 0.1
    schedule: Schedule = "step"


class FinetuneSettings(OptimizerSettings):
    """+ gamma C on D_u, from the fitted model."""

    epochs: Epochs = 10
    batch_size: BatchSize = 32
    rate: Rate = 0.001
    nesterov: Nesterov = True
    schedule: Schedule = "cosine"
    final_fraction: FinalFraction = 0.001
    gamma: NonNegative = Field(default=0.5, description="weight of C, the confidence on D_u")
    outlier_batch_size: Count = Field(default=64, description="examples of D_u per step, drawn with replacement")
    examples_per_epoch: Count | None = Field(
        default=9000, description="ID examples per epoch, without replacement; null: all"
    )
    beta_factor: NonNegative = Field(default=1.0, description="posterior.beta times this")
    kl_examples: Count | None = Field(default=None, description="N of beta / N; null: the size of the training set")


class OutlierSettings(Group):
    """The outlier scores that the selector reads."""

    scores: tuple[DetectorName, ...] = Field(
        default=("density", "forest", "svm", "neighbors"),
        description=f"which, in the order of the selector's inputs: {', '.join(names('detector'))}",
    )
    options: dict[DetectorName, Options] = Field(default_factory=dict, description="keywords of a score, by its name")
    bandwidth: Positive | None = Field(default=None, description="of the kernel density; null: Scott's rule")
    neighbors: Count = Field(default=8, description="k of the distance to the k-th neighbor")
    neighbor_distance: Literal["kth", "mean"] = Field(
        default="kth", description="to the k-th neighbor, or the mean over all k"
    )
    lof_neighbors: Count = Field(default=20, description="k of the local outlier factor")
    trees: Count = Field(default=100, description="of the isolation forest")
    max_points: Count | None = Field(default=20_000, description="training examples whose features are kept; null: all")
    average: Literal["scores", "features"] = Field(default="scores", description="what is averaged over members")

    @model_validator(mode="after")
    def _belong(self) -> OutlierSettings:
        for name in self.options:
            if name not in self.scores:
                raise InputError(f"options are given for {name}, which is not among the scores")
        return self


class SelectorSettings(Group):
    """The selector and its threshold."""

    objective: ObjectiveName = Field(
        default="calibration",
        description=f"what it is fitted to: {', '.join(names('objective'))}; calibration: the paper",
    )
    options: Options = Field(default_factory=dict, description="keywords of an objective that have no setting here")
    variant: Literal["paper", "authors_code"] = Field(
        default="paper", description="of the calibration objective: paper, authors_code"
    )
    eta: NonNegative = Field(default=0.01, description="weight of the barrier that keeps it from rejecting all")
    zeta: NonNegative = Field(
        default=0.0, description="calibration, beyond the paper: weight of the barrier that rejects outliers; 0: none"
    )
    width: Positive = Field(default=0.2, description="of the kernel between two confidences")
    group: Count | None = Field(default=None, description="group size; the expectation over groups in closed form")
    target_coverage: Annotated[float, Field(gt=0, le=1)] = Field(default=0.5, description="classification: xi")
    penalty: Positive = Field(default=32.0, description="classification: weight of the missing coverage")
    entropy: bool = Field(default=False, description="whether it reads the entropy of the prediction besides")
    hidden: Count = Field(default=64, description="units of each hidden layer")
    rate: Positive = Field(default=0.001, description="learning rate")
    weight_decay: NonNegative = Field(default=1e-5, description="L2 penalty on its weights")
    optimizer: Literal["adam", "lbfgs"] = Field(
        default="adam", description="adam, lbfgs (all data in every step, until it converges; weight_decay about 0.001)"
    )
    steps: Count | None = Field(
        default=None, description="null: 250,000 with minibatches, at most 1,000 without, 500 with lbfgs"
    )
    batch_size: Count | None = Field(default=None, description="null: all of the validation data in every step")
    holdout: Fraction = Field(default=0.0, description="part of the validation data that says when to stop")
    views: Count = Field(default=1, description="number of views: the validation data and views - 1 augmented copies")
    coverage: Annotated[float, Field(gt=0, le=1)] = Field(default=0.5, description="of the threshold that is saved")
    threshold: Literal["validation", "test"] = Field(default="validation", description="data that sets the threshold")


class ReportSettings(Group):
    """How measures are computed and drawn."""

    bins: Count = Field(default=15, description="of equal width, of ECE and of OOD detection")
    min_bin_count: Count = Field(
        default=1, description="reliability diagrams of studies: bins of fewer examples are left out"
    )
    confidence_level: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.95, description="of intervals")
    resamples: Count = Field(default=1000, description="of the bootstrap")


class EngineSettings(Group):
    """Where and how it runs; all but `precision` change no more than rounding, and which weight gets which noise."""

    device: str = Field(default="auto", description="auto, cpu, cuda, mps")
    precision: Precision = Field(default="32-true", description="32-true, 64-true, bf16-mixed, 16-mixed, bf16-true")
    compile: bool = Field(default=False, description="torch.compile networks for training")
    fuse: bool | None = Field(
        default=None,
        description="on a CPU, draw posteriors by a kernel in C: faster for wide layers; null: where one can be built",
    )
    channels_last: bool = Field(
        default=False, description="lay images and convolutions out channel by channel: faster on most devices"
    )
    checkpoint_seconds: NonNegative = Field(default=60.0, description="save at least so often; 0: after every step")
    checkpoint_steps: Count | None = Field(default=None, description="steps between checkpoints; null: seconds alone")
    predict_batch_size: Count = Field(default=512, description="examples per forward pass of prediction")
    tensorboard: bool = Field(default=False, description="write curves for TensorBoard into the run directory")
