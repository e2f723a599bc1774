"""How long does a small run take, from its command to its first batch and to its end, beside `import torch` alone?

    python bench/first_batch.py DIR --device cuda [--cohort build/bin/cohort ...] [--rounds 7]

A round runs `cohort train` for an epoch with each of the commands `cohort` that are given, and `import torch`; the
first round, which does not count, writes Python's bytecode. The table has medians, and the range of the last column:
seconds from the beginning of the command to when run.json was written (then the sampler starts), to when the parts of
the sampler's start had ended, to when the trainer had its packages, asked for the first batch and had it, to the end of
the epoch with its validation, to the results in summary.json, and to the end of the command.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cohort_gnn.base.tables import TextTable, print_tables

COLUMNS = ("run.json", "sampler", "packages", "asks", "first batch", "epoch", "results", "all")


def seconds_of(cohort: str, data: Path, device: str, out: Path) -> dict[str, float]:
    """The moments of a run, by their columns."""
    shutil.rmtree(out, ignore_errors=True)
    command = [cohort, "train", str(data), "--device", device, "--epochs", "1", "--out", str(out)]
    began, began_at = time.monotonic(), time.time()
    done = subprocess.run(command, capture_output=True, text=True)
    all_seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    wait = next(event for event in events if event["name"] == "wait")
    first = (wait["ts"] + wait["dur"]) / 1e6
    start = json.loads((out / "summary.json").read_text())["start"]
    moments = {
        "packages": first - start["seconds"] + start["packages_seconds"] - began,
        "asks": wait["ts"] / 1e6 - began,
        "first batch": first - began,
        "all": all_seconds,
    }
    files = {"run.json": "run.json", "epoch": "metrics.jsonl", "results": "summary.json"}
    moments |= {column: (out / name).stat().st_mtime - began_at for column, name in files.items()}
    return moments | {"sampler": moments["run.json"] + sum(part["seconds"] for part in start["parts"])}


def import_seconds() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cohort", nargs="+", default=["build/bin/cohort"])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cohort-first-batch-") as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        found: dict[str, list[dict[str, float]]] = {cohort: [] for cohort in args.cohort}
        imports = []
        for number in range(args.rounds + 1):
            seconds = {cohort: seconds_of(cohort, args.data, args.device, Path(folder) / "run") for cohort in found}
            import_alone = import_seconds()
            if number:
                imports.append(import_alone)
                for cohort, moments in seconds.items():
                    found[cohort].append(moments)
    rows = [
        [
            "import torch",
            *[""] * (len(COLUMNS) - 1),
            f"{median(imports):.2f}",
            f"{min(imports):.2f} to {max(imports):.2f}",
        ]
    ]
    for cohort, runs in found.items():
        medians = [f"{median(run[column] for run in runs):.2f}" for column in COLUMNS]
        whole = [run["all"] for run in runs]
        rows.append([cohort, *medians, f"{min(whole):.2f} to {max(whole):.2f}"])
    note = f"seconds since the command began, medians of {args.rounds} rounds"
    print_tables(TextTable("a small run", ["command", *COLUMNS, "range"], rows, note))


if __name__ == "__main__":
    main()
