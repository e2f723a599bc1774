"""The thread that scores: all requests that wait, together."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError
from cohort_gnn.trainer.predict.scorer import Scorer
from cohort_gnn.trainer.serve.bodies import Request

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks at the data set
MOST_TOGETHER = 64  # requests that are scored at once


@dataclass
class Waiting:
    """A request that waits for its answer: rows, and the names of the classes."""

    request: Request
    answer: Future = field(default_factory=Future)


class Worker:
    """Scores requests with a Scorer, and takes another one when the data set has changed.

    Args:
        make: makes a Scorer of the data set as it is.
        meta: the file that changes with the data set.
        most_waiting: requests beyond so many are refused.
        lost: called when the GPU has failed, so that no request can be answered any more.
    """

    def __init__(self, make: Callable[[], Scorer], meta: Path, most_waiting: int, lost: Callable[[], None]):
        self._make, self._meta, self._lost = make, meta, lost
        self._state = _state_of(meta)
        self.scorer = make()
        self.scorer.warm_up()
        self.problem = ""  # why the data set as it is now is not the one that answers
        self.reloads = 0
        self._queue: queue.Queue[Waiting | None] = queue.Queue(most_waiting)
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._score, self._look)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._queue.put(None)

    @property
    def num_waiting(self) -> int:
        return self._queue.qsize()

    def ask(self, request: Request) -> Future:
        """A future of (rows, names of classes).

        Raises:
            queue.Full: as many requests as may wait do.
        """
        waiting = Waiting(request)
        self._queue.put_nowait(waiting)
        return waiting.answer

    def _score(self) -> None:
        while (first := self._queue.get()) is not None:
            together, is_last = [first], False
            while len(together) < MOST_TOGETHER and not self._queue.empty():
                waiting = self._queue.get()
                if waiting is None:
                    is_last = True
                    break
                together.append(waiting)
            for output in dict.fromkeys(waiting.request.output for waiting in together):
                self._answer([waiting for waiting in together if waiting.request.output == output])
            if is_last:
                return

    def _answer(self, group: list[Waiting]) -> None:
        """Of requests that are scored together; where that fails, each alone, and the wrong ones alone are refused."""
        scorer = self.scorer
        node_types, edge_types = list(scorer.data.node_types), list(scorer.data.edge_types)
        try:
            requests = [waiting.request.arguments(node_types, edge_types) for waiting in group]
            scores: list[Any]
            if group[0].request.output == "targets":
                scores = [
                    scorer.best_targets(
                        k=waiting.request.top_k or 1, exclude_seen=waiting.request.exclude_seen, **asked
                    )
                    for waiting, asked in zip(group, requests, strict=True)
                ]
            else:
                scores = scorer.score_together(requests, hidden=group[0].request.output == "hidden")
        except Exception as error:
            if len(group) > 1:
                for waiting in group:
                    self._answer([waiting])
                return
            group[0].answer.set_exception(error)
            if not isinstance(error, CohortError):
                LOG.error("a request could not be answered", exc_info=error)
                if scorer.has_lost_gpu():
                    LOG.error("the GPU answers this process no more: it ends")
                    self._lost()
            return
        for waiting, rows in zip(group, scores, strict=True):
            waiting.answer.set_result((rows, scorer.class_names))

    def _look(self) -> None:
        while not self._ends.wait(LOOK_SECONDS):
            if (state := _state_of(self._meta)) == self._state:
                continue
            began = time.monotonic()
            try:
                self.scorer, self.problem = self._make(), ""
                self.reloads += 1
                LOG.info(f"the data set has changed: read again in {time.monotonic() - began:.1f} s")
            except Exception as error:  # of a library, too: the next change is looked at again
                self.problem = str(error) or type(error).__name__
                unexpected = None if isinstance(error, CohortError) else error
                LOG.warning(
                    f"the data set has changed and is not read, the one before answers: {self.problem}",
                    exc_info=unexpected,
                )
            self._state = state


def _state_of(meta: Path) -> Any:
    """What differs when the file is another one; None: there is none at the moment."""
    try:
        status = meta.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
