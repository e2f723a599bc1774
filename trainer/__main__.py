"""``python -m cohort.trainer RUN/run.json``: the trainer program that ``cohort train`` and ``cohort digest`` start."""

import json
import os
import signal
import sys
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.trainer import _native


def main(run_json: Path) -> int:
    """Runs what the member "trainer" of run.json says; returns the exit code."""
    run = json.loads(run_json.read_text())
    _native.end_with_parent(run["sampler"]["owner_pid"], signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's business
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    from cohort.trainer.source import BatchSource, wait_for_channel

    folder = Path(run["sampler"]["channel"])
    wait_for_channel(folder, lambda: None)
    source = BatchSource(folder)
    try:
        if run["trainer"]["task"] == "digest":
            from cohort.trainer.digest import print_digests

            print_digests(source, run)
        else:
            _train(source, run, run_json.parent)
    except BaseException as error:
        source.fail(f"{type(error).__name__}: {error}")
        raise
    return 0


def _train(source, run: dict, out: Path) -> None:
    import numpy as np

    from cohort.trainer.progress import print_table
    from cohort.trainer.train import Trainer, TrainOptions

    options = TrainOptions(**{key: value for key, value in run["trainer"].items() if key != "task"})
    dataset = Path(run["sampler"]["dataset"])
    splits = {name: np.load(dataset / f"{name}_ids.npy", mmap_mode="r") for name in ("train", "val", "test")}
    trainer = Trainer(options, source, splits, out)
    trainer.report.time_sliced = run.get("time_sliced", False)
    print_table(trainer.run(), options.quiet)


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except CohortError as error:
        print(f"cohort: {error}", file=sys.stderr)
        os._exit(1)  # not through destructors that may wait for a process that is gone
