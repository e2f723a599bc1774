"""What the program of `cohort predict` does while it loads its packages: it checks the ids of the data set, and copies
scores for --update."""

import contextlib
import json
import re
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import numpy as np

from cohort_gnn.base.files import BegunFile, begun_file
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.check import demand_in_range
from cohort_gnn.trainer.predict.copies import Copies

NUMBERS = re.compile(r"\d+")


class EarlyWork:
    """Work for a job, before the program has its packages; what does not begin then is done when it is asked for.

    As a context: leaving it ends all that has begun, and removes a file that has not become the output.

    Attributes:
        copies: of files that --keep has left.
        output: the file of scores, if one of these becomes it.
    """

    def __init__(self):
        self.copies, self.output = Copies(), cast(BegunFile | None, None)
        self._lock, self._is_late, self._is_over = threading.Lock(), False, False
        self._check: Future[None] | None = None
        self._files = contextlib.ExitStack()

    def __enter__(self) -> "EarlyWork":
        return self

    def __exit__(self, *_) -> None:
        with self._lock:
            self._is_late = self._is_over = True
        with self._files:
            self.copies.stop()

    def begin(self, argument: str) -> None:
        """Begins what can be of a job, and checks the ids, unless the program already does it itself."""
        job = json.loads(argument)
        with self._lock:
            if self._is_late:
                return
            self._check = Future()
            with contextlib.suppress(Exception):  # the program meets it again, and says it
                self._begin_scores(job)
        try:
            demand_in_range(job["dataset"], self._go_on)
        except BaseException as error:
            self._check.set_exception(error)
        else:
            self._check.set_result(None)

    def demand_checked(self, folder: str) -> None:
        """`dataset.check.demand_in_range`, which may have begun; from now on nothing else begins."""
        with self._lock:
            self._is_late = True
        if self._check is None:
            demand_in_range(folder)
        else:
            self._check.result()

    def _go_on(self) -> None:
        if self._is_over:
            raise InterruptedError

    def _begin_scores(self, job: dict) -> None:
        """Begins the file of scores with those that --keep has left, most of which will be there again."""
        out, update = Path(job["out"]), job["update"]
        if update is None or job["classes"] or job["nodes"] is not None or out.suffix != ".npy":
            return
        record = json.loads(Path(update, "record.json").read_bytes())
        rows_folder = Path(update, record["rows"])
        layers = [tuple(map(int, NUMBERS.findall(file.name))) for file in rows_folder.glob("layer-*")]
        number, place = max(layers)
        count = open_dataset(job["dataset"]).node_types[list(record["nodes"])[place]].num_nodes
        self.output = self._files.enter_context(begun_file(out))
        scores = cast(np.memmap, map_array(rows_folder / f"layer-{number}-{place}.npy"))
        self.copies.begin(scores, self.output.path, count)
