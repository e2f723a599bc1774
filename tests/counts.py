"""The size of the product: python tests/counts.py [COMMIT]

Prints, for the product's files at a commit (default HEAD; tests, bench, docs and examples are no part of it), the
longest files and the fullest folders.
"""

import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"tests", "bench", "docs", "examples", "findings"}
SUFFIXES = {".py", ".h", ".cuh", ".cc", ".cu"}


def lines_of(commit: str) -> dict[PurePosixPath, int]:
    """Path -> number of lines, of the product's source files."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if member.isfile() and path.suffix in SUFFIXES and path.parts[0] not in OUTSIDE:
                file = archive.extractfile(member)
                assert file is not None
                found[path] = file.read().count(b"\n")
    return found


def largest(sizes: dict[PurePosixPath, int]) -> str:
    first = sorted(sizes.items(), key=lambda each: -each[1])[:5]
    return ", ".join(f"{path} {size}" for path, size in first)


def main(commit: str = "HEAD") -> None:
    lines = lines_of(commit)
    print(f"longest files: {largest(lines)}")
    print(f"fullest folders: {largest(Counter(path.parent for path in lines))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
