"""One self-contained HTML page a study: figures, tables, how it was made."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from calibrant.files import write_bytes
from calibrant.studies.study_table import StudyTable, markdown_cell

_STYLE = """
:root { --paper: #fff; --panel: #f5f7f9; --ink: #16191d; --muted: #59616b; --line: #dfe3e8; --shade: rgba(0, 0, 0, .22);
  color-scheme: light dark }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --panel: #1d2125; --ink: #e9ecef; --muted: #a3acb6;
  --line: #343b43; --shade: rgba(255, 255, 255, .3) } }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; font-variant-numeric: tabular-nums }
h1 { font-size: 28px; line-height: 1.2 } p { max-width: 78ch; overflow-wrap: anywhere } figure { margin: 1.5rem 0 }
img { display: block; max-width: 100%; background: #fff; border-radius: 8px }
pre { background: var(--panel); padding: 1rem; overflow: auto; font-size: 12px }
.wide { overflow-x: auto; background: linear-gradient(to right, var(--paper) 30%, transparent) 0 0 / 40px 100% local,
  linear-gradient(to left, var(--paper) 30%, transparent) 100% 0 / 40px 100% local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / 14px 100% scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / 14px 100% scroll; background-repeat: no-repeat }
.wide:focus-visible, summary:focus-visible { outline: 2px solid #0067a3; outline-offset: 2px }
table { border-collapse: collapse; font-size: 13.5px; white-space: nowrap }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right }
th { color: var(--muted); font-weight: 500 } th:first-child, td:first-child { text-align: left; padding-left: 0 }
@media (min-width: 640px) { th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper) } }
@media print { :root { --paper: #fff; --ink: #000; --muted: #444; --line: #ccc; color-scheme: light }
  body { margin: 0; max-width: none } .wide { overflow: visible; background: none } figure, tr { break-inside: avoid }
  table { font-size: 7.5pt; white-space: normal } th, td { padding: 2px 4px } details:not([open]) { display: none } }
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
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
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
    wide = '<div class="wide" tabindex="0" role="region" aria-label="Table of results">'
    return f"{wide}{body}</div><p>{escape(table.note)}</p>"
