from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from predictors import digits
from scipy import stats
from torch import Tensor, nn

from calibrant import Ensemble, MeanField
from calibrant.deploy import EarlyStopping, Predictor
from calibrant.deploy.early import decide_early
from calibrant.detectors import OutlierScores
from calibrant.selective.rule import DecisionRule


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize("coverage", [0.3, 0.5, 0.9, 1.0])
def test_the_digits_need_few_members_for_the_same_decisions(coverage: float) -> None:
    parts = digits(20)
    predictor = parts.predictor(coverage)
    full, early = predictor(parts.test), predictor(parts.test, early=EarlyStopping())
    same = (full.predicted == early.predicted) & (full.accepted == early.accepted)
    assert same.float().mean() >= 0.99
    assert early.mean_members <= 13
    assert int(early.members.min()) >= 3
    assert int(early.members.max()) <= 20
    ran = early.members == 20
    torch.testing.assert_close(early.acceptance[ran], full.acceptance[ran], atol=1e-4, rtol=0)
    torch.testing.assert_close(early.probabilities[ran], full.probabilities[ran])


def test_a_smaller_error_takes_more_members() -> None:
    parts = digits(20)
    used = [parts.predictor(0.5)(parts.test, early=EarlyStopping(error=e)).mean_members for e in (0.2, 0.02, 0.001)]
    assert used == sorted(used)
    assert used[0] < used[2] < 20


def test_what_is_said_comes_from_the_members_seen() -> None:
    parts = digits(20)
    decision = parts.predictor(0.5, ood_score="energy")(parts.test[:60], early=EarlyStopping())
    assert len(set(decision.members.tolist())) > 3
    predictions = parts.ensemble.predict([parts.test[:60]])
    assert predictions.features is not None
    order = EarlyStopping().order(20)
    assert sorted(order) == list(range(20))
    for row, seen in enumerate(decision.members.tolist()):
        logits = predictions.logits[order[:seen], row]
        expected = logits.softmax(-1).mean(0)
        torch.testing.assert_close(decision.probabilities[row], expected)
        torch.testing.assert_close(decision.ood_score[row], -logits.logsumexp(-1).mean())
        first = [parts.outliers.members[k](predictions.features[k, row : row + 1]) for k in order[:seen]]
        torch.testing.assert_close(decision.predictions.columns()[row], torch.cat(first).mean(0), atol=1e-4, rtol=1e-4)


