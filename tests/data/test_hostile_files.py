"""Files that want to hang, exhaust or alter what reads them: one sentence, in bounded time and memory."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from calibrant import InputError
from calibrant.audit import audit
from calibrant.data import DataError, Splits, open_source
from calibrant.data.archives import iterate
from calibrant.data.sources import iter_batches
from calibrant.data.unpickle import MOST_VALUES, read_arrays
from calibrant.evaluation import Evaluation

HEADER = "{{'descr': '<f8', 'fortran_order': {}, 'shape': {}, }}"


def npz(path: Path, member: str, header: str, content: bytes = b"", method: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", method) as archive:
        text = header.encode()
        archive.writestr(member, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content)
    return f"npz:{path}"


def read(spec: str) -> object:
    return open_source(spec)


def stream(spec: str) -> object:
    return list(iter_batches(spec))


@pytest.mark.parametrize("how", [read, stream])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("shape", ["(1000000000000, 2)", "(-1, 2)", "(3, -2)"])
def test_npz_header_that_does_not_fit_what_follows(tmp_path, how, order, shape):
    spec = npz(tmp_path / "d.npz", "inputs.npy", HEADER.format(order, shape), bytes(48))
    with pytest.raises(DataError, match="its header says shape"):
        how(spec)


@pytest.mark.parametrize("how", [read, stream])
def test_npz_header_of_3000_brackets(tmp_path, how):
    with pytest.raises(DataError, match="damaged array 'inputs'"):
        how(npz(tmp_path / "d.npz", "inputs.npy", "[" * 3000))


@pytest.mark.parametrize("how", [read, stream])
def test_npz_member_without_npy(tmp_path, how):
    with pytest.raises(DataError, match="has no array named inputs"):
        how(npz(tmp_path / "d.npz", "inputs", HEADER.format(False, "(3, 2)"), bytes(48)))


@pytest.mark.parametrize("how", [read, stream, audit])
def test_npz_member_whose_name_is_no_text(tmp_path, how):
    """Found by fuzzing: the name is marked as UTF-8, which it is not."""
    path = tmp_path / "d.npz"
    npz(path, "inputs\u00e9.npy", HEADER.format(False, "(3, 2)"), bytes(48))
    path.write_bytes(path.read_bytes().replace("inputs\u00e9".encode(), b"inputs\xb8\xb8"))
    with pytest.raises(InputError, match="is not a whole NPZ file"):
        how(str(path))


@pytest.mark.parametrize("how", [read, stream])
def test_npz_that_unpacks_a_thousand_fold(tmp_path, how, monkeypatch):
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**20)
    shape = f"({2**18}, 1)"
    spec = npz(tmp_path / "d.npz", "inputs.npy", HEADER.format(False, shape), bytes(2**21), zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="save it uncompressed"):
        how(spec)


def small_arrays_that_unpack_to_much(path: Path, members: int = 8) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            text = HEADER.format(False, f"({2**14},)").encode()
            content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(2**17)
            archive.writestr(f"x{number}.npy", content)
    return path


def test_an_npz_file_whose_members_unpack_to_much_together(tmp_path, monkeypatch):
    """Each of them is within the limit, all of them are not; nothing of any is unpacked."""
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**19)
    monkeypatch.setattr("zipfile.ZipExtFile.read", lambda *_: pytest.fail("it was unpacked"))
    path = small_arrays_that_unpack_to_much(tmp_path / "e.npz")
    with pytest.raises(InputError, match=r"e\.npz unpacks [\d,]+ bytes to 1,0\d\d,\d+, which is not believed; save"):
        Evaluation.load(path)
    with pytest.raises(DataError, match="which is not believed"):
        open_source(f"npz:{path}?inputs=x0")


def parquet_of_zeros(path: Path, rows: int, lists: bool) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.array(np.zeros(rows, np.float32))
    values = pa.FixedSizeListArray.from_arrays(zeros, 8) if lists else zeros
    pq.write_table(pa.table({"x": values, "other": ["x"] * len(values)}), path)
    return f"parquet:{path}?features=x"


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("how", [read, stream])
def test_a_parquet_file_of_far_more_rows_than_its_size(tmp_path, monkeypatch, how, lists):
    spec = parquet_of_zeros(tmp_path / "d.parquet", 2**18, lists)
    assert (tmp_path / "d.parquet").stat().st_size < 10_000
    how(spec)
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**20)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(DataError, match=r"d\.parquet unpacks [\d,]+ bytes to 2,097,152, which is not believed; write"):
        how(spec)


def test_parquet_files_of_a_folder_that_are_much_together(tmp_path, monkeypatch):
    for number in range(4):
        parquet_of_zeros(tmp_path / f"{number}.parquet", 2**16, False)
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**20)
    with pytest.raises(DataError, match="which is not believed"):
        open_source(f"parquet:{tmp_path}?features=x")
    assert len(stream(f"parquet:{tmp_path}?features=x")) > 1


@pytest.mark.parametrize("how", [read, stream])
def test_one_image_in_many_rows_of_a_parquet_file(tmp_path, monkeypatch, how):
    """It is stored once, and decoded for every row."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    encoded = io.BytesIO()
    Image.new("L", (256, 256)).save(encoded, "PNG")
    pq.write_table(pa.table({"image": [encoded.getvalue()] * 100, "label": [0] * 100}), tmp_path / "d.parquet")
    spec = f"parquet:{tmp_path / 'd.parquet'}?color=gray"
    how(spec)
    monkeypatch.setattr("calibrant.files.packing.WHOLE_BYTES", 2**20)
    with pytest.raises(DataError, match=r"which is not believed; .* give size= for images"):
        how(spec)
    how(f"{spec}&size=8")


