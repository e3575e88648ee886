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
    json: options.Json = False,
) -> None:
    """Is somebody's model calibrated? Its predictions are enough.

    The table needs a confidence, or the probabilities of all classes; and the label with what was predicted, or whether
    that was right. Columns with usual names are found. Any length, in bounded memory. With --json there is a page only
    where --out asks for one.
    """
    columns = {"confidence": confidence, "probabilities": probabilities, "label": label, "predicted": predicted}
    columns["correct"] = correct
    page = out if out is not None or json else Path(f"{predictions.stem}-audit.html")
    if page is not None:
        from calibrant.files import writable

        writable(page.parent)
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
        )
    if json:
        output.print_json(_plain(found))
        return
    output.print_lines("", *found.diagnosis)
    output.print_results(found.rows)
    if page is not None:
        output.print_lines(f"The page: {page.resolve().as_uri()}")


def _plain(found: AuditResult) -> dict[str, object]:
    """JSON values."""
    gap = {"estimate": found.gap.estimate, "low": found.gap.low, "high": found.gap.high}
    rows = [row.flat() for row in found.rows]
    page = None if found.page is None else str(found.page)
    return {"diagnosis": found.diagnosis, "gap": gap, "exact": found.exact, "page": page, "rows": rows}
