"""`calibrant audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrant.cli import options, output
from calibrant.cli.errors import resumable

if TYPE_CHECKING:
    from calibrant.audit import AuditResult

EXAMPLES = """
calibrant audit predictions.csv
calibrant audit predictions.parquet --ood outliers.parquet --out audit.html
calibrant audit log.csv --confidence score --label truth --predicted answer
calibrant audit log.csv --confidence score --correct was_right --json
calibrant audit outputs.npz --probabilities softmax --label y
calibrant audit predictions.csv --write-calibrator calibrator.json
"""


def command(
    predictions: Annotated[Path, typer.Argument(metavar="PREDICTIONS", help="CSV, TSV, Parquet or NPZ.")],
    ood: Annotated[
        Path | None, typer.Option("--ood", metavar="FILE", help="Predictions on inputs unlike the training data.")
    ] = None,
    confidence: Annotated[str | None, typer.Option(metavar="COLUMN", help="How sure it was.")] = None,
    probabilities: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="All classes: a column of lists, or how their columns start.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="What is right.")] = None,
    predicted: Annotated[str | None, typer.Option(metavar="COLUMN", help="What it decided.")] = None,
    correct: Annotated[str | None, typer.Option(metavar="COLUMN", help="1 where it was right, else 0.")] = None,
    bins: Annotated[int, typer.Option(min=1, metavar="N", help="Confidence bins.")] = 15,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What to call the system.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="The page; default: PREDICTIONS-audit.html here.")
    ] = None,
    remedies: Annotated[
        bool, typer.Option("--remedies/--no-remedies", help="Measure what each remedy would gain.")
    ] = True,
    write_calibrator: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the calibrator that gains most.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Is somebody's model calibrated? Its predictions are enough.

    The table needs a confidence, or the probabilities of all classes; and the label with what was predicted, or whether
    that was right. Columns with usual names are found. Any length, in bounded memory. With --json there is a page only
    where --out asks for one.
    """
    columns = {"confidence": confidence, "probabilities": probabilities, "label": label, "predicted": predicted}
    columns["correct"] = correct
    if write_calibrator is not None and not remedies:
        raise ValueError("--write-calibrator needs the remedies: leave out --no-remedies")
    page = out if out is not None or json else Path(f"{predictions.stem}-audit.html")
    for file in (page, write_calibrator):
        if file is not None:
            from calibrant.files import writable

            writable(file.parent)
    from calibrant.audit import audit

    with resumable(lambda: "stopped; nothing was written: start again"), output.share_display("rows") as show:
        found = audit(
            predictions,
            ood,
            columns={role: column for role, column in columns.items() if column is not None},
            page=page,
            name=name,
            bins=bins,
            progress=show,
            commands=[options.command_line()],
            remedies=remedies,
        )
    if json:
        output.print_json(_plain(found))
    else:
        output.print_lines("", *found.diagnosis)
        output.print_results(found.rows)
        if found.remedies is not None:
            output.print_lines("", "What to do", *found.remedies.sentences, "", *found.remedies.code)
        if page is not None:
            output.print_lines(f"The page: {page.resolve().as_uri()}")
    if write_calibrator is not None and found.remedies is not None:
        written = found.remedies.write_calibrator(write_calibrator)
        if not json:
            output.print_lines(f"The calibrator: {written}")


def _plain(found: AuditResult) -> dict[str, object]:
    """JSON values."""
    gap = {"estimate": found.gap.estimate, "low": found.gap.low, "high": found.gap.high}
    rows = [row.flat() for row in found.rows]
    page = None if found.page is None else str(found.page)
    todo = None if found.remedies is None else found.remedies.plain()
    return {
        "diagnosis": found.diagnosis, "gap": gap, "exact": found.exact, "page": page, "rows": rows, "remedies": todo,
    }  # fmt: skip
