"""Text in CSV files that a spreadsheet would take for a formula, and execute: marked when written, as it was when read.

A mark is an apostrophe before it. Text that looks like marked text gets one more, so that nothing is lost. The page's
own tables (`tables.js`) are marked in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MARKED = r"^'('*[=+\-@\t\r\n])"
"""Marked text, for regular expressions of Python and of Arrow; the text itself is the group and what follows."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def marked(cell: Any) -> Any:
    """`cell` as it is written: text that begins like a formula, and is no number, with an apostrophe before it.

    >>> marked("=HYPERLINK(1).png"), marked("'=x"), marked("cat"), marked("-1.5e3"), marked(-1.5)
    ("'=HYPERLINK(1).png", "''=x", 'cat', '-1.5e3', -1.5)
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def unmarked(text: str) -> str:
    """The text of a cell that `marked` wrote.

    >>> [unmarked(marked(text)) for text in ("=1+1", "'=x", "''@", "-1", "it's")]
    ['=1+1', "'=x", "''@", '-1', "it's"]
    """
    return re.sub(MARKED, r"\1", text)


def marked_rows(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """`rows` with every cell marked."""
    return [[marked(cell) for cell in row] for row in rows]
