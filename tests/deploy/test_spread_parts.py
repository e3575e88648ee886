"""Parts of Parquet files: every row once, in batches that one process would have made; answers appear whole."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sweeps import predictor, write_rows

from calibrant.data import DataError, iter_batches
from calibrant.deploy.spread.parquet_parts import ParquetInput
from calibrant.deploy.spread.part_worker import PartWorker, totals_of
from calibrant.deploy.spread.storage import Folder
from calibrant.files import RunError


def gathered(source, part_rows, batch_rows):
    return [batch for part in source.parts(part_rows) for batch in source.read(part, batch_rows)]


@given(st.integers(1, 400), st.integers(1, 97), st.integers(1, 5), st.integers(1, 50), st.booleans())
@settings(deadline=None, max_examples=25)
def test_parts_hold_every_row_once_in_the_batches_of_one_process(
    tmp_path_factory, rows, row_group, batches, batch_rows, keyed
):
    path = write_rows(tmp_path_factory.mktemp("p") / "in.parquet", rows, row_group=row_group)
    spec = f"parquet:{path}?label=label" + ("&id=key" if keyed else "")
    found = gathered(ParquetInput.open(spec), batches * batch_rows, batch_rows)
    ids, inputs = zip(*found)
    assert all(len(part) == batch_rows for part in ids[:-1])
    expected = list(iter_batches(spec, batch_rows))
    assert [key for part in ids for key in part] == [key for part, _ in expected for key in part]
    assert torch.equal(torch.cat(inputs), torch.cat([x for _, x in expected]))


def test_a_folder_is_numbered_over_its_files_and_a_uri_is_the_same(tmp_path):
    for seed in (0, 1):
        write_rows(tmp_path / f"in-{seed}.parquet", 70, seed=seed)
    source = ParquetInput.open(str(tmp_path))
    assert [(part.first, part.rows) for part in source.parts(50)] == [(0, 50), (50, 20), (70, 50), (120, 20)]
    assert [key for ids, _ in gathered(source, 50, 10) for key in ids] == [str(row) for row in range(140)]
    remote = ParquetInput.open(f"file://{tmp_path}?id=key")
    assert next(iter(remote.read(remote.parts(50)[2], 3)))[0] == ["key-1-0", "key-1-1", "key-1-2"]


def test_images_are_decoded(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    encoded = []
    for picture in pixels:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    pq.write_table(pa.table({"image": encoded}), tmp_path / "in.parquet")
    source = ParquetInput.open(f"{tmp_path}/in.parquet?color=gray")
    found = torch.cat([x for _, x in gathered(source, 2, 2)])
    assert torch.equal(found, torch.from_numpy(pixels)[:, None])


def worker(tmp_path, rows=100, **options):
    path = write_rows(tmp_path / "in.parquet", rows)
    source, folder = ParquetInput.open(f"{path}?id=key"), Folder.open(str(tmp_path / "out"))
    made = PartWorker(source, folder, 16, probabilities=True, early=None, **options)
    made.begin(predictor())
    return made


def test_a_part_that_is_done_twice_is_there_once(tmp_path):
    made = worker(tmp_path)
    parts = made.source.parts(48)
    first = [made.answer(part) for part in parts]
    again = made.answer(parts[1])
    assert again == first[1] == totals_of(made.folder, parts[1])
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == [f"key-0-{row}" for row in range(100)]
    assert sum(one.accepted for one in first) == sum(table["accepted"].to_pylist())
    assert len(made.folder.names("_attempts", recursive=True)) == len(parts) + 1


def test_a_part_at_which_workers_keep_dying_is_given_up(tmp_path):
    made = worker(tmp_path, retries=1)
    part = made.source.parts(48)[0]
    made._note_attempt(part)
    made._note_attempt(part)
    with pytest.raises(RunError, match="2 workers died at rows 0 to 48 of"):
        made.answer(part)


def test_what_cannot_be_read_or_written(tmp_path):
    with pytest.raises(DataError, match="engine ray reads Parquet files, not embedded"):
        ParquetInput.open("embedded")
    with pytest.raises(DataError, match="no Parquet file at"):
        ParquetInput.open(f"file://{tmp_path}/none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="not whole Parquet"):
        ParquetInput.open(str(tmp_path / "bad.parquet"))
    with pytest.raises(DataError, match="cannot be read"):
        ParquetInput.open("nowhere://bucket/in.parquet")
    with pytest.raises(ValueError, match="must be a folder for Parquet files"):
        Folder.open(str(tmp_path / "out.csv"))
    with pytest.raises(DataError, match="cannot be opened"):
        Folder.open("nowhere://bucket/out")


def test_inputs_of_another_shape_are_refused(tmp_path):
    made = worker(tmp_path)
    pq.write_table(pa.table({"a": [0.5], "b": [1.0]}), tmp_path / "narrow.parquet")
    made.source = ParquetInput.open(str(tmp_path / "narrow.parquet"))
    with pytest.raises(DataError, match="the model was trained on"):
        made.answer(made.source.parts(10)[0])
    assert not [name for name in made.folder.names() if name.startswith("part")]
