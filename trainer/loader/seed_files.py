"""Files by which a trainer gives seed sets to its sampler."""

import collections
import weakref
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes


class SeedFiles:
    """The files of seed sets in a channel's folder, which is in shared memory.

    The sampler reads the files of a set when it begins with a pass over the set, and forgets what it has read once they
    are removed. They are removed when another set is added, if the owner of the set is gone and all passes over the set
    are over or cancelled.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._files: dict[int, list[Path]] = {}  # by number of the set
        self._last_pass: dict[int, int] = {}  # over each set
        self._over_below = 0  # passes with lower numbers are over or cancelled
        self._unowned: collections.deque[int] = collections.deque()  # finalizers, of any thread, append to it

    def add(self, number: int, arrays: dict[str, np.ndarray], owner: object = None) -> None:
        """Writes the files of a set.

        Args:
            arrays: by name of the file.
            owner: requests passes over the set; None: the files stay.
        """
        self._remove_unowned()
        files = [self._folder / name for name in arrays]
        try:
            for file, array in zip(files, arrays.values(), strict=True):
                _write(file, array)
        except CohortError:
            _remove(files)
            raise
        self._files[number] = files
        if owner is not None:
            weakref.finalize(owner, self._unowned.append, number).atexit = False

    def requested(self, number: int, pass_number: int) -> None:
        """Says that a pass over the set was requested."""
        self._last_pass[number] = pass_number

    def ended_below(self, pass_number: int) -> None:
        """Says that all passes with lower numbers are over or cancelled."""
        self._over_below = pass_number

    def _remove_unowned(self) -> None:
        for _ in range(len(self._unowned)):
            number = self._unowned.popleft()
            if self._last_pass.get(number, -1) < self._over_below:
                _remove(self._files.pop(number))
                self._last_pass.pop(number, None)
            else:
                self._unowned.append(number)


def _write(file: Path, array: np.ndarray) -> None:
    try:
        np.save(file, array)
    except OSError as error:
        expected = f"{format_bytes(array.nbytes)} of space in shared memory"
        actual = error.strerror or str(error)
        raise CohortError(str(file), expected, actual, "enlarge it, or use fewer --slots") from error


def _remove(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)  # the folder may be gone
