"""Trust against closed forms: Gaussian classes, Gaussian outliers and a detector that is sufficient and monotone."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch.export import Dim, export

import calibrant
from calibrant.metrics import expected_calibration_error as ece
from calibrant.predictions import Predictions
from calibrant.selective import SIRC, Trust, choose_confidence, estimate_share

SPREAD, CENTER = 3.0, 1.5
DETECTORS = {
    "sufficient": lambda log_ratio: torch.sinh(log_ratio / 4),
    "inverted": lambda log_ratio: -log_ratio,
    "noise": lambda log_ratio: torch.sin(1000 * log_ratio),
}


def inputs(size, seed, *, outliers=False, center=(0.0, 0.0)):
    """Labels and points in the plane: classes N((+-1.5, 0), I) or outliers N(center, 9 I)."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(size, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (size,), generator=generator)
    if outliers:
        return SPREAD * points + torch.tensor(center, dtype=torch.float64), torch.full_like(labels, -1)
    points[:, 0] += CENTER * (2 * labels - 1)
    return points, labels


def log_ratio(points):
    """log of the density of the outliers at the origin over that of the classes."""
    square = points.square().sum(1)
    classes = torch.logaddexp(CENTER * points[:, 0], -CENTER * points[:, 0]) - math.log(2) - CENTER**2 / 2
    return -square / (2 * SPREAD**2) - 2 * math.log(SPREAD) + square / 2 - classes


def record(size, seed, detectors=("sufficient",), **kind):
    """What the Bayes classifier says, with its exact confidence."""
    points, labels = inputs(size, seed, **kind)
    upper = torch.sigmoid(2 * CENTER * points[:, 0])
    scores = {name: DETECTORS[name](log_ratio(points)) for name in detectors}
    return Predictions.from_probabilities(torch.stack([1 - upper, upper], 1), labels, scores=scores), points


def exact_trust(predictions, points, share):
    return predictions.confidence * (1 - share) / ((1 - share) + share * log_ratio(points).exp())


def fitted(share=0.5, size=4000, outliers=500, seed=0, detectors=("sufficient",)):
    validation, _ = record(size, seed, detectors)
    return Trust(share).fit(validation, record(outliers, seed + 1, detectors, outliers=True)[0])


def wrong_among_given(gate, outlier_gate, right, share=0.5, coverage=0.8):
    tau = gate.quantile(1 - coverage)
    accepted = gate >= tau
    wrong = (1 - share) * (accepted & ~right).double().mean()
    passed = share * (outlier_gate >= tau).double().mean()
    return float((wrong + passed) / ((1 - share) * accepted.double().mean() + passed))


@pytest.mark.parametrize("outliers", [500, 100])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_exact_trust_is_recovered(share, outliers):
    trust = fitted(share, outliers=outliers)
    own, points = record(4000, 10)
    theirs, their_points = record(4000, 11, outliers=True)
    errors = [
        (trust.of(part) - exact_trust(part, x, share)).abs().mean()
        for part, x in ((own, points), (theirs, their_points))
    ]
    assert float((1 - share) * errors[0] + share * errors[1]) < 0.02
    right = own.correct
    ours = wrong_among_given(trust.of(own), trust.of(theirs), right, share)
    best = wrong_among_given(exact_trust(own, points, share), exact_trust(theirs, their_points, share), right, share)
    assert ours <= 1.05 * best
    assert ours < 0.8 * wrong_among_given(own.confidence, theirs.confidence, right, share)


def test_it_is_calibrated_in_the_stream_and_confidence_is_not():
    own, _ = record(5000, 10)
    theirs, _ = record(5000, 11, outliers=True)
    right = torch.cat([own.correct, torch.zeros(5000, dtype=torch.bool)])
    trust = fitted(0.5)
    in_stream = ece(torch.cat([trust.of(own), trust.of(theirs)]), right)
    assert in_stream < 0.02
    assert in_stream < 0.1 * ece(torch.cat([own.confidence, theirs.confidence]), right)


