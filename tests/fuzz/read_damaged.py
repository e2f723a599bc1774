"""Reads damaged inputs, the same ones for the same seed: a reader may take them or raise CohortError, nothing else.

    python tests/fuzz/read_damaged.py [--runs N | --seconds S] [--seed SEED] [--keep DIR] [READER ...]

What a reader fails over is kept in DIR, with the error in error.txt. Exit status 1 when there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

DATASET = Path(__file__).parents[1] / "dataset"
sys.path[:0] = [str(Path(__file__).parent), str(DATASET), str(DATASET / "typed")]

from damage import copy_of, damage_folder  # noqa: E402
from readers import READERS, available, read_damaged  # noqa: E402

SECONDS_AN_INPUT = 20  # more is a hang
MEMORY_BYTES = 4_000_000_000  # beside what the libraries have mapped: a file that asks for more is an error


class Hang(BaseException):
    """An input takes too long."""


def fuzz(name: str, runs: int, seconds: float, seed: int, keep: Path) -> tuple[int, int, list[str]]:
    """Damages a reader's input again and again.

    Returns:
        how many inputs were read, how many of them refused, and a line for each failure of a new kind.
    """
    random = Random(f"{name} {seed}")
    failures: dict[str, str] = {}
    done = refused = 0
    with tempfile.TemporaryDirectory(prefix="cohort-fuzz-") as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "good").mkdir()
        READERS[name].write(scratch / "good")
        with copy_of(scratch / "good", scratch) as folder:
            said = read_damaged(name, folder)
            assert said is None, f"the good input is refused: {said}"
        end = time.monotonic() + seconds
        while done < runs and time.monotonic() < end:
            with copy_of(scratch / "good", scratch) as folder:
                what = damage_folder(random, folder)
                done += 1
                try:
                    with limited():
                        refused += read_damaged(name, folder) is not None
                except (Exception, Hang) as error:  # noqa: BLE001 (anything but CohortError is a finding)
                    kind = place_of(error)
                    if kind not in failures:
                        failures[kind] = f"{name}: {what}: {error!r:.200} at {kind}"
                        keep_input(keep / f"{name}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}", folder)
    return done, refused, list(failures.values())


@contextlib.contextmanager
def limited():
    """Inside, what takes too long ends."""
    signal.alarm(SECONDS_AN_INPUT)
    try:
        yield
    finally:
        signal.alarm(0)


def place_of(error: BaseException) -> str:
    """What tells failures apart: the kind of error, and the last lines of Cohort's that it came through."""
    frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__} {' '.join(frames[-6:])}"


def keep_input(place: Path, folder: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    (place / "error.txt").write_text(traceback.format_exc())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", metavar="READER", choices=[*READERS, []])
    parser.add_argument("--runs", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()

    def stop(*_) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, stop)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
    failures = []
    for name in options.readers or available():
        before = time.process_time()
        done, refused, found = fuzz(name, options.runs, options.seconds, options.seed, options.keep)
        failures += found
        print(f"{name}: {done} inputs, {refused} refused, {time.process_time() - before:.1f} s of CPU", flush=True)
        for line in found:
            print(f"  {line}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
