"""Settings that make every study run in seconds."""

TINY = (
    "fit.epochs=2",
    "finetune.epochs=1",
    "finetune.examples_per_epoch=128",
    "backbone.name=mlp-16",
    "data.train=300",
    "posterior.members=2",
    "outliers.trees=5",
    "outliers.max_points=100",
    "selector.steps=10",
    "calibration.grid=[0.2,1]",
    "study.resamples=10",
    "study.coverages=[0.1,0.4,0.5,0.7,1]",
    "study.gammas=[0,0.5,1]",
    "study.etas=[0.01,0.1]",
    "study.regularizers={esd: [2], dece: [1], focal: [1], mmce: [1], avuc: [0.5], soft_avuc: [0.5]}",
    "study.backbone.overrides=[backbone.name=mlp-8]",
    "study.posteriors={systems: {deterministic: [posterior.family=deterministic], mean_field: []},"
    " calibrated: [mean_field], cost_rounds: 1}",
)
