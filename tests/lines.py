"""How much longer the product is at one commit than at another: python tests/lines.py a54f493 HEAD

Counts lines of .py, .cc, .h, .cu and .cuh files outside of tests, bench, docs and examples, by room. A file that moved
there from a room counts as the room's still.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".cc", ".h", ".cu", ".cuh"}
OUTSIDE = {"tests", "bench", "docs", "examples"}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def lines_of(commit: str) -> dict[str, int]:
    """Path -> lines, of all source files."""
    empty = git("hash-object", "-t", "tree", "/dev/null").strip()
    rows = (line.split("\t") for line in git("diff", "--numstat", "--no-renames", empty, commit).splitlines())
    return {path: int(lines) for lines, _, path in rows if PurePosixPath(path).suffix in SUFFIXES}


def room_of(path: str) -> str:
    """Top folder; "": none of the product's."""
    first = PurePosixPath(path).parts[0]
    return "" if first in OUTSIDE else first


def moved(before: str, after: str) -> dict[str, str]:
    """New path -> old one, of the files that git takes for moved."""
    names = git("diff", "--name-status", "--diff-filter=R", "--find-renames", "-l0", before, after)
    return {new: old for _, old, new in (line.split("\t") for line in names.splitlines())}


def difference(before: str, after: str) -> dict[str, tuple[int, int]]:
    """Room -> its lines at both commits."""
    sums: tuple[Counter, Counter] = (Counter(), Counter())
    for path, lines in lines_of(before).items():
        sums[0][room_of(path)] += lines
    old_of = moved(before, after)
    for path, lines in lines_of(after).items():
        sums[1][room_of(path) or room_of(old_of.get(path, path))] += lines
    rooms = sorted(room for room in sums[0] | sums[1] if room)
    return {room: (sums[0][room], sums[1][room]) for room in rooms}


def main(before: str, after: str) -> None:
    rows = difference(before, after)
    rows["all"] = (sum(first for first, _ in rows.values()), sum(last for _, last in rows.values()))
    print(f"{'room':10}{before[:10]:>11}{after[:10]:>11}{'more':>8}")
    for room, (first, last) in rows.items():
        print(f"{room:10}{first:11,}{last:11,}{last - first:+8,}")


if __name__ == "__main__":
    main(*sys.argv[1:])