def test_twenty_outliers_are_a_start():
    own, _ = record(4000, 100)
    theirs, _ = record(4000, 101, outliers=True)
    right = own.correct
    right_in_stream = torch.cat([right, torch.zeros(4000, dtype=torch.bool)])
    plain = wrong_among_given(own.confidence, theirs.confidence, right)
    for seed in range(0, 10, 2):
        trust = fitted(outliers=20, seed=seed)
        assert wrong_among_given(trust.of(own), trust.of(theirs), right) < 0.7 * plain
        assert ece(torch.cat([trust.of(own), trust.of(theirs)]), right_in_stream) < 0.1


def test_outliers_of_a_wrong_kind_still_help_as_much_as_sirc():
    """Fitted to outliers on one side, tested on outliers on the other: not worse than SIRC, which saw none."""
    validation, _ = record(4000, 0)
    kind, _ = record(200, 1, outliers=True, center=(0.0, 6.0))
    own, _ = record(4000, 10)
    unseen, _ = record(4000, 11, outliers=True, center=(0.0, -3.0))
    trust, sirc = Trust(0.5).fit(validation, kind), SIRC().fit(validation)
    theirs = [sirc.relaxed(part.confidence, part.columns(sirc.names)) for part in (own, unseen)]
    ours = wrong_among_given(trust.of(own), trust.of(unseen), own.correct)
    assert ours <= 1.02 * wrong_among_given(*theirs, own.correct)
    assert ours < 0.7 * wrong_among_given(own.confidence, unseen.confidence, own.correct)


def test_an_inverted_detector_and_noise_are_not_read():
    names = ("inverted", "sufficient", "noise")
    trust = fitted(detectors=names)
    assert trust.names == ("sufficient",)
    own, _ = record(100, 5, names)
    alone = fitted(detectors=("sufficient",))
    torch.testing.assert_close(trust.of(own), alone.of(own), atol=1e-6, rtol=0)


def test_without_a_useful_detector_trust_is_the_confidence_times_the_share_of_id():
    trust = fitted(0.2, detectors=("inverted",))
    own, _ = record(50, 5, ("inverted",))
    assert trust.names == ()
    torch.testing.assert_close(trust.of(own), 0.8 * own.confidence, atol=1e-6, rtol=0)


unit = st.floats(0, 1)
score = st.floats(-1e6, 1e6)
TRUST = fitted(0.3, size=500, outliers=60, detectors=("sufficient",))


@settings(deadline=None, max_examples=200)
@given(c=unit, higher=unit, s=score, larger=score, share=st.floats(0, 0.99))
def test_trust_rises_with_confidence_and_falls_with_scores(c, higher, s, larger, share):
    c, higher, s, larger = min(c, higher), max(c, higher), min(s, larger), max(s, larger)
    trust = TRUST.with_share(share)
    confidence = torch.tensor([c, higher, c], dtype=torch.float64)
    low, up, out = trust(confidence, torch.tensor([[s], [s], [larger]], dtype=torch.float64)).tolist()
    assert 0 <= out <= low <= up <= 1
    assert low <= c


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), shifts=st.lists(st.floats(-3, 3), min_size=1, max_size=3))
def test_slopes_are_never_negative(seed, shifts):
    rng = np.random.default_rng(seed)
    scores, theirs = rng.normal(0, 1, (80, len(shifts))), rng.normal(shifts, 1, (12, len(shifts)))
    names = [f"d{column}" for column in range(len(shifts))]
    trust = Trust().fit_arrays(rng.random(80), scores, theirs, names)
    assert bool((trust.slopes >= 0).all())
    assert set(trust.names) <= set(names)
    grid = torch.linspace(-1e4, 1e4, 101, dtype=torch.float64)[:, None].expand(-1, len(trust.names))
    assert bool((trust.log_ratio(grid).diff() >= 0).all())


