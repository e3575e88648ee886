"""Sentences that name options of the command line, for those who called from Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from calibrant import InputError
from calibrant.audit.roles import ROLES

KEYWORDS = {"positive": "positive", "classes": "classes", "percent": "percent", "detector": "detectors"}
KEYWORDS |= {"slice": "slices", "ood": "ood"}
_OPTION = re.compile(r"--([a-z]+)")
_OF_ARRAYS = re.compile(rf"--({'|'.join(ROLES)}) (?:{'|'.join(ROLES)})\b")


def in_python(text: str, *, arrays: bool) -> str:
    """`text` with the keywords of the options that it names: in their place for arrays, else behind it.

    >>> in_python("Name it with --positive, as in --score score --positive spam", arrays=True)
    "Name it with positive=, as in positive='spam'"
    >>> in_python("give --score p --positive 1.", arrays=False)
    "give --score p --positive 1 (in Python, columns={'score': ...}, positive=...)."
    """
    named = list(dict.fromkeys(_OPTION.findall(text)))
    if "in Python" in text or not named:
        return text
    if arrays:
        text = re.sub(r"--score \S+ --positive (\S+)", r"positive='\1'", text)
        return _OPTION.sub(r"\1=", _OF_ARRAYS.sub(r"--\1", text))
    roles = ", ".join(f"{name!r}: ..." for name in named if name in ROLES)
    keywords = [f"columns={{{roles}}}"] if roles else []
    keywords += [f"{KEYWORDS[name]}=..." for name in named if name in KEYWORDS]
    if not keywords:
        return text
    end = "." if text.endswith(".") else ""
    return f"{text.removesuffix('.')} (in Python, {', '.join(keywords)}){end}"


@contextmanager
def python_words(*, arrays: bool) -> Iterator[None]:
    """Refusals in the words of Python."""
    try:
        yield
    except InputError as error:
        raise InputError(in_python(str(error), arrays=arrays)) from None
