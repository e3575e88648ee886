"""Damage to a file at random: to its bytes, or to what is inside, so that it still opens but says something wrong."""

from __future__ import annotations

import contextlib
import io
import json
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

DEEP = 5000
VALUES: list[Callable[[], Any]] = [
    lambda: -1, lambda: 0, lambda: 1, lambda: True, lambda: None, lambda: 10**12, lambda: 10**30, lambda: 2**63,
    lambda: 1e308, lambda: -0.5, lambda: float("nan"), lambda: float("inf"), lambda: "", lambda: "x", lambda: "1",
    lambda: "wrn-10000000-1", lambda: "mlp-999999999", lambda: "cnn-16-100000", lambda: "\x00", lambda: "é" * 300,
    lambda: "../../etc/passwd", lambda: [], lambda: {}, lambda: [[]], lambda: [None] * 100, lambda: {"": {}},
    lambda: [10**9] * 3, lambda: [-1, -1], lambda: "float16", lambda: "I8", lambda: "BOOL", lambda: "F64",
]  # fmt: skip
TOKENS = [
    b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00" * 8, b"999999999999", b"-1", b"nan", b"inf",
    b"1e309", b"\n", b"\r", b",", b'"', b"'", b"\t", b";", b"[" * 100, b"{" * 100, b"&a [*a]", b"<<: *a\n",
    b"!!python/object:os.system", b"\xef\xbb\xbf", b"\xff\xfe", b"PK\x03\x04", b"cos\nsystem\n(S'true'\ntR.",
    b"0" * 30, b"\xc3\x28", b": ", b"- ", b"---\n",
]  # fmt: skip

INSTRUCTIONS = [
    b"(", b"0", b"1", b"2", b"N", b"}", b"]", b")", b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"a", b"e", b"s",
    b"u", b"b", b"R", b"o", b"\x81", b"\x92", b"\x93", b"\x94", b"\x8f", b"\x90", b"\x91", b"h\x00", b"h\x05",
    b"q\x00", b"j\xff\xff\xff\x7f", b"r\xff\xff\x0f\x00", b"K\x01", b"J\xff\xff\xff\xff", b"\x8b\xff\xff\xff\x7f",
    b"G" + b"\x7f" * 8, b"U\x01x", b"X\x02\x00\x00\x00\xc3\xa9", b"B\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 8,
    b"\x95" + b"\xff" * 8, b"\x82\x01", b"cos\nsystem\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n", b"cbuiltins\nbytes\n", b"cbuiltins\neval\n",
    b"i__builtin__\neval\n", b"Px\n", b"Q", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n",
    b"ctorch\nSize\n", b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch._utils\n_rebuild_sparse_tensor\n",
    b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n", b"ccollections\nCounter\n", b"M\xff\xff",
]  # fmt: skip


def mutate(content: bytes, random: Random, *, also: bytes = b"") -> bytes:
    """`content`, damaged once or a few times; `also` is another file to take pieces from."""
    inside = [change for opens, change in INSIDE if opens(content)]
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if inside and random.random() < 0.6:
            content = _quietly(random.choice(inside), content, random)
        else:
            content = _bytes(content, random, also)
    return content[:200_000]


def _quietly(change: Callable[[bytes, Random], bytes], content: bytes, random: Random) -> bytes:
    """What an earlier change has made unreadable stays as it is."""
    try:
        return change(content, random)
    except Exception:  # of any library that opens it
        return content


def _bytes(content: bytes, random: Random, also: bytes) -> bytes:
    if not content:
        return random.choice(TOKENS)
    start = random.randrange(len(content))
    end = min(len(content), start + random.choice((1, 1, 2, 4, 8, 64, len(content))))
    kind = random.randrange(7)
    if kind == 0:
        return content[:start]
    if kind == 1:
        return content[:start] + bytes([content[start] ^ 1 << random.randrange(8)]) + content[start + 1 :]
    if kind == 2:
        return content[:start] + content[end:]
    if kind == 3:
        return content[:end] + content[start:end] * random.choice((1, 2, 50)) + content[end:]
    if kind == 4:
        return content[:start] + random.choice(TOKENS) + content[start:]
    if kind == 5:
        return content[:start] + random.choice(TOKENS) + content[end:]
    cut = random.randrange(len(also) + 1)
    return content[:start] + also[cut : cut + random.randrange(1, 200)] + content[start:]


def _tree(value: Any, random: Random) -> Any:
    """Nested values with one of them changed, removed, doubled or put deep."""
    if isinstance(value, (dict, list)) and value and random.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, altered = random.choice(keys), value.copy()
        kind = random.random()
        if kind < 0.1:
            del altered[key]
        elif kind < 0.15 and isinstance(altered, dict):
            altered[random.choice(("x", "", *map(str, keys)))] = random.choice(VALUES)()
        elif kind < 0.2 and isinstance(altered, list):
            altered *= random.choice((2, 100))
        else:
            altered[key] = _tree(value[key], random)
        return altered
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.3:
        return random.choice((-value, value * 10**9, value + 1, str(value), float(value)))
    return random.choice(VALUES)()


