"""What the measured remedies mean, in plain sentences, and the lines that apply the best one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calibrant.audit.outliers_answered import (
    COVERAGE,
    FEWEST_OUTLIERS,
    SHARES,
    outlier_scores,
    recalibrated_record,
    recalibration_of,
)
from calibrant.audit.paired import Paired
from calibrant.audit.recalibrated import UNCHANGED, LossParts, Recalibrations
from calibrant.audit.rejected import EVERYTHING, TOLERATED, threshold_of
from calibrant.audit.sample import Sample
from calibrant.metrics import Interval

FEW_ROWS = 100
WORTH = 0.05
"""The share of a loss from which on its calibration part is worth working on."""
NEARLY = 1.3
"""Up to this many times the tolerated error, a threshold that was chosen for it on other rows nearly keeps it."""
HALF = f"wrong answers, {100 * SHARES[-1]:.0f} % outliers"
NAMES = {"temperature": "temperature scaling", "isotonic": "isotonic regression", "vector": "vector scaling"}
MEANINGS = {
    "temperature": "Temperature scaling divides all logits by one number",
    "isotonic": "Isotonic regression is the increasing function of the probability that fits best",
    "vector": "Vector scaling divides all logits by one number, then gives each class a factor and an offset",
}
SCORES = {
    "entropy": "the entropy of the probabilities",
    "gen": "the generalized entropy of the probabilities (Liu et al. 2023)",
    "energy": "minus the logarithm of the sum of exp(logit)",
    "max_logit": "minus the largest logit",
}
COLUMN = "a score in the tables"
TRUST = "the probability that an answer is right where outliers come in as well"


@dataclass(frozen=True, eq=False)
class Findings:
    """All that was measured; `outliers` by the name of the OOD table: measures, best score, scores that trust read.

    `far` is what was drawn of each.
    """

    sample: Sample
    best: str | None
    changed: Recalibrations
    parts: tuple[LossParts, ...]
    thresholds: Paired
    outliers: dict[str, tuple[Paired, str, tuple[str, ...]]]
    far: Mapping[str, Sample]


@dataclass(frozen=True)
class Advice:
    """What to do, in sentences: what comes first, what gains measurably besides, and what else was measured."""

    first: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


def advice_of(found: Findings) -> Advice:
    """A calibrator that gains comes first, else what gains against outliers; where nothing does, that."""
    recalibration, gains = tuple(_recalibration(found)), tuple(_gains(found))
    split = (split_of(found.parts[0], found.best),) if found.changed.told else ()
    rest = (*_threshold(found), *_outliers(found))
    if found.best is not None:
        return Advice(recalibration, gains, (*split, *rest))
    if gains:
        return Advice(gains[:1], gains[1:], (*recalibration, *split, *rest))
    return Advice((*recalibration, *split), (), rest)


def limits_of(found: Findings) -> Iterator[str]:
    """What cannot be told."""
    if len(found.sample) < FEW_ROWS:
        yield f"{only(len(found.sample))}, so small gains cannot be told from chance."
    if len(found.sample) < found.sample.total:
        size, total = len(found.sample), found.sample.total
        yield f"What remedies gain was measured on {size:,} of the {total:,} rows, drawn at random."


def code_of(found: Findings, command: str | None, call: str, given: str) -> Iterator[str]:
    """The command and the lines of Python that apply the best remedies, which run as they are.

    `given` is what the table was made of, and mostly what the lines call it: "probabilities" or "logits" (N, C),
    "score" (N,) of the positive class, "log odds", which they call `logits`, or "confidence". The lines about outliers
    also read `result`, which is what `call` returns where there is a `command`, and else at hand; and `scores`, the
    detectors' columns by name.
    """
    if found.best is not None:
        yield (
            'result.remedies.write_calibrator("calibrator.json")'
            if command is None
            else f"{command} --write-calibrator calibrator.json"
        )
        yield "from calibrant import calibrators"
        yield 'calibrator = calibrators.load("calibrator.json")'
        if given == "log odds":
            yield "calibrator.probabilities(logits.reshape(-1, 1))"
        else:
            yield f"calibrator.{'probabilities' if given == 'logits' else 'of_probabilities'}({given})"
    chosen = _best_rule(found)
    if chosen is not None:
        if command is not None:
            yield "from calibrant.audit import audit"
            yield f"result = {call}"
        yield from _rule_lines(found, *chosen, given)


def _best_rule(found: Findings) -> tuple[str, str] | None:
    """The first OOD table about which something beats the confidence as it is, and the best of what does."""
    for name in _trusting(found):
        return name, "trust"
    for name, (measured, _, _) in found.outliers.items():
        if _score_helps(found, name):
            return name, "score"
        if _beats(measured, "recalibrated", "confidence"):
            return name, "recalibrated"
    return None


def _rule_lines(found: Findings, ood: str, system: str, given: str) -> Iterator[str]:
    """Lines that say which of new inputs are answered, at 80 % coverage of the labeled ones."""
    _, best, read = found.outliers[ood]
    far = found.far[ood]
    values = {"log odds": "logits=logits", "logits": "logits=logits", "confidence": "confidence=confidence"}
    both = found.sample.by_class and far.probabilities is not None
    arguments = values.get(given, f"probabilities={given}") if both else "confidence=confidence"
    columns = {"trust": set(read), "score": {best}}.get(system, set())
    arguments += ", scores=scores" if columns & set(found.sample.scores) else ""
    if system == "trust":
        yield "from calibrant import Trust"
        yield f"validation, outliers = result.remedies.records({ood!r})"
        yield f"trust = Trust(share=0.1).fit(validation, outliers, {list(read)})"
        yield f"trust.threshold({COVERAGE})"
    yield f"new = result.remedies.record({arguments})"
    if system == "trust":
        yield "answered = trust.accept(new.confidence, new.columns(trust.names))"
        return
    if system == "recalibrated":
        level, _ = recalibrated_record(found.sample, found.sample, by_class=both)
        yield f"answered = new.confidence >= {threshold_of(level, level, coverage=COVERAGE)!r}"
        return
    score = -outlier_scores(recalibration_of(found.sample, by_class=both)[0])[best]
    yield f"answered = new.scores[{best!r}] <= {-threshold_of(score, score, coverage=COVERAGE)!r}"


def without_outputs(command: str) -> str:
    """The command line of an audit without what it was to write, print or judge.

    >>> without_outputs("calibrant audit a/preds.csv --json --write-calibrator=c.json --fail-if 'ece > 5%' --label y")
    'calibrant audit a/preds.csv --label y'
    """
    kept, parts = [], iter(shlex.split(command))
    for part in parts:
        name, equals, _ = part.partition("=")
        if name in ("--write-calibrator", "--fail-if", "--fail-by"):
            _ = equals or next(parts, "")
        elif name != "--json":
            kept.append(part)
    return shlex.join(kept)


def _trusting(found: Findings) -> list[str]:
    """The OOD tables whose wrong answers trust lowers measurably."""
    measured = {name: one for name, (one, _, _) in found.outliers.items() if f"trust: {HALF}" in one.values}
    return [name for name, one in measured.items() if _trust_helps(one)]


def _base(found: Paired) -> str:
    """What everything has to beat: a threshold on the confidence, recalibrated or as it is, whichever is better."""
    return min(("confidence", "recalibrated"), key=lambda system: found.values[f"{system}: {HALF}"])


def _trust_helps(found: Paired) -> bool:
    """Whether trust measurably beats thresholds on the confidence, and is no worse than one on the best score."""
    return _beats(found, "trust", _base(found)) and found.values[f"trust: {HALF}"] <= found.values[f"score: {HALF}"]


def _beats(found: Paired, system: str, other: str) -> bool:
    """Whether the wrong answers are measurably fewer."""
    return found.difference(f"{system}: {HALF}", f"{other}: {HALF}").high < 0


def _recalibration(found: Findings) -> Iterator[str]:
    measured, best, few = found.changed.measured, found.best, found.changed.few
    which = "of being right " if not found.sample.by_class else ""
    if not found.changed.told:
        kind = "wrong" if found.sample.wrong.mean() < 0.5 else "right"
        yield (
            f"{counted(few, len(found.sample), kind)}, so it cannot be told what recalibration would gain, and none is"
            " recommended."
        )
        return
    if best is None:
        yield "No recalibration lowers the log loss measurably, so none is recommended."
        return
    log_loss = measured.difference(f"{best}: log loss", f"{UNCHANGED}: log loss")
    ece = (_percent(found.changed.errors[name]) for name in (UNCHANGED, best))
    values = measured.values
    before, after = values[f"{UNCHANGED}: log loss"], values[f"{best}: log loss"]
    yield (
        f"Recalibrate by {NAMES[best]}: on rows that it was not fitted to, the log loss {which}falls from {before:.3f}"
        f" to {after:.3f} ({_signed(log_loss, 1, 3)}) and the ECE from {' to '.join(ece)}."
    )
    moved = found.changed.changed(best) if found.sample.by_class else 0.0
    if moved > 0:
        accuracy = (100 * values[f"{name}: accuracy"] for name in (UNCHANGED, best))
        yield f"It changes the predicted class of {100 * moved:.1f} % of the rows: accuracy {_to(*accuracy)} %."
    elif found.sample.by_class:
        yield "No predicted class changes."
    loss = "the log loss is the mean of minus the logarithm of the probability given to the truth"
    yield f"{MEANINGS[best]}; {loss}."


def only(rows: int) -> str:
    """The beginning of a sentence about few rows.

    >>> only(1), only(89)
    ('There is only 1 row', 'There are only 89 rows')
    """
    return f"There {'is' if rows == 1 else 'are'} only {rows} row{'' if rows == 1 else 's'}"


def counted(few: int, total: int, kind: str) -> str:
    """The beginning of a sentence about few answers of a kind.

    >>> counted(0, 19, "wrong"), counted(1, 200, "wrong"), counted(0, 1, "wrong")
    ('None of the 19 answers is wrong', 'Only 1 of the 200 answers is wrong', 'The only answer is right')
    """
    if total == 1 and few == 0:
        return f"The only answer is {'right' if kind == 'wrong' else 'wrong'}"
    many = f"None of the {total:,} answers" if few == 0 else f"Only {few} of the {total:,} answers"
    return f"{many} {'is' if few < 2 else 'are'} {kind}"


def split_of(part: LossParts, best: str | None) -> str:
    """Which part of a loss is worth working on."""
    total, removable = part.total, part.calibration
    if part.by == UNCHANGED or removable.low <= 0:
        return (
            f"As far as these rows tell, the {part.measure} of {total:.3f} is refinement: recalibration does not remove"
            " any of it, so the model is what to work on."
        )
    share = removable.estimate / total
    first = "Recalibrate before working on the model" if share >= WORTH else "The model is what to work on"
    simpler = "" if best in (None, part.by) else f" ({NAMES[str(best)]}, which is simpler, removes hardly less)"
    return (
        f"{first}: of the {part.measure} of {total:.3f}, {removable.estimate:.3f} ({removable.low:.3f} to"
        f" {removable.high:.3f}), {100 * share:.0f} %, is calibration, which {NAMES[part.by]} removes{simpler}, and"
        f" {part.refinement.estimate:.3f} is refinement, which only a better model lowers."
    )


def _threshold(found: Findings) -> Iterator[str]:
    values, sample = found.thresholds.values, found.sample
    wrong, error = sample.wrong, values[EVERYTHING]
    if error == 0:
        return
    tau = threshold_of(sample.confidence, wrong, coverage=0.8)
    share = float((sample.confidence >= tau).mean())
    if share < 1:
        part, answered = found.thresholds.interval("error at 80 % coverage"), f"{100 * share:.0f} % of the inputs"
        instead = f"the error is {_percent(part)} instead of {100 * error:.1f} %"
        yield (
            f"A confidence threshold: answering only from {_level(tau)} on, {answered}, {instead}."
            if found.thresholds.difference("error at 80 % coverage", EVERYTHING).high < 0
            else f"A confidence threshold does not lower the error measurably: of the surest {answered}, {instead}."
        )
    goals = [goal for goal in TOLERATED if goal < error]
    if goals:
        yield _tolerated(found, goals[0])


def _tolerated(found: Findings, goal: float) -> str:
    """The threshold at which at most the share `goal` of the answers is wrong, if one can be relied on."""
    sample, values, shown = found.sample, found.thresholds.values, f"{100 * goal:.0f} %"
    cover, reached = found.thresholds.interval(f"coverage at {shown} error"), values[f"error at {shown} error"]
    if cover.estimate <= 0:
        return f"No threshold on the confidence brings the error down to {shown}."
    if reached > NEARLY * goal:
        return (
            f"No threshold on the confidence reliably brings the error down to {shown}: the answers of one that was"
            f" chosen for it on one part of the rows are wrong in {100 * reached:.1f} % of another."
        )
    tau = threshold_of(sample.confidence, sample.wrong, error=goal)
    kept = f"so {shown} is kept" if reached <= goal else f"so {shown} is not quite kept: take a higher one"
    return (
        f"A threshold for {shown} errors: answering from a confidence of {_level(tau)} on, {_percent(cover)} of the"
        f" inputs. Chosen on one part of the rows and measured on another, it has {100 * reached:.1f} % errors, {kept}."
    )


def _gains(found: Findings) -> Iterator[str]:
    """What measurably lowers the wrong answers where outliers come in, with all OOD tables in one sentence."""
    trusted = _trusting(found)
    if trusted:
        yield (
            f"Against outliers, trust: {TRUST}. {_setting()}, trust lowers the wrong answers"
            f" {_gained(found, trusted, 'trust')}. Its threshold replaces the one on the confidence. It was fitted to"
            " outliers of the same kind, and others may gain less."
        )
    scored = [name for name in found.outliers if name not in trusted and _score_helps(found, name)]
    for score in dict.fromkeys(found.outliers[name][1] for name in scored):
        names = [name for name in scored if found.outliers[name][1] == score]
        yield (
            f"Against outliers, a threshold on {score}: {SCORES.get(score, COLUMN)}, which tells them"
            f" apart best. {_setting()}, it lowers the wrong answers {_gained(found, names, 'score')}."
        )


def _setting() -> str:
    return f"Where half of the inputs are outliers, and {100 * COVERAGE:.0f} % of the others are answered"


def _gained(found: Findings, names: Sequence[str], system: str) -> str:
    """From what to what, for each of these OOD tables, beside the better threshold on the confidence."""
    parts = []
    for name in names:
        measured, size = found.outliers[name][0], len(found.far[name])
        base = _base(measured)
        before, after = (100 * measured.values[f"{one}: {HALF}"] for one in (base, system))
        change = _signed(measured.difference(f"{system}: {HALF}", f"{base}: {HALF}"), 100, 1)
        through = " instead of ".join(_through(measured, one, size) for one in (system, base))
        parts.append(
            f"from {_to(before, after)} % for {name} ({change} points; of {size:,} outliers, {through} are answered)"
        )
    return _and(parts)


def _score_helps(found: Findings, name: str) -> bool:
    measured, best, _ = found.outliers[name]
    return best != "confidence" and _beats(measured, "score", _base(measured))


def _outliers(found: Findings) -> Iterator[str]:
    """What thresholds on the confidence do with outliers, and what does not help against them."""
    for base, called in (("confidence", "confidence"), ("recalibrated", "recalibrated confidence")):
        parts = [
            f"{100 * measured.values[f'{base}: {HALF}']:.1f} % for {name}"
            f" ({_through(measured, base, len(found.far[name]))} of its {len(found.far[name]):,} outliers are answered)"
            for name, (measured, _, _) in found.outliers.items()
            if _base(measured) == base
        ]
        if parts:
            yield f"{_setting()} by a threshold on the {called}, the share of wrong answers is {_and(parts)}."
    told: dict[tuple[str, str], list[str]] = {}
    if found.outliers and not _trusting(found):
        yield f"Trust is {TRUST}."
    for name, (measured, best, read) in found.outliers.items():
        if best != "confidence" and not _score_helps(found, name):
            wrong = f"{100 * measured.values[f'score: {HALF}']:.1f} % for {name}"
            start = f"A threshold on {best} ({SCORES.get(best, COLUMN)}) does not lower the wrong answers measurably:"
            told.setdefault((start, "."), []).append(wrong)
        if name not in _trusting(found):
            start, part, end = _no_trust(name, measured, best, read)
            told.setdefault((start, end), []).append(part)
    yield from (f"{start} {_and(parts)}{end}" for (start, end), parts in told.items())


def _no_trust(name: str, found: Paired, best: str, read: tuple[str, ...]) -> tuple[str, str, str]:
    """Why trust is not recommended for an OOD table: how the sentence starts, its part of it, and how it ends."""
    if f"trust: {HALF}" not in found.values:
        lack = (
            f"at least {FEWEST_OUTLIERS} outliers, and probabilities, logits or detectors' scores beside the confidence"
        )
        return "Trust was not tried on", name, f": it needs {lack} in both tables."
    if not read:
        end = " apart, so trust cannot help; a detector's might."
        return "No score in the tables tells the outliers of", name, end
    wrong, base = f"{100 * found.values[f'trust: {HALF}']:.1f} % for {name}", _base(found)
    if found.difference(f"trust: {HALF}", f"{base}: {HALF}").high < 0:
        return f"Trust does no better than a threshold on {best}:", wrong, " with trust."
    hint = " A detector's score in both tables might help." if best == "confidence" else ""
    return "Trust does not lower the wrong answers measurably:", wrong, f" with it.{hint}"


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _through(found: Paired, system: str, size: int) -> str:
    """How many of the outliers a system answers."""
    return f"{round(found.values[f'{system}: outliers answered'] * size):,}"


def _signed(value: Interval, factor: float, digits: int) -> str:
    """A difference with its interval."""
    return (
        f"{factor * value.estimate:+.{digits}f}, {factor * value.low:+.{digits}f} to {factor * value.high:+.{digits}f}"
    )


def _level(threshold: float) -> str:
    """A threshold, with as many digits as tell it from 1.

    >>> _level(0.8768), _level(0.99998765)
    ('0.877', '0.999988')
    """
    digits = math.ceil(-math.log10(1 - threshold)) + 1 if threshold < 1 else 0
    return f"{threshold:.{min(max(digits, 3), 12)}f}"


def _percent(value: Interval) -> str:
    return f"{100 * value.shown:.1f} % ({100 * max(value.low, 0):.1f} to {100 * min(value.high, 1):.1f})"


def _to(before: float, after: float) -> str:
    return f"{before:.1f} to {after:.1f}"