@pytest.mark.parametrize("how", [read, stream, audit])
def test_a_parquet_file_whose_columns_have_names_that_are_no_text(tmp_path, how):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"confidence": [0.5], "label": [0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"confidence", b"\xff\xfenfidence"))
    with pytest.raises(InputError, match=r"d\.parquet is not a (whole Parquet file|table that can be read) \([^\n]+\)"):
        how(str(path))


def test_a_parquet_file_whose_parts_have_names_that_are_no_text(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"confidence": [0.5], "label": [0]}), path, store_schema=False)
    whole, name = path.read_bytes(), b"confidence"
    assert whole.count(name) == 2  # in the schema, and of the part that holds its values
    path.write_bytes(whole[: whole.rindex(name)] + b"\xff\xfenfidence" + whole[whole.rindex(name) + len(name) :])
    with pytest.raises(InputError, match=r"d\.parquet is not a whole Parquet file \([^\n]+\)"):
        read(str(path))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_long_label_does_not_widen_all(tmp_path, suffix):
    """An array of text is as wide as its longest cell: here it would have 2 GB, and 60 MB are allocated at most."""
    import tracemalloc

    import pyarrow as pa
    import pyarrow.parquet as pq

    labels, path = ["x"] * 3999 + ["y" * 130_000], tmp_path / f"d.{suffix}"
    if suffix == "csv":
        path.write_text("a,label\n" + "".join(f"1,{label}\n" for label in labels))
    else:
        pq.write_table(pa.table({"a": [1.0] * 4000, "label": labels}), path)
    tracemalloc.start()
    try:
        data = open_source(str(path))
        assert tracemalloc.get_traced_memory()[1] < 60 * 2**20
    finally:
        tracemalloc.stop()
    assert data.labels.tolist() == [0] * 3999 + [1]


