"""The data set that is made of the tables of a database on the way, and kept for the next time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset.importing.databases import is_relbench
from cohort_gnn.dataset.importing.edge_data import ProgressCall
from cohort_gnn.dataset.importing.importer import demand_no_description, detect, import_graph
from cohort_gnn.dataset.layouts.description import DESCRIPTION
from cohort_gnn.dataset.structured import read_structured

RECORD = "source.json"


class _Record(msgspec.Struct):
    """What a data set was made of: the size and the time of the last change, in ns, of each file by its path."""

    files: dict[str, tuple[int, int]]


def is_database(source: Path) -> bool:
    """Whether it is a folder of tables with a description, or one of RelBench."""
    return source.is_dir() and ((source / DESCRIPTION).exists() or is_relbench(source))


def keep_imported(
    source: Path,
    out: Path,
    *,
    as_proposed: bool = False,
    note: Callable[[str], None] = lambda text: None,
    progress: ProgressCall = lambda what, fraction: None,
) -> None:
    """Makes a data set of a folder of tables, as `cohort dataset import` does. One that this function has made before
    is taken as it is if the folder still has the same files.

    Args:
        as_proposed, note, progress: as of `import_graph`.

    Raises:
        CohortError: for what `import_graph` refuses; `out` is something else, or of other files.

    Example:
        >>> keep_imported(Path("rel-f1"), Path("data/rel-f1"), as_proposed=True)
    """
    if not source.is_dir():
        hint = f"cohort dataset import {source} {out} reads other sources"
        raise CohortError(str(source), "a folder of tables", "none", hint)
    if out.resolve().is_relative_to(source.resolve()):
        raise CohortError(str(out), f"a folder outside {source}", "one in it", "name another: --import-to")
    if as_proposed:
        demand_no_description(source)
    else:
        detect(source)
    files = _files_of(source)
    if not out.exists():
        import_graph(source, out, as_proposed=as_proposed, note=note, progress=progress)
        write_whole(out / RECORD, msgspec.json.encode(_Record(files)))
        note(f"{source} was imported: {out}")
        return
    if not (out / RECORD).exists():
        expected = f"a new folder, or the data set that cohort train has made of {source}"
        raise CohortError(str(out), expected, "something else", "name another folder: --import-to")
    before = read_structured(out / RECORD, "JSON", _Record, "the files of a data set", f"remove {out}").files
    if changed := sorted(name for name in before.keys() | files.keys() if before.get(name) != files.get(name)):
        actual = f"that of other files, {changed[0]} among them"
        hint = "name another folder (--import-to), or remove this one if no run needs it any more"
        raise CohortError(str(out), f"the data set of {source} as it is now", actual, hint)
    note(f"{source} was imported before, and has the same files: {out}")


def _files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of the last change of each file, by its path in the folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            known = path.stat()
            files[str(path.relative_to(folder))] = known.st_size, known.st_mtime_ns
    return files
