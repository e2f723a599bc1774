"""Test accuracy of `cohort train --coarse-epochs` beside exact training, in pairs of runs of one seed.

    PYTHONPATH=build/python python bench/accuracy_coarse.py --data ../shared/data [--only cora] [--seeds 20] [--jobs 8]

The graphs are real, and their features are dense float32 rows (`dataset import --pca 128`). Both runs of a pair have
the recipe of bench/accuracy.py, the same split and the same seed; one reads plane A alone for 80 % of its epochs. Exit
status 1 when the mean of the differences is below -0.2 points on a data set.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from accuracy import DENSE, RECIPES, ROOT, mean_and_spread, run_cohort

ALLOWED_LOSS_POINTS = 0.2
COARSE_SHARE = 0.8
NAMES = ("cora", "citeseer", "amazon_photo", "coauthor_cs")


def pair(name: str, seed: int, args: argparse.Namespace) -> tuple[float, float]:
    """Test accuracies in percent, of the exact run and of the coarse one."""
    recipe = replace(RECIPES[name], features=DENSE)
    found = []
    with tempfile.TemporaryDirectory(dir=args.out) as scratch:
        data = Path(scratch) / "data"
        run_cohort(recipe.import_arguments(args.data / f"{name}.npz", data, seed))
        bits = str(args.mantissa_bits)
        run_cohort(["dataset", "prepare", str(data), "--codec", "planes", "--mantissa-bits", bits])
        for coarse in (0, round(COARSE_SHARE * recipe.epochs)):
            run = Path(scratch) / f"run-{coarse}"
            options = ["--coarse-epochs", str(coarse), "--quiet"]
            run_cohort([*recipe.train_arguments(data, run, seed, args.device), *options])
            found.append(100 * json.loads((run / "summary.json").read_text())["test_accuracy"])
    return found[0], found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data", help="folder of the .npz files")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(NAMES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mantissa-bits", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="pairs at a time")
    parser.add_argument(
        "--out", type=Path, default=ROOT / ".bench/accuracy_coarse", help="data and runs, deleted after"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    is_worse = False
    print("| data set | exact | coarse for 80 % | difference | standard error |\n|---|---|---|---|---|")
    with ThreadPoolExecutor(args.jobs) as pool:
        for name in args.only:
            pairs = list(pool.map(lambda seed: pair(name, seed, args), range(args.seeds)))  # noqa: B023 (done in this round)
            exact, coarse = (list(side) for side in zip(*pairs, strict=True))
            differences = [b - a for a, b in pairs]
            mean = statistics.mean(differences)
            error = statistics.stdev(differences) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
            print(
                f"| {name} | {mean_and_spread(exact)} | {mean_and_spread(coarse)} | {mean:+.2f} | {error:.2f} |",
                flush=True,
            )
            is_worse |= mean < -ALLOWED_LOSS_POINTS
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
