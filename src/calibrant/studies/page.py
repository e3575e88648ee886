"""One self-contained HTML page a study: figures, tables, how it was made."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from calibrant.files import write_bytes
from calibrant.studies.study_table import StudyTable, markdown_cell

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
img { max-width: 100% } pre { background: #f4f4f4; padding: 1rem; overflow: auto; font-size: 12px }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; white-space: nowrap }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right } th:first-child, td:first-child
{ text-align: left; position: sticky; left: 0; background: #fff } caption { text-align: left; color: #666 }
"""


def write_study_page(
    path: Path, title: str, caption: str, figures: Sequence[Path], tables: Sequence[StudyTable], settings: str
) -> None:
    """Write the page to `path`, its pictures inside it."""
    pictures = "".join(
        f'<figure><img alt="{escape(file.stem)}: {escape(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode(file.read_bytes()).decode()}"></figure>'
        for file in figures
    )
    body = f"<h1>{escape(title)}</h1><p>{escape(caption)}</p>{pictures}{''.join(map(_table, tables))}"
    details = f"<details><summary>Settings</summary><pre>{escape(settings)}</pre></details>"
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><main>{body}{details}</main></html>\n"
    )
    write_bytes(path, text.encode())


def _table(table: StudyTable) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(markdown_cell(row.get(column)))}</td>" for column in table.columns) + "</tr>"
        for row in table.rows
    )
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{body}</div><p>{escape(table.note)}</p>'
