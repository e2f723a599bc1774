"""Whether a run that goes on still has the data set that it was started on."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import open as open_folder
from cohort_gnn.dataset.digests import digest_of_files
from cohort_gnn.dataset.links import HELD_OUT, LinkEdges, with_held_out
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.dataset.tasks import FOLDER as TASKS
from cohort_gnn.launch.data.stored_rows import StoredRows
from cohort_gnn.spec.meta import OF_EDGES, read_meta

COMMUNITIES = "communities of --seed-order"
NUM_ROWS = 64  # of features, evenly spaced


def digests(
    folder: Path, parts: dict | None, task_name: str | None = None, seed_order: str = "shuffle"
) -> dict[str, str]:
    """Identifies a data set: {part: its digest}, the member "data" of run.json.

    Feature rows are digested decoded, so that they may be encoded, and the raw ones dropped, meanwhile.

    Args:
        parts: those that ranks train on, if they do, as TrainerSpec has them.
        task_name: of the task that is learned; None: splits and labels, or links, are.
        seed_order: as options have it.

    Raises:
        CohortError: there is no such file.
    """
    data, meta = open_folder(folder), read_meta(folder)
    if seed_order != "shuffle" and not Path(seed_order).is_file():
        hint = "check the path; with --resume, say where the file is now"
        raise CohortError("--seed-order", "a file with the community of each node", f"no file {seed_order}", hint)
    members = {
        "description": ["meta.json"],
        "splits": [meta["target"][f"{split}_ids"] for split in ("train", "val", "test")],
        "labels": [meta["target"]["labels"]],
        "edges": [edges[name] for edges in meta["edges"] for name in OF_EDGES if name in edges],
        "parts": [parts["parts"]] if parts else [],  # an absolute path, as the next
        COMMUNITIES: [] if seed_order == "shuffle" else [seed_order],
        "links": [
            name
            for relation in with_held_out(data)
            for split in HELD_OUT
            for shared in (False, True)
            for name in LinkEdges(data, relation).files(split, shared)[shared:]
            if (folder / name).exists()
        ],
    }
    times = [LinkEdges(data, relation).times_file(split) for relation in with_held_out(data) for split in HELD_OUT]
    members["links"] += [name for name in times if (folder / name).exists()]
    if task_name is not None:
        members["task"] = sorted(str(file) for file in (folder / TASKS / task_name).iterdir())
    digests = {name: digest_of_files([folder / file for file in files]) for name, files in members.items()}
    digests["features"] = _digest_of_rows(data.feature_tables)
    if data.edge_tables:
        digests["edge features"] = _digest_of_rows(data.edge_tables)
    return digests


def _digest_of_rows(tables: Sequence[FeatureTable]) -> str:
    """A digest of some rows of each table, decoded."""
    sha = hashlib.sha256()
    for rows in map(StoredRows, tables):
        if rows.num_rows:
            sha.update(rows.take(np.linspace(0, rows.num_rows - 1, NUM_ROWS).astype(np.int64)).data)
    return sha.hexdigest()[:32]


def demand_same_data(
    before: dict[str, str],
    folder: Path,
    parts: dict | None,
    task_name: str | None = None,
    seed_order: str = "shuffle",
) -> None:
    """Raises CohortError where the data set is not the one whose digests a run has from before."""
    if parts and not Path(parts["parts"]).exists():
        hint = f"copy it along with the data set, or: cohort dataset partition DIR --parts {len(parts['cliques'])}"
        raise CohortError(parts["parts"], "the parts that the run was started with", "no such file", hint)
    now = digests(folder, parts, task_name, seed_order)
    others = [name for name, digest in before.items() if now.get(name) != digest]
    if others == [COMMUNITIES]:
        expected, hint = "the communities that the run was started with", "name their file, or start a new run"
        raise CohortError("--seed-order", expected, f"others in {seed_order}", hint)
    if others:
        hint = "name the folder of that data set; if its files were replaced, start a new run without --resume"
        actual = f"one with other {', '.join(others)}"
        raise CohortError(str(folder), "the data set that the run was started on", actual, hint)