def test_a_share_is_changed_without_fitting_again():
    trust = fitted(0.1)
    other, again = trust.with_share(0.4), fitted(0.4)
    own, _ = record(200, 5)
    assert trust.share == 0.1
    assert other.share == 0.4
    assert torch.equal(other.of(own), again.of(own))
    assert torch.equal(other.gates, again.gates)
    ratio = trust.ratio(own.columns())
    torch.testing.assert_close(other.p_id(own.columns()), 0.6 / (0.6 + 0.4 * ratio))


def test_at_share_zero_trust_is_the_confidence():
    trust = fitted(0.1).with_share(0)
    own, _ = record(200, 5)
    assert torch.equal(trust.of(own), own.confidence)
    extreme = trust(torch.tensor([0.7], dtype=torch.float64), torch.tensor([[1e300]], dtype=torch.float64))
    assert extreme.tolist() == [0.7]


def test_the_largest_scores_of_float32_are_no_obstacle():
    largest = torch.finfo(torch.float32).max
    for share in (0.0, 0.3):
        trust = TRUST.with_share(share).float()
        found = trust(torch.full((3,), 0.7), torch.tensor([[-largest], [1e9], [largest]]))
        assert bool(found.isfinite().all())
        assert bool((found.diff() <= 0).all())
        assert bool(trust.ratio(torch.tensor([[largest]])).isfinite())


def test_a_ratio_is_at_most_that_of_80_nats():
    trust = TRUST.with_share(0.3)
    trust.slopes = trust.slopes + 10
    scores = torch.tensor([[1e9]], dtype=torch.float64)
    assert float(trust.log_ratio(scores)) > 100
    assert math.log(float(trust.ratio(scores))) == pytest.approx(80)


def test_thresholds_by_coverage_and_by_error():
    trust = fitted(0.5)
    own, _ = record(4000, 10)
    theirs, _ = record(4000, 11, outliers=True)
    assert trust.threshold(0.8).achieved == 0.8
    found = trust.threshold_for_error(0.2)
    assert found.value == pytest.approx(0.8)
    accepted = int((trust.gates >= 0.8).sum())
    assert (found.wanted, found.achieved, found.accepted) == (accepted / 4000, accepted / 4000, accepted)
    assert 0.2 < found.achieved == pytest.approx(float((trust.gates >= 0.8).double().mean()))
    accepted = [trust.accept(part.confidence, part.columns(trust.names)) for part in (own, theirs)]
    wrong = (accepted[0] & ~own.correct).sum() + accepted[1].sum()
    assert float(wrong / (accepted[0].sum() + accepted[1].sum())) < 0.2  # which is the most that any of them has
    assert math.isnan(float(trust.with_share(0.2).tau))
    assert fitted(0.5).threshold_for_error(0).value == 1


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_of_a_stream_is_estimated(share):
    trust = fitted(0.1, outliers=1000)
    outliers = round(6000 * share)
    parts = [record(6000 - outliers, 20)[0], record(outliers, 21, outliers=True)[0]]
    stream = Predictions.concatenate(parts)
    found = trust.estimate_share(stream)
    assert found.identified
    assert abs(found.estimate - share) < 0.03
    assert found == estimate_share(trust.ratio(stream.columns(trust.names)))


def test_a_share_is_not_identified_without_detectors():
    with pytest.warns(UserWarning, match="not identified"):
        found = fitted(detectors=("inverted",)).estimate_share(record(500, 3, ("inverted",))[0])
    assert not found.identified


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_saved_and_loaded(dtype):
    validation, _ = record(500, 0, ("noise", "sufficient"))
    outliers, _ = record(50, 1, ("noise", "sufficient"), outliers=True)
    cast = [
        Predictions(part.confidence.to(dtype), part.predicted, scores={n: s.to(dtype) for n, s in part.scores.items()})
        for part in (validation, outliers)
    ]
    trust = Trust(0.3, seed=4).fit(*cast)
    trust.threshold(0.7)
    rebuilt = Trust.from_state(json.loads(json.dumps(trust.config())), load(save(trust.state_dict())))
    assert rebuilt.names == trust.names == ("sufficient",)
    assert rebuilt.share == 0.3
    assert trust.gates.dtype == rebuilt.of(cast[0]).dtype == dtype
    assert torch.equal(rebuilt.of(cast[0]), trust.of(cast[0]))
    assert torch.equal(rebuilt.of(cast[0]).sort().values, trust.gates)
    assert torch.equal(rebuilt.tau, trust.tau)
    assert torch.equal(rebuilt.with_share(0.6).gates, trust.with_share(0.6).gates)
    exact = Trust(0.3, seed=4).fit(validation, outliers)
    torch.testing.assert_close(trust.of(cast[0]).double(), exact.of(validation), atol=1e-4, rtol=0)


