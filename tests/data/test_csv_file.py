"""CSV as a source: which columns are read, and what is wrong with a file in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from commands import Caller, call

from calibrant.data import DataError, columns_of, has_parts, iter_batches, open_source

__all__ = ["call"]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_numbers_and_labels_as_pandas_reads_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": [0.5, 1e-3, -2], "kind": ["dog", "cat", "dog"], "b": [3, 4, 5], "c": [True, False, True]}
    )
    file = tmp_path / "d.csv"
    frame.to_csv(file, index=False)
    data = open_source(f"csv:{file}?label=kind")
    assert data.inputs.dtype == torch.float32
    assert torch.equal(data.inputs, torch.tensor(frame[["a", "b", "c"]].astype("float32").to_numpy()))
    assert data.classes == ("cat", "dog")
    assert data.labels is not None
    assert data.labels.tolist() == [1, 0, 1]
    assert open_source(f"{file}?label=kind").fingerprint == data.fingerprint
    assert open_source(f"csv:{file}?label=kind&features=b").inputs.flatten().tolist() == [3, 4, 5]
    frame.to_csv(file)  # with the index, in a column without a name
    assert open_source(f"csv:{file}?label=kind").fingerprint == data.fingerprint
    assert columns_of(f"csv:{file}?label=kind&ignore=c") == {
        "used": ["a", "b"],
        "label": "kind",
        "id": None,
        "ignored": ["(no name)", "c"],
    }


def test_integers_are_class_indices_and_the_usual_names_are_labels(tmp_path: Path) -> None:
    data = open_source(str(write(tmp_path / "d.tsv", "x\ty\n1\t2\n3\t0\n\n")))
    assert data.classes is None
    assert data.labels is not None
    assert data.labels.tolist() == [2, 0]
    data = open_source(str(write(tmp_path / "d.csv", "\ufeffx;y\r\n1;2\r\n3;0\r\n")))
    assert data.inputs.flatten().tolist() == [1, 3]
    assert open_source(str(write(tmp_path / "e.csv", "x,z\n1,2\n"))).labels is None


def test_parts_number_names_together(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "x,label\n1,b\n2,c\n")
    write(tmp_path / "test.csv", "x,label\n3,a\n")
    assert has_parts(f"csv:{tmp_path}")
    train, test = open_source(f"csv:{tmp_path}"), open_source(f"csv:{tmp_path}", split="test")
    assert train.classes == test.classes == ("a", "b", "c")
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 2], [0])  # type: ignore[union-attr]
    assert len(open_source(f"csv:{tmp_path}", split="all")) == 3
    assert [ids for ids, _ in iter_batches(f"csv:{tmp_path}", split="train")] == [["0", "1"]]
    write(tmp_path / "train2.csv", "z,label\n1,b\n")
    with pytest.raises(DataError, match=r"train2\.csv has other columns than"):
        open_source(f"csv:{tmp_path}")
    with pytest.raises(DataError, match="no CSV file"):
        open_source(f"csv:{tmp_path.parent}?label=none")


def test_streaming_in_batches_with_and_without_labels(tmp_path: Path) -> None:
    rows = "".join(f"{i},name {i},{i * 2},{i % 2}\n" for i in range(10))
    file = write(tmp_path / "d.csv", "a,key,b,label\n" + rows)
    batches = list(iter_batches(f"csv:{file}?id=key", 4))
    assert [len(ids) for ids, _ in batches] == [4, 4, 2]
    assert batches[2][0] == ["name 8", "name 9"]
    whole = open_source(f"csv:{file}?ignore=key").inputs
    assert torch.equal(torch.cat([inputs for _, inputs in batches]), whole)
    bare = write(tmp_path / "new.csv", "a,b\n1,2\n")
    assert next(iter_batches(f"csv:{bare}?label=churned&ignore=key"))[1].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,color\n1,2\n3,red\n", "", "holds 'red' in column 'color' of line 3, .* leave it out with ignore=color"),
        ("a,b\n1,\n", "", "has no value in column 'b' of line 2; fill it in"),
        ("a,b\n1,NaN\n", "", "has no value in column 'b' of line 2; fill it in"),
        ("a,b\n1,inf\n", "", "holds 'inf' in column 'b' of line 2"),
        ("a,b\n1,1e300\n", "", "holds '1e300' in column 'b' of line 2"),
        ("a,b\n1,1_000\n", "", "holds '1_000' in column 'b'"),
        ("a,b\n1,2\n1,2,3\n", "", "has 3 cells in line 3, but its header has 2"),
        ('a,b\n1,"2\n', "", "cannot be read as CSV"),
        ("a,label\n1, \n", "", "has no value in column 'label' of line 2"),
        ("a,a\n1,2\n", "", "has two columns named 'a'"),
        ("a,b\n", "", "holds no rows"),
        ("", "", "is empty; it needs a header"),
        ("label\n1\n", "", "has no columns of features beside label"),
        ("a,b\n1,2\n", "?label=c", "has no column 'c'; it has a, b"),
        ("a,b\n1,2\n", "?ignore=c", "has no column 'c'; it has a, b"),
        ("customer_id,b\n1,2\n", "", "'customer_id', which looks like an identifier; leave it out with ignore="),
        ("rowId,b\n1,2\n", "", "'rowId', which looks like an identifier"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, text: str, options: str, message: str) -> None:
    file = write(tmp_path / "d.csv", text)
    with pytest.raises(DataError, match=message) as caught:
        open_source(f"csv:{file}{options}")
    assert "\n" not in str(caught.value)


def test_names_that_only_resemble_identifiers_are_features(tmp_path: Path) -> None:
    file = write(tmp_path / "d.csv", "body_mass_index,acid,width,ID\n1,2,3,4\n")
    assert open_source(f"csv:{file}?ignore=ID").inputs.tolist() == [[1, 2, 3]]
    assert open_source(f"csv:{file}?features=ID,width").inputs.tolist() == [[4, 3]]


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        open_source(str(tmp_path / "d.csv"))
    with pytest.raises(DataError, match="does not exist"):
        open_source(str(tmp_path / "none.csv"))
    write(tmp_path / "long.csv", "a,b\n" + "1" * 200_000 + ",2\n")
    with pytest.raises(DataError, match=r"cannot be read as CSV \(field larger than"):
        open_source(str(tmp_path / "long.csv"))


def test_the_command_lists_columns_used_and_ignored(call: Caller, tmp_path: Path) -> None:
    file = write(tmp_path / "d.csv", "customer_id,name,age,churned\n7,Ann,30,yes\n8,Bob,40,no\n")
    assert "ignore=customer_id" in call.refused("data", file)
    shown = call("data", file, "--label", "churned", "--ignore", "customer_id,name").out
    assert "1 column used: age" in shown
    assert "label column: churned" in shown
    assert "2 columns ignored: customer_id, name" in shown
    found = json.loads(call("data", f"{file}?label=churned", "--ignore", "customer_id,name", "--json").out)
    assert found["columns"]["ignored"] == ["customer_id", "name"]
    pd.read_csv(file).to_parquet(tmp_path / "d.parquet")
    shown = call("data", tmp_path / "d.parquet", "--label", "churned").out
    assert "2 columns used: customer_id, age" in shown
    assert "1 column ignored: name" in shown
    assert "1 column used: age" in call("data", tmp_path / "d.parquet", "--ignore", "customer_id,churned").out