def simulate(center: Tensor, spread: float, error: float, threshold: float, seed: int) -> tuple[float, float]:
    """Share of other decisions, and members used, for two classes whose log odds are normal over 20 members."""
    generator = torch.Generator().manual_seed(seed)
    odds = center + spread * torch.randn(20, len(center), generator=generator, dtype=torch.float64)
    logits = torch.stack([odds, torch.zeros_like(odds)], -1)
    rule = DecisionRule(20, None, None, threshold, "confidence", None)

    def run(k: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        chosen = logits[k, rows]
        return chosen, chosen.new_empty(len(chosen), 0)

    early = decide_early(EarlyStopping(error=error), rule, run, torch.arange(len(center)), 20, threshold)
    full = rule.decide(logits, logits.new_empty(*logits.shape[:2], 0), threshold)
    differs = (early.predicted != full.predicted) | (early.accepted != full.accepted)
    return float(differs.double().mean()), early.mean_members


@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("error", [0.02, 0.2])
def test_other_decisions_are_rarer_than_stated(spread: float, error: float) -> None:
    generator = torch.Generator().manual_seed(1)
    center = 3 * torch.randn(4000, generator=generator, dtype=torch.float64)
    rate, used = simulate(center, spread, error, threshold=0.8, seed=2)
    assert rate <= error
    assert used < 20


def test_close_to_a_tie_nearly_all_members_are_used() -> None:
    rate, used = simulate(torch.zeros(500, dtype=torch.float64), 0.5, 0.02, threshold=0.5, seed=3)
    assert used > 18
    assert rate < 0.02


def settled_by_definition(
    rule: EarlyStopping, p: Tensor, gate: Tensor, without: Tensor, tau: float, K: int
) -> list[bool]:
    """The rule of the docstring for one input after another, in numpy and scipy."""
    n, result = len(p), []
    t = stats.t.ppf(1 - rule.error / (2 * (K - rule.min_members)), n - 1)
    for b in range(p.shape[1]):
        values = p[:, b].numpy()
        top = values.mean(0).argmax()
        certain = True
        for rival in set(range(values.shape[1])) - {int(top)}:
            lead = values[:, top] - values[:, rival]
            error = math.sqrt(np.var(lead, ddof=1) / n * (K - n) / K)
            certain &= bool(lead.mean() > t * error or n * lead.mean() > K - n)
        if 0 < tau <= 1:
            odds = [math.log(g / (1 - g)) for g in without[:, b].clamp(1e-7, 1 - 1e-7).tolist()]
            jackknife = math.sqrt((n - 1) / n * sum((o - sum(odds) / n) ** 2 for o in odds) * (K - n) / K)
            now, at = (min(max(v, 1e-7), 1 - 1e-7) for v in (float(gate[b]), tau))
            certain &= abs(math.log(now / (1 - now)) - math.log(at / (1 - at))) > t * jackknife
        result.append(certain)
    return result


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 9), st.sampled_from([-math.inf, 0.0, 0.3, 0.7, 1.0, math.inf]))
def test_the_rule_is_the_one_stated(seed: int, seen: int, tau: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    sharp = 4 * torch.randn(1, 12, 3, generator=generator, dtype=torch.float64)
    p = (sharp + 0.3 * torch.randn(seen, 12, 3, generator=generator, dtype=torch.float64)).softmax(-1)
    gate = torch.rand(12, generator=generator, dtype=torch.float64)
    without = (gate + 0.03 * torch.randn(seen, 12, generator=generator, dtype=torch.float64)).clamp(0, 1)
    rule = EarlyStopping(error=0.1)
    found = rule.settled(p, gate, without, tau, 10)
    assert found.tolist() == settled_by_definition(rule, p, gate, without, tau, 10)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_too_few_members_to_stop_are_all_used(members: int) -> None:
    predictor = Predictor(Ensemble.stack([network(k) for k in range(members)]), threshold=0.5)
    x = torch.randn(10, 4)
    full, early = predictor(x), predictor(x, early=EarlyStopping())
    assert early.members.tolist() == [members] * 10
    torch.testing.assert_close(early.probabilities, full.probabilities)
    assert torch.equal(early.predicted, full.predicted)


def test_equal_members_stop_at_once_and_broken_inputs_never() -> None:
    predictor = Predictor(Ensemble.stack([network(0)] * 12), threshold=0.5)
    x = torch.randn(10, 4)
    x[4] = math.nan
    early = predictor(x, early=EarlyStopping())
    assert early.members.tolist() == [3] * 4 + [12] + [3] * 5
    assert not early.accepted[4]
    one = predictor(x[:1], early=EarlyStopping(min_members=5))
    assert one.members.tolist() == [5]


class Counted(nn.Module):
    """Notes how many rows it was given, and leaves them as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.rows = nn.Parameter(torch.ones(4)), list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return x * self.weight


def with_a_head(*head: nn.Module) -> tuple[Predictor, list[int]]:
    """Twenty members of which only the head differs, and how many rows the layers before it are run on."""
    torch.manual_seed(0)
    for layer in head:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()  # those that it was made with come from no seed
    net = nn.Sequential(Counted(), nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sequential(*head))
    ensemble = MeanField(net, init_std=0.05, bayesian=lambda name, owner: name.startswith("4.")).sample(20)
    predictor = Predictor(ensemble, threshold=0.5)
    return predictor, predictor.ensemble.module[0].rows


def test_where_all_members_cost_about_one_they_are_all_used() -> None:
    predictor, rows = with_a_head(nn.Linear(64, 3))
    x = 3 * torch.randn(200, 4)
    full = predictor(x)
    for decision in (predictor(x, early=EarlyStopping()), predictor.predict(x.split(50), early=EarlyStopping())):
        assert torch.equal(decision.predicted, full.predicted)
        torch.testing.assert_close(decision.probabilities, full.probabilities)
    rows.clear()
    predictor(x, early=EarlyStopping())
    assert rows == [200]


@pytest.mark.parametrize(
    "head",
    [
        (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)),  # as large as what is shared
        (nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 1, 9), nn.Flatten(), nn.Linear(56, 3)),  # as expensive
    ],
)
def test_layers_that_members_share_are_run_on_less_than_twice_the_rows(head: tuple[nn.Module, ...]) -> None:
    predictor, rows = with_a_head(*head)
    ensemble, rule, x = predictor.ensemble, predictor.rule, 3 * torch.randn(200, 4)
    alone = [ensemble.as_callable(k)(x) for k in range(20)]

    def run(k: int, some: Tensor) -> tuple[Tensor, Tensor]:
        return rule.member_outputs(k, *(part[some].detach() for part in alone[k] if part is not None))

    expected = decide_early(EarlyStopping(), rule, run, torch.arange(200), 20, 0.5)
    assert 3 < expected.mean_members < 18
    for _ in range(2):
        rows.clear()
        early = predictor(x, early=EarlyStopping())
        assert torch.equal(early.members, expected.members)
        torch.testing.assert_close(early.probabilities, expected.probabilities, atol=1e-5, rtol=1e-4)
        assert torch.equal(early.predicted, expected.predicted)
    assert sum(rows) < 400


def test_drawn_members_are_kept_by_a_predictor_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, x = MeanField(network(0)).sample(5), torch.randn(10, 4)
    assert not drawn.members.held
    kept = Predictor(drawn)
    assert kept.ensemble.members.held
    size = 5 * 4 * sum(parameter.numel() for parameter in drawn.module.parameters())
    for limit, held in ((size, True), (size - 1, False)):
        monkeypatch.setattr("calibrant.deploy.predictor.KEPT", limit)
        predictor = Predictor(drawn)
        assert predictor.ensemble.members.held == held
        torch.testing.assert_close(predictor(x).probabilities, kept(x).probabilities)


def test_scores_of_averaged_features() -> None:
    ensemble, x = MeanField(network(0), init_std=0.05).sample(12), torch.randn(40, 4)
    features = ensemble.predict([x]).features
    assert features is not None
    outliers = OutlierScores(["density"]).fit(features.mean(0))
    predictor = Predictor(ensemble, outliers=outliers, threshold=0.4)
    early = predictor.predict(x.split(9), early=EarlyStopping())
    assert torch.equal(early.predicted, predictor(x).predicted)
    assert 3 <= early.mean_members < 12


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="error must lie in"):
        EarlyStopping(error=0.0)
    with pytest.raises(ValueError, match="min_members must be at least 2"):
        EarlyStopping(min_members=1)
