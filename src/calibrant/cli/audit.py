"""`calibrant audit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.errors import GateFailed, resumable

if TYPE_CHECKING:
    from calibrant.audit import AuditResult
    from calibrant.audit.gate import By

EXAMPLES = """
calibrant audit predictions.csv               # columns are found by name; the page is predictions-audit.html
calibrant audit predictions.parquet --ood photos.parquet --ood noise.parquet --out audit.html
calibrant audit log.csv --confidence sure --label truth --predicted answer
calibrant audit log.csv --confidence sure --correct was_right --json
calibrant audit mails.csv --score prob --positive spam   # two classes: prob is P(spam), predict_proba(X)[:, 1]
calibrant audit outputs.npz --probabilities softmax --label y
calibrant audit outputs.csv --probabilities cat,dog,owl  # three columns
calibrant audit outputs.csv --logits z_                  # columns z_0, z_1, ...
calibrant audit predictions.csv --fail-if "ece > 0.05" --fail-if "error@0.9 > 2%"   # in CI: exit code 3
calibrant audit predictions.csv --fail-if "ece > 0.05" --fail-by all --json
calibrant audit predictions.csv --write-calibrator calibrator.json
calibrant audit predictions.csv --slice camera --slice age   # where it is worse than elsewhere
"""


def _column(text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="COLUMN", help=text)
    return option


def command(
    predictions: Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="CSV, TSV, Parquet or NPZ.")],
    ood: Annotated[
        list[Path] | None,
        typer.Option("--ood", metavar="FILE", help="Predictions on inputs unlike the training data; repeatable."),
    ] = None,
    confidence: Annotated[str | None, _column("The confidence in the class that was predicted.")] = None,
    probabilities: Annotated[
        str | None, _column("All classes: a column of lists, how their columns start, or all of them: a,b,c.")
    ] = None,
    logits: Annotated[
        str | None, _column("The same before the softmax; a single number per row is the log odds of --positive.")
    ] = None,
    score: Annotated[str | None, _column("Two classes: the probability of --positive.")] = None,
    positive: Annotated[
        str | None, typer.Option(metavar="CLASS", help="The class of --score; default: 1 of 0 and 1.")
    ] = None,
    label: Annotated[str | None, _column("The true class; rows without one are left out.")] = None,
    predicted: Annotated[str | None, _column("The predicted class.")] = None,
    correct: Annotated[str | None, _column("1 where the prediction is right, else 0.")] = None,
    detector: Annotated[
        list[str] | None, _column("An outlier score (larger is more outlying) in all tables; repeatable.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--slice", metavar="COLUMN", help="Compare rows by the values of this column, text or numbers; repeatable."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="A,B,C|N", help="The classes in the order of the probabilities, or how many."),
    ] = None,
    percent: Annotated[bool, typer.Option("--percent", help="Probabilities and confidences are percentages.")] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with code 3 if MEASURE[@COVERAGE] (<, <=, > or >=) NUMBER[%] holds; repeatable. Measures are"
            " those of --json: ece, accuracy, brier, auroc, ..., and error.",
        ),
    ] = None,
    fail_by: Annotated[
        str,
        typer.Option(
            metavar="estimate|any|all",
            help="What --fail-if compares: the estimate, any value of its interval (strict), or all of them (lenient).",
        ),
    ] = "estimate",
    bins: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Confidence bins.")] = 15,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What to call the system.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="The page; default: PREDICTIONS-audit.html here.")
    ] = None,
    tolerated_error: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="The page opens at the largest coverage with at most this error: 0.02, 2%."),
    ] = None,
    remedies: Annotated[
        bool, typer.Option("--remedies/--no-remedies", help="Measure what each remedy would gain.")
    ] = True,
    write_calibrator: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the calibrator that gains most.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check a model's calibration from its predictions alone.

    The table says how sure the model was (a confidence, the probabilities or logits of all classes, or the score of one
    of two classes) and whether it was right (the label, beside a confidence also the predicted class, or a column of 0
    and 1). Columns with the usual names are found; where a column could mean two things, the error names the option
    that decides. Separators and decimal commas are recognized. Tables of any length take bounded memory. With --json, a
    page is written only if --out asks for one.
    """
    columns = {"confidence": confidence, "probabilities": probabilities, "logits": logits, "score": score}
    columns |= {"label": label, "predicted": predicted, "correct": correct}
    if write_calibrator is not None and not remedies:
        raise InputError("--write-calibrator needs the remedies: leave out --no-remedies")
    page = out if out is not None or json else Path(f"{predictions.stem}-audit.html")
    for file in (page, write_calibrator):
        if file is not None:
            from calibrant.files import writable_file

            writable_file(file, [predictions, *(ood or ())])
    from calibrant.audit import audit
    from calibrant.audit.gate import parse_conditions

    parse_conditions(fail_if or (), fail_by, ood=bool(ood))
    with resumable(lambda: "stopped; nothing was written: start again"), output.share_display("rows") as show:
        found = audit(
            predictions,
            ood=ood,
            columns={role: column for role, column in columns.items() if column is not None},
            positive=positive,
            classes=_classes(classes),
            percent=percent,
            detectors=detector or (),
            slices=by or (),
            page=page,
            name=name,
            bins=bins,
            progress=show,
            commands=[options.command_line()],
            remedies=remedies,
            tolerated_error=_share(tolerated_error),
        )
        failures = found.failures(fail_if or (), _by(fail_by))
    if json:
        output.print_json({**_plain(found), **({"failures": failures} if fail_if else {})})
    else:
        _print(found)
    if write_calibrator is not None and found.remedies is not None:
        written = found.remedies.write_calibrator(write_calibrator)
        if not json:
            output.print_lines(f"The calibrator: {written}")
    if failures:
        raise GateFailed("the audit fails: " + "; ".join(failures))


def _print(found: AuditResult) -> None:
    output.print_lines("", *found.diagnosis)
    output.print_results(found.rows)
    if found.scores is not None:
        output.print_lines(found.scores.sentence(found.rows[0]))
    if found.breakdown is not None and found.breakdown.sentences:
        output.print_lines("", "Where", *found.breakdown.sentences)
    if found.remedies is not None:
        output.print_lines("", "What to do", *found.remedies.sentences, "", *found.remedies.code)
    if found.page is not None:
        output.print_lines(f"The page: {found.page.resolve().as_uri()}")


def _share(text: str | None) -> float | None:
    """A fraction, or a percentage."""
    if text is None:
        return None
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise InputError(f"--tolerated-error must be a share such as 0.02 or 2%, not {text!r}") from None


def _by(text: str) -> By:
    choices: dict[str, By] = {"estimate": "estimate", "any": "any", "all": "all"}
    return choices[text]


def _classes(text: str | None) -> Sequence[str] | int:
    """Names with commas between, or a number."""
    if text is None:
        return ()
    if text.isdigit():
        if int(text) < 2:
            raise InputError(f"--classes must be at least 2, or the names of the classes, not {text}")
        return int(text)
    return [name.strip() for name in text.split(",")]


def _plain(found: AuditResult) -> dict[str, object]:
    """JSON values."""
    gap = {"estimate": found.gap.estimate, "low": found.gap.low, "high": found.gap.high}
    rows = [row.flat() for row in found.rows]
    page = None if found.page is None else str(found.page)
    todo = None if found.remedies is None else found.remedies.plain()
    parts = None if found.breakdown is None else found.breakdown.plain()
    return {
        "diagnosis": found.diagnosis, "gap": gap, "exact": found.exact, "page": page, "rows": rows, "remedies": todo,
        "breakdown": parts,
    }  # fmt: skip
