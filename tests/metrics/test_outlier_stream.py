"""Measures of a stream with outliers, against streams that are drawn or written out, and other libraries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from calibrant import metrics
from calibrant.metrics import bootstrap


def data(n=240, k=160, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    confidence, other = rng.beta(5, 2, n), rng.beta(3, 3, k)
    if ties:
        confidence, other = np.round(confidence, 1), np.round(other, 1)
    return confidence, rng.random(n) < confidence, other


def written_out(share, n, k):
    """How often each ID and each OOD input is repeated so that `share` of all is OOD: whole numbers a n : b k."""
    parts = {0.1: (9, 1), 0.5: (1, 1)}[share]
    return parts[0] * k, parts[1] * n


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("coverage", [1.0, 0.6])
@pytest.mark.parametrize("ties", [False, True])
def test_wrong_answers_and_ece_are_those_of_the_stream_written_out(share, coverage, ties):
    confidence, correct, other = data(24, 16, ties=ties)
    cut = metrics.threshold_at_coverage(confidence, coverage)
    inside, outside = confidence >= cut, other >= cut
    a, b = written_out(share, 24, 16)
    level = np.r_[np.repeat(confidence[inside], a), np.repeat(other[outside], b)]
    right = np.r_[np.repeat(correct[inside], a), np.zeros(b * outside.sum())]
    assert a * 24 / (a * 24 + b * 16) == pytest.approx(1 - share)
    found = metrics.wrong_answers(correct, inside, outside, share=share)
    assert found == pytest.approx(1 - right.mean(), abs=1e-12)
    error = metrics.stream_calibration_error(confidence, correct, other, inside, outside, share=share)
    assert error == pytest.approx(metrics.expected_calibration_error(level, right), abs=1e-12)


@given(k=st.floats(0.01, 1), e=st.floats(0, 1), o=st.floats(0, 1), pi=st.sampled_from([0.0, 0.1, 0.5]))
@settings(deadline=None, max_examples=50)
def test_wrong_answers_are_the_formula(k, e, o, pi):
    taken, wrong, through = round(200 * k), round(200 * k * e), round(100 * o)
    if taken == 0:
        return
    correct = np.r_[np.zeros(wrong), np.ones(200 - wrong)]
    accepted = np.r_[np.ones(taken), np.zeros(200 - taken)]
    k, e, o = taken / 200, wrong / taken, through / 100
    expected = ((1 - pi) * k * e + pi * o) / ((1 - pi) * k + pi * o)
    other = np.r_[np.ones(through), np.zeros(100 - through)]
    assert metrics.wrong_answers(correct, accepted, other, share=pi) == pytest.approx(expected, abs=1e-12)


def test_without_outliers_the_measures_are_those_of_id_data():
    confidence, correct, other = data()
    accepted, none = confidence > 0.7, other > 0.7
    assert metrics.wrong_answers(correct, accepted, none, share=0) == pytest.approx(
        metrics.error_rate(correct[accepted])
    )
    assert metrics.error_rate(correct) == pytest.approx(1 - metrics.accuracy(correct))
    error = metrics.stream_calibration_error(confidence, correct, other, share=0)
    assert error == pytest.approx(metrics.expected_calibration_error(confidence, correct))
    assert metrics.stream_aurc(confidence, correct, other, share=0) == pytest.approx(metrics.aurc(confidence, correct))
    grid = [0.2, 0.5, 1.0]
    np.testing.assert_allclose(
        metrics.stream_risk(confidence, correct, other, grid, share=0),
        metrics.selective_risk(confidence, correct, grid),
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_curve_is_wrong_answers_at_every_threshold_and_the_area_is_its_sum(ties, share):
    confidence, correct, other = data(60, 40, seed=2, ties=ties)
    levels = np.unique(confidence)[::-1]
    covered = np.array([(confidence >= cut).mean() for cut in levels])
    risk = [metrics.wrong_answers(correct, confidence >= cut, other >= cut, share=share) for cut in levels]
    found = metrics.stream_risk(confidence, correct, other, covered, share=share)
    np.testing.assert_allclose(found, risk)
    area = np.sum(np.diff(covered, prepend=0) * risk)
    assert metrics.stream_aurc(confidence, correct, other, share=share) == pytest.approx(area)


def test_confidence_that_knows_the_share_of_outliers_is_calibrated_in_the_stream():
    """c(x) (1 - pi) is right with probability c (1 - pi) when outliers look like ID inputs."""
    rng = np.random.default_rng(0)
    confidence, other = rng.beta(5, 2, 200_000), rng.beta(5, 2, 200_000)
    correct = rng.random(200_000) < confidence
    for share in (0.1, 0.5):
        naive = metrics.stream_calibration_error(confidence, correct, other, share=share)
        assert naive == pytest.approx(share * confidence.mean(), abs=5e-3)
        aware = (1 - share) * confidence, correct, (1 - share) * other
        assert metrics.stream_calibration_error(*aware, share=share) < 5e-3


@pytest.mark.parametrize("ties", [False, True])
def test_augrc_is_the_closed_form_by_auroc(ties):
    """Traub et al. 2024: (1 - AUROC) a (1 - a) + (1 - a)^2 / 2, the AUROC being scikit-learn's."""
    confidence, correct, _ = data(300, seed=3, ties=ties)
    right = correct.mean()
    expected = (1 - roc_auc_score(correct, confidence)) * right * (1 - right) + (1 - right) ** 2 / 2
    assert metrics.augrc(confidence, correct) == pytest.approx(expected, abs=1e-12)