def test_what_does_not_fit_together_is_not_loaded():
    config, tensors = TRUST.config(), TRUST.state_dict()
    with pytest.raises(ValueError, match="do not belong"):
        Trust.from_state({**config, "names": ["knn", "energy"]}, tensors)
    with pytest.raises(ValueError, match="do not belong"):
        Trust.from_state(config, {name: value for name, value in tensors.items() if name != "slopes"})


@pytest.mark.parametrize("trust", [TRUST, TRUST.with_share(0)])
def test_export_takes_any_batch(trust):
    batch = Dim("batch", min=2, max=4096)
    example = (torch.rand(5).double(), torch.randn(5, 1).double())
    program = export(trust, example, dynamic_shapes={"confidence": {0: batch}, "scores": {0: batch}})
    own, _ = record(33, 5)
    torch.testing.assert_close(program.module()(own.confidence, own.columns()), trust.of(own))


def test_acceptance_reads_probabilities():
    own, _ = record(20, 5)
    torch.testing.assert_close(TRUST.acceptance(own.probabilities, own.columns()), TRUST.of(own))


def test_fitting_leaves_the_global_random_state_alone():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    fitted(size=300, outliers=30)
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()


def test_the_confidence_is_chosen_that_forecasts_best():
    validation, _ = record(3000, 0)
    outliers, _ = record(300, 1, outliers=True)

    def sharpened(part, power):
        odds = (part.confidence / (1 - part.confidence)) ** power
        return Predictions(odds / (1 + odds), part.predicted, part.labels, scores=part.scores)

    candidates = {str(power): (sharpened(validation, power), sharpened(outliers, power)) for power in (0.3, 1.0, 3.0)}
    assert choose_confidence(fitted(0.3), candidates) == "1.0"
    with pytest.raises(ValueError, match="candidates is empty"):
        choose_confidence(TRUST, {})


def test_it_is_public():
    assert calibrant.Trust is Trust


def test_bad_input_is_refused():
    validation, _ = record(50, 0)
    outliers, _ = record(20, 1, outliers=True)
    with pytest.raises(ValueError, match="share must lie in"):
        Trust(1.0)
    with pytest.raises(ValueError, match="folds must be a whole number"):
        Trust(folds=1)
    with pytest.raises(ValueError, match="outliers has no scores called sufficient; it has none"):
        Trust().fit(validation, Predictions(outliers.confidence, outliers.predicted))
    with pytest.raises(ValueError, match="validation has no scores called knn"):
        Trust().fit(validation, outliers, ["knn"])
    with pytest.raises(ValueError, match="outlier_scores has 4 rows, fewer than the 5 folds"):
        Trust().fit(validation, outliers[:4])
    with pytest.raises(ValueError, match="one row per input"):
        Trust().fit(Predictions([0.5], [1], count=[3], scores={"a": [0.1]}), outliers)
    with pytest.raises(ValueError, match="not fitted"):
        Trust().threshold(0.5)
    with pytest.raises(ValueError, match="scores have 2 columns, but trust reads 1: sufficient"):
        TRUST.relaxed([0.5], [[0.1, 0.2]])
    with pytest.raises(ValueError, match="error must lie in"):
        TRUST.threshold_for_error(-0.1)
    with pytest.raises(ValueError, match="names a name for each"):
        Trust().fit_arrays(validation.confidence, validation.columns(), outliers.columns(), ["a", "b"])
