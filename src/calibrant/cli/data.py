"""`calibrant data`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from calibrant import InputError
from calibrant.cli import options, output

EXAMPLES = """
calibrant data
calibrant data --root /data
calibrant data --root /data --fetch cifar100 --fetch imagenet-resize
calibrant data 'folder:photos?size=32'
calibrant data customers.csv --label churned --ignore customer_id,name
"""


def command(
    spec: Annotated[str | None, typer.Argument(metavar="SPEC", help="Show what this one holds.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="Where to look; default: $CALIBRANT_DATA or the cache.")
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option("--fetch", metavar="NAME", help="Download a published set there; repeatable.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="The labels of a table; as ?label= in SPEC.")
    ] = None,
    ignore: Annotated[
        str | None, typer.Option("--ignore", metavar="A,B", help="Columns to leave out; as ?ignore= in SPEC.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the data sets, which are missing, and how to get them."""
    if spec is not None:
        _show(_describe(_with_options(spec, label=label, ignore=ignore)), json)
        return
    if label is not None or ignore is not None:
        raise InputError("--label and --ignore are for the columns of a table; name it: calibrant data FILE.csv")
    from calibrant.data import default_folder, download

    folder = root or default_folder()
    for name in fetch or ():
        folder.mkdir(parents=True, exist_ok=True)
        output.log(f"{name}: {download(name, folder)}")
    found = _list(folder)
    if json:
        output.print_json({"root": str(folder), "sources": found})
        return
    table = output.plain_table("spec", "what it is", "present", "how to get it")
    for one in found:
        table.add_row(_quoted(one["spec"]), one["about"], one["found"] or "", one["obtain"])
    output.print_table(table)
    output.print_lines(f"Looked in {folder}, where data sets without a PATH are expected.")


def _with_options(spec: str, **chosen: str | None) -> str:
    """`spec` with the options that were given."""
    given = urlencode({name: value for name, value in chosen.items() if value is not None})
    return f"{spec}{'&' if '?' in spec else '?'}{given}" if given else spec


def _quoted(spec: str) -> str:
    """`spec` as a shell takes it literally: in quotes if it has options, which zsh would expand."""
    return shlex.quote(spec) if "?" in spec else spec


def _list(folder: Path) -> list[dict[str, Any]]:
    from calibrant.data import find_source, list_sources

    return [
        {"spec": info.spec, "about": info.about, "found": find_source(info.kind, folder), "obtain": info.obtain}
        for info in list_sources()
    ]


def _describe(spec: str) -> dict[str, Any]:
    from calibrant.data import columns_of, has_parts, open_source

    parts = ("train", "test") if has_parts(spec) else ("all",)
    result: dict[str, Any] = {"spec": spec}
    if columns := columns_of(spec):
        result["columns"] = columns
    for part in parts:
        opened = open_source(spec, split=part)  # type: ignore[arg-type]
        kind = str(opened.inputs.dtype).removeprefix("torch.")
        result[part] = {"inputs": list(opened.inputs.shape), "type": kind, "labeled": opened.labels is not None}
        if opened.labels is not None:
            result["classes"] = list(opened.classes or map(str, range(opened.num_classes)))
    return result


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    for part in ("train", "test", "all"):
        if part in found:
            one = found[part]
            labels = "with labels" if one["labeled"] else "without labels"
            shape = " x ".join(map(str, one["inputs"][1:]))
            output.print_lines(f"{part}: {one['inputs'][0]:,} inputs of {shape}, {one['type']}, {labels}")
    for line in _column_lines(found.get("columns", {})):
        output.print_lines(line)
    classes = found.get("classes", [])
    if classes:
        more = ", ..." if len(classes) > 12 else ""
        output.print_lines(f"{len(classes)} classes: {', '.join(classes[:12])}{more}")
        output.print_lines(f"To train on it: calibrant train --data {shlex.quote(found['spec'])} --out run")


def _columns(names: list[str]) -> str:
    return f"{len(names)} column{'' if len(names) == 1 else 's'}"


def _column_lines(columns: dict[str, Any]) -> list[str]:
    """Which columns of a table are what, all of them named: one that is used by mistake should be seen here."""
    if not columns:
        return []
    lines = [f"{_columns(columns['used'])} used: {', '.join(columns['used'])}"]
    lines += [f"{role} column: {columns[role]}" for role in ("label", "id") if columns.get(role)]
    if columns["ignored"]:
        lines.append(f"{_columns(columns['ignored'])} ignored: {', '.join(columns['ignored'])}")
    return lines