def test_augrc_is_the_mean_over_coverage_of_accepted_and_wrong():
    confidence, correct, _ = data(500, seed=4)
    order = np.argsort(-confidence)
    joint = np.r_[0, np.cumsum(~correct[order]) / 500]
    assert metrics.augrc(confidence, correct) == pytest.approx(np.trapezoid(joint, dx=1 / 500), abs=1e-12)


def test_intervals_are_those_of_resampled_rows():
    confidence, correct, other = data(80, 50)
    arrays = confidence, correct, other
    taken = confidence > 0.6, other > 0.6

    def plain(confidence, correct, other, inside, outside):
        return metrics.stream_calibration_error(confidence, correct, other, inside, outside, share=0.1)

    ours = bootstrap(metrics.stream_calibration_error, *arrays, *taken, share=0.1, resamples=50, method="basic")
    theirs = bootstrap(plain, *arrays, *taken, groups=(0, 0, 1, 0, 1), resamples=50)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx((theirs.estimate, theirs.low, theirs.high))
    ours = bootstrap(metrics.stream_aurc, confidence, correct, other, share=0.5, resamples=50)
    theirs = bootstrap(lambda a, b, c: metrics.stream_aurc(a, b, c, share=0.5), *arrays, groups=(0, 0, 1), resamples=50)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx((theirs.estimate, theirs.low, theirs.high))


def test_nothing_accepted_is_undefined_and_bad_input_is_one_sentence():
    assert np.isnan(metrics.wrong_answers([1, 0], [0, 0], [0], share=0.1))
    assert np.isnan(metrics.stream_calibration_error([0.5], [1], [0.5], [0], [0], share=0.1))
    with pytest.raises(ValueError, match="share must lie in"):
        metrics.wrong_answers([1], [1], [1], share=1.0)
    with pytest.raises(ValueError, match="id_correct has 2 entries, but id_accepted has 1"):
        metrics.wrong_answers([1, 0], [1], [1], share=0.1)
    with pytest.raises(ValueError, match="ood_accepted must hold only 0"):
        metrics.outliers_accepted([0.5])
    with pytest.raises(ValueError, match="ood_accepted has 2 entries"):
        metrics.stream_calibration_error([0.5], [1], [0.5], [1], [1, 1], share=0.1)
    with pytest.raises(ValueError, match="coverages is empty"):
        metrics.stream_risk([0.5], [1], [0.5], [], share=0.1)


def test_detection_with_rejections_is_the_librarys_at_a_coverage():
    confidence, _, other = data()
    cut = metrics.threshold_at_coverage(confidence, 0.4)
    for corrected in (False, True):
        found = metrics.detection_with_rejections(
            confidence, other, confidence >= cut, other >= cut, corrected=corrected
        )
        assert found == pytest.approx(
            metrics.system_detection_rate(confidence, other, coverage=0.4, corrected=corrected)
        )
    assert metrics.accepted_share(confidence >= cut) == metrics.coverage(confidence, cut)
    assert metrics.outliers_accepted(other >= cut) == pytest.approx((other >= cut).mean())


@pytest.mark.parametrize(("id_taken", "ood_taken"), [(0.9, 0.2), (0.3, 0.8), (1.0, 1.0), (0.0, 0.5)])
def test_detection_with_rejections_counts_right_verdicts(id_taken, ood_taken):
    """Which points are accepted has nothing to do with their confidence here, so no threshold gives the same."""
    confidence, _, other = data()
    rng = np.random.default_rng(1)
    inside, outside = rng.random(240) < id_taken, rng.random(160) < ood_taken
    right_id, right_ood = 0.0, np.mean(~outside)
    for m in range(15):
        p, q = (
            np.mean(taken & (m / 15 < level) & (level <= (m + 1) / 15))
            for level, taken in ((confidence, inside), (other, outside))
        )
        right_id, right_ood = (right_id + p, right_ood) if p >= q else (right_id, right_ood + q)
    found = metrics.detection_with_rejections(confidence, other, inside, outside)
    assert found == pytest.approx((right_id + right_ood) / 2)
