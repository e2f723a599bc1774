"""What the program of `cohort predict` does while it loads its packages: it checks the data set, and for --update it
copies scores, makes digests and looks for what has changed."""

import contextlib
import json
import re
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import numpy as np

from cohort_gnn.base.files import BegunFile, begun_file
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.check import demand_in_range
from cohort_gnn.trainer.predict.copies import Copies
from cohort_gnn.trainer.predict.marks import Marks, marks_since
from cohort_gnn.trainer.predict.row_digests import Digests, DigestsOf, plain_digests

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
        self._data: Future[StoredGraph] | None = None
        self._digests: Future[dict[DigestsOf, np.ndarray]] | None = None
        self._marks: Future[Marks | None] | None = None
        self._files = contextlib.ExitStack()

    def __enter__(self) -> "EarlyWork":
        return self

    def __exit__(self, *_) -> None:
        with self._lock:
            self._is_late = self._is_over = True
        with self._files:
            self.copies.stop()

    def begin(self, argument: str) -> None:
        """Does what can be done of a job, unless the program does it itself already."""
        job = json.loads(argument)
        with self._lock:
            if self._is_late:
                return
            checked = self._data = Future()
            digests = self._digests = Future() if job["keep"] or job["update"] else None
            marks = self._marks = Future() if job["update"] else None
        try:
            data = open_dataset(job["dataset"])
            with contextlib.suppress(Exception):  # the program meets it again, and says it
                self._begin_scores(job, data)
            demand_in_range(job["dataset"], self._go_on)
            checked.set_result(data)
            if digests:
                digests.set_result(now := plain_digests(data, self._go_on))
                if marks:
                    marks.set_result(marks_since(data, _digests_before(Path(job["update"])), now, self._go_on))
        except BaseException as error:
            futures: list[Future | None] = [checked, digests, marks]
            for future in futures:
                if future and not future.done():
                    future.set_exception(error)

    def open_checked(self, folder: str) -> StoredGraph:
        """The data set, all of whose ids are in range; from now on nothing else begins."""
        with self._lock:
            self._is_late = True
        if self._data is not None:
            return self._data.result()
        data = open_dataset(folder)
        demand_in_range(folder)
        return data

    def digests(self) -> Mapping[DigestsOf, np.ndarray]:
        """Those that are there by now, or soon."""
        with contextlib.suppress(Exception):  # then the program makes them
            return self._digests.result() if self._digests else {}
        return {}

    def marks(self) -> Marks | None:
        """What an update looks for first, by now or soon; None: the program looks for it."""
        with contextlib.suppress(Exception):
            return self._marks.result() if self._marks else None
        return None

    def _go_on(self) -> None:
        if self._is_over:
            raise InterruptedError

    def _begin_scores(self, job: dict, data: StoredGraph) -> None:
        """Begins the file of scores with those that --keep has left, most of which will be there again."""
        out, update = Path(job["out"]), job["update"]
        if update is None or job["classes"] or job["nodes"] is not None or out.suffix != ".npy":
            return
        record = json.loads(Path(update, "record.json").read_bytes())
        rows_folder = Path(update, record["rows"])
        layers = [tuple(map(int, NUMBERS.findall(file.name))) for file in rows_folder.glob("layer-*")]
        number, place = max(layers)
        count = data.node_types[list(record["nodes"])[place]].num_nodes
        scores = cast(np.memmap, map_array(rows_folder / f"layer-{number}-{place}.npy"))
        with self._lock:
            self._go_on()
            self.output = self._files.enter_context(begun_file(out))
            self.copies.begin(scores, self.output.path, count)


def _digests_before(update: Path) -> Digests:
    """What --keep has left; the program finds out whether its files are whole."""
    record = json.loads((update / "record.json").read_bytes())
    edge_types = [tuple(relation) for relation, _ in record["edges"]]

    def arrays(what: str, names: Iterable) -> dict:
        return {name: map_array(update / record["rows"] / f"{what}-{place}.npy") for place, name in enumerate(names)}

    return Digests(arrays("nodes", record["nodes"]), arrays("lists", edge_types))
