"""Lines for the user; a standard output or a file that cannot be written ends nothing."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console as RichConsole

from cohort_gnn.base.errors import CohortError, why

LOG = logging.getLogger(__name__)


class Console(RichConsole):
    """rich's, without the end of the program where nobody reads standard output any more (cohort train ... | head)."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python itself writes at its end


class OtherRanksError(Exception):
    """What the trainers of a run do together has failed: another one has ended, or cannot be reached."""


def unless_unheard():
    """Inside, a standard output that cannot be written (its disk is full, nobody reads it) ends nothing."""
    return contextlib.suppress(OSError)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Inside, standard output is the result: where nobody reads on (cohort digest DIR | head) it ends there, well."""
    try:
        yield
    except BrokenPipeError:
        return
    except OSError as error:
        raise CohortError("standard output", "room for what is printed", why(error)) from error


@contextlib.contextmanager
def with_cure_for_lack_of_memory() -> Iterator[None]:
    """Inside, a lack of memory, of a GPU or the host, becomes a CohortError with the options that give it back."""
    import torch  # which the program of `cohort train` imports late

    try:
        yield
    except torch.OutOfMemoryError as error:
        actual = str(error).split(" If reserved but unallocated")[0].strip()
        hint = (
            "let the cache leave more to the trainer: a smaller --cache-ratio, or --cache-ratio auto, which measures"
            " what the trainer needs; or use --topology host, --amp, or a smaller --batch-size, --fanout or --hidden"
        )
        raise CohortError("memory of the GPU", "room for the trainer's step", actual, hint) from error
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and "can't allocate memory" not in text:  # torch has no type of its own
            raise
        actual = text[max(text.find("can't allocate memory"), 0) :].strip() or "too little"
        hint = "use a smaller --batch-size, --fanout or --hidden; ulimit -v and other programs may leave less"
        raise CohortError("host memory", "room for the trainer's step", actual, hint) from error


@contextlib.contextmanager
def unless_full(path: Path) -> Iterator[None]:
    """Inside, what keeps a file from being written (a full disk) is logged, and the run goes on."""
    try:
        yield
    except OSError as error:
        LOG.warning(f"{path} was not written, and the run continues without it: {error}")


@contextlib.contextmanager
def unless_missing(path: Path) -> Iterator[None]:
    """Inside, what keeps a result of a finished run from being written becomes a CohortError."""
    try:
        yield
    except OSError as error:
        cure = "free some space; then cohort train --resume RUN goes on from the last checkpoint, if there is one"
        raise CohortError(str(path), "a result of the finished run, written", why(error), cure) from error
