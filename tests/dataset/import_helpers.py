"""What tests of importers share: tables beside an edge list, what came out, and what was refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

ONES = SourceOptions(features="ones")


def write_tables(folder: Path, graph) -> SourceOptions:
    """Rows, labels and splits as .npy files."""
    np.save(folder / "x.npy", graph.x)
    np.save(folder / "y.npy", graph.y)
    for name, ids in zip(("train", "val", "test"), graph.splits, strict=True):
        np.save(folder / f"{name}.npy", ids)
    return SourceOptions(
        features=folder / "x.npy",
        labels=folder / "y.npy",
        splits=[folder / f"{s}.npy" for s in ("train", "val", "test")],
    )


def write_npz(source: Path, kind: str, arrays: dict[str, np.ndarray]) -> Path:
    """Arrays as an .npz "file", or as a "folder" of .npy files."""
    if kind == "file":
        np.savez(source, **arrays)
        return source
    source.mkdir()
    for name, array in arrays.items():
        np.save(source / f"{name}.npy", array)
    return source


def edge_pairs(folder: Path) -> list[tuple[int, int]]:
    """(source, destination), in the order of the file."""
    data = open_dataset(folder)
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    return list(zip(data.indices.tolist(), target.tolist(), strict=True))


def refusal(source, out, **options) -> CohortError:
    """The error of an import that leaves nothing behind."""
    before = set(out.parent.iterdir())
    with pytest.raises(CohortError) as error:
        import_graph(source, out, **options)
    assert set(out.parent.iterdir()) == before
    assert error.value.place and error.value.expected and error.value.found
    return error.value


class Harmful:
    """What a pickle can do when it is loaded."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


PICKLE = pickle.dumps(Harmful())
