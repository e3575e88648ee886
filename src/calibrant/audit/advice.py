"""What the measured remedies mean, in plain sentences, and the lines that apply the best one."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
HALF = f"wrong answers, {100 * SHARES[-1]:.0f} % outliers"
NAMES = {"temperature": "temperature scaling", "isotonic": "isotonic regression", "vector": "vector scaling"}


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


def sentences_of(found: Findings) -> Iterator[str]:
    """What to do."""
    yield from _recalibration(found)
    yield split_of(found.parts[0], found.best)
    yield from _threshold(found)
    for name, (measured, best, read) in found.outliers.items():
        yield from _outliers(name, len(found.far[name]), measured, best, read)


def limits_of(found: Findings) -> Iterator[str]:
    """What cannot be told."""
    if len(found.sample) < FEW_ROWS:
        yield f"There are only {len(found.sample)} rows, so small gains cannot be told from chance."
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
    for name, (measured, _, _) in found.outliers.items():
        if f"trust: {HALF}" in measured.values and _trust_helps(measured):
            return name, "trust"
    for name, (measured, _, _) in found.outliers.items():
        if _beats(measured, "score", _base(measured)):
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


def without_outputs(command: str, table: str) -> str:
    """The command line of an audit without what it was to write or print, and with the table by its name.

    >>> without_outputs("calibrant audit a/preds.csv --json --write-calibrator c.json --label y", "a/preds.csv")
    'calibrant audit preds.csv --label y'
    """
    parts = shlex.split(command)
    dropped = {place for place, part in enumerate(parts) if part in ("--json", "--write-calibrator")}
    dropped |= {place + 1 for place, part in enumerate(parts) if part == "--write-calibrator"}
    kept = [part for place, part in enumerate(parts) if place not in dropped]
    return shlex.join([Path(part).name if part == table else part for part in kept])


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
    measured, best = found.changed.measured, found.best
    which = "of being right " if not found.sample.by_class else ""
    if best is None:
        yield "No recalibration lowers the log loss measurably, so none is recommended."
        return
    log_loss, ece = (measured.difference(f"{best}: {m}", f"{UNCHANGED}: {m}") for m in ("log loss", "ECE"))
    values = measured.values
    before, after = values[f"{UNCHANGED}: log loss"], values[f"{best}: log loss"]
    yield (
        f"Recalibrate by {NAMES[best]}: on rows that it was not fitted to, the log loss {which}falls from {before:.3f}"
        f" to {after:.3f} ({_signed(log_loss, 1, 3)}) and the ECE from {100 * values[f'{UNCHANGED}: ECE']:.1f} to"
        f" {100 * values[f'{best}: ECE']:.1f} % ({_signed(ece, 100, 1)} points)."
    )
    moved = found.changed.changed(best) if found.sample.by_class else 0.0
    if moved > 0:
        accuracy = (100 * values[f"{name}: accuracy"] for name in (UNCHANGED, best))
        yield f"It changes the predicted class of {100 * moved:.1f} % of the rows: accuracy {_to(*accuracy)} %."
    elif found.sample.by_class:
        yield "No predicted class changes."


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
        yield (
            f"A confidence threshold: answering only from {_level(tau)} on, {100 * share:.0f} % of the inputs, the"
            f" error is {_percent(found.thresholds.interval('error at 80 % coverage'))} instead of {100 * error:.1f} %."
        )
    goals = [goal for goal in TOLERATED if goal < error]
    if goals:
        tau = threshold_of(sample.confidence, wrong, error=goals[0])
        cover = found.thresholds.interval(f"coverage at {100 * goals[0]:.0f} % error")
        reached = values[f"error at {100 * goals[0]:.0f} % error"]
        yield (
            f"For at most {100 * goals[0]:.0f} % errors, answer from a confidence of {_level(tau)} on: that is"
            f" {_percent(cover)} of the inputs, with {100 * reached:.1f} % errors on rows that did not choose it."
            if cover.estimate > 0
            else f"No threshold on the confidence brings the error down to {100 * goals[0]:.0f} %."
        )


def _outliers(name: str, size: int, found: Paired, best: str, read: tuple[str, ...]) -> Iterator[str]:
    base = _base(found)
    called = {"confidence": "confidence", "recalibrated": "recalibrated confidence"}
    yield (
        f"In a stream of which half are outliers like those of {name}, with 80 % of the ID inputs answered, a threshold"
        f" on the {called[base]} answers {_through(found, base, size)} of the {size:,} outliers, and"
        f" {100 * found.values[f'{base}: {HALF}']:.1f} % of the answers are wrong."
    )
    if best != "confidence":
        change = found.difference(f"score: {HALF}", f"{base}: {HALF}")
        yield (
            f"A threshold on {best}, the score that tells these outliers apart best, answers"
            f" {_through(found, 'score', size)} of them: {100 * found.values[f'score: {HALF}']:.1f} % wrong"
            f" ({_signed(change, 100, 1)} points)."
        )
    if f"trust: {HALF}" not in found.values:
        lack = (
            f"at least {FEWEST_OUTLIERS} outliers, and probabilities, logits or detectors' scores beside the confidence"
        )
        yield f"Trust was not tried on {name}: it needs {lack} in both tables."
    elif not read:
        yield f"No score in the tables tells the outliers of {name} apart, so trust cannot help; a detector's might."
    else:
        yield _trust(found, size, best)


def _trust(found: Paired, size: int, best: str) -> str:
    wrong, base = f"{100 * found.values[f'trust: {HALF}']:.1f} %", _base(found)
    if not _trust_helps(found):
        hint = " A detector's score in both tables might help." if best == "confidence" else ""
        return f"Trust does not lower the wrong answers measurably: {wrong} with it.{hint}"
    change = _signed(found.difference(f"trust: {HALF}", f"{base}: {HALF}"), 100, 1)
    ten = f"wrong answers, {100 * SHARES[0]:.0f} % outliers"
    rare = _to(*(100 * found.values[f"{system}: {ten}"] for system in (base, "trust")))
    return (
        f"Trust lowers the wrong answers: to {wrong} ({change} points), and with 10 % outliers {rare} %. At the same"
        f" coverage it answers {_through(found, 'trust', size)} of the {size:,} outliers; it was fitted to outliers of"
        " the same kind, and others may gain less."
    )


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