@pytest.mark.parametrize("digits", [19, 5000])
def test_labels_of_more_digits_than_numbers_have_are_names(tmp_path, digits):
    (tmp_path / "d.csv").write_text(f"a,label\n1,{'9' * digits}\n2,3\n")
    data = open_source(str(tmp_path / "d.csv"))
    assert data.labels.tolist() == [1, 0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_arrays_of_either_order_are_read_alike(tmp_path, order):
    values = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    np.savez(tmp_path / "d.npz", inputs=np.array(values, order=order))
    assert np.array_equal(open_source(f"npz:{tmp_path / 'd.npz'}").inputs, values)
    blocks = [inputs.numpy() for _, inputs in iter_batches(f"npz:{tmp_path / 'd.npz'}", 3)]
    assert np.array_equal(np.concatenate(blocks), values)


def pickled_laughs(levels: int = 12) -> bytes:
    value: list[object] = [0] * 10
    for _ in range(levels):
        value = [value] * 10
    return pickle.dumps({"data": value, "labels": []}, protocol=2)


def test_a_pickle_that_multiplies_itself():
    with pytest.raises(DataError, match=f"more than {MOST_VALUES:,} values"):
        read_arrays(pickled_laughs(), "data_batch_1")


def test_a_pickle_that_contains_itself():
    value: list[object] = []
    value.append(value)
    with pytest.raises(DataError, match="damaged"):
        read_arrays(pickle.dumps({"data": value}, protocol=2), "data_batch_1")


def test_a_pickle_with_a_memory_cell_of_a_high_number():
    content = b"\x80\x02}r" + struct.pack("<I", 2**31) + b"."
    with pytest.raises(DataError, match="memory cells"):
        read_arrays(content, "data_batch_1")


DEEP = {
    "TUPLE1": b"}N" + b"\x85" * 10**6 + b"K\x01s.",
    "TUPLE": b"}N" + b"(" * 10**5 + b"Nt" + b"t" * (10**5 - 1) + b"K\x01s.",
    "TUPLE2 through a memory cell": b"}N" + b"q\x000Nh\x00\x86" * 2 * 10**5 + b"K\x01s.",
    "MEMOIZE and DUP": b"}N" + b"\x942\x86" * 4 * 10**5 + b"K\x01s.",
    "FROZENSET": b"}(" + b"(" * 10**6 + b"\x91" * 10**6 + b"\x91K\x01s.",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_pickle_whose_key_is_nested_a_million_times(name):
    """To hash it would overflow the stack of the machine, which no `except` catches."""
    with pytest.raises(DataError, match="more than 100 levels deep"):
        read_arrays(b"\x80\x04" + DEEP[name], "data_batch_1")


ITSELF = [b"N" + b"q\x00h\x00\x86" * 60, b"N" + b"2\x86" * 60, b"(" + b"N" * 1000 + b"t" + b"22\x87" * 15]


@pytest.mark.parametrize("key", ITSELF)
def test_a_pickle_whose_key_holds_itself_over_and_over(key):
    """To hash it would take years."""
    with pytest.raises(DataError, match="stand for more than 16,777,216"):
        read_arrays(b"\x80\x02}" + key + b"K\x01s.", "data_batch_1")


@pytest.mark.parametrize("content", [b"0.", b"1.", b"\x85.", b"t.", b"(0\x87.", b"h\x05.", b"2.", b"\x94."])
def test_a_pickle_that_takes_what_is_not_there(content):
    with pytest.raises(DataError, match="damaged"):
        read_arrays(b"\x80\x04" + content, "data_batch_1")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_values_of_every_kind_are_read_in_every_protocol(protocol):
    value = {
        "list": [1, -(2**70), 2.5, None, True],
        "nested": [{"a": (1, (2, 3))}, [[]]],
        "text": "é",
        "same": [[5]] * 3,
    }
    assert read_arrays(pickle.dumps(value, protocol), "data_batch_1") == value


@pytest.mark.parametrize("name", ["numpy\nndarray", "numpy\ndtype", "_codecs\nencode", "__builtin__\nbytes"])
@pytest.mark.parametrize(
    "state", [b"}U\x01xK\x01s", b"N}U\x01xK\x01s\x86", b"(K\x01U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"]
)
def test_stand_ins_are_not_altered_by_build(name, state):
    official = pickle.dumps({"data": np.arange(3, dtype=np.uint8), "text": b"x", "none": b""}, protocol=2)
    with pytest.raises(DataError, match="alters a name"):
        read_arrays(b"\x80\x02c" + name.encode() + b"\n" + state + b"b.", "data_batch_1")
    again = read_arrays(official, "data_batch_1")
    assert again["data"].tolist() == [0, 1, 2]
    assert (again["text"], again["none"]) == ("x", "")


def archive_declaring(path: Path, size: int, kind: bytes = tarfile.REGTYPE) -> Path:
    member = tarfile.TarInfo("1.png")
    member.size, member.type = size, kind
    with gzip.open(path, "wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT) + bytes(2**16))
    return path


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("wanted", [True, False])
def test_an_archive_that_declares_20_gb(tmp_path, kind, wanted):
    path = archive_declaring(tmp_path / "LSUN_resize.tar.gz", 20 * 2**30, kind)
    with pytest.raises(DataError, match="more than 2 GB"):
        list(iterate(path, lambda _: wanted))


def header(kind: bytes, content: bytes) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, len(content)
    return member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


EXTENDED = {
    "a sparse map of letters": header(b"x", b"25 GNU.sparse.map=x,y,z,w\n"),
    "a size of letters": header(b"x", b"29 GNU.sparse.realsize=xyzxy\n25 GNU.sparse.major=1234\n"),
    "a length beyond all memory": header(b"x", b"99999999999999999999 a=b\n"),
    "3,000 extended headers": header(b"x", b"6 a=b\n") * 3000,
    "3,000 long names": header(b"L", b"x" * 101) * 3000,
}


@pytest.mark.parametrize("what", EXTENDED)
def test_hostile_headers_of_an_archive(tmp_path, what):
    path = tmp_path / "photos.tar"
    path.write_bytes(EXTENDED[what] + header(b"0", b"x") + bytes(1024))
    with pytest.raises(DataError, match="is cut short or damaged"):
        list(iterate(path, lambda name: True))


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_a_member_that_declares_more_than_follows_takes_no_memory(tmp_path, kind):
    """Found by fuzzing: 1.5 GB were allocated before they were read."""
    path, member = tmp_path / "photos.tar", tarfile.TarInfo("x")
    member.type, member.size = kind, 3 * 2**29
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    block[483:495] = b"%011o\0" % member.size  # of a file with holes, its size with them
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * ord(" ") + sum(block[156:512]))
    path.write_bytes(block + b"x")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="is cut short or damaged"):
            list(iterate(path, lambda name: True))
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_after_the_last_member(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.data.archives.MOST_BYTES", 2**22)
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(bytes(2**23))
    with pytest.raises(DataError, match="unpacks to more than"):
        list(iterate(tmp_path / "x.tar.gz", lambda _: True))


def test_an_image_of_100_megapixels(tmp_path):
    from PIL import Image

    Image.new("1", (10_000, 10_000)).save(tmp_path / "large.png")
    Image.new("1", (10_000, 6_800)).save(tmp_path / "just.png")
    for name in ("large", "just"):
        with pytest.raises(DataError, match="more than 67,108,864 pixels"):
            open_source(f"folder:{tmp_path / name}.png")


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 4 4
%%EndComments
(ran) print showpage
%%EOF
"""
DDS = (
    b"DDS "
    + struct.pack("<7I", 124, 0x1007, 4, 4, 16, 0, 0)
    + bytes(44)
    + struct.pack("<2I4s5I", 32, 4, b"XXXX", *[0] * 5)
)


def parquet_of(content: bytes, path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image": [content], "label": [0]}), path)
    return f"parquet:{path}?size=4"


@pytest.mark.parametrize("content", [EPS, DDS + bytes(20), DDS], ids=["EPS", "DDS", "DDS cut short"])
def test_only_decoders_of_the_admitted_suffixes_see_an_image(tmp_path, content, monkeypatch):
    """Whatever a file is called, no other plugin of Pillow is given it; that of EPS would start Ghostscript."""
    from PIL import DdsImagePlugin, EpsImagePlugin

    seen: list[object] = []
    for plugin in (EpsImagePlugin.EpsImageFile, DdsImagePlugin.DdsImageFile):
        monkeypatch.setattr(plugin, "_open", lambda image: seen.append(image))
    (tmp_path / "x.png").write_bytes(content)
    for spec in (f"folder:{tmp_path}?size=4", parquet_of(content, tmp_path / "x.parquet")):
        with pytest.raises(DataError, match=r"^image .* cannot be decoded \(cannot identify image file\); replace"):
            open_source(spec)
    assert not seen


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_admitted_format_is_read(tmp_path, kind):
    from PIL import Image

    Image.new("RGB", (3, 2), (255, 0, 0)).save(tmp_path / "x.png", kind)
    found = open_source(f"folder:{tmp_path / 'x.png'}").inputs
    assert found.shape == (1, 3, 2, 3)
    assert found[0, :, 0, 0].tolist() == pytest.approx([255, 0, 0], abs=2)


@pytest.mark.parametrize("error", [NotImplementedError("x"), RuntimeError(), AttributeError("y"), ZeroDivisionError()])
def test_whatever_a_decoder_raises_becomes_the_sentence(tmp_path, error, monkeypatch):
    from PIL import Image, PngImagePlugin

    def fail(image: object) -> None:
        raise error

    Image.new("1", (3, 2)).save(tmp_path / "x.png")
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load_prepare", fail)
    with pytest.raises(DataError, match=r"cannot be decoded \(\w+\); replace or remove it$"):
        open_source(f"folder:{tmp_path / 'x.png'}")


@pytest.mark.parametrize("name", ["d.npz", "d.csv", "d.png", "splits.json"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    kind = {"npz": "npz", "csv": "csv", "png": "folder"}.get(name.partition(".")[2])
    with pytest.raises(DataError, match=r"not a regular file|holds no images"):
        Splits.load(tmp_path / name) if kind is None else open_source(f"{kind}:{tmp_path / name}")


def test_a_device_in_place_of_an_array_is_refused(tmp_path):
    (tmp_path / "d.npz").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="not a regular file"):
        open_source(f"npz:{tmp_path / 'd.npz'}")


def test_deeply_nested_splits(tmp_path):
    (tmp_path / "splits.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="not JSON"):
        Splits.load(tmp_path / "splits.json")
