"""Damage to files, the same for the same random state: to their bytes, inside of archives, and to folders."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import zipfile
from pathlib import Path
from random import Random

NUMBERS = [0, 1, 2, 63, 64, 127, 255, 65535, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TOKENS = [
    b"0", b"-1", b"1e999", b"nan", b"4611686018427387904", b"99999999999999999999", b"true", b"null", b"{", b"}",
    b"[", b"]", b'"', b",", b"\n", b"'", b"(", b")", b":", b"\x00", b"\xff", b"..", b"1.5", b"<f8", b"|O", b"-",
]  # fmt: skip


def damage_folder(random: Random, folder: Path) -> str:
    """Damages one to three files of a folder; says which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    said = []
    for path in random.sample(files, min(len(files), random.choice([1, 1, 1, 2, 3]))):
        kind = random.choices(["bytes", "remove", "other", "folder"], [40, 1, 2, 1])[0]
        said.append(f"{kind} of {path.relative_to(folder)}")
        if kind == "bytes":
            path.write_bytes(damage(random, path.read_bytes()))
        elif kind == "other":
            other = random.choice(files)
            path.write_bytes(other.read_bytes() if other.is_file() else b"")
        else:
            path.unlink()
            if kind == "folder":
                path.mkdir()
    return ", ".join(said)


def damage(random: Random, data: bytes) -> bytes:
    """Other bytes than these; of an archive often those of a member, so that its checksums are right."""
    if data[:2] == b"PK" and random.random() < 0.7:
        return _damage_zip(random, data)
    if data[:2] == b"\x1f\x8b" and random.random() < 0.7:
        return gzip.compress(_damage_bytes(random, gzip.decompress(data)), 1, mtime=0)
    return _damage_bytes(random, data)


def _damage_zip(random: Random, data: bytes) -> bytes:
    """The archive with one member damaged; torch.save's stay at multiples of 64 bytes only if nothing moves."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as damaged:
        members = [(info, archive.read(info)) for info in archive.infolist()]
        spoiled = random.randrange(len(members))
        for i, (info, content) in enumerate(members):
            damaged.writestr(info.filename, _damage_bytes(random, content) if i == spoiled else content)
    return out.getvalue()


def _damage_bytes(random: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        at = random.randrange(len(out) + 1)
        # Formats begin with what says most about the rest.
        at = min(at, random.randrange(200)) if random.random() < 0.4 else at
        length = random.randrange(min(len(out) - at, 64) + 1)
        kind = random.randrange(8)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.randrange(256)
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            source = random.randrange(len(out) + 1)
            out[at:at] = out[source : source + random.randrange(64)]
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            number = random.choice(NUMBERS) - random.randrange(2)
            size = random.choice([1, 2, 4, 8])
            out[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")
        else:
            token = random.choice(TOKENS)
            out[at : at + length] = token * (random.randrange(1000) if random.random() < 0.03 else 1)
    return bytes(out)


@contextlib.contextmanager
def copy_of(good: Path, scratch: Path):
    """A copy of a folder that is removed afterwards."""
    folder = scratch / "input"
    shutil.copytree(good, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
