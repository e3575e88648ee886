"""Members one after another, until a different decision has become improbable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.predictions import Decision
from calibrant.selective.rule import DecisionRule

_EDGE = 1e-7  # logits of gates are taken no closer to 0 and 1 than float32 can tell them apart


@dataclass(frozen=True)
class EarlyStopping:
    r"""Stop an input once its decision is unlikely to differ from that of all K members.

    After n members, a statistic that is a mean over members differs from its value over all K with standard error
    sqrt(s^2 / n (1 - n / K)), s^2 being the variance over the members seen: in an order drawn with `seed`, they are a
    sample of the K without replacement. An input stops when both

    - for every rival class, the mean lead of the leading class in probability, and
    - the distance of logit g from the logit of the threshold, its standard error by the jackknife over members

    exceed t standard errors, t being Student's quantile with n - 1 degrees of freedom at error / 2 / (K - min_members).
    By the union bound over the looks and the two questions, the decision then differs with probability at most
    `error`, were the values normal over the members; the rate measured is far lower. A lead that the members to come
    cannot make up, n lead > K - n, needs no test.

    With a calibrator, g is that of the calibrated mean. If the calibrator can change the predicted class, the lead is
    that of the calibrated mean, too, its standard error by the jackknife, and every lead is tested.
    """

    error: float = 0.02
    min_members: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise InputError(f"error must lie in (0, 1), not {self.error}")
        if self.min_members < 2:
            raise InputError(f"min_members must be at least 2, for a variance, not {self.min_members}")

    def order(self, total: int) -> list[int]:
        """The order in which the members are evaluated."""
        return torch.randperm(total, generator=torch.Generator("cpu").manual_seed(self.seed), device="cpu").tolist()

    def quantile(self, seen: int, total: int) -> float:
        """How many standard errors are wanted after `seen` of `total` members."""
        from scipy import stats

        return float(stats.t.isf(self.error / 2 / (total - self.min_members), seen - 1))

    def settled(
        self,
        probabilities: Tensor,
        gate: Tensor,
        without: Tensor,
        threshold: float,
        total: int,
        *,
        bounded: bool = True,
    ) -> Tensor:
        """Whether each input may stop, (B,) bool.

        Args:
            probabilities: (n, B, C) of the members seen.
            gate: (B,) g of the means over the members seen.
            without: (n, B) g of the means without each of them in turn.
            threshold: what g is compared with.
            total: K.
            bounded: whether no member to come can move the lead by more than 1.
        """
        seen = len(probabilities)
        wanted, unseen = self.quantile(seen, total), 1 - seen / total
        leader = probabilities.mean(0).argmax(-1)
        lead = probabilities.gather(2, leader.expand(seen, -1)[..., None]) - probabilities
        mean, spread = lead.mean(0), (lead.var(0) / seen * unseen).sqrt()
        led = mean > wanted * spread
        if bounded:
            led |= seen * mean > total - seen
        led.scatter_(1, leader[:, None], True)
        if threshold <= 0 or threshold > 1:  # out of the reach of g
            return led.all(1) & ~gate.isnan()
        values = _logit(without)
        jackknife = (values - values.mean(0)).square().sum(0) * (seen - 1) / seen
        distance = (_logit(gate) - _logit(gate.new_tensor(threshold))).abs()
        return led.all(1) & (distance > wanted * (jackknife * unseen).sqrt())


def _logit(gate: Tensor) -> Tensor:
    return gate.clamp(_EDGE, 1 - _EDGE).logit()


RunMember = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def decide_early(
    early: EarlyStopping, rule: DecisionRule, run: RunMember, still: Tensor, total: int, threshold: float
) -> Decision:
    """Decisions on the inputs numbered by `still`, 0 to B - 1, each from as many of the `total` members as it needs.

    `run(k, rows)` evaluates member k on the rows that are still open, as `DecisionRule.member_outputs` returns it.
    """
    members = early.order(total)
    logits, extra = (part[None] for part in run(members[0], still))
    decided, order = [], []
    for seen in range(1, total + 1):
        done = _done(early, rule, logits, extra, total, threshold)
        if bool(done.any()):
            decided.append(rule.decide(logits[:, done], extra[:, done], threshold))
            order.append(still[done])
            still, logits, extra = still[~done], logits[:, ~done], extra[:, ~done]
        if len(still) == 0:
            break
        more_logits, more_extra = run(members[seen], still)
        logits, extra = torch.cat([logits, more_logits[None]]), torch.cat([extra, more_extra[None]])
    return Decision.concatenate(decided)[torch.cat(order).argsort()]


def _done(
    early: EarlyStopping, rule: DecisionRule, logits: Tensor, extra: Tensor, total: int, threshold: float
) -> Tensor:
    """Which of the inputs with logits (n, b, C) stop now, (b,) bool."""
    seen, batch = logits.shape[:2]
    if seen < early.min_members or seen >= total:
        return torch.full((batch,), seen >= total, device=logits.device)
    probabilities = logits.softmax(-1)
    rest = _leave_one_out(probabilities)
    without = rule.acceptance(rest.flatten(0, 1), _leave_one_out(extra).flatten(0, 1)).view(seen, batch)
    now = rule.acceptance(probabilities.mean(0), extra.mean(0))
    if rule.calibrator is None or rule.calibrator.keeps_class:
        return early.settled(probabilities, now, without, threshold, total)
    parts = rule.calibrated(rest.flatten(0, 1)).view_as(rest)
    pseudo = rule.calibrated(probabilities.mean(0)) + (seen - 1) * (parts.mean(0) - parts)
    return early.settled(pseudo, now, without, threshold, total, bounded=False)


def _leave_one_out(values: Tensor) -> Tensor:
    """Means over all members but one, for each (n, B, E)."""
    return (values.sum(0) - values) / (len(values) - 1)
