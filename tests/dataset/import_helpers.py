"""What tests of importers share: tables beside an edge list, what came out, and what was refused."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions

FIELDS = {each.name for each in dataclasses.fields(SourceOptions)}


def write_tables(folder: Path, graph) -> dict:
    """Rows, labels and splits as .npy files, by the names of options."""
    np.save(folder / "x.npy", graph.x)
    np.save(folder / "y.npy", graph.y)
    for name, ids in zip(("train", "val", "test"), graph.splits, strict=True):
        np.save(folder / f"{name}.npy", ids)
    splits = [folder / f"{name}.npy" for name in ("train", "val", "test")]
    return {"features": folder / "x.npy", "labels": folder / "y.npy", "splits": splits}


def write_npz(source: Path, kind: str, arrays: dict[str, np.ndarray]) -> Path:
    """Arrays as an .npz "file", or as a "folder" of .npy files."""
    if kind == "file":
        np.savez(source, **arrays)
        return source
    source.mkdir()
    for name, array in arrays.items():
        np.save(source / f"{name}.npy", array)
    return source


def imported(source: Path, out: Path | None = None, **options):
    """The data set that a source becomes.

    Args:
        out: its folder; None: a new one beside the source.
        options: of import_graph and of SourceOptions.
    """
    if out is None:
        out = next(path for i in itertools.count() if not (path := source.parent / f"imported-{i}").exists())
    import_graph(source, out, **_with_inputs(options))
    return open_dataset(out)


def _with_inputs(options: dict) -> dict:
    inputs = {name: options.pop(name) for name in {*options} & FIELDS}
    if inputs.get("features") == "ones":
        inputs["features"] = Path("ones")
    return options | {"inputs": SourceOptions(**inputs)} if inputs else options


def edge_pairs(data) -> list[tuple[int, int]]:
    """(source, destination), in the order of the file, of a data set or its folder."""
    data = open_dataset(data) if isinstance(data, Path) else data
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    return list(zip(data.indices.tolist(), target.tolist(), strict=True))


def refusal(source: Path, out: Path | None = None, **options) -> CohortError:
    """The error of an import that leaves nothing behind; the arguments are those of `imported`."""
    out = out or source.parent / "refused"
    before = set(out.parent.iterdir())
    with pytest.raises(CohortError) as error:
        import_graph(source, out, **_with_inputs(options))
    assert set(out.parent.iterdir()) == before
    assert error.value.place and error.value.expected and error.value.found
    return error.value


class Harmful:
    """What a pickle can do when it is loaded."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


PICKLE = pickle.dumps(Harmful())