def _json(content: bytes, random: Random) -> bytes:
    if random.random() < 0.02:
        return b"[" * DEEP + content + b"]" * DEEP
    return json.dumps(_tree(json.loads(content), random)).encode()


def _yaml(content: bytes, random: Random) -> bytes:
    if random.random() < 0.05:
        levels = [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(random.randrange(1, 9))]
        return "\n".join(["a0: &a0 [x]", *levels, content.decode("utf-8", "replace")]).encode()
    return yaml.safe_dump(_tree(yaml.safe_load(content), random)).encode()


def _safetensors(content: bytes, random: Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(_tree(json.loads(content[8 : 8 + size]), random)).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def _zip(content: bytes, random: Random) -> bytes:
    """One member damaged, under a right checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    pickles = [name for name, member in members.items() if _opens_pickle(member)]
    name = random.choice(pickles if pickles and random.random() < 0.6 else list(members))
    members[name] = (_pickle if name in pickles else _npy)(members[name], random)
    if random.random() < 0.1:
        members[random.choice((name[:-4], "header.npy", "../x.npy", "x"))] = members.pop(name)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return target.getvalue()


def _npy(content: bytes, random: Random) -> bytes:
    if content[:6] != b"\x93NUMPY" or random.random() < 0.3:
        return _bytes(content, random, b"")
    size = int.from_bytes(content[8:10], "little")
    shape = random.choice(("(1000000000000,)", "(-2,)", "()", "(2, -1)", "(0,)", "(3, 1000000000)", "(2,)", "(1, 1)"))
    dtype = random.choice(("<f8", "|O", "<f9", "<U1000000000", "<M8[ns]", "|V4", ">i2", "<c16", "<f2", "|b1", "<u8"))
    order = random.choice(("True", "False"))
    text = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}}}\n".encode()
    return content[:8] + len(text).to_bytes(2, "little") + text + content[10 + size :]


def _png(content: bytes, random: Random) -> bytes:
    """One chunk damaged, under a right checksum."""
    chunks, place = [], 8
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    at = random.randrange(len(chunks))
    kind, body = chunks[at]
    if kind == b"IHDR" and random.random() < 0.5:
        body = struct.pack(">II", random.choice((0, 1, 2**16, 2**31 - 1)), random.choice((1, 2**16))) + body[8:]
    else:
        body = _bytes(body, random, b"")
    chunks[at] = (kind, body)
    packed = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return content[:8] + b"".join(packed)


def _pickle(content: bytes, random: Random) -> bytes:
    """One instruction removed, doubled, repeated very often, moved or replaced by one from `INSTRUCTIONS`."""
    starts, file = [], io.BytesIO(content)
    with contextlib.suppress(Exception):  # after several pickles, one behind the other, other bytes may follow
        while True:
            starts += [place or 0 for _, _, place in pickletools.genops(file)]
    parts = [content[start:end] for start, end in zip(starts, [*starts[1:], len(content)])]
    at, other = random.randrange(len(parts)), random.randrange(len(parts))
    kind = random.randrange(6)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts[at] *= random.choice((2, 2, 3, 1000, 180_000))
    elif kind == 2:
        parts[at], parts[other] = parts[other], parts[at]
    elif kind == 3:
        parts.insert(at, random.choice(INSTRUCTIONS))
    elif kind == 4:
        parts.insert(at, random.choice(INSTRUCTIONS) * random.choice((2, 100, 180_000)))
    else:
        parts[at] = random.choice(INSTRUCTIONS)
    return b"".join(parts)


def _tar(content: bytes, random: Random) -> bytes:
    """One block damaged or repeated, under right checksums of all headers."""
    blocks = [content[start : start + 512] for start in range(0, len(content), 512)]
    at = random.randrange(len(blocks))
    if random.random() < 0.1:
        blocks[at:at] = blocks[at : at + random.choice((1, 2))] * random.choice((1, 100, 390))
    else:
        blocks[at] = _bytes(blocks[at], random, b"")[:512].ljust(512, b"\0")
    return b"".join(map(_summed, blocks))


def _summed(block: bytes) -> bytes:
    """A header of a TAR archive with its own checksum; any other block as it is."""
    if block[257:262] != b"ustar":
        return block
    return block[:148] + b"%06o\0 " % (sum(block[:148]) + 8 * ord(" ") + sum(block[156:])) + block[156:]


def _opens_pickle(content: bytes) -> bool:
    return content[:1] == b"\x80" or content[:3] == b"(dp"


def _opens_safetensors(content: bytes) -> bool:
    return content[8:10] in (b'{"', b"{ ") and content[1:8].count(0) >= 5


INSIDE: list[tuple[Callable[[bytes], bool], Callable[[bytes, Random], bytes]]] = [
    (lambda content: content[:1] in (b"{", b"["), _json),
    (lambda content: b":" in content[:200] and content[:1].isalpha() and content.isascii(), _yaml),
    (_opens_safetensors, _safetensors),
    (_opens_pickle, _pickle),
    (lambda content: content[:2] == b"PK", _zip),
    (lambda content: content[:4] == b"\x89PNG", _png),
    (lambda content: content[257:262] == b"ustar", _tar),
]
